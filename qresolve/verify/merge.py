"""Reports of several machines as one: what each format came to where. Pure.

A fleet holds where every report of it holds: a row that one machine refuted is refuted, however many others proved it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qresolve.errors import UsageError
from qresolve.verify.report import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedReport:
    """Documents as ``verify --json`` prints them, each with the name of where it came from."""

    reports: tuple[tuple[str, Document], ...]


def check_report(name: str, document: object) -> Document:
    """The document, if it is a report of a form that is known.

    Raises:
        UsageError: it is another thing.
    """
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UsageError(f"{name} is no report of `qresolve verify`", hint="qresolve verify --json > report.json")
    rows = document.get("verdicts")
    if not isinstance(rows, list) or not all(_is_row(row) for row in rows):
        raise UsageError(f"{name}: its verdicts are not those of {SCHEMA}", hint="qresolve verify --json > report.json")
    if not isinstance(document.get("evidence"), list):
        raise UsageError(f"{name}: its evidence is missing", hint="qresolve verify --json > report.json")
    return document


def _is_row(row: object) -> bool:
    texts = ("format", "scheme", "role", "arch", "verdict", "level")
    return isinstance(row, dict) and all(isinstance(row.get(key), str) for key in texts) and "holds" in row


def merged_rows(merged: MergedReport) -> tuple[tuple[str, ...], ...]:
    """A row for each format, arch and report, sorted by format and arch."""
    rows = [
        (
            f"{row['format']}@{row['scheme']}:{row['role']}",
            row["arch"],
            name,
            str(row.get("route") or row.get("engine") or "-"),
            row["verdict"],
            row["level"],
            "yes" if row["holds"] is True else "no",
        )
        for name, document in merged.reports
        for row in document["verdicts"]
    ]
    return tuple(sorted(rows, key=lambda row: row[:3]))


def merged_code(merged: MergedReport) -> int:
    """6 where any report has something refuted that counts, else 7 where any has a row that does not hold."""
    codes = [_code(document) for _, document in merged.reports]
    return 6 if 6 in codes else 7 if 7 in codes or not codes else 0


def _code(document: Document) -> int:
    packages = {one.get("outcome") for one in document["evidence"] if one.get("binds") == "package"}
    failing = [row for row in document["verdicts"] if row["holds"] is not True]
    if "refuted" in packages or any(row["verdict"] != "unknown" for row in failing):
        return 6
    return 7 if "unproved" in packages or failing else 0


def merged_document(merged: MergedReport) -> dict[str, Any]:
    """All reports in one JSON document."""
    return {
        "schema": "qresolve.verify-merged/1",
        "reports": [{"name": name, "report": document} for name, document in merged.reports],
    }


def merge(named: Sequence[tuple[str, object]]) -> MergedReport:
    """Join reports.

    Raises:
        UsageError: one is no report, or there is none.
    """
    if not named:
        raise UsageError("there are no reports to join", hint="qresolve verify --merge a.json b.json")
    return MergedReport(reports=tuple((name, check_report(name, document)) for name, document in named))
