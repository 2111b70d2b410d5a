"""Which Linux driver runs which CUDA release, and by what kind of compatibility.

* A driver that came with a CUDA release runs it and everything older (backward compatibility).
* A driver at or above the floor of a major runs every release of that major, with limits (minor-version
  compatibility): it cannot compile PTX that a newer toolkit wrote (error 222).
* Below the floor, a newer user-mode driver from the cuda-compat package helps on data center GPUs, Jetson and
  some professional cards (forward compatibility), on others it fails (error 804).
* No package helps where the kernel driver is older than the GPU itself.

Source of the rule: NVIDIA CUDA Compatibility guide; of the numbers: ``constraints/cuda.toml``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from qresolve.data import data_folder
from qresolve.errors import UsageError
from qresolve.strict import read_toml
from qresolve.target.names import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date
    from pathlib import Path

    from qresolve.arch import Architecture
    from qresolve.strict import Table

_FILE = "cuda.toml"
_DRIVER = re.compile(r"[3-9]\d\d(\.\d{1,3}){0,2}", re.ASCII)
_CUDA = re.compile(r"(?:cuda)?[\s_-]*(?P<major>\d{2})\.(?P<minor>\d{1,2})(?:\.\d+)*", re.ASCII)
_LANE = re.compile(r"cu[_-]?(?P<major>\d{2})(?P<minor>\d)", re.ASCII)
_ASK_DRIVER = "nvidia-smi --query-gpu=driver_version --format=csv,noheader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A driver version: ``raw`` as printed (``550.144.03``), ``numbers`` for comparing.

    A branch alone (``580``) stands for any release of that branch, as in NVIDIA's own tables.
    """

    raw: str
    numbers: tuple[int, ...]

    @property
    def branch(self) -> int:
        """580 of ``580.65.06``."""
        return self.numbers[0]

    def reaches(self, floor: Driver) -> bool:
        """Whether this driver is ``floor`` or newer."""
        if len(self.numbers) == 1 or len(floor.numbers) == 1:
            return self.branch >= floor.branch
        return self.numbers >= floor.numbers


def parse_driver(text: str) -> Driver:
    """Read a driver version and keep its text.

    Raises:
        UsageError: not a driver version.
    """
    raw = text.strip()
    if _DRIVER.fullmatch(raw) is None:
        kind = "a CUDA version, not a driver version" if _CUDA.fullmatch(raw) else "no NVIDIA driver version"
        raise UsageError(f"`{raw}` is {kind} (expected for example 580.65.06)", hint=_ASK_DRIVER)
    return Driver(raw=raw, numbers=tuple(int(part) for part in raw.split(".")))


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaRelease:
    """One CUDA release, ``12.8``; ``driver`` is the first that has all of it, None where not established."""

    version: str
    driver: Driver | None
    source: str
    checked: date

    @property
    def key(self) -> tuple[int, int]:
        """(12, 8) of 12.8."""
        major, _, minor = self.version.partition(".")
        return (int(major), int(minor))


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaFamily:
    """All releases of one major; ``floor`` is the oldest driver for minor-version compatibility."""

    major: int
    floor: Driver
    source: str
    checked: date


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaReleases:
    """All that ``cuda.toml`` says; releases are in order, oldest first."""

    families: tuple[CudaFamily, ...]
    releases: tuple[CudaRelease, ...]
    forward_always: tuple[str, ...]
    forward_sometimes: tuple[str, ...]
    forward_source: str

    def family(self, cuda: str) -> CudaFamily | None:
        """The family of ``cuda`` (``12.8``), or None."""
        major = int(cuda.partition(".")[0])
        return next((one for one in self.families if one.major == major), None)

    def find(self, cuda: str) -> CudaRelease | None:
        """The release ``cuda``, or None."""
        return next((one for one in self.releases if one.version == cuda), None)


def parse_cuda(text: str, releases: CudaReleases) -> str:
    """Read ``12.8``, ``12.8.1``, ``cu128`` or ``cuda-12.8`` as ``12.8``.

    Raises:
        UsageError: not a CUDA version, or one without a record.
    """
    lowered = text.strip().casefold()
    found = _LANE.fullmatch(lowered) or _CUDA.fullmatch(lowered)
    known = ", ".join(one.version for one in releases.releases)
    newest = releases.releases[-1].version
    if found is None:
        raise UsageError(f"`{text.strip()}` is no CUDA version; the known ones are {known}", hint=f"--cuda {newest}")
    version = f"{found['major']}.{found['minor']}"
    if releases.find(version) is None:
        raise UsageError(f"there is no record of CUDA {version}; the known ones are {known}", hint=f"--cuda {newest}")
    return version


class DriverSupport(Enum):
    """How a driver runs a CUDA release."""

    NATIVE = "native"
    MINOR_VERSION = "minor-version"
    FORWARD_PACKAGE = "forward-package"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverUnknown:
    """No driver version was given or detected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaUnknown:
    """The data holds nothing about this CUDA major."""

    cuda: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BelowFloor:
    """The driver is older than any that runs this CUDA major."""

    driver: str
    cuda: str
    floor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderThanRelease:
    """The driver runs the major, but came before the release; ``native`` is its own driver, None if not known."""

    driver: str
    cuda: str
    native: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxTooNew:
    """Something is compiled from PTX at load, and the driver's compiler is older than that PTX."""

    driver: str
    cuda: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderThanGpu:
    """The kernel driver does not know the GPU's architecture; no package helps."""

    driver: str
    arch: str
    branch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardPackage:
    """Whether cuda-compat can help a GPU of ``kind``: True, False, or None for some cards of it or an unknown kind."""

    kind: str | None
    helps: bool | None


DriverReason = DriverUnknown | CudaUnknown | BelowFloor | OlderThanRelease | PtxTooNew | OlderThanGpu | ForwardPackage


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverAnswer:
    """An answer with its reasons, in the order they were met."""

    support: DriverSupport
    reasons: tuple[DriverReason, ...] = ()

    @property
    def blocks(self) -> bool:
        """Whether a lock must not be made for this driver; unknown blocks nothing."""
        return self.support is DriverSupport.NO


def driver_supports(
    cuda: str,
    driver: Driver | None,
    releases: CudaReleases,
    *,
    kind: str | None,
    uses_ptx: bool,
    architecture: Architecture | None = None,
) -> DriverAnswer:
    """How ``driver`` runs CUDA ``cuda`` (``12.8``) on a GPU of ``kind`` and ``architecture``.

    ``uses_ptx`` says that something in the environment is loaded as PTX of that toolkit, not as machine code.
    ``kind`` is None where not known (``--gpu sm120``).
    """
    if driver is None:
        return DriverAnswer(support=DriverSupport.UNKNOWN, reasons=(DriverUnknown(),))
    branch = architecture.driver_branch if architecture is not None else None
    if architecture is not None and branch is not None and driver.branch < branch:
        return DriverAnswer(
            support=DriverSupport.NO,
            reasons=(OlderThanGpu(driver=driver.raw, arch=architecture.name, branch=branch),),
        )
    family = releases.family(cuda)
    if family is None:
        return DriverAnswer(support=DriverSupport.UNKNOWN, reasons=(CudaUnknown(cuda=cuda),))
    if not driver.reaches(family.floor):
        below = BelowFloor(driver=driver.raw, cuda=cuda, floor=family.floor.raw)
        return _with_forward_package((below,), kind, releases)
    release = releases.find(cuda)
    native = release.driver if release is not None else None
    if native is not None and driver.reaches(native):
        return DriverAnswer(support=DriverSupport.NATIVE)
    older = OlderThanRelease(driver=driver.raw, cuda=cuda, native=native.raw if native is not None else None)
    if not uses_ptx:
        return DriverAnswer(support=DriverSupport.MINOR_VERSION, reasons=(older,))
    if native is None:
        return DriverAnswer(support=DriverSupport.UNKNOWN, reasons=(older,))
    return _with_forward_package((older, PtxTooNew(driver=driver.raw, cuda=cuda)), kind, releases)


def _with_forward_package(reasons: tuple[DriverReason, ...], kind: str | None, releases: CudaReleases) -> DriverAnswer:
    if kind in releases.forward_always:
        support, helps = DriverSupport.FORWARD_PACKAGE, True
    elif kind is None or kind in releases.forward_sometimes:
        support, helps = DriverSupport.UNKNOWN, None
    else:
        support, helps = DriverSupport.NO, False
    return DriverAnswer(support=support, reasons=(*reasons, ForwardPackage(kind=kind, helps=helps)))


def driver_floor(cuda: str, releases: CudaReleases, architectures: Sequence[Architecture] = ()) -> str | None:
    """The oldest driver that runs ``cuda`` on all of ``architectures``, as text; None where not known."""
    family = releases.family(cuda)
    if family is None:
        return None
    floor = family.floor
    for architecture in architectures:
        branch = architecture.driver_branch
        if branch is not None and branch > floor.branch:
            floor = Driver(raw=str(branch), numbers=(branch,))
    return floor.raw


def highest_cuda(driver: Driver, releases: CudaReleases, *, native: bool = False) -> str | None:
    """The newest known CUDA release that ``driver`` runs, or has all features of (``native``); None if none."""
    runs = (DriverSupport.NATIVE,) if native else (DriverSupport.NATIVE, DriverSupport.MINOR_VERSION)
    for release in reversed(releases.releases):
        answer = driver_supports(release.version, driver, releases, kind="geforce", uses_ptx=False)
        if answer.support in runs:
            return release.version
    return None


def describe_reason(reason: DriverReason) -> str:
    """One clause for people."""
    match reason:
        case DriverUnknown():
            return "the driver is not known"
        case CudaUnknown(cuda=cuda):
            return f"there is no record of the drivers of CUDA {cuda}"
        case BelowFloor(driver=driver, cuda=cuda, floor=floor):
            return f"CUDA {cuda} needs driver {floor} or newer, this is {driver}"
        case OlderThanRelease(driver=driver, cuda=cuda, native=None):
            return f"which driver has all of CUDA {cuda} is not known; {driver} runs its major"
        case OlderThanRelease(driver=driver, cuda=cuda, native=native):
            return f"driver {driver} is older than {native} of CUDA {cuda} and runs it with limits, without its PTX"
        case PtxTooNew(driver=driver, cuda=cuda):
            return f"driver {driver} cannot compile the PTX of CUDA {cuda} (error 222)"
        case OlderThanGpu(driver=driver, arch=arch, branch=branch):
            return f"{arch} needs driver branch {branch} or newer, this is {driver}"
        case ForwardPackage(helps=True):
            return "the cuda-compat package of that release makes it run here"
        case ForwardPackage(kind=None):
            return "whether the cuda-compat package helps depends on the exact GPU, which is not named"
        case ForwardPackage(kind=kind, helps=None):
            return f"the cuda-compat package helps on some {kind} cards only"
        case ForwardPackage(kind=kind):
            return f"the cuda-compat package does not work on {kind} GPUs (error 804)"


def describe_answer(answer: DriverAnswer) -> str:
    """All reasons as one line; empty for a native driver."""
    return "; ".join(describe_reason(reason) for reason in answer.reasons)


def parse_cuda_releases(table: Table) -> CudaReleases:
    """Check ``cuda.toml``.

    Raises:
        DataInvalid: a key is missing, unknown or out of order.
    """
    forward = table.table("forward")
    families = []
    for row in table.tables("family"):
        families.append(
            CudaFamily(
                major=row.whole("major"),
                floor=_parse_data_driver(row, "floor"),
                source=row.text("source"),
                checked=row.day("checked"),
            )
        )
        row.done()
    releases = []
    for row in table.tables("release"):
        version = row.text("version")
        if re.fullmatch(r"\d+\.\d+", version) is None:
            raise row.fail("version", f"must be X.Y, not {version!r}")
        releases.append(
            CudaRelease(
                version=version,
                driver=_parse_data_driver(row, "driver") if "driver" in row else None,
                source=row.text("source"),
                checked=row.day("checked"),
            )
        )
        row.done()
    found = CudaReleases(
        families=tuple(families),
        releases=tuple(releases),
        forward_always=forward.texts("always"),
        forward_sometimes=forward.texts("sometimes"),
        forward_source=forward.text("source"),
    )
    forward.day("checked")
    forward.done()
    table.done()
    unknown = (set(found.forward_always) | set(found.forward_sometimes)) - set(KINDS)
    if unknown:
        raise forward.fail("always", f"unknown kinds {sorted(unknown)}")
    keys = [one.key for one in releases]
    if not keys or keys != sorted(set(keys)):
        raise table.fail("release", "must be there and rise by version")
    for one in releases:
        if found.family(one.version) is None:
            raise table.fail("release", f"{one.version} has no family")
    return found


def _parse_data_driver(row: Table, key: str) -> Driver:
    try:
        return parse_driver(row.text(key))
    except UsageError as error:
        raise row.fail(key, error.message) from error


def read_cuda_releases(folder: Path | None = None) -> CudaReleases:
    """Read ``cuda.toml`` of ``folder``, by default of the shipped constraints.

    Raises:
        DataInvalid: the file is missing or wrong.
    """
    where = folder if folder is not None else data_folder("constraints")
    return parse_cuda_releases(read_toml(where / _FILE, name=f"constraints/{_FILE}"))
