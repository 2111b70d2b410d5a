"""What is asked of the resolver, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qresolve.lock.model import LockedPackage


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedIndex:
    """An index that only ``packages`` may come from, and that they must come from (``explicit``).

    ``upload_times`` False: the index does not say when a file came, so no cutoff can hold for its packages.
    ``flat``: it is a page of links (pip's ``--find-links``) and no simple index.
    """

    name: str
    url: str
    packages: tuple[str, ...]
    explicit: bool = True
    upload_times: bool = True
    flat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosureRequest:
    """One resolution for one target, which need not be this host.

    ``requirements``, ``constraints`` and ``overrides`` are PEP 508 texts. ``excludes`` are names that must be
    absent, whoever asks for them. ``python`` is ``X.Y``; ``glibc`` the target's, ``2.35``. ``cutoff`` is an
    RFC 3339 date (that day included, in UTC) or moment; None sets no limit and is never read as now.
    ``offline`` uses uv's cache alone. ``lockstep_exceptions`` are names that the user frees from the one-toolkit
    rule. ``timeout`` in seconds.

    What is checked of the result: ``cuda`` is the CUDA release that the engine is built with, ``gated`` are packages
    whose very files matter. Variant wheels are chosen for the GPUs ``sms`` and for ``driver_cuda``, the newest CUDA
    release that the driver runs (None: not known). ``metadata`` holds name, version and requirements of releases
    that are to be taken by these instead of by their own wheel's. ``links`` are folders with wheels that count beside
    what the indexes list.
    """

    requirements: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    python: str = "3.12"
    machine: str = "x86_64"
    glibc: str = "2.35"
    cutoff: str | None = None
    indexes: tuple[NamedIndex, ...] = ()
    offline: bool = False
    lockstep_exceptions: tuple[str, ...] = ()
    timeout: float = 900.0
    cuda: str | None = None
    gated: tuple[str, ...] = ()
    sms: tuple[int, ...] = ()
    driver_cuda: str | None = None
    metadata: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    links: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Closure:
    """All packages, sorted by name. ``toolkit``: the CUDA toolkit release they share; None: there is none.

    ``notes`` are the resolver's warnings, for example that a pinned release was yanked.
    """

    packages: tuple[LockedPackage, ...]
    toolkit: str | None = None
    notes: tuple[str, ...] = ()

    def version_of(self, name: str) -> str | None:
        """The locked version of ``name`` (normalised), or None where it is not in the closure."""
        return next((package.version for package in self.packages if package.name == name), None)
