"""Every way a resolution fails: the reason, one line, the smallest change; never a secret."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.closure.explain import Reason, WheelTarget, explain_no_wheel
from qresolve.closure.failure import ClosureFailure, parse_failure, shown_text
from qresolve.closure.request import NamedIndex
from qresolve.closure.simple import ProjectFile, parse_simple_html, parse_simple_json
from qresolve.closure.tags import glibc_pair
from tests.index_server import IndexServer, make_wheel
from tests.unit.closure.closure_support import close, user

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from qresolve.closure.indexes import UserIndexes


@pytest.fixture
def server() -> Iterator[IndexServer]:
    with IndexServer() as server:
        server.add(make_wheel("newlibc", "1.0", tag="cp312-cp312-manylinux_2_31_x86_64"))
        server.add(make_wheel("newlibc", "1.1", tag="cp312-cp312-manylinux_2_38_x86_64"))
        server.add(make_wheel("engine", "1.0", requires=("newlibc>=1.0",)))
        server.add(make_wheel("oldpython", "1.0", tag="cp310-cp310-manylinux_2_17_x86_64"))
        server.add(make_wheel("newpython", "1.0", requires_python=">=3.13"))
        server.add(make_wheel("armonly", "1.0", tag="cp312-cp312-manylinux_2_17_aarch64"))
        server.add(make_wheel("winonly", "1.0", tag="cp312-cp312-win_amd64"))
        server.add(make_wheel("late", "1.0"), upload_time="2026-09-01T10:00:00Z")
        server.add(make_wheel("undated", "1.0"), upload_time=None)
        server.add(make_wheel("yanked", "1.0"), yanked="wrong CUDA")
        server.add(make_wheel("cut", "1.0"), truncate=20, core_metadata=False)
        server.add(make_wheel("closed", "1.0"), broken=True, core_metadata=False)
        server.add(make_wheel("gone", "1.0"), status=404, core_metadata=False)
        server.add(make_wheel("down", "1.0"))
        server.fail("down", 503)
        server.add(make_wheel("one", "1.0", requires=("late<1",)))
        yield server


def _failure(who: UserIndexes, *requirements: str, **options: Any) -> ClosureFailure:
    with pytest.raises(ClosureFailure) as caught:
        close(who, *requirements, **options)
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == 3
    return caught.value


def test_an_old_glibc_is_named_with_the_oldest_that_would_do(server: IndexServer, tmp_path: Path) -> None:
    failure = _failure(user(server.url, tmp_path), "engine", glibc="2.28")
    assert failure.reason == "glibc"
    assert failure.package == "newlibc"
    assert failure.message.startswith("newlibc needs glibc >= 2.31")
    assert failure.hint == "--glibc 2.31"
    assert failure.nearest == "newlibc-1.0-cp312-cp312-manylinux_2_31_x86_64.whl"


def test_an_old_glibc_is_named_offline_too(server: IndexServer, tmp_path: Path) -> None:
    who = user(server.url, tmp_path)
    close(who, "engine", glibc="2.35")
    server.requests.clear()
    failure = _failure(who, "engine", glibc="2.28", offline=True)
    assert (failure.reason, failure.hint) == ("glibc", "--glibc 2.31")
    assert server.requests == []


@pytest.mark.parametrize(
    ("requirement", "options", "reason", "hint", "words"),
    [
        ("oldpython", {}, "python", "--python 3.10", "3.10"),
        ("newpython", {}, "python", "--python 3.13", "3.13"),
        ("armonly", {}, "machine", "--machine aarch64", "aarch64"),
        ("winonly", {}, "platform", None, "x86_64"),
        ("late", {"cutoff": "2026-08-31"}, "date", "--exclude-newer 2026-09-01", "2026-09-01T10:00:00Z"),
        ("undated", {"cutoff": "2026-08-31"}, "date", None, "undated"),
        ("yanked>=1", {}, "yanked", None, "wrong CUDA"),
        ("nowhere", {}, "index", None, "nowhere"),
        ("late==7", {}, "index", None, "the newest there is 1.0"),
        ("gone", {}, "index", None, "404"),
        ("down", {}, "index", None, "503"),
        ("closed", {}, "index", None, "closed"),
        ("cut", {}, "index", None, "cut"),
        ("late", {"offline": True}, "offline", "leave out --offline once", "cache"),
    ],
)
def test_reasons(  # noqa: PLR0917
    server: IndexServer,
    tmp_path: Path,
    requirement: str,
    options: dict[str, Any],
    reason: str,
    hint: str | None,
    words: str,
) -> None:
    failure = _failure(user(server.url, tmp_path), requirement, **options)
    assert failure.reason == reason
    assert failure.hint == hint
    assert words in failure.message
    assert failure.package == requirement.split(">", maxsplit=1)[0].split("=", maxsplit=1)[0]


def test_what_contradicts_itself_is_a_conflict(server: IndexServer, tmp_path: Path) -> None:
    server.add(make_wheel("late", "0.5"))
    failure = _failure(user(server.url, tmp_path), "one", "late==1.0")
    assert failure.reason == "conflict"
    assert "late" in failure.message
    assert "qresolve-request" not in failure.message + failure.detail


@pytest.mark.parametrize("secret", ["", "wr0ng"])
def test_credentials_are_missed_by_name_and_never_shown(tmp_path: Path, secret: str) -> None:
    with IndexServer(user="anna", password="right") as server:  # noqa: S106
        server.add(make_wheel("engine", "1.0"))
        url = server.url if not secret else server.url.replace("http://", f"http://anna:{secret}@")
        failure = _failure(user(url, tmp_path), "engine")
        assert failure.reason == "auth"
        assert f"127.0.0.1:{server.port}" in failure.message
        shown = failure.message + failure.detail + str(failure.hint)
        assert not secret or secret not in shown
        assert "anna" not in shown


def test_a_forbidden_page_is_about_credentials(server: IndexServer, tmp_path: Path) -> None:
    server.fail("late", 403)
    assert _failure(user(server.url, tmp_path), "late").reason == "auth"


def test_the_index_that_a_package_must_come_from_is_named(server: IndexServer, tmp_path: Path) -> None:
    with IndexServer() as gated:
        index = NamedIndex(name="cu130", url=gated.url, packages=("late",))
        failure = _failure(user(server.url, tmp_path), "late", indexes=(index,))
    assert failure.reason == "index"
    assert "`cu130`" in failure.message


def test_an_index_that_is_down_is_named_without_credentials(tmp_path: Path) -> None:
    failure = _failure(user("http://anna:s3cret@127.0.0.1:9/simple", tmp_path), "engine")
    assert failure.reason == "index"
    assert "refused" in failure.message
    assert "s3cret" not in failure.message + failure.detail


def test_a_wrong_hash_is_told_apart() -> None:
    facts = parse_failure("error: Hash mismatch for `x==1.0`\n\nExpected:\n  sha256:a\n\nComputed:\n  sha256:b\n")
    assert (facts.reason, facts.package) == ("hash", "x==1.0")


def test_no_password_is_left_in_shown_words() -> None:
    assert "pw" not in shown_text("error: Failed to fetch: https://u:pw@h/simple/x/\n  cause: https://pw@h/ refused")


def test_words_that_are_not_known_still_give_one_line() -> None:
    facts = parse_failure("error: something new\n  detail\n")
    assert (facts.reason, facts.message) == ("conflict", "error: something new")
    assert parse_failure("").message


_TARGET = WheelTarget(python="3.12", machine="x86_64", glibc="2.28")


def _file(tag: str, version: str = "1.0", **more: Any) -> ProjectFile:
    return ProjectFile(filename=f"x-{version}-{tag}.whl", **more)


def test_a_file_that_fits_is_no_reason() -> None:
    assert explain_no_wheel([_file("py3-none-any"), _file("cp312-cp312-win_amd64")], _TARGET) is None


def test_source_alone_and_nothing_at_all() -> None:
    assert explain_no_wheel([ProjectFile(filename="x-1.0.tar.gz")], _TARGET) == Reason(dimension=None)
    assert explain_no_wheel([], _TARGET) == Reason(dimension=None)


def test_files_outside_the_range_do_not_count() -> None:
    files = [_file("cp312-cp312-manylinux_2_28_x86_64", "2.0"), _file("cp312-cp312-manylinux_2_31_x86_64")]
    reason = explain_no_wheel(files, _TARGET, ("<2",))
    assert reason is not None
    assert (reason.dimension, reason.needs) == ("glibc", "2.31")


def test_two_changes_at_once_are_not_proposed() -> None:
    reason = explain_no_wheel([_file("cp313-cp313-manylinux_2_31_x86_64")], _TARGET)
    assert reason == Reason(dimension=None, nearest="x-1.0-cp313-cp313-manylinux_2_31_x86_64.whl")


def test_glibc_goes_before_another_computer() -> None:
    files = [_file("cp312-cp312-manylinux_2_17_aarch64"), _file("cp312-cp312-manylinux_2_39_x86_64")]
    reason = explain_no_wheel(files, _TARGET)
    assert reason is not None
    assert (reason.dimension, reason.needs) == ("glibc", "2.39")


def test_the_nearest_python_is_proposed() -> None:
    files = [_file(f"cp3{minor}-cp3{minor}-manylinux_2_17_x86_64") for minor in (8, 10, 11)]
    reason = explain_no_wheel(files, _TARGET)
    assert reason is not None
    assert reason.needs == "3.11"


def test_a_yanked_file_is_seen_as_that() -> None:
    reason = explain_no_wheel([_file("py3-none-any", yanked="bad")], _TARGET)
    assert reason is not None
    assert (reason.dimension, reason.needs) == ("yanked", "bad")


_TAGS = st.sampled_from(
    [
        f"{abi}-{platform}"
        for abi in ("cp312-cp312", "cp39-abi3", "cp310-cp310", "cp313-cp313")
        for platform in ("manylinux_2_17_x86_64", "manylinux_2_31_x86_64", "manylinux_2_35_aarch64", "win_amd64")
    ]
)


@given(st.lists(_TAGS, max_size=6), st.integers(17, 39))
def test_a_proposed_glibc_is_higher_and_works(tags: list[str], minor: int) -> None:
    target = WheelTarget(python="3.12", machine="x86_64", glibc=f"2.{minor}")
    files = [_file(tag) for tag in tags]
    reason = explain_no_wheel(files, target)
    if reason is None or reason.dimension is None or reason.needs is None:
        return
    assert reason.nearest in {file.filename for file in files}
    if reason.dimension == "glibc":
        assert glibc_pair(reason.needs) > glibc_pair(target.glibc)
    changed = WheelTarget(
        python=reason.needs if reason.dimension == "python" else target.python,
        machine=reason.needs if reason.dimension == "machine" else target.machine,
        glibc=reason.needs if reason.dimension == "glibc" else target.glibc,
    )
    assert explain_no_wheel(files, changed) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": [1, {"x": 2}]}', "[" * 100_000])
def test_a_page_that_is_none_has_no_files(text: str) -> None:
    assert parse_simple_json(text) == ()


@pytest.mark.parametrize("name", ["x-1-1/../../y-py3-none-any.whl", "..", "", "x\\y.whl", "x\0.whl"])
def test_a_name_that_leads_to_another_folder_is_no_file(name: str) -> None:
    good = "x-1-py3-none-any.whl"
    page = json.dumps({"files": [{"filename": name, "url": "a"}, {"filename": good, "url": "b"}]})
    assert [file.filename for file in parse_simple_json(page)] == [good]
    links = "".join(f'<a href="files/{quote(one, safe="")}">x</a>' for one in (name, good))
    assert [file.filename for file in parse_simple_html(links)] == [good]


def test_both_kinds_of_page_say_the_same(tmp_path: Path) -> None:
    pages = {}
    for kind in ("json", "html"):
        with IndexServer(formats=(kind,)) as server:
            server.add(make_wheel("x", "1.0+cu130", requires_python=">=3.10,<3.14"), yanked="a & b")
            pages[kind] = httpx.get(f"{server.url}/x/", trust_env=False).text
    (left,), (right,) = parse_simple_json(pages["json"]), parse_simple_html(pages["html"])
    assert (left.filename, left.requires_python, left.yanked) == (right.filename, right.requires_python, right.yanked)
    assert left.yanked == "a & b"


@pytest.mark.parametrize(
    ("words", "package", "specifiers"),
    [
        ("all versions of kern have only unsupported wheel variants and", "kern", ("",)),
        ("kern==1.0 has only unsupported wheel variants and", "kern", ("==1.0",)),
        ("kern>=1.0 has only unsupported wheel variants, we can", "kern", (">=1.0",)),
    ],
)
def test_variants_alone_are_told_from_wheels_that_do_not_fit(
    words: str, package: str, specifiers: tuple[str, ...]
) -> None:
    stderr = f"error: No solution found when resolving dependencies\n  cause: Because {words} so on."
    facts = parse_failure(stderr)
    assert (facts.reason, facts.package, facts.specifiers) == ("variants", package, specifiers)
