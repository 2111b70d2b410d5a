"""The rungs of evidence: what each looks at, what it binds, and whether it launches something on a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from qresolve.verify.evidence import Binds, Evidence, FormatRow, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One rung: what it looks at, what it binds, and whether it launches something on a GPU."""

    number: int
    looks_at: str
    binds: Binds
    launches: bool = False

    def observed(
        self,
        row: FormatRow,
        subject: str,
        outcome: Outcome,
        *,
        binds: Binds | None = None,
        seen: str | None = None,
        why: str | None = None,
        source: str | None = None,
        implies: str | None = None,
    ) -> Evidence:
        """Evidence of this rung about a row; ``binds`` where it is about something else than the rung mostly is."""
        return Evidence(
            rung=self.number,
            binds=binds or self.binds,
            subject=subject,
            outcome=outcome,
            about=row,
            seen=seen,
            why=why,
            source=source,
            implies=implies,
        )


IMAGES = Rung(number=1, looks_at="images that load on the arch", binds=Binds.ROUTE)
FAMILIES = Rung(number=2, looks_at="the kernel family in the binary", binds=Binds.ROUTE)
INSTRUCTIONS = Rung(number=3, looks_at="tensor-core instructions in the binary", binds=Binds.ROUTE)
PREDICATES = Rung(number=4, looks_at="the engine's compiled predicate", binds=Binds.ROUTE)
SELECTION = Rung(number=5, looks_at="the engine's own selector", binds=Binds.ROUTE)
TOOLCHAIN = Rung(number=6, looks_at="the toolchain, compiling for the arch", binds=Binds.TOOLCHAIN)
LAUNCH = Rung(number=7, looks_at="a compact kernel launched", binds=Binds.SILICON, launches=True)
OPERATION = Rung(number=8, looks_at="the engine's own operation launched", binds=Binds.ROUTE, launches=True)

RUNGS = (IMAGES, FAMILIES, INSTRUCTIONS, PREDICATES, SELECTION, TOOLCHAIN, LAUNCH, OPERATION)
STATIC = tuple(rung for rung in RUNGS if not rung.launches)

NOTHING_THERE = "there was nothing to look at"
"""Why a rung is unproved that nobody could look at."""
