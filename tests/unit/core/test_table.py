"""Plain text tables: within the width, nothing lost, nothing right of the last cell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.report.table import render_table

words = st.text(alphabet="abcdef-", min_size=1, max_size=12)
cells = st.lists(words, max_size=6).map(" ".join)


def lines(head: list[str], rows: list[list[str]], width: int) -> list[str]:
    return list(render_table(head, rows, width=width))


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert lines(["a", "bb"], [["ccc", "d"], ["e", "f"]], 80) == ["a    bb", "---  --", "ccc  d", "e    f"]


def test_the_widest_column_wraps_first() -> None:
    found = lines(["name", "what to do"], [["sm120", "one two three four five"]], 20)
    assert all(len(line) <= 20 for line in found)
    assert found[2].startswith("sm120  ")
    assert found[3].startswith("       ")


@given(st.lists(st.tuples(cells, cells, cells).map(list), max_size=3), st.integers(28, 120))
def test_it_fits_and_loses_no_letter(rows: list[list[str]], width: int) -> None:
    head = ["one", "two", "three"]
    found = lines(head, rows, width)
    assert all(len(line) <= width for line in found)
    assert all(line == line.rstrip() for line in found)
    letters = sorted("".join("".join(found[2:]).split()))
    assert letters == sorted("".join("".join("".join(row) for row in rows).split()))


@pytest.mark.parametrize("width", [1, 10])
def test_a_terminal_that_is_far_too_narrow_gets_narrow_columns_and_no_endless_loop(width: int) -> None:
    found = lines(["one", "two"], [["a long cell of words", "another long cell"]], width)
    assert max(map(len, found)) <= 8 + 2 + 8


def test_no_rows() -> None:
    assert lines(["a", "b"], [], 80) == ["a  b", "-  -"]


def test_a_word_is_broken_only_where_nothing_else_fits() -> None:
    head, row = ["format", "route"], ["nvfp4@w4a4:dense", "AKernelWithALongName"]
    assert lines(head, [row], 38)[2] == "nvfp4@w4a4:dense  AKernelWithALongName"
    narrow = lines(head, [row], 30)
    assert all(len(line) <= 30 for line in narrow)
    assert narrow[2].startswith("nvfp4@w4a4:dense  AKernelWit")
