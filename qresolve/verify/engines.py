"""Rungs 1 to 6 of one installed engine: its selector and predicates are asked, its kernels read or built."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qresolve.knowledge.load import schemes_by_key
from qresolve.knowledge.predicates import read_predicates
from qresolve.verify.environment import facts_here, read_host_facts
from qresolve.verify.evidence import Binds, Outcome
from qresolve.verify.images import installed_images, look_at_images
from qresolve.verify.plugins import engine_plugin, library_plugin
from qresolve.verify.plugins.plugin import Asked, Predicates
from qresolve.verify.predicates import look_at_predicates, predicates_of
from qresolve.verify.rungs import SELECTION, TOOLCHAIN
from qresolve.verify.selection import Answered, look_at_selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from qresolve.facts import Value
    from qresolve.knowledge.records import Engine, Workload
    from qresolve.verify.evidence import Evidence, FormatRow
    from qresolve.verify.plugins.plugin import Looking
    from qresolve.verify.selection import Picked

    Picks = Mapping[FormatRow, Picked | None]
    Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was seen of one engine: the pick of each row, None where none is known, and the evidence."""

    picks: Picks
    evidence: tuple[Evidence, ...]


def look_at_engine(
    looking: Looking,
    engine: Engine,
    rows: Sequence[FormatRow],
    *,
    workload: Workload,
    assumed: Mapping[str, str],
    progress: Progress,
) -> Seen:
    """Look at one engine. ``assumed`` are facts of the workload as text, by name."""
    asked, unserved = _lay_out(looking, engine, rows, workload=workload, assumed=assumed)
    plugin = engine_plugin(engine.name)
    known = [one for one in read_predicates() if one.engine == engine.name]
    answers: Mapping[FormatRow, Answered] = {}
    told = Predicates(answers={}, source="")
    if plugin is None:
        answers = {one.row: Answered(problem=f"nothing here asks the selectors of {engine.name}") for one in asked}
    elif asked:
        progress(f"the selectors of {engine.name} {engine.release.version}")
        # Both import torch and wait for it, each in a process of its own.
        with ThreadPoolExecutor(max_workers=2) as pool:
            selectors = pool.submit(plugin.ask, looking, engine, asked)
            if known:
                told = plugin.predicates(
                    looking, [one.operation for one in known], sorted({one.row.sm for one in asked})
                )
            answers = selectors.result()
    picks: dict[FormatRow, Picked | None] = dict.fromkeys(rows)
    found = list(unserved)
    for one in asked:
        ladder = engine.ladder_for(one.row.key)
        assert ladder is not None  # noqa: S101 - for the type checker: rows without one were left out
        answered = answers.get(one.row, Answered(problem="it was not answered"))
        picked = look_at_selection(one.row, engine, ladder, one.facts, answered)
        picks[one.row] = picked
        found.append(picked.evidence)
        if picked.route is None:
            continue
        found += look_at_images(
            one.row,
            one.scheme,
            picked.route,
            one.facts,
            libraries=looking.libraries,
            architectures=looking.architectures,
        )
        found.append(
            look_at_predicates(
                one.row, picked.route, predicates_of(picked.route, known), told.answers, source=told.source
            )
        )
    found += _builds(looking, asked, picks, progress)
    return Seen(picks=picks, evidence=tuple(found))


def _lay_out(
    looking: Looking,
    engine: Engine,
    rows: Sequence[FormatRow],
    *,
    workload: Workload,
    assumed: Mapping[str, str],
) -> tuple[list[Asked], list[Evidence]]:
    """The rows with their facts, and evidence for those that the engine has no route for."""
    schemes = schemes_by_key()
    host = read_host_facts(looking.environment)
    given: dict[str, Value] = {key: engine.vocabulary.parse_value(key, text) for key, text in assumed.items()}
    asked: list[Asked] = []
    unserved: list[Evidence] = []
    for row in rows:
        if engine.ladder_for(row.key) is None:
            why = engine.unserved.get(row.format, f"{engine.name} {engine.release.version} has no route for it")
            unserved.append(unasked(row, why, outcome=Outcome.REFUTED))
            continue
        facts = facts_here(
            looking.environment,
            engine,
            schemes[row.key],
            sm=row.sm,
            workload=workload,
            images=installed_images(row.sm, libraries=looking.libraries, architectures=looking.architectures),
            architectures=looking.architectures,
            host=host,
        )
        known = facts.with_values(dict(given), "assumed by the lock")
        asked.append(Asked(row=row, scheme=schemes[row.key], facts=known))
    return asked, unserved


def _builds(looking: Looking, asked: Sequence[Asked], picks: Picks, progress: Progress) -> Iterator[Evidence]:
    for one in asked:
        picked = picks[one.row]
        if picked is None or picked.route is None:
            continue
        route = picked.route
        if route.built == "precompiled":
            why = "its kernel is in the wheel, nothing is compiled"
            yield TOOLCHAIN.observed(one.row, route.name, Outcome.SKIPPED, binds=Binds.ROUTE, why=why)
            continue
        plugin = library_plugin(route.library)
        if plugin is None:
            why = f"nothing here builds the kernels of {route.library} without a card"
            yield TOOLCHAIN.observed(one.row, route.name, Outcome.UNPROVED, binds=Binds.ROUTE, why=why)
            continue
        progress(f"{route.library}'s kernel for {one.row} on {one.row.arch}")
        yield plugin.build(looking, one, route)


def unasked(row: FormatRow, why: str, *, outcome: Outcome = Outcome.UNPROVED) -> Evidence:
    """Evidence of rung 5 for a row that no selector was asked about."""
    implies = "unsupported" if outcome is Outcome.REFUTED else None
    return SELECTION.observed(row, row.engine or "no engine", outcome, why=why, implies=implies)
