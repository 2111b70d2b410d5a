"""Rung 4: what the engine's compiled predicates say of the target's compute capability, and what that is worth.

A predicate is what the selector is told. It can lie (vLLM 0.12.0 says yes on sm121, where no image of its loads), so a
yes proves this rung alone; a no of one that the picked route asks refutes the route.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from qresolve.knowledge.predicates import conditions_in
from qresolve.verify.evidence import Evidence, Outcome
from qresolve.verify.rungs import PREDICATES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qresolve.knowledge.predicates import CompiledPredicate
    from qresolve.knowledge.records import Route
    from qresolve.verify.evidence import FormatRow


@dataclass(frozen=True, slots=True, kw_only=True)
class PredicateAnswer:
    """What an operation answered for one GPU; ``said`` is None where it did not, and ``problem`` says why."""

    said: bool | None
    problem: str = ""


def predicates_of(route: Route, predicates: Sequence[CompiledPredicate]) -> tuple[CompiledPredicate, ...]:
    """The predicates that a route's gates ask, in the order of the data."""
    asked = {name for gate in (*route.select, *route.execute) for name in conditions_in(gate.when)}
    return tuple(one for one in predicates if one.condition in asked)


def look_at_predicates(
    row: FormatRow,
    route: Route,
    asked: Sequence[CompiledPredicate],
    answers: Mapping[tuple[str, int], PredicateAnswer],
    *,
    source: str,
) -> Evidence:
    """Evidence of rung 4; ``answers`` are by operation and sm, ``source`` is the library that was asked."""
    if not asked:
        return PREDICATES.observed(
            row, route.name, Outcome.SKIPPED, why="no compiled predicate takes part in picking it"
        )
    told = [(one, answers.get((one.operation, row.sm))) for one in asked]
    seen = ", ".join(
        f"{one.operation}({row.sm}) = {answer.said if answer is not None else 'not asked'}" for one, answer in told
    )
    said = [None if answer is None else answer.said for _, answer in told]
    if False in said:
        return PREDICATES.observed(
            row, route.name, Outcome.REFUTED, seen=seen, why="the engine will not take it here", source=source,
            implies="unsupported",
        )  # fmt: skip
    if None in said:
        problems = [answer.problem if answer is not None else "nothing was answered" for _, answer in told]
        return PREDICATES.observed(
            row,
            route.name,
            Outcome.UNPROVED,
            seen=seen,
            why="; ".join(dict.fromkeys(filter(None, problems))),
            source=source,
        )
    return PREDICATES.observed(row, route.name, Outcome.PROVED, seen=seen, source=source)
