"""METADATA of a wheel on an index: the file beside it, or that member of the wheel by byte ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from qresolve.closure.credentials import authenticated_url
from qresolve.closure.redirects import refuse_downgrade

if TYPE_CHECKING:
    from qresolve.closure.indexes import UserIndexes
    from qresolve.lock.model import LockedWheel

_MOST = 4 * 1024 * 1024  # bytes


def read_wheel_metadata(wheel: LockedWheel, indexes: UserIndexes, *, timeout: float = 15.0) -> str | None:
    """The text of METADATA; None where it cannot be had without the whole wheel."""
    import httpx  # noqa: PLC0415 - rarely needed

    from qresolve.errors import Unproved  # noqa: PLC0415
    from qresolve.wheels.ranges import HttpRanges, HttpxTransport  # noqa: PLC0415
    from qresolve.wheels.remote import ZipWheel  # noqa: PLC0415

    url = authenticated_url(wheel.url, indexes)
    if urlsplit(url).scheme not in ("http", "https"):
        return None
    with httpx.Client(timeout=timeout, follow_redirects=True, event_hooks={"response": [refuse_downgrade]}) as client:
        try:
            beside = client.get(f"{url}.metadata")
            if beside.status_code == httpx.codes.OK and len(beside.content) <= _MOST:
                return beside.text
            archive = ZipWheel(HttpRanges(HttpxTransport(client), url))
            names = [name for name in archive.member_names() if name.endswith(".dist-info/METADATA")]
            return archive.read_member(names[0]).decode("utf-8", "replace") if len(names) == 1 else None
        except (httpx.HTTPError, httpx.InvalidURL, Unproved):
            return None
