"""No step from https to plain http: what is read there could be anyone's."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from qresolve.closure.indexes import redact_url
from qresolve.errors import NoResolution

if TYPE_CHECKING:
    import httpx


class InsecureRedirect(NoResolution):
    """An index led from https to an address without encryption."""


def check_downgrade(came_from: str, leads_to: str) -> None:
    """Refuse the step from ``came_from`` to ``leads_to``, a redirect's or a link's address (may be relative).

    Raises:
        InsecureRedirect: the first is https and the second is not.
    """
    target = urljoin(came_from, leads_to)
    if urlsplit(came_from).scheme == "https" and urlsplit(target).scheme != "https":
        raise InsecureRedirect(
            f"{redact_url(came_from)} leads to {redact_url(target)}, which is not encrypted",
            hint=f"curl --head {redact_url(came_from)}",
        )


def refuse_downgrade(response: httpx.Response) -> None:
    """A response hook of an httpx client: :func:`check_downgrade` for each redirect, before it is followed."""
    if response.has_redirect_location:
        check_downgrade(str(response.url), response.headers["location"])
