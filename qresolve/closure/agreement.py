"""Whether a closed set is of one piece: one CUDA lane, packages that go in pairs, one file for each name. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version

from qresolve.closure.failure import ClosureFailure, FailureFacts
from qresolve.closure.indexes import redact_url
from qresolve.closure.redirects import check_downgrade

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from qresolve.closure.request import Closure, ClosureRequest
    from qresolve.closure.simple import ProjectFile
    from qresolve.knowledge.indexes import IndexBook
    from qresolve.lock.model import LockedPackage


def cuda_shown(package: LockedPackage, book: IndexBook) -> tuple[str, str] | None:
    """The CUDA release that a package shows, and by what; None where it shows none."""
    local = book.cuda_of_local(package.version)
    if local is not None:
        return local, "its local version"
    if package.name in book.runtimes:
        major, minor = (*Version(package.version).release, 0)[:2]
        return f"{major}.{minor}", "it is that CUDA's runtime library"
    built = book.cuda_of_default(package.name, package.version) if package.index == "default" else None
    return None if built is None else (built, "the default index's build")


def check_lane(request: ClosureRequest, closure: Closure, book: IndexBook, *, free: Iterable[str] = ()) -> None:
    """All parts are built for the CUDA major of the engine's build, which the driver was checked for.

    ``free`` are packages that may be of another major.

    Raises:
        ClosureFailure: some are not; one line names them.
    """
    if request.cuda is None:
        return
    lane = Version(request.cuda).major
    others = []
    for package in closure.packages:
        shown = cuda_shown(package, book)
        if shown is None or package.name in free or Version(shown[0]).major == lane:
            continue
        others.append(f"{package.name} {package.version} is of CUDA {shown[0]} ({shown[1]})")
    if others:
        raise ClosureFailure(
            FailureFacts(
                reason="cuda",
                package=others[0].partition(" ")[0],
                message=f"mixed CUDA: {request.requirements[0]} is built with CUDA {request.cuda}, {', '.join(others)}",
                change=f"--cuda {request.cuda}",
            )
        )


def check_pairs(closure: Closure, book: IndexBook) -> None:
    """Packages that go in pairs have the same version; local versions do not count (PEP 440).

    Raises:
        ClosureFailure: two differ.
    """
    for pair in book.pairs:
        found = [package for package in closure.packages if package.name in pair]
        versions = {Version(package.version).public for package in found}
        if len(versions) > 1:
            texts = ", ".join(f"{package.name} {package.version}" for package in found)
            raise ClosureFailure(
                FailureFacts(reason="conflict", package=found[0].name, message=f"these must have one version: {texts}")
            )


def check_addresses(closure: Closure, searched: Sequence[str] = ()) -> None:
    """No file of an https index is at a plain http address.

    ``searched`` are the indexes that packages without one of their own came from; which of them it was is not known.

    Raises:
        InsecureRedirect: one is.
    """
    encrypted = bool(searched) and all(url.lower().startswith("https://") for url in searched)
    for package in closure.packages:
        if package.index_url is not None:
            check_downgrade(package.index_url, package.wheel.url)
        elif encrypted and package.index != "direct":
            check_downgrade(searched[0], package.wheel.url)


def check_hashes(package: LockedPackage, listings: Mapping[str, Sequence[ProjectFile]]) -> None:
    """No index of ``listings`` (address to files) has another file under the locked file's name.

    Raises:
        ClosureFailure: one has, so that which of them is installed would hang on the order of indexes.
    """
    filename = package.wheel.file
    for address, files in sorted(listings.items()):
        for file in files:
            if file.filename == filename and file.sha256 is not None and file.sha256 != package.wheel.sha256:
                raise hash_conflict(
                    package,
                    f"{filename} is two files: {package.wheel.sha256[:12]}… was resolved, "
                    f"{redact_url(address)} has {file.sha256[:12]}…",
                )


def hash_conflict(package: LockedPackage, message: str) -> ClosureFailure:
    """The refusal of a file name with two contents; another release is not tried in its place."""
    return ClosureFailure(FailureFacts(reason="hash", package=package.name, message=message, unreachable=True))
