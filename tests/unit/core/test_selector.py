"""The simulated selector on small hand-made engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from qresolve.completions import answer_from
from qresolve.gates import Compare, Not, Undecided
from qresolve.knowledge.records import Force, Ladder, Move
from qresolve.selector import Outcome, ordered_routes, select
from tests.unit.core.small_engine import explicit, facts, is_, ladder, route

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qresolve.facts import Value
    from qresolve.knowledge.records import Route

NEWER = Compare("gpu.sm", "at-least", 100)


def pick(on: Ladder, routes: tuple[Route, ...], values: Mapping[str, Value | None] | None = None) -> Outcome:
    return select(on, {item.id: item for item in routes}, answer_from(facts(values)))


def test_the_first_route_whose_gates_hold_is_picked() -> None:
    routes = (route("a", select=[NEWER]), route("b", "mixed"), route("c", "weight-only"))
    assert pick(ladder("f", ("a", "b", "c")), routes).route == "b"
    assert pick(ladder("f", ("a", "b", "c")), routes, {"gpu.sm": 100}).route == "a"
    assert pick(ladder("f", ("c", "b", "a")), routes, {"gpu.sm": 100}).verdict == "weight-only"


def test_all_gates_of_a_route_must_hold() -> None:
    routes = (route("a", select=[NEWER, is_("config.mode", "fast")]), route("b", "mixed"))
    on = ladder("f", ("a", "b"))
    assert pick(on, routes, {"gpu.sm": 100}).route == "b"
    assert pick(on, routes, {"config.mode": "fast"}).route == "b"
    assert pick(on, routes, {"gpu.sm": 100, "config.mode": "fast"}).route == "a"


def test_nothing_left_is_unsupported_with_the_engines_own_words() -> None:
    found = pick(ladder("f", ("a",)), (route("a", select=[NEWER]),))
    assert (found.verdict, found.route, found.why) == ("unsupported", None, "no kernel is left")


def test_a_move_puts_a_route_directly_before_another_where_it_holds() -> None:
    move = Move(when=is_("config.mode", "fast"), route="c", before="a")
    on = ladder("f", ("a", "b", "c"), moves=(move,))
    assert ordered_routes(on, answer_from(facts())) == ("a", "b", "c")
    assert ordered_routes(on, answer_from(facts({"config.mode": "fast"}))) == ("c", "a", "b")


def test_a_move_never_moves_down() -> None:
    move = Move(when=is_("config.mode", "plain"), route="a", before="c")
    assert ordered_routes(ladder("f", ("a", "b", "c"), moves=(move,)), answer_from(facts())) == ("a", "b", "c")


def test_a_forced_route_wins_over_order_names_and_disabled_names() -> None:
    routes = (route("a"), route("b", "mixed", backends=("bee",)), route("c", "emulated"))
    on = ladder(
        "f",
        ("a", "b", "c"),
        forces=(Force(when=is_("env.STRICT", value=True), route="c"),),
        explicit=(explicit("config.backend.f"),),
        disabled_by="env.DISABLED",
    )
    strict: dict[str, Value | None] = {
        "env.STRICT": True,
        "config.backend.f": "bee",
        "env.DISABLED": frozenset({"Kernelc"}),
    }
    assert pick(on, routes, strict).route == "c"
    assert pick(on, routes, {**strict, "env.STRICT": False}).route == "b"


def test_a_forced_route_that_is_rejected_leaves_nothing_though_others_would_do() -> None:
    routes = (route("a"), route("b", select=[NEWER]))
    on = ladder("f", ("a",), forces=(Force(when=is_("env.STRICT", value=True), route="b"),))
    found = pick(on, routes, {"env.STRICT": True})
    assert (found.verdict, found.route, found.gate) == ("unsupported", None, "select0")
    assert "Kernelb is forced" in found.why
    assert pick(on, routes, {"env.STRICT": True, "gpu.sm": 100}).route == "b"


def test_the_first_force_that_holds_counts() -> None:
    routes = (route("a"), route("b", "mixed"), route("c", "emulated"))
    always = is_("config.mode", "plain")
    on = ladder("f", ("a",), forces=(Force(when=always, route="c"), Force(when=always, route="b")))
    assert pick(on, routes).route == "c"


def test_a_named_backend_restricts_the_ladder_and_the_first_key_that_names_one_counts() -> None:
    routes = (route("a", backends=("ay",)), route("b", "mixed", backends=("bee",)), route("c", backends=("cee",)))
    on = ladder("f", ("a", "b", "c"), explicit=(explicit("config.backend.f"), explicit("config.global")))
    assert pick(on, routes).route == "a"
    assert pick(on, routes, {"config.global": "cee"}).route == "c"
    assert pick(on, routes, {"config.backend.f": "bee", "config.global": "cee"}).route == "b"


def test_a_named_backend_whose_routes_are_all_rejected_leaves_nothing() -> None:
    routes = (route("a"), route("b", backends=("bee",), select=[NEWER]))
    on = ladder("f", ("a", "b"), explicit=(explicit("config.backend.f"),))
    assert pick(on, routes, {"config.backend.f": "bee"}).verdict == "unsupported"


def test_several_routes_of_one_backend_keep_their_order() -> None:
    routes = (route("a"), route("b", backends=("bee",), select=[NEWER]), route("c", "mixed", backends=("bee",)))
    on = ladder("f", ("a", "b", "c"), explicit=(explicit("config.backend.f"),))
    assert pick(on, routes, {"config.backend.f": "bee"}).route == "c"
    assert pick(on, routes, {"config.backend.f": "bee", "gpu.sm": 100}).route == "b"


@pytest.mark.parametrize(("unmatched", "picked"), [("auto", "a"), ("raise", None)])
def test_a_named_backend_without_a_route(unmatched: str, picked: str | None) -> None:
    on = ladder("f", ("a",), explicit=(explicit("config.backend.f", unmatched=unmatched),))
    found = pick(on, (route("a", backends=("ay",)),), {"config.backend.f": "elsewhere"})
    assert found.route == picked
    assert (found.verdict == "unsupported") is (picked is None)


def test_a_route_that_must_be_named_is_skipped_until_it_is() -> None:
    routes = (route("a", explicit_only=True, backends=("ay",)), route("b", "mixed", backends=("bee",)))
    on = ladder("f", ("a", "b"), explicit=(explicit("config.backend.f"),))
    assert pick(on, routes).route == "b"
    assert pick(on, routes, {"config.backend.f": "ay"}).route == "a"
    # An unmatched name falls back to the whole ladder, and names nothing on it.
    assert pick(on, routes, {"config.backend.f": "elsewhere"}).route == "b"


def test_disabled_names_are_skipped() -> None:
    routes = (route("a"), route("b", "mixed"))
    on = ladder("f", ("a", "b"), disabled_by="env.DISABLED")
    assert pick(on, routes, {"env.DISABLED": frozenset({"Kernela"})}).route == "b"
    assert pick(on, routes, {"env.DISABLED": frozenset({"a"})}).route == "a"
    assert pick(on, routes, {"env.DISABLED": frozenset({"Kernela", "Kernelb"})}).verdict == "unsupported"


def test_whether_a_rejected_route_is_disabled_is_not_asked() -> None:
    routes = (route("a", select=[NEWER]), route("b", "mixed"))
    on = ladder("f", ("a", "b"), disabled_by="env.DISABLED")
    with pytest.raises(Undecided) as raised:
        pick(on, routes, {"env.DISABLED": None})
    assert (raised.value.key, raised.value.member) == ("env.DISABLED", "Kernelb")


def test_an_execution_gate_that_fails_breaks_the_picked_route() -> None:
    routes = (route("a", execute=[Not(is_("gpu.sm", 90)), NEWER]), route("b", "mixed"))
    found = pick(ladder("f", ("a", "b")), routes)
    assert (found.verdict, found.route, found.gate) == ("broken", "a", "execute0")
    found = pick(ladder("f", ("a", "b")), routes, {"gpu.sm": 89})
    assert (found.verdict, found.gate) == ("broken", "execute1")
    assert pick(ladder("f", ("a", "b")), routes, {"gpu.sm": 120}).verdict == "native"


def test_the_class_is_that_of_the_first_variant_that_holds() -> None:
    variants = [(is_("config.mode", "fast"), "native"), (Compare("gpu.sm", "below", 100), "mixed")]
    routes = (route("a", variants),)
    on = ladder("f", ("a",))
    assert pick(on, routes, {"config.mode": "fast"}).verdict == "native"
    found = pick(on, routes)
    assert (found.verdict, found.why) == ("mixed", "because mixed")


def test_no_variant_that_holds_is_unknown_and_never_a_class() -> None:
    found = pick(ladder("f", ("a",)), (route("a", [(NEWER, "native")]),))
    assert (found.verdict, found.route) == ("unknown", "a")


def test_a_fact_that_decides_and_is_not_known_is_asked_for() -> None:
    on = ladder("f", ("a", "b"))
    with pytest.raises(Undecided) as raised:
        pick(on, (route("a", select=[Compare("host.tool", "present", True)]), route("b")))
    assert raised.value.key == "host.tool"
    # The same unknown behind a route that is picked before it decides nothing.
    assert pick(on, (route("a"), route("b", select=[Compare("host.tool", "present", True)]))).route == "a"


def test_an_unknown_backend_key_is_asked_for() -> None:
    on = ladder("f", ("a",), explicit=(explicit("config.backend.f"),))
    with pytest.raises(Undecided) as raised:
        pick(on, (route("a", backends=("ay",)),), {"config.backend.f": None})
    assert raised.value.key == "config.backend.f"
