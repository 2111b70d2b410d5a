"""Reading one engine's records for one release: its ladders, routes, conditions and what they lean on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from qresolve.classes import CLASSES
from qresolve.data import data_folder
from qresolve.errors import NoResolution, UsageError
from qresolve.gates import ALWAYS, ExpressionReader
from qresolve.knowledge.load import (
    digest_of,
    read_applying_files,
    read_fact_kinds,
    read_package_index,
    read_release,
    read_source,
    read_specifier,
    read_vocabulary,
)
from qresolve.knowledge.records import (
    LOUDNESS,
    STATUSES,
    Claim,
    ClassVariant,
    Engine,
    Explicit,
    Force,
    Gate,
    Ladder,
    Move,
    Provision,
    Release,
    Route,
    Source,
)
from qresolve.strict import Table, read_toml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import date

    from qresolve.facts import FactKind, FactType


def engine_names() -> tuple[str, ...]:
    """The engines that there are records of, in data order (the first is the default)."""
    table = read_toml(data_folder("constraints") / "engines.toml", name="constraints/engines.toml")
    names = table.texts("order")
    table.done()
    return names


def _engine_table(name: str) -> Table:
    if name not in engine_names():
        import difflib  # noqa: PLC0415 - only for the message

        near = difflib.get_close_matches(name, engine_names(), n=2) or list(engine_names())
        raise UsageError(f"there are no records of an engine called `{name}`", hint=f"--engine {near[0]}")
    path = data_folder("constraints") / "engines" / name / "engine.toml"
    return read_toml(path, name=f"constraints/engines/{name}/engine.toml")


def read_distribution(name: str) -> str:
    """The distribution that installs an engine."""
    return _engine_table(name).text("distribution")


def read_releases(name: str) -> tuple[Release, ...]:
    """All releases of an engine that there are records of, newest first."""
    table = _engine_table(name)
    checked = table.day("checked")
    found = [read_release(entry, checked=checked) for entry in table.tables("release")]
    return newest_first(found)


def newest_first(releases: Iterable[Release]) -> tuple[Release, ...]:
    """Finished releases, newest first, then pre-releases, which are taken only when they are named."""
    by_version = sorted(releases, key=lambda release: Version(release.version), reverse=True)
    return tuple(sorted(by_version, key=lambda release: Version(release.version).is_prerelease))


def pick_release(name: str, releases: tuple[Release, ...], version: str | None) -> Release:
    """The release with that version; the newest where none is asked for.

    Raises:
        UsageError: not a version.
        NoResolution: no records of that release; nothing is extrapolated.

    """
    if version is None:
        return releases[0]
    try:
        wanted = Version(version)
    except InvalidVersion as error:
        raise UsageError(
            f"`{version}` is not a version of {name}", hint=f"--engine {name}=={releases[0].version}"
        ) from error
    for release in releases:
        if Version(release.version) == wanted:
            return release
    known = ", ".join(release.version for release in releases)
    newer = " It is newer than the records." if wanted > Version(releases[0].version) else ""
    raise NoResolution(
        f"there are no records of {name} {version}; known releases: {known}.{newer} Nothing is extrapolated.",
        hint=f"--engine {name}=={releases[0].version}",
    )


def applying(table: Table, key: str, release: str) -> Iterator[Table]:
    """The entries of an array that hold for a release: those without ``releases``, or whose range contains it."""
    for entry in table.tables(key):
        if "releases" not in entry or read_specifier(entry, "releases").contains(release, prereleases=True):
            yield entry


class _Reader:
    """State of one reading: the vocabulary's types, conditions, and the digests of the records read."""

    def __init__(self, kinds: Iterable[FactKind], release: str) -> None:
        self.release = release
        self.vocabulary = read_vocabulary(kinds)
        self.expressions = ExpressionReader(self._type_of)
        self.digests: dict[str, str] = {}
        self.routes: dict[str, Route] = {}
        self.ladders: dict[str, Ladder] = {}
        self.pending: list[tuple[Table, date]] = []

    def _type_of(self, key: str) -> FactType | None:
        kind = self.vocabulary.get(key)
        return kind.type if kind else None

    def note(self, kind: str, identifier: str, table: Table) -> None:
        key = f"{kind}:{identifier}"
        if key in self.digests:
            raise table.fail("id", f"the {kind} `{identifier}` is declared twice")
        self.digests[key] = digest_of(table.values)

    def file(self, table: Table) -> None:
        """Declare the conditions of one file and keep its ladders and routes for the second pass."""
        checked = table.day("checked")
        table.text("read-from")
        if "releases" in table and not read_specifier(table, "releases").contains(self.release, prereleases=True):
            return
        for entry in applying(table, "condition", self.release):
            identifier = entry.text("id")
            self.note("condition", identifier, entry)
            self.expressions.declare(identifier, entry)
        self.pending.append((table, checked))

    def finish(self) -> None:
        for table, checked in self.pending:
            for entry in applying(table, "condition", self.release):
                entry.text("id")
                entry.raw("when")
                read_source(entry, checked=checked)
                entry.optional_text("say")
                entry.done()
            for entry in applying(table, "route", self.release):
                route = self.route(entry, checked)
                self.note("route", route.id, entry)
                self.routes[route.id] = route
            table.raw("ladder")
            table.done()
        self.expressions.finish()
        for table, checked in self.pending:
            for entry in applying(table, "ladder", self.release):
                ladder = self.ladder(entry, checked)
                self.note("ladder", ladder.id, entry)
                for served in ladder.serves:
                    if served in self.ladders:
                        raise entry.fail("serves", f"`{served}` is served by `{self.ladders[served].id}` too")
                    self.ladders[served] = ladder

    def gate(self, table: Table, source: Source, loudness: str) -> Gate:
        own = Source(
            kind=table.choice("kind", ("stated", "measured", "documented"), source.kind),  # type: ignore[arg-type]
            where=table.text("where", source.where),
            checked=table.day("checked") if "checked" in table else source.checked,
            passes=table.text("passes", ""),
            fails=table.text("fails", ""),
        )
        if "kind" in table and own.kind == "measured" and not (own.passes and own.fails):
            raise table.fail("kind", "a measured floor needs both `passes` and `fails`")
        gate = Gate(
            id=table.text("id"),
            when=self.expressions.read(table, "when"),
            loudness=table.choice("loudness", LOUDNESS, loudness),
            say=table.text("say", ""),
            source=own,
        )
        table.done()
        return gate

    def route(self, table: Table, checked: date) -> Route:
        source = read_source(table, checked=checked)
        gates = {
            "select": tuple(self.gate(item, source, "silent") for item in table.tables("select")),
            "execute": tuple(self.gate(item, source, "raises") for item in table.tables("execute")),
        }
        for kind, found in gates.items():
            if len({gate.id for gate in found}) != len(found):
                raise table.fail(kind, "two gates have the same id")
        classes: tuple[ClassVariant, ...]
        if "class" in table:
            classes = (
                ClassVariant(
                    when=ALWAYS,
                    class_=table.choice("class", (*CLASSES, "unknown")),
                    why=table.text("why", ""),
                ),
            )
        else:
            classes = tuple(self._variant(item) for item in table.tables("classes"))
        if not classes:
            raise table.fail("class", "is missing, and there are no `classes`")
        route = Route(
            id=table.text("id"),
            name=table.text("name"),
            library=table.text("library"),
            built=table.choice("built", ("precompiled", "jit")),  # type: ignore[arg-type]
            backends=table.texts("backends", ()),
            explicit_only=table.flag("explicit-only", default=False),
            select=gates["select"],
            execute=gates["execute"],
            classes=classes,
            source=source,
            status=table.choice("status", STATUSES, "supported"),
            status_why=table.text("status-why", ""),
        )
        if (route.status != "supported") is not bool(route.status_why):
            raise table.fail("status-why", "stands beside a `status` that is not `supported`, and says why")
        table.done()
        return route

    def _variant(self, table: Table) -> ClassVariant:
        variant = ClassVariant(
            when=self.expressions.read_optional(table, "when"),
            class_=table.choice("class", (*CLASSES, "unknown")),
            why=table.text("why", ""),
        )
        if variant.class_ == "unknown" and not variant.why:
            raise table.fail("why", "an unknown class says why it is unknown")
        table.done()
        return variant

    def _route_id(self, table: Table, key: str) -> str:
        identifier = table.text(key)
        if identifier not in self.routes:
            raise table.fail(key, f"no route has the id `{identifier}`")
        return identifier

    def ladder(self, table: Table, checked: date) -> Ladder:
        order = table.texts("order")
        for position, identifier in enumerate(order):
            if identifier not in self.routes:
                raise table.fail(f"order[{position}]", f"no route has the id `{identifier}`")
        if len(set(order)) != len(order):
            raise table.fail("order", "a route stands on it twice")
        moves = []
        for entry in table.tables("move"):
            moves.append(
                Move(
                    when=self.expressions.read(entry, "when"),
                    route=self._route_id(entry, "route"),
                    before=self._route_id(entry, "before"),
                )
            )
            entry.done()
        forces = []
        for entry in table.tables("force"):
            forces.append(Force(when=self.expressions.read(entry, "when"), route=self._route_id(entry, "route")))
            entry.done()
        explicit = []
        for entry in table.tables("explicit"):
            fact = entry.text("fact")
            if self.vocabulary.get(fact) is None:
                raise entry.fail("fact", f"no fact is called `{fact}`")
            explicit.append(
                Explicit(
                    fact=fact,
                    auto=entry.texts("auto"),
                    unmatched=entry.choice("unmatched", ("auto", "raise")),  # type: ignore[arg-type]
                    offer=entry.flag("offer"),
                )
            )
            entry.done()
        disabled_by = table.optional_text("disabled-by")
        if disabled_by is not None and self.vocabulary.get(disabled_by) is None:
            raise table.fail("disabled-by", f"no fact is called `{disabled_by}`")
        ladder = Ladder(
            id=table.text("id"),
            serves=table.texts("serves"),
            order=order,
            moves=tuple(moves),
            forces=tuple(forces),
            explicit=tuple(explicit),
            disabled_by=disabled_by,
            nothing=table.text("nothing"),
            source=read_source(table, checked=checked),
        )
        table.done()
        return ladder


def load_engine(name: str, version: str | None = None) -> Engine:
    """The records of an engine for one release (the newest known where none is given).

    Raises:
        UsageError: no such engine. NoResolution: no such release. DataInvalid: a record is wrong.

    """
    table = _engine_table(name)
    checked = table.day("checked")
    table.text("read-from")
    kinds = tuple(read_fact_kinds(table))
    tables = {entry.text("version"): entry for entry in table.tables("release")}
    releases = [read_release(entry, checked=checked) for entry in tables.values()]
    ordered = newest_first(releases)
    if not ordered:
        raise table.fail("release", "an engine has at least one release")
    release = pick_release(name, ordered, version)
    reader = _Reader(kinds, release.version)
    reader.note("release", f"{name}=={release.version}", tables[release.version])
    folder = data_folder("constraints")
    # Only the libraries that this engine's gates speak of: others may use words of other engines.
    for library in table.texts("libraries", ()):
        shown = f"constraints/libraries/{library}.toml"
        reader.file(read_toml(folder / "libraries" / f"{library}.toml", name=shown))
    ladders = f"constraints/engines/{name}/ladders"
    for path in read_applying_files(folder / "engines" / name / "ladders", release.version, name=ladders):
        reader.file(path)
    reader.finish()
    provisions, claims = [], []
    for entry in applying(table, "provision", release.version):
        provisions.append(
            Provision(
                fact=entry.text("fact"),
                value=entry.text("value"),
                requirements=entry.texts("requirements"),
                source=read_source(entry, checked=checked),
            )
        )
        entry.done()
    for entry in applying(table, "claim", release.version):
        claims.append(
            Claim(
                id=entry.text("id"),
                claim=entry.text("claim"),
                refutation=entry.text("refutation"),
                serves=entry.texts("serves"),
                when=reader.expressions.read_optional(entry, "when"),
                source=read_source(entry, checked=checked),
            )
        )
        entry.done()
    unserved = {}
    for entry in applying(table, "unserved", release.version):
        unserved[entry.text("format")] = entry.text("why")
        entry.done()
    engine = Engine(
        name=name,
        distribution=table.text("distribution"),
        release=release,
        releases=ordered,
        vocabulary=reader.vocabulary,
        conditions=reader.expressions.finish(),
        routes=reader.routes,
        ladders=reader.ladders,
        provisions=tuple(provisions),
        unserved=unserved,
        claims=tuple(claims),
        gated=table.texts("gated"),
        digests=reader.digests,
        index=read_package_index(table.optional_table("index"), checked=checked),
    )
    table.done()
    return engine
