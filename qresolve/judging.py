"""What a question comes to: solves it, and gives a view of every row with the digests of the records used."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qresolve.classes import at_least_as_good, rank
from qresolve.explain import Alone, RowView, not_known, unserved, view
from qresolve.knowledge.digests import records_of_ladder
from qresolve.knowledge.load import digest_of
from qresolve.measured import kernel_records, measured_wheels, toolchain_records
from qresolve.model.asking import one_a_row
from qresolve.remedies import with_remedies
from qresolve.request import (
    beside,
)
from qresolve.resolution import Core, Impossible, Resolution, Row, best_together, solve
from qresolve.situation import compares_of
from qresolve.ways import Assignment, Bench, Way, host_variables, settings_of
from qresolve.wheels.index_text import row_digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qresolve.knowledge.records import Engine
    from qresolve.question import Question
    from qresolve.setting import Setting


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


def answer(question: Question, *, extra: bool = True) -> Answer:
    """Judge every row: together where that works, else what each comes to in one environment of the newest release."""
    core = question.core()
    solved = solve(core)
    if isinstance(solved, Impossible):
        return _answer(question, core.releases[0], None, core, extra=extra)
    return _answer(question, solved.release, solved, core, extra=extra)


def answer_for(question: Question, resolution: Resolution) -> Answer:
    """The answer of a resolution that was already found, without the unasked rows."""
    return _answer(question, resolution.release, resolution, question.core(), extra=False)


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
    looked_at: set[str] = set()
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
            facts = {item.fact for item in compares_of(engine, bench.ladder)}
            looked_at |= facts
            if any(fact.startswith("image.") for fact in facts):
                records |= kernel_records(row.ask.scheme, row.ask.role)
            if any(fact.startswith("toolchain.triton.") for fact in facts):
                triton = bench.table.get("package.triton").value
                records |= toolchain_records(None if triton is None else str(triton))
        if row.key in chosen:
            way, beside_it = chosen[row.key]
        else:
            way, beside_it = core.best_way(release, row), ()
        views.append(with_remedies(question, release, row, _view(row, bench, plain, way, beside_it)))
    merged = tuple(_with_alone(question, release, row) for row in one_a_row(rows, views))
    wheels = question.wheels.get(release)
    for wheel in measured_wheels(engine, question.target.machine, wheels, looked_at, opened=question.opened):
        records[f"wheel:{wheel.filename}"] = row_digest(wheel)
    return Answer(
        engine=engine,
        rows=merged,
        settings=resolution.settings if resolution is not None else (),
        resolution=resolution,
        records=dict(sorted(records.items())),
    )


def _with_alone(question: Question, release: str, found: RowView) -> RowView:
    """The view with what it comes to without the other rows, where that is better."""
    asked = question.rows()
    own = tuple(row for row in asked if (row.ask.key, row.arch) == (found.selector, found.arch))
    # What holds in the class that the scheme wants cannot be better, and what stands alone already is judged so.
    if not own or len(own) == len(asked) or at_least_as_good(found.verdict, own[0].ask.scheme.wants):
        return found
    core = Core(releases=(release,), rows=own, bench=question.bench)
    outcomes = [way.outcome for way, _ in best_together(core, release).values() if way is not None]
    if len(outcomes) < len(own):
        return found
    worst = max(outcomes, key=lambda outcome: rank(outcome.verdict))
    if rank(worst.verdict) >= rank(found.verdict):
        return found
    route = None if worst.route is None else question.engine(release).routes[worst.route].name
    return replace(found, alone=Alone(verdict=worst.verdict, route=route))


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
