"""The one best wheel of a package for a target that need not be this host."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from packaging.tags import Tag

# PEP 600 gives these three older names to fixed glibc releases.
_LEGACY = {(2, 17): "manylinux2014", (2, 12): "manylinux2010", (2, 5): "manylinux1"}
# PEP 513, 571 and 599: the two older names exist for x86 only.
_OLDEST = {"x86_64": 5}
_OLDEST_ELSEWHERE = 17


def glibc_pair(glibc: str) -> tuple[int, int]:
    """``2.35`` → ``(2, 35)``.

    Raises:
        ValueError: not two numbers.
    """
    major, minor = glibc.split(".")[:2]
    return int(major), int(minor)


def linux_platforms(machine: str, glibc: str) -> Iterator[str]:
    """Platform tags of a glibc Linux, best first."""
    major, newest = glibc_pair(glibc)
    for minor in range(newest, _OLDEST.get(machine, _OLDEST_ELSEWHERE) - 1, -1):
        yield f"manylinux_{major}_{minor}_{machine}"
        if legacy := _LEGACY.get((major, minor)):
            yield f"{legacy}_{machine}"
    yield f"linux_{machine}"


@lru_cache(maxsize=32)
def target_tags(python: str, machine: str, glibc: str) -> Mapping[Tag, int]:
    """Each tag that CPython ``python`` (``X.Y``) accepts there, with its rank; 0 is the best.

    Raises:
        ValueError: a version is not two numbers.
    """
    from packaging.tags import compatible_tags, cpython_tags  # noqa: PLC0415 - keeps this module's import fast

    major, minor = (int(part) for part in python.split(".")[:2])
    platforms = tuple(linux_platforms(machine, glibc))
    ranks: dict[Tag, int] = {}
    for tag in cpython_tags((major, minor), abis=(f"cp{major}{minor}",), platforms=platforms):
        ranks.setdefault(tag, len(ranks))
    for tag in compatible_tags((major, minor), interpreter=f"cp{major}{minor}", platforms=platforms):
        ranks.setdefault(tag, len(ranks))
    return ranks


def select_wheel(filenames: Iterable[str], ranks: Mapping[Tag, int]) -> str | None:
    """The best of ``filenames``: best tag, then highest build number, then by name; None where none fits."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename  # noqa: PLC0415

    best: tuple[tuple[int, tuple[int, str], str], str] | None = None
    for filename in filenames:
        try:
            _, _, build, tags = parse_wheel_filename(filename)
        except InvalidWheelFilename:
            continue
        rank = min((ranks[tag] for tag in tags if tag in ranks), default=None)
        if rank is None:
            continue
        number, label = build or (-1, "")
        key = ((rank, (-number, label), filename), filename)
        if best is None or key < best:
            best = key
    return None if best is None else best[1]
