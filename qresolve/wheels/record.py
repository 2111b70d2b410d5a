r"""One digest for what a wheel installs, from its RECORD, and the same digest taken from an environment.

A lock pins a wheel by the sha256 of the file, which is gone after installing. RECORD's rows survive, so
their digest tells whether the files in an environment are those of exactly that wheel: another build of
the same version has other rows.

The digest is the sha256 over the lines ``path,sha256=<base64>,<size>\n``, sorted by their bytes. Left out
on both sides is what an installer writes, moves or rewrites:

* rows without a hash (RECORD itself, its signatures), byte code in ``__pycache__``;
* ``INSTALLER``, ``REQUESTED``, ``direct_url.json``, ``uv_cache.json``, ``uv_build.json`` of the dist-info;
* the ``.data`` folder's ``scripts`` (their first line is rewritten), ``headers`` and ``data`` (they leave
  site-packages), and after installing every path outside site-packages: console scripts live there.

``purelib`` and ``platlib`` of a ``.data`` folder are laid into site-packages itself and are counted there.
So a changed console script or header is not seen by this digest; a changed module or library is.
"""

from __future__ import annotations

import base64
import csv
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qresolve.errors import Unproved

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_INSTALLER_FILES = frozenset(
    {
        "INSTALLER",
        "RECORD",
        "RECORD.jws",
        "RECORD.p7s",
        "REQUESTED",
        "direct_url.json",
        "uv_build.json",
        "uv_cache.json",
    }
)
_LAID_INTO_SITE_PACKAGES = ("purelib", "platlib")
_CHUNK = 1024 * 1024


class RecordInvalid(Unproved):
    """A RECORD that cannot be read, or that uses another hash than sha256."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class RecordRow:
    """One file: path from site-packages with `/`, sha256 as unpadded URL-safe base64, size in bytes."""

    path: str
    sha256: str
    size: int

    @property
    def line(self) -> str:
        """The row as it goes into the digest."""
        return f"{self.path},sha256={self.sha256},{self.size}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordComparison:
    """Whether an environment holds the files of one wheel.

    ``changed``: the file is there with other contents. ``missing``: it is not there. ``extra``: installed
    for this package, but not in the wheel; known only where the wheel's own RECORD is at hand. With all
    three empty and ``same`` false, the files are whole but another build's.
    """

    same: bool
    digest: str
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()


def parse_record(text: str) -> tuple[RecordRow, ...]:
    """The rows of RECORD that count, by path, in the place they have after installing.

    Raises:
        RecordInvalid: a row has not three fields, another hash than sha256, no size, or stands twice.
    """
    rows: dict[str, RecordRow] = {}
    for number, fields in enumerate(csv.reader(text.splitlines()), start=1):
        if not fields:
            continue
        if len(fields) != 3:
            raise RecordInvalid(f"RECORD line {number}: {len(fields)} fields instead of 3")
        path = counted_path(fields[0])
        if path is None or not fields[1]:
            continue
        algorithm, separator, value = fields[1].partition("=")
        if algorithm != "sha256" or not separator:
            raise RecordInvalid(f"RECORD line {number}: the hash of {path} is {algorithm}, not sha256")
        if not fields[2].isdecimal():
            raise RecordInvalid(f"RECORD line {number}: {path} has no size")
        if path in rows:
            raise RecordInvalid(f"RECORD line {number}: {path} stands twice")
        digest = value.rstrip("=").translate(str.maketrans("+/", "-_"))
        rows[path] = RecordRow(path=path, sha256=digest, size=int(fields[2]))
    return tuple(sorted(rows.values()))


def counted_path(path: str) -> str | None:
    """Where ``path`` of a RECORD is after installing, or None where it does not count (see the module)."""
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or "__pycache__" in parts:
        return None
    if len(parts) == 2 and parts[0].endswith(".dist-info") and parts[1] in _INSTALLER_FILES:
        return None
    if parts[0].endswith(".data") and len(parts) > 2:
        return "/".join(parts[2:]) if parts[1] in _LAID_INTO_SITE_PACKAGES else None
    return path


def record_digest(rows: Iterable[RecordRow]) -> str:
    """``sha256:<hex>`` over the rows, whatever their order."""
    digest = hashlib.sha256()
    for line in sorted(row.line.encode() for row in rows):
        digest.update(line)
    return f"sha256:{digest.hexdigest()}"


def read_installed_rows(
    site_packages: Path, dist_info: Path
) -> tuple[tuple[RecordRow, ...], tuple[str, ...], tuple[str, ...]]:
    """Hash the files that an installed RECORD lists: rows as they are now, changed paths, missing paths.

    Raises:
        RecordInvalid: RECORD is not there or cannot be read.
    """
    try:
        text = (dist_info / "RECORD").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordInvalid(f"{dist_info.name}/RECORD cannot be read: {error}") from error
    rows, changed, missing = [], [], []
    for listed in parse_record(text):
        found = _read_row(site_packages, listed.path)
        if found is None:
            missing.append(listed.path)
            continue
        rows.append(found)
        if found != listed:
            changed.append(listed.path)
    return tuple(rows), tuple(changed), tuple(missing)


def read_comparison(
    expected_digest: str, *, site_packages: Path, dist_info: Path, wheel_record: str | None = None
) -> RecordComparison:
    """Compare an installed package with the wheel whose :func:`record_digest` is ``expected_digest``.

    With ``wheel_record`` (that wheel's RECORD text) the files are named against the wheel, so that a file
    of another build is named too; without it, against the installed RECORD.

    Raises:
        RecordInvalid: the installed RECORD, or ``wheel_record``, cannot be read.
    """
    rows, changed, missing = read_installed_rows(site_packages, dist_info)
    digest = record_digest(rows)
    extra: tuple[str, ...] = ()
    if wheel_record is not None:
        expected = {row.path: row for row in parse_record(wheel_record)}
        present = {row.path: row for row in rows}
        changed = tuple(path for path, row in expected.items() if present.get(path, row) != row)
        missing = tuple(path for path in expected if path not in present)
        extra = tuple(path for path in present if path not in expected)
    return RecordComparison(
        same=digest == expected_digest and not missing,
        digest=digest,
        changed=changed,
        missing=missing,
        extra=extra,
    )


def read_sha256(path: Path) -> str:
    """The sha256 of a whole file, in hexadecimal.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def encode_digest(digest: bytes) -> str:
    """A digest as RECORD writes it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _read_row(site_packages: Path, path: str) -> RecordRow | None:
    digest, size = hashlib.sha256(), 0
    try:
        with (site_packages / path).open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise RecordInvalid(f"{path} cannot be read: {error.strerror or error}") from error
    return RecordRow(path=path, sha256=encode_digest(digest.digest()), size=size)
