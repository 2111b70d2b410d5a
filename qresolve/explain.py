"""What each row comes to and why: the verdict that can be had, what a plain install does, every route with its gates.

Pure: it takes benches and ways, and gives records that :mod:`qresolve.report` turns into text and JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qresolve.classes import at_least_as_good, rank
from qresolve.completions import answer_from
from qresolve.gates import Undecided, describe, kleene, leaves
from qresolve.selector import BROKEN, judge, ordered_routes
from qresolve.shells import words_of_gate

if TYPE_CHECKING:
    from collections.abc import Callable

    from qresolve.facts import Fact, FactTable, Value
    from qresolve.gates import Compare
    from qresolve.knowledge.records import Claim, Engine, Gate, Route
    from qresolve.resolution import Row
    from qresolve.selector import Outcome
    from qresolve.setting import Setting
    from qresolve.ways import Assignment, Bench


@dataclass(frozen=True, slots=True, kw_only=True)
class GateView:
    """A gate with its outcome: what it needs, and what the facts it looks at are."""

    id: str
    outcome: str  # pass, fail, unknown
    needs: str
    have: str
    loudness: str
    source: str
    say: str
    stage: str  # select, execute


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteView:
    """A route with its one decision: selected, available (its gates pass, another comes first) or rejected."""

    name: str
    id: str
    class_: str
    decision: str
    gates: tuple[GateView, ...]
    status: str = "supported"
    status_why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Auto:
    """What a plain install does on a host without a CUDA toolkit, and how loudly it says so."""

    verdict: str
    route: str | None
    loudness: str
    why: str
    assumes: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One thing to do: words, and a command that works as printed (None where there is none)."""

    say: str
    run: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """What one group of a model's layers comes to: those of one scheme and role that have the same facts."""

    name: str
    verdict: str
    holds: bool
    route: str | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """What a row comes to in an environment of its own, where that is better than beside the other rows."""

    verdict: str
    route: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowView:
    """All that is to be said about one row."""

    format: str
    scheme: str
    role: str
    arch: str
    asked: bool
    wanted: str
    holds: bool
    verdict: str
    level: str
    possible: tuple[str, ...]
    route: str | None
    why: str
    settings: tuple[Setting, ...]
    auto: Auto
    routes: tuple[RouteView, ...]
    remedy: tuple[Remedy, ...]
    claims: tuple[Claim, ...]
    layers: tuple[Layers, ...] = ()
    """The groups of layers of a model, of which the row is the worst; none where no model says them."""
    alone: Alone | None = None

    @property
    def selector(self) -> str:
        """``mxfp4@w4a4:dense``."""
        return f"{self.format}@{self.scheme}:{self.role}"

    @property
    def reservation(self) -> RouteView | None:
        """The selected route where its authors do not fully vouch for it: whoever says that the row holds says this."""
        return next((item for item in self.routes if item.decision == "selected" and item.status != "supported"), None)


def unserved(row: Row, why: str) -> RowView:
    """The view of a row that no ladder serves."""
    return RowView(
        format=row.ask.scheme.format,
        scheme=row.ask.scheme.name,
        role=row.ask.role,
        arch=row.arch,
        asked=row.ask.asked,
        wanted=row.wanted,
        holds=False,
        verdict="unsupported",
        level="data",
        possible=("unsupported",),
        route=None,
        why=why,
        settings=(),
        auto=Auto(verdict="unsupported", route=None, loudness="raises", why=why, assumes=()),
        routes=(),
        remedy=(),
        claims=(),
    )


def not_known(row: Row, why: str) -> RowView:
    """The view of a row that the records do not speak of."""
    found = unserved(row, why)
    auto = replace(found.auto, verdict="unknown", loudness="silent")
    return replace(found, verdict="unknown", possible=("unknown",), auto=auto)


def view(
    row: Row,
    *,
    bench: Bench,
    plain: Bench,
    assignment: Assignment,
    outcome: Outcome | None,
    settings: tuple[Setting, ...],
) -> RowView:
    """The view of a row under an assignment.

    Args:
        row: the asked row.
        bench: its facts with the host unknown.
        plain: its facts on a host that shows neither nvcc nor ninja.
        assignment: the way's deviations together with those of the other rows.
        outcome: the way's outcome; None where no way is certain, then all outcomes of the plain install count.
        settings: the way's own settings with the host variables that they fix.
    """
    outcomes = (outcome,) if outcome is not None else tuple(item.outcome for item in bench.outcomes(assignment))
    verdicts = tuple(sorted({item.verdict for item in outcomes}, key=rank))
    verdict = verdicts[0] if len(verdicts) == 1 else "unknown"
    route = outcomes[0].route if len({item.route for item in outcomes}) == 1 else None
    table = bench.table.with_values(dict(assignment), "chosen")
    routes = routes_of(bench, table, route)
    claims = tuple(
        claim
        for claim in bench.engine.claims
        if row.ask.key in claim.serves and kleene(claim.when, answer_from(bench.table)) is True
    )
    return RowView(
        format=row.ask.scheme.format,
        scheme=row.ask.scheme.name,
        role=row.ask.role,
        arch=row.arch,
        asked=row.ask.asked,
        wanted=row.wanted,
        holds=at_least_as_good(verdict, row.wanted),
        verdict=verdict,
        level="data",
        possible=possible_verdicts(outcomes),
        route=bench.engine.routes[route].name if route is not None else None,
        why=_why(bench.engine, outcomes, table),
        settings=settings,
        auto=_auto(plain, row),
        routes=routes,
        remedy=(),
        claims=claims,
    )


def possible_verdicts(outcomes: tuple[Outcome, ...]) -> tuple[str, ...]:
    """The verdicts of all outcomes, best first, with the classes that documentation alone claims."""
    found = {item.verdict for item in outcomes} | {item.claimed for item in outcomes if item.claimed}
    return tuple(sorted(found, key=rank))


def _why(engine: Engine, outcomes: tuple[Outcome, ...], table: FactTable) -> str:
    reasons = dict.fromkeys(reason for item in outcomes if (reason := reason_of(engine, item, table)))
    return "; ".join(reasons)


def reason_of(engine: Engine, outcome: Outcome, table: FactTable) -> str:
    """The reason of an outcome, as it is on these facts."""
    if outcome.verdict != BROKEN or outcome.route is None:
        return outcome.why
    gate = next((one for one in engine.routes[outcome.route].execute if one.id == outcome.gate), None)
    return outcome.why if gate is None else words_of_gate(gate, table)


def _auto(plain: Bench, row: Row) -> Auto:
    found = plain.outcomes()
    verdicts = sorted({item.outcome.verdict for item in found}, key=rank)
    verdict = verdicts[0] if len(verdicts) == 1 else "unknown"
    routes = {item.outcome.route for item in found}
    route = next(iter(routes)) if len(routes) == 1 else None
    if verdict in {"broken", "unsupported"}:
        loudness = "raises"
    elif at_least_as_good(verdict, row.ask.scheme.wants):
        loudness = "none"
    else:
        loudness = _loudness(plain, route)
    return Auto(
        verdict=verdict,
        route=plain.engine.routes[route].name if route is not None else None,
        loudness=loudness,
        why=_why(plain.engine, tuple(item.outcome for item in found), plain.table),
        assumes=tuple(
            (key, value) for key in ("host.nvcc", "host.ninja") if (value := plain.table.get(key).value) is not None
        ),
    )


def _loudness(plain: Bench, picked: str | None) -> str:
    """How loudly the better routes were lost: the loudest of the gates that rejected them."""
    answer = answer_from(plain.table)
    order = ("silent", "logged", "warned", "raises")
    loudest = "silent"
    for identifier in plain.ladder.order:
        if identifier == picked:
            break
        for gate in plain.engine.routes[identifier].select:
            if kleene(gate.when, answer) is False and order.index(gate.loudness) > order.index(loudest):
                loudest = gate.loudness
    return loudest


def routes_of(bench: Bench, table: FactTable, selected: str | None) -> tuple[RouteView, ...]:
    """Every route of the ladder, in the order it has on these facts, with one decision each."""
    answer = answer_from(table)
    try:
        order = ordered_routes(bench.ladder, answer)
    except Undecided:
        order = bench.ladder.order
    forced = tuple(force.route for force in bench.ladder.forces)
    views = []
    for identifier in dict.fromkeys((*order, *forced)):
        route = bench.engine.routes[identifier]
        gates = tuple(
            gate_view(gate, table, answer, stage)
            for stage, gates in (("select", route.select), ("execute", route.execute))
            for gate in gates
        )
        decision = "available"
        if identifier == selected:
            decision = "selected"
        elif any(gate.outcome == "fail" for gate in gates):
            decision = "rejected"
        views.append(
            RouteView(
                name=route.name,
                id=route.id,
                class_=_class_here(route, answer),
                decision=decision,
                gates=gates,
                status=route.status,
                status_why=route.status_why,
            )
        )
    return tuple(views)


def _class_here(route: Route, answer: Callable[[Compare], bool | None]) -> str:
    try:
        return judge(replace(route, execute=()), answer).verdict
    except Undecided:
        return "unknown"


def gate_view(gate: Gate, table: FactTable, answer: Callable[[Compare], bool | None], stage: str) -> GateView:
    """A gate on these facts."""
    value = kleene(gate.when, answer)
    facts = dict.fromkeys(leaf.fact for leaf in leaves(gate.when))
    have = ", ".join(f"{key} {_shown(table.get(key))}" for key in facts)
    return GateView(
        id=gate.id,
        outcome={True: "pass", False: "fail", None: "unknown"}[value],
        needs=describe(gate.when),
        have=have,
        loudness=gate.loudness,
        source=gate.source.where,
        say=gate.say if value is not False else words_of_gate(gate, table),
        stage=stage,
    )


def _shown(fact: Fact) -> str:
    value = fact.value
    if fact.shell_image:
        return f"{value} ({fact.shell_image} is a shell)"
    if value is None:
        return "unknown"
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(value)) + "}"
    return f"{value}".lower() if isinstance(value, bool) else str(value)
