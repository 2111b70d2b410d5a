"""``qresolve lock`` as a person runs it, against a package index on this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest
import tomli
from packaging.pylock import Pylock

import qresolve
from qresolve.cli.main import main
from tests.fake_stack import stack
from tests.index_server import IndexServer, make_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator

ASKED = ["lock", "--gpu", "sm120", "--formats", "mxfp4,nvfp4"]


@pytest.fixture
def index() -> Iterator[IndexServer]:
    with IndexServer() as server:
        for wheel in stack():
            server.add(wheel)
        yield server


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    for name in [name for name in os.environ if name.startswith(("UV_", "PIP_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / "config"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "nowhere"))
    if "index" in request.fixturenames:
        monkeypatch.setenv("UV_DEFAULT_INDEX", request.getfixturevalue("index").url)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def _text() -> str:
    return Path("pylock.toml").read_text(encoding="utf-8")


def test_a_lock_is_valid_pep_751_with_one_hashed_wheel_a_package(
    index: IndexServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(ASKED) == 0
    document = tomli.loads(_text())
    locked = Pylock.from_dict(document)
    for package in locked.packages:
        assert package.wheels is not None
        assert len(package.wheels) == 1
        assert len(package.wheels[0].hashes["sha256"]) == 64
    settings = document["tool"]["qresolve"]["settings"]
    assert {"path": "kernel_config.linear_backend_per_quant.mxfp4", "value": "humming"} in settings
    said = capsys.readouterr()
    assert said.out == ""  # data goes to stdout, and the lock is in a file
    assert "native by HummingMxFp4LinearKernel" in said.err


def test_the_json_is_the_answer_of_explain_in_its_published_schema(
    index: IndexServer, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = json.loads((Path(qresolve.__file__).parent / "schemas" / "explain.json").read_text(encoding="utf-8"))
    assert main([*ASKED, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(schema).validate(said)
    written = tomli.loads(_text())["tool"]["qresolve"]
    rows = {(row["format"], row["arch"]): (row["verdict"], row["route"]) for row in said["formats"] if row["asked"]}
    assert rows == {(row["format"], row["arch"]): (row["verdict"], row["route"]) for row in written["formats"]}
    assert said["settings"] == written["settings"]
    assert said["data_digest"] == written["data-digest"]


def test_every_cuda_part_is_of_the_toolkit_that_torch_pins(index: IndexServer) -> None:
    assert main(ASKED) == 0
    versions = {package["name"]: package["version"] for package in tomli.loads(_text())["packages"]}
    parts = {name: version for name, version in versions.items() if name.startswith("nvidia-cuda-")}
    assert parts
    assert all(version.startswith("13.0.") for version in parts.values())


def test_the_same_request_gives_the_same_bytes(index: IndexServer, tmp_path: Path) -> None:
    """Whatever the folder, hash seed, cache, order of formats or the user's own uv variables."""
    command = [sys.executable, "-m", "qresolve", "lock", "--gpu", "sm120", "-o", "-", "--formats"]
    texts = set()
    for number, (formats, variables) in enumerate(
        [
            ("mxfp4,nvfp4", {"PYTHONHASHSEED": "1"}),
            ("nvfp4,mxfp4", {"PYTHONHASHSEED": "2", "UV_RESOLUTION": "lowest", "UV_PRERELEASE": "allow"}),
            ("mxfp4@w4a4,nvfp4:dense", {"UV_CACHE_DIR": str(tmp_path / "another"), "UV_EXCLUDE_NEWER": "2020-01-01"}),
        ]
    ):
        folder = tmp_path / f"folder{number}"
        folder.mkdir()
        done = subprocess.run(
            [*command, formats],
            cwd=folder,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        texts.add(done.stdout)
    assert len(texts) == 1


def test_offline_locks_again_from_the_cache_without_a_request(index: IndexServer) -> None:
    assert main(ASKED) == 0
    first = _text()
    before = len(index.requests)
    assert main([*ASKED, "--offline"]) == 0
    assert len(index.requests) == before
    assert _text() == first


def test_a_lower_class_writes_nothing(index: IndexServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lock", "--gpu", "sm90", "--formats", "mxfp4"]) == 4
    assert not Path("pylock.toml").exists()
    assert index.requests == []  # nothing is asked of the index for what cannot be
    assert "mixed" in capsys.readouterr().err
    assert main(["lock", "--gpu", "sm90", "--formats", "mxfp4", "--allow", "mxfp4=mixed"]) == 0
    assert tomli.loads(_text())["tool"]["qresolve"]["allow"] == ["mxfp4=mixed"]


def test_a_file_that_is_not_ours_stays(index: IndexServer, capsys: pytest.CaptureFixture[str]) -> None:
    Path("pylock.toml").write_text('lock-version = "1.0"\ncreated-by = "someone"\npackages = []\n', encoding="utf-8")
    before = _text()
    assert main(ASKED) == 2
    assert _text() == before
    assert "--force" in capsys.readouterr().err
    assert main([*ASKED, "--force"]) == 0
    assert _text() != before
    assert main(ASKED) == 0  # one of ours is written over


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        ({"project": "torch", "status": 503}, "torch"),
        ({"project": "torch", "status": 404}, "torch"),
        ({"project": "vllm", "status": 404}, "vllm"),
    ],
)
def test_an_index_that_fails_is_named_by_package(
    index: IndexServer,
    prepare: dict[str, int | str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    index.fail(str(prepare["project"]), int(prepare["status"]))
    assert main([*ASKED, "--engine", "vllm==0.33.0"]) == 3
    error = capsys.readouterr().err
    assert words in error.partition("error:")[2]
    assert not Path("pylock.toml").exists()


def test_an_index_that_is_down(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple/")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    assert main([*ASKED, "--engine", "vllm==0.33.0"]) == 3
    assert "127.0.0.1:9" in capsys.readouterr().err


def test_an_index_that_wants_credentials(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with IndexServer(user="anna", password="open sesame") as server:  # noqa: S106 - made up
        for wheel in stack():
            server.add(wheel)
        monkeypatch.setenv("UV_DEFAULT_INDEX", server.url)
        assert main([*ASKED, "--engine", "vllm==0.33.0"]) == 3
        assert "401" in capsys.readouterr().err
        monkeypatch.setenv("UV_DEFAULT_INDEX", server.url_with_credentials)
        assert main(ASKED) == 0
        assert "sesame" not in _text()
        assert "anna" not in _text()
        assert "sesame" not in "".join(capsys.readouterr())


def test_glibc_is_said_by_name(index: IndexServer, capsys: pytest.CaptureFixture[str]) -> None:
    with IndexServer() as server:
        for wheel in stack(llguidance_tag="cp39-abi3-manylinux_2_31_x86_64"):
            server.add(wheel)
        os.environ["UV_DEFAULT_INDEX"] = server.url
        assert main([*ASKED, "--engine", "vllm==0.33.0", "--glibc", "2.28"]) == 3
        error = capsys.readouterr().err
        assert "llguidance needs glibc >= 2.31" in error
        assert "2.31" in error.partition("hint:")[2]


def test_a_package_bound_to_an_index_never_comes_from_another(index: IndexServer) -> None:
    with IndexServer() as private:
        private.add(make_wheel("humming-kernels", "0.1.19", files={"humming.py": "private = 1\n"}, build="1"))
        index.add(make_wheel("humming-kernels", "0.1.19.post9"))
        assert main([*ASKED, "--index", f"mine={private.url}=humming-kernels"]) == 0
        package = next(item for item in tomli.loads(_text())["packages"] if item["name"] == "humming-kernels")
        assert package["version"] == "0.1.19"
        assert package["wheels"][0]["url"].startswith(private.url.rpartition("/simple")[0])


def test_a_folder_that_cannot_be_written(index: IndexServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "-o", "/proc/pylock.toml"]) == 2
    assert "/proc" in capsys.readouterr().err
    assert main([*ASKED, "-o", "nowhere/pylock.toml"]) == 2


def test_a_full_disk_leaves_nothing_half_written(
    index: IndexServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(ASKED) == 0
    before = _text()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main(ASKED) == 2
    assert "No space left" in capsys.readouterr().err
    assert _text() == before
    assert [path.name for path in Path().iterdir()] == ["pylock.toml"]


def test_two_locks_at_once_leave_one_whole_lock(index: IndexServer) -> None:
    command = [sys.executable, "-m", "qresolve", *ASKED]
    running = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for process in running:
        _, error = process.communicate(timeout=60)
        assert process.returncode == 0, error
    Pylock.from_dict(tomli.loads(_text()))
    assert [path.name for path in Path().iterdir()] == ["pylock.toml"]


def test_interrupted_says_so_and_leaves_nothing() -> None:
    """A server that accepts and never answers, so the lock is surely under way when it is interrupted."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/simple/"
        process = subprocess.Popen(
            [sys.executable, "-m", "qresolve", *ASKED],
            env={**os.environ, "UV_DEFAULT_INDEX": address},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        silent.settimeout(30)
        connection, _ = silent.accept()
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
        connection.close()
    assert process.returncode == 130
    assert "interrupted" in error
    assert list(Path().iterdir()) == []


def test_the_lock_goes_to_stdout_for_a_pipe(index: IndexServer) -> None:
    command = f"{sys.executable} -m qresolve {' '.join(ASKED)} -o - | head -1"
    done = subprocess.run(["/bin/bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("lock-version")
    assert "Traceback" not in done.stderr
