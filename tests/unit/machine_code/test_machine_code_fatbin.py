"""Fatbin headers: recorded containers of known targets, and laws over made ones."""

from __future__ import annotations

import importlib.util
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.machine_code.fatbin import MAGIC, FatbinInvalid, parse_container, parse_section

if TYPE_CHECKING:
    from types import ModuleType

FIXTURES = Path(__file__).resolve().parents[2] / "data" / "fatbins"

# What nvcc was asked for (regenerate.py), as the CUDA tools write it. `lto_90` is input of the linker.
ASKED = {
    "plain.fatbin": {"sm_80", "sm_120"},
    "exact.fatbin": {"sm_90a", "sm_120a"},
    "family.fatbin": {"sm_100f", "sm_120f"},
    "ptx.fatbin": {"sm_80", "compute_80", "compute_90a", "compute_120f"},
    "zstd.fatbin": {"sm_80", "sm_120f", "compute_80"},
    "lz4.fatbin": {"sm_80", "compute_80"},
    "lto.fatbin": {"sm_80"},
}


def _regenerate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("regenerate_fatbins", FIXTURES / "regenerate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _images(path: Path) -> set[str]:
    return {str(image) for image in parse_container(path.read_bytes()).images}


@pytest.mark.parametrize("name", sorted(ASKED))
def test_recorded_container_holds_what_the_compiler_was_asked_for(name: str) -> None:
    assert _images(FIXTURES / name) == ASKED[name]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
def test_container_built_now_holds_what_the_compiler_was_asked_for(tmp_path: Path) -> None:
    _regenerate().build_fatbins(tmp_path)
    assert {name: _images(tmp_path / name) for name in ASKED} == ASKED


def test_expectations_cover_every_recorded_file() -> None:
    assert set(ASKED) == set(_regenerate().TARGETS) == {path.name for path in FIXTURES.glob("*.fatbin")}


@pytest.mark.parametrize(
    ("name", "compression", "starts"),
    [("zstd.fatbin", "zstd", b"\x28\xb5\x2f\xfd"), ("plain.fatbin", "raw", b"\x7fELF")],
)
def test_offsets_and_compression_lead_to_the_payload(name: str, compression: str, starts: bytes) -> None:
    data = (FIXTURES / name).read_bytes()
    for entry in parse_container(data).entries:
        assert entry.compression == compression
        assert data[entry.payload_offset :].startswith(starts)


def test_lz4_is_told_from_zstd() -> None:
    entries = parse_container((FIXTURES / "lz4.fatbin").read_bytes()).entries
    assert {entry.compression for entry in entries if entry.kind == "ptx"} == {"lz4"}


def test_raw_length_is_the_length_after_decompression() -> None:
    zstandard = pytest.importorskip("zstandard")
    data = (FIXTURES / "zstd.fatbin").read_bytes()
    for entry in parse_container(data).entries:
        stored = data[entry.payload_offset : entry.payload_offset + entry.stored_length]
        plain = zstandard.ZstdDecompressor().decompress(stored, max_output_size=entry.raw_length)
        assert len(plain) == entry.raw_length


def test_linker_input_is_an_entry_but_no_image() -> None:
    container = parse_container((FIXTURES / "lto.fatbin").read_bytes())
    assert [entry.kind for entry in container.entries if entry.sm == 90] == ["lto"]
    assert all(image.sm != 90 for image in container.images)


def _entry(
    *, kind: int = 2, sm: int = 120, flags: int = 0x11, header: int = 64, length: int = 8, compressed: int = 0
) -> bytes:
    fields = (kind, 0x101, header, length, compressed, 0, 0, 0, sm, 0, 0, flags, 0, 0)
    return struct.pack("<HHIQIIHHIIIQQQ", *fields).ljust(header, b"\0") + b"\xee" * length


def _container(*entries: bytes, length: int | None = None) -> bytes:
    body = b"".join(entries)
    return MAGIC + struct.pack("<HHQ", 1, 16, len(body) if length is None else length) + body


ENTRIES = st.fixed_dictionaries(
    {
        "kind": st.sampled_from([1, 2]),
        "sm": st.integers(10, 999),
        "flags": st.sampled_from([0x11, 0x100011, 0x200011]),
        "header": st.sampled_from([64, 72, 112]),
        "length": st.integers(0, 64).map(lambda words: words * 8),
    }
)


@given(st.lists(ENTRIES, max_size=6), st.integers(0, 5), st.binary(max_size=40))
def test_a_made_container_is_read_as_it_was_made(
    wanted: list[dict[str, int]], offset_words: int, behind: bytes
) -> None:
    before = b"\x11" * (8 * offset_words)
    container = _container(*(_entry(**entry) for entry in wanted))
    read = parse_container(before + container + behind, len(before))
    suffixes = {0x11: "", 0x100011: "a", 0x200011: "f"}
    assert [(entry.sm, entry.suffix, entry.kind, entry.stored_length) for entry in read.entries] == [
        (entry["sm"], suffixes[entry["flags"]], {1: "ptx", 2: "sass"}[entry["kind"]], entry["length"])
        for entry in wanted
    ]
    assert read.end == len(before) + len(container)


@given(st.sampled_from(sorted(ASKED)), st.data())
def test_a_cut_container_is_refused_with_an_offset_inside(name: str, data: st.DataObject) -> None:
    whole = (FIXTURES / name).read_bytes()
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(FatbinInvalid) as caught:
        parse_container(cut)
    assert 0 <= caught.value.offset <= len(cut)


@given(st.sampled_from(sorted(ASKED)), st.data())
def test_changed_headers_are_read_or_refused_but_nothing_else(name: str, data: st.DataObject) -> None:
    whole = bytearray((FIXTURES / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        whole[data.draw(st.integers(0, min(len(whole), 400) - 1))] = data.draw(st.integers(0, 255))
    try:
        container = parse_container(bytes(whole))
    except FatbinInvalid:
        return
    assert container.end <= len(whole)
    assert len(container.entries) <= len(whole) // 64


@given(st.binary(max_size=300))
def test_any_bytes_behind_the_magic_end(junk: bytes) -> None:
    try:
        parse_container(MAGIC + junk)
    except FatbinInvalid:
        return
    assert junk.startswith(b"\x01\x00")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "cut off"),
        (b"\0" * 32, "magic"),
        (MAGIC + struct.pack("<HHQ", 2, 16, 0), "version"),
        (MAGIC + struct.pack("<HHQ", 1, 8, 0), "header length"),
        (_container(_entry(), length=2**63), "do not fit"),
        (_container(_entry(header=32)), "impossible"),
        (_container(_entry(length=8)[:-8]), "does not fit"),
        (_container(_entry(flags=0x300011)), "both"),
        (_container(_entry(flags=0xA011, compressed=4)), "two compressions"),
        (_container(_entry(flags=0x8011, compressed=9)), "compressed length"),
        (_container(*[_entry(length=0)] * 4097), "more than"),
    ],
)
def test_a_lie_is_refused_by_its_name(data: bytes, problem: str) -> None:
    with pytest.raises(FatbinInvalid, match=problem):
        parse_container(data)


def test_a_section_is_every_container_with_zeros_between() -> None:
    first, second = _container(_entry(sm=90)), _container(_entry(sm=100))
    data = b"\0" * 8 + first + b"\0" * 16 + second + b"\0" * 5000
    assert [[image.sm for image in one.images] for one in parse_section(data)] == [[90], [100]]


def test_a_section_with_something_else_between_is_refused() -> None:
    first = _container(_entry())
    with pytest.raises(FatbinInvalid, match="neither") as caught:
        list(parse_section(first + b"\0" * 8 + b"else" + first))
    assert caught.value.offset == len(first) + 8
