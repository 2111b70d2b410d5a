"""An engine whose wheels the default index does not have: where they come from, and what is said when they do not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import tomli

from qresolve.cli.lock import parse_indexes
from qresolve.closure.failure import parse_failure
from qresolve.closure.request import Closure, ClosureRequest, NamedIndex
from qresolve.closure.uv import project_text
from qresolve.edges import Edges
from qresolve.errors import NoResolution
from qresolve.knowledge.records import PackageIndex
from qresolve.lanes import indexes_of
from qresolve.locking import _close, index_hint, where_the_wheels_are
from tests.unit.core.small_engine import SOURCE, engine, ladder, route

if TYPE_CHECKING:
    from qresolve.knowledge.records import Engine

VENDOR = PackageIndex(
    name="vendor",
    url="https://vendor.example/simple",
    packages=("small", "small-runtime"),
    flat=False,
    upload_times=False,
    note="the default index has stubs",
    source=SOURCE,
)


def of_vendor() -> Engine:
    return replace(engine((route("a"),), (ladder("f", ("a",)),)), index=VENDOR)


def edges(result: Closure | NoResolution) -> Edges:
    def close(_: ClosureRequest) -> Closure:
        if isinstance(result, NoResolution):
            raise result
        return result

    return Edges(close=close, record=lambda _: None, measure=lambda _: None, newer=lambda *_: None, say=lambda _: None)


def test_an_engine_without_an_index_of_its_own_changes_nothing() -> None:
    mine = (NamedIndex(name="mine", url="https://mine.example", packages=("other",)),)
    assert indexes_of(mine, None) == mine


def test_its_packages_come_from_its_index_and_nowhere_else() -> None:
    (found,) = indexes_of((), VENDOR)
    assert (found.url, found.packages, found.explicit) == (VENDOR.url, VENDOR.packages, True)
    assert not found.upload_times


def test_what_the_user_binds_stays_with_him_and_the_rest_comes_from_its_index() -> None:
    mine = NamedIndex(name="mirror", url="https://mirror.example", packages=("small",))
    found = {package: index.name for index in indexes_of((mine,), VENDOR) for package in index.packages}
    assert found == {"small": "mirror", "small-runtime": "vendor"}
    everything = replace(mine, packages=VENDOR.packages)
    assert indexes_of((everything,), VENDOR) == (everything,)


def test_a_failed_closure_says_where_the_wheels_are_and_how_to_name_the_index() -> None:
    asked = ClosureRequest(requirements=("small==1.0",), indexes=indexes_of((), VENDOR))
    with pytest.raises(NoResolution) as caught:
        _close(asked, of_vendor(), edges(NoResolution("vendor.example cannot be reached")))
    assert "vendor.example cannot be reached" in caught.value.message
    assert VENDOR.url in caught.value.message
    assert VENDOR.note in caught.value.message
    assert caught.value.hint == "--index vendor=https://vendor.example/simple=small,small-runtime"


def test_the_hint_can_be_pasted() -> None:
    (found,) = parse_indexes([index_hint(VENDOR).removeprefix("--index ")])
    assert (found.name, found.url, found.packages) == (VENDOR.name, VENDOR.url, VENDOR.packages)


def test_a_hint_of_the_failure_itself_comes_first() -> None:
    asked = ClosureRequest(requirements=("small==1.0",), indexes=indexes_of((), VENDOR))
    with pytest.raises(NoResolution) as caught:
        _close(asked, of_vendor(), edges(NoResolution("it needs glibc 2.39", hint="--glibc 2.39")))
    assert caught.value.hint == "--glibc 2.39"


def test_with_an_index_of_the_user_the_failure_stays_as_it_is() -> None:
    mirror = NamedIndex(name="mirror", url="https://mirror.example", packages=VENDOR.packages)
    asked = ClosureRequest(requirements=("small==1.0",), indexes=indexes_of((mirror,), VENDOR))
    failure = NoResolution("mirror.example cannot be reached")
    with pytest.raises(NoResolution) as caught:
        _close(asked, of_vendor(), edges(failure))
    assert caught.value is failure


def test_a_closure_that_is_found_is_handed_on() -> None:
    closure = Closure(packages=())
    asked = ClosureRequest(requirements=("small==1.0",), indexes=indexes_of((), VENDOR))
    assert _close(asked, of_vendor(), edges(closure)) is closure


@pytest.mark.parametrize("flat", [True, False])
def test_a_page_of_links_is_told_to_the_resolver_as_one(flat: bool) -> None:
    asked = ClosureRequest(requirements=("small==1.0",), indexes=indexes_of((), replace(VENDOR, flat=flat)))
    (written,) = tomli.loads(project_text(asked))["tool"]["uv"]["index"]
    assert written.get("format") == ("flat" if flat else None)


def test_a_page_of_links_is_not_offered_as_an_index() -> None:
    assert index_hint(replace(VENDOR, flat=True)).startswith("pip download ")
    assert VENDOR.url in where_the_wheels_are("small", VENDOR)


def test_with_one_package_of_the_engines_name_it_is_named_once() -> None:
    alone = replace(VENDOR, packages=("small",))
    assert where_the_wheels_are("small", alone).count("small") == 1


def test_a_page_of_links_that_cannot_be_read_is_no_broken_wheel() -> None:
    facts = parse_failure("error: Failed to read `--find-links` URL: https://user:secret@links.example/wheels")
    assert (facts.reason, facts.package) == ("index", None)
    assert facts.message.startswith("https://links.example/wheels cannot be reached")
