"""METADATA of a wheel on an index: the file beside it, or that member of the wheel by byte ranges.

It is kept by the wheel's sha256, so that an offline lock needs no request and has the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from qresolve.closure.redirects import no_downgrade
from qresolve.http.cache import kept_folder, write_kept

if TYPE_CHECKING:
    from qresolve.http.client import HttpClient
    from qresolve.lock.model import LockedWheel

_MOST = 4 * 1024 * 1024  # bytes
_OK = 200


def read_wheel_metadata(wheel: LockedWheel, client: HttpClient) -> str | None:
    """The text of METADATA; None where it cannot be had without the whole wheel, or without the network.

    Raises:
        InsecureRedirect: the server leads from https to plain http.
    """
    kept = kept_folder("metadata") / wheel.sha256
    try:
        return kept.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        pass
    if client.settings.offline or urlsplit(wheel.url).scheme not in ("http", "https"):
        return None
    with no_downgrade():
        found = _fetch(wheel.url, client)
    if found is not None:
        write_kept(kept, found)
    return found


def _fetch(url: str, client: HttpClient) -> str | None:
    from qresolve.errors import Unproved  # noqa: PLC0415
    from qresolve.http.failures import DowngradeRefused  # noqa: PLC0415
    from qresolve.wheels.ranges import HttpRanges  # noqa: PLC0415
    from qresolve.wheels.remote import ZipWheel  # noqa: PLC0415

    try:
        beside = client.read(f"{url}.metadata", most=_MOST)
        if beside.status == _OK:
            return beside.body.decode("utf-8", "replace")
        archive = ZipWheel(HttpRanges(client, url))
        names = [name for name in archive.member_names() if name.endswith(".dist-info/METADATA")]
        return archive.read_member(names[0]).decode("utf-8", "replace") if len(names) == 1 else None
    except DowngradeRefused:
        raise
    except Unproved:
        return None
