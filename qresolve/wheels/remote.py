"""Single members of a wheel without the rest of it, from a server or from a file.

A zip has its table at the end: one request brings it, one more each member. What comes is untrusted: names
that leave the folder, members longer than declared, wrong checksums and bombs are refused. The sha256 of
the whole file cannot be checked this way; a member is bound by the zip's own CRC and by RECORD.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol, cast

from qresolve.errors import Unproved
from qresolve.wheels.ranges import LocalRanges

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from qresolve.wheels.ranges import RangeSource

_LOCAL_HEADER = struct.Struct("<4sHHHHHIIIHH")
_LOCAL_MAGIC = b"PK\x03\x04"
# The local extra field has another length than the central one and comes before the data; this much is
# asked for with the data, so that a second request is rare.
_LOCAL_EXTRA = 1024
_FLAG_ENCRYPTED = 0x1


class WheelInvalid(Unproved):
    """The file is no zip, or a member of it is not what its table says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """What one member, and the table, may cost.

    ``member`` and ``table`` in bytes; ``ratio`` is uncompressed by compressed length, looked at only from
    ``ratio_from`` bytes on (deflate itself cannot pass about 1030).
    """

    member: int = 2 * 1024**3
    table: int = 64 * 1024**2
    ratio: int = 400
    ratio_from: int = 16 * 1024**2


class WheelSource(Protocol):
    """A wheel of which members can be read."""

    @property
    def size(self) -> int:
        """Length of the wheel in bytes."""

    def member_names(self) -> tuple[str, ...]:
        """Every file in the wheel, in the zip's order."""

    def member_size(self, name: str) -> int:
        """Uncompressed length of ``name`` as declared."""

    def compressed_size(self, name: str) -> int:
        """How many bytes of the wheel reading ``name`` costs."""

    def read_member(self, name: str) -> bytes:
        """The contents of ``name``."""

    def read_buffer(self, name: str) -> bytearray:
        """The contents of ``name`` without a second copy."""


class ZipWheel:
    """A wheel over any :class:`~qresolve.wheels.ranges.RangeSource`.

    Raises:
        WheelInvalid: no zip, a table that is too large, a name that escapes or stands there twice.
    """

    def __init__(self, source: RangeSource, *, limits: ReadLimits | None = None) -> None:
        self._source = source
        self._limits = limits or ReadLimits()
        self.size = source.size
        try:
            with zipfile.ZipFile(cast("IO[bytes]", _TableFile(source, most=self._limits.table))) as archive:
                self._table_start = archive.start_dir
                infos = archive.infolist()
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error) as error:
            raise WheelInvalid(f"not a readable zip: {error}") from error
        self._members: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            check_member_name(info.orig_filename)
            if info.orig_filename in self._members:
                raise WheelInvalid(f"the name {info.orig_filename!r} stands twice in the zip")
            self._members[info.orig_filename] = info

    def member_names(self) -> tuple[str, ...]:
        """Every file in the wheel, folders left out, in the zip's order."""
        return tuple(name for name in self._members if not name.endswith("/"))

    def member_size(self, name: str) -> int:
        """Uncompressed length as the table declares it.

        Raises:
            WheelInvalid: no such member.
        """
        return self._info(name).file_size

    def compressed_size(self, name: str) -> int:
        """How many bytes of the wheel reading ``name`` costs.

        Raises:
            WheelInvalid: no such member.
        """
        return self._info(name).compress_size

    def read_member(self, name: str) -> bytes:
        """The contents of ``name``, checked against the declared length and CRC.

        Raises:
            WheelInvalid: no such member, a limit is passed, or the data is not what the table says.
        """
        return bytes(self.read_buffer(name))

    def read_buffer(self, name: str) -> bytearray:
        """As :meth:`read_member`, without a second copy of what may be a gigabyte.

        Raises:
            WheelInvalid: as there.
        """
        info = self._info(name)
        self._check_limits(info)
        output = bytearray()
        for piece in _inflate(self._stored(info), info):
            if len(output) + len(piece) > info.file_size:
                raise WheelInvalid(f"{name}: longer than the {info.file_size} bytes declared")
            output += piece
        if len(output) != info.file_size:
            raise WheelInvalid(f"{name}: {len(output)} bytes instead of the {info.file_size} declared")
        if zlib.crc32(output) != info.CRC:
            raise WheelInvalid(f"{name}: the checksum is wrong")
        return output

    def _info(self, name: str) -> zipfile.ZipInfo:
        try:
            return self._members[name]
        except KeyError:
            raise WheelInvalid(f"no member {name!r} in the wheel") from None

    def _check_limits(self, info: zipfile.ZipInfo) -> None:
        name, limits = info.orig_filename, self._limits
        if info.flag_bits & _FLAG_ENCRYPTED:
            raise WheelInvalid(f"{name}: is encrypted")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise WheelInvalid(f"{name}: compression method {info.compress_type} is not read")
        if info.file_size > limits.member:
            raise WheelInvalid(f"{name}: {info.file_size} bytes pass the limit of {limits.member}")
        if info.file_size >= limits.ratio_from and info.file_size > limits.ratio * max(1, info.compress_size):
            raise WheelInvalid(f"{name}: {info.compress_size} bytes would grow to {info.file_size}")

    def _stored(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        """The member's data as stored, in pieces, in one request where the local header is as usual."""
        name = info.orig_filename
        start = info.header_offset
        guess = _LOCAL_HEADER.size + len(name.encode()) + _LOCAL_EXTRA + info.compress_size
        stop = min(start + guess, self._table_start)
        pieces = self._source.stream(start, max(start, stop))
        head = b""
        while len(head) < _LOCAL_HEADER.size:
            piece = next(pieces, b"")
            if not piece:
                raise WheelInvalid(f"{name}: its header is cut off")
            head += piece
        fields = _LOCAL_HEADER.unpack_from(head)
        if fields[0] != _LOCAL_MAGIC:
            raise WheelInvalid(f"{name}: no member starts at byte {start}")
        skip = _LOCAL_HEADER.size + fields[9] + fields[10]
        end = start + skip + info.compress_size
        if end > self._table_start:
            raise WheelInvalid(f"{name}: its data would run into the table")
        yield from _window(_chain(head, pieces), skip, info.compress_size)
        if end > stop:
            yield from self._source.stream(max(stop, start + skip), end)


def open_local_wheel(path: Path, *, limits: ReadLimits | None = None) -> ZipWheel:
    """The wheel file at ``path``.

    Raises:
        WheelInvalid: it cannot be read as a zip.
    """
    try:
        return ZipWheel(LocalRanges(path), limits=limits)
    except OSError as error:
        raise WheelInvalid(f"{path.name}: {error.strerror or error}") from error


def check_member_name(name: str) -> None:
    """Refuse a name that could point outside the folder the wheel is laid in.

    Raises:
        WheelInvalid: absolute, with a drive, a backslash, a control character, or a `.` or `..` part.
    """
    parts = name.removesuffix("/").split("/")
    bad_character = any(character in "\\:" or ord(character) < 32 for character in name)
    if bad_character or any(part in ("", ".", "..") for part in parts):
        raise WheelInvalid(f"the name {name!r} may leave the folder")


def _chain(head: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    yield from rest


def _window(pieces: Iterator[bytes], skip: int, length: int) -> Iterator[bytes]:
    """``length`` bytes after the first ``skip``, or fewer where the pieces end."""
    for piece in pieces:
        if skip >= len(piece):
            skip -= len(piece)
            continue
        wanted = piece[skip : skip + length]
        skip = 0
        length -= len(wanted)
        yield wanted


def _inflate(pieces: Iterator[bytes], info: zipfile.ZipInfo) -> Iterator[bytes]:
    if info.compress_type == zipfile.ZIP_STORED:
        yield from pieces
        return
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for piece in pieces:
            pending = piece
            while pending:
                # A bound on each step: a bomb is seen before it has grown past what was declared.
                yield inflater.decompress(pending, 4 * 1024 * 1024)
                pending = inflater.unconsumed_tail
        yield inflater.flush()
    except zlib.error as error:
        raise WheelInvalid(f"{info.orig_filename}: {error}") from error
    if not inflater.eof:
        raise WheelInvalid(f"{info.orig_filename}: the compressed data is cut off")


class _TableFile:
    """The view of a source that ``zipfile`` needs to read the table, with a bound on what it may read.

    No ``io.RawIOBase``: its ``read`` makes room for whatever length the zip claims before it asks.
    """

    def __init__(self, source: RangeSource, *, most: int) -> None:
        self._source = source
        self._most = most
        self._position = 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._source.size}[whence]
        if base + offset < 0:
            raise OSError("seek before the start")
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        start = min(self._position, self._source.size)
        stop = self._source.size if size < 0 else min(start + size, self._source.size)
        if stop - start > self._most:
            raise OSError(f"the table of members is larger than {self._most} bytes")
        data = b"".join(self._source.stream(start, stop))
        self._position = start + len(data)
        return data
