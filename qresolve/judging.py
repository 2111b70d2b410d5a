"""Joins request, target and records: lays out benches, solves, and gives a view of every row.

The only place that knows how the pure stages hang together for one question; it reads records, and nothing else.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from qresolve.classes import at_least_as_good
from qresolve.explain import Remedy, RowView, not_known, unserved, view
from qresolve.knowledge.digests import records_of_ladder
from qresolve.knowledge.engine import engine_names, load_engine, read_releases
from qresolve.knowledge.load import digest_of, read_formats, read_workload
from qresolve.ledger import Ledger
from qresolve.measured import images_for, measured_wheels, toolchain_fact, toolchain_records, versions_of
from qresolve.model.asking import asks_of, one_a_row
from qresolve.model.model import check_ranks, workload_of
from qresolve.model.parse import parse_model
from qresolve.model.records import read_checkpoint_book
from qresolve.request import (
    Allowance,
    Ask,
    beside,
    parse_allow,
    parse_assumptions,
    parse_engine,
    parse_formats,
    wanted_class,
)
from qresolve.resolution import Core, Impossible, Resolution, Row, best_together, solve
from qresolve.situation import Host, compares_of, facts_of
from qresolve.ways import Assignment, Bench, Way, bench_of, host_variables, settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qresolve.arch import Architectures
    from qresolve.facts import Value
    from qresolve.knowledge.records import Engine, FormatBook, Scheme, Workload
    from qresolve.model.model import Model
    from qresolve.model.read import Checkpoint
    from qresolve.setting import Setting
    from qresolve.target.target import Target


@dataclass(slots=True)
class Question:
    """One request against one target, with the records it needs loaded on demand."""

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
    excluded: set[str] = field(default_factory=set)
    _engines: dict[str, Engine] = field(default_factory=dict)
    _benches: dict[tuple[str, str, bool], Bench | None] = field(default_factory=dict)

    def engine(self, release: str) -> Engine:
        """The engine's records for a release."""
        if release not in self._engines:
            self._engines[release] = load_engine(self.engine_name, release)
        return self._engines[release]

    def releases(self) -> tuple[str, ...]:
        """The releases to try, newest first: the pinned one alone, or all known ones that were not excluded."""
        if self.engine_version is not None:
            return (self.engine(self.engine_version).release.version,)
        return tuple(item.version for item in read_releases(self.engine_name) if item.version not in self.excluded)

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
        """Why the row cannot be judged for this model, empty where it can."""
        return self.model.unknown(row.ask.key) if self.model is not None else ""

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
            images=images_for(versions_of(engine), self.target.machine, wheels=self.wheels.get(release)),
            architectures=self.architectures,
            assumed=self.assumed,
            packages=self.packages.get(release),
            toolchain=toolchain_fact,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a question comes to: a release, a view of every row, merged settings and the digest of the records."""

    engine: Engine
    rows: tuple[RowView, ...]
    settings: tuple[Setting, ...]
    resolution: Resolution | None
    records: Mapping[str, str]

    @property
    def data_digest(self) -> str:
        """The digest over the records that were used."""
        return digest_of(dict(self.records))


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
        host=Host(nvcc="absent" if nvcc == "none" else nvcc),
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


def answer(question: Question, *, extra: bool = True) -> Answer:
    """Judge every row: together where that works, else what each comes to in one environment of the newest release."""
    core = question.core()
    solved = solve(core)
    if isinstance(solved, Impossible):
        return _separate(question, core, extra=extra)
    return _answer(question, solved.release, solved, core, extra=extra)


def answer_for(question: Question, resolution: Resolution) -> Answer:
    """The answer of a resolution that was already found, without the unasked rows."""
    return _answer(question, resolution.release, resolution, question.core(), extra=False)


def _separate(question: Question, core: Core, *, extra: bool) -> Answer:
    return _answer(question, core.releases[0], None, core, extra=extra)


def _answer(question: Question, release: str, resolution: Resolution | None, core: Core, *, extra: bool) -> Answer:
    engine = question.engine(release)
    chosen: dict[str, tuple[Way | None, Assignment]]
    if resolution is not None:
        chosen = {item.row.key: (item.way, resolution.assignment) for item in resolution.rows}
    else:
        chosen = best_together(core, release)
    records = {
        f"release:{engine.name}=={release}": engine.digests[f"release:{engine.name}=={release}"],
        f"workload:{question.workload.name}": question.workload_digest,
        **(question.model.records if question.model is not None else {}),
    }
    views = []
    rows = question.rows()
    if extra:
        rows += question.rows(beside(question.asks, question.book))
    for row in rows:
        records[f"format:{row.ask.scheme.format}"] = question.book.digests[f"format:{row.ask.scheme.format}"]
        bench = question.bench(release, row)
        plain = question.bench(release, row, plain=True)
        if why := question.not_known(row):
            views.append(not_known(row, why))
            continue
        if bench is None or plain is None:
            views.append(
                unserved(row, engine.unserved.get(row.ask.scheme.format, f"{engine.name} has no route for it"))
            )
            continue
        if row.ask.asked:
            records |= records_of_ladder(engine, bench.ladder)
            if any(item.fact.startswith("toolchain.triton.") for item in compares_of(engine, bench.ladder)):
                triton = bench.table.get("package.triton").value
                records |= toolchain_records(None if triton is None else str(triton))
        if row.key in chosen:
            way, beside_it = chosen[row.key]
        else:
            way, beside_it = core.best_way(release, row), ()
        views.append(_with_remedies(question, release, row, _view(row, bench, plain, way, beside_it)))
    for wheel in measured_wheels(engine, question.target.machine, question.wheels.get(release)):
        records[f"wheel:{wheel.filename}"] = f"sha256:{wheel.sha256}"
    return Answer(
        engine=engine,
        rows=one_a_row(rows, views),
        settings=resolution.settings if resolution is not None else (),
        resolution=resolution,
        records=dict(sorted(records.items())),
    )


def _view(row: Row, bench: Bench, plain: Bench, way: Way | None, beside_it: Assignment) -> RowView:
    assignment = tuple(sorted({**dict(beside_it), **dict(way.assignment if way is not None else ())}.items()))
    settings: tuple[Setting, ...] = ()
    if way is not None:
        fixed = host_variables(bench, assignment, way.outcome)
        settings = tuple(sorted((*settings_of(way.assignment), *settings_of(fixed)), key=lambda item: item.sort_key))
    return view(
        row,
        bench=bench,
        plain=plain,
        assignment=assignment,
        outcome=way.outcome if way is not None else None,
        settings=settings,
    )


def _with_remedies(question: Question, release: str, row: Row, found: RowView) -> RowView:
    same = options_of(question, row.arch)
    remedies: list[Remedy] = []
    if found.holds:
        if not at_least_as_good(found.auto.verdict, row.wanted) and row.ask.asked:
            remedies.append(
                Remedy(
                    say=f"a plain install gives {found.auto.verdict}; the lock's settings make it {found.verdict}",
                    run=f"qresolve lock {same} --formats {found.selector}",
                )
            )
    elif row.ask.asked:
        engine = f"{question.engine_name} {release}"
        alone = Core(releases=(release,), rows=(row,), bench=question.bench)
        if next(alone.ways_of(release, row), None) is not None:
            remedies.append(
                Remedy(
                    say=f"beside the others it is {found.verdict}; an environment of its own makes it {row.wanted}",
                    run=f"qresolve lock {same} --formats {found.selector}",
                )
            )
        elif found.verdict in {"mixed", "storage-only", "weight-only", "emulated"}:
            remedies.append(
                Remedy(
                    say=f"no install of {engine} makes it {row.wanted} on {row.arch}; accept {found.verdict}",
                    run=f"qresolve lock {same} --formats {found.selector} --allow {found.selector}={found.verdict}",
                )
            )
        cuda = question.engine(release).release.cuda
        if found.verdict == "unknown" and question.host.nvcc is None and _holds_with_nvcc(question, release, row, cuda):
            remedies.append(
                Remedy(
                    say=f"it is compiled on the host; with a CUDA {cuda} toolkit there it is {row.wanted}",
                    run=f"qresolve lock {same} --formats {found.selector} --nvcc {cuda}",
                )
            )
        instead = alternatives(question, release, row)
        if instead:
            remedies.append(
                Remedy(
                    say=f"use a format that is native there: {', '.join(instead)}",
                    run=f"qresolve explain {options_of(question, row.arch, model=False)} --formats {instead[0]}",
                )
            )
    return replace(found, remedy=tuple(remedies))


def _holds_with_nvcc(question: Question, release: str, row: Row, cuda: str) -> bool:
    there = replace(question, host=replace(question.host, nvcc=cuda), _benches={})
    return next(Core(releases=(release,), rows=(row,), bench=there.bench).ways_of(release, row), None) is not None


def options_of(question: Question, arch: str, *, model: bool = True) -> str:
    """The options that ask the same of one GPU of the target: what was given, and none of the defaults.

    ``model`` says whether the checkpoint is named too: a command about another format cannot.
    """
    target = question.target
    gpu = next(gpu for gpu in target.gpus if gpu.arch == arch)
    defaulted = {item.option for item in target.defaults}
    words = ["--gpu", gpu.name if gpu.source == "named" else gpu.arch]
    for option, value in (
        ("--machine", target.machine),
        ("--glibc", target.glibc),
        ("--python", target.python),
        ("--driver", target.driver),
        ("--cuda", target.cuda),
        ("--nvcc", target.nvcc),
    ):
        if value is not None and option not in defaulted:
            words += [option, value]
    name, version = question.engine_name, question.engine_version
    if version is not None or name != engine_names()[0]:
        words += ["--engine", name if version is None else f"{name}=={version}"]
    if model and question.model is not None:
        words += ["--model", question.model.given]
    for option, ranks in (("--tp", question.tp), ("--ep", question.ep)):
        words += [option, str(ranks)] if ranks is not None else []
    for key, assumed in question.assumed.items():
        text = ",".join(sorted(assumed)) if isinstance(assumed, frozenset) else str(assumed)
        words += ["--assume", f"{key}={text.lower() if isinstance(assumed, bool) else text}"]
    return shlex.join(words)


def alternatives(question: Question, release: str, row: Row) -> tuple[str, ...]:
    """Other formats whose default scheme in the same role runs as it wants on that GPU, in data order."""
    found = []
    engine = question.engine(release)
    for item in question.book.formats:
        name = item.default.get(row.ask.role)
        if item.name == row.ask.scheme.format or name is None:
            continue
        scheme = next(s for s in item.schemes if s.name == name and row.ask.role in s.roles)
        if scheme.wants != "native" or engine.ladder_for(scheme.key(row.ask.role)) is None:
            continue
        ask = Ask(scheme=scheme, role=row.ask.role, asked=False)
        other = Row(ask=ask, arch=row.arch, sm=row.sm, wanted=scheme.wants)
        core = Core(releases=(release,), rows=(other,), bench=question.bench)
        if next(core.ways_of(release, other), None) is not None:
            found.append(item.name if row.ask.role == "dense" else f"{item.name}:{row.ask.role}")
    return tuple(found)
