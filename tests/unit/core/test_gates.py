"""Gate expressions: the laws of three-valued logic, the meaning of each operator, and what the reader refuses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.errors import DataInvalid
from qresolve.facts import ABSENT, FactType
from qresolve.gates import (
    ALWAYS,
    All,
    AnyOf,
    Compare,
    Expression,
    ExpressionReader,
    Named,
    Not,
    Undecided,
    decide,
    describe,
    holds,
    kleene,
    leaves,
    undecided_leaves,
)
from qresolve.strict import Table

LEAVES = tuple(Compare(f"fact.{letter}", "is", True) for letter in "abcde")

expressions: st.SearchStrategy[Expression] = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(All, st.lists(inner, max_size=3).map(tuple)),
        st.builds(AnyOf, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Named, st.just("named"), inner),
    ),
    max_leaves=10,
)
answers = st.fixed_dictionaries({leaf: st.sampled_from([True, False, None]) for leaf in LEAVES})


def classical(expression: Expression, values: dict[Compare, bool]) -> bool:
    """The two-valued meaning, written down independently."""
    match expression:
        case Compare():
            return values[expression]
        case Named():
            return classical(expression.expression, values)
        case Not():
            return not classical(expression.part, values)
        case All():
            return all(classical(part, values) for part in expression.parts)
        case AnyOf():
            return any(classical(part, values) for part in expression.parts)


@given(st.lists(expressions, max_size=3), answers)
def test_de_morgan(parts: list[Expression], values: dict[Compare, bool | None]) -> None:
    found = kleene(Not(All(tuple(parts))), values.get)
    assert found is kleene(AnyOf(tuple(Not(part) for part in parts)), values.get)
    found = kleene(Not(AnyOf(tuple(parts))), values.get)
    assert found is kleene(All(tuple(Not(part) for part in parts)), values.get)


@given(expressions, answers)
def test_double_negation(expression: Expression, values: dict[Compare, bool | None]) -> None:
    assert kleene(Not(Not(expression)), values.get) is kleene(expression, values.get)


@given(expressions, answers, st.sampled_from(LEAVES), st.booleans())
def test_learning_a_value_never_changes_a_known_result(
    expression: Expression, values: dict[Compare, bool | None], leaf: Compare, learned: bool
) -> None:
    before = kleene(expression, values.get)
    if values[leaf] is not None or before is None:
        return
    assert kleene(expression, {**values, leaf: learned}.get) is before


@given(expressions, st.fixed_dictionaries({leaf: st.booleans() for leaf in LEAVES}))
def test_without_unknowns_it_is_ordinary_logic(expression: Expression, values: dict[Compare, bool]) -> None:
    assert kleene(expression, values.get) is classical(expression, values)


@given(expressions, answers)
def test_decide_agrees_where_known_and_names_an_unknown_fact_where_not(
    expression: Expression, values: dict[Compare, bool | None]
) -> None:
    known = kleene(expression, values.get)
    if known is not None:
        assert decide(expression, values.get) is known
        return
    with pytest.raises(Undecided) as raised:
        decide(expression, values.get)
    assert any(leaf.fact == raised.value.key and values[leaf] is None for leaf in LEAVES)


@given(expressions, answers)
def test_undecided_leaves_are_unknown_leaves_of_the_expression(
    expression: Expression, values: dict[Compare, bool | None]
) -> None:
    found = list(undecided_leaves(expression, values.get))
    assert all(values[leaf] is None for leaf in found)
    assert set(found) <= set(leaves(expression))
    if kleene(expression, values.get) is None:
        assert found


def test_an_all_with_a_false_part_does_not_ask_about_its_unknown_ones() -> None:
    first, second, *_ = LEAVES
    assert decide(All((first, second)), {first: None, second: False}.get) is False


def test_undecided_names_the_member_of_a_set() -> None:
    with pytest.raises(Undecided) as raised:
        decide(Compare("env.DISABLED", "has", "KernelA"), lambda _: None)
    assert (raised.value.key, raised.value.member) == ("env.DISABLED", "KernelA")


def test_nothing_to_hold_always_holds_and_nothing_to_choose_never_does() -> None:
    assert kleene(ALWAYS, lambda _: None) is True
    assert kleene(AnyOf(()), lambda _: None) is False


# ---------------------------------------------------------------- comparisons


@pytest.mark.parametrize(
    ("operator", "operand", "value", "kind", "expected"),
    [
        # Versions are ordered by number, not by text.
        ("above", "12.9", "12.10", "version", True),
        ("at-least", "12.9", "12.10", "version", True),
        ("below", "12.9", "12.10", "version", False),
        ("at-most", "12.10", "12.9", "version", True),
        ("above", "12.9", "12.9", "version", False),
        ("below", "12.9", "12.9", "version", False),
        ("at-least", "12.9", "12.9", "version", True),
        ("is", "13", "13.0", "version", True),
        ("in", ("12.8", "13.0"), "13", "version", True),
        ("at-least", "0.7.2", "0.7.2.post1", "version", True),
        ("at-least", "1.0", "1.0rc1", "version", False),
        # Absent has no order and is no version.
        ("at-least", "0", ABSENT, "version", False),
        ("at-most", "99", ABSENT, "version", False),
        ("above", "0", ABSENT, "version", False),
        ("below", "99", ABSENT, "version", False),
        ("is", "1.0", ABSENT, "version", False),
        ("is", ABSENT, ABSENT, "version", True),
        ("in", ("1.0", ABSENT), ABSENT, "version", True),
        ("in", ("1.0", "2.0"), ABSENT, "version", False),
        ("is", ABSENT, "1.0", "version", False),
        ("present", True, "1.0", "version", True),
        ("present", True, ABSENT, "version", False),
        ("present", False, ABSENT, "version", True),
        ("present", False, "1.0", "version", False),
        ("has", "a", frozenset({"a", "b"}), "set", True),
        ("has", "ab", frozenset({"a", "b"}), "set", False),
        ("has", "a", frozenset(), "set", False),
        ("multiple-of", 32, 4096, "int", True),
        ("multiple-of", 32, 4100, "int", False),
        ("multiple-of", 32, 0, "int", True),
        ("in", (100, 103), 103, "int", True),
        ("in", (100, 103), 101, "int", False),
        ("at-least", 90, 100, "int", True),
        ("below", 100, 90, "int", True),
        ("is", False, False, "bool", True),
        ("is", True, False, "bool", False),
        ("is", "e2m1", "e2m1", "text", True),
        ("in", ("none", "e2m1"), "e4m3", "text", False),
    ],
)
def test_comparison(operator: Any, operand: Any, value: Any, kind: FactType, expected: bool) -> None:
    assert holds(Compare("a.fact", operator, operand), value, kind) is expected


@given(st.integers(), st.integers())
def test_the_orders_of_numbers_partition(left: int, right: int) -> None:
    def is_so(operator: Any) -> bool:
        return holds(Compare("a.fact", operator, right), left, "int")

    assert [is_so("below"), is_so("is"), is_so("above")].count(True) == 1
    assert is_so("at-least") is not is_so("below")
    assert is_so("at-most") is not is_so("above")


# ---------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (Compare("gpu.sm", "at-least", 100), "gpu.sm >= 100"),
        (Compare("gpu.sm", "in", (100, 103)), "gpu.sm in {100, 103}"),
        (Compare("host.ninja", "is", False), "not host.ninja"),
        (Compare("package.x", "present", True), "package.x present"),
        (Compare("env.D", "has", "K"), "env.D has K"),
        (Compare("workload.k", "multiple-of", 32), "workload.k is a multiple of 32"),
        (Not(AnyOf((LEAVES[0], LEAVES[1]))), "not (fact.a or fact.b)"),
        (All((LEAVES[0], AnyOf((LEAVES[1], LEAVES[2])))), "fact.a and (fact.b or fact.c)"),
        (ALWAYS, "always"),
    ],
)
def test_description(expression: Expression, words: str) -> None:
    assert describe(expression) == words


# ---------------------------------------------------------------- reading

TYPES: dict[str, FactType] = {
    "gpu.sm": "int",
    "build.cuda": "version",
    "env.D": "set",
    "host.ninja": "bool",
    "scheme.weights": "text",
}


def read(when: Any, *, conditions: dict[str, Any] | None = None) -> Expression:
    reader = ExpressionReader(TYPES.get)
    for identifier, condition in (conditions or {}).items():
        reader.declare(identifier, Table({"when": condition}, file="records.toml", path=f"condition.{identifier}"))
    return reader.read(Table({"when": when}, file="records.toml", path="route[2].select[0]"), "when")


def test_reading_gives_the_tree() -> None:
    when = {"all": [{"fact": "gpu.sm", "at-least": 100}, {"not": {"condition": "ready"}}]}
    assert read(when, conditions={"ready": {"fact": "host.ninja", "is": True}}) == All(
        (Compare("gpu.sm", "at-least", 100), Not(Named("ready", Compare("host.ninja", "is", True))))
    )


def test_an_image_is_a_comparison_with_sass() -> None:
    assert read({"image": "vllm:_C/unit"}) == Compare("image.vllm:_C/unit", "is", "sass")


@pytest.mark.parametrize(
    ("when", "path"),
    [
        ({"fact": "gpu.sn", "is": 1}, "route[2].select[0].when.fact"),
        ({"fact": "gpu.sm"}, "route[2].select[0].when"),
        ({"fact": "gpu.sm", "is": 1, "at-least": 2}, "route[2].select[0].when"),
        ({"fact": "gpu.sm", "is": "120"}, "route[2].select[0].when.is"),
        ({"fact": "gpu.sm", "is": True}, "route[2].select[0].when.is"),
        ({"fact": "build.cuda", "at-least": 12.8}, "route[2].select[0].when.at-least"),
        ({"fact": "build.cuda", "in": []}, "route[2].select[0].when.in"),
        ({"fact": "build.cuda", "in": "12.8"}, "route[2].select[0].when.in"),
        ({"fact": "gpu.sm", "has": 1}, "route[2].select[0].when.has"),
        ({"fact": "scheme.weights", "at-least": "e2m1"}, "route[2].select[0].when.at-least"),
        ({"fact": "host.ninja", "present": "yes"}, "route[2].select[0].when.present"),
        ({"fact": "gpu.sm", "is": 1, "wen": 2}, "route[2].select[0].when.wen"),
        ({"condition": "nowhere"}, "route[2].select[0].when.condition"),
        ({"all": [{"fact": "gpu.sm", "is": 1}, {"any": [{"fact": "x", "is": 1}]}]}, ".when.all[1].any[0].fact"),
        ({"all": [], "any": []}, "route[2].select[0].when"),
        ({}, "route[2].select[0].when"),
        ({"not": {"fact": "gpu.sm", "is": "x"}}, "route[2].select[0].when.not.is"),
        # A version that is none would blow up long after reading.
        ({"fact": "build.cuda", "at-least": "twelve"}, "route[2].select[0].when.at-least"),
        # Nothing but membership tells sets apart, so nothing else may be asked of one.
        ({"fact": "env.D", "is": "K"}, "route[2].select[0].when.is"),
        ({"fact": "env.D", "present": True}, "route[2].select[0].when.present"),
        ({"fact": "scheme.weights", "multiple-of": 2}, "route[2].select[0].when.multiple-of"),
        ({"fact": "gpu.sm", "multiple-of": 0}, "route[2].select[0].when.multiple-of"),
    ],
)
def test_an_error_names_the_file_and_the_dotted_path(when: Any, path: str) -> None:
    with pytest.raises(DataInvalid) as raised:
        read(when)
    assert raised.value.message.startswith("records.toml: ")
    assert f"{path}: " in raised.value.message


def test_conditions_that_name_each_other_in_a_circle_are_refused() -> None:
    with pytest.raises(DataInvalid, match="names itself"):
        read({"condition": "a"}, conditions={"a": {"condition": "b"}, "b": {"not": {"condition": "a"}}})


def test_a_condition_declared_twice_is_refused() -> None:
    reader = ExpressionReader(TYPES.get)
    table = Table({"when": {"fact": "gpu.sm", "is": 1}}, file="records.toml", path="condition[0]")
    reader.declare("a", table)
    with pytest.raises(DataInvalid, match="declared twice"):
        reader.declare("a", table)


def test_errors_in_a_condition_that_nothing_uses_are_found() -> None:
    reader = ExpressionReader(TYPES.get)
    reader.declare("idle", Table({"when": {"fact": "gpu.nm", "is": 1}}, file="records.toml", path="condition[7]"))
    with pytest.raises(DataInvalid, match=r"records\.toml: condition\[7\]\.when\.fact: "):
        reader.finish()
