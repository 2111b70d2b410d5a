"""An audit in words and as JSON values. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from qresolve.audit.points import NOTHING
from qresolve.audit.reread import CHANGED, DRIFT, FOUND, GONE, MOVED, NOT_CHECKABLE, OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from qresolve.audit.behaviour import Comparison, Difference
    from qresolve.audit.reread import Finding
    from qresolve.audit.sources import SourceAudit

SCHEMA = "qresolve.audit/1"
_ORDER = (GONE, CHANGED, MOVED, NOT_CHECKABLE, FOUND)
_SAY = {
    GONE: "gone: the record cites what is not there",
    CHANGED: "changed: the cited text is another one; read it again",
    MOVED: "moved: the place in the record is not right any more",
    NOT_CHECKABLE: "not checkable: nothing to re-read, or it was not read",
    FOUND: "found",
}


def source_exit_code(audit: SourceAudit) -> int:
    """9 where something moved, changed or is gone; 7 where an archive was not read; else 0."""
    if any(finding.outcome in DRIFT for finding in audit.findings):
        return 9
    return 7 if audit.unread else 0


def source_mapping(audit: SourceAudit) -> dict[str, Any]:
    """The source audit as ``--json`` prints it."""
    counts = Counter(finding.outcome for finding in audit.findings)
    return {
        "schema": SCHEMA,
        "audit": "sources",
        "engine": {"name": audit.engine, "version": audit.release},
        "records_of": audit.records_of,
        "archives": [{"file": name, "sha256": digest} for name, digest in sorted(audit.archives.items())],
        "unread": [{"archive": name, "why": why} for name, why in sorted(audit.unread.items())],
        "counts": {outcome: counts[outcome] for outcome in OUTCOMES},
        "findings": [
            {
                "record": finding.record,
                "file": finding.file,
                "cited": finding.cited,
                "what": finding.what,
                "outcome": finding.outcome,
                "now": finding.now,
                "why": finding.why,
            }
            for finding in audit.findings
        ],
    }


def source_lines(audit: SourceAudit, *, verbose: bool) -> Iterator[str]:
    """The source audit as text: what drifted first, then counts."""
    yield f"{audit.engine} {audit.release}"
    if audit.records_of != audit.release:
        yield f"There are no records of it; those of {audit.records_of} are compared. What would have to change:"
    for name, digest in sorted(audit.archives.items()):
        yield f"  read {name} sha256:{digest[:16]}"
    for name, why in sorted(audit.unread.items()):
        yield f"  not read {name}: {why}"
    for outcome in _ORDER:
        found = [finding for finding in audit.findings if finding.outcome == outcome]
        if not found or (outcome == FOUND and not verbose):
            continue
        yield ""
        yield _SAY[outcome]
        yield from _finding_lines(found)
    counts = Counter(finding.outcome for finding in audit.findings)
    yield ""
    yield ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES)


def _finding_lines(findings: Iterable[Finding]) -> Iterator[str]:
    """One line a place, with the records that cite it."""
    places: dict[tuple[str, str, str, str], list[str]] = {}
    for finding in findings:
        places.setdefault((finding.cited, finding.what, finding.now, finding.why), []).append(finding.record)
    for (cited, what, now, why), records in sorted(places.items()):
        # What is cited in prose is the whole of it.
        place = " ".join(part for part in (cited, what) if part)
        yield f"  {place}" + (f" -> {now}" if now else "") + (f" ({why})" if why else "")
        yield f"    {', '.join(sorted(records))}"


def behaviour_exit_code(comparison: Comparison) -> int:
    """9 where the simulation and the selectors part; 7 where something was not asked; else 0."""
    if comparison.differences:
        return 9
    return 7 if comparison.unasked or comparison.left_out or not comparison.compared else 0


def behaviour_mapping(comparison: Comparison, *, engine: str, release: str) -> dict[str, Any]:
    """The behaviour audit as ``--json`` prints it; ``""`` is the answer of a selector that refuses."""
    return {
        "schema": SCHEMA,
        "audit": "behaviour",
        "engine": {"name": engine, "version": release},
        "compared": comparison.compared,
        "differences": [
            {
                "presence": item.presence,
                "point": item.point,
                "arch": f"sm{item.sm}",
                "real": item.real,
                "simulated": item.simulated,
            }
            for item in comparison.differences
        ],
        "unasked": [
            {"presence": presence, "point": point, "arch": f"sm{sm}", "why": why}
            for presence, point, sm, why in comparison.unasked
        ],
        "left_out": [{"scheme": scheme, "why": why} for scheme, why in comparison.left_out],
    }


def _shown(answer: str | None) -> str:
    if answer is None:
        return "cannot tell"
    return "refuses" if answer == NOTHING else answer


def behaviour_lines(comparison: Comparison, *, engine: str, release: str) -> Iterator[str]:
    """The behaviour audit as text: every difference, GPUs that agree on one line."""
    yield f"{engine} {release}"
    rows: dict[tuple[str, str, str, str], list[int]] = {}
    for item in comparison.differences:
        rows.setdefault(_row(item), []).append(item.sm)
    for (point, presence, real, simulated), sms in sorted(rows.items()):
        archs = " ".join(f"sm{sm}" for sm in sorted(sms))
        yield f"  {point} [{presence}] {archs}: the selector {real}, the records {simulated}"
    reasons: dict[str, list[str]] = {}
    for presence, point, sm, why in comparison.unasked:
        reasons.setdefault(why, []).append(f"{point} [{presence}] sm{sm}")
    for why, points in sorted(reasons.items()):
        yield f"  not asked, {why}: {points[0]}" + (f" and {len(points) - 1} more" if len(points) > 1 else "")
    left_out: dict[str, list[str]] = {}
    for scheme, why in comparison.left_out:
        left_out.setdefault(why, []).append(scheme)
    for why, schemes in sorted(left_out.items()):
        yield f"  not compared, {why}: {', '.join(schemes)}"
    yield (
        f"{comparison.compared} points compared, {len(comparison.differences)} differ, "
        f"{len(comparison.unasked)} could not be asked"
    )


def _row(item: Difference) -> tuple[str, str, str, str]:
    return item.point, item.presence, _shown(item.real), _shown(item.simulated)
