"""Why no wheel of a package fits a target, and the one smallest change under which one would."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from qresolve.closure.tags import glibc_pair, target_tags

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from packaging.tags import Tag
    from packaging.version import Version

    from qresolve.closure.simple import ProjectFile

Dimension = Literal["glibc", "python", "date", "yanked", "machine"]
# Which change is proposed where several would do: from what a host can often offer to what is another computer.
_ORDER: tuple[Dimension, ...] = ("glibc", "python", "date", "yanked", "machine")
_PLATFORM = re.compile(r"(?:manylinux_(\d+)_(\d+)|(manylinux2014)|(manylinux2010)|(manylinux1)|linux)_(.+)")
_LEGACY = {3: (2, 17), 4: (2, 12), 5: (2, 5)}
_PYTHONS_TRIED = 8  # minor releases on both sides of the target's


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelTarget:
    """What a wheel must fit. ``cutoff`` is a moment in UTC as RFC 3339 text, or None."""

    python: str
    machine: str
    glibc: str
    cutoff: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """``dimension`` None: no single change would do (or there is no wheel at all, then ``nearest`` is None too).

    ``needs`` and ``have`` are values of that dimension; ``nearest`` is the file that would fit.
    """

    dimension: Dimension | None
    needs: str | None = None
    have: str | None = None
    nearest: str | None = None


def explain_no_wheel(
    files: Iterable[ProjectFile], target: WheelTarget, specifiers: Iterable[str] = ("",)
) -> Reason | None:
    """The reason; None where a file within one of ``specifiers`` fits, so that the target is not to blame."""
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename  # noqa: PLC0415

    allowed = [SpecifierSet(text) for text in specifiers]
    found: list[tuple[tuple[int, tuple[int, ...]], Version, str, Reason]] = []
    newest: tuple[Version, str] | None = None
    for file in files:
        try:
            _, version, _, tags = parse_wheel_filename(file.filename)
        except InvalidWheelFilename:
            continue
        if not any(one.contains(version, prereleases=True) for one in allowed):
            continue
        if newest is None or (version, file.filename) > newest:
            newest = (version, file.filename)
        misfits = _misfits(file, tags, target)
        if not misfits:
            return None
        for dimension, cost, needs, changed in _changes(file, tags, target):
            if not (_misfits(file, tags, changed) - ({dimension} if dimension == "yanked" else set())):
                have = {"glibc": target.glibc, "python": target.python, "machine": target.machine}
                reason = Reason(
                    dimension=dimension,
                    needs=needs,
                    have=have.get(dimension, target.cutoff if dimension == "date" else None),
                    nearest=file.filename,
                )
                found.append(((_ORDER.index(dimension), cost), version, file.filename, reason))
                break
    if not found:
        return Reason(dimension=None, nearest=newest[1] if newest else None)
    smallest = min(change for change, *_ in found)
    return max((row for row in found if row[0] == smallest), key=lambda row: (row[1], row[2]))[3]


def _misfits(file: ProjectFile, tags: Iterable[Tag], target: WheelTarget) -> set[str]:
    misfits = set()
    if not any(tag in target_tags(target.python, target.machine, target.glibc) for tag in tags):
        misfits.add("tags")
    if not _python_allowed(file.requires_python, target.python):
        misfits.add("python")
    if file.yanked is not None:
        misfits.add("yanked")
    if target.cutoff is not None and (file.upload_time is None or _moment(file.upload_time) >= _moment(target.cutoff)):
        misfits.add("date")
    return misfits


def _changes(
    file: ProjectFile, tags: Iterable[Tag], target: WheelTarget
) -> Iterator[tuple[Dimension, tuple[int, ...], str, WheelTarget]]:
    """Every change of one dimension that this file might ask for, the smallest of a dimension first."""
    platforms = [match for tag in tags if (match := _PLATFORM.fullmatch(tag.platform))]
    floors = set()
    for match in platforms:
        if match[1]:
            floors.add((int(match[1]), int(match[2])))
        floors |= {floor for group, floor in _LEGACY.items() if match[group]}
    for floor in sorted(floors):
        if floor > glibc_pair(target.glibc):
            text = f"{floor[0]}.{floor[1]}"
            yield "glibc", floor, text, _with(target, glibc=text)
    major, minor = (int(part) for part in target.python.split(".")[:2])
    for distance in range(1, _PYTHONS_TRIED + 1):
        for other in (minor + distance, minor - distance):
            if other >= 0:
                text = f"{major}.{other}"
                # An older Python first only where it is nearer: newer ones are supported for longer.
                yield "python", (distance, 0 if other > minor else 1), text, _with(target, python=text)
    if file.upload_time is not None:
        yield "date", (), file.upload_time, _with(target, cutoff=None)
    if file.yanked is not None:
        yield "yanked", (), file.yanked, target
    for machine in sorted({match[6] for match in platforms} - {target.machine}):
        yield "machine", (), machine, _with(target, machine=machine)


def _with(
    target: WheelTarget,
    *,
    python: str | None = None,
    machine: str | None = None,
    glibc: str | None = None,
    cutoff: str | None = "",
) -> WheelTarget:
    return WheelTarget(
        python=python or target.python,
        machine=machine or target.machine,
        glibc=glibc or target.glibc,
        cutoff=target.cutoff if cutoff == "" else cutoff,
    )


def _python_allowed(requires: str | None, python: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415

    if requires is None:
        return True
    try:
        return SpecifierSet(requires).contains(f"{python}.0" if python.count(".") == 1 else python, prereleases=True)
    except InvalidSpecifier:
        return True  # resolvers ignore what cannot be read


def _moment(text: str) -> float:
    from datetime import datetime  # noqa: PLC0415

    return datetime.fromisoformat(text).timestamp()
