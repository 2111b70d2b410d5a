"""The source audit: which records, which archives, read and compared. The edge of :mod:`qresolve.audit.reread`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from qresolve.audit.recorded import parse_recorded, recorded_document, recorded_text
from qresolve.audit.records import Archive, cited_records, parse_archives
from qresolve.audit.release_files import read_archive, read_exact_pins
from qresolve.audit.reread import ArchiveFiles, check_records, recorded_digests, wanted_names
from qresolve.data import data_folder
from qresolve.errors import DataInvalid, Unproved, UsageError
from qresolve.knowledge.engine import read_releases
from qresolve.strict import read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from qresolve.audit.records import CitedRecord
    from qresolve.audit.reread import Finding
    from qresolve.knowledge.records import Release
    from qresolve.wheels.pip_index import PipIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAudit:
    """What re-reading came to.

    ``records_of`` is the release whose records were compared: the asked one, or the nearest known one.
    ``archives`` maps the name of each archive that was read to its sha256, ``unread`` what was not to the reason.
    """

    engine: str
    release: str
    records_of: str
    findings: tuple[Finding, ...]
    archives: Mapping[str, str]
    unread: Mapping[str, str]


def select_nearest(releases: tuple[Release, ...], version: str) -> Release:
    """The release itself, else the newest known one before it, else the oldest.

    Raises:
        UsageError: not a version.
    """
    try:
        wanted = Version(version)
    except InvalidVersion as error:
        raise UsageError(f"`{version}` is not a version") from error
    ordered = sorted(releases, key=lambda release: Version(release.version))
    before = [release for release in ordered if Version(release.version) <= wanted]
    return (before or ordered)[-1 if before else 0]


def recorded_file(engine: str, release: str) -> Path:
    """Where the digests of a release are."""
    return data_folder("constraints") / "audited" / f"{engine}-{release}.json"


def _read_documents(engine: str) -> list[tuple[str, Mapping[str, Any]]]:
    import tomli  # noqa: PLC0415

    folder = data_folder("constraints")
    own = folder / "engines" / engine / "engine.toml"
    named = read_toml(own, name=f"constraints/engines/{engine}/engine.toml").texts("libraries", ())
    paths = [
        own,
        *(path for path in sorted((folder / "libraries").glob("*.toml")) if path.stem in named),
        *sorted((folder / "engines" / engine / "ladders").glob("*.toml")),
    ]
    found: list[tuple[str, Mapping[str, Any]]] = []
    for path in paths:
        name = f"constraints/{path.relative_to(folder)}"
        try:
            found.append((name, tomli.loads(path.read_text(encoding="utf-8"))))
        except (OSError, UnicodeDecodeError, tomli.TOMLDecodeError) as error:
            raise DataInvalid(f"{name}: {error}") from error
    return found


def read_records(engine: str, release: str) -> tuple[CitedRecord, ...]:
    """The cited records of an engine that apply to a release."""
    return cited_records(_read_documents(engine), release)


def _read_digests(engine: str, release: str) -> dict[tuple[str, str, str], Any]:
    path = recorded_file(engine, release)
    if not path.is_file():
        return {}
    return dict(parse_recorded(path.read_text(encoding="utf-8"), file=f"constraints/audited/{path.name}"))


def run_source_audit(
    engine: str, version: str, *, index: PipIndex, cache: Path, use_digests: bool = True
) -> SourceAudit:
    """Re-read every cited file of ``version`` and compare it with the records.

    Raises:
        Unproved: the engine's own archive cannot be read. UsageError: no such engine, or not a version.
    """
    known = select_nearest(read_releases(engine), version)
    exact = Version(known.version) == Version(version)
    records = read_records(engine, known.version)
    path = data_folder("constraints") / "audited" / "sources.toml"
    archives = parse_archives(read_toml(path, name="constraints/audited/sources.toml"))
    own = _engine_distribution(engine)
    main = _main_archive(own, archives)
    versions = {pin.package: pin.version for pin in known.pins}
    if not exact:
        versions |= read_exact_pins(index, Archive(distribution=own, kind="wheel"), version)
    versions[own] = version
    for fact, value in _provided(records):
        versions.setdefault(fact, value)
    symbols = {symbol for record in records for item in record.citations for symbol in item.symbols}
    held: dict[Archive, ArchiveFiles | str] = {}
    names: dict[str, str] = {}
    unread: dict[str, str] = {}
    wanted = wanted_names(records, archives, main)
    for archive in sorted(wanted, key=lambda item: (item.distribution, item.kind)):
        if archive.distribution not in versions:
            held[archive] = f"no version of {archive.distribution} is pinned"
            continue
        try:
            files = read_archive(
                index,
                archive,
                versions[archive.distribution],
                wanted=wanted[archive],
                symbols=symbols,
                cache=cache,
            )
        except Unproved as error:
            if archive.distribution == own:
                raise
            held[archive] = error.message
            unread[f"{archive.distribution} {versions[archive.distribution]} {archive.kind}"] = error.message
            continue
        held[archive] = files
        names[files.filename] = files.sha256
    findings = check_records(
        records,
        archives=archives,
        files=held,
        recorded=_read_digests(engine, known.version) if use_digests else {},
        own=main,
    )
    return SourceAudit(
        engine=engine,
        release=version,
        records_of=known.version,
        findings=findings,
        archives=names,
        unread=unread,
    )


def _main_archive(distribution: str, archives: tuple[tuple[str, Archive], ...]) -> Archive:
    """The engine's archive that most of its files are in: the one with the shortest beginning of a path."""
    own = [archive for _, archive in archives if archive.distribution == distribution]
    return own[-1] if own else Archive(distribution=distribution, kind="sdist")


def _engine_distribution(engine: str) -> str:
    path = data_folder("constraints") / "engines" / engine / "engine.toml"
    return read_toml(path, name=f"constraints/engines/{engine}/engine.toml").text("distribution")


def _provided(records: tuple[CitedRecord, ...]) -> list[tuple[str, str]]:
    """Packages that the environment may add, with the version that their record says."""
    found = []
    for record in records:
        kind, _, rest = record.id.partition(":")
        fact, equals, value = rest.partition("=")
        if kind == "provision" and equals and fact.startswith("package."):
            found.append((fact.removeprefix("package."), value))
    return found


def write_recorded(audit: SourceAudit) -> Path:
    """Write the digests of what is there now, for the next audits.

    Raises:
        UsageError: the release has no records of its own.
    """
    if audit.release != audit.records_of:
        raise UsageError(
            f"{audit.engine} {audit.release} has no records, so there is nothing to record digests of",
            hint="docs/adding-a-release.md",
        )
    document = recorded_document(
        recorded_digests(audit.findings), engine=audit.engine, release=audit.release, archives=audit.archives
    )
    path = recorded_file(audit.engine, audit.release)
    path.write_text(recorded_text(document), encoding="utf-8")
    return path
