"""A verification as JSON (``qresolve.verify/1``) and as a table."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from qresolve.verify.evidence import Binds, Outcome
from qresolve.verify.rungs import NOTHING_THERE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qresolve.lock.model import LockedTarget
    from qresolve.verify.evidence import Evidence, FormatRow, VerifyReport

SCHEMA = "qresolve.verify/1"


def _about(row: FormatRow | None) -> dict[str, str | None]:
    if row is None:
        return {"format": None, "scheme": None, "role": None, "arch": None, "engine": None}
    return {"format": row.format, "scheme": row.scheme, "role": row.role, "arch": row.arch, "engine": row.engine}


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
                "route": verdict.route,
                "why": verdict.why,
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
        if observation.rung == 0 and observation.outcome in (Outcome.REFUTED, Outcome.UNPROVED)
    )


def _short(text: str) -> str:
    """A digest cut to what a person compares; other text as it is."""
    return text[:19] + "…" if text.startswith("sha256:") else text


MARKS = {Outcome.PROVED: "ok", Outcome.REFUTED: "NO", Outcome.UNPROVED: "?", Outcome.SKIPPED: "-"}
"""How outcomes are shown in the table, by words that need no colour."""

LEGEND = (
    "rungs: 1 image, 2 family, 3 instruction, 4 predicate, 5 selector, 6 toolchain, 7 launch, 8 operation;"
    " ok proved, NO refuted, ? unproved, - does not apply; (?) and (NO) are about a compiler or GPU, not the route"
)


def format_header() -> tuple[str, ...]:
    """The head of the table of formats."""
    return ("format", "gpu", "route", *(str(number) for number in range(1, 9)), "verdict", "level", "holds")


def format_rows(report: VerifyReport) -> tuple[tuple[str, ...], ...]:
    """One row a format, arch and engine: what is picked, what came of each rung, and what it comes to."""
    rows = []
    for verdict in report.verdicts:
        own = [one for one in report.evidence if one.about == verdict.about]
        rows.append(
            (
                str(verdict.about),
                verdict.about.arch,
                verdict.route or verdict.about.engine or "no engine",
                *(_marks([one for one in own if one.rung == number]) for number in range(1, 9)),
                verdict.verdict,
                verdict.level,
                "yes" if verdict.holds else "no",
            )
        )
    return tuple(rows)


def _marks(evidence: Sequence[Evidence]) -> str:
    """The worst outcome of a rung that counts for the route, else of what is about the toolchain or the GPU."""
    order = (Outcome.REFUTED, Outcome.UNPROVED, Outcome.PROVED, Outcome.SKIPPED)
    bound = [one.outcome for one in evidence if one.binds is Binds.ROUTE]
    if bound:
        return MARKS[min(bound, key=order.index)]
    beside = [one.outcome for one in evidence]
    if not beside:
        return ""
    worst = MARKS[min(beside, key=order.index)]
    return worst if worst in ("ok", "-") else f"({worst})"


def reasons(report: VerifyReport) -> tuple[str, ...]:
    """What was not proved and why, each once, with the raw observation; what was let out on purpose is left out."""
    lines: dict[str, dict[str, None]] = {}
    for one in report.evidence:
        if one.about is None or one.outcome not in (Outcome.REFUTED, Outcome.UNPROVED):
            continue
        if one.about.engine is None and one.why == NOTHING_THERE:
            continue  # that no engine is installed says it all
        seen = f" [{one.seen}]" if one.seen else ""
        text = f"rung {one.rung} {one.outcome.value}: {one.subject}: {one.why or 'no reason was given'}{seen}"
        lines.setdefault(text, {})[f"{one.about} on {one.about.arch}"] = None
    every = {f"{verdict.about} on {verdict.about.arch}" for verdict in report.verdicts}
    return tuple(
        f"{'every format' if len(rows) > 1 and every == set(rows) else ', '.join(rows)}: {text}"
        for text, rows in lines.items()
    )


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns set apart by two spaces, for files and pipes; the last column is as long as it is."""
    lines = [tuple(header), *map(tuple, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header) - 1)]
    return "\n".join(
        "  ".join([*(text.ljust(width) for text, width in zip(line[:-1], widths, strict=True)), line[-1]]).rstrip()
        for line in lines
    )
