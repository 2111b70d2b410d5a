"""From an opened wheel to its row: METADATA and names become claims, what was read becomes measurements."""

from __future__ import annotations

import re
from collections import defaultdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from qresolve.machine_code.elf import parse_library
from qresolve.wheels.index_rows import Declared, Measured, MeasuredLibrary, UnitGroup
from qresolve.wheels.record import parse_record, record_digest
from qresolve.wheels.remote import WheelInvalid

if TYPE_CHECKING:
    from qresolve.arch import ImageArch
    from qresolve.machine_code.elf import LibraryMeasurement
    from qresolve.wheels.remote import WheelSource

_CUDA_LABEL = re.compile(r"(?:\A|\.)cu(?P<major>\d{2})(?P<minor>\d)(?:\.|\Z)")


def read_declared(wheel: WheelSource, *, toolkit: str, upload_time: str | None) -> Declared:
    """The claims of METADATA; ``toolkit`` is the metapackage whose pin is a claim about CUDA.

    Raises:
        WheelInvalid: METADATA is missing or cannot be read.
    """
    from packaging.metadata import parse_email  # noqa: PLC0415 - keeps this module's import fast

    raw, _ = parse_email(wheel.read_member(dist_info_member(wheel.member_names(), "METADATA")))
    requires = tuple(sorted(raw.get("requires_dist", [])))
    return Declared(
        requires_python=raw.get("requires_python"),
        requires_dist=requires,
        upload_time=upload_time,
        cuda=parse_cuda_claim(raw.get("version", ""), requires, toolkit=toolkit),
    )


def read_measured(wheel: WheelSource, *, libraries: tuple[str, ...] | None, most_compressed: int = 0) -> Measured:
    """RECORD's digest and, where patterns are given, the libraries that match them, by path.

    A library of more than ``most_compressed`` bytes in the wheel is left out, that is: unknown.

    Raises:
        WheelInvalid: a member cannot be read.
        ElfInvalid: a matching member is no library.
        FatbinInvalid: its GPU images cannot be read.
    """
    names = wheel.member_names()
    record = wheel.read_member(dist_info_member(names, "RECORD")).decode("utf-8", "strict")
    measured: tuple[MeasuredLibrary, ...] | None = None
    if libraries is not None:
        paths = sorted(
            name
            for name in names
            if any(fnmatchcase(name, one) for one in libraries) and wheel.compressed_size(name) <= most_compressed
        )
        measured = tuple(group_units(parse_library(wheel.read_member(path), path=path)) for path in paths)
    return Measured(record=record_digest(parse_record(record)), libraries=measured)


def dist_info_member(names: tuple[str, ...], file: str) -> str:
    """The path of ``file`` in the wheel's one ``.dist-info`` folder.

    Raises:
        WheelInvalid: none or several.
    """
    found = [name for name in names if name.count("/") == 1 and name.endswith(f".dist-info/{file}")]
    if len(found) != 1:
        raise WheelInvalid(f"{len(found)} members are called *.dist-info/{file}, not 1")
    return found[0]


def parse_cuda_claim(version: str, requires_dist: tuple[str, ...], *, toolkit: str) -> str | None:
    """CUDA as the local label (``+cu130`` → ``13.0``) or else the pin of the toolkit says; None: no claim.

    Two requirements that pin the toolkit to different releases claim nothing.
    """
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415 - as above
    from packaging.utils import canonicalize_name  # noqa: PLC0415 - as above

    if label := _CUDA_LABEL.search(version.partition("+")[2]):
        return f"{int(label['major'])}.{label['minor']}"
    pins = set()
    for text in requires_dist:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if canonicalize_name(requirement.name) == toolkit:
            pins |= {one.version for one in requirement.specifier if one.operator == "=="}
    return pins.pop() if len(pins) == 1 else None


def group_units(library: LibraryMeasurement) -> MeasuredLibrary:
    """The same measurement with units of equal images in one group, in a fixed order."""
    names: dict[tuple[ImageArch, ...], list[str]] = defaultdict(list)
    unnamed: dict[tuple[ImageArch, ...], int] = defaultdict(int)
    for unit in library.units:
        images = tuple(sorted(unit.images, key=lambda image: (image.kind == "ptx", image.sm, image.suffix)))
        if unit.name is None:
            unnamed[images] += 1
        else:
            names[images].append(unit.name)
    groups = [
        UnitGroup(images=images, names=tuple(sorted(names.get(images, []))), unnamed=unnamed.get(images, 0))
        for images in {**names, **unnamed}
    ]
    return MeasuredLibrary(
        path=library.path,
        needed=library.needed,
        glibc=library.glibc,
        groups=tuple(sorted(groups, key=lambda group: tuple(map(str, group.images)))),
    )
