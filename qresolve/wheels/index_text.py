"""The text of the wheel index: strictly parsed, and dumped byte for byte as it was."""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from qresolve.arch import ImageArch, parse_image_arch
from qresolve.errors import DataInvalid
from qresolve.strict import Table
from qresolve.wheels.index_rows import (
    Declared,
    Measured,
    MeasuredLibrary,
    MeasuredTool,
    ToolkitRelease,
    UnitGroup,
    WheelRow,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SCHEMA = "qresolve.wheel_index/2"
TOOLKIT_SCHEMA = "qresolve.cuda_toolkit/1"
TOOLKIT_PROJECT = "cuda-toolkit"

_SHA256 = re.compile(r"[0-9a-f]{64}")
_RECORD = re.compile(r"sha256:[0-9a-f]{64}")


def decode(text: str, *, file: str) -> Any:
    """The values of a file's JSON.

    Raises:
        DataInvalid: it is none.
    """
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataInvalid(f"{file}: not valid JSON: {error}") from error


def _document(text: str, *, file: str, schema: str) -> Table:
    return _table(decode(text, file=file), file=file, schema=schema)


def _table(values: Any, *, file: str, schema: str) -> Table:
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
        row = _parse_row_of(table, project)
        if row.sha256 in rows:
            raise table.fail("sha256", "stands twice")
        rows[row.sha256] = row
    document.done()
    return tuple(rows.values())


def parse_some_rows(values: Any, *, file: str, key: str, wanted: Callable[[str], bool]) -> tuple[WheelRow, ...]:
    """The rows of a decoded file whose text under ``key`` is ``wanted``; only these are looked at closely.

    Files hold every release that there are records of, and a question is about one: reading all of them strictly would
    take longer than answering. The tests read all.

    Raises:
        DataInvalid: as :func:`parse_wheel_index`, for the rows that are taken.
    """
    document = _table(values, file=file, schema=SCHEMA)
    project = document.text("project")
    return tuple(_parse_row_of(row, project) for row in document.tables("rows") if wanted(row.text(key)))


def _parse_row_of(table: Table, project: str) -> WheelRow:
    row = _parse_row(table)
    if row.name != project:
        raise table.fail("name", f"is {row.name!r} in the file of {project!r}")
    return row


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
    tools: tuple[MeasuredTool, ...] | None = None
    if "tools" in table:
        tools = tuple(_parse_tool(tool) for tool in table.tables("tools"))
    measured = Measured(record=_matching(table, "record", _RECORD), libraries=libraries, tools=tools)
    table.done()
    return measured


def _parse_library(table: Table) -> MeasuredLibrary:
    library = MeasuredLibrary(
        path=table.text("path"),
        needed=table.texts("needed"),
        glibc=table.optional_text("glibc"),
        groups=tuple(_parse_group(group) for group in table.tables("groups")),
        compilers=table.texts("compilers", ()),
    )
    table.done()
    return library


def _parse_tool(table: Table) -> MeasuredTool:
    tool = MeasuredTool(
        path=table.text("path"),
        release=table.text("release"),
        archs=tuple(_parse_image(table, "archs", text) for text in table.texts("archs")),
    )
    table.done()
    return tool


def _parse_group(table: Table) -> UnitGroup:
    images = tuple(_parse_image(table, key, text) for key in ("images", "ptx") for text in table.texts(key, ()))
    group = UnitGroup(
        images=images,
        instructions=_parse_instructions(table, images),
        names=table.texts("names", ()),
        unnamed=table.whole("unnamed", 0),
        families=table.texts("families", ()),
    )
    table.done()
    return group


def _parse_instructions(
    table: Table, images: tuple[ImageArch, ...]
) -> tuple[tuple[ImageArch, tuple[str, ...] | None], ...] | None:
    held = table.optional_table("instructions")
    if held is None:
        return None
    found = []
    for key in held.keys():  # noqa: SIM118 - a Table is no mapping
        image = _parse_image(held, key, key, kind="sass")
        if image not in images:
            raise held.fail(key, "is no image of this group")
        found.append((image, None if held.is_null(key) else held.texts(key)))
    held.done()
    return tuple(found)


def _parse_image(table: Table, key: str, text: str, *, kind: str | None = None) -> ImageArch:
    try:
        image = _image(text)
    except ValueError as error:
        raise table.fail(key, str(error)) from error
    if image.kind != (kind or ("ptx" if key == "ptx" else "sass")):
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


def row_digest(row: WheelRow) -> str:
    """The digest of all that a row says, claims and measurements."""
    return f"sha256:{hashlib.sha256(dump_wheel_index(row.name, [row]).encode()).hexdigest()}"


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
        if row.measured.tools is not None:
            values["measured"]["tools"] = [
                {"path": tool.path, "release": tool.release, "archs": [str(arch) for arch in tool.archs]}
                for tool in row.measured.tools
            ]
    return values


def _library_values(library: MeasuredLibrary) -> dict[str, Any]:
    values: dict[str, Any] = {"path": library.path, "needed": list(library.needed)}
    if library.glibc is not None:
        values["glibc"] = library.glibc
    if library.compilers:
        values["compilers"] = list(library.compilers)
    values["groups"] = [_group_values(group) for group in library.groups]
    return values


def _group_values(group: UnitGroup) -> dict[str, Any]:
    values: dict[str, Any] = {"images": [str(image) for image in group.images if image.kind == "sass"]}
    if ptx := [str(image) for image in group.images if image.kind == "ptx"]:
        values["ptx"] = ptx
    if group.instructions is not None:
        values["instructions"] = {
            str(image): None if names is None else list(names) for image, names in group.instructions
        }
    if group.names:
        values["names"] = list(group.names)
    if group.unnamed:
        values["unnamed"] = group.unnamed
    if group.families:
        values["families"] = list(group.families)
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
