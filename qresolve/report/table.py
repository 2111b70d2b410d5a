"""Plain text tables that wrap to a width; no colour carries meaning."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_GAP = "  "
_SMALLEST = 8


def render_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, width: int) -> Iterator[str]:
    """Lines of a table; the widest columns shrink and wrap until it fits ``width`` characters."""
    widths = [max(len(line[column]) for line in (head, *rows)) for column in range(len(head))]
    room = max(width - len(_GAP) * (len(head) - 1), _SMALLEST * len(head))
    while sum(widths) > room:
        widest = widths.index(max(widths))
        if widths[widest] <= _SMALLEST:
            break
        widths[widest] -= 1
    yield from _line(head, widths)
    yield _GAP.join("-" * column for column in widths)
    for row in rows:
        yield from _line(row, widths)


def _line(cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    wrapped = [textwrap.wrap(cell, size) or [""] for cell, size in zip(cells, widths, strict=True)]
    for number in range(max(len(cell) for cell in wrapped)):
        parts = [
            (cell[number] if number < len(cell) else "").ljust(size) for cell, size in zip(wrapped, widths, strict=True)
        ]
        yield _GAP.join(parts).rstrip()
