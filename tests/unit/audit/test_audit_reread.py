"""Cited places held against files: what is found, moved, changed, gone or not checkable, and the recorded digests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from qresolve.audit.recorded import parse_recorded, recorded_document, recorded_text
from qresolve.audit.records import Archive, archive_of, cited_records
from qresolve.audit.reread import (
    CHANGED,
    FOUND,
    GONE,
    MOVED,
    NOT_CHECKABLE,
    ArchiveFiles,
    check_records,
    recorded_digests,
    wanted_names,
)
from qresolve.data import data_folder
from qresolve.errors import DataInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from qresolve.audit.reread import Digest, Finding

ENGINE = Archive(distribution="engine", kind="sdist")
LIBRARY = Archive(distribution="library", kind="wheel")
ARCHIVES = (("engine/", ENGINE), ("library/", LIBRARY))
KERNEL = "class Kernel:\n    def is_supported(self):\n        return 90\n"
FILES = {
    "engine/kernels.py": KERNEL,
    "engine/order.py": "ORDER = [1, 2]\nLIMIT = 3\n",
    "engine/other/deep.py": "x = 1\n",
}


def held(texts: Mapping[str, str]) -> ArchiveFiles:
    return ArchiveFiles(version="1.0", filename="e", sha256="0" * 64, texts=texts, names=frozenset(texts))


def check(
    where: str,
    texts: Mapping[str, str] = FILES,
    *,
    recorded: Mapping[tuple[str, str, str], Digest] | None = None,
) -> tuple[Finding, ...]:
    records = cited_records([("f.toml", {"route": [{"id": "a", "where": where}]})], "1.0")
    return check_records(
        records,
        archives=ARCHIVES,
        files={ENGINE: held(texts), LIBRARY: "the index does not answer"},
        recorded=recorded or {},
        own=ENGINE,
    )


@pytest.mark.parametrize(
    ("where", "outcome", "now"),
    [
        ("engine/kernels.py Kernel", FOUND, "engine/kernels.py:1-3"),
        ("engine/kernels.py:2-3 Kernel.is_supported", FOUND, "engine/kernels.py:2-3"),
        ("engine/order.py:2", FOUND, "engine/order.py:2-2"),
        ("engine/order.py", FOUND, "engine/order.py:1-2"),
        ("other/deep.py x", FOUND, "engine/other/deep.py:1-1"),
        ("engine/kernels.py:40-50 Kernel", MOVED, "engine/kernels.py:1-3"),
        ("engine/order.py Kernel", MOVED, "engine/kernels.py:1-3"),
        ("engine/old/kernels.py Kernel", MOVED, "engine/kernels.py:1-3"),
        ("engine/kernels.py Nowhere", GONE, ""),
        ("engine/nowhere.py Nothing", GONE, ""),
        ("engine/order.py:90", GONE, ""),
        ("library/gemm.py run", NOT_CHECKABLE, ""),
        ("unknown/gemm.py run", NOT_CHECKABLE, ""),
        ("METADATA of a wheel", NOT_CHECKABLE, ""),
    ],
)
def test_what_became_of_a_place(where: str, outcome: str, now: str) -> None:
    (found,) = check(where)
    assert (found.outcome, found.now) == (outcome, now)
    assert found.record == "route:a"
    assert found.outcome == FOUND or found.why


@pytest.mark.parametrize(
    ("read_from", "where", "outcome"),
    [
        ("engine-1.0.tar.gz", "engine/kernels.py:40-50 Kernel", MOVED),
        ("sdists of 0.9 and 1.0", "engine/kernels.py:40-50 Kernel", MOVED),
        ("the wheels named below", "engine/kernels.py:40-50 Kernel", MOVED),
        ("engine-1.1.tar.gz", "engine/kernels.py:40-50 Kernel", FOUND),
        ("sdists of 1.0 and 1.1", "engine/kernels.py:40-50 Kernel", FOUND),
        ("engine-1.0.tar.gz; library-2.0-py3-none-any.whl", "engine/kernels.py:40-50 Kernel", MOVED),
        ("engine-1.1.tar.gz", "engine/kernels.py:2", NOT_CHECKABLE),
        ("engine-1.1.tar.gz", "engine/kernels.py:40-50 Nowhere", GONE),
    ],
)
def test_lines_count_in_the_release_they_were_read_from(read_from: str, where: str, outcome: str) -> None:
    document = {"read-from": read_from, "route": [{"id": "a", "where": where}]}
    (found,) = check_records(
        cited_records([("f.toml", document)], "1.0"),
        archives=ARCHIVES,
        files={ENGINE: held(FILES)},
        recorded={},
        own=ENGINE,
    )
    assert found.outcome == outcome


def digests_of(where: str) -> dict[tuple[str, str, str], Digest]:
    found = dict(recorded_digests(check(where)))
    text = recorded_text(recorded_document(found.items(), engine="engine", release="1.0", archives={"e": "0" * 64}))
    assert parse_recorded(text, file="r.json") == found
    return found


@pytest.mark.parametrize(
    ("where", "change", "outcome"),
    [
        ("engine/kernels.py Kernel", ("return 90", "return 90  # still"), CHANGED),
        ("engine/kernels.py Kernel", ("return 90", "return 89"), CHANGED),
        ("engine/kernels.py Kernel", ("class Kernel", "import os\n\n\nclass Kernel"), FOUND),
        ("engine/kernels.py Kernel", ("class Kernel", "class Kernels"), GONE),
        ("engine/kernels.py:2-3", ("class Kernel", "import os\nclass Kernel"), MOVED),
        ("engine/kernels.py:2-3", ("return 90", "return 89"), CHANGED),
        ("engine/kernels.py", ("return 90", "return 89"), CHANGED),
        ("engine/kernels.py", ("return 90", "return 90\n"), FOUND),
    ],
)
def test_a_recorded_place_after_a_change(where: str, change: tuple[str, str], outcome: str) -> None:
    recorded = digests_of(where)
    (before,) = check(where, recorded=recorded)
    assert before.outcome == FOUND
    assert before.why == ""
    (after,) = check(where, {**FILES, "engine/kernels.py": KERNEL.replace(*change)}, recorded=recorded)
    assert after.outcome == outcome


def test_a_file_that_moved_with_its_text_unchanged() -> None:
    recorded = digests_of("kernels.py Kernel")
    (found,) = check("kernels.py Kernel", {"engine/new/kernels.py": KERNEL}, recorded=recorded)
    assert (found.outcome, found.now) == (MOVED, "engine/new/kernels.py:1-3")


def test_a_name_that_two_other_files_have_is_gone_not_moved() -> None:
    (found,) = check("engine/gone.py Kernel", {"engine/a.py": KERNEL, "engine/b.py": KERNEL})
    assert found.outcome == GONE


@pytest.mark.parametrize("text", ["", "{}", '{"schema": "other"}', '{"schema": "qresolve.audited/1", "records": [1]}'])
def test_a_file_of_digests_that_is_none(text: str) -> None:
    with pytest.raises(DataInvalid, match=r"r\.json"):
        parse_recorded(text, file="r.json")


@pytest.mark.parametrize(
    "path", sorted((data_folder("constraints") / "audited").glob("*-*.json")), ids=lambda path: path.stem
)
def test_every_shipped_file_of_digests_is_read_and_is_written_again_alike(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    head = json.loads(text)
    digests = parse_recorded(text, file=path.name)
    assert digests
    assert path.stem == f"{head['engine']}-{head['release']}"
    document = recorded_document(
        digests.items(), engine=head["engine"], release=head["release"], archives=head["archives"]
    )
    assert recorded_text(document) == text


def test_records_of_gates_and_ranges() -> None:
    document = {
        "releases": ">=1.0",
        "route": [
            {"id": "a", "where": "engine/kernels.py", "select": [{"id": "g", "where": "engine/order.py ORDER"}]},
            {"id": "b", "where": "engine/kernels.py", "releases": ">=2"},
        ],
        "release": [{"version": "1.0", "where": "engine/order.py"}, {"version": "2.0", "where": "engine/order.py"}],
    }
    assert [record.id for record in cited_records([("f", document)], "1.0")] == [
        "release:1.0", "route:a", "route:a.select.g",
    ]  # fmt: skip
    assert [record.id for record in cited_records([("f", document)], "2.0")] == [
        "release:2.0", "route:a", "route:a.select.g", "route:b",
    ]  # fmt: skip
    assert cited_records([("f", document)], "0.9") == ()


def test_a_short_path_belongs_to_the_archive_before_it() -> None:
    records = cited_records([("f", {"route": [{"id": "a", "where": "library/a.py one; b.py two"}]})], "1.0")
    assert wanted_names(records, ARCHIVES, ENGINE) == {ENGINE: set(), LIBRARY: {"library/a.py", "b.py"}}
    assert archive_of("b.py", ARCHIVES) is None
