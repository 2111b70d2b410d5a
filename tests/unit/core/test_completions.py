"""Outcomes over all completions of the unknown facts: as many as brute force finds, and never an impossible one."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.completions import Thresholds, TooManyCompletions, answer_from, possible
from qresolve.facts import ABSENT, Fact, FactKind, FactTable, Scope, Value, Vocabulary
from qresolve.gates import All, AnyOf, Compare, Expression, Not, decide, leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from qresolve.completions import Completion


def kind(key: str, of: Any, *, may_be_absent: bool = False, choices: tuple[Value, ...] = ()) -> FactKind:
    return FactKind(
        key=key, type=of, scope=Scope.HOST, meaning="of the test", may_be_absent=may_be_absent, choices=choices
    )


VOCABULARY = Vocabulary(
    [
        kind("tool", "version", may_be_absent=True),
        kind("cuda", "version"),
        kind("ninja", "bool"),
        kind("width", "int"),
        kind("dtype", "text"),
        kind("disabled", "set"),
        kind("home", "text", choices=("<host>", "wheel")),
    ]
)

# Values finer than every region that the comparisons below can tell apart; written by hand, not by `Thresholds`.
EVERY_VALUE: Mapping[str, tuple[Value, ...]] = {
    "tool": (ABSENT, "0.1", "12.8", "12.8.5", "12.9", "12.9.1", "13.0", "13.0.post1", "13.0.post2", "14"),
    "cuda": ("0.1", "12.8", "12.8.5", "12.9", "12.9.1", "13.0", "13.0.post1", "13.0.post2", "14"),
    "ninja": (True, False),
    "width": tuple(range(200)),  # past the largest threshold by more than one common multiple (48)
    "dtype": ("bf16", "fp16", "other"),
    "disabled": tuple(frozenset(names) for names in (("A", "B"), ("A",), ("B",), ())),
    "home": ("<host>", "wheel"),
}

VERSIONS = st.sampled_from(["12.8", "12.9", "13.0", "13.0.post1"])
ORDERS = st.sampled_from(["at-least", "at-most", "above", "below", "is"])
compares: st.SearchStrategy[Compare] = st.one_of(
    st.builds(Compare, st.sampled_from(["tool", "cuda"]), ORDERS, VERSIONS),
    st.builds(Compare, st.just("tool"), st.just("present"), st.booleans()),
    st.builds(Compare, st.just("ninja"), st.just("is"), st.booleans()),
    st.builds(Compare, st.just("width"), ORDERS, st.sampled_from([16, 50, 100])),
    st.builds(Compare, st.just("width"), st.just("multiple-of"), st.sampled_from([16, 24])),
    st.builds(Compare, st.just("dtype"), st.just("in"), st.sampled_from([("bf16",), ("bf16", "fp16")])),
    st.builds(Compare, st.just("disabled"), st.just("has"), st.sampled_from(["A", "B"])),
    st.builds(Compare, st.just("home"), st.just("is"), st.sampled_from(["<host>", "wheel"])),
)
expressions: st.SearchStrategy[Expression] = st.recursive(
    compares,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(All, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(AnyOf, st.lists(inner, min_size=1, max_size=3).map(tuple)),
    ),
    max_leaves=4,
)


def table(values: Mapping[str, Value | None] | None = None) -> FactTable:
    return FactTable(
        vocabulary=VOCABULARY,
        values={key: Fact(value=value, source="the test") for key, value in (values or {}).items()},
    )


def decided(parts: list[Expression]) -> Callable[[Callable[[Compare], bool | None]], tuple[bool, ...]]:
    return lambda answer: tuple(decide(part, answer) for part in parts)


def walk(parts: list[Expression], known: FactTable, *, limit: int = 4096) -> tuple[Completion[tuple[bool, ...]], ...]:
    thresholds = Thresholds(leaf for part in parts for leaf in leaves(part))
    return possible(decided(parts), known, thresholds, limit=limit)


def outcomes(parts: list[Expression], known: FactTable) -> set[tuple[bool, ...]]:
    return {item.outcome for item in walk(parts, known)}


def brute_force(parts: list[Expression]) -> set[tuple[bool, ...]]:
    facts = sorted({leaf.fact for part in parts for leaf in leaves(part)})
    return {
        decided(parts)(answer_from(table(dict(zip(facts, values, strict=True)))))
        for values in product(*(EVERY_VALUE[fact] for fact in facts))
    }


small_systems = st.lists(expressions, min_size=1, max_size=2).filter(
    lambda parts: len({leaf.fact for part in parts for leaf in leaves(part)}) <= 2
)


@given(small_systems)
def test_they_are_those_of_brute_force(parts: list[Expression]) -> None:
    assert outcomes(parts, table()) == brute_force(parts)


@given(st.lists(expressions, min_size=1, max_size=2), st.data())
def test_learning_a_fact_only_narrows_them(parts: list[Expression], data: st.DataObject) -> None:
    fact = data.draw(st.sampled_from(sorted({leaf.fact for part in parts for leaf in leaves(part)})))
    value = data.draw(st.sampled_from(EVERY_VALUE[fact]))
    assert outcomes(parts, table({fact: value})) <= outcomes(parts, table())


@given(st.lists(expressions, min_size=1, max_size=2))
def test_each_completion_leads_to_its_outcome(parts: list[Expression]) -> None:
    for completion in walk(parts, table()):
        members = {(key, member): held for key, member, held in completion.members}
        answer = answer_from(table(), assumed=dict(completion.assumed), members=members)
        assert decided(parts)(answer) == completion.outcome


def test_two_comparisons_of_one_fact_never_contradict_each_other() -> None:
    found = outcomes([Compare("cuda", "at-least", "12.8"), Compare("cuda", "at-least", "12.9")], table())
    assert found == {(False, False), (True, False), (True, True)}


def test_versions_just_above_a_post_release_are_tried() -> None:
    found = outcomes([Compare("cuda", "above", "13.0.post1"), Compare("cuda", "is", "13.0.post1")], table())
    assert found == {(False, False), (False, True), (True, False)}


def test_numbers_that_are_multiples_and_large_are_tried() -> None:
    found = outcomes([Compare("width", "multiple-of", 16), Compare("width", "at-least", 100)], table())
    assert found == {(False, False), (False, True), (True, False), (True, True)}


def test_members_of_an_unknown_set_are_free_of_each_other() -> None:
    found = outcomes([Compare("disabled", "has", "A"), Compare("disabled", "has", "B")], table())
    assert found == set(product((True, False), repeat=2))


def test_a_known_empty_set_has_no_members() -> None:
    assert outcomes([Compare("disabled", "has", "A")], table({"disabled": frozenset()})) == {(False,)}


def test_an_absent_tool_satisfies_no_version_and_is_among_the_completions() -> None:
    parts: list[Expression] = [Compare("tool", "present", True), Compare("tool", "at-least", "12.8")]
    assert outcomes(parts, table()) == {(False, False), (True, False), (True, True)}


def test_what_cannot_be_absent_is_never_absent() -> None:
    assert outcomes([Compare("cuda", "present", True)], table()) == {(True,)}


def test_an_unknown_fact_that_does_not_decide_leaves_one_outcome_without_assumptions() -> None:
    (only,) = walk([All((Compare("ninja", "is", True), Compare("cuda", "at-least", "12.8")))], table({"ninja": False}))
    assert (only.outcome, only.assumed, only.members) == ((False,), (), ())


def test_too_many_are_said_to_be_too_many() -> None:
    parts: list[Expression] = [Compare("disabled", "has", f"Kernel{number}") for number in range(12)]
    with pytest.raises(TooManyCompletions, match="100"):
        walk(parts, table(), limit=100)


@given(st.lists(expressions, min_size=1, max_size=2))
def test_their_order_is_the_same_each_time(parts: list[Expression]) -> None:
    assert walk(parts, table()) == walk(list(parts), table())
