"""No step from https to plain http: what is read there could be anyone's."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from qresolve.closure.indexes import redact_url
from qresolve.errors import NoResolution

if TYPE_CHECKING:
    from collections.abc import Iterator


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


@contextmanager
def no_downgrade() -> Iterator[None]:
    """A redirect that the HTTP client refused is no resolution, instead of an answer that could not be had.

    Raises:
        InsecureRedirect: the client was led from https to plain http.
    """
    from qresolve.http.failures import DowngradeRefused  # noqa: PLC0415

    try:
        yield
    except DowngradeRefused as refused:
        raise InsecureRedirect(refused.message, hint=refused.hint) from refused
