"""Locking the same once more: what an index cannot have changed is not asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qresolve.cli.main import main
from tests.fake_stack import X86, isolate_user, stack
from tests.index_server import IndexServer, make_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator

ASKED = ["lock", "--gpu", "sm120", "--formats", "mxfp4,nvfp4", "--force"]
PASSED = [*ASKED, "--exclude-newer", "2026-06-01"]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IndexServer]:
    isolate_user(tmp_path, monkeypatch)
    with IndexServer() as server:
        for wheel in stack():
            server.add(wheel)
        monkeypatch.setenv("UV_DEFAULT_INDEX", server.url)
        yield server


def lock_bytes() -> bytes:
    return Path("pylock.toml").read_bytes()


def test_a_cutoff_that_has_passed_makes_no_request_again(index: IndexServer) -> None:
    assert main(PASSED) == 0
    first, requests = lock_bytes(), len(index.requests)
    assert requests
    assert main(PASSED) == 0
    assert index.requests[requests:] == []
    assert lock_bytes() == first
    assert main([*PASSED, "--offline"]) == 0
    assert lock_bytes() == first


def test_without_a_cutoff_what_is_newer_is_seen(index: IndexServer) -> None:
    assert main(ASKED) == 0
    requests = len(index.requests)
    assert main(ASKED) == 0
    assert len(index.requests) > requests


def test_a_cutoff_to_come_is_not_taken_for_passed(index: IndexServer) -> None:
    to_come = [*ASKED, "--exclude-newer", "2999-01-01"]
    assert main(to_come) == 0
    requests = len(index.requests)
    assert main(to_come) == 0
    assert len(index.requests) > requests


def test_another_request_is_another_answer(index: IndexServer) -> None:
    assert main(PASSED) == 0
    requests = len(index.requests)
    assert main([*ASKED, "--exclude-newer", "2026-06-02"]) == 0
    assert len(index.requests) > requests


def test_a_damaged_entry_is_asked_for_again(index: IndexServer, tmp_path: Path) -> None:
    assert main(PASSED) == 0
    first, requests = lock_bytes(), len(index.requests)
    for path in (tmp_path / "own-cache" / "qresolve").rglob("*"):
        if path.is_file() and "closures" in str(path):
            path.write_bytes(path.read_bytes()[:-10])
    assert main(PASSED) == 0
    assert len(index.requests) > requests
    assert lock_bytes() == first


def test_a_newer_release_after_the_cutoff_is_not_spoken_of(
    index: IndexServer, capsys: pytest.CaptureFixture[str]
) -> None:
    index.add(make_wheel("vllm", "99.0", tag=f"cp38-abi3-{X86}"), upload_time="2026-07-01T00:00:00Z")
    assert main(PASSED) == 0
    assert "99.0" not in capsys.readouterr().err
    assert main(ASKED) == 0
    assert "99.0" in capsys.readouterr().err
