"""Rung 0: the files that are installed, against the packages and digests of a lock.

What the lock says of formats and routes is no evidence and is not looked at here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve.errors import Unproved
from qresolve.install.installed_files import copies_by_name
from qresolve.install.interpreter import normalize_name, same_version
from qresolve.verify.evidence import Binds, Evidence, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qresolve.install.interpreter import InstalledDistribution
    from qresolve.install.unfinished import Unfinished
    from qresolve.lock.model import LockedPackage
    from qresolve.wheels.record import RecordComparison

_NAMED_FILES = 3


def _named(files: Sequence[str]) -> str:
    more = len(files) - _NAMED_FILES
    return ", ".join(files[:_NAMED_FILES]) + (f" and {more} more" if more > 0 else "")


def check_files(
    comparison: RecordComparison | Unproved | None,
) -> tuple[Outcome, str | None, str | None]:
    """Outcome, what was seen and why, of one gated package at its locked version."""
    if comparison is None:
        return Outcome.UNPROVED, None, "the lock holds no digest of this package's files"
    if isinstance(comparison, Unproved):
        return Outcome.UNPROVED, None, comparison.message
    if comparison.same:
        return Outcome.PROVED, comparison.digest, None
    differences = []
    if comparison.changed:
        differences.append(f"changed: {_named(comparison.changed)}")
    if comparison.missing:
        differences.append(f"missing: {_named(comparison.missing)}")
    why = "; ".join(differences) or "another build of the same version"
    return Outcome.REFUTED, comparison.digest, why


def _check_package(
    package: LockedPackage,
    copies: Sequence[InstalledDistribution],
    comparison: RecordComparison | Unproved | None,
) -> Evidence:
    subject = f"{package.name}=={package.version}"
    source = str(copies[0].path) if copies else None
    seen: str | None
    why: str | None
    if not copies:
        outcome, seen, why = Outcome.REFUTED, None, "not installed"
    elif len(copies) > 1:
        outcome, seen = Outcome.REFUTED, ", ".join(f"{copy.version} in {copy.path}" for copy in copies)
        why = "installed more than once"
    elif not same_version(package.version, copies[0].version):
        outcome, seen, why = Outcome.REFUTED, copies[0].version, "another version is installed"
    elif package.because is None:
        outcome, seen, why = Outcome.PROVED, copies[0].version, "version only: no gate looks at its files"
    else:
        outcome, seen, why = check_files(comparison)
    return Evidence(rung=0, binds=Binds.PACKAGE, subject=subject, outcome=outcome, seen=seen, why=why, source=source)


def check_installed(
    packages: Sequence[LockedPackage],
    distributions: Sequence[InstalledDistribution],
    comparisons: Mapping[str, RecordComparison | Unproved],
    unfinished: Unfinished | None,
    *,
    spoken_of: frozenset[str] | None = None,
) -> tuple[Evidence, ...]:
    """Evidence of rung 0: one for each locked package, each unlocked distribution, and an unfinished install.

    A package that is not locked can change what the engine's selector picks, so it leaves something unproved, unless no
    gate speaks of it: ``spoken_of`` are the names that gates do; None: nobody knows.
    """
    copies = copies_by_name(distributions)
    locked = {normalize_name(package.name): package for package in packages}
    evidence = [_check_package(locked[name], copies.get(name, ()), comparisons.get(name)) for name in sorted(locked)]
    evidence += [
        Evidence(
            rung=0,
            binds=Binds.PACKAGE,
            subject=f"{copies[name][0].name}=={copies[name][0].version}",
            outcome=Outcome.UNPROVED if spoken_of is None or name in spoken_of else Outcome.SKIPPED,
            seen="installed",
            why=(
                "not in the lock, and an additional package can change which kernel is picked"
                if spoken_of is None or name in spoken_of
                else "not in the lock, and no gate speaks of it"
            ),
            source=str(copies[name][0].path),
        )
        for name in sorted(set(copies) - set(locked))
    ]
    evidence += [
        Evidence(
            rung=0,
            binds=Binds.PACKAGE,
            subject=distribution.path.name,
            outcome=Outcome.UNPROVED,
            seen=distribution.problem,
            why="a package folder that cannot be read",
            source=str(distribution.path),
        )
        for distribution in distributions
        if distribution.normalized_name is None
    ]
    if unfinished is not None:
        evidence.append(
            Evidence(
                rung=0,
                binds=Binds.PACKAGE,
                subject="environment",
                outcome=Outcome.UNPROVED,
                seen=f"unfinished install with {unfinished.installer or 'an unknown installer'}",
                why="an install into this environment has not ended",
                source=unfinished.lock,
            )
        )
    return tuple(evidence)
