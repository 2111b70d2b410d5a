"""From judged rows to an exit code. Of several, 6 before 4 before 7; unasked rows never count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve.classes import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qresolve.explain import RowView

HOLDS, NO_RESOLUTION, LOWER, BROKEN, UNKNOWN = 0, 3, 4, 6, 7


def row_code(row: RowView) -> int:
    """The exit code of one row."""
    if row.holds:
        return HOLDS
    if row.verdict == "broken":
        return BROKEN
    if row.verdict in CLASSES:
        return LOWER
    return UNKNOWN if row.verdict == "unknown" else NO_RESOLUTION


def exit_code(rows: Iterable[RowView]) -> int:
    """The exit code of all asked rows together."""
    codes = {row_code(row) for row in rows if row.asked}
    return next((code for code in (BROKEN, NO_RESOLUTION, LOWER, UNKNOWN) if code in codes), HOLDS)
