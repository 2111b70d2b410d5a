"""What a lock holds. Written and read by :mod:`qresolve.lock.file` as PEP 751 ``pylock.toml``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qresolve.setting import Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedWheel:
    """One wheel file: where it is and what its bytes are.

    ``url`` never holds credentials. ``size`` is in bytes. ``upload_time`` is RFC 3339 text, kept raw. ``variant`` is
    the label of a variant wheel: the file at ``url`` has it at the end of its name, and ``filename`` is without it, as
    installers take no such name from a lock. ``path`` is where the file is in a wheelhouse, relative to its lock;
    installers are then told of that alone, and ``url`` says where it came from.
    """

    filename: str
    url: str
    sha256: str
    size: int | None = None
    upload_time: str | None = None
    variant: str | None = None
    path: str | None = None

    @property
    def file(self) -> str:
        """The file's name on the index: ``filename``, of a variant with its label."""
        return self.filename if self.variant is None else f"{self.filename.removesuffix('.whl')}-{self.variant}.whl"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedBecause:
    """Why a package that gates look at is in the lock.

    ``routes`` and ``gates`` are ids of records; ``cuda`` is the CUDA release of the wheel's build as declared;
    ``record`` is the digest over the files that the wheel's own RECORD lists (see ``lock.record``).
    """

    routes: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    cuda: str | None = None
    record: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedPackage:
    """One package with exactly one wheel. ``index`` is the index's name, ``index_url`` its redacted address."""

    name: str
    version: str
    wheel: LockedWheel
    index: str = "default"
    index_url: str | None = None
    requires_python: str | None = None
    because: GatedBecause | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedFormat:
    """One judged row: format, scheme and role on one arch, what was wanted, and what was found at which level."""

    format: str
    scheme: str
    role: str
    arch: str
    wanted: str
    verdict: str
    level: str
    route: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedTarget:
    """The target as locked. ``gpus`` are names as given and archs; ``driver`` is raw text or None (unknown)."""

    gpus: tuple[tuple[str, str], ...]  # (name, arch), for example ("rtx5090", "sm120")
    machine: str
    glibc: str
    python: str
    driver: str | None = None
    cuda: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """A whole lock. ``seal`` is the digest over everything else, checked when a lock is read.

    ``driver_floor`` is the oldest driver that runs the locked CUDA, raw text as NVIDIA prints it.
    ``allowed`` are the ``SELECTOR=CLASS`` texts that the user accepted. ``data`` maps each record file that the
    decision used to its digest; ``data_digest`` is the digest over that mapping.
    """

    target: LockedTarget
    engine: str
    engine_version: str
    packages: tuple[LockedPackage, ...]
    formats: tuple[LockedFormat, ...]
    settings: tuple[Setting, ...]
    data_digest: str
    requested: tuple[str, ...] = ()
    assumed: tuple[tuple[str, str], ...] = ()
    allowed: tuple[str, ...] = ()
    driver_floor: str | None = None
    cutoff: str | None = None
    workload: str | None = None
    data: tuple[tuple[str, str], ...] = field(default=())
