"""A closure that is of one piece: resolved, checked against what the indexes list, variant wheels put in.

Of gated packages, and of those bound to an index, the index's list of files is read once more: it says which variant
wheels there are, and whether the same file name stands for another file on another index.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from qresolve.closure.agreement import check_addresses, check_hashes, check_lane, check_pairs
from qresolve.closure.failure import ClosureFailure, FailureFacts
from qresolve.closure.indexes import redact_url, searched_urls
from qresolve.closure.lockstep import read_lockstep_rules
from qresolve.closure.simple import addresses_of, lists_wheel
from qresolve.closure.stand_ins import StandIns
from qresolve.closure.variant_wheels import with_variants
from qresolve.http.credentials import without_login
from qresolve.http.failures import HttpFailed
from qresolve.knowledge.indexes import read_indexes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from qresolve.closure.indexes import UserIndexes
    from qresolve.closure.request import Closure, ClosureRequest
    from qresolve.closure.simple import ProjectFile
    from qresolve.http.client import HttpClient
    from qresolve.lock.model import LockedPackage

_ROUNDS = 4  # a variant's requirements can bring in another package with variants, and so on
_FORBIDDEN = frozenset({401, 403})

Listings = dict[str, tuple["ProjectFile", ...]]


def run_checked_closure(
    request: ClosureRequest,
    indexes: UserIndexes,
    *,
    client: HttpClient,
    progress: Callable[[str], None] | None = None,
) -> Closure:
    """:func:`run_closure` with every check of this module, and the target's variant wheels.

    Raises:
        ClosureFailure: there is none, or what was found is not of one piece.
        InsecureRedirect: an index leads from https to plain http.
        UsageError: a requirement or the cutoff cannot be read.
    """
    metadata = {(name, version): requires for name, version, requires in request.metadata}
    with tempfile.TemporaryDirectory(prefix="qresolve-") as folder:
        stand_ins = StandIns(folder=Path(folder).resolve())
        for _ in range(_ROUNDS):
            known = dict(metadata)
            closure = stand_ins.resolve(request, indexes, client, progress=progress)
            closure = stand_ins.put_back(request, closure, client, metadata)
            check_lane(request, closure, read_indexes(), free=read_lockstep_rules().exceptions)
            check_pairs(closure, read_indexes())
            check_addresses(closure, searched_urls(indexes))
            listings, silent = _read_listings(request, closure, indexes, client, progress)
            _check_files(closure, listings)
            found = with_variants(request, closure, indexes, listings, client=client, metadata=metadata)
            _check_files(found, listings)
            if metadata == known:
                return replace(found, notes=(*found.notes, *silent))
            rows = tuple((name, version, requires) for (name, version), requires in sorted(metadata.items()))
            request = replace(request, metadata=rows)
    raise ClosureFailure(FailureFacts(reason="conflict", message="the variants' requirements do not come to an end"))


def _check_files(closure: Closure, listings: Mapping[str, Listings]) -> None:
    for package in closure.packages:
        check_hashes(package, listings.get(package.name, {}))


def _read_listings(
    request: ClosureRequest,
    closure: Closure,
    indexes: UserIndexes,
    client: HttpClient,
    progress: Callable[[str], None] | None,
) -> tuple[Mapping[str, Listings], tuple[str, ...]]:
    """What each index lists of the packages whose very files matter, and which index did not say; empty when offline.

    Raises:
        ClosureFailure: the index that a package came from may be one that did not say: its variants are not known.
    """
    from qresolve.closure.simple import Listing, read_listing  # noqa: PLC0415

    if client.settings.offline or request.offline:
        return {}, ()
    bound = {name for index in request.indexes for name in index.packages}
    wanted = [
        (package, address)
        for package in closure.packages
        if package.index != "direct" and (package.name in bound or package.name in request.gated)
        for address in addresses_of(package.name, request.indexes, indexes)
    ]
    if progress is not None and wanted:
        progress("comparing the indexes' lists of files")
    silent: dict[str, tuple[str, str]] = {}  # what was asked for, and what came of it
    refused: dict[str, str] = {}

    def read(asked: tuple[LockedPackage, str]) -> Listing:
        package, address = asked
        if address in silent:  # an index that cannot be reached is not waited for once more for each package
            return Listing(status=None)
        try:
            listing = read_listing(package.name, address, client)
        except HttpFailed as failed:
            silent[address] = (package.name, failed.message)
            return Listing(status=None)
        if listing.status in _FORBIDDEN:
            refused[address] = f"{redact_url(address)}: HTTP {listing.status}"
        return listing

    answers = client.each(read, wanted)
    found: dict[str, Listings] = {}
    for (package, address), listing in zip(wanted, answers, strict=True):
        if listing.files is not None:
            found.setdefault(package.name, {})[address] = listing.files
    for package, address in wanted:
        own = [index for index in request.indexes if package.name in index.packages]
        # Of a package with an index of its own no other matters; a page of links is not asked here.
        counts = not own or any(without_login(index.url) == address for index in own)
        listings = found.get(package.name, {}).values()
        if counts and address in silent and not any(lists_wheel(files, package.wheel) for files in listings):
            name, why = silent[address]
            raise ClosureFailure(
                FailureFacts(
                    reason="index",
                    package=name,
                    message=f"what the index has of {name} could not be read: {why}",
                    unreachable=True,
                )
            )
    unread = {**refused, **{address: why for address, (_, why) in silent.items()}}
    return found, tuple(
        f"the files of {redact_url(address)} were not compared with the locked ones: {why}"
        for address, why in sorted(unread.items())
    )
