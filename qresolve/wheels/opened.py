"""A wheel that the wheel index does not know, opened when it is locked: user-built, or of another index.

Its kernels are what is read in it, not what its name says. What was read is kept by the wheel's sha256, so that the
same lock made again, or offline, has the same bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from qresolve.errors import QResolveError, Refuted, Unproved
from qresolve.http.cache import write_kept
from qresolve.wheels.index_rows import WheelRow
from qresolve.wheels.index_text import dump_wheel_index, parse_wheel_index
from qresolve.wheels.measure import read_declared, read_measured
from qresolve.wheels.record import read_sha256

if TYPE_CHECKING:
    from collections.abc import Callable

    from qresolve.lock.model import LockedPackage
    from qresolve.wheels.remote import ZipWheel

_LIBRARIES = ("*.so", "*.so.*")
_MOST_COMPRESSED = 2 * 1024**3


def read_opened_row(
    package: LockedPackage, *, toolkit: str, open_remote: Callable[[str], ZipWheel] | None, cache: Path
) -> WheelRow | None:
    """The row of exactly this wheel; None where it cannot be opened (offline, or its server gives no ranges).

    ``toolkit`` is the metapackage whose pin is a claim about CUDA. ``open_remote`` opens an address; None: offline.

    Raises:
        Refuted: a local file whose sha256 is not the locked one.
        Unproved: it can be opened, and what is in it cannot be read.
    """
    wheel = package.wheel
    kept = cache / f"{wheel.sha256}.json"
    if (row := _kept_row(kept, package)) is not None:
        return row
    opened = _open(package, open_remote)
    if opened is None:
        return None
    row = WheelRow(
        filename=wheel.filename,
        name=package.name,
        version=package.version,
        size=opened.size,
        sha256=wheel.sha256,
        index=package.index,
        declared=read_declared(opened, toolkit=toolkit, upload_time=wheel.upload_time),
        measured=read_measured(opened, libraries=_LIBRARIES, most_compressed=_MOST_COMPRESSED),
    )
    write_kept(kept, dump_wheel_index(package.name, [row]))
    return row


def _open(package: LockedPackage, open_remote: Callable[[str], ZipWheel] | None) -> ZipWheel | None:
    from qresolve.wheels.ranges import RangesUnsupported  # noqa: PLC0415
    from qresolve.wheels.remote import open_local_wheel  # noqa: PLC0415

    parts = urlsplit(package.wheel.url)
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        try:
            found = read_sha256(path)
        except OSError as error:
            raise Unproved(f"{path.name}: {error.strerror or error}") from error
        if found != package.wheel.sha256:
            raise Refuted(f"{path.name} has sha256 {found}, and {package.wheel.sha256} is locked")
        return open_local_wheel(path)
    if open_remote is None:
        return None
    try:
        return open_remote(package.wheel.url)
    except RangesUnsupported:
        return None


def _kept_row(kept: Path, package: LockedPackage) -> WheelRow | None:
    """What was read before; an entry that does not read, or is of another wheel, counts as none."""
    try:
        rows = parse_wheel_index(kept.read_text(encoding="utf-8"), file=kept.name)
    except (OSError, UnicodeDecodeError, QResolveError):
        return None
    return rows[0] if len(rows) == 1 and rows[0].sha256 == package.wheel.sha256 else None
