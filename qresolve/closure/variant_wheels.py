"""Variant wheels of a resolved set: which files a release has, the one for the target, and what it requires.

uv resolves the plain wheel of a release. Where the index has variants of it, the one that fits the target takes its
place, by address and hash.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qresolve.closure.failure import ClosureFailure, FailureFacts
from qresolve.closure.indexes import redact_url
from qresolve.closure.redirects import no_downgrade
from qresolve.closure.simple import addresses_of, lists_wheel
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
from qresolve.http.failures import HttpFailed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from qresolve.closure.indexes import UserIndexes
    from qresolve.closure.request import Closure, ClosureRequest
    from qresolve.closure.simple import ProjectFile
    from qresolve.http.client import HttpClient
    from qresolve.lock.model import LockedPackage, LockedWheel

_MOST_JSON = 4 * 1024 * 1024  # bytes
_OK = 200

Metadata = dict[tuple[str, str], tuple[str, ...]]
"""Name and version to the requirements that a release is taken by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRelease:
    """The variant wheels of one release, and the text of its ``*-variants.json``."""

    name: str
    version: str
    files: tuple[ProjectFile, ...]
    text: str


def with_variants(
    request: ClosureRequest,
    closure: Closure,
    indexes: UserIndexes,
    listings: Mapping[str, Mapping[str, tuple[ProjectFile, ...]]],
    *,
    client: HttpClient,
    metadata: Metadata,
) -> Closure:
    """The closure with the target's variant wheels in place; what they require of their own goes into ``metadata``.

    Raises:
        ClosureFailure: an index says there are variants, and what it says of them cannot be used.
    """
    packages, notes = [], list(closure.notes)
    for package in closure.packages:
        taken = package
        if package.name in request.gated and package.index != "direct" and package.wheel.variant is None:
            release = _read_release(package, request, indexes, listings.get(package.name, {}), client)
            if release is not None:
                decisions = decide(release, request, {one.name: one.version for one in closure.packages})
                taken, said = put_variant(package, release, decisions)
                notes += [said] if said is not None else []
        if taken is not package:
            note_requirements(taken, requirements_of(package.wheel, client), client, metadata)
        packages.append(taken)
    return replace(closure, packages=tuple(packages), notes=tuple(notes))


def note_requirements(taken: LockedPackage, plain: tuple[str, ...], client: HttpClient, metadata: Metadata) -> None:
    """Keep the requirements of the taken wheel where they are not those the release was resolved by.

    ``plain`` are those of the wheel that uv saw.
    """
    key = (taken.name, taken.version)
    own = requirements_of(taken.wheel, client)
    if own != metadata.get(key, plain):
        metadata[key] = own


def _read_release(
    package: LockedPackage,
    request: ClosureRequest,
    indexes: UserIndexes,
    listings: Mapping[str, tuple[ProjectFile, ...]],
    client: HttpClient,
) -> VariantRelease | None:
    """The variants of the package's version on the index it came from; None where it has none."""
    kept = _kept_path(package)
    if client.settings.offline or request.offline:
        return _kept_release(package, kept)
    for address in addresses_of(package.name, request.indexes, indexes):
        files = listings.get(address)
        if files is None or not lists_wheel(files, package.wheel):
            continue  # the wheel came from another index
        if not any(file.filename == variants_filename(package.name, package.version) for file in files):
            return None
        release = read_release(package.name, package.version, files=files, client=client)
        _keep(kept, release)
        return release
    return None


def read_release(name: str, version: str, *, files: Sequence[ProjectFile], client: HttpClient) -> VariantRelease:
    """The variant wheels that an index lists of a release, with what it says of them.

    Raises:
        ClosureFailure: what is listed cannot be read.
    """
    wanted = variants_filename(name, version)
    described = next((file for file in files if file.filename == wanted and file.url), None)
    url = "" if described is None else described.url or ""
    text, why = (None, "it is not listed") if described is None else _read_text(url, client)
    if text is None:
        raise ClosureFailure(
            FailureFacts(
                reason="index",
                package=name,
                message=f"{redact_url(url) or wanted} is listed and cannot be read: {why}",
            )
        )
    stem = wanted.removesuffix("variants.json")
    own = tuple(file for file in files if file.filename.startswith(stem) and split_label(file.filename))
    return VariantRelease(name=name, version=version, files=own, text=text)


def decide(
    release: VariantRelease, request: ClosureRequest, packages: Mapping[str, str] | None
) -> tuple[VariantDecision, ...]:
    """A decision for every wheel that was not yanked; ``packages`` are the versions beside it, None: not known yet.

    Raises:
        ClosureFailure: the text is no variant metadata.
    """
    from qresolve.arch import read_architectures  # noqa: PLC0415
    from qresolve.closure.tags import target_tags  # noqa: PLC0415

    try:
        variants = parse_variants(release.text)
    except BadVariants as error:
        raise ClosureFailure(
            FailureFacts(
                reason="index",
                package=release.name,
                message=f"{variants_filename(release.name, release.version)} is no variant metadata: {error}",
            )
        ) from error
    return select_variant(
        variants,
        [file.filename for file in release.files if file.yanked is None],
        target=VariantTarget(
            sms=request.sms,
            cuda=lane_cuda(request.cuda, request.driver_cuda),
            machine=request.machine,
            packages=packages,
        ),
        ranks=target_tags(request.python, request.machine, request.glibc),
        rules=read_variant_rules(),
        architectures=read_architectures(),
    )


def put_variant(
    package: LockedPackage, release: VariantRelease, decisions: Sequence[VariantDecision]
) -> tuple[LockedPackage, str | None]:
    """The package with the taken variant; itself, with a word about it, where none was taken.

    Raises:
        ClosureFailure: the index gives no hash for it.
    """
    name = f"{package.name} {package.version}"
    best = next((one for one in decisions if one.taken), None)
    if best is None:
        return package, f"{name}: no variant fits, the plain wheel is taken ({rejected(decisions)})"
    file = next(one for one in release.files if one.filename == best.filename)
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
    said = f"{name}: the variant without properties is taken ({rejected(decisions)})" if best.label == NULL else None
    return replace(package, wheel=wheel), said


def lane_cuda(built: str | None, driver: str | None) -> str | None:
    """The newest CUDA release a variant may ask for: the driver's, but of the major that the engine is built with."""
    from packaging.version import Version  # noqa: PLC0415

    if built is None or driver is None:
        return built or driver
    return driver if Version(driver).major == Version(built).major and Version(driver) > Version(built) else built


def rejected(decisions: Sequence[VariantDecision]) -> str:
    """Why each variant that does not fit does not."""
    return "; ".join(f"{one.label}: {one.reasons[0]}" for one in decisions if not one.fits) or "there is no other"


def requirements_of(wheel: LockedWheel, client: HttpClient) -> tuple[str, ...]:
    """What a wheel on an index requires, sorted.

    Raises:
        ClosureFailure: its METADATA cannot be read.
    """
    return parse_requirements(read_metadata(wheel, client))


def parse_requirements(metadata: str) -> tuple[str, ...]:
    """The Requires-Dist of a METADATA text, sorted."""
    from email.parser import HeaderParser  # noqa: PLC0415

    return tuple(sorted(HeaderParser().parsestr(metadata).get_all("Requires-Dist") or ()))


def read_metadata(wheel: LockedWheel, client: HttpClient) -> str:
    """The METADATA of a wheel on an index.

    Raises:
        ClosureFailure: it cannot be read.
    """
    from qresolve.closure.metadata import read_wheel_metadata  # noqa: PLC0415

    text = read_wheel_metadata(wheel, client)
    if text is not None:
        return text
    name = wheel.filename.partition("-")[0].replace("_", "-").lower()
    if client.settings.offline:
        message = f"METADATA of {redact_url(wheel.url)} is not in the cache, and the network is off"
        facts = FailureFacts(reason="offline", package=name, message=message, change="leave out --offline once")
    else:
        message = f"METADATA of {redact_url(wheel.url)} cannot be read"
        facts = FailureFacts(reason="index", package=name, message=message)
    raise ClosureFailure(facts)


def _shown(upload_time: str | None) -> str | None:
    """An upload time as the lock has it, in UTC with a Z."""
    from datetime import datetime  # noqa: PLC0415

    from qresolve.closure.uv import in_utc  # noqa: PLC0415

    return None if upload_time is None else in_utc(datetime.fromisoformat(upload_time))


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


def release_values(release: VariantRelease) -> dict[str, object]:
    """What is kept of a release."""
    fields = ("filename", "upload_time", "yanked", "url", "sha256", "size")
    rows = [{key: getattr(file, key) for key in fields} for file in release.files]
    return {"files": rows, "variants": release.text}


def parse_release(name: str, version: str, values: Mapping[str, object]) -> VariantRelease:
    """What was kept of a release.

    Raises:
        KeyError, TypeError: it is something else.
    """
    from qresolve.closure.simple import ProjectFile  # noqa: PLC0415

    rows = values["files"]
    if not isinstance(rows, list):
        raise TypeError("no list of files")
    files = tuple(ProjectFile(**row) for row in rows)
    return VariantRelease(name=name, version=version, files=files, text=str(values["variants"]))


def _keep(path: Path, release: VariantRelease) -> None:
    write_kept(path, json.dumps(release_values(release)))


def _kept_release(package: LockedPackage, path: Path) -> VariantRelease | None:
    try:
        return parse_release(package.name, package.version, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None
