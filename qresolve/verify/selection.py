"""Rung 5: which route the installed engine's own selector picks, and which class our record gives that route here.

The pick is the engine's. The record adds what nobody tests at run time: whether the picked kernel works and at which
precision it multiplies. Where the records would have picked something else, one of the two is wrong about this
environment, and nothing is proved.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qresolve.classes import CLASSES, at_least_as_good
from qresolve.completions import TooManyCompletions, possible
from qresolve.facts import Fact
from qresolve.selector import BROKEN, UNKNOWN_CLASS, judge, select
from qresolve.situation import thresholds_of
from qresolve.verify.evidence import Outcome
from qresolve.verify.rungs import SELECTION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qresolve.facts import FactTable
    from qresolve.inside.process import ScriptEnd
    from qresolve.knowledge.records import Engine, Ladder, Route
    from qresolve.selector import Outcome as Selected
    from qresolve.verify.evidence import Evidence, FormatRow

_SHORT = 12  # of a digest, where a person reads it


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What a selector answered for one row: exactly one of ``picked``, ``refused`` and ``problem``.

    ``kind`` is the class that was picked, ``files`` the engine's files that the answer went through with their sha256.
    """

    picked: str | None = None
    refused: str | None = None
    problem: str | None = None
    kind: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


def unanswered(line: Mapping[str, Any] | None, end: ScriptEnd) -> Answered:
    """What stands for the answer of a job that failed (``line`` says how) or that gave no line at all."""
    how = str(line["failed"]) if line is not None else end.how
    return Answered(problem=f"{how}{f' (it said: {end.last[:200]})' if end.last else ''}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """What rung 5 came to: the evidence, and the picked route's record with the class that it has here, if known."""

    evidence: Evidence
    route: Route | None = None
    class_: str | None = None


def look_at_selection(
    row: FormatRow, engine: Engine, ladder: Ladder, facts: FactTable, answered: Answered, *, hint: str = ""
) -> Picked:
    """Judge what the installed selector answered for one row."""
    subject = f"{engine.name} {engine.release.version}"
    if answered.refused is not None:
        return _picked(row, subject, answered, Outcome.REFUTED, why=answered.refused, implies="unsupported")
    expected = simulated_routes(engine, ladder, facts)
    if answered.problem is not None:
        why = f"could not be asked: {answered.problem}"
        if len(expected) != 1:
            return _picked(row, subject, answered, Outcome.UNPROVED, why=why)
        # Nothing is proved by it, but what the records expect can be looked at, and refuted.
        likely = engine.routes[next(iter(expected))]
        why = f"{why}; the records expect {likely.name}"
        return _picked(row, subject, answered, Outcome.UNPROVED, why=why, route=likely)
    routes = routes_named(engine, ladder, answered.picked or "", answered.kind)
    route = next((one for one in routes if one.id in expected), routes[0] if routes else None)
    if route is None:
        return _picked(row, subject, answered, Outcome.UNPROVED, why=f"no record knows `{answered.picked}`{hint}")
    if route.id not in expected:
        names = ", ".join(sorted({engine.routes[one].name for one in expected})) or "nothing"
        why = f"the records expect {names} here: they or this environment are not what they seem{hint}"
        class_ = _one_class(classes_here(engine, ladder, route, facts))
        return _picked(row, subject, answered, Outcome.UNPROVED, why=why, route=route, class_=class_)
    outcomes = classes_here(engine, ladder, route, facts)
    class_ = _one_class(outcomes)
    if class_ is None:
        words = " or ".join(sorted({one.verdict for one in outcomes}))
        why = next((one.why for one in outcomes if one.why), "")
        why = f"it is {words} here, by what is not known{f' ({why})' if why else ''}"
        return _picked(row, subject, answered, Outcome.UNPROVED, why=why, route=route)
    why = outcomes[0].why
    if class_ in CLASSES and at_least_as_good(class_, row.wanted):
        return _picked(row, subject, answered, Outcome.PROVED, route=route, class_=class_)
    if class_ == UNKNOWN_CLASS:
        return _picked(row, subject, answered, Outcome.UNPROVED, why=why, route=route)
    said = f"it is {class_} here, {row.wanted} is wanted" if class_ != BROKEN else "it is picked, and fails"
    why = f"{said}{f': {why}' if why else ''}"
    return _picked(row, subject, answered, Outcome.REFUTED, why=why, route=route, class_=class_, implies=class_)


def simulated_routes(engine: Engine, ladder: Ladder, facts: FactTable) -> frozenset[str]:
    """The ids of every route that our selector could take on these facts."""
    try:
        found = possible(lambda answer: select(ladder, engine.routes, answer), facts, thresholds_of(engine, ladder))
    except TooManyCompletions:
        return frozenset()
    return frozenset(one.outcome.route for one in found if one.outcome.route is not None)


def classes_here(engine: Engine, ladder: Ladder, route: Route, facts: FactTable) -> tuple[Selected, ...]:
    """Every outcome that the picked route can have on these facts, its images left aside: rungs 1 to 3 look at them."""
    loads = Fact(value="sass", source="left to the rungs that look at images")
    try:
        found = possible(
            lambda answer: judge(route, answer), facts.with_all("image.", loads), thresholds_of(engine, ladder)
        )
    except TooManyCompletions:
        return ()
    return tuple(one.outcome for one in found)


def _one_class(outcomes: Sequence[Selected]) -> str | None:
    verdicts = {one.verdict for one in outcomes}
    return verdicts.pop() if len(verdicts) == 1 else None


def routes_named(engine: Engine, ladder: Ladder, picked: str, kind: str) -> tuple[Route, ...]:
    """The routes of a ladder that the engine's name stands for.

    ``picked`` is a class, ``BACKEND/ExpertsClass``, or valid attention backends in order, joined by ``+``, of which
    the engine takes the first. An experts class that a route's record does not name is another route.
    """
    name = picked.split("+", maxsplit=1)[0]
    backend, slash, experts = name.partition("/")
    ids = (*ladder.order, *(force.route for force in ladder.forces))
    found = [engine.routes[one] for one in dict.fromkeys(ids) if engine.routes[one].name == backend]
    if slash and found and not any(experts in route.source.where for route in engine.routes.values()
                                   if route.name == backend):  # fmt: skip
        return ()
    return tuple(found) or tuple(
        engine.routes[one] for one in dict.fromkeys(ids) if kind and engine.routes[one].name == kind.rpartition(".")[2]
    )


def _picked(
    row: FormatRow,
    subject: str,
    answered: Answered,
    outcome: Outcome,
    *,
    why: str | None = None,
    route: Route | None = None,
    class_: str | None = None,
    implies: str | None = None,
) -> Picked:
    seen = answered.picked
    if answered.kind:
        seen = f"{seen} ({answered.kind})"
    files = ", ".join(f"{path} sha256:{digest[:_SHORT]}" for path, digest in answered.files.items())
    return Picked(
        evidence=SELECTION.observed(row, subject, outcome, seen=seen, why=why, source=files or None, implies=implies),
        route=route,
        class_=class_,
    )
