"""The wheel index: what is known of each release's wheels, declared and measured apart.

*Declared* is what file name, METADATA and index say. *Measured* is what was read in the wheel itself. A
missing measurement is unknown, never empty: :func:`images_of` answers None for it.

The files are generated (``python -m qresolve.wheels.generate``) and strictly read. Units with the same images share
one group, which keeps a release small.
"""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from qresolve.data import data_folder
from qresolve.errors import DataInvalid
from qresolve.wheels.index_text import (
    TOOLKIT_PROJECT,
    decode,
    parse_cuda_toolkits,
    parse_some_rows,
    parse_wheel_index,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from qresolve.arch import ImageArch
    from qresolve.machine_code.instructions import Product
    from qresolve.wheels.index_rows import MeasuredLibrary, ToolkitRelease, UnitGroup, WheelRow

EVERY_UNIT = "*"
EVERY_UNIT_SPECIFIC = "*.specific"


ANY_UNIT = "*.any"
"""Stands for the whole library: what some unit of it holds. Where even that does not load, nothing of it does."""


def images_of(
    row: WheelRow, library: str, unit: str, *, product: Product | None = None
) -> tuple[ImageArch, ...] | None:
    """As :func:`images_of_unit`, of the library at that path in a wheel; None where it was not measured."""
    measured = _library(row, library)
    return None if measured is None else images_of_unit(measured, unit, product=product)


def images_of_unit(
    measured: MeasuredLibrary, unit: str, *, product: Product | None = None
) -> tuple[ImageArch, ...] | None:
    """The images of ``unit`` in a measured library.

    None: the library has units without names, one of which may be it: unknown. An empty tuple: nothing is there. Of
    several units with that name only what all of them hold. The unit ``*.any`` is any unit, with or without a name.

    ``*`` is every unit of a library whose units all have the same images (of others it is unknown), so it can be
    asked of stripped ones too; ``*.specific`` leaves out images without the suffix ``a`` or ``f``, in which there can
    be no instruction that only an exact part or a family has.

    With ``product`` an image of machine code counts only if an instruction of that product stands in it: one that
    loads and has none is a shell (the sm_120 image of a kernel written for sm_100 alone). Where the instructions were
    not read, that is unknown; an image of a generation whose instructions cannot be read does not count.
    """
    if unit in (EVERY_UNIT, EVERY_UNIT_SPECIFIC):
        if len({group.images for group in measured.groups}) != 1:
            return None
        return tuple(image for image in measured.groups[0].images if image.suffix or unit == EVERY_UNIT)
    if unit == ANY_UNIT:
        return tuple(dict.fromkeys(image for group in measured.groups for image in group.images))
    groups = [group for group in measured.groups if unit in group.names]
    if not groups:
        return None if any(group.unnamed for group in measured.groups) else ()
    if product is not None and any(group.instructions is None for group in groups):
        return None
    found = [group.images if product is None else _with_product(group, product) for group in groups]
    return tuple(image for image in found[0] if all(image in images for images in found))


def _with_product(group: UnitGroup, product: Product) -> tuple[ImageArch, ...]:
    held = dict(group.instructions or ())
    return tuple(image for image in group.images if image.kind == "ptx" or product.among(held.get(image, ()) or ()))


def units(row: WheelRow, library: str) -> tuple[str, ...] | None:
    """The names of the units of ``library``, sorted, each once; None where it was not measured."""
    measured = _library(row, library)
    if measured is None:
        return None
    return tuple(sorted({name for group in measured.groups for name in group.names}))


def _library(row: WheelRow, path: str) -> MeasuredLibrary | None:
    if row.measured is None or row.measured.libraries is None:
        return None
    return next((library for library in row.measured.libraries if library.path == path), None)


@cache
def read_wheel_index(name: str) -> tuple[WheelRow, ...]:
    """The rows of the project ``name``; none where the index does not know it.

    Raises:
        DataInvalid: the file is wrong, with file and path.
    """
    path = _path(name)
    return parse_wheel_index(_read_text(path), file=path.name) if path is not None else ()


@cache
def read_rows_of_release(name: str, version: str) -> tuple[WheelRow, ...]:
    """The rows of one release of the project ``name``; none where the index does not know it.

    Raises:
        DataInvalid: the file is wrong, with file and path.
    """
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 - keeps this module's import fast

    wanted = Version(version)

    def same(text: str) -> bool:
        try:
            return text == version or Version(text) == wanted
        except InvalidVersion:
            return False

    return parse_some_rows(_decoded(name), file=f"{name}.json", key="version", wanted=same) if _path(name) else ()


@cache
def read_row_of_wheel(name: str, sha256: str) -> WheelRow | None:
    """The row of exactly one file; None: it was never looked at, whatever its name says.

    Raises:
        DataInvalid: the file is wrong, with file and path.
    """
    if not _path(name):
        return None
    found = parse_some_rows(_decoded(name), file=f"{name}.json", key="sha256", wanted=sha256.__eq__)
    return found[0] if found else None


def _path(name: str) -> Path | None:
    path = data_folder("wheel_index") / f"{name}.json"
    return path if path.is_file() else None


@cache
def _decoded(name: str) -> Any:
    path = data_folder("wheel_index") / f"{name}.json"
    return decode(_read_text(path), file=path.name)


@cache
def read_cuda_toolkits() -> tuple[ToolkitRelease, ...]:
    """Every known release of the toolkit, oldest first.

    Raises:
        DataInvalid: the file is wrong or missing.
    """
    path = data_folder("wheel_index") / f"{TOOLKIT_PROJECT}.json"
    return parse_cuda_toolkits(_read_text(path), file=path.name)


def cuda_toolkit_pins(release: str) -> Mapping[str, str] | None:
    """Package → specifier of every part of one toolkit release; None: the release is unknown.

    Most are pins (``==13.0.96.*``), but not all: later patch releases ask for a range of nvjitlink only.
    Where extras differ about a package, all their specifiers hold. ``release`` is compared as a version:
    ``13.0.3`` finds the metapackage's ``13.0.3.0``.

    Raises:
        DataInvalid: the file is wrong or missing.
    """
    from packaging.version import Version  # noqa: PLC0415 - keeps this module's import fast

    wanted = Version(release)
    for known in read_cuda_toolkits():
        if Version(known.version) == wanted:
            specifiers: dict[str, set[str]] = {}
            for _, package, specifier in known.parts:
                specifiers.setdefault(package, set()).add(specifier)
            return MappingProxyType({package: ",".join(sorted(all_)) for package, all_ in specifiers.items()})
    return None


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataInvalid(f"{path.name}: cannot be read: {error}") from error
