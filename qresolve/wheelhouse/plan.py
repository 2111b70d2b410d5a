"""From a lock to what a wheelhouse must hold, and to the lock that lies in it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qresolve.errors import DataInvalid

if TYPE_CHECKING:
    from qresolve.lock.model import Lock, LockedWheel


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """One file: its name in the folder, its address, and what its bytes must be. ``size`` None: not known before."""

    filename: str
    url: str
    sha256: str
    size: int | None


def plan_downloads(lock: Lock) -> tuple[Download, ...]:
    """Every wheel of a lock, the largest first: they decide how long it takes.

    Raises:
        DataInvalid: a name that would leave the folder, or two files under one name.
    """
    found: dict[str, Download] = {}
    for package in lock.packages:
        wheel = package.wheel
        _check_name(wheel)
        download = Download(filename=wheel.filename, url=wheel.url, sha256=wheel.sha256, size=wheel.size)
        if found.setdefault(wheel.filename, download) != download:
            raise DataInvalid(f"the lock has two files called {wheel.filename}")
    return tuple(sorted(found.values(), key=lambda one: (-(one.size or 0), one.filename)))


def _check_name(wheel: LockedWheel) -> None:
    name = wheel.filename
    if "/" in name or "\\" in name or not name.endswith(".whl") or name.startswith("."):
        raise DataInvalid(f"{name!r} is no name of a wheel")


def wheelhouse_lock(lock: Lock) -> Lock:
    """The same lock with every wheel beside it, to be read where there is no network."""
    return replace(
        lock,
        packages=tuple(
            replace(package, wheel=replace(package.wheel, path=package.wheel.filename)) for package in lock.packages
        ),
    )


def same_files(one: Lock, other: Lock) -> bool:
    """Whether two locks list the same files."""
    return _files(one) == _files(other)


def _files(lock: Lock) -> dict[str, str]:
    return {package.wheel.filename: package.wheel.sha256 for package in lock.packages}
