"""Releases that an index has as variant wheels alone: uv resolves a stand-in of each, the lock gets the variant.

uv takes no variant wheel into a lock, and of a release without a plain one it says that nothing fits. A stand-in is a
wheel without content: the name that the variant has without its label, and the METADATA of the variant that fits the
target. It stands in a folder of this run and never leaves it. A package that is bound to an index has its stand-ins in
place of that index, so that it still comes from there alone; of any other they are made of what the first index that
lists the package has, as uv itself looks no further.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from qresolve.closure.failure import ClosureFailure, FailureFacts
from qresolve.closure.indexes import redact_url, searched_urls
from qresolve.closure.request import NamedIndex
from qresolve.closure.solve import run_closure
from qresolve.closure.variant_wheels import (
    Metadata,
    VariantRelease,
    decide,
    note_requirements,
    parse_release,
    parse_requirements,
    put_variant,
    read_metadata,
    read_release,
    rejected,
    release_values,
)
from qresolve.closure.variants import split_label, variants_filename
from qresolve.http.cache import kept_folder, write_kept
from qresolve.http.credentials import without_login
from qresolve.lock.model import LockedPackage, LockedWheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from qresolve.closure.indexes import UserIndexes
    from qresolve.closure.request import Closure, ClosureRequest
    from qresolve.closure.simple import ProjectFile
    from qresolve.http.client import HttpClient

_MOST_RELEASES = 20
"""The newest so many of the releases that uv asked for in vain; each costs two small requests."""
_MOST_PACKAGES = 16
_MOMENT = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """One release: its variants, and the METADATA that uv is shown."""

    release: VariantRelease
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIns:
    """The stand-ins of one closure, in ``folder``; ``unfit`` are releases of which no variant fits, and why."""

    folder: Path
    made: dict[tuple[str, str], StandIn] = field(default_factory=dict)
    unfit: dict[tuple[str, str], str] = field(default_factory=dict)

    def resolve(
        self,
        request: ClosureRequest,
        indexes: UserIndexes,
        client: HttpClient,
        *,
        progress: Callable[[str], None] | None = None,
    ) -> Closure:
        """:func:`run_closure`, with a stand-in for every release that uv refuses for having variants alone.

        Raises:
            ClosureFailure: there is none all the same.
        """
        for _ in range(_MOST_PACKAGES):
            try:
                return run_closure(self._shown_to_uv(request), indexes, client=client, progress=progress)
            except ClosureFailure as failure:
                if failure.reason != "variants" or failure.package is None:
                    raise
                if not self._add(failure.package, failure.specifiers, request, indexes, client):
                    raise self._nothing_fits(failure.package, failure.specifiers) from failure
        raise ClosureFailure(FailureFacts(reason="conflict", message="too many packages have variant wheels alone"))

    def put_back(self, request: ClosureRequest, closure: Closure, client: HttpClient, metadata: Metadata) -> Closure:
        """The closure with the variants in place of their stand-ins; what these require goes into ``metadata``.

        Raises:
            ClosureFailure: beside the packages that were resolved none fits.
        """
        versions = {package.name: package.version for package in closure.packages}
        packages, notes = [], list(closure.notes)
        for package in closure.packages:
            stand_in = self.made.get((package.name, package.version))
            if stand_in is None or not package.wheel.url.startswith(f"{self.folder.as_uri()}/"):
                packages.append(package)
                continue
            decisions = decide(stand_in.release, request, versions)
            taken, said = put_variant(_on_its_index(package, request), stand_in.release, decisions)
            if taken.wheel.variant is None:
                raise _unfit(f"{package.name} {package.version}", rejected(decisions), package.name)
            note_requirements(taken, parse_requirements(stand_in.metadata), client, metadata)
            notes += [said] if said is not None else []
            packages.append(taken)
        return replace(closure, packages=tuple(packages), notes=tuple(notes))

    def _shown_to_uv(self, request: ClosureRequest) -> ClosureRequest:
        """The request with the folder in which the stand-ins are, in place of the index of bound packages."""
        names = sorted({name for name, _ in self.made})
        bound = {name for index in request.indexes for name in index.packages}
        indexes = [
            replace(index, packages=tuple(name for name in index.packages if name not in names))
            for index in request.indexes
        ]
        indexes += [
            NamedIndex(
                name=f"variants-of-{name}",
                url=(self.folder / name).as_uri(),
                packages=(name,),
                upload_times=False,
                flat=True,
            )
            for name in names
            if name in bound
        ]
        links = tuple(str(self.folder / name) for name in names if name not in bound)
        return replace(
            request,
            indexes=tuple(index for index in indexes if index.packages),
            links=(*request.links, *links),
        )

    def _add(
        self,
        name: str,
        specifiers: Iterable[str],
        request: ClosureRequest,
        indexes: UserIndexes,
        client: HttpClient,
    ) -> bool:
        """Make the stand-ins that are still missing; False where there is nothing to add."""
        releases = _read_releases(name, tuple(specifiers), request, indexes, client)
        added = False
        for release in releases:
            key = (name, release.version)
            if key in self.made or key in self.unfit:
                continue
            decisions = decide(release, request, None)
            best = next((one for one in decisions if one.taken), None)
            if best is None:
                self.unfit[key] = rejected(decisions)
                continue
            file = next(one for one in release.files if one.filename == best.filename)
            wheel = LockedWheel(
                filename=(split_label(best.filename) or ("", ""))[0], url=file.url or "", sha256=file.sha256 or ""
            )
            self.made[key] = StandIn(release=release, metadata=read_metadata(wheel, client))
            _write_wheel(self.folder / name / wheel.filename, self.made[key].metadata)
            added = True
        return added

    def _nothing_fits(self, name: str, specifiers: Sequence[str]) -> ClosureFailure:
        from packaging.version import Version  # noqa: PLC0415

        known = [version for one, version in self.unfit if one == name]
        if not known:
            which = " or ".join(text for text in specifiers if text)
            message = f"{name}{which} is there as variant wheels alone, and what the index says of them cannot be had"
            return ClosureFailure(FailureFacts(reason="variants", package=name, message=message))
        newest = max(known, key=Version)
        return _unfit(f"{name} {newest}", self.unfit[name, newest], name)


def _unfit(release: str, why: str, name: str) -> ClosureFailure:
    return ClosureFailure(
        FailureFacts(
            reason="variants",
            package=name,
            message=f"{release} is there as variant wheels alone, and none fits the target ({why})",
        )
    )


def _on_its_index(package: LockedPackage, request: ClosureRequest) -> LockedPackage:
    """The package as one of the index that its stand-in was made of."""
    own = next((index for index in request.indexes if package.name in index.packages), None)
    return replace(
        package,
        index="default" if own is None else own.name,
        index_url=None if own is None else redact_url(own.url),
    )


def _read_releases(
    name: str,
    specifiers: tuple[str, ...],
    request: ClosureRequest,
    indexes: UserIndexes,
    client: HttpClient,
) -> tuple[VariantRelease, ...]:
    """The newest releases within ``specifiers`` that the first index which lists the package has as variants alone."""
    from qresolve.closure.simple import read_listing  # noqa: PLC0415
    from qresolve.http.failures import HttpFailed  # noqa: PLC0415

    for address in _addresses(name, request, indexes):
        kept = kept_folder("variant-releases") / f"{hashlib.sha256(f'{address} {name}'.encode()).hexdigest()}.json"
        known = _kept_releases(name, kept)
        if client.settings.offline or request.offline:
            if known:
                return tuple(known[version] for version in _within(known, specifiers))
            continue
        try:
            files = read_listing(name, address, client).files
        except HttpFailed as failed:
            raise ClosureFailure(
                FailureFacts(
                    reason="index",
                    package=name,
                    message=f"what the index has of {name} could not be read: {failed.message}",
                    unreachable=True,
                )
            ) from failed
        if files is None:
            continue
        wanted = _within(_variants_alone(name, files, request), specifiers)
        found = tuple(client.each(partial(read_release, name, files=files, client=client), wanted))
        if found:
            everything = {**known, **{release.version: release for release in found}}
            values = {version: release_values(release) for version, release in sorted(everything.items())}
            write_kept(kept, json.dumps(values))
        return found
    return ()


def _addresses(name: str, request: ClosureRequest, indexes: UserIndexes) -> tuple[str, ...]:
    """The indexes that the package may come from: its own alone where it is bound to one, else those in uv's order."""
    own = [index for index in request.indexes if name in index.packages]
    urls = [index.url for index in own if not index.flat] if own else searched_urls(indexes)
    return tuple(without_login(url) for url in urls)


def _variants_alone(name: str, files: Sequence[ProjectFile], request: ClosureRequest) -> tuple[str, ...]:
    """The versions that have variants and no plain wheel which fits; what came after the cutoff is not there."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename  # noqa: PLC0415

    from qresolve.closure.tags import select_wheel, target_tags  # noqa: PLC0415

    there = {file.filename for file in files if _in_time(file, name, request)}
    ranks = target_tags(request.python, request.machine, request.glibc)
    versions: dict[str, bool] = {}
    for file in files:
        plain, variant = file.filename, split_label(file.filename)
        if file.filename not in there or file.yanked is not None:
            continue
        try:
            _, version, _, _ = parse_wheel_filename(plain if variant is None else variant[0])
        except InvalidWheelFilename:
            continue
        if variant is not None:
            versions.setdefault(str(version), True)
        elif select_wheel([plain], ranks) is not None:
            versions[str(version)] = False
    return tuple(version for version, alone in versions.items() if alone and variants_filename(name, version) in there)


def _in_time(file: ProjectFile, name: str, request: ClosureRequest) -> bool:
    from datetime import datetime  # noqa: PLC0415

    from qresolve.closure.uv import parse_cutoff  # noqa: PLC0415

    free = any(name in index.packages and not index.upload_times for index in request.indexes)
    if request.cutoff is None or free:
        return True
    if file.upload_time is None:
        return False
    return datetime.fromisoformat(file.upload_time) < datetime.fromisoformat(parse_cutoff(request.cutoff))


def _within(versions: Iterable[str], specifiers: Sequence[str]) -> tuple[str, ...]:
    """The newest of the versions that any of the specifiers admits, newest first."""
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415
    from packaging.version import Version  # noqa: PLC0415

    allowed = [SpecifierSet(text) for text in specifiers]
    fitting = [one for one in versions if any(item.contains(one, prereleases=True) for item in allowed)]
    return tuple(sorted(fitting, key=Version, reverse=True)[:_MOST_RELEASES])


def _kept_releases(name: str, path: Path) -> dict[str, VariantRelease]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return {version: parse_release(name, version, values) for version, values in rows.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _write_wheel(path: Path, metadata: str) -> None:
    """A wheel that holds METADATA and nothing else; the same every time."""
    stem, python, abi, platforms = path.name.removesuffix(".whl").rsplit("-", 3)
    name, version = stem.split("-")[:2]
    info = f"{name}-{version}.dist-info"
    tags = "".join(f"Tag: {python}-{abi}-{platform}\n" for platform in platforms.split("."))
    members = {
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: qresolve\nRoot-Is-Purelib: false\n{tags}",
        f"{info}/RECORD": "",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for member, text in members.items():
            archive.writestr(zipfile.ZipInfo(member, _MOMENT), text.encode())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(buffer.getvalue())
