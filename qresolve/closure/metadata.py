"""METADATA of a wheel on an index: the file beside it, or that member of the wheel by byte ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from qresolve.closure.indexes import credential_urls

if TYPE_CHECKING:
    from qresolve.closure.indexes import UserIndexes
    from qresolve.lock.model import LockedWheel

_MOST = 4 * 1024 * 1024  # bytes


def authenticated_url(url: str, indexes: UserIndexes) -> str:
    """``url`` with the credentials of an index on the same host, where it has none."""
    parts = urlsplit(url)
    for known in credential_urls(indexes):
        other = urlsplit(known)
        user, _, host = other.netloc.rpartition("@")
        if user and (other.scheme, host) == (parts.scheme, parts.netloc):
            return urlunsplit((parts.scheme, f"{user}@{host}", parts.path, parts.query, ""))
    return url


def read_wheel_metadata(wheel: LockedWheel, indexes: UserIndexes, *, timeout: float = 15.0) -> str | None:
    """The text of METADATA; None where it cannot be had without the whole wheel."""
    import httpx  # noqa: PLC0415 - rarely needed

    from qresolve.errors import Unproved  # noqa: PLC0415
    from qresolve.wheels.ranges import HttpRanges, HttpxTransport  # noqa: PLC0415
    from qresolve.wheels.remote import ZipWheel  # noqa: PLC0415

    url = authenticated_url(wheel.url, indexes)
    if urlsplit(url).scheme not in ("http", "https"):
        return None
    with httpx.Client(timeout=timeout, follow_redirects=True) as client:
        try:
            beside = client.get(f"{url}.metadata")
            if beside.status_code == httpx.codes.OK and len(beside.content) <= _MOST:
                return beside.text
            archive = ZipWheel(HttpRanges(HttpxTransport(client), url))
            names = [name for name in archive.member_names() if name.endswith(".dist-info/METADATA")]
            return archive.read_member(names[0]).decode("utf-8", "replace") if len(names) == 1 else None
        except (httpx.HTTPError, httpx.InvalidURL, Unproved):
            return None
