"""Triton: a route whose kernel it compiles is built here as the compact probe of the same product."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve.verify.evidence import Binds, Outcome
from qresolve.verify.probing import probe_evidence
from qresolve.verify.rungs import TOOLCHAIN

if TYPE_CHECKING:
    from qresolve.knowledge.records import Route
    from qresolve.verify.evidence import Evidence
    from qresolve.verify.plugins.plugin import Asked, Looking


class Triton:
    """The plug-in."""

    def build(self, looking: Looking, asked: Asked, route: Route) -> Evidence:
        """What the environment's Triton makes of the product, as evidence about the route."""
        if "triton" not in looking.environment.versions:
            why = "triton is not installed"
            return TOOLCHAIN.observed(asked.row, route.name, Outcome.UNPROVED, binds=Binds.ROUTE, why=why)
        found = probe_evidence(
            looking, asked.row, asked.scheme, looking.probes.get(asked.row.sm), binds=Binds.ROUTE, subject=route.name
        )
        if found.outcome is Outcome.SKIPPED:
            return TOOLCHAIN.observed(asked.row, route.name, Outcome.UNPROVED, binds=Binds.ROUTE, why=found.why)
        return found


PLUGIN = Triton()
