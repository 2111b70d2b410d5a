"""Views of rows on small engines: one decision for every route, what a plain install does, and how loudly."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from qresolve.completions import answer_from
from qresolve.explain import RowView, gate_view, unserved, view
from qresolve.gates import All, Compare, Not
from qresolve.knowledge.records import Force
from qresolve.setting import Setting
from qresolve.ways import ways
from tests.unit.core.small_engine import SOURCE, bench, engine, explicit, facts, gate, is_, ladder, route, row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qresolve.facts import Value
    from qresolve.knowledge.records import Engine
    from qresolve.ways import Way

FAST = is_("config.mode", "fast")
NEWER = Compare("gpu.sm", "at-least", 100)
TOOL = Compare("host.tool", "present", operand=True)


def seen(
    built: Engine, *, way: Way | None = None, values: Mapping[str, Value | None] | None = None, wanted: str = "native"
) -> RowView:
    """The view of the row f with the host's tool unknown; the plain host has none."""
    laid_out = bench(built, "f", values)
    return view(
        row("f", wanted),
        bench=laid_out,
        plain=bench(built, "f", {**(values or {}), "host.tool": "absent"}),
        assignment=way.assignment if way is not None else (),
        outcome=way.outcome if way is not None else laid_out.single(()),
        settings=way.settings if way is not None else (),
    )


def best(built: Engine) -> Way:
    return next(way for way in ways(bench(built, "f")) if way.outcome.verdict == "native")


THREE = engine(
    [route("a", select=[NEWER]), route("b", select=[FAST]), route("c", "weight-only"), route("d", "emulated")],
    [ladder("f", ("a", "b", "c", "d"))],
)


def test_every_route_has_one_decision_in_the_engines_order() -> None:
    found = seen(THREE)
    assert [(item.id, item.decision) for item in found.routes] == [
        ("a", "rejected"),
        ("b", "rejected"),
        ("c", "selected"),
        ("d", "available"),
    ]
    assert (found.verdict, found.route, found.holds, found.possible) == (
        "weight-only",
        "Kernelc",
        False,
        ("weight-only",),
    )


def test_the_verdict_is_that_of_the_way_and_auto_is_that_of_the_plain_install() -> None:
    found = seen(THREE, way=best(THREE))
    assert (found.verdict, found.route, found.holds) == ("native", "Kernelb", True)
    assert found.settings == (Setting(path="mode", value="fast"),)
    assert (found.auto.verdict, found.auto.route) == ("weight-only", "Kernelc")
    decisions = {item.id: item.decision for item in found.routes}
    assert decisions == {"a": "rejected", "b": "selected", "c": "available", "d": "available"}


def test_a_row_holds_from_its_wanted_class_on() -> None:
    assert seen(THREE, wanted="weight-only").holds
    assert seen(THREE, wanted="emulated").holds
    assert not seen(THREE, wanted="storage-only").holds


def test_outcomes_that_hang_on_the_host_are_unknown_with_all_that_are_possible() -> None:
    built = engine([route("a", select=[TOOL]), route("b", "mixed")], [ladder("f", ("a", "b"))])
    found = seen(built)
    assert (found.verdict, found.possible, found.route, found.holds) == ("unknown", ("native", "mixed"), None, False)
    assert not [item for item in found.routes if item.decision == "selected"]
    assert (found.auto.verdict, found.auto.route) == ("mixed", "Kernelb")


def test_one_route_of_two_classes_is_named_though_the_verdict_is_unknown() -> None:
    built = engine([route("a", [(TOOL, "native"), (Not(TOOL), "mixed")])], [ladder("f", ("a",))])
    found = seen(built)
    assert (found.verdict, found.possible, found.route) == ("unknown", ("native", "mixed"), "Kernela")


def test_a_broken_route_is_broken_and_says_why() -> None:
    found = seen(engine([route("a", execute=[NEWER])], [ladder("f", ("a",))]))
    assert (found.verdict, found.holds, found.why) == ("broken", False, "execute0 does not hold")
    assert found.auto.loudness == "raises"


@pytest.mark.parametrize("loudness", ["silent", "logged", "warned"])
def test_auto_is_as_loud_as_the_gate_that_lost_a_better_route(loudness: str) -> None:
    lost = route("a", select=[NEWER])
    lost = replace(lost, select=(replace(lost.select[0], loudness=loudness),))
    found = seen(engine([lost, route("b", "weight-only")], [ladder("f", ("a", "b"))]))
    assert found.auto.loudness == loudness


def test_auto_is_not_loud_where_nothing_is_lost() -> None:
    assert seen(engine([route("a")], [ladder("f", ("a",))])).auto.loudness == "none"


def test_nothing_left_raises() -> None:
    found = seen(engine([route("a", select=[NEWER])], [ladder("f", ("a",))]))
    assert (found.verdict, found.auto.verdict, found.auto.loudness) == ("unsupported", "unsupported", "raises")
    assert found.why == "no kernel is left"


def test_a_forced_route_that_is_not_on_the_ladder_is_shown_too() -> None:
    built = engine(
        [route("a"), route("z", "emulated")],
        [ladder("f", ("a",), forces=(Force(when=is_("config.mode", "plain"), route="z"),))],
    )
    found = seen(built)
    assert {item.id: item.decision for item in found.routes} == {"a": "available", "z": "selected"}


def test_the_auto_host_is_the_one_that_was_judged() -> None:
    laid_out = bench(THREE, "f")
    found = view(
        row("f"),
        bench=laid_out,
        plain=bench(THREE, "f", {"host.nvcc": "13.0"}),
        assignment=(),
        outcome=laid_out.single(()),
        settings=(),
    )
    assert found.auto.assumes == (("host.nvcc", "13.0"),)


@pytest.mark.parametrize(
    ("values", "outcome", "have"),
    [
        ({"gpu.sm": 120, "host.tool": "13.0"}, "pass", "gpu.sm 120, host.tool 13.0"),
        ({"gpu.sm": 120, "host.tool": "absent"}, "fail", "gpu.sm 120, host.tool absent"),
        ({"gpu.sm": 120, "host.tool": None}, "unknown", "gpu.sm 120, host.tool unknown"),
        ({"gpu.sm": 90, "host.tool": None}, "fail", "gpu.sm 90, host.tool unknown"),
    ],
)
def test_a_gate_says_what_it_needs_and_what_there_is(
    values: Mapping[str, Value | None], outcome: str, have: str
) -> None:
    table = facts(values)
    found = gate_view(gate("both", All((NEWER, TOOL))), table, answer_from(table), "select")
    assert (found.id, found.outcome, found.have, found.source) == ("both", outcome, have, SOURCE.where)
    assert found.needs == "gpu.sm >= 100 and host.tool present"


def test_a_row_that_no_ladder_serves_is_unsupported_and_says_why() -> None:
    found = unserved(row("f"), "left the engine")
    assert (found.verdict, found.holds, found.why, found.routes) == ("unsupported", False, "left the engine", ())
    assert found.selector == "f@s:dense"


def test_a_route_that_must_be_named_is_available_until_it_is_named() -> None:
    built = engine(
        [route("a", "mixed"), route("b", backends=("bee",), explicit_only=True)],
        [ladder("f", ("a", "b"), explicit=(explicit("config.backend.f"),))],
    )
    assert {item.id: item.decision for item in seen(built).routes} == {"a": "selected", "b": "available"}
    assert {item.id: item.decision for item in seen(built, way=best(built)).routes} == {
        "a": "available",
        "b": "selected",
    }
