"""The files that are installed for a lock's packages, compared with the digests that the lock took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve.errors import Unproved
from qresolve.install.interpreter import normalize_name
from qresolve.wheels.record import RecordComparison, read_comparison

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qresolve.install.interpreter import InstalledDistribution
    from qresolve.lock.model import LockedPackage


def copies_by_name(
    distributions: Sequence[InstalledDistribution],
) -> dict[str, tuple[InstalledDistribution, ...]]:
    """The installed distributions by normalized name, in import order; what has no name is left out."""
    copies: dict[str, tuple[InstalledDistribution, ...]] = {}
    for distribution in distributions:
        name = distribution.normalized_name
        if name is not None:
            copies[name] = (*copies.get(name, ()), distribution)
    return copies


def read_comparisons(
    packages: Sequence[LockedPackage], distributions: Sequence[InstalledDistribution]
) -> dict[str, RecordComparison | Unproved]:
    """Hash the installed files of each package whose digest the lock holds; by name.

    An error to look is kept as the error: it is an outcome, not an end.
    """
    copies = copies_by_name(distributions)
    comparisons: dict[str, RecordComparison | Unproved] = {}
    for package in packages:
        name = normalize_name(package.name)
        installed = copies.get(name, ())
        if package.because is None or package.because.record is None or not installed:
            continue
        folder = installed[0].path
        try:
            comparisons[name] = read_comparison(package.because.record, site_packages=folder.parent, dist_info=folder)
        except Unproved as error:
            comparisons[name] = error
    return comparisons
