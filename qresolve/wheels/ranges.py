"""Byte ranges of a file that is elsewhere: the seam between a zip reader and where the bytes are.

:class:`LocalRanges` reads a file here, :class:`HttpRanges` one behind HTTP. Who speaks HTTP is a port of
its own (:class:`Transport`): the HTTP client of a command, or pip's session in the generator of the wheel index.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from qresolve.errors import Unproved

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

# One request brings the end of the zip, for most wheels with the whole central directory and, as the
# metadata folder is written last, METADATA and RECORD.
_TAIL = 128 * 1024
_CHUNK = 1024 * 1024
_PARTIAL_CONTENT = 206
_CONTENT_RANGE = re.compile(r"\Abytes (?P<first>\d+)-(?P<last>\d+)/(?P<size>\d+)\Z")
# `Accept-Encoding: identity`: a range of a gzipped representation would be of no use. `no-cache` keeps
# caches from storing a part as if it were the whole.
_HEADERS = {"Accept-Encoding": "identity", "Cache-Control": "no-cache"}


class RangesUnsupported(Unproved):
    """The server does not give byte ranges of this file."""


class RangesInvalid(Unproved):
    """The answer to a range request is not the range, or the file changed between two requests."""


class RangeSource(Protocol):
    """A file of known size of which any part can be read."""

    @property
    def size(self) -> int:
        """Length of the file in bytes."""

    def stream(self, start: int, stop: int) -> Iterator[bytes]:
        """The bytes ``[start, stop)`` in pieces; together exactly ``stop - start`` bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeResponse:
    """An HTTP answer: status, headers by lower-case name, and the body in pieces, undecoded."""

    status: int
    headers: Mapping[str, str]
    chunks: Iterator[bytes]


class Transport(Protocol):
    """Whoever sends the GET."""

    def get(self, url: str, headers: Mapping[str, str]) -> AbstractContextManager[RangeResponse]:
        """Send a GET for ``url``; the body is read while the context is open."""


class LocalRanges:
    """A file on this machine; opened for each read, so that nothing has to be closed.

    Raises:
        OSError: there is no such file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.size = path.stat().st_size

    def stream(self, start: int, stop: int) -> Iterator[bytes]:
        """The bytes ``[start, stop)`` in pieces.

        Raises:
            RangesInvalid: the file is shorter than it was, or cannot be read.
        """
        _check_bounds(start, stop, self.size)
        left = stop - start
        try:
            with self._path.open("rb") as file:
                file.seek(start)
                while left:
                    chunk = file.read(min(left, _CHUNK))
                    if not chunk:
                        raise RangesInvalid(f"{self._path.name} ended {left} bytes early")
                    left -= len(chunk)
                    yield chunk
        except OSError as error:
            raise RangesInvalid(f"{self._path.name}: {error.strerror or error}") from error


class HttpRanges:
    """A file behind HTTP; the first request brings its size and its last bytes, which are kept."""

    def __init__(self, transport: Transport, url: str) -> None:
        self._transport = transport
        self._url = url
        self._tag: str | None = None
        self.size = -1
        self._tail = b"".join(self._request(f"bytes=-{_TAIL}"))
        self._tail_start = self.size - len(self._tail)

    def stream(self, start: int, stop: int) -> Iterator[bytes]:
        """The bytes ``[start, stop)`` in pieces.

        Raises:
            RangesUnsupported: the server sends the whole file instead, or refuses.
            RangesInvalid: it sends another range, too much, too little, or another file than before.
        """
        _check_bounds(start, stop, self.size)
        if start == stop:
            return
        if start >= self._tail_start:
            yield self._tail[start - self._tail_start : stop - self._tail_start]
            return
        yield from self._request(f"bytes={start}-{stop - 1}", expected=(start, stop))

    def _request(self, byte_range: str, *, expected: tuple[int, int] | None = None) -> Iterator[bytes]:
        shown = shown_url(self._url)
        with self._transport.get(self._url, {**_HEADERS, "Range": byte_range}) as answer:
            if answer.status != _PARTIAL_CONTENT:
                raise RangesUnsupported(f"{shown}: HTTP {answer.status} to a request for {byte_range}")
            match = _CONTENT_RANGE.match(answer.headers.get("content-range", ""))
            if match is None:
                raise RangesInvalid(f"{shown}: no usable Content-Range")
            if answer.headers.get("content-encoding", "identity") != "identity":
                raise RangesInvalid(f"{shown}: the range is content-encoded")
            first, stop, size = int(match["first"]), int(match["last"]) + 1, int(match["size"])
            tag = answer.headers.get("etag")
            if expected is None:
                self.size, self._tag = size, tag
                expected = (max(0, size - _TAIL), size)
            if size != self.size or tag != self._tag:
                raise RangesInvalid(f"{shown}: the file changed while it was read")
            if (first, stop) != expected:
                raise RangesInvalid(f"{shown}: got the range {first}-{stop - 1} instead of {byte_range}")
            left = stop - first
            for chunk in answer.chunks:
                if len(chunk) > left:
                    raise RangesInvalid(f"{shown}: more bytes came than Content-Range says")
                left -= len(chunk)
                yield chunk
            if left:
                raise RangesInvalid(f"{shown}: {left} bytes of the range did not come")


def _check_bounds(start: int, stop: int, size: int) -> None:
    if not 0 <= start <= stop <= size:
        raise RangesInvalid(f"the range {start}-{stop} is outside a file of {size} bytes")


def shown_url(url: str) -> str:
    """The last part of ``url``: messages name the file, never a host, a query or credentials."""
    return url.split("?", 1)[0].split("#", 1)[0].rsplit("/", 1)[-1]
