"""The engine's selector, simulated: which route wins on given facts, and why the others lost. Pure.

It follows the order that every selector we know has: restrict by an explicit backend, reorder by conditions, take a
forced route if there is one, else walk the ladder and take the first route whose selection gates all hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from qresolve.gates import Compare, Undecided, decide

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from qresolve.knowledge.records import ClassVariant, Explicit, Gate, Ladder, Route

    Answer = Callable[[Compare], bool | None]

BROKEN = "broken"
UNSUPPORTED = "unsupported"
UNKNOWN_CLASS = "unknown"
DOCUMENTED = "documented"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the selector comes to: the verdict, the picked route's id, the gate that breaks it, the reason.

    ``claimed`` is the class that documentation alone speaks for; the verdict is unknown then, as nothing of it was
    read in a source or measured.
    """

    verdict: str
    route: str | None
    gate: str | None = None
    why: str = ""
    claimed: str = ""


def ordered_routes(ladder: Ladder, answer: Answer) -> tuple[str, ...]:
    """The ladder's order after its conditional moves."""
    order = list(ladder.order)
    for move in ladder.moves:
        if move.route in order and move.before in order and decide(move.when, answer):
            here, there = order.index(move.route), order.index(move.before)
            if here > there:
                order.insert(there, order.pop(here))
    return tuple(order)


def named_backend(explicit: Explicit, backends: tuple[str, ...], answer: Answer) -> str | None:
    """The backend that the configuration key names, None where it leaves the choice to the engine.

    ``backends`` are those that some route of the ladder has; any other named value is ``""``.
    """
    for value in explicit.auto:
        held = answer(Compare(explicit.fact, "is", value))
        if held is None:
            raise Undecided(explicit.fact)
        if held:
            return None
    for backend in backends:
        if answer(Compare(explicit.fact, "is", backend)):
            return backend
    return ""


def select(ladder: Ladder, routes: Mapping[str, Route], answer: Answer) -> Outcome:
    """Run the simulated selector.

    Raises:
        Undecided: a fact that decides is not known.

    """
    for force in ladder.forces:
        if decide(force.when, answer):
            return _forced(ladder, routes[force.route], answer)
    order = ordered_routes(ladder, answer)
    named = False
    hearsay = ladder.source.kind == DOCUMENTED
    for explicit in ladder.explicit:
        backends = tuple(dict.fromkeys(backend for route in order for backend in routes[route].backends))
        backend = named_backend(explicit, backends, answer)
        if backend is None:
            continue
        matching = tuple(route for route in order if backend in routes[route].backends)
        if matching:
            order, named = matching, True
        elif explicit.unmatched == "raise":
            return Outcome(verdict=UNSUPPORTED, route=None, why=f"{explicit.fact} names a backend without a route here")
        break
    for identifier in order:
        route = routes[identifier]
        if route.explicit_only and not named:
            continue
        # Gates before the disabled names: whether a route that is rejected anyway is disabled decides nothing.
        failed = _first_failed(route, answer)
        if failed is not None:
            hearsay = hearsay or failed.source.kind == DOCUMENTED
            continue
        if ladder.disabled_by and _disabled(ladder.disabled_by, route.name, answer):
            continue
        return judge(route, answer, hearsay=hearsay)
    return Outcome(verdict=UNSUPPORTED, route=None, why=ladder.nothing)


def _first_failed(route: Route, answer: Answer) -> Gate | None:
    """The gate that rejects the route: one that was read or measured before one that documentation alone states."""
    by_documentation = None
    for gate in route.select:
        if decide(gate.when, answer):
            continue
        if gate.source.kind != DOCUMENTED:
            return gate
        by_documentation = by_documentation or gate
    return by_documentation


def _disabled(fact: str, name: str, answer: Answer) -> bool:
    held = answer(Compare(fact, "has", name))
    if held is None:
        raise Undecided(fact, name)
    return held


def _forced(ladder: Ladder, route: Route, answer: Answer) -> Outcome:
    for gate in route.select:
        if not decide(gate.when, answer):
            return Outcome(
                verdict=UNSUPPORTED,
                route=None,
                gate=gate.id,
                why=f"{route.name} is forced and {ladder.nothing}",
            )
    return judge(route, answer, hearsay=ladder.source.kind == DOCUMENTED)


def judge(route: Route, answer: Answer, *, hearsay: bool = False) -> Outcome:
    """The verdict of a picked route: broken where an execution gate fails, else its class here.

    The class is unknown where the route, a gate of it, or (``hearsay``) what led to it is documented only.
    """
    for gate in route.execute:
        if not decide(gate.when, answer):
            return Outcome(verdict=BROKEN, route=route.id, gate=gate.id, why=gate.say)
    for variant in route.classes:
        if decide(variant.when, answer):
            if variant.class_ != UNKNOWN_CLASS and (hearsay or _is_documented_only(route)):
                return _claimed(route, variant)
            return Outcome(verdict=variant.class_, route=route.id, why=variant.why)
    return Outcome(verdict=UNKNOWN_CLASS, route=route.id, why="no record says which class it has here")


def _is_documented_only(route: Route) -> bool:
    gates = (*route.select, *route.execute)
    return DOCUMENTED in {route.source.kind, *(gate.source.kind for gate in gates)}


def _claimed(route: Route, variant: ClassVariant) -> Outcome:
    words = f"{variant.class_} is known from documentation only ({route.source.where})"
    why = f"{words}; {variant.why}" if variant.why else words
    return Outcome(verdict=UNKNOWN_CLASS, route=route.id, why=why, claimed=variant.class_)
