"""``matrix`` as one page that stands alone: no script, style or font from anywhere else."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import TYPE_CHECKING

from qresolve.report.matrix_text import LEGEND, matrix_mapping

if TYPE_CHECKING:
    from qresolve.matrix import Matrix

_TEMPLATE = Path(__file__).with_name("matrix.html")


def matrix_page(matrix: Matrix) -> str:
    """The page. Data goes in as JSON that no text of a record can break out of."""
    mapping = {**matrix_mapping(matrix), "legend": LEGEND}
    data = json.dumps(mapping, separators=(",", ":")).replace("<", "\\u003c")
    title = html.escape(f"{matrix.engine} {matrix.release}: what each format runs on")
    page = _TEMPLATE.read_text(encoding="utf-8")
    return page.replace("__TITLE__", title).replace("__DATA__", data)
