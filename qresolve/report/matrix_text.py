"""``matrix`` for terminals and for pages: words in every cell, colour only beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qresolve.matrix import Cell, Matrix, Sheet

SHORT = {
    "native": "native",
    "mixed": "mixed",
    "storage-only": "storage",
    "weight-only": "weight",
    "emulated": "emul.",
    "broken": "BROKEN",
    "unsupported": "none",
    "unknown": "?",
}
_COLOURS = {
    "native": "32",
    "mixed": "33",
    "storage-only": "33",
    "weight-only": "33",
    "emulated": "33",
    "broken": "31",
    "unsupported": "2",
    "unknown": "35",
}
LEGEND = (
    "native: weights and activations in the format's own tensor-core kernel; mixed: activations in another quantized "
    "precision; storage and weight: 16-bit arithmetic; emul.: dequantized first; BROKEN: picked, then fails; "
    "none: no route; ?: not known"
)
CHANGED = "+"


def position_words(matrix: Matrix, sheet: Sheet) -> str:
    """What a sheet assumes, in words."""
    parts = []
    for axis, name in zip(matrix.axes, sheet.position, strict=True):
        option = next(item for item in axis.options if item.name == name)
        parts.append(f"{axis.words} {option.words}")
    return "; ".join(parts)


def shown(cell: Cell, *, locked: bool) -> tuple[str, str]:
    """The verdict and the short word of a cell; ``+`` where a lock's settings make it another one."""
    verdict = cell.locked if locked else cell.plain
    return verdict, SHORT[verdict] + (CHANGED if locked and cell.locked != cell.plain else "")


def matrix_lines(matrix: Matrix, sheet: Sheet, *, locked: bool, colour: bool) -> Iterator[str]:
    """One sheet as a table."""
    side = "with the settings of a lock" if locked else "the engine left to itself"
    yield f"{matrix.engine} {matrix.release}: {side}; {position_words(matrix, sheet)}"
    yield ""
    label = max(len(ask.key) for ask in matrix.asks)
    width = max(len(word) for word in SHORT.values()) + len(CHANGED) + 1
    yield " " * label + "  " + "".join(column.arch.ljust(width) for column in matrix.columns).rstrip()
    for ask, row in zip(matrix.asks, sheet.cells, strict=True):
        cells = []
        for cell in row:
            verdict, word = shown(cell, locked=locked)
            text = word.ljust(width)
            cells.append(f"\x1b[{_COLOURS[verdict]}m{text}\x1b[0m" if colour else text)
        line = f"{ask.key.ljust(label)}  {''.join(cells)}"
        yield line if colour else line.rstrip()
    yield ""
    yield LEGEND
    if locked:
        yield f"{CHANGED}: only with settings or packages that a lock holds; a plain install gives another verdict"


def matrix_markdown(matrix: Matrix, sheet: Sheet, *, locked: bool) -> Iterator[str]:
    """One sheet as a Markdown table."""
    side = "with the settings of a lock" if locked else "the engine left to itself"
    yield f"**{matrix.engine} {matrix.release}**, {side}; {position_words(matrix, sheet)}."
    yield ""
    yield "| format | " + " | ".join(column.arch for column in matrix.columns) + " |"
    yield "|---|" + "---|" * len(matrix.columns)
    for ask, row in zip(matrix.asks, sheet.cells, strict=True):
        words = []
        for cell in row:
            verdict, _ = shown(cell, locked=locked)
            words.append(verdict + (f" {CHANGED}" if locked and cell.locked != cell.plain else ""))
        yield f"| `{ask.key}` | " + " | ".join(words) + " |"
    yield ""
    yield LEGEND


def matrix_mapping(matrix: Matrix) -> dict[str, Any]:
    """The whole matrix as JSON: schema ``qresolve.matrix/1``."""
    return {
        "schema": "qresolve.matrix/1",
        "engine": {"name": matrix.engine, "version": matrix.release},
        "workload": matrix.workload,
        "formats": [
            {"format": ask.scheme.format, "scheme": ask.scheme.name, "role": ask.role, "wanted": ask.scheme.wants}
            for ask in matrix.asks
        ],
        "archs": [{"arch": column.arch, "machine": column.machine} for column in matrix.columns],
        "axes": [
            {
                "name": axis.name,
                "words": axis.words,
                "options": [{"name": option.name, "words": option.words} for option in axis.options],
            }
            for axis in matrix.axes
        ],
        "sheets": [
            {
                "position": list(sheet.position),
                "cells": [[cell_mapping(cell) for cell in row] for row in sheet.cells],
            }
            for sheet in matrix.sheets
        ],
    }


def cell_mapping(cell: Cell) -> dict[str, Any]:
    """One cell as JSON."""
    return {
        "plain": {"verdict": cell.plain, "route": cell.plain_route, "why": cell.plain_why},
        "locked": {"verdict": cell.locked, "route": cell.locked_route, "settings": list(cell.settings)},
    }
