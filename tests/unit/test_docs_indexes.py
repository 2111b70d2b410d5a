"""The page on indexes: its commands are run against indexes on this machine, its records are read."""

from __future__ import annotations

import email
import json
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tomli

from qresolve.cli.main import main
from qresolve.data import data_folder
from qresolve.knowledge.indexes import parse_indexes, read_indexes
from qresolve.strict import Table
from tests.fake_stack import X86, isolate_user, stack
from tests.index_server import IndexServer, MadeWheel, make_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "indexes.md").read_text(encoding="utf-8")
FATBINS = ROOT / "tests" / "data" / "fatbins"
RUNTIME = "nvidia-cuda-runtime-cu12"
BOOK = read_indexes()
RECORDED = tomli.loads((data_folder("constraints") / "indexes.toml").read_text(encoding="utf-8"))


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


COMMANDS = [block.splitlines() for block in blocks("sh")]


# ---------------------------------------------------------------- records


def test_every_record_of_the_page_stands_in_the_data_as_it_is_shown() -> None:
    assert blocks("toml")
    for block in blocks("toml"):
        for kind, rows in tomli.loads(block).items():
            for row in rows:
                assert row in RECORDED[kind], row


def test_the_records_of_the_page_are_read_by_themselves() -> None:
    document: dict[str, Any] = {"checked": RECORDED["checked"], "read-from": "the page"}
    for block in blocks("toml"):
        for kind, rows in tomli.loads(block).items():
            document.setdefault(kind, []).extend(rows)
    book = parse_indexes(Table(document, file="indexes.md"))
    assert book.cuda_of_local("2.14.0+cu130") == "13.0"
    assert book.find("vllm") == BOOK.find("vllm")


def test_the_table_names_every_index_and_when_it_is_taken() -> None:
    rows = dict(re.findall(r"^\| `([\w-]+)` \| [^|]+ \| `(\w+)` \|$", PAGE, re.MULTILINE))
    assert rows == {index.name: index.need for index in BOOK.indexes}
    for need in set(rows.values()):
        assert f"`{need}`:" in PAGE


# ---------------------------------------------------------------- commands


def vllm(release: str, version: str, library: str, *, twelve: bool = False) -> MadeWheel:
    own = next(wheel for wheel in stack(release) if wheel.name == "vllm")
    requires = email.message_from_bytes(own.metadata).get_all("Requires-Dist") or []
    if twelve:
        requires = [*(one for one in requires if not one.startswith("nvidia-cuda-")), RUNTIME]
    content = (FATBINS / library / "_C_stable_libtorch.abi3.so").read_bytes()
    files = {"vllm/_C_stable_libtorch.abi3.so": content}
    return make_wheel("vllm", version, requires=requires, tag=f"cp38-abi3-{X86}", files=files)


def version_of(name: str, release: str) -> str:
    return next(wheel.version for wheel in stack(release) if wheel.name == name)


@pytest.fixture
def addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The addresses of the page, and those of the known indexes, with servers on this machine in their place."""
    isolate_user(tmp_path, monkeypatch)
    with (
        IndexServer() as public,
        IndexServer(user="anna", password="secret") as mirror,  # noqa: S106 - of the page
        IndexServer() as lane,
        IndexServer() as own,
        IndexServer() as flashinfer,
    ):
        for release in ("0.33.0", "0.30.0", "0.21.0"):
            public.add(*stack(release))
        public.add(make_wheel(RUNTIME, "12.9.79"))
        mirror.add(*(wheel for wheel in stack() if wheel.name in {"vllm", "torch"}))
        torch = version_of("torch", "0.21.0")
        lane.add(make_wheel("torch", f"{torch}+cu129", requires=(f"{RUNTIME}==12.9.79",)), upload_time=None)
        own.add(vllm("0.21.0", "0.21.0+cu129", "native_cuda12", twelve=True))
        flashinfer.add(make_wheel("flashinfer-cubin", version_of("flashinfer-python", "0.30.0")))
        dist = tmp_path / "work" / "dist"
        dist.mkdir()
        made = vllm("0.33.0", "0.33.0+mine", "native")
        (dist / made.filename).write_bytes(made.content)
        monkeypatch.setenv("UV_DEFAULT_INDEX", public.url)
        yield {
            "https://mirror.example/simple": mirror.url,
            "pytorch": f"pytorch={lane.url}=torch",
            "vllm": f"vllm={own.url}=vllm",
            "flashinfer": f"flashinfer={flashinfer.url}=flashinfer-cubin",
        }


def run(line: str, addresses: dict[str, str], *, file: str) -> int:
    """One command of the page; the known indexes that it takes are bound to the servers."""
    words = shlex.split(line)
    assert words[0] == "qresolve"
    page = "https://mirror.example/simple"
    words = [word.replace(page, addresses[page]) for word in words[1:]]
    if "12.9" in words:
        words += ["--index", addresses["pytorch"], "--index", addresses["vllm"]]
    if any(word.startswith("package.flashinfer-cubin=") for word in words):
        words += ["--index", addresses["flashinfer"]]
    return main([*words, "-o", file, "--force"])


@pytest.mark.parametrize("lines", COMMANDS, ids=lambda lines: lines[-1].partition("--formats ")[2])
def test_the_commands_of_the_page_work(
    lines: list[str], addresses: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are printed, in the order of the page; several lines of one block give the same lock where it says so."""
    written = []
    needs_login = any("mirror.example" in line for line in lines)
    if needs_login:  # of the page's section on logins; the first example shows the index alone
        monkeypatch.setenv("UV_INDEX_MIRROR_USERNAME", "anna")
        monkeypatch.setenv("UV_INDEX_MIRROR_PASSWORD", "secret")
    for number, line in enumerate(lines):
        if line.startswith("export "):
            for name, value in (word.split("=", 1) for word in shlex.split(line)[1:]):
                assert os.environ[name] == value
            continue
        file = f"pylock.page{number}.toml"
        assert run(line, addresses, file=file) == 0, line
        text = Path(file).read_text(encoding="utf-8")
        assert "secret" not in text
        written.append(text)
    if any("--offline" in line for line in lines):
        assert len(set(written)) == 1


def test_what_the_page_says_of_the_cubin_is_so(capsys: pytest.CaptureFixture[str]) -> None:
    def verdict(release: str, gpu: str, selector: str, *, cubin: bool, auto: bool = False) -> str:
        options = ["explain", "--gpu", gpu, "--machine", "x86_64", "--formats", selector, "--json"]
        assumed = ["--assume", f"package.flashinfer-cubin={version_of('flashinfer-python', release)}"] if cubin else []
        main([*options, "--engine", f"vllm=={release}", *assumed])
        (row,) = [one for one in json.loads(capsys.readouterr().out)["formats"] if one["asked"]]
        return str(row["auto"]["verdict"] if auto else row["verdict"])

    for selector in ("mxfp4", "mxfp8"):
        for release, without in (("0.26.0", "weight-only"), ("0.31.0", "weight-only"), ("0.33.0", "native")):
            assert verdict(release, "sm100", selector, cubin=False) == without
            assert verdict(release, "sm100", selector, cubin=True) == "native"
    assert verdict("0.33.0", "sm120", "mxfp4", cubin=False, auto=True) == "weight-only"
    assert verdict("0.33.0", "sm120", "mxfp4", cubin=True, auto=True) == "broken"
