"""Cited places held against a release's files: found, moved, changed or gone. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from qresolve.audit.citations import resolve_path
from qresolve.audit.records import archive_of
from qresolve.audit.symbols import defines, find_digest, find_lines, find_symbol, find_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from qresolve.audit.citations import Citation
    from qresolve.audit.records import Archive, CitedRecord
    from qresolve.audit.symbols import Place

FOUND, MOVED, CHANGED, GONE, NOT_CHECKABLE = "found", "moved", "changed", "gone", "not checkable"
OUTCOMES = (FOUND, MOVED, CHANGED, GONE, NOT_CHECKABLE)
DRIFT = (MOVED, CHANGED, GONE)
_NEAR = 3  # lines by which a cited range may miss its symbol


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFiles:
    """Files of one archive of one release: ``texts`` of those that were kept, ``names`` of all."""

    version: str
    filename: str
    sha256: str
    texts: Mapping[str, str]
    names: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """What was recorded of a cited place: the file, the lines, and the digest of the text."""

    path: str
    lines: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What became of one cited place. ``what`` is the symbol, the lines, or ``whole file``; ``now`` where it is."""

    record: str
    file: str
    cited: str
    what: str
    outcome: str
    now: str = ""
    why: str = ""
    digest: Digest | None = None


def check_records(
    records: tuple[CitedRecord, ...],
    *,
    archives: tuple[tuple[str, Archive], ...],
    files: Mapping[Archive, ArchiveFiles | str],
    recorded: Mapping[tuple[str, str, str], Digest],
    own: Archive,
) -> tuple[Finding, ...]:
    """One finding for each cited symbol, range or file of each record.

    ``files`` holds why an archive was not read where it was not. ``recorded`` is keyed by record, cited path and what.
    A short path with nothing before it is looked for in ``own``, the engine's archive.
    """
    found: list[Finding] = []
    for record in records:
        found += [
            Finding(
                record=record.id, file=record.file, cited=text, what="", outcome=NOT_CHECKABLE, why="no file is cited"
            )
            for text in record.prose
        ]
        near: str | None = None
        last: Archive | None = None
        for citation in record.citations:
            archive = archive_of(citation.path, archives) or last or _own(citation.path, own, files)
            last = archive
            if archive is None:
                why = "the path says no archive"
                found += [_unchecked(record, citation, what, why) for what in _asked(citation)]
                continue
            held = files.get(archive, "it was not read")
            if isinstance(held, str):
                found += [_unchecked(record, citation, what, held) for what in _asked(citation)]
                continue
            paths = resolve_path(citation.path, near=near, files=held.names)
            near = paths[0] if paths else citation.path
            for what in _asked(citation):
                was = recorded.get((record.id, citation.path, what))
                found.append(_check(record, citation, what, paths=paths, held=held, was=was))
    return tuple(found)


def _own(path: str, own: Archive, files: Mapping[Archive, ArchiveFiles | str]) -> Archive | None:
    held = files.get(own)
    return own if isinstance(held, ArchiveFiles) and resolve_path(path, near=None, files=held.names) else None


def _asked(citation: Citation) -> tuple[str, ...]:
    if citation.symbols:
        return citation.symbols
    return tuple(f"{first}-{last}" for first, last in citation.lines) or ("whole file",)


def _unchecked(record: CitedRecord, citation: Citation, what: str, why: str) -> Finding:
    return Finding(record=record.id, file=record.file, cited=citation.path, what=what, outcome=NOT_CHECKABLE, why=why)


def _find(path: str, text: str, what: str, citation: Citation) -> Place | None:
    if citation.symbols:
        return find_symbol(path, text, what, near=citation.lines[0][0] if citation.lines else None)
    if what == "whole file":
        return find_whole(text)
    first, last = (int(part) for part in what.split("-"))
    return find_lines(text, first, last)


def _elsewhere(what: str, held: ArchiveFiles, but: tuple[str, ...]) -> str | None:
    """The one other file that binds the symbol at its top."""
    found = [
        path for path, text in held.texts.items() if path not in but and path.endswith(".py") and defines(text, what)
    ]
    return found[0] if len(found) == 1 else None


def _check(
    record: CitedRecord,
    citation: Citation,
    what: str,
    *,
    paths: tuple[str, ...],
    held: ArchiveFiles,
    was: Digest | None,
) -> Finding:
    def finding(outcome: str, place: tuple[str, Place] | None, why: str) -> Finding:
        return Finding(
            record=record.id,
            file=record.file,
            cited=citation.path,
            what=what,
            outcome=outcome,
            now=f"{place[0]}:{place[1].text}" if place else "",
            why=why,
            digest=Digest(path=place[0], lines=place[1].text, digest=place[1].digest) if place else None,
        )

    if was is None and not record.lines_hold and not citation.symbols and citation.lines:
        return finding(NOT_CHECKABLE, None, "its lines are those of another release")
    unread = [path for path in paths if path not in held.texts]
    if paths and len(unread) == len(paths):
        return finding(NOT_CHECKABLE, None, "the file is too large to be read, or is no text")
    for path in paths:
        if path not in held.texts:
            continue
        place = _find(path, held.texts[path], what, citation)
        if place is None:
            continue
        return finding(
            *_judge((path, place), what, citation=citation, held=held, was=was, lines_hold=record.lines_hold)
        )
    where = _elsewhere(what, held, paths) if citation.symbols else _same_name(citation.path, held)
    if where is not None:
        place = _find(where, held.texts[where], what, citation)
        if place is not None:
            return finding(MOVED, (where, place), "another file has it")
    if not paths:
        return finding(GONE, None, "the file is gone")
    return finding(GONE, None, "the file has no such symbol" if citation.symbols else "the file is shorter")


def _same_name(path: str, held: ArchiveFiles) -> str | None:
    name = path.rpartition("/")[2]
    found = [other for other in held.texts if other.rpartition("/")[2] == name]
    return found[0] if len(found) == 1 and name != "__init__.py" else None


def _judge(
    at: tuple[str, Place],
    what: str,
    *,
    citation: Citation,
    held: ArchiveFiles,
    was: Digest | None,
    lines_hold: bool,
) -> tuple[str, tuple[str, Place], str]:
    """The outcome for a place that is there, the place, and why."""
    path, place = at
    if was is None:
        if lines_hold and citation.symbols and citation.lines and not _overlaps(place, citation.lines):
            cited = ",".join(f"{first}-{last}" for first, last in citation.lines)
            return MOVED, at, f"cited at {cited}"
        return FOUND, at, "no digest was recorded"
    if was.digest == place.digest:
        return (FOUND, at, "") if was.path == path else (MOVED, at, f"it was in {was.path}")
    if not citation.symbols and what != "whole file":
        first, last = (int(part) for part in was.lines.split("-"))
        moved = find_digest(held.texts[path], was.digest, last - first + 1)
        if moved is not None:
            return MOVED, (path, moved), "the same lines, elsewhere"
    return CHANGED, at, "another text"


def _overlaps(place: Place, lines: tuple[tuple[int, int], ...]) -> bool:
    return any(first - _NEAR <= place.last and place.first <= last + _NEAR for first, last in lines)


def wanted_names(
    records: tuple[CitedRecord, ...], archives: tuple[tuple[str, Archive], ...], own: Archive
) -> dict[Archive, set[str]]:
    """The paths that are cited of each archive, short ones with the archive of the one before, else the engine's."""
    wanted: dict[Archive, set[str]] = {own: set()}
    for record in records:
        last: Archive | None = None
        for citation in record.citations:
            last = archive_of(citation.path, archives) or last
            wanted.setdefault(last or own, set()).add(citation.path)
    return wanted


def recorded_digests(findings: tuple[Finding, ...]) -> Iterator[tuple[tuple[str, str, str], Digest]]:
    """What ``--record`` writes: the digest of each place that is there."""
    for finding in findings:
        if finding.digest is not None:
            yield (finding.record, finding.cited, finding.what), finding.digest
