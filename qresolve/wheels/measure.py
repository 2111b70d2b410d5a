"""From an opened wheel to its row: METADATA and names become claims, what was read becomes measurements."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from qresolve.arch import parse_image_arch
from qresolve.errors import Unproved
from qresolve.machine_code.families import read_families
from qresolve.machine_code.scan import BinaryScan, scan_binary
from qresolve.wheels.index_rows import Declared, Measured, MeasuredLibrary, MeasuredTool, UnitGroup
from qresolve.wheels.record import encode_digest, parse_record, record_digest
from qresolve.wheels.remote import WheelInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qresolve.arch import ImageArch
    from qresolve.machine_code.families import Families
    from qresolve.machine_code.scan import UnitScan
    from qresolve.wheels.remote import WheelSource

    _Held = tuple[tuple[ImageArch, ...], tuple[tuple[ImageArch, tuple[str, ...] | None], ...] | None, tuple[str, ...]]

# As ptxas prints for --version: "Cuda compilation tools, release 12.9, V12.9.86".
_TOOL_RELEASE = re.compile(rb"release \d+\.\d+, V(\d+\.\d+\.\d+)")
_NOTED_RELEASE = re.compile(r"\bV(\d+\.\d+\.\d+)\b")
_TOOL_ARCH = re.compile(rb"\bsm_\d{2,3}[af]?\b")
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


def read_measured(
    wheel: WheelSource,
    *,
    libraries: tuple[str, ...] | None,
    tools: tuple[str, ...] | None = None,
    cubins: tuple[str, ...] | None = None,
    most_compressed: int = 0,
) -> Measured:
    """RECORD's digest and, where patterns are given, the libraries and compilers that match them, by path.

    ``cubins`` are loose cubins; those of one folder count as one library of units without names.

    A member of more than ``most_compressed`` bytes in the wheel is left out, that is: unknown.

    Raises:
        WheelInvalid: a member cannot be read.
        ElfInvalid: a matching member is no library.
        FatbinInvalid: its GPU images cannot be read.
    """
    names = wheel.member_names()
    record = parse_record(wheel.read_member(dist_info_member(names, "RECORD")).decode("utf-8", "strict"))
    digests = {row.path: row.sha256 for row in record}

    def paths(patterns: tuple[str, ...]) -> list[str]:
        return sorted(
            name
            for name in names
            if any(fnmatchcase(name, one) for one in patterns) and wheel.compressed_size(name) <= most_compressed
        )

    found: tuple[MeasuredLibrary, ...] | None = None
    if libraries is not None or cubins is not None:
        found = (
            *(_read_library(wheel, path, digests.get(path)) for path in paths(libraries or ())),
            *_read_cubins(wheel, tuple(name for name in names if any(fnmatchcase(name, one) for one in cubins or ()))),
        )
    return Measured(
        record=record_digest(record),
        libraries=found,
        tools=None if tools is None else tuple(parse_tool(wheel.read_member(path), path=path) for path in paths(tools)),
    )


def _read_cubins(wheel: WheelSource, paths: tuple[str, ...]) -> Iterator[MeasuredLibrary]:
    """Loose cubins, those of one folder together. A cubin's own header has no suffix; its compiler's note has."""
    folders: dict[str, list[UnitScan]] = defaultdict(list)
    for path in sorted(paths):
        scan = scan_binary(wheel.read_member(path), path=path, wanted=lambda images: images)
        folders[path.rpartition("/")[0]] += scan.units
    for folder, units in sorted(folders.items()):
        yield group_units(
            BinaryScan(path=f"{folder}/*.cubin", kind="cubin", size=0, units=tuple(units)), read_families()
        )


def _read_library(wheel: WheelSource, path: str, recorded: str | None) -> MeasuredLibrary:
    """Ranges of a wheel cannot be held against its sha256; RECORD, whose digest the row keeps, binds the library."""
    data = wheel.read_buffer(path)
    if recorded is not None and encode_digest(hashlib.sha256(data).digest()) != recorded:
        raise WheelInvalid(f"{path}: its sha256 is not the one in RECORD")
    return group_units(scan_binary(data, path=path, wanted=lambda images: images), read_families())


def parse_tool(data: bytes, *, path: str) -> MeasuredTool:
    """What a compiler's executable says of itself: its release, and every arch whose name stands in it.

    Raises:
        Unproved: no release, or several.
    """
    releases = {match[1].decode() for match in _TOOL_RELEASE.finditer(data)}
    if len(releases) != 1:
        raise Unproved(f"{path}: {len(releases)} releases stand in it, not 1")
    archs = {parse_image_arch(match[0].decode()) for match in _TOOL_ARCH.finditer(data)}
    return MeasuredTool(path=path, release=releases.pop(), archs=tuple(sorted(archs)))


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


def group_units(library: BinaryScan, families: Families) -> MeasuredLibrary:
    """The same measurement with units of equal images and instructions in one group, in a fixed order.

    Counts are left out: how often an instruction stands somewhere says nothing.
    """
    names: dict[_Held, list[str]] = defaultdict(list)
    unnamed: dict[_Held, int] = defaultdict(int)
    # Relocatable code is left out: as long as a linked image fits it is not used, and what is linked is not seen.
    for unit in library.loaded:
        images = tuple(sorted(unit.archs, key=lambda image: (image.kind == "ptx", image.sm, image.suffix)))
        held = (images, _instructions(unit), () if unit.name is not None else _families(library, unit, families))
        if unit.name is None:
            unnamed[held] += 1
        else:
            names[held].append(unit.name)
    groups = [
        UnitGroup(
            images=held[0],
            instructions=held[1],
            families=held[2],
            names=tuple(sorted(names.get(held, []))),
            unnamed=unnamed.get(held, 0),
        )
        for held in {**names, **unnamed}
    ]
    return MeasuredLibrary(
        path=library.path,
        needed=library.needed,
        glibc=library.glibc,
        groups=tuple(sorted(groups, key=_group_order)),
        compilers=_compilers(library),
    )


def _compilers(library: BinaryScan) -> tuple[str, ...]:
    found = {
        match[1]
        for unit in library.units
        for image in unit.images
        if image.tool is not None and (match := _NOTED_RELEASE.search(image.tool))
    }
    return tuple(sorted(found, key=lambda text: tuple(map(int, text.split(".")))))


def _instructions(unit: UnitScan) -> tuple[tuple[ImageArch, tuple[str, ...] | None], ...] | None:
    found: dict[ImageArch, set[str] | None] = {}
    for image in unit.images:
        if image.arch.kind == "ptx":
            continue
        held = found.setdefault(image.arch, set())
        found[image.arch] = None if held is None or image.instructions is None else held | set(image.instructions)
    if found and all(held is None for held in found.values()):
        return None
    return tuple(
        (arch, None if held is None else tuple(sorted(held)))
        for arch, held in sorted(found.items())
        if held is None or held
    )


def _families(library: BinaryScan, unit: UnitScan, families: Families) -> tuple[str, ...]:
    kernels = {name for image in unit.images for name in image.kernels or ()}
    return tuple(family.id for family in families.of(path=library.path, unit=None, kernels=sorted(kernels)))


def _group_order(group: UnitGroup) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    return tuple(map(str, group.images)), str(group.instructions), group.names
