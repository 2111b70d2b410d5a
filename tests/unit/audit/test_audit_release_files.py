"""Reading a release's files from an index on this machine: an sdist streamed, a wheel by ranges, both cached."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest

import qresolve
from qresolve.audit import sources as audit_sources
from qresolve.audit.records import Archive
from qresolve.audit.release_files import find_file, read_archive, read_exact_pins
from qresolve.cli.main import main
from qresolve.errors import Unproved
from qresolve.wheels.pip_index import open_pip_index
from tests.index_server import IndexServer, MadeWheel, make_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = json.loads((Path(qresolve.__file__).parent / "schemas" / "audit.json").read_text(encoding="utf-8"))
SDIST = Archive(distribution="vllm", kind="sdist")
WHEEL = Archive(distribution="flashinfer-python", kind="wheel")
ORDER = "ORDER = [1]\n\n\ndef choose():\n    return ORDER[0]\n"


def make_sdist(version: str, files: dict[str, str]) -> MadeWheel:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"vllm-{version}/{name}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return MadeWheel(
        name="vllm",
        version=version,
        filename=f"vllm-{version}.tar.gz",
        content=out.getvalue(),
        metadata=b"",
        requires_python=None,
    )


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[IndexServer]:
    with IndexServer() as started:
        for name in ("PIP_CONFIG_FILE", "PIP_EXTRA_INDEX_URL"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_INDEX_URL", started.url)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        started.add(make_sdist("2.0", {"vllm/order.py": ORDER, "vllm/other.py": "x = 1\n", "big.bin": "0" * 9}))
        started.add(
            make_wheel("vllm", "2.0", requires=("flashinfer-python==1.0", "torch>=2", "b12x==3.0; extra == 'b12x'"))
        )
        started.add(make_wheel("flashinfer-python", "1.0", files={"flashinfer/jit.py": "def run():\n    return 1\n"}))
        yield started


def test_an_sdist_gives_the_cited_files_and_those_that_bind_a_cited_name(server: IndexServer, tmp_path: Path) -> None:
    for _ in range(2):
        with open_pip_index() as index:
            found = read_archive(index, SDIST, "2.0", wanted={"order.py"}, symbols={"x", "nothing"}, cache=tmp_path)
        assert found.filename == "vllm-2.0.tar.gz"
        assert found.names == {"vllm/order.py", "vllm/other.py", "big.bin"}
        assert dict(found.texts) == {"vllm/order.py": ORDER, "vllm/other.py": "x = 1\n"}
    downloads = [request for request in server.requests if request.endswith(".tar.gz")]
    assert len(downloads) == 1
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [f"{found.sha256}.tar.gz"]


def test_a_wheel_gives_its_cited_members_and_remembers_them(server: IndexServer, tmp_path: Path) -> None:
    with open_pip_index() as index:
        found = read_archive(index, WHEEL, "1.0", wanted={"flashinfer/jit.py"}, symbols=(), cache=tmp_path)
    assert dict(found.texts) == {"flashinfer/jit.py": "def run():\n    return 1\n"}
    assert (tmp_path / found.sha256 / "flashinfer" / "jit.py").is_file()


def test_another_content_than_the_index_says_is_not_read(server: IndexServer, tmp_path: Path) -> None:
    server.add(make_sdist("3.0", {"vllm/order.py": ORDER}), sha256="0" * 64)
    with open_pip_index() as index, pytest.raises(Unproved, match="sha256"):
        read_archive(index, SDIST, "3.0", wanted={"order.py"}, symbols=(), cache=tmp_path)
    assert not list(tmp_path.glob("*.tar.gz"))


def test_a_release_that_is_not_there(server: IndexServer) -> None:
    with open_pip_index() as index, pytest.raises(Unproved, match=r"no sdist of vllm 9\.0"):
        find_file(index, SDIST, "9.0")


def test_exact_pins_of_a_release(server: IndexServer) -> None:
    with open_pip_index() as index:
        assert read_exact_pins(index, Archive(distribution="vllm", kind="wheel"), "2.0") == {"flashinfer-python": "1.0"}


# ---------------------------------------------------------------- the command, over data of its own

ENGINE = """
checked = 2026-01-01
read-from = "nothing"
distribution = "vllm"
gated = []
[[release]]
version = "2.0"
released = 2026-01-01
requires-python = ">=3.10"
cuda = "13.0"
where = "vllm/order.py ORDER"
pin = [{ package = "flashinfer-python", requirement = "flashinfer-python==1.0", version = "1.0" }]
"""
LADDERS = """
[[route]]
id = "a"
where = "vllm/order.py:4-5 choose; flashinfer/jit.py run"
"""


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A data folder with one release of one engine, seen by the audit alone."""
    folder = tmp_path / "constraints"
    ladders = folder / "engines" / "vllm" / "ladders"
    ladders.mkdir(parents=True)
    (folder / "libraries").mkdir()
    (folder / "audited").mkdir()
    (folder / "engines.toml").write_text('order = ["vllm"]\n', encoding="utf-8")
    (folder / "engines" / "vllm" / "engine.toml").write_text(ENGINE, encoding="utf-8")
    (ladders / "dense.toml").write_text(LADDERS, encoding="utf-8")
    shipped = Path(qresolve.__file__).parents[1] / "constraints" / "audited" / "sources.toml"
    (folder / "audited" / "sources.toml").write_bytes(shipped.read_bytes())
    monkeypatch.setattr(audit_sources, "data_folder", lambda _: folder)
    monkeypatch.setattr("qresolve.knowledge.engine.data_folder", lambda _: folder)
    return folder


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object]]:
    capsys.readouterr()
    code = main(["audit", *arguments, "--json"])
    said = capsys.readouterr()
    assert said.out, said.err
    document = json.loads(said.out)
    jsonschema.validate(document, SCHEMA)
    return code, document


def test_nothing_moved_then_recorded_then_drifted(
    server: IndexServer, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, before = report(capsys, "vllm==2.0")
    assert code == 0
    assert before["counts"] == {"found": 3, "moved": 0, "changed": 0, "gone": 0, "not checkable": 0}
    code, _ = report(capsys, "vllm==2.0", "--record")
    assert code == 0
    digests = data / "audited" / "vllm-2.0.json"
    first = digests.read_bytes()
    assert report(capsys, "vllm==2.0", "--record")[0] == 0
    assert digests.read_bytes() == first
    digests.write_text(digests.read_text(encoding="utf-8").replace("sha256:", "sha256:0", 1), encoding="utf-8")
    code, after = report(capsys, "vllm==2.0")
    assert code == 9
    assert after["counts"] == {"found": 2, "moved": 0, "changed": 1, "gone": 0, "not checkable": 0}


def test_a_release_without_records_is_held_against_the_nearest(
    server: IndexServer, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # pip reads a project's page once a process.
    server.add(make_sdist("2.1", {"vllm/order.py": ORDER.replace("return ORDER[0]", "return ORDER[-1]")}))
    server.add(make_wheel("vllm", "2.1", requires=("flashinfer-python==1.0",)))
    assert main(["audit", "vllm==2.0", "--record"]) == 0
    code, found = report(capsys, "vllm==2.1")
    assert code == 9
    assert found["records_of"] == "2.0"
    assert found["counts"] == {"found": 2, "moved": 0, "changed": 1, "gone": 0, "not checkable": 0}
    assert main(["audit", "vllm==2.1"]) == 9
    said = capsys.readouterr().out
    assert "What would have to change" in said
    assert "vllm/order.py choose -> vllm/order.py:4-5 (another text)" in said
    assert main(["audit", "vllm==2.1", "--record"]) == 2


def test_an_index_that_does_not_answer_is_7(
    server: IndexServer, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.fail("flashinfer-python", 503)
    code, found = report(capsys, "vllm==2.0")
    assert code == 7
    assert found["counts"] == {"found": 2, "moved": 0, "changed": 0, "gone": 0, "not checkable": 1}
    assert main(["audit", "vllm==9.0"]) == 7


@pytest.mark.parametrize(
    "arguments",
    [
        ["vllm"],
        ["vllm=="],
        ["nothing==1.0"],
        ["vllm==one"],
        ["vllm==2.0", "--python", "python"],
        ["vllm==2.0", "--record", "FILE"],
        ["vllm==0.33.0", "--behaviour"],
        ["vllm==0.33.0", "--behaviour", "--python", "/nowhere/python"],
        ["vllm==0.33.0", "--behaviour", "--answers", "/nowhere.json"],
    ],
)
def test_what_is_no_question_is_2(server: IndexServer, arguments: list[str]) -> None:
    assert main(["audit", *arguments]) == 2
