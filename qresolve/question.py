"""One request against one target, with the records that it needs loaded on demand, and its rows laid out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from qresolve.builds import build_for, same_lane, with_cuda
from qresolve.errors import UsageError
from qresolve.knowledge.engine import engine_names, load_engine, read_releases
from qresolve.knowledge.load import read_formats, read_workload
from qresolve.ledger import Ledger
from qresolve.measured import build_cuda, images_for, toolchain_fact, versions_of
from qresolve.model.asking import asks_of
from qresolve.model.model import check_ranks, workload_of
from qresolve.model.parse import parse_model
from qresolve.model.records import read_checkpoint_book
from qresolve.request import (
    Allowance,
    Ask,
    parse_allow,
    parse_assumptions,
    parse_engine,
    parse_formats,
    wanted_class,
)
from qresolve.resolution import Core, Row
from qresolve.situation import Host, facts_of
from qresolve.ways import Bench, bench_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qresolve.arch import Architectures
    from qresolve.facts import Value
    from qresolve.knowledge.indexes import EngineBuild
    from qresolve.knowledge.records import Engine, FormatBook, Release, Scheme, Unlockable, Workload
    from qresolve.model.model import Model
    from qresolve.model.read import Checkpoint
    from qresolve.target.target import Target
    from qresolve.wheels.index_rows import WheelRow


@dataclass(slots=True)
class Question:
    """One request against one target, with the records it needs loaded on demand.

    ``builds`` are builds of releases for another CUDA, to be taken where the target asks for it, or (``lanes``, by
    release) where its driver does not run the default index's. They were not measured, so their images are unknown;
    with ``opens`` the wheels will be opened once they are resolved, and until then those of the default build stand
    for them. ``compiled`` are releases whose own wheel was opened and shows its CUDA, ``unmeasured`` those of which a
    build is judged that nobody opened.
    """

    book: FormatBook
    asks: tuple[Ask, ...]
    allowances: tuple[Allowance, ...]
    target: Target
    architectures: Architectures
    engine_name: str
    engine_version: str | None
    workload: Workload
    workload_digest: str
    reference: Workload
    assumed: Mapping[str, Value]
    host: Host
    model: Model | None = None
    tp: int | None = None
    ep: int | None = None
    packages: dict[str, Mapping[str, str]] = field(default_factory=dict)
    wheels: dict[str, Mapping[str, str]] = field(default_factory=dict)
    opened: dict[str, WheelRow] = field(default_factory=dict)
    excluded: set[str] = field(default_factory=set)
    supplied: frozenset[str] = frozenset()
    builds: tuple[EngineBuild, ...] = ()
    lanes: dict[str, str] = field(default_factory=dict)
    opens: bool = False
    compiled: set[str] = field(default_factory=set)
    unmeasured: set[str] = field(default_factory=set)
    _engines: dict[str, Engine] = field(default_factory=dict)
    _benches: dict[tuple[str, str, bool], Bench | None] = field(default_factory=dict)

    def lane(self, release: str) -> str | None:
        """The CUDA whose build of a release is asked for; None: the default index's."""
        return self.target.cuda or self.lanes.get(release)

    def engine(self, release: str) -> Engine:
        """The engine's records for a release."""
        if release not in self._engines:
            self._engines[release] = load_engine(self.engine_name, release)
        loaded = self._engines[release]
        build = build_for(self.builds, loaded.name, release, self.lane(release))
        if build is None or release in self.compiled or same_lane(build.cuda, loaded.release.cuda):
            return loaded
        if not self.opens:
            self.unmeasured.add(release)
            self.wheels.setdefault(release, {})
        return with_cuda(loaded, build.cuda)

    def open_wheel(self, release: str, row: WheelRow) -> None:
        """Take in a wheel that the wheel index does not know. Of the engine's own its CUDA is the build's."""
        self.opened[row.sha256] = row
        engine = self.engine(release)
        cuda = build_cuda(row) if row.name == engine.distribution else None
        if cuda is None:
            return
        if not same_lane(cuda, engine.release.cuda):
            engine = with_cuda(engine, cuda)
        self._engines[release] = engine
        self.compiled.add(release)

    def releases(self) -> tuple[str, ...]:
        """The releases to try, newest first: the pinned one alone, or all known ones that were not excluded.

        One that cannot be locked is tried only where it is pinned, or where there is no other.
        """
        if self.engine_version is not None:
            return (self.engine(self.engine_version).release.version,)
        known = read_releases(self.engine_name)
        lockable = [item for item in known if self.unlockable(item) is None]
        return tuple(item.version for item in lockable or known if item.version not in self.excluded)

    def unlockable(self, release: Release) -> Unlockable | None:
        """Why no lock of a release can be made, None where one can.

        A package that the person binds to an index of his own (``supplied``) stands in no way: what is there is not
        known, so it is tried.
        """
        barred = release.unlockable
        return None if barred is None or barred.package in self.supplied else barred

    def lockable_instead(self, engine: Engine) -> str | None:
        """The newest release that can be locked, where the loaded one cannot; None where it can or none can."""
        if self.unlockable(engine.release) is None:
            return None
        return next((item.version for item in engine.releases if self.unlockable(item) is None), None)

    def passed_over(self, release: Release) -> tuple[str, ...]:
        """A line for each release that is newer than the taken one and was not tried, as it cannot be locked."""
        if self.engine_version is not None:
            return ()
        known = read_releases(self.engine_name)
        newer = known[: [item.version for item in known].index(release.version)]
        return tuple(
            f"{self.engine_name} {item.version} was passed over, as it cannot be locked: {barred.why}"
            for item in newer
            if (barred := self.unlockable(item)) is not None
        )

    def rows(self, asks: Sequence[Ask] | None = None) -> tuple[Row, ...]:
        """One row for each ask and each arch of the target; of a model, one for each shape of its layers."""
        chosen = self.asks if asks is None else asks
        return tuple(
            Row(ask=ask, arch=f"sm{sm}", sm=sm, wanted=wanted_class(ask, self.allowances), variant=variant)
            for ask in chosen
            for sm in sorted({gpu.sm for gpu in self.target.gpus})
            for variant in (self.model.variants(ask.key) if self.model is not None else ("",))
        )

    def not_known(self, row: Row) -> str:
        """Why the row cannot be judged for this model or workload, empty where it can."""
        if self.model is not None and (why := self.model.unknown(row.ask.key)):
            return why
        scheme, workload = self._own_facts(row)
        return ragged_groups(scheme, {**workload.facts, **self.assumed}) if row.ask.role != "kv" else ""

    def _own_facts(self, row: Row) -> tuple[Scheme, Workload]:
        """The scheme and workload of one row: those of the question, with what the model says of these layers."""
        scheme, workload = row.ask.scheme, self.workload
        own = self.model.facts_for(row.ask.key, row.variant) if self.model is not None else {}
        if not own:
            return scheme, workload
        stated = {key: value for key, value in own.items() if key.startswith("scheme.")}
        return (
            replace(scheme, facts={**scheme.facts, **stated}),
            replace(workload, facts={**workload.facts, **{key: own[key] for key in own if key not in stated}}),
        )

    def bench(self, release: str, row: Row, *, plain: bool = False) -> Bench | None:
        """A row laid out for a release; None where no ladder serves it."""
        key = (release, row.key, plain)
        if key not in self._benches:
            self._benches[key] = self._bench(release, row, plain=plain)
        return self._benches[key]

    def _bench(self, release: str, row: Row, *, plain: bool) -> Bench | None:
        engine = self.engine(release)
        ladder = engine.ladder_for(row.ask.key)
        if ladder is None or self.not_known(row):
            return None
        scheme, workload = self._own_facts(row)
        table = facts_of(
            engine=engine,
            sm=row.sm,
            scheme=scheme,
            workload=workload,
            host=Host.without_toolkit() if plain else self.host,
            images=images_for(
                versions_of(engine), self.target.machine, wheels=self.wheels.get(release), opened=self.opened
            ),
            architectures=self.architectures,
            assumed=self.assumed,
            packages=self.packages.get(release),
            toolchain=toolchain_fact,
            machine=self.target.machine,
        )
        return bench_of(engine, ladder, table, self.assumed)

    def forget(self) -> None:
        """Lay everything out anew: the packages of a release became known."""
        self._benches.clear()

    def core(self, ledger: Ledger | None = None) -> Core:
        """The core resolution of the asked rows."""
        return Core(
            releases=self.releases(),
            rows=self.rows(),
            bench=self.bench,
            ledger=ledger if ledger is not None else Ledger(),
        )


def ragged_groups(scheme: Scheme, facts: Mapping[str, Value]) -> str:
    """Why the shape cannot be judged: its K is not a whole number of the scheme's weight groups; empty where it is.

    What an engine does with a last, smaller group is read nowhere: some assert, some pad, some read past the end.
    """
    found = re.fullmatch(r"group(\d+)", str(scheme.facts.get("scheme.weight-scale", "")))
    k = facts.get("workload.k")
    if found is None or not isinstance(k, int) or k % int(found[1]) == 0:
        return ""
    return f"K = {k} is not whole groups of {found[1]}, and what the kernels do with the rest is not known"


def ask_question(
    *,
    formats: Sequence[str],
    target: Target,
    architectures: Architectures,
    engine: str | None = None,
    allow: Sequence[str] = (),
    assume: Sequence[str] = (),
    workload: str | None = None,
    checkpoint: Checkpoint | None = None,
    tp: int | None = None,
    ep: int | None = None,
) -> Question:
    """Parse a request into a question; with a checkpoint, ``formats`` only select among what it has.

    Raises:
        UsageError: a name in it is unknown. NoResolution: no records of the asked release.
    """
    check_ranks("--tp", tp)
    check_ranks("--ep", ep)
    book = read_formats()
    model = None
    if checkpoint is not None:
        model = parse_model(checkpoint, tp=tp, ep=ep, formats=book, book=read_checkpoint_book(book))
    asks = asks_of(model, formats, book) if model is not None else parse_formats(formats, book)
    allowances = parse_allow(allow, book)
    for idle in allowances:
        if not any(idle.matches(ask) for ask in asks):
            asked = ",".join(ask.key for ask in asks)
            raise UsageError(
                f"--allow {idle.text} speaks of nothing that is asked for ({asked})", hint=f"--formats {idle.format}"
            )
    name, version = parse_engine(engine)
    loaded = load_engine(name, version) if name is not None else _default_engine(asks)
    found, digest = read_workload(workload)
    nvcc = target.nvcc
    return Question(
        book=book,
        asks=asks,
        allowances=allowances,
        target=target,
        architectures=architectures,
        engine_name=loaded.name,
        engine_version=loaded.release.version if version is not None else None,
        workload=workload_of(found, model, tp=tp, ep=ep),
        workload_digest=digest,
        reference=found,
        assumed=parse_assumptions(assume, loaded.vocabulary),
        host=Host(nvcc="absent" if nvcc == "none" else nvcc, cxx=target.cxx),
        model=model,
        tp=tp,
        ep=ep,
        _engines={loaded.release.version: loaded},
    )


def _default_engine(asks: Sequence[Ask]) -> Engine:
    """The first engine in data order that serves every asked row; the first of all where none does."""
    engines = [load_engine(engine_names()[0])]
    engines += [load_engine(name) for name in engine_names()[1:] if not _serves(engines[-1], asks)]
    return next((engine for engine in engines if _serves(engine, asks)), engines[0])


def _serves(engine: Engine, asks: Sequence[Ask]) -> bool:
    return all(engine.ladder_for(ask.key) is not None for ask in asks)
