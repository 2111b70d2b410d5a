"""The wheel index against the real index that pip is set up with; little is fetched."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from qresolve.data import data_folder
from qresolve.strict import read_toml
from qresolve.wheels.generate import parse_sources, reread_row, run_generate
from qresolve.wheels.index import read_wheel_index
from qresolve.wheels.measure import read_measured
from qresolve.wheels.pip_index import IndexUnreachable, open_pip_index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qresolve.wheels.pip_index import PipIndex

pytestmark = pytest.mark.network

SMALL_LIBRARY = "vllm/_qutlass_C.abi3.so"


@pytest.fixture(scope="module")
def index() -> Iterator[PipIndex]:
    with open_pip_index() as opened:
        try:
            opened.wheels("ninja")
        except IndexUnreachable as error:
            pytest.skip(f"no index can be reached: {error}")
        yield opened


def test_small_projects_are_as_recorded(index: PipIndex) -> None:
    run_generate(data_folder("wheel_index"), index, projects=("ninja", "b12x"), check=True, shrink=False)


def test_a_library_is_read_from_a_large_wheel_as_recorded(index: PipIndex) -> None:
    sources = parse_sources(read_toml(data_folder("wheel_index") / "sources.toml"))
    request = next(one for one in sources.wheels if one.project == "vllm" and one.libraries)
    files = {file.sha256: file for file in index.wheels("vllm")}
    rows = [row for row in read_wheel_index("vllm") if row.version in request.versions]
    assert rows
    for row in rows:
        assert row.measured is not None
        wheel = index.open_wheel(files[row.sha256])
        now = read_measured(wheel, libraries=(SMALL_LIBRARY,), most_compressed=request.most_compressed)
        recorded = [one for one in row.measured.libraries or () if one.path == SMALL_LIBRARY]
        assert list(now.libraries or ()) == recorded
        assert now.record == row.measured.record


def test_two_rows_chosen_at_random_are_as_recorded(index: PipIndex) -> None:
    """Others each time: in some runs every row has been read again."""
    sources = parse_sources(read_toml(data_folder("wheel_index") / "sources.toml"))
    rows = [row for project in sources.projects if project != sources.toolkit for row in read_wheel_index(project)]
    for row in random.SystemRandom().sample(rows, 2):
        assert reread_row(index, sources, row) == row, row.filename
