"""From the evidence of a row to its verdict and level. Pure; reads no lock.

``native`` at level ``static`` needs every rung from 1 to 6 that applies proved, at level ``launched`` a launch of the
engine's own operation as well (or of a compact kernel, where the route has no operation that can be called). Something
refuted makes the row what the refutation implies; something that could not be looked at leaves it unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve.classes import at_least_as_good, rank
from qresolve.verify.evidence import Binds, Outcome, Verdict
from qresolve.verify.rungs import LAUNCH, OPERATION, SELECTION, STATIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qresolve.verify.evidence import Evidence, FormatRow
    from qresolve.verify.selection import Picked


def counts(evidence: Evidence) -> bool:
    """Whether a piece of evidence enters the verdict of its row: what is about the route does."""
    return evidence.binds is Binds.ROUTE


def join(
    row: FormatRow, picked: Picked | None, evidence: Sequence[Evidence], *, launching: bool, unbuilt: bool = False
) -> Verdict:
    """The verdict of one row. ``evidence`` is all of it about the row; ``launching``: launches are part of it.

    ``unbuilt``: the person lets a kernel that could not be compiled here pass, at the level of the records.
    """
    bound = [one for one in evidence if counts(one)]
    route = picked.route.name if picked is not None and picked.route is not None else None
    refuted = [one for one in bound if one.outcome is Outcome.REFUTED]
    if refuted:
        worst = max(refuted, key=lambda one: rank(one.implies or "unknown"))
        verdict = worst.implies or "unknown"
        return Verdict(
            about=row,
            verdict=verdict,
            level="launched" if worst.rung in (LAUNCH.number, OPERATION.number) else "static",
            holds=at_least_as_good(verdict, row.wanted),
            route=route,
            refuted=True,
            why=worst.why,
        )
    static = {rung.number for rung in STATIC}
    missing = [one for one in bound if one.rung in static and one.outcome is Outcome.UNPROVED]
    let_pass = [one for one in missing if unbuilt and one.rung == STATIC[-1].number]
    missing = [one for one in missing if one not in let_pass]
    class_ = picked.class_ if picked is not None else None
    selected = any(one.rung == SELECTION.number and one.outcome is Outcome.PROVED for one in bound)
    if missing or not selected or class_ is None:
        first = next(iter(missing), None)
        return Verdict(
            about=row,
            verdict="unknown",
            level="static",
            holds=False,
            route=route,
            why=first.why if first is not None else "no engine that serves it was asked",
        )
    level = "data" if let_pass else "static"
    if not launching:
        return Verdict(about=row, verdict=class_, level=level, holds=at_least_as_good(class_, row.wanted), route=route)
    launches = [one for one in bound if one.rung == OPERATION.number and one.outcome is not Outcome.SKIPPED]
    # A route without an operation that can be called leans on the compact kernel: its compiler, GPU and driver.
    launches = launches or [one for one in evidence if one.rung == LAUNCH.number and one.outcome is not Outcome.SKIPPED]
    if launches and all(one.outcome is Outcome.PROVED for one in launches):
        return Verdict(
            about=row, verdict=class_, level="launched", holds=at_least_as_good(class_, row.wanted), route=route
        )
    why = next((one.why for one in launches if one.outcome is not Outcome.PROVED), "nothing was launched")
    return Verdict(about=row, verdict="unknown", level=level, holds=False, route=route, why=why)
