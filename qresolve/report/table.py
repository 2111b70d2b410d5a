"""Plain text tables that wrap to a width; no colour carries meaning."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_GAP = "  "
_SMALLEST = 8


def render_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, width: int) -> Iterator[str]:
    """Lines of a table that fits ``width`` characters where it can.

    The last column wraps first, then the others, each down to its longest word; where that is not enough, words are
    broken.
    """
    columns = range(len(head))
    widths = [max(len(line[column]) for line in (head, *rows)) for column in columns]
    longest = [max(_longest_word(line[column]) for line in (head, *rows)) for column in columns]
    excess = sum(widths) + len(_GAP) * (len(head) - 1) - width
    for narrowest in ([max(word, _SMALLEST) for word in longest], [_SMALLEST for _ in columns]):
        for column in reversed(columns):
            cut = max(0, min(excess, widths[column] - narrowest[column]))
            widths[column] -= cut
            excess -= cut
    yield from _line(head, widths)
    yield _GAP.join("-" * column for column in widths)
    for row in rows:
        yield from _line(row, widths)


def _longest_word(cell: str) -> int:
    return max((len(word) for word in cell.split()), default=0)


def _line(cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    wrapped = [
        textwrap.wrap(cell, size, break_on_hyphens=False) or [""] for cell, size in zip(cells, widths, strict=True)
    ]
    for number in range(max(len(cell) for cell in wrapped)):
        parts = [
            (cell[number] if number < len(cell) else "").ljust(size) for cell, size in zip(wrapped, widths, strict=True)
        ]
        yield _GAP.join(parts).rstrip()
