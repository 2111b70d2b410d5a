"""The bytes of one image of a fatbin: as stored, or decompressed within the length that its header declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve.machine_code.fatbin import FatbinInvalid

if TYPE_CHECKING:
    from qresolve.machine_code.fatbin import Buffer, Entry

# Far above any image met (the largest of the measured wheels has under 100 MB); bounds what a forged header can cost.
MOST_BYTES = 1 << 30
# No byte of an lz4 block stands for more than this many.
_LZ4_RATIO = 255


def read_payload(data: Buffer, entry: Entry) -> memoryview | bytes:
    """The image of ``entry``, whose offsets count from the start of ``data``. What is stored raw is not copied.

    Raises:
        FatbinInvalid: the payload is cut off, or does not decompress to exactly the declared length. More than
            that length is never held, whatever the stored bytes say.
    """
    view = memoryview(data).cast("B")
    end = entry.payload_offset + entry.stored_length
    if end > len(view):
        raise FatbinInvalid(f"{entry.stored_length} bytes of an image are cut off", offset=entry.payload_offset)
    stored = view[entry.payload_offset : end]
    if entry.compression == "raw":
        return stored
    if not 0 < entry.raw_length <= MOST_BYTES:
        raise FatbinInvalid(f"an image of {entry.raw_length} bytes", offset=entry.offset)
    raw = _zstd(stored, entry) if entry.compression == "zstd" else _lz4(stored, entry)
    if len(raw) != entry.raw_length:
        problem = f"an image of {entry.raw_length} bytes has {len(raw)}"
        raise FatbinInvalid(problem, offset=entry.payload_offset)
    return raw


def _zstd(stored: memoryview, entry: Entry) -> bytes:
    import zstandard  # noqa: PLC0415 - only where something is compressed with it

    try:
        # A frame may declare its own length, which the library would allocate before it looks at the limit.
        declared = zstandard.get_frame_parameters(stored).content_size
        if declared not in (0, zstandard.CONTENTSIZE_UNKNOWN, entry.raw_length):
            problem = f"an image of {entry.raw_length} bytes says that it has {declared}"
            raise FatbinInvalid(problem, offset=entry.payload_offset)
        return zstandard.ZstdDecompressor().decompress(stored, max_output_size=entry.raw_length, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise FatbinInvalid(f"zstd: {error}", offset=entry.payload_offset) from error


def _lz4(stored: memoryview, entry: Entry) -> bytes:
    import lz4.block  # noqa: PLC0415 - only where something is compressed with it

    if entry.raw_length > _LZ4_RATIO * len(stored):
        problem = f"{len(stored)} bytes of lz4 cannot hold an image of {entry.raw_length}"
        raise FatbinInvalid(problem, offset=entry.payload_offset)
    try:
        return bytes(lz4.block.decompress(stored, uncompressed_size=entry.raw_length))
    except (lz4.block.LZ4BlockError, ValueError, MemoryError) as error:
        raise FatbinInvalid(f"lz4: {error}", offset=entry.payload_offset) from error
