"""A closure that is of one piece: resolved, checked against what the indexes list, variant wheels put in.

Of gated packages, and of those bound to an index, the index's list of files is read once more: it says which variant
wheels there are, and whether the same file name stands for another file on another index.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from qresolve.closure.agreement import check_addresses, check_hashes, check_lane, check_pairs
from qresolve.closure.failure import ClosureFailure, FailureFacts
from qresolve.closure.indexes import redact_url, searched_urls
from qresolve.closure.lockstep import read_lockstep_rules
from qresolve.closure.redirects import no_downgrade
from qresolve.closure.solve import run_closure
from qresolve.closure.variants import (
    NULL,
    BadVariants,
    VariantDecision,
    VariantTarget,
    parse_variants,
    read_variant_rules,
    select_variant,
    split_label,
    variants_filename,
)
from qresolve.http.cache import kept_folder, write_kept
from qresolve.http.credentials import without_login
from qresolve.http.failures import HttpFailed
from qresolve.knowledge.indexes import read_indexes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from qresolve.closure.indexes import UserIndexes
    from qresolve.closure.request import Closure, ClosureRequest
    from qresolve.closure.simple import ProjectFile
    from qresolve.http.client import HttpClient
    from qresolve.lock.model import LockedPackage

_ROUNDS = 4  # a variant's requirements can bring in another package with variants, and so on
_MOST_JSON = 4 * 1024 * 1024  # bytes
_OK = 200
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
    for _ in range(_ROUNDS):
        closure = run_closure(request, indexes, client=client, progress=progress)
        check_lane(request, closure, read_indexes(), free=read_lockstep_rules().exceptions)
        check_pairs(closure, read_indexes())
        check_addresses(closure, searched_urls(indexes))
        listings, silent = _read_listings(request, closure, indexes, client, progress)
        for package in closure.packages:
            check_hashes(package, listings.get(package.name, {}))
        found, metadata = _with_variants(request, closure, indexes, listings, client)
        if metadata == request.metadata:
            return replace(found, notes=(*found.notes, *silent))
        request = replace(request, metadata=metadata)
    raise ClosureFailure(FailureFacts(reason="conflict", message="the variants' requirements do not come to an end"))


def _addresses(package: LockedPackage, request: ClosureRequest, indexes: UserIndexes) -> tuple[str, ...]:
    """The indexes that may list the package, without logins: its own first."""
    own = [index.url for index in request.indexes if package.name in index.packages and not index.flat]
    return tuple(dict.fromkeys(without_login(url) for url in (*own, *searched_urls(indexes))))


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
        for address in _addresses(package, request, indexes)
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
        if counts and address in silent and not any(_lists(package, files) for files in listings):
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


def _lists(package: LockedPackage, files: Sequence[ProjectFile]) -> bool:
    """Whether the locked wheel is among the files of an index."""
    return any(
        file.filename == package.wheel.filename and file.sha256 in (None, package.wheel.sha256) for file in files
    )


def _with_variants(
    request: ClosureRequest,
    closure: Closure,
    indexes: UserIndexes,
    listings: Mapping[str, Listings],
    client: HttpClient,
) -> tuple[Closure, tuple[tuple[str, str, tuple[str, ...]], ...]]:
    """The closure with the target's variant wheels in place, and the requirements that these have of their own."""
    packages, notes = [], list(closure.notes)
    metadata = {(name, version): requires for name, version, requires in request.metadata}
    for package in closure.packages:
        taken, said = package, None
        if package.name in request.gated and package.index != "direct":
            files = _files_with_variants(package, request, indexes, listings.get(package.name, {}), client)
            if files is not None:
                taken, said = _take_variant(package, files, request, closure)
        if said is not None:
            notes.append(said)
        key = (package.name, package.version)
        if taken is not package and key not in metadata:
            own = _requirements(package, taken, client)
            if own is not None:
                metadata[key] = own
        packages.append(taken)
    return (
        replace(closure, packages=tuple(packages), notes=tuple(notes)),
        tuple((name, version, requires) for (name, version), requires in sorted(metadata.items())),
    )


def _files_with_variants(
    package: LockedPackage, request: ClosureRequest, indexes: UserIndexes, listings: Listings, client: HttpClient
) -> tuple[tuple[ProjectFile, ...], str] | None:
    """The files of the package's version on the index it came from and the text of its variants; None without any."""
    kept = _kept_path(package)
    if client.settings.offline or request.offline:
        return _kept_variants(kept)
    wanted = variants_filename(package.name, package.version)
    for address in _addresses(package, request, indexes):
        files = listings.get(address)
        if files is None or not _lists(package, files):
            continue  # the wheel came from another index
        described = next((file for file in files if file.filename == wanted and file.url), None)
        if described is None:
            return None
        text, why = _read_text(described.url or "", client)
        own = tuple(
            file
            for file in files
            if file.filename.startswith(wanted.removesuffix("variants.json")) and split_label(file.filename)
        )
        if text is None:
            raise ClosureFailure(
                FailureFacts(
                    reason="index",
                    package=package.name,
                    message=f"{redact_url(described.url or '')} is listed and cannot be read: {why}",
                )
            )
        _keep(kept, own, text)
        return own, text
    return None


def _take_variant(
    package: LockedPackage,
    found: tuple[Sequence[ProjectFile], str],
    request: ClosureRequest,
    closure: Closure,
) -> tuple[LockedPackage, str | None]:
    """The package with the variant that fits the target best; itself, with a word about it, where none does."""
    from qresolve.arch import read_architectures  # noqa: PLC0415
    from qresolve.closure.tags import target_tags  # noqa: PLC0415

    files, text = found
    try:
        variants = parse_variants(text)
    except BadVariants as error:
        raise ClosureFailure(
            FailureFacts(
                reason="index",
                package=package.name,
                message=f"{variants_filename(package.name, package.version)} is no variant metadata: {error}",
            )
        ) from error
    target = VariantTarget(
        sms=request.sms,
        cuda=lane_cuda(request.cuda, request.driver_cuda),
        machine=request.machine,
        packages={one.name: one.version for one in closure.packages},
    )
    decisions = select_variant(
        variants,
        [file.filename for file in files if file.yanked is None],
        target=target,
        ranks=target_tags(request.python, request.machine, request.glibc),
        rules=read_variant_rules(),
        architectures=read_architectures(),
    )
    name = f"{package.name} {package.version}"
    best = next((one for one in decisions if one.taken), None)
    if best is None:
        return package, f"{name}: no variant fits, the plain wheel is taken ({_rejected(decisions)})"
    file = next(one for one in files if one.filename == best.filename)
    if file.sha256 is None or file.url is None:
        raise ClosureFailure(
            FailureFacts(
                reason="hash",
                package=package.name,
                message=f"the index gives no sha256 for {best.filename}, so it cannot be locked",
            )
        )
    plain = (split_label(best.filename) or ("", ""))[0]
    wheel = replace(
        package.wheel,
        filename=plain,
        url=redact_url(file.url),
        sha256=file.sha256,
        size=file.size,
        upload_time=_shown(file.upload_time),
        variant=best.label,
    )
    said = f"{name}: the variant without properties is taken ({_rejected(decisions)})" if best.label == NULL else None
    return replace(package, wheel=wheel), said


def lane_cuda(built: str | None, driver: str | None) -> str | None:
    """The newest CUDA release a variant may ask for: the driver's, but of the major that the engine is built with."""
    from packaging.version import Version  # noqa: PLC0415

    if built is None or driver is None:
        return built or driver
    return driver if Version(driver).major == Version(built).major and Version(driver) > Version(built) else built


def _rejected(decisions: Sequence[VariantDecision]) -> str:
    return "; ".join(f"{one.label}: {one.reasons[0]}" for one in decisions if not one.fits) or "there is no other"


def _requirements(plain: LockedPackage, variant: LockedPackage, client: HttpClient) -> tuple[str, ...] | None:
    """The requirements of the variant where they are not those of the plain wheel; None where they are."""
    from email.parser import HeaderParser  # noqa: PLC0415

    from qresolve.closure.metadata import read_wheel_metadata  # noqa: PLC0415

    lists = []
    for package in (plain, variant):
        text = read_wheel_metadata(package.wheel, client)
        if text is None and client.settings.offline:
            raise ClosureFailure(
                FailureFacts(
                    reason="offline",
                    package=package.name,
                    message=f"METADATA of {redact_url(package.wheel.url)} is not in the cache, and the network is off",
                    change="leave out --offline once",
                )
            )
        if text is None:
            raise ClosureFailure(
                FailureFacts(
                    reason="index", package=package.name, message=f"METADATA of {package.wheel.url} cannot be read"
                )
            )
        lists.append(tuple(sorted(HeaderParser().parsestr(text).get_all("Requires-Dist") or ())))
    return lists[1] if lists[0] != lists[1] else None


def _shown(upload_time: str | None) -> str | None:
    """An upload time as the lock has it, in UTC with a Z."""
    from datetime import UTC, datetime  # noqa: PLC0415

    if upload_time is None:
        return None
    return datetime.fromisoformat(upload_time).astimezone(UTC).isoformat().replace("+00:00", "Z")


def _read_text(url: str, client: HttpClient) -> tuple[str | None, str]:
    """The text at an address; None and why where it cannot be had."""
    from qresolve.http.pages import read_page  # noqa: PLC0415

    try:
        with no_downgrade():
            answer = read_page(client, url, most=_MOST_JSON)
    except HttpFailed as failed:
        return None, failed.message
    if answer.status != _OK:
        return None, f"HTTP {answer.status}"
    return answer.body.decode("utf-8", "replace"), ""


def _kept_path(package: LockedPackage) -> Path:
    """Where the variants of a release are kept by its plain wheel, so that an offline lock has the same bytes."""
    return kept_folder("variants") / f"{package.wheel.sha256}.json"


def _keep(path: Path, files: Sequence[ProjectFile], text: str) -> None:
    fields = ("filename", "upload_time", "yanked", "url", "sha256", "size")
    rows = [{key: getattr(file, key) for key in fields} for file in files]
    write_kept(path, json.dumps({"files": rows, "variants": text}))


def _kept_variants(path: Path) -> tuple[tuple[ProjectFile, ...], str] | None:
    from qresolve.closure.simple import ProjectFile  # noqa: PLC0415

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return tuple(ProjectFile(**row) for row in document["files"]), str(document["variants"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
