"""The source audit of a known release against the real index: nothing that the records cite is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from qresolve.audit.release_files import cache_folder
from qresolve.audit.reread import DRIFT, FOUND
from qresolve.audit.sources import run_source_audit
from qresolve.knowledge.engine import read_releases
from qresolve.wheels.pip_index import IndexUnreachable, open_pip_index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qresolve.wheels.pip_index import PipIndex

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def index() -> Iterator[PipIndex]:
    with open_pip_index() as opened:
        try:
            opened.wheels("ninja")
        except IndexUnreachable as error:
            pytest.skip(f"no index can be reached: {error}")
        yield opened


def test_the_newest_release_is_as_its_records_say(index: PipIndex) -> None:
    release = read_releases("vllm")[0].version
    audit = run_source_audit("vllm", release, index=index, cache=cache_folder())
    assert not audit.unread
    drifted = [
        f"{item.record}: {item.cited} {item.what} {item.outcome}" for item in audit.findings if item.outcome in DRIFT
    ]
    assert not drifted, "\n".join(drifted)
    assert sum(item.outcome == FOUND for item in audit.findings) > len(audit.findings) / 2
