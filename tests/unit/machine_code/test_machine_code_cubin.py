"""Cubins out of real containers: what they say of themselves, and what broken ones do."""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.arch import ImageArch
from qresolve.machine_code.cubin import parse_cubin
from qresolve.machine_code.elf import ElfInvalid
from qresolve.machine_code.fatbin import FatbinInvalid, parse_container, parse_section
from qresolve.machine_code.payload import decompress
from qresolve.machine_code.scan import scan_binary

FATBINS = Path(__file__).resolve().parents[2] / "data" / "fatbins"


def cubins(name: str) -> list[tuple[ImageArch, bytes]]:
    data = (FATBINS / name).read_bytes()
    return [
        (entry.image, bytes(decompress(data, entry)))
        for container in parse_section(data)
        for entry in container.entries
        if entry.image is not None and entry.kind == "sass"
    ]


@pytest.mark.parametrize("name", ["plain.fatbin", "exact.fatbin", "family.fatbin", "zstd.fatbin", "lz4.fatbin"])
def test_a_cubin_names_its_arch_compiler_and_kernels(name: str) -> None:
    found = cubins(name)
    assert found
    for arch, data in found:
        cubin = parse_cubin(data)
        assert cubin.arch == arch, "the container's flag and the compiler's command line agree"
        assert cubin.tool is not None
        assert cubin.tool.startswith("ptxas V13.0.")
        assert cubin.kernels
        for kernel in cubin.kernels:
            assert kernel.size % 16 == 0
            assert any(data[kernel.offset : kernel.offset + kernel.size])


def test_without_the_note_there_is_no_suffix_and_no_compiler() -> None:
    arch, data = cubins("family.fatbin")[0]
    cubin = parse_cubin(data.replace(b"-arch sm_", b"-brch sm_").replace(b", V13", b", W13"))
    assert cubin.arch == ImageArch(sm=arch.sm)
    assert cubin.tool is None


def test_the_older_layout_of_the_flags() -> None:
    _, data = cubins("plain.fatbin")[0]
    old = bytearray(data)
    old[7] = 0x33
    struct.pack_into("<I", old, 48, 0x00500550)
    assert parse_cubin(bytes(old)).arch.sm == 0x50
    old[7] = 0x7F
    with pytest.raises(ElfInvalid, match="ABI 0x7f"):
        parse_cubin(bytes(old))


def test_what_is_no_cubin_is_refused() -> None:
    library = (FATBINS / "stripped.so").read_bytes()
    with pytest.raises(ElfInvalid, match="is not CUDA"):
        parse_cubin(library)
    with pytest.raises(ElfInvalid):
        parse_cubin(b"")


CUBIN = cubins("zstd.fatbin")[-1][1]


@given(length=st.integers(min_value=0, max_value=len(CUBIN) - 1))
def test_a_cubin_cut_off_anywhere_is_an_error_or_reads_within_itself(length: int) -> None:
    cut = CUBIN[:length]
    try:
        cubin = parse_cubin(cut)
    except ElfInvalid:
        return
    assert all(kernel.offset + kernel.size <= length for kernel in cubin.kernels)


@given(position=st.integers(min_value=0, max_value=len(CUBIN) - 1), byte=st.integers(min_value=0, max_value=255))
def test_one_changed_byte_never_does_more_than_an_error(position: int, byte: int) -> None:
    changed = bytearray(CUBIN)
    changed[position] = byte
    try:
        cubin = parse_cubin(bytes(changed))
    except ElfInvalid:
        return
    assert all(kernel.offset + kernel.size <= len(CUBIN) for kernel in cubin.kernels)


@pytest.mark.parametrize("name", ["zstd.fatbin", "lz4.fatbin"])
def test_a_lie_about_the_raw_length_is_found(name: str) -> None:
    data = (FATBINS / name).read_bytes()
    entry = next(entry for entry in parse_container(data).entries if entry.compression != "raw")
    assert entry.compression == name.partition(".")[0]
    for length in (entry.raw_length - 1, entry.raw_length + 1, 0):
        with pytest.raises(FatbinInvalid) as caught:
            decompress(data, replace(entry, raw_length=length))
        assert caught.value.offset == entry.offset
    with pytest.raises(FatbinInvalid, match="would grow"):
        decompress(data, replace(entry, raw_length=1 << 40))


@pytest.mark.parametrize("name", ["zstd.fatbin", "lz4.fatbin"])
def test_broken_compressed_bytes_are_an_error_with_the_offset(name: str) -> None:
    data = bytearray((FATBINS / name).read_bytes())
    entry = next(entry for entry in parse_container(data).entries if entry.compression != "raw")
    for position in range(entry.payload_offset, entry.payload_offset + 40):
        data[position] ^= 0xFF
    with pytest.raises(FatbinInvalid) as caught:
        decompress(bytes(data), entry)
    assert caught.value.offset == entry.offset
    with pytest.raises(FatbinInvalid, match="cut off"):
        decompress(bytes(data[: entry.payload_offset + 5]), entry)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a compiler for the host")
def test_a_cubin_among_other_data_is_a_unit_of_its_own(tmp_path: Path) -> None:
    arch, data = cubins("family.fatbin")[1]
    (tmp_path / "one.cubin").write_bytes(data)
    (tmp_path / "whole.fatbin").write_bytes((FATBINS / "plain.fatbin").read_bytes())
    source = '.section .rodata\n.ascii "\\177ELF\\2\\1\\1 no cubin"\n.balign 8\n.incbin "one.cubin"\n'
    source += '.balign 8\n.incbin "whole.fatbin"\n.section .note.GNU-stack,"",@progbits\n'
    (tmp_path / "held.s").write_text(source)
    subprocess.run([str(shutil.which("gcc")), "-shared", "held.s", "-o", "held.so"], cwd=tmp_path, check=True)
    scan = scan_binary((tmp_path / "held.so").read_bytes(), path="held.so", wanted=lambda images: images)
    assert sorted(len(unit.images) for unit in scan.units) == [1, 2], "the cubins of the container count once"
    loose = next(unit for unit in scan.units if len(unit.images) == 1)
    assert loose.section == ".rodata"
    assert loose.archs == (arch,)
    assert loose.images[0].kernels == tuple(kernel.name for kernel in parse_cubin(data).kernels)
