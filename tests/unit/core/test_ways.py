"""Ways of a row: fewest deviations first, none of them idle, one outcome whatever the host is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.facts import UNSET, Value
from qresolve.gates import All, AnyOf, Compare, Expression, Not
from qresolve.setting import Setting
from qresolve.ways import Bench, Way, assignments, choices_of, holds_in, host_variables, settings_of, ways
from tests.unit.core.small_engine import bench, engine, explicit, is_, ladder, route

if TYPE_CHECKING:
    from qresolve.knowledge.records import Engine

FAST = is_("config.mode", "fast")
TOOL = Compare("host.tool", "present", operand=True)
PACKAGE = Compare("package.extra", "present", operand=True)


def one_row() -> Engine:
    """Native by a backend's name, by a mode with a package, or (where the host has the tool) as it is."""
    return engine(
        [
            route("a", select=[TOOL]),
            route("b", select=[FAST, PACKAGE]),
            route("c", "weight-only"),
            route("d", backends=("dee",), explicit_only=True),
        ],
        [ladder("f", ("a", "b", "c", "d"), explicit=(explicit("config.backend.f"),))],
        provisions={"package.extra": "1.0"},
    )


def found_by(of: Bench) -> list[Way]:
    return list(ways(of))


def test_choices_are_keys_modes_and_packages_that_may_be_added() -> None:
    choices = {choice.key: (choice.plain, choice.others) for choice in choices_of(bench(one_row(), "f"))}
    assert choices == {
        "config.backend.f": ("auto", ("dee",)),
        "config.mode": ("plain", ("fast", "safe")),
        "package.extra": ("absent", ("1.0",)),
    }


def test_what_is_assumed_is_no_choice() -> None:
    laid_out = bench(one_row(), "f", assumed={"config.mode": "fast", "config.backend.f": "auto"})
    assert [choice.key for choice in choices_of(laid_out)] == ["package.extra"]


def test_a_key_that_is_not_offered_is_no_choice() -> None:
    built = engine(
        [route("a", backends=("ay",))], [ladder("f", ("a",), explicit=(explicit("config.global", offer=False),))]
    )
    assert choices_of(bench(built, "f")) == ()


def test_assignments_come_with_the_fewest_deviations_first_and_each_once() -> None:
    found = list(assignments(choices_of(bench(one_row(), "f"))))
    assert [len(item) for item in found] == sorted(len(item) for item in found)
    assert len(found) == len(set(found)) == (1 + 1) * (1 + 2) * (1 + 1)


def test_an_outcome_that_hangs_on_the_host_is_no_way() -> None:
    # As installed, the host's tool decides between native and weight-only: neither may be promised.
    assert () not in [way.assignment for way in found_by(bench(one_row(), "f"))]
    known = found_by(bench(one_row(), "f", {"host.tool": "1.0"}))
    assert (known[0].assignment, known[0].outcome.verdict) == ((), "native")


def test_the_first_native_way_has_the_fewest_deviations() -> None:
    native = [way for way in found_by(bench(one_row(), "f")) if way.outcome.verdict == "native"]
    assert native[0].assignment == (("config.backend.f", "dee"),)
    assert native[0].settings == (Setting(path="backend.f", value="dee"),)
    laid_out = bench(one_row(), "f", {"host.tool": "absent"}, assumed={"config.backend.f": "auto"})
    first = next(way for way in found_by(laid_out) if way.outcome.verdict == "native")
    assert first.assignment == (("config.mode", "fast"), ("package.extra", "1.0"))
    # An added package is no setting.
    assert first.settings == (Setting(path="mode", value="fast"),)


MODES = st.sampled_from(["plain", "fast", "safe"])
conditions: st.SearchStrategy[Expression] = st.recursive(
    st.one_of(
        st.builds(is_, st.just("config.mode"), MODES),
        st.just(TOOL),
        st.just(PACKAGE),
        st.builds(lambda held: is_("env.STRICT", held), st.booleans()),
        st.builds(lambda name: Compare("env.DISABLED", "has", name), st.sampled_from(["Kernelr0", "x"])),
    ),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(lambda parts: All(tuple(parts)), st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda parts: AnyOf(tuple(parts)), st.lists(inner, min_size=1, max_size=2)),
    ),
    max_leaves=3,
)


@st.composite
def engines(draw: st.DrawFn) -> Engine:
    classes = ["native", "mixed", "weight-only"]
    routes = [
        route(
            f"r{number}",
            draw(st.sampled_from(classes)),
            backends=draw(st.sampled_from([(), ("one",), ("two",)])),
            select=draw(st.lists(conditions, max_size=2)),
            execute=draw(st.lists(conditions, max_size=1)),
            explicit_only=draw(st.booleans()),
        )
        for number in range(draw(st.integers(1, 3)))
    ]
    order = tuple(item.id for item in routes)
    on = ladder("f", order, explicit=(explicit("config.backend.f"),), disabled_by="env.DISABLED")
    return engine(routes, [on], provisions={"package.extra": "1.0"})


@given(engines())
def test_dropping_any_deviation_of_a_way_changes_its_outcome(built: Engine) -> None:
    laid_out = bench(built, "f")
    for way in found_by(laid_out):
        for dropped in way.assignment:
            rest = tuple(pair for pair in way.assignment if pair != dropped)
            assert laid_out.single(rest) != way.outcome


@given(engines(), st.sampled_from(["absent", "1.0"]))
def test_a_way_has_its_outcome_on_every_host(built: Engine, tool: str) -> None:
    for way in found_by(bench(built, "f")):
        assert bench(built, "f", {"host.tool": tool}).single(way.assignment) == way.outcome


host_values = st.fixed_dictionaries(
    {
        "env.STRICT": st.booleans(),
        "env.DISABLED": st.frozensets(st.sampled_from(["Kernelr0", "Kernelr1", "Kernelr2", "x"])),
        "host.tool": st.sampled_from(["absent", "1.0"]),
    }
)


@given(engines(), host_values)
def test_fixing_the_host_variables_keeps_the_outcome_whatever_the_others_are(
    built: Engine, host: dict[str, Value]
) -> None:
    defaults: dict[str, Value] = {"env.STRICT": False, "env.DISABLED": frozenset()}
    laid_out = bench(built, "f")
    for way in found_by(laid_out)[:6]:
        fixed = host_variables(laid_out, way.assignment, way.outcome)
        assert {key for key, _ in fixed} <= set(defaults)
        values = {**host, **{key: defaults[key] for key, _ in fixed}}
        assert bench(built, "f", values).single(way.assignment) == way.outcome


def test_only_variables_that_matter_are_fixed() -> None:
    built = engine([route("a", select=[is_("env.STRICT", False)]), route("b", "mixed")], [ladder("f", ("a", "b"))])
    laid_out = bench(built, "f")
    outcome = laid_out.single(())
    assert outcome is not None
    assert host_variables(laid_out, (), outcome) == (("env.STRICT", "0"),)
    indifferent = engine([route("a")], [ladder("f", ("a",))])
    outcome = bench(indifferent, "f").single(())
    assert outcome is not None
    assert host_variables(bench(indifferent, "f"), (), outcome) == ()


def test_holding_beside_what_others_need() -> None:
    built = engine([route("a", select=[Not(FAST)]), route("b", "mixed")], [ladder("f", ("a", "b"))])
    laid_out = bench(built, "f")
    outcome = laid_out.single(())
    assert outcome is not None
    assert outcome.verdict == "native"
    assert not holds_in(laid_out, (), (("config.mode", "fast"),), outcome)
    assert holds_in(laid_out, (), (("config.mode", "safe"),), outcome)
    # Two values of one key never stand together: the solver sees that, and it is no disagreement.
    assert holds_in(laid_out, (("config.mode", "safe"),), (("config.mode", "fast"),), outcome)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(UNSET, Setting(env="A", value=None)), ("", Setting(env="A", value="")), ("0", Setting(env="A", value="0"))],
)
def test_settings_of_variables(value: str, expected: Setting) -> None:
    assert settings_of((("env.A", value),)) == (expected,)


def test_a_way_pins_what_would_change_it_beside_another_row() -> None:
    built = engine([route("a", select=[Not(FAST)]), route("b", "mixed")], [ladder("f", ("a", "b"))])
    context = (("config.mode", "fast"), ("package.extra", "1.0"))
    found = list(ways(bench(built, "f"), (context,)))
    native = [(way.assignment, way.pins) for way in found if way.outcome.verdict == "native"]
    # As it is, with the mode kept; or in a mode of its own. The package is not looked at, so nobody keeps it out.
    assert native == [((), (("config.mode", "plain"),)), ((("config.mode", "safe"),), ())]
    # A pin is no deviation, so it becomes no setting.
    assert found[0].settings == ()


@given(engines(), st.sampled_from(["fast", "safe"]))
def test_every_way_keeps_its_outcome_beside_a_context_or_excludes_it(built: Engine, mode: str) -> None:
    laid_out = bench(built, "f")
    context = (("config.mode", mode),)
    for way in ways(laid_out, (context,)):
        excluded = any(dict((*way.assignment, *way.pins)).get(key, value) != value for key, value in context)
        assert excluded or holds_in(laid_out, way.assignment, context, way.outcome)
