"""A verification as JSON (``qresolve.verify/1``) and as a table."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from qresolve.verify.evidence import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qresolve.lock.model import LockedTarget
    from qresolve.verify.evidence import Evidence, FormatRow, VerifyReport

SCHEMA = "qresolve.verify/1"


def _about(row: FormatRow | None) -> dict[str, str | None]:
    if row is None:
        return {"format": None, "scheme": None, "role": None, "arch": None}
    return {"format": row.format, "scheme": row.scheme, "role": row.role, "arch": row.arch}


def _target(target: LockedTarget) -> dict[str, Any]:
    return {
        "gpus": [{"name": name, "arch": arch} for name, arch in target.gpus],
        "machine": target.machine,
        "glibc": target.glibc,
        "python": target.python,
        "driver": target.driver,
        "cuda": target.cuda,
    }


def to_mapping(report: VerifyReport) -> dict[str, Any]:
    """The report as ``verify --json`` prints it."""
    return {
        "schema": SCHEMA,
        "target": None if report.target is None else _target(report.target),
        "environment": {
            "python": report.environment.python,
            "version": report.environment.version,
            "prefix": report.environment.prefix,
            "distributions": report.environment.distributions,
            "unfinished_install": report.environment.unfinished_install,
        },
        "evidence": [
            {
                **_about(observation.about),
                "rung": observation.rung,
                "binds": observation.binds.value,
                "subject": observation.subject,
                "outcome": observation.outcome.value,
                "seen": observation.seen,
                "why": observation.why,
                "source": observation.source,
            }
            for observation in report.evidence
        ],
        "verdicts": [
            {
                **_about(verdict.about),
                "verdict": verdict.verdict,
                "level": verdict.level,
                "holds": verdict.holds,
            }
            for verdict in report.verdicts
        ],
    }


def package_summary(evidence: Sequence[Evidence]) -> str:
    """One line on rung 0: how many of each outcome."""
    counted = Counter(observation.outcome for observation in evidence if observation.rung == 0)
    said = ", ".join(f"{counted[outcome]} {outcome.value}" for outcome in Outcome if counted[outcome])
    return f"installed packages: {said or 'none'}"


def package_rows(evidence: Sequence[Evidence]) -> tuple[tuple[str, ...], ...]:
    """Rung 0's rows that are not proved: outcome, subject, seen, why."""
    return tuple(
        (
            observation.outcome.value,
            observation.subject,
            _short(observation.seen or "-"),
            observation.why or "-",
        )
        for observation in evidence
        if observation.rung == 0 and observation.outcome is not Outcome.PROVED
    )


def _short(text: str) -> str:
    """A digest cut to what a person compares; other text as it is."""
    return text[:19] + "…" if text.startswith("sha256:") else text


def format_rows(report: VerifyReport) -> tuple[tuple[str, ...], ...]:
    """One row a format and arch: format, arch, verdict, level, holds, and what came of its rungs."""
    rows = []
    for verdict in report.verdicts:
        own = [observation for observation in report.evidence if observation.about == verdict.about]
        groups: dict[tuple[str, str], list[int]] = {}
        for observation in own:
            groups.setdefault((observation.outcome.value, observation.why or ""), []).append(observation.rung)
        said = "; ".join(
            f"rung {_span(rungs)} {outcome}" + (f" ({why})" if why else "") for (outcome, why), rungs in groups.items()
        )
        rows.append(
            (
                str(verdict.about),
                verdict.about.arch,
                verdict.verdict,
                verdict.level,
                "yes" if verdict.holds else "no",
                said,
            )
        )
    return tuple(rows)


def _span(rungs: Sequence[int]) -> str:
    ordered = sorted(set(rungs))
    if len(ordered) > 2 and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{ordered[0]}-{ordered[-1]}"
    return ",".join(str(rung) for rung in ordered)


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns set apart by two spaces, for files and pipes; the last column is as long as it is."""
    lines = [tuple(header), *map(tuple, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header) - 1)]
    return "\n".join(
        "  ".join([*(text.ljust(width) for text, width in zip(line[:-1], widths, strict=True)), line[-1]]).rstrip()
        for line in lines
    )
