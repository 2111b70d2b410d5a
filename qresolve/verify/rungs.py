"""The rungs above 0: what each would look at. None is carried out in this release, and each says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from qresolve.verify.evidence import Binds, Evidence, Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qresolve.verify.evidence import FormatRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One rung: what it looks at, what it binds, and whether it launches something on a GPU."""

    number: int
    looks_at: str
    binds: Binds
    launches: bool = False


RUNGS = (
    Rung(number=1, looks_at="images that load on the arch", binds=Binds.ROUTE),
    Rung(number=2, looks_at="the kernel family in the binary", binds=Binds.ROUTE),
    Rung(number=3, looks_at="tensor-core instructions in the binary", binds=Binds.ROUTE),
    Rung(number=4, looks_at="the engine's compiled predicate", binds=Binds.ROUTE),
    Rung(number=5, looks_at="the engine's own selector", binds=Binds.ROUTE),
    Rung(number=6, looks_at="the toolchain, cross-compiling for the arch", binds=Binds.TOOLCHAIN),
    Rung(number=7, looks_at="a compact kernel launched", binds=Binds.SILICON, launches=True),
    Rung(number=8, looks_at="the engine's own operation launched", binds=Binds.ROUTE, launches=True),
)


def check_unlooked(rows: Sequence[FormatRow], *, static: bool) -> tuple[Evidence, ...]:
    """Evidence for every rung that nothing was looked at on; under ``static`` nothing is to be launched."""
    evidence = []
    for row in rows:
        for rung in RUNGS:
            left_out = static and rung.launches
            evidence.append(
                Evidence(
                    rung=rung.number,
                    binds=rung.binds,
                    subject=rung.looks_at,
                    outcome=Outcome.SKIPPED if left_out else Outcome.UNPROVED,
                    about=row,
                    why="nothing is launched under --static" if left_out else "not implemented in this release",
                )
            )
    return tuple(evidence)


def judge(rows: Sequence[FormatRow]) -> tuple[Verdict, ...]:
    """Verdicts from the evidence. Rung 0 alone tells of no route, so each is unknown and does not hold."""
    return tuple(Verdict(about=row, verdict="unknown", level="static", holds=False) for row in rows)
