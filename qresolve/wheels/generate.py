"""Write ``wheel_index/`` from ``sources.toml`` and the index that pip is set up with.

    python -m qresolve.wheels.generate [--check] [--only PROJECT] [--shrink]

``--check`` reads everything again and compares instead of writing. A file is never replaced by one with
fewer rows unless ``--shrink`` says so: an index that answers in part must not delete knowledge.
Tests do not come here; the network test checks one small project.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import re
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from qresolve.data import data_folder
from qresolve.errors import DataInvalid, QResolveError, Stale, Unproved
from qresolve.strict import read_toml
from qresolve.wheels.index_rows import ToolkitRelease, WheelRow
from qresolve.wheels.index_text import TOOLKIT_PROJECT, dump_cuda_toolkits, dump_wheel_index
from qresolve.wheels.measure import read_declared, read_measured
from qresolve.wheels.pip_index import open_pip_index

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from qresolve.strict import Table
    from qresolve.wheels.pip_index import IndexFile, PackageIndex

_MANIFEST = "MANIFEST.toml"
_SOURCES = "sources.toml"
_EXTRA = re.compile(r"extra == [\"']([^\"']+)[\"']")


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelRequest:
    """One ``[[wheel]]`` of sources.toml; what is None was not asked for."""

    project: str
    versions: tuple[str, ...]
    machines: tuple[str, ...]
    tags: tuple[str, ...] | None
    libraries: tuple[str, ...] | None
    tools: tuple[str, ...] | None
    cubins: tuple[str, ...] | None
    most_compressed: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """sources.toml."""

    index: str
    toolkit: str
    wheels: tuple[WheelRequest, ...]
    toolkit_versions: tuple[str, ...]

    @property
    def projects(self) -> tuple[str, ...]:
        """Every project with a file of its own, sorted."""
        return tuple(sorted({request.project for request in self.wheels} | {self.toolkit}))


def parse_sources(table: Table) -> Sources:
    """Read sources.toml.

    Raises:
        DataInvalid: unknown or missing keys.
    """
    table.check_schema(1)
    wheels = []
    for entry in table.tables("wheel"):
        wheels.append(
            WheelRequest(
                project=entry.text("project"),
                versions=entry.texts("versions"),
                machines=entry.texts("machines"),
                tags=entry.texts("tags") if "tags" in entry else None,
                libraries=entry.texts("libraries") if "libraries" in entry else None,
                tools=entry.texts("tools") if "tools" in entry else None,
                cubins=entry.texts("cubins") if "cubins" in entry else None,
                most_compressed=entry.whole("most_compressed", 0),
                why=entry.text("why"),
            )
        )
        entry.done()
    toolkit = table.table("cuda_toolkit")
    toolkit.choice("project", (TOOLKIT_PROJECT,))
    toolkit.text("why")
    sources = Sources(
        index=table.text("index"),
        toolkit=table.text("toolkit"),
        wheels=tuple(wheels),
        toolkit_versions=toolkit.texts("versions"),
    )
    toolkit.done()
    table.done()
    return sources


def select_files(
    files: tuple[IndexFile, ...],
    *,
    version: str,
    machines: tuple[str, ...],
    tags: tuple[str, ...] | None,
) -> tuple[IndexFile, ...]:
    """The Linux (glibc) wheels of ``version`` for ``machines`` and ``tags``, by file name."""
    from packaging.utils import parse_wheel_filename  # noqa: PLC0415 - with the network only
    from packaging.version import Version  # noqa: PLC0415 - as above

    found = []
    for file in files:
        _, file_version, _, file_tags = parse_wheel_filename(file.filename)
        if file_version != Version(version):
            continue
        platforms = {tag.platform for tag in file_tags}
        fits = "any" in platforms or any(
            platform.startswith(("manylinux", "linux")) and platform.endswith(f"_{machine}")
            for platform in platforms
            for machine in machines
        )
        if fits and (tags is None or any(f"{tag.interpreter}-{tag.abi}" in tags for tag in file_tags)):
            found.append(file)
    return tuple(sorted(found, key=lambda file: file.filename))


def read_rows(index: PackageIndex, sources: Sources, project: str) -> tuple[WheelRow, ...]:
    """Read every wheel of ``project`` that sources.toml asks for, sorted by version and file name.

    Raises:
        Unproved: a release that is asked for has no wheel there, or a wheel cannot be read.
    """
    from packaging.version import Version  # noqa: PLC0415 - with the network only

    files = index.wheels(project)
    rows = []
    for request in sources.wheels:
        if request.project != project:
            continue
        for version in request.versions:
            chosen = select_files(files, version=version, machines=request.machines, tags=request.tags)
            if not chosen:
                raise Unproved(f"no wheel of {project} {version} for {', '.join(request.machines)}")
            rows += [_read_row(index, sources, request, version, file) for file in chosen]
    return tuple(sorted(rows, key=lambda row: (Version(row.version), row.filename)))


def reread_row(index: PackageIndex, sources: Sources, row: WheelRow) -> WheelRow:
    """The row as it would be written now, of exactly the same file.

    Raises:
        Unproved: the file is no longer there, sources.toml does not ask for it, or it cannot be read.
    """
    files = tuple(file for file in index.wheels(row.name) if file.sha256 == row.sha256)
    for request in sources.wheels:
        if request.project == row.name and row.version in request.versions:
            for file in select_files(files, version=row.version, machines=request.machines, tags=request.tags):
                return _read_row(index, sources, request, row.version, file)
    raise Unproved(f"{row.filename} is not on the index, or sources.toml does not ask for it")


def _read_row(index: PackageIndex, sources: Sources, request: WheelRequest, version: str, file: IndexFile) -> WheelRow:
    print(f"reading {file.filename}", file=sys.stderr)
    with index.whole_wheel(file) if request.cubins is not None else nullcontext(index.open_wheel(file)) as wheel:
        return WheelRow(
            filename=file.filename,
            name=request.project,
            version=version,
            size=wheel.size,
            sha256=file.sha256,
            index=sources.index,
            declared=read_declared(wheel, toolkit=sources.toolkit, upload_time=file.upload_time),
            measured=read_measured(
                wheel,
                libraries=request.libraries,
                tools=request.tools,
                cubins=request.cubins,
                most_compressed=request.most_compressed,
            ),
        )


def read_toolkit_releases(index: PackageIndex, sources: Sources) -> tuple[ToolkitRelease, ...]:
    """Read the parts of every toolkit release that sources.toml asks for, oldest first.

    Raises:
        Unproved: a release is not there or cannot be read.
    """
    from packaging.version import Version  # noqa: PLC0415 - with the network only

    files = index.wheels(sources.toolkit)
    releases = []
    for version in sorted(sources.toolkit_versions, key=Version):
        chosen = select_files(files, version=version, machines=(), tags=None)
        if len(chosen) != 1:
            raise Unproved(f"{len(chosen)} wheels of {sources.toolkit} {version}, not 1")
        wheel = index.open_wheel(chosen[0])
        declared = read_declared(wheel, toolkit=sources.toolkit, upload_time=None)
        releases.append(
            ToolkitRelease(
                version=version,
                filename=chosen[0].filename,
                sha256=chosen[0].sha256,
                parts=parse_toolkit_parts(declared.requires_dist),
            )
        )
    return tuple(releases)


def parse_toolkit_parts(requires_dist: tuple[str, ...]) -> tuple[tuple[str, str, str], ...]:
    """(extra, package, specifier) of each part, sorted; the extra that only repeats the others is left out.

    Raises:
        Unproved: a requirement that is not for exactly one extra.
    """
    from packaging.requirements import Requirement  # noqa: PLC0415 - with the network only
    from packaging.utils import canonicalize_name  # noqa: PLC0415 - as above

    parts: dict[str, set[tuple[str, str]]] = {}
    for text in requires_dist:
        requirement = Requirement(text)
        extras = _EXTRA.findall(str(requirement.marker or ""))
        if len(set(extras)) != 1:
            raise Unproved(f"{text!r} is not a part of one extra")
        package = (canonicalize_name(requirement.name), str(requirement.specifier))
        parts.setdefault(extras[0], set()).add(package)
    # One extra holds all the others' parts for convenience; of it stays what no other extra has.
    everything = {package for packages in parts.values() for package in packages}
    whole = min((extra for extra, packages in parts.items() if packages == everything), default=None)
    if whole is not None and len(parts) > 1:
        others = {package for extra, packages in parts.items() if extra != whole for package in packages}
        parts[whole] = everything - others
    return tuple(sorted((extra, *package) for extra, packages in parts.items() for package in packages))


def read_file_text(index: PackageIndex, sources: Sources, project: str) -> tuple[str, int]:
    """The text of ``wheel_index/<project>.json`` as it would be now, and its number of rows."""
    if project == sources.toolkit:
        releases = read_toolkit_releases(index, sources)
        return dump_cuda_toolkits(releases), len(releases)
    rows = read_rows(index, sources, project)
    return dump_wheel_index(project, rows), len(rows)


def check_row_count(project: str, *, before: int, after: int) -> None:
    """Refuse fewer rows than before.

    Raises:
        DataInvalid: there are fewer.
    """
    if after < before:
        raise DataInvalid(
            f"{project}: {after} rows instead of {before}; nothing was written",
            hint=f"python -m qresolve.wheels.generate --only {project} --shrink",
        )


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ManifestFile:
    """One generated file; ``read_on`` is the day on which its contents were last found to be different."""

    name: str
    rows: int
    sha256: str
    read_on: str


def parse_manifest(table: Table) -> tuple[ManifestFile, ...]:
    """Read MANIFEST.toml.

    Raises:
        DataInvalid: unknown or missing keys.
    """
    table.whole("schema")
    files = []
    for entry in table.tables("file"):
        files.append(
            ManifestFile(
                name=entry.text("name"),
                rows=entry.whole("rows"),
                sha256=entry.text("sha256"),
                read_on=entry.day("read_on").isoformat(),
            )
        )
        entry.done()
    table.done()
    return tuple(files)


def dump_manifest(files: Sequence[ManifestFile]) -> str:
    """The text of MANIFEST.toml."""
    lines = ["# Generated by `python -m qresolve.wheels.generate`; do not edit.", "", "schema = 1"]
    for file in sorted(files):
        lines += [
            "",
            "[[file]]",
            f'name = "{file.name}"',
            f"rows = {file.rows}",
            f'sha256 = "{file.sha256}"',
            f"read_on = {file.read_on}",
        ]
    return "\n".join(lines) + "\n"


def _read_manifest(folder: Path) -> dict[str, ManifestFile]:
    path = folder / _MANIFEST
    if not path.is_file():
        return {}
    return {file.name: file for file in parse_manifest(read_toml(path))}


def run_generate(folder: Path, index: PackageIndex, *, projects: tuple[str, ...], check: bool, shrink: bool) -> None:
    """Write, or with ``check`` compare, the files of ``projects``.

    Raises:
        Stale: with ``check``, a file is not what would be written now.
        DataInvalid: fewer rows than before, without ``shrink``.
        Unproved: the index or a wheel cannot be read.
    """
    sources = parse_sources(read_toml(folder / _SOURCES))
    different = []
    for project in projects or sources.projects:
        path = folder / f"{project}.json"
        text, rows = read_file_text(index, sources, project)
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        if check:
            if text != before:
                different.append(project)
                _print_difference(project, before, text)
            continue
        manifest = _read_manifest(folder)
        known = manifest.get(path.name)
        if known is not None and not shrink:
            check_row_count(project, before=known.rows, after=rows)
        digest = hashlib.sha256(text.encode()).hexdigest()
        today = datetime.now(tz=UTC).date().isoformat()
        same = known is not None and known.sha256 == digest
        read_on = known.read_on if known is not None and same else today
        manifest[path.name] = ManifestFile(name=path.name, rows=rows, sha256=digest, read_on=read_on)
        path.write_text(text, encoding="utf-8")
        (folder / _MANIFEST).write_text(dump_manifest(tuple(manifest.values())), encoding="utf-8")
    if different:
        raise Stale(
            f"the wheel index differs from what the index holds: {', '.join(different)}",
            hint=f"python -m qresolve.wheels.generate --only {different[0]}",
        )


def _print_difference(project: str, before: str, after: str) -> None:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{project}.json", f"{project}.json (now)", lineterm="", n=2
    )
    print("\n".join(lines))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the generator; returns an exit code of docs/exit-codes.md."""
    parser = argparse.ArgumentParser(prog="python -m qresolve.wheels.generate", description="Write wheel_index/.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--only", action="append", default=[], metavar="PROJECT", help="this project alone")
    parser.add_argument("--shrink", action="store_true", help="allow fewer rows than before")
    options: Any = parser.parse_args(arguments)
    try:
        with open_pip_index() as index:
            run_generate(
                data_folder("wheel_index"),
                index,
                projects=tuple(options.only),
                check=options.check,
                shrink=options.shrink,
            )
    except QResolveError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
