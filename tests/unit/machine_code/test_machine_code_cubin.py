"""Cubins of known targets, and ones whose tables lie."""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.machine_code.cubin import parse_cubin
from qresolve.machine_code.elf import ElfInvalid
from qresolve.machine_code.fatbin import parse_container
from qresolve.machine_code.payload import read_payload

FIXTURES = Path(__file__).resolve().parents[2] / "data" / "fatbins"
# e_machine, e_flags and e_shoff of a 64-bit ELF header; the ABI version is its ninth byte.
MACHINE, FLAGS, SECTIONS, ABI = 18, 48, 40, 8


@cache
def _cubins(name: str) -> dict[str, bytes]:
    """Image → cubin, from a recorded fatbin of nvcc 13.0.88."""
    data = (FIXTURES / name).read_bytes()
    entries = [entry for entry in parse_container(data).entries if entry.kind == "sass"]
    return {str(entry.image): bytes(read_payload(data, entry)) for entry in entries}


def _family() -> bytes:
    return _cubins("family.fatbin")["sm_120f"]


@pytest.mark.parametrize("name", ["plain.fatbin", "exact.fatbin", "family.fatbin", "zstd.fatbin"])
def test_the_architecture_is_the_container_s_with_its_suffix(name: str) -> None:
    for image, data in _cubins(name).items():
        cubin = parse_cubin(data)
        assert f"sm_{cubin.sm}{cubin.suffix}" == image
        assert cubin.toolkit == "13.0"
        assert cubin.tool is not None
        assert cubin.tool.name == "ptxas"
        assert "release 13.0, V13.0.88" in cubin.tool.version
        assert f"-arch {image}" in cubin.tool.options


def test_the_kernel_of_the_source_is_found_with_its_code() -> None:
    data = _family()
    (kernel,) = parse_cubin(data).kernels
    assert "tiny" in kernel.name
    assert kernel.size
    assert kernel.size % 16 == 0
    # ptxas fills the end of the code with NOP (operation 0x918).
    assert data[kernel.offset + kernel.size - 16 : kernel.offset + kernel.size - 14] == b"\x18\x79"


def test_flags_of_the_older_layout() -> None:
    data = bytearray(_family())
    data[ABI] = 7
    struct.pack_into("<I", data, FLAGS, 0x00500550)
    cubin = parse_cubin(bytes(data))
    assert cubin.sm == 80
    # The note speaks of sm_120f, so it is not of this architecture.
    assert cubin.suffix is None


def test_without_the_notes_the_suffix_is_not_known() -> None:
    data = _family().replace(b"NVIDIA Corp", b"nobody here")
    cubin = parse_cubin(data)
    assert (cubin.sm, cubin.suffix, cubin.tool, cubin.toolkit) == (120, None, None, None)
    assert cubin.kernels
    older = bytearray(data)
    older[ABI] = 7
    for sm, suffix in ((89, ""), (90, None)):
        struct.pack_into("<I", older, FLAGS, sm << 16 | 0x500 | sm)
        assert (parse_cubin(bytes(older)).sm, parse_cubin(bytes(older)).suffix) == (sm, suffix)


@pytest.mark.parametrize(
    ("options", "suffix"),
    [
        (b"-arch sm_120a ", "a"),
        (b"-arch=sm_120f ", "f"),
        (b"-arch sm_120  ", ""),
        (b"-arch sm_121f ", None),
        (b"-arch sm_120x ", None),
        (b"--arch sm_120f", None),
        (b"sm_120f       ", None),
    ],
)
def test_the_suffix_is_in_the_options(options: bytes, suffix: str | None) -> None:
    data = _family()
    assert data.count(b"-arch sm_120f ") == 1
    assert parse_cubin(data.replace(b"-arch sm_120f ", options)).suffix == suffix


def test_another_machine_is_refused() -> None:
    data = bytearray(_family())
    struct.pack_into("<H", data, MACHINE, 62)
    with pytest.raises(ElfInvalid, match="machine 62"):
        parse_cubin(bytes(data))


def test_a_section_table_behind_the_end_is_refused_with_its_offset() -> None:
    data = bytearray(_family())
    struct.pack_into("<Q", data, SECTIONS, len(data) - 8)
    with pytest.raises(ElfInvalid) as caught:
        parse_cubin(bytes(data))
    assert caught.value.offset == len(data) - 8


def test_a_file_without_sections_has_no_kernels() -> None:
    data = bytearray(_family())
    struct.pack_into("<Q", data, SECTIONS, 0)
    assert parse_cubin(bytes(data)).kernels == ()


def _set_section(data: bytearray, index: int, *, kind: int, size: int) -> None:
    (table,) = struct.unpack_from("<Q", data, SECTIONS)
    struct.pack_into("<I", data, table + 64 * index + 4, kind)
    struct.pack_into("<Q", data, table + 64 * index + 32, size)


@pytest.mark.parametrize("kind", [0x7000000A, 8])
def test_a_size_without_bytes_is_no_end_of_the_file(kind: int) -> None:
    """`.nv_debug.shared` of bitsandbytes 0.50.2 is of a kind of NVIDIA's own and larger than its cubin."""
    data = bytearray(_family())
    _set_section(data, 4, kind=kind, size=1 << 40)
    assert parse_cubin(bytes(data)).kernels == parse_cubin(_family()).kernels


@pytest.mark.parametrize("kind", [1, 3, 7])
def test_a_section_that_is_read_may_not_leave_the_file(kind: int) -> None:
    data = bytearray(_family())
    _set_section(data, 4, kind=kind, size=1 << 40)
    with pytest.raises(ElfInvalid, match="section 4 is cut off"):
        parse_cubin(bytes(data))


def test_many_sections_with_one_long_name_are_refused() -> None:
    """Each section would copy the whole table of names."""
    count, long_name = 2000, b".text." + b"k" * 60000
    header = bytearray(_family()[:64])
    names = 64
    table = names + len(long_name) + 8
    struct.pack_into("<Q", header, SECTIONS, table)
    struct.pack_into("<HHH", header, 58, 64, count, 0)
    strings = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, names, len(long_name) + 8, 0, 0, 1, 0)
    code = struct.pack("<IIQQQQIIQQ", 0, 1, 6, 0, names, 16, 0, 0, 1, 0)
    data = bytes(header) + long_name + bytes(8) + strings + code * (count - 1)
    with pytest.raises(ElfInvalid, match="longer than their table"):
        parse_cubin(data)


@given(length=st.integers(0, 1 << 16))
def test_every_truncation_is_refused_or_says_no_more_than_the_whole(length: int) -> None:
    data = _family()
    whole = parse_cubin(data)
    cut = data[: length % len(data)]
    try:
        cubin = parse_cubin(cut)
    except ElfInvalid as error:
        assert 0 <= error.offset <= len(data)  # noqa: PT017 - either outcome is right
    else:
        assert set(cubin.kernels) <= set(whole.kernels)


@given(changes=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=8))
def test_changed_bytes_give_an_error_or_kernels_inside_the_file(changes: list[tuple[int, int]]) -> None:
    data = bytearray(_family())
    for position, value in changes:
        data[position % len(data)] = value
    try:
        cubin = parse_cubin(bytes(data))
    except ElfInvalid:
        return
    assert all(kernel.offset + kernel.size <= len(data) for kernel in cubin.kernels)


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ElfInvalid):
        parse_cubin(data)
