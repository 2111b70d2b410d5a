"""Closures that were found before: with a cutoff in the past the same request has the same answer, without asking.

An index only ever gains files, each with its time, so what was resolved up to a moment that had passed by then does not
change. Yanking and deleting are the exceptions: what is gone is noticed when the wheels are fetched. Where a package
came from an index that gives no times, or from a folder, no cutoff holds for it, and the closure is not kept.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from qresolve.closure.indexes import redact_url
from qresolve.closure.request import Closure
from qresolve.closure.uv import parse_cutoff
from qresolve.lock.model import LockedPackage, LockedWheel

if TYPE_CHECKING:
    from collections.abc import Callable

    from qresolve.closure.indexes import UserIndexes
    from qresolve.closure.request import ClosureRequest
    from qresolve.http.cache import Cache, Entry

_KIND = "closures"
_NEWER = "newer"


def cutoff_moment(cutoff: str) -> float:
    """The cutoff in seconds since the epoch.

    Raises:
        UsageError: neither a date nor a moment with its zone.
    """
    return datetime.fromisoformat(parse_cutoff(cutoff)).timestamp()


def closure_key(request: ClosureRequest, indexes: UserIndexes, *, versions: tuple[str, ...]) -> str | None:
    """The digest of all that a closure depends on; None where none may be kept.

    ``versions`` are those of the programs that resolve. Credentials are left out.
    """
    if request.cutoff is None or any(not index.url.startswith(("http://", "https://")) for index in indexes.indexes):
        return None
    asked = {key: value for key, value in asdict(request).items() if key not in ("offline", "timeout", "indexes")}
    named = [asdict(index) | {"url": redact_url(index.url)} for index in request.indexes]
    own = [[redact_url(index.url), index.default, index.explicit, list(index.options)] for index in indexes.indexes]
    text = json.dumps([asked, named, own, list(versions)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def keep_closures(
    close: Callable[[ClosureRequest], Closure],
    *,
    indexes: UserIndexes,
    cache: Cache,
    versions: tuple[str, ...],
    now: Callable[[], float],
) -> Callable[[ClosureRequest], Closure]:
    """``close``, which is asked only for what was not found before."""

    def closed(request: ClosureRequest) -> Closure:
        key = closure_key(request, indexes, versions=versions)
        if key is None or request.cutoff is None:
            return close(request)
        passed = cutoff_moment(request.cutoff)
        entry = cache.read(_KIND, key)
        if entry is not None and entry.moment >= passed and (found := _parse(entry)) is not None:
            return found
        closure = close(request)
        untimed = {index.name for index in request.indexes if not index.upload_times}
        # Without the network uv may have known less than there was.
        whole = not (request.offline or indexes.offline)
        if whole and now() >= passed and not any(package.index in untimed for package in closure.packages):
            cache.write(_KIND, key, json.dumps(_values(closure)).encode())
        return closure

    return closed


def keep_newer(
    newer: Callable[[str, str], str | None], *, cutoff: str | None, cache: Cache, now: Callable[[], float]
) -> Callable[[str, str], str | None]:
    """``newer`` (the newest release after a known one), asked once for a cutoff that has passed."""
    if cutoff is None:
        return newer
    passed = cutoff_moment(cutoff)

    def asked(project: str, known: str) -> str | None:
        key = f"{project} {known} {cutoff}"
        entry = cache.read(_NEWER, key)
        if entry is not None and entry.moment >= passed:
            return entry.body.decode() or None
        found = newer(project, known)
        if now() >= passed:
            cache.write(_NEWER, key, (found or "").encode())
        return found

    return asked


def _values(closure: Closure) -> dict[str, Any]:
    return {
        "packages": [asdict(package) for package in closure.packages],
        "toolkit": closure.toolkit,
        "notes": list(closure.notes),
    }


def _parse(entry: Entry) -> Closure | None:
    """What was kept; None where another version of this program wrote it otherwise."""
    try:
        values = json.loads(entry.body)
        return Closure(
            packages=tuple(
                LockedPackage(**{**package, "wheel": LockedWheel(**package["wheel"])}) for package in values["packages"]
            ),
            toolkit=values["toolkit"],
            notes=tuple(values["notes"]),
        )
    except (ValueError, TypeError, KeyError):
        return None
