"""Payloads of recorded fatbins, and of headers and payloads that lie."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lz4.block
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from qresolve.machine_code.cubin import parse_cubin
from qresolve.machine_code.fatbin import Compression, Entry, FatbinInvalid, parse_container
from qresolve.machine_code.payload import MOST_BYTES, read_payload

FIXTURES = Path(__file__).resolve().parents[2] / "data" / "fatbins"
TEXT = b"tensor cores " * 500


def _entries(name: str) -> tuple[bytes, tuple[Entry, ...]]:
    data = (FIXTURES / name).read_bytes()
    return data, parse_container(data).entries


def _entry(compression: Compression, stored: bytes, raw_length: int) -> tuple[bytes, Entry]:
    """A payload behind eight bytes of something else, and its entry."""
    entry = Entry(
        offset=3,
        kind="sass",
        sm=120,
        suffix="f",
        compression=compression,
        payload_offset=8,
        stored_length=len(stored),
        raw_length=raw_length,
    )
    return b"\xff" * 8 + stored, entry


def _packed(compression: Compression) -> bytes:
    if compression == "zstd":
        return zstandard.ZstdCompressor().compress(TEXT)
    return bytes(lz4.block.compress(TEXT, store_size=False))


@pytest.mark.parametrize(
    ("name", "compression"), [("plain.fatbin", "raw"), ("zstd.fatbin", "zstd"), ("lz4.fatbin", "lz4")]
)
# nvcc leaves raw what does not get smaller.
def test_an_image_is_the_cubin_that_its_entry_says(name: str, compression: str) -> None:
    data, entries = _entries(name)
    machine_code = [entry for entry in entries if entry.kind == "sass"]
    assert machine_code
    assert compression in {entry.compression for entry in entries}
    for entry in machine_code:
        raw = read_payload(data, entry)
        assert len(raw) == entry.raw_length
        assert parse_cubin(raw).sm == entry.sm


@pytest.mark.parametrize("name", ["zstd.fatbin", "lz4.fatbin"])
def test_ptx_is_text(name: str) -> None:
    data, entries = _entries(name)
    (ptx,) = [read_payload(data, entry) for entry in entries if entry.kind == "ptx"]
    assert b".target sm_80" in bytes(ptx)


def test_what_is_stored_raw_is_not_copied() -> None:
    data, entry = _entry("raw", TEXT, len(TEXT))
    view = read_payload(data, entry)
    assert isinstance(view, memoryview)
    assert view.obj is data
    assert view == TEXT


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("wrong", [-1, 1, 1000, -len(TEXT) + 1])
def test_a_length_that_is_not_the_declared_one_is_refused(compression: Compression, wrong: int) -> None:
    stored = _packed(compression)
    data, entry = _entry(compression, stored, len(TEXT) + wrong)
    with pytest.raises(FatbinInvalid) as caught:
        read_payload(data, entry)
    assert caught.value.offset == entry.payload_offset
    assert bytes(read_payload(data, replace(entry, raw_length=len(TEXT)))) == TEXT


def test_a_stream_that_does_not_say_its_length_is_held_to_the_declared_one() -> None:
    packer = zstandard.ZstdCompressor().compressobj()
    stored = packer.compress(TEXT) + packer.flush()
    data, entry = _entry("zstd", stored, len(TEXT))
    assert bytes(read_payload(data, entry)) == TEXT
    with pytest.raises(FatbinInvalid):
        read_payload(data, replace(entry, raw_length=len(TEXT) - 1))
    with pytest.raises(FatbinInvalid):
        read_payload(data, replace(entry, raw_length=len(TEXT) + 1))


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("length", [0, MOST_BYTES + 1, 1 << 62])
def test_an_impossible_length_is_refused_before_anything_is_held(compression: Compression, length: int) -> None:
    data, entry = _entry(compression, _packed(compression), length)
    with pytest.raises(FatbinInvalid) as caught:
        read_payload(data, entry)
    assert caught.value.offset == entry.offset


def test_lz4_cannot_be_asked_to_reserve_what_it_cannot_fill() -> None:
    data, entry = _entry("lz4", _packed("lz4"), MOST_BYTES)
    with pytest.raises(FatbinInvalid, match="cannot hold"):
        read_payload(data, entry)


@pytest.mark.parametrize("compression", ["raw", "zstd", "lz4"])
def test_a_payload_that_is_cut_off_is_refused(compression: Compression) -> None:
    stored = TEXT if compression == "raw" else _packed(compression)
    data, entry = _entry(compression, stored, len(TEXT))
    with pytest.raises(FatbinInvalid, match="cut off"):
        read_payload(data[:-1], entry)


@given(
    compression=st.sampled_from(["zstd", "lz4"]),
    changes=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(1, 255)), min_size=1, max_size=4),
)
def test_changed_bytes_give_the_declared_length_or_an_error(
    compression: Compression, changes: list[tuple[int, int]]
) -> None:
    stored = bytearray(_packed(compression))
    for position, change in changes:
        stored[position % len(stored)] ^= change
    data, entry = _entry(compression, bytes(stored), len(TEXT))
    try:
        raw = read_payload(data, entry)
    except FatbinInvalid as error:
        assert error.offset == entry.payload_offset  # noqa: PT017 - either outcome is right
    else:
        assert len(raw) == len(TEXT)
