"""What was fetched, kept in the user's cache folder.

An entry is one file that appears whole or not at all: written beside its place and moved there, so that a crash, a
full disk or two processes at once leave the old entry, the new one or none. Its digest is in its first line; an entry
whose bytes do not match is dropped. A cache that cannot be written is no error: what it would hold is fetched again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_FORMAT = 1
_MOST = 512 * 1024 * 1024  # bytes of all entries; the least recently used go first
_ROOM = 0.8  # the share of that which is left after clearing, so that not every write clears again
_LARGEST_LINE = 64 * 1024
_ABANDONED = 3600.0  # seconds after which a file that is still being written belongs to a process that ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is kept: bytes, short texts beside them, and the moment it was fetched (seconds since the epoch)."""

    body: bytes = field(repr=False)
    notes: Mapping[str, str] = field(default_factory=dict)
    moment: float = 0.0


class Cache:
    """Entries by kind and key. Safe to use from several threads and processes.

    ``most`` bounds the bytes of all entries; ``now`` is the clock.
    """

    def __init__(self, folder: Path, *, most: int = _MOST, now: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self._most = most
        self._now = now
        self._written = 0

    def read(self, kind: str, key: str) -> Entry | None:
        """The entry, or None: not there, not readable, or damaged (then it is dropped)."""
        path = self._path(kind, key)
        try:
            with path.open("rb") as file:
                head = file.readline(_LARGEST_LINE)
                body = file.read()
        except OSError:
            return None
        entry = parse_entry(head, body, key=key)
        with contextlib.suppress(OSError):
            if entry is None:
                path.unlink()
            else:
                os.utime(path, (self._now(), self._now()))  # read lately: among the last to go
        return entry

    def write(self, kind: str, key: str, body: bytes, notes: Mapping[str, str] | None = None) -> None:
        """Keep ``body`` in place of what was kept under ``key``."""
        path = self._path(kind, key)
        content = entry_text(Entry(body=body, notes=notes or {}, moment=self._now()), key=key)
        if len(content) > self._most:
            return
        beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with beside.open("xb") as file:
                file.write(content)
            os.utime(beside, (self._now(), self._now()))
            beside.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink()
            return
        self._written += len(content)
        if self._written > self._most * (1 - _ROOM):
            self._written = 0
            self.clear_to_size()

    def drop(self, kind: str, key: str) -> None:
        """Forget an entry."""
        with contextlib.suppress(OSError):
            self._path(kind, key).unlink()

    def clear_to_size(self) -> None:
        """Drop what is abandoned and, while all is more than the bound, what was not used for longest.

        Where another process is at it already, nothing is done.
        """
        import filelock  # noqa: PLC0415

        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with filelock.FileLock(self.folder / "clearing.lock", timeout=0):
                self._clear()
        except (OSError, filelock.Timeout):
            return

    def _clear(self) -> None:
        found: list[tuple[float, int, Path]] = []
        for path in self._files():
            try:
                known = path.stat()
            except OSError:
                continue
            if path.name.startswith("."):
                if self._now() - known.st_mtime > _ABANDONED:
                    with contextlib.suppress(OSError):
                        path.unlink()
                continue
            found.append((known.st_mtime, known.st_size, path))
        total = sum(size for _, size, _ in found)
        if total <= self._most:
            return
        for _, size, path in sorted(found):
            if total <= self._most * _ROOM:
                return
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size

    def _files(self) -> Iterator[Path]:
        # Three levels, all ours: kind, first two digits, entry.
        for path in self.folder.glob("entries/*/*/*"):
            if path.is_file():
                yield path

    def _path(self, kind: str, key: str) -> Path:
        digest = hashlib.sha256(key.encode()).hexdigest()
        return self.folder / "entries" / kind / digest[:2] / digest


def entry_text(entry: Entry, *, key: str) -> bytes:
    """An entry as it lies on the disk: a line of JSON with its digest, then the body."""
    facts = {"notes": dict(entry.notes), "moment": entry.moment, "key": key}
    line = {"format": _FORMAT, **facts, "digest": _digest(facts, entry.body)}
    return json.dumps(line, sort_keys=True).encode() + b"\n" + entry.body


def parse_entry(head: bytes, body: bytes, *, key: str) -> Entry | None:
    """The entry in ``head`` (its first line) and ``body``; None where they do not belong together or to ``key``."""
    try:
        line = json.loads(head)
        facts = {"notes": line["notes"], "moment": line["moment"], "key": line["key"]}
        known = line["format"] == _FORMAT and line["key"] == key and line["digest"] == _digest(facts, body)
        return Entry(body=body, notes=facts["notes"], moment=float(facts["moment"])) if known else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _digest(facts: Mapping[str, object], body: bytes) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode() + b"\n" + body).hexdigest()


def cache_folder(environ: Mapping[str, str], home: Path) -> Path:
    """``QRESOLVE_CACHE_DIR``, else the folder ``qresolve`` in the user's cache."""
    if chosen := environ.get("QRESOLVE_CACHE_DIR"):
        return Path(chosen).absolute()
    shared = environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared and Path(shared).is_absolute() else home / ".cache") / "qresolve"


def kept_folder(name: str) -> Path:
    """Where entries of one kind lie that are single files with names of their own, by the sha256 of a wheel."""
    return cache_folder(os.environ, Path.home()) / name


def write_kept(path: Path, text: str) -> None:
    """Write such an entry whole or not at all; a cache that cannot be written is no error."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()


def open_cache() -> Cache:
    """The cache of this user."""
    return Cache(cache_folder(os.environ, Path.home()))
