"""``qresolve wheelhouse`` and ``install --wheelhouse`` against a server on this machine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest
import tomli

import qresolve
from qresolve.cli.main import main
from qresolve.lock.file import read_lock, write_lock
from tests.fake_stack import isolate_user, stack
from tests.index_server import IndexServer

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = json.loads((Path(qresolve.__file__).parent / "schemas" / "wheelhouse.json").read_text(encoding="utf-8"))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IndexServer]:
    isolate_user(tmp_path, monkeypatch)
    with IndexServer() as server:
        for wheel in stack():
            server.add(wheel)
        monkeypatch.setenv("UV_DEFAULT_INDEX", server.url)
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        assert main(["lock", "--gpu", "sm120", "--formats", "nvfp4", "--python", python]) == 0
        yield server


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def downloads(index: IndexServer) -> list[str]:
    return [request for request in index.requests if request.startswith("GET /files/") and request.endswith(".whl")]


def test_every_wheel_is_there_and_the_lock_beside_them(index: IndexServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wheelhouse", "-o", "house", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, SCHEMA)
    before, after = read_lock(Path("pylock.toml")), read_lock(Path("house/pylock.toml"))
    names = {package.wheel.filename for package in before.packages}
    assert files(Path("house")) == names | {"pylock.toml"}
    assert set(report["fetched"]) == names
    assert after.formats == before.formats
    assert after.data_digest == before.data_digest
    for package in tomli.loads(Path("house/pylock.toml").read_text())["packages"]:
        (wheel,) = package["wheels"]
        assert wheel["path"] == wheel["name"]
        assert "url" not in wheel
    assert {one.wheel.url for one in after.packages} == {one.wheel.url for one in before.packages}


def test_a_second_run_fetches_nothing_and_mends_what_is_broken(
    index: IndexServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["wheelhouse", "-o", "house"]) == 0
    first = downloads(index)
    assert main(["wheelhouse", "-o", "house"]) == 0
    assert downloads(index) == first
    victim = next(Path("house").glob("torch-*.whl"))
    victim.write_bytes(b"broken" + victim.read_bytes()[6:])
    capsys.readouterr()
    assert main(["wheelhouse", "-o", "house", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fetched"] == [victim.name]


def test_a_download_goes_on_where_it_stopped(index: IndexServer) -> None:
    lock = read_lock(Path("pylock.toml"))
    wheel = max((package.wheel for package in lock.packages), key=lambda one: one.size or 0)
    whole = next(one.content for one in stack() if one.sha256 == wheel.sha256)
    Path("house").mkdir()
    half = len(whole) // 2
    Path(f"house/.{wheel.filename}.{wheel.sha256[:16]}.part").write_bytes(whole[:half])
    assert main(["wheelhouse", "-o", "house"]) == 0
    assert (Path("house") / wheel.filename).read_bytes() == whole
    assert not list(Path("house").glob(".*"))


def test_a_wrong_beginning_is_found_out_and_not_kept(index: IndexServer, capsys: pytest.CaptureFixture[str]) -> None:
    lock = read_lock(Path("pylock.toml"))
    wheel = max((package.wheel for package in lock.packages), key=lambda one: one.size or 0)
    Path("house").mkdir()
    Path(f"house/.{wheel.filename}.{wheel.sha256[:16]}.part").write_bytes(b"x" * 50)
    assert main(["wheelhouse", "-o", "house"]) == 6
    assert wheel.filename in capsys.readouterr().err
    assert not (Path("house") / wheel.filename).exists()
    assert not Path("house/pylock.toml").exists(), "an unfinished folder has no lock"
    assert main(["wheelhouse", "-o", "house"]) == 0


def test_a_file_that_is_not_the_locked_one_is_refuted(index: IndexServer, capsys: pytest.CaptureFixture[str]) -> None:
    lock = read_lock(Path("pylock.toml"))
    victim = next(package for package in lock.packages if package.name == "torch")
    other = next(one for one in stack() if one.name == "ninja")
    index.replace(victim.wheel.filename, other.content)
    assert main(["wheelhouse", "-o", "house"]) == 6
    assert victim.wheel.filename in capsys.readouterr().err
    assert not (Path("house") / victim.wheel.filename).exists()


def test_a_server_that_has_it_not_is_a_failed_installation(
    index: IndexServer, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = read_lock(Path("pylock.toml"))
    victim = next(package for package in lock.packages if package.name == "torch")
    index.replace(victim.wheel.filename, None)
    assert main(["wheelhouse", "-o", "house"]) == 5
    assert "HTTP 404" in capsys.readouterr().err


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_installing_from_it_needs_no_network(
    installer: str, index: IndexServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert main(["wheelhouse", "-o", "house"]) == 0
    before = len(index.requests)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty"))
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "work" / "house").rename(tmp_path / "elsewhere" / "moved")
    moved = tmp_path / "elsewhere" / "moved"
    command = ["install", "--wheelhouse", str(moved), "--env", "env", "--installer", installer]
    assert main(command) == 0
    assert len(index.requests) == before
    python = Path("env/bin/python").absolute()
    seen = subprocess.run(
        [python, "-c", "import importlib.metadata as m; print(m.version('vllm'))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert seen.stdout.strip() == read_lock(moved / "pylock.toml").engine_version
    assert main(["verify", "--lock", str(moved / "pylock.toml"), "--python", str(python)]) in {0, 7}


def test_a_wheelhouse_that_is_not_whole_is_not_installed(
    index: IndexServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["install", "--wheelhouse", "house", "--env", "env"]) == 2
    assert "hint: qresolve wheelhouse" in capsys.readouterr().err
    assert main(["wheelhouse", "-o", "house"]) == 0
    victim = next(Path("house").glob("torch-*.whl"))
    content = victim.read_bytes()
    victim.write_bytes(content[:-1] + b"x")
    assert main(["install", "--wheelhouse", "house", "--env", "env"]) == 6
    victim.unlink()
    assert main(["install", "--wheelhouse", "house", "--env", "env"]) == 6
    assert victim.name in capsys.readouterr().err
    assert not Path("env").exists()


def test_a_wheelhouse_of_another_lock_is_refused(index: IndexServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wheelhouse", "-o", "house"]) == 0
    lock = read_lock(Path("pylock.toml"))
    other = replace(lock, packages=tuple(package for package in lock.packages if package.name != "ninja"))
    write_lock(Path("pylock.toml"), other, force=True)
    assert main(["install", "--wheelhouse", "house", "--env", "env"]) == 2
    assert "another lock" in capsys.readouterr().err


def test_an_interruption_leaves_nothing_half_written(index: IndexServer, tmp_path: Path) -> None:
    lock = read_lock(Path("pylock.toml"))
    victim = next(package for package in lock.packages if package.name == "torch")
    index.stalled.add(victim.wheel.filename)
    command = [sys.executable, "-m", "qresolve", "wheelhouse", "-o", "house"]
    before = len(index.requests)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path / "work")
    deadline = time.monotonic() + 30
    while (
        not any(victim.wheel.filename in request for request in index.requests[before:]) and time.monotonic() < deadline
    ):
        threading.Event().wait(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert not Path("house/pylock.toml").exists()
    for path in Path("house").glob("*.whl"):
        assert path.read_bytes() in {one.content for one in stack()}
