"""Headers of CUDA fatbin containers: which image is for which architecture, with the a/f suffix.

Only headers are read, payloads are never decompressed: the suffix is a flag of the entry header, so the
answer is exact and costs milliseconds. ``cuobjdump --list-elf`` was refused as a source: it prints
``sm_120f`` as ``sm_120``, and the suffix decides where the image loads.

The layout is not published. It was taken from containers built with nvcc 13.0.88 for known targets
(``tests/data/fatbins/regenerate.py`` builds them again) and is little-endian::

    container: u32 magic 0xBA55ED50 | u16 version | u16 header length | u64 length of all entries
    entry:     u16 kind | u16 version | u32 header length | u64 payload length with padding
               u32 compressed length | … | u32 sm @28 | … | u64 flags @40 | … | u64 raw length @56
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from qresolve.arch import ImageArch
from qresolve.errors import Unproved

if TYPE_CHECKING:
    from collections.abc import Iterator
    from mmap import mmap

    Buffer = bytes | bytearray | memoryview | mmap

MAGIC = struct.pack("<I", 0xBA55ED50)

_CONTAINER = struct.Struct("<IHHQ")
_CONTAINER_VERSION = 1
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_ENTRY_VERSION = 0x101
_ALIGNMENT = 8
_PADDING_CHUNK = 4096
# Far above what a compiler writes (one entry for each -gencode); bounds what a forged container can cost.
_MOST_ENTRIES = 4096
# Chance hits of the magic among other data; more than this is made, not met.
_MOST_CHANCE_HITS = 1000

_KIND_PTX, _KIND_ELF, _KIND_LTO = 1, 2, 8
_FLAG_LZ4, _FLAG_ZSTD = 0x2000, 0x8000
_FLAG_EXACT, _FLAG_FAMILY = 0x100000, 0x200000

Kind = Literal["ptx", "sass", "lto", "other"]
Compression = Literal["raw", "lz4", "zstd"]


class FatbinInvalid(Unproved):
    """The bytes at ``offset`` (from the start of the buffer) are no fatbin that can be read."""

    def __init__(self, problem: str, *, offset: int) -> None:
        super().__init__(f"fatbin at offset {offset}: {problem}")
        self.problem = problem
        self.offset = offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One image of a container.

    Offsets are from the start of the buffer, lengths in bytes. ``raw_length`` is the length after
    decompression; for an image that is not compressed it is the stored length.
    """

    offset: int
    kind: Kind
    sm: int
    suffix: Literal["", "a", "f"]
    compression: Compression
    payload_offset: int
    stored_length: int
    raw_length: int

    @property
    def image(self) -> ImageArch | None:
        """The architecture, or None for what the driver never loads (LTO input, unknown kinds)."""
        if self.kind in ("ptx", "sass"):
            return ImageArch(sm=self.sm, suffix=self.suffix, kind=self.kind)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One fatbin container; ``end`` is the first offset behind it."""

    offset: int
    end: int
    entries: tuple[Entry, ...]

    @property
    def images(self) -> tuple[ImageArch, ...]:
        """What the driver could load, in file order, each once."""
        return tuple(dict.fromkeys(entry.image for entry in self.entries if entry.image is not None))


def parse_container(data: Buffer, offset: int = 0) -> Container:
    """Read the container whose header starts at ``offset``.

    Raises:
        FatbinInvalid: magic, version or a length is wrong, or the buffer ends too early. Every entry
            takes at least its own header, so the walk is bounded by the buffer whatever a length says.
    """
    view = memoryview(data)
    if offset < 0 or offset + _CONTAINER.size > len(view):
        raise FatbinInvalid("the container's header is cut off", offset=offset)
    magic, version, header_length, length = _CONTAINER.unpack_from(view, offset)
    if view[offset : offset + len(MAGIC)] != MAGIC:
        raise FatbinInvalid(f"magic 0x{magic:08x} is not a fatbin's", offset=offset)
    if version != _CONTAINER_VERSION or header_length < _CONTAINER.size or header_length % _ALIGNMENT:
        raise FatbinInvalid(f"version {version} with header length {header_length} is unknown", offset=offset)
    start, end = offset + header_length, offset + header_length + length
    if end > len(view):
        raise FatbinInvalid(
            f"{length} bytes of entries do not fit in the {max(0, len(view) - start)} that follow",
            offset=offset,
        )
    entries: list[Entry] = []
    position = start
    while position < end:
        if len(entries) == _MOST_ENTRIES:
            raise FatbinInvalid(f"more than {_MOST_ENTRIES} entries", offset=position)
        entry, position = _parse_entry(view, position, end)
        entries.append(entry)
    return Container(offset=offset, end=end, entries=tuple(entries))


def _parse_entry(view: memoryview, offset: int, end: int) -> tuple[Entry, int]:
    """The entry at ``offset`` of a container that ends at ``end``, and where the next one starts."""
    if offset + _ENTRY.size > end:
        raise FatbinInvalid("an entry's header is cut off", offset=offset)
    fields = _ENTRY.unpack_from(view, offset)
    kind, version, header_length, padded_length, compressed_length = fields[:5]
    sm, flags, raw_length = fields[8], fields[11], fields[13]
    if version != _ENTRY_VERSION:
        raise FatbinInvalid(f"entry version 0x{version:x} is unknown", offset=offset)
    if header_length < _ENTRY.size or offset + header_length > end:
        raise FatbinInvalid(f"entry header length {header_length} is impossible", offset=offset)
    payload = offset + header_length
    if padded_length > end - payload:
        raise FatbinInvalid(
            f"an image of {padded_length} bytes does not fit in the {end - payload} that are left",
            offset=offset,
        )
    if flags & _FLAG_LZ4 and flags & _FLAG_ZSTD:
        raise FatbinInvalid(f"flags 0x{flags:x} name two compressions", offset=offset)
    if flags & _FLAG_EXACT and flags & _FLAG_FAMILY:
        raise FatbinInvalid(f"flags 0x{flags:x} say both `a` and `f`", offset=offset)
    compression: Compression = "lz4" if flags & _FLAG_LZ4 else "zstd" if flags & _FLAG_ZSTD else "raw"
    if compression != "raw" and not 0 < compressed_length <= padded_length:
        raise FatbinInvalid(f"compressed length {compressed_length} does not fit in {padded_length}", offset=offset)
    entry = Entry(
        offset=offset,
        kind=_kind(kind),
        sm=sm,
        suffix="a" if flags & _FLAG_EXACT else "f" if flags & _FLAG_FAMILY else "",
        compression=compression,
        payload_offset=payload,
        stored_length=padded_length if compression == "raw" else compressed_length,
        raw_length=padded_length if compression == "raw" else raw_length,
    )
    return entry, payload + padded_length


def _kind(code: int) -> Kind:
    if code == _KIND_PTX:
        return "ptx"
    if code == _KIND_ELF:
        return "sass"
    return "lto" if code == _KIND_LTO else "other"


def parse_section(data: Buffer, start: int = 0, end: int | None = None) -> Iterator[Container]:
    """Every container between ``start`` and ``end``, where nothing else stands, as in ``.nv_fatbin``.

    Between two containers only zeros (alignment) may stand.

    Raises:
        FatbinInvalid: something else stands there, or a container cannot be read.
    """
    view = memoryview(data)[:end]
    position = start
    while position < len(view):
        chunk = bytes(view[position : position + _PADDING_CHUNK])
        padding = len(chunk) - len(chunk.lstrip(b"\0"))
        if padding:
            position += padding
            continue
        if not chunk.startswith(MAGIC):
            raise FatbinInvalid("neither a container nor padding", offset=position)
        container = parse_container(view, position)
        yield container
        position = container.end


def search_containers(data: Buffer, start: int = 0, end: int | None = None) -> Iterator[Container]:
    """Containers among other data: there the magic may also be chance, so what does not parse is skipped.

    Raises:
        FatbinInvalid: far more chance hits than are met.
    """
    view = memoryview(data)[:end]
    # A memoryview cannot search, and a copy of hundreds of megabytes is what mapping the file avoids.
    searched = bytes(view) if isinstance(data, memoryview) else data
    chance_hits = 0
    position = searched.find(MAGIC, start, len(view))
    while position >= 0:
        try:
            container = parse_container(view, position)
        except FatbinInvalid:
            chance_hits += 1
            if chance_hits > _MOST_CHANCE_HITS:
                raise
            position = searched.find(MAGIC, position + 1, len(view))
            continue
        if container.entries:
            yield container
        position = searched.find(MAGIC, max(container.end, position + 1), len(view))
