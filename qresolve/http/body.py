"""The body of one answer, across the breaks of the line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from qresolve.closure.indexes import redact_url
from qresolve.http.failures import HttpFailed, reason_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import httpx

_ENOUGH_PROGRESS = 1024 * 1024  # bytes after which a break counts as the first one again
_PARTIAL_CONTENT = 206
_OK = 200
_CONTENT_RANGE = re.compile(r"\Abytes (?P<first>\d+)-(?P<last>\d+)/(?P<size>\d+|\*)\Z")


class ResumedBody:
    """A body that goes on after a break: the rest is asked for by range, and must be of the same file.

    ``send`` gets the answer to a GET with these headers, ``close`` ends one, ``pause`` waits before the next attempt
    or raises; it is told the failure and whether enough came since the last one.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        send: Callable[[Mapping[str, str]], httpx.Response],
        close: Callable[[httpx.Response], None],
        pause: Callable[[Exception, bool], None],
    ) -> None:
        self._url, self._asked = url, dict(headers)
        self._send, self._close, self._pause = send, close, pause
        self.answer = send(headers)
        self.headers = lowered(self.answer.headers)
        self._position, self._stop, self._size = extent(self.answer.status_code, self.headers)
        self._since_break = 0

    def pieces(self) -> Iterator[bytes]:
        """The pieces of the body, across breaks."""
        import httpx  # noqa: PLC0415

        while True:
            try:
                for chunk in self.answer.iter_raw():
                    if self._position is not None:
                        self._position += len(chunk)
                    self._since_break += len(chunk)
                    yield chunk
            except httpx.TransportError as error:
                self._resume(error)
                continue
            return

    def close(self) -> None:
        """End the answer that is open."""
        self._close(self.answer)

    def _resume(self, reason: Exception) -> None:
        shown = redact_url(self._url)
        self.close()
        if self._position is None or self._position == self._stop:
            raise HttpFailed(f"{shown}: {reason_words(reason)}") from reason
        moved = self._since_break >= _ENOUGH_PROGRESS
        self._since_break = 0
        self._pause(reason, moved)
        last = "" if self._stop is None else str(self._stop - 1)
        headers = {**self._asked, "Range": f"bytes={self._position}-{last}"}
        tag = self.headers.get("etag", "")
        if tag.startswith('"'):  # a weak one must not be used here (RFC 9110, 13.1.5)
            headers["If-Range"] = tag
        self.answer = self._send(headers)
        now = lowered(self.answer.headers)
        position, stop, size = extent(self.answer.status_code, now)
        same = self.answer.status_code == _PARTIAL_CONTENT and position == self._position and now.get("etag", "") == tag
        if not same or (self._stop is not None and stop != self._stop) or (self._size or size) != size:
            raise HttpFailed(f"{shown}: broke off after {self._position} bytes, and the rest cannot be had") from reason
        self._stop, self._size = stop, size


def extent(status: int, headers: Mapping[str, str]) -> tuple[int | None, int | None, int | None]:
    """Of an answer's body: offset in the file of its first byte, of its end, and the file's size, where known."""
    if headers.get("content-encoding", "identity") != "identity":
        return None, None, None
    match = _CONTENT_RANGE.match(headers.get("content-range", ""))
    if status == _PARTIAL_CONTENT and match is not None:
        size = None if match["size"] == "*" else int(match["size"])
        return int(match["first"]), int(match["last"]) + 1, size
    if status == _OK:
        length = headers.get("content-length", "")
        size = int(length) if length.isascii() and length.isdigit() else None
        return 0, size, size
    return None, None, None


def lowered(headers: Mapping[str, str]) -> dict[str, str]:
    """``headers`` with their names in lower case."""
    return {name.lower(): value for name, value in headers.items()}
