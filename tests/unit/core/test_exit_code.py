"""Of several judged rows, 6 comes before 4 before 7; rows that nobody asked for never count."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.classes import CLASSES, VERDICTS, at_least_as_good, rank
from qresolve.exit_code import exit_code, row_code
from qresolve.explain import Auto, RowView


def view(verdict: str, wanted: str = "native", *, asked: bool = True) -> RowView:
    return RowView(
        format="f",
        scheme="s",
        role="dense",
        arch="sm90",
        asked=asked,
        wanted=wanted,
        holds=at_least_as_good(verdict, wanted),
        verdict=verdict,
        level="data",
        possible=(verdict,),
        route=None,
        why="",
        settings=(),
        auto=Auto(verdict=verdict, route=None, loudness="none", why="", assumes=()),
        routes=(),
        remedy=(),
        claims=(),
    )


@pytest.mark.parametrize(
    ("verdict", "wanted", "code"),
    [
        ("native", "native", 0),
        ("mixed", "mixed", 0),
        ("native", "emulated", 0),
        ("mixed", "native", 4),
        ("emulated", "weight-only", 4),
        ("broken", "emulated", 6),
        ("unsupported", "emulated", 3),
        ("unknown", "emulated", 7),
    ],
)
def test_one_row(verdict: str, wanted: str, code: int) -> None:
    assert row_code(view(verdict, wanted)) == code


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (("native", "native"), 0),
        (("native", "unknown"), 7),
        (("mixed", "unknown"), 4),
        (("broken", "mixed", "unknown", "native"), 6),
        (("broken", "unsupported"), 6),
        (("unsupported", "mixed"), 3),
        ((), 0),
    ],
)
def test_several_rows_in_any_order(verdicts: tuple[str, ...], code: int) -> None:
    for order in permutations(verdicts):
        assert exit_code([view(verdict) for verdict in order]) == code


rows = st.builds(view, st.sampled_from(VERDICTS), st.sampled_from(CLASSES))
unasked = st.builds(lambda verdict: view(verdict, asked=False), st.sampled_from(VERDICTS))


@given(st.lists(rows, max_size=4), st.lists(unasked, max_size=4))
def test_unasked_rows_never_count(asked: list[RowView], beside: list[RowView]) -> None:
    assert exit_code([*beside, *asked]) == exit_code(asked)


@given(st.lists(rows, min_size=1, max_size=4))
def test_zero_only_where_every_asked_row_holds(asked: list[RowView]) -> None:
    assert (exit_code(asked) == 0) is all(row.holds for row in asked)


def test_broken_unsupported_and_unknown_are_never_good_enough() -> None:
    for verdict in ("broken", "unsupported", "unknown"):
        assert not any(at_least_as_good(verdict, wanted) for wanted in CLASSES)


@given(st.sampled_from(CLASSES), st.sampled_from(CLASSES))
def test_classes_are_in_order(one: str, other: str) -> None:
    assert at_least_as_good(one, other) is (rank(one) <= rank(other))
