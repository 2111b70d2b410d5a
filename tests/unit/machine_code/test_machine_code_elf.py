"""Libraries: recorded ones of two known units, and broken ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.machine_code.elf import ElfInvalid, LibraryMeasurement, newest_glibc, parse_library, parse_unit_name
from qresolve.machine_code.fatbin import FatbinInvalid

FIXTURES = Path(__file__).resolve().parents[2] / "data" / "fatbins"
# What regenerate.py compiled the two units for.
FIRST = {"sm_120f"}
SECOND = {"sm_80", "sm_90a", "compute_80"}


def _read(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()


def _units(library: LibraryMeasurement) -> list[tuple[str | None, set[str]]]:
    return [(unit.name, {str(image) for image in unit.images}) for unit in library.units]


def test_each_container_is_known_by_its_unit() -> None:
    library = parse_library(_read("two_units.so"), path="pkg/two_units.so")
    assert _units(library) == [("first_sm120_kernels", FIRST), ("second", SECOND)]
    assert library.path == "pkg/two_units.so"


def test_a_stripped_library_has_the_same_images_without_names() -> None:
    library = parse_library(_read("stripped.so"), path="stripped.so")
    assert _units(library) == [(None, FIRST), (None, SECOND)]


def test_input_of_the_device_linker_never_counts() -> None:
    data = _read("linker_input.so")
    assert b"__nv_relfatbin" in data
    assert b"\x50\xed\x55\xba" in data
    assert parse_library(data, path="x").units == ()


def test_containers_in_another_data_section_count() -> None:
    moved = _read("two_units.so").replace(b"\0.nv_fatbin\0", b"\0.lrodata.x\0")
    assert b".nv_fatbin" not in moved
    assert _units(parse_library(moved, path="x")) == [("first_sm120_kernels", FIRST), ("second", SECOND)]


def test_needed_libraries_and_glibc() -> None:
    library = parse_library(_read("two_units.so"), path="x")
    assert "libc.so.6" in library.needed
    assert library.glibc == "2.2.5"


def test_glibc_versions_are_compared_as_numbers() -> None:
    assert newest_glibc({"GLIBC_2.9", "GLIBC_2.17", "GLIBC_2.2.5", "GLIBC_PRIVATE", "GCC_3.0"}) == "2.17"
    assert newest_glibc({"GCC_3.0", "GLIBC_PRIVATE"}) is None


@pytest.mark.parametrize(
    ("symbol", "unit"),
    [
        ("tmpxft_00002ac0_00000000-6_scaled_mm_sm120_fp8.cudafe1.cpp", "scaled_mm_sm120_fp8"),
        ("tmpxft_00002ad5_00000000-6_second.compute_90a.cudafe1.cpp", "second"),
        ("tmpxft_1_2-12_a.b_c-d.compute_120f.cudafe1.cpp", "a.b_c-d"),
        ("crtstuff.c", None),
        ("", None),
        ("torch_bindings.cpp", None),
    ],
)
def test_unit_names(symbol: str, unit: str | None) -> None:
    assert parse_unit_name(symbol) == unit


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF\x01\x01" + b"\0" * 100, b"MZ" + b"\0" * 100])
def test_what_is_no_library_is_refused(data: bytes) -> None:
    with pytest.raises(ElfInvalid):
        parse_library(data, path="x")


def test_junk_in_the_loaded_section_is_refused_where_it_stands() -> None:
    data = _read("two_units.so")
    start = data.index(b"\x50\xed\x55\xba")
    with pytest.raises(FatbinInvalid) as caught:
        parse_library(data[:start] + b"\x51" + data[start + 1 :], path="x")
    assert caught.value.offset == start


@given(st.data())
def test_a_cut_library_is_refused(data: st.DataObject) -> None:
    whole = _read("two_units.so")
    with pytest.raises((ElfInvalid, FatbinInvalid)):
        # The section table stands last, so every cut takes some of it.
        parse_library(whole[: data.draw(st.integers(0, len(whole) - 1))], path="x")


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=12))
def test_a_damaged_library_is_read_or_refused_but_nothing_else(changes: list[tuple[int, int]]) -> None:
    data = bytearray(_read("two_units.so"))
    tables = len(data) - 4096
    for position, value in changes:
        # Half of the changes hit the header or the tables at the end, where they hurt.
        index = position % 64 if position % 4 == 0 else tables + position % 4096 if position % 2 else position
        data[index % len(data)] = value
    try:
        library = parse_library(bytes(data), path="x")
    except (ElfInvalid, FatbinInvalid):
        return
    assert len(library.units) <= len(data) // 16
