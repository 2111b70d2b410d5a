"""The wheel index: what is known of each release's wheels, declared and measured apart.

*Declared* is what file name, METADATA and index say. *Measured* is what was read in the wheel itself. A
missing measurement is unknown, never empty: :func:`images_of` answers None for it.

The files are generated (``python -m qresolve.wheels.generate``), strictly read, and dumped byte for byte
as they were. Units with the same images share one group, which keeps a release small.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from qresolve.arch import ImageArch, parse_image_arch
from qresolve.data import data_folder
from qresolve.errors import DataInvalid
from qresolve.strict import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

SCHEMA = "qresolve.wheel_index/1"
TOOLKIT_SCHEMA = "qresolve.cuda_toolkit/1"
TOOLKIT_PROJECT = "cuda-toolkit"

_SHA256 = re.compile(r"[0-9a-f]{64}")
_RECORD = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitGroup:
    """Translation units that hold the same images.

    ``names`` sorted, a name as often as units have it; ``unnamed`` counts those of a stripped library.
    """

    images: tuple[ImageArch, ...]
    names: tuple[str, ...] = ()
    unnamed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLibrary:
    """One shared library that was read. ``glibc`` is the newest version asked for, None where none is."""

    path: str
    needed: tuple[str, ...]
    glibc: str | None
    groups: tuple[UnitGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """Claims. ``cuda`` as claimed (``13.0`` from a local label, ``13.0.3`` from a pin); None: no claim."""

    requires_python: str | None
    requires_dist: tuple[str, ...]
    upload_time: str | None
    cuda: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Observations. ``record``: digest of RECORD. ``libraries`` None: none was looked at."""

    record: str
    libraries: tuple[MeasuredLibrary, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelRow:
    """One wheel; ``sha256`` is its key, ``size`` in bytes, ``index`` the name of the index, not its URL."""

    filename: str
    name: str
    version: str
    size: int
    sha256: str
    index: str
    declared: Declared
    measured: Measured | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolkitRelease:
    """One release of the CUDA toolkit's metapackage.

    ``parts``: (extra, package, specifier) as METADATA has it, sorted; markers are left out, as a
    specifier is used as a constraint and constrains nothing that is not installed.
    """

    version: str
    filename: str
    sha256: str
    parts: tuple[tuple[str, str, str], ...]


EVERY_UNIT = "*"
EVERY_UNIT_SPECIFIC = "*.specific"


ANY_UNIT = "*.any"
"""Stands for the whole library: what some unit of it holds. Where even that does not load, nothing of it does."""


def images_of(row: WheelRow, library: str, unit: str) -> tuple[ImageArch, ...] | None:
    """The images of ``unit`` in ``library`` (its path in the wheel).

    None: not measured, or the library has units without names, one of which may be it: unknown. An empty
    tuple: measured, and nothing is there. Of several units with that name only what all of them hold. The unit
    ``*.any`` is any unit, with or without a name.

    ``*`` is every unit of a library whose units all have the same images (of others it is unknown), so it can be
    asked of stripped ones too; ``*.specific`` leaves out images without the suffix ``a`` or ``f``, in which there can
    be no instruction that only an exact part or a family has.
    """
    measured = _library(row, library)
    if measured is None:
        return None
    if unit in (EVERY_UNIT, EVERY_UNIT_SPECIFIC):
        if len(measured.groups) != 1:
            return None
        return tuple(image for image in measured.groups[0].images if image.suffix or unit == EVERY_UNIT)
    if unit == ANY_UNIT:
        return tuple(dict.fromkeys(image for group in measured.groups for image in group.images))
    found = [group.images for group in measured.groups if unit in group.names]
    if not found:
        return None if any(group.unnamed for group in measured.groups) else ()
    return tuple(image for image in found[0] if all(image in images for images in found))


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
    path = data_folder("wheel_index") / f"{name}.json"
    return parse_wheel_index(_read_text(path), file=path.name) if path.is_file() else ()


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


def _document(text: str, *, file: str, schema: str) -> Table:
    try:
        values = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataInvalid(f"{file}: not valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise DataInvalid(f"{file}: must be an object")
    document = Table(values, file=file)
    document.choice("schema", (schema,))
    return document


def parse_wheel_index(text: str, *, file: str) -> tuple[WheelRow, ...]:
    """Read the text of one project's file.

    Raises:
        DataInvalid: unknown or missing keys, a wrong type, two rows with one sha256.
    """
    document = _document(text, file=file, schema=SCHEMA)
    project = document.text("project")
    rows: dict[str, WheelRow] = {}
    for table in document.tables("rows"):
        row = _parse_row(table)
        if row.name != project:
            raise table.fail("name", f"is {row.name!r} in the file of {project!r}")
        if row.sha256 in rows:
            raise table.fail("sha256", "stands twice")
        rows[row.sha256] = row
    document.done()
    return tuple(rows.values())


def _parse_row(table: Table) -> WheelRow:
    declared = table.table("declared")
    measured = table.optional_table("measured")
    row = WheelRow(
        filename=table.text("filename"),
        name=table.text("name"),
        version=table.text("version"),
        size=table.whole("size"),
        sha256=_matching(table, "sha256", _SHA256),
        index=table.text("index"),
        declared=Declared(
            requires_python=declared.optional_text("requires_python"),
            requires_dist=declared.texts("requires_dist"),
            upload_time=declared.optional_text("upload_time"),
            cuda=declared.optional_text("cuda"),
        ),
        measured=None if measured is None else _parse_measured(measured),
    )
    declared.done()
    table.done()
    return row


def _parse_measured(table: Table) -> Measured:
    libraries: tuple[MeasuredLibrary, ...] | None = None
    if "libraries" in table:
        libraries = tuple(_parse_library(library) for library in table.tables("libraries"))
    measured = Measured(record=_matching(table, "record", _RECORD), libraries=libraries)
    table.done()
    return measured


def _parse_library(table: Table) -> MeasuredLibrary:
    library = MeasuredLibrary(
        path=table.text("path"),
        needed=table.texts("needed"),
        glibc=table.optional_text("glibc"),
        groups=tuple(_parse_group(group) for group in table.tables("groups")),
    )
    table.done()
    return library


def _parse_group(table: Table) -> UnitGroup:
    group = UnitGroup(
        names=table.texts("names", ()),
        unnamed=table.whole("unnamed", 0),
        images=tuple(_parse_image(table, key, text) for key in ("images", "ptx") for text in table.texts(key, ())),
    )
    table.done()
    return group


def _parse_image(table: Table, key: str, text: str) -> ImageArch:
    try:
        image = _image(text)
    except ValueError as error:
        raise table.fail(key, str(error)) from error
    if (image.kind == "ptx") != (key == "ptx"):
        raise table.fail(key, f"{text} does not belong here")
    return image


_image = cache(parse_image_arch)


def _matching(table: Table, key: str, pattern: re.Pattern[str]) -> str:
    value = table.text(key)
    if not pattern.fullmatch(value):
        raise table.fail(key, f"{value!r} does not look like {pattern.pattern}")
    return value


def parse_cuda_toolkits(text: str, *, file: str) -> tuple[ToolkitRelease, ...]:
    """Read the text of the toolkit's file.

    Raises:
        DataInvalid: unknown or missing keys, or a wrong type.
    """
    document = _document(text, file=file, schema=TOOLKIT_SCHEMA)
    document.choice("project", (TOOLKIT_PROJECT,))
    releases = []
    for table in document.tables("releases"):
        extras = table.table("parts")
        parts = []
        for extra in extras.keys():  # noqa: SIM118 - a Table is no mapping
            packages = extras.table(extra)
            parts += [(extra, package, packages.text(package)) for package in packages.keys()]  # noqa: SIM118
        releases.append(
            ToolkitRelease(
                version=table.text("version"),
                filename=table.text("filename"),
                sha256=_matching(table, "sha256", _SHA256),
                parts=tuple(parts),
            )
        )
        table.done()
    document.done()
    return tuple(releases)


def dump_wheel_index(project: str, rows: Iterable[WheelRow]) -> str:
    """The text of one project's file; :func:`parse_wheel_index` gives the same rows again."""
    return _dump({"schema": SCHEMA, "project": project, "rows": [_row_values(row) for row in rows]})


def _row_values(row: WheelRow) -> dict[str, Any]:
    declared = {
        "cuda": row.declared.cuda,
        "requires_dist": list(row.declared.requires_dist),
        "requires_python": row.declared.requires_python,
        "upload_time": row.declared.upload_time,
    }
    values: dict[str, Any] = {
        "filename": row.filename,
        "name": row.name,
        "version": row.version,
        "size": row.size,
        "sha256": row.sha256,
        "index": row.index,
        "declared": {key: value for key, value in declared.items() if value is not None},
    }
    if row.measured is not None:
        values["measured"] = {"record": row.measured.record}
        if row.measured.libraries is not None:
            values["measured"]["libraries"] = [_library_values(one) for one in row.measured.libraries]
    return values


def _library_values(library: MeasuredLibrary) -> dict[str, Any]:
    values: dict[str, Any] = {"path": library.path, "needed": list(library.needed)}
    if library.glibc is not None:
        values["glibc"] = library.glibc
    values["groups"] = [_group_values(group) for group in library.groups]
    return values


def _group_values(group: UnitGroup) -> dict[str, Any]:
    values: dict[str, Any] = {"images": [str(image) for image in group.images if image.kind == "sass"]}
    if ptx := [str(image) for image in group.images if image.kind == "ptx"]:
        values["ptx"] = ptx
    if group.names:
        values["names"] = list(group.names)
    if group.unnamed:
        values["unnamed"] = group.unnamed
    return values


def dump_cuda_toolkits(releases: Iterable[ToolkitRelease]) -> str:
    """The text of the toolkit's file; :func:`parse_cuda_toolkits` gives the same releases again."""
    values = []
    for release in releases:
        parts: dict[str, dict[str, str]] = {}
        for extra, package, specifier in release.parts:
            parts.setdefault(extra, {})[package] = specifier
        values.append(
            {
                "version": release.version,
                "filename": release.filename,
                "sha256": release.sha256,
                "parts": parts,
            }
        )
    return _dump({"schema": TOOLKIT_SCHEMA, "project": TOOLKIT_PROJECT, "releases": values})


def _dump(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=1, ensure_ascii=True) + "\n"
