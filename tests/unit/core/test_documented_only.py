"""What documentation alone states never yields a class: the verdict is unknown, and the claim is told."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from qresolve.completions import answer_from, possible
from qresolve.exit_code import UNKNOWN, row_code
from qresolve.explain import possible_verdicts, view
from qresolve.gates import Compare
from qresolve.knowledge.records import Force
from qresolve.selector import Outcome, select
from tests.unit.core.small_engine import SOURCE, bench, engine, facts, is_, ladder, route, row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qresolve.facts import Value
    from qresolve.knowledge.records import Ladder, Route

DOCUMENTED = replace(SOURCE, kind="documented", where="the manual")
NEWER = Compare("gpu.sm", "at-least", 100)
HOPPER = Compare("gpu.sm", "at-least", 90)


def pick(on: Ladder, routes: tuple[Route, ...], values: Mapping[str, Value | None] | None = None) -> Outcome:
    return select(on, {item.id: item for item in routes}, answer_from(facts(values)))


def first_gate_documented(of: Route) -> Route:
    """The route with its first selection gate, or its first execution gate where it has no other, so sourced."""
    if of.select:
        return replace(of, select=(replace(of.select[0], source=DOCUMENTED), *of.select[1:]))
    return replace(of, execute=(replace(of.execute[0], source=DOCUMENTED), *of.execute[1:]))


@pytest.mark.parametrize(
    "picked",
    [
        replace(route("a"), source=DOCUMENTED),
        first_gate_documented(route("a", select=[HOPPER])),
        first_gate_documented(route("a", execute=[HOPPER])),
    ],
    ids=["route", "selection gate", "execution gate"],
)
def test_a_picked_route_that_leans_on_documentation_has_no_class(picked: Route) -> None:
    found = pick(ladder("f", ("a",)), (picked,))
    assert (found.verdict, found.route, found.claimed) == ("unknown", "a", "native")
    assert "documentation only" in found.why


def test_the_same_route_from_a_source_keeps_its_class() -> None:
    found = pick(ladder("f", ("a",)), (route("a", select=[HOPPER], execute=[HOPPER]),))
    assert (found.verdict, found.claimed) == ("native", "")


def test_an_order_known_from_documentation_leaves_the_class_unknown() -> None:
    on = replace(ladder("f", ("a", "b")), source=DOCUMENTED)
    assert pick(on, (route("a"), route("b", "mixed"))).claimed == "native"


def test_a_forced_route_is_no_exception() -> None:
    on = ladder("f", ("a", "b"), forces=(Force(when=HOPPER, route="b"),))
    found = pick(on, (route("a"), replace(route("b", "mixed"), source=DOCUMENTED)))
    assert (found.verdict, found.route, found.claimed) == ("unknown", "b", "mixed")


def test_a_route_that_only_documentation_rejects_makes_what_follows_unknown() -> None:
    first = first_gate_documented(route("a", select=[NEWER]))
    found = pick(ladder("f", ("a", "b")), (first, route("b", "weight-only")))
    assert (found.verdict, found.route, found.claimed) == ("unknown", "b", "weight-only")


def test_a_route_that_a_source_rejects_too_does_not() -> None:
    first = first_gate_documented(route("a", select=[NEWER, is_("config.mode", "fast")]))
    found = pick(ladder("f", ("a", "b")), (first, route("b", "weight-only")))
    assert (found.verdict, found.claimed) == ("weight-only", "")


def test_broken_and_unsupported_stay_what_they_are() -> None:
    broken = replace(route("a", execute=[NEWER]), source=DOCUMENTED)
    assert pick(ladder("f", ("a",)), (broken,)).verdict == "broken"
    refused = first_gate_documented(route("a", select=[NEWER]))
    assert pick(ladder("f", ("a",)), (refused,)).verdict == "unsupported"


def test_learning_the_fact_behind_a_second_gate_only_narrows() -> None:
    first = first_gate_documented(route("a", select=[NEWER, is_("config.mode", "fast")]))
    of = engine((first, route("b", "weight-only")), (ladder("f", ("a", "b")),))
    laid = bench(of, "f")
    free = {
        completion.outcome
        for completion in possible(
            lambda answer: select(laid.ladder, of.routes, answer),
            laid.table.with_values({"config.mode": None}, "unknown"),
            laid.thresholds,
        )
    }
    for mode in ("plain", "fast", "safe"):
        known = select(laid.ladder, of.routes, answer_from(laid.table.with_values({"config.mode": mode}, "known")))
        assert known in free


def test_explain_tells_the_claim_and_does_not_hold() -> None:
    of = engine((replace(route("a"), source=DOCUMENTED),), (ladder("f", ("a",)),))
    laid = bench(of, "f")
    found = view(row("f"), bench=laid, plain=laid, assignment=(), outcome=laid.single(()), settings=())
    assert (found.verdict, found.holds, found.possible) == ("unknown", False, ("native", "unknown"))
    assert (found.auto.verdict, row_code(found)) == ("unknown", UNKNOWN)
    assert "the manual" in found.why


def test_possible_verdicts_are_the_outcomes_and_the_claims_best_first() -> None:
    outcomes = (
        Outcome(verdict="unknown", route="a", claimed="mixed"),
        Outcome(verdict="weight-only", route="b"),
        Outcome(verdict="native", route="c"),
    )
    assert possible_verdicts(outcomes) == ("native", "mixed", "weight-only", "unknown")
