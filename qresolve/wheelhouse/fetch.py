"""One file of a wheelhouse: there already, continued, or fetched; under its own name only when it is whole and right.

What has come so far lies in ``.FILENAME.SHA256.part``, so that another run goes on there, and a file of the same name
and other contents never does.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from qresolve.errors import InstallFailed, Refuted
from qresolve.http.failures import HttpFailed
from qresolve.wheels.record import read_sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from qresolve.http.client import HttpClient
    from qresolve.wheelhouse.plan import Download

_CHUNK = 1024 * 1024
_OK, _PARTIAL, _NOT_SATISFIABLE = 200, 206, 416
_RANGE = re.compile(r"bytes (?P<first>\d+)-\d+/(?:\d+|\*)")


def part_of(folder: Path, download: Download) -> Path:
    """Where the beginning of a file lies."""
    return folder / f".{download.filename}.{download.sha256[:16]}.part"


def is_there(folder: Path, download: Download) -> bool:
    """Whether the file is there, whole and right."""
    path = folder / download.filename
    return path.is_file() and read_sha256(path) == download.sha256


def fetch(client: HttpClient, folder: Path, download: Download, progress: Callable[[int], None]) -> bool:
    """Bring one file; whether anything had to be fetched. ``progress`` is told how many further bytes came.

    Raises:
        InstallFailed: it does not come, or cannot be written.
        Refuted: what came is not the locked file.
    """
    try:
        if is_there(folder, download):
            progress(download.size or 0)
            return False
        part = part_of(folder, download)
        if urlsplit(download.url).scheme == "file":
            _write(part, _copied(download), start=0, progress=progress)
        else:
            _download(client, part, download, progress)
        _take(part, folder / download.filename, download)
    except HttpFailed as error:
        raise InstallFailed(f"{download.filename}: {error.message}", hint=error.hint) from error
    except OSError as error:
        raise InstallFailed(f"{download.filename}: {error.strerror or error}") from error
    return True


def _copied(download: Download) -> Iterator[bytes]:
    with open(unquote(urlsplit(download.url).path), "rb") as file:  # noqa: PTH123 - an absolute path of a file: address
        while chunk := file.read(_CHUNK):
            yield chunk


def _download(client: HttpClient, part: Path, download: Download, progress: Callable[[int], None]) -> None:
    start = part.stat().st_size if part.is_file() else 0
    if download.size is not None and start > download.size:
        start = 0
    if start and start == download.size:
        progress(start)
        return
    headers = {"Range": f"bytes={start}-"} if start else {}
    with client.get(download.url, headers) as answer:
        if start and answer.status == _PARTIAL:
            found = _RANGE.fullmatch(answer.headers.get("content-range", ""))
            if found is None or int(found["first"]) != start:
                raise InstallFailed(f"{download.filename}: the server sent another part than the one asked for")
            progress(start)
            _write(part, answer.chunks, start=start, progress=progress)
            return
        if answer.status == _OK:
            _write(part, answer.chunks, start=0, progress=progress)
            return
    if start and answer.status == _NOT_SATISFIABLE:
        part.unlink()
        _download(client, part, download, progress)
        return
    raise InstallFailed(f"{download.filename}: HTTP {answer.status}")


def _write(part: Path, chunks: Iterator[bytes], *, start: int, progress: Callable[[int], None]) -> None:
    with part.open("r+b" if start else "wb") as file:
        file.seek(start)
        for chunk in chunks:
            file.write(chunk)
            progress(len(chunk))
        file.flush()
        os.fsync(file.fileno())


def _take(part: Path, place: Path, download: Download) -> None:
    """Give a whole file its name.

    Raises:
        Refuted: it is another file; it is not kept, as going on with it would never end well.
    """
    size, digest = part.stat().st_size, read_sha256(part)
    if digest != download.sha256:
        part.unlink()
        expected = "" if download.size in (None, size) else f" and {download.size} bytes"
        raise Refuted(
            f"{download.filename}: {size} bytes with sha256 {digest} came, and {download.sha256}{expected} is locked",
            hint="qresolve lock --help",
        )
    part.replace(place)
