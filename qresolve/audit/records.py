"""Every record that applies to a release, with what its ``where`` cites and in which archive that is. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from qresolve.audit.citations import Citation, parse_where

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from qresolve.strict import Table

_KINDS = ("release", "provision", "claim", "condition", "ladder", "route")


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A published archive that holds cited files: ``kind`` is ``sdist`` or ``wheel``."""

    distribution: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CitedRecord:
    """One ``where``: of a record (``route:vllm.mxfp4.marlin``) or of a gate in it (``….select.marlin``).

    ``lines_hold``: its file was read from this release, so that cited lines are lines of it. A record that holds for
    several releases has the lines of one.
    """

    id: str
    file: str
    where: str
    citations: tuple[Citation, ...]
    prose: tuple[str, ...]
    lines_hold: bool = True


def parse_archives(table: Table) -> tuple[tuple[str, Archive], ...]:
    """Read ``constraints/audited/sources.toml``: (beginning of a path, its archive), longest first."""
    table.day("checked")
    table.text("read-from")
    found = []
    for entry in table.tables("source"):
        archive = Archive(distribution=entry.text("distribution"), kind=entry.choice("archive", ("sdist", "wheel")))
        found += [(begins, archive) for begins in entry.texts("begins")]
        entry.done()
    table.done()
    return tuple(sorted(found, key=lambda item: -len(item[0])))


def archive_of(path: str, archives: tuple[tuple[str, Archive], ...]) -> Archive | None:
    """The archive that holds a cited path, None for a short path or one that nothing is said of."""
    return next((archive for begins, archive in archives if path.startswith(begins)), None)


def _applies(table: Mapping[str, Any], release: str) -> bool:
    text = table.get("releases")
    return text is None or SpecifierSet(text).contains(release, prereleases=True)


def _texts(values: object, path: str) -> Iterator[tuple[str, str]]:
    """Every ``where`` in a record with the dotted path of what has it; items of lists are named by their ``id``."""
    if isinstance(values, dict):
        if isinstance(values.get("where"), str):
            yield path, values["where"]
        for key, inner in values.items():
            yield from _texts(inner, f"{path}.{key}")
    elif isinstance(values, list):
        for number, item in enumerate(values):
            name = item.get("id", number) if isinstance(item, dict) else number
            yield from _texts(item, f"{path}.{name}")


def _lines_hold(document: Mapping[str, Any], release: str) -> bool:
    """Whether the file says that it was read from that release and from no newer one, or names none."""
    named = re.findall(r"(?<![\w.])(?:[a-z_]+-)?(\d+(?:\.\d+)+)", str(document.get("read-from", "")))
    alike = [Version(text) for text in named if Version(text).major == Version(release).major]
    return not named or (release in named and max(alike) == Version(release))


def _name(kind: str, entry: Mapping[str, Any]) -> str:
    if kind == "release":
        return str(entry.get("version"))
    if kind == "provision":
        return f"{entry.get('fact')}={entry.get('value')}"
    return str(entry.get("id"))


def cited_records(files: Iterable[tuple[str, Mapping[str, Any]]], release: str) -> tuple[CitedRecord, ...]:
    """The records of TOML documents (name, values) that apply to ``release``, by id."""
    found: dict[str, CitedRecord] = {}
    for file, document in files:
        if not _applies(document, release):
            continue
        for kind in _KINDS:
            for entry in document.get(kind, ()):
                if not _applies(entry, release) or (kind == "release" and entry.get("version") != release):
                    continue
                for path, text in _texts(entry, f"{kind}:{_name(kind, entry)}"):
                    where = parse_where(text)
                    found[path] = CitedRecord(
                        id=path,
                        file=file,
                        where=text,
                        citations=where.citations,
                        prose=where.prose,
                        lines_hold=_lines_hold(document, release),
                    )
    return tuple(found[key] for key in sorted(found))
