"""The stand-in for the driver's library: this host's loader takes it, and it answers as it should."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile

from qresolve.inside.stub_driver import SONAME, SYMBOLS, build_stub_driver

if TYPE_CHECKING:
    from pathlib import Path

HERE = platform.machine()
LOADABLE = pytest.mark.skipif(
    sys.platform != "linux" or HERE not in {"x86_64", "aarch64"}, reason="the stub is for Linux on x86_64 and aarch64"
)


@LOADABLE
def test_the_loader_takes_it_and_every_function_answers(tmp_path: Path) -> None:
    path = tmp_path / "stub.so"
    path.write_bytes(build_stub_driver(HERE, cuda=12345))
    library = ctypes.CDLL(str(path))
    version = ctypes.c_int()
    assert library.cuDriverGetVersion(ctypes.byref(version)) == 0
    assert version.value == 12345
    for symbol in SYMBOLS:
        if symbol != "cuDriverGetVersion":
            assert getattr(library, symbol)() == 500
    with pytest.raises(AttributeError):
        library.cuNothing  # noqa: B018


@LOADABLE
def test_once_loaded_it_is_the_library_that_others_ask_for_by_name(tmp_path: Path) -> None:
    path = tmp_path / "stub.so"
    path.write_bytes(build_stub_driver(HERE, cuda=13000))
    code = (
        "import ctypes, sys\n"
        "ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)\n"
        f"print(ctypes.CDLL({SONAME!r}).cuInit(0), ctypes.CDLL(None).cuInit(0))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["500", "500"]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_its_table_of_symbols_is_read_by_others_too(machine: str, tmp_path: Path) -> None:
    path = tmp_path / "stub.so"
    path.write_bytes(build_stub_driver(machine, cuda=13000))
    with path.open("rb") as file:
        elf = ELFFile(file)
        assert elf.get_machine_arch() == {"x86_64": "x64", "aarch64": "AArch64"}[machine]
        dynamic = next(segment for segment in elf.iter_segments() if isinstance(segment, DynamicSegment))
        names = {tag.entry.d_tag: vars(tag) for tag in dynamic.iter_tags()}
        assert names["DT_SONAME"]["soname"] == SONAME
        assert [symbol.name for symbol in dynamic.iter_symbols() if symbol.name] == list(SYMBOLS)


@pytest.mark.parametrize(("machine", "cuda"), [("riscv64", 13000), ("x86_64", -1), ("x86_64", 1 << 16)])
def test_what_it_cannot_be_made_for(machine: str, cuda: int) -> None:
    with pytest.raises(ValueError, match="no stub"):
        build_stub_driver(machine, cuda=cuda)
