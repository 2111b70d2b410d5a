"""The bytes of one image of a fatbin container, decompressed in memory bounded by what the container declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve.machine_code.fatbin import FatbinInvalid

if TYPE_CHECKING:
    from qresolve.machine_code.fatbin import Buffer, Entry

_MOST_RAW = 512 * 1024**2  # bytes of one image; the largest seen has 12 million
# The most that the two compressions can make of a byte: what declares more is made to cost memory.
_MOST_RATIO = 70_000


def decompress(data: Buffer, entry: Entry) -> Buffer:
    """The image of ``entry``; one that is stored as it is comes back as a view of ``data``.

    Raises:
        FatbinInvalid: it cannot be decompressed, has another length than declared, or declares too much.
    """
    stored = memoryview(data)[entry.payload_offset : entry.payload_offset + entry.stored_length]
    if len(stored) != entry.stored_length:
        raise FatbinInvalid("its image is cut off", offset=entry.offset)
    if entry.compression == "raw":
        return stored
    if entry.raw_length > _MOST_RAW or entry.raw_length > _MOST_RATIO * len(stored):
        raise FatbinInvalid(f"{len(stored)} bytes would grow to {entry.raw_length}", offset=entry.offset)
    raw = _zstd(stored, entry) if entry.compression == "zstd" else _lz4(stored, entry)
    if len(raw) != entry.raw_length:
        raise FatbinInvalid(f"its image has {len(raw)} bytes instead of {entry.raw_length}", offset=entry.offset)
    return raw


def _zstd(stored: memoryview, entry: Entry) -> bytes:
    import zstandard  # noqa: PLC0415 - only for what is compressed so

    try:
        # A frame states its own length too, and the library makes room for that: both must agree first.
        stated = zstandard.frame_content_size(stored)
        if stated not in (-1, entry.raw_length):
            raise FatbinInvalid(f"its frame is to grow to {stated} bytes, not {entry.raw_length}", offset=entry.offset)
        found: bytes = zstandard.ZstdDecompressor().decompress(stored, max_output_size=entry.raw_length)
    except zstandard.ZstdError as error:
        raise FatbinInvalid(f"its image cannot be decompressed: {error}", offset=entry.offset) from error
    return found


def _lz4(stored: memoryview, entry: Entry) -> bytes:
    import lz4.block  # noqa: PLC0415 - as above

    try:
        found: bytes = lz4.block.decompress(stored, uncompressed_size=entry.raw_length)
    except lz4.block.LZ4BlockError as error:
        raise FatbinInvalid(f"its image cannot be decompressed: {error}", offset=entry.offset) from error
    return found
