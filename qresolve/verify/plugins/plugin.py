"""What a plug-in is asked for. It answers about its engine or library alone, and says so where that is absent.

Whatever happens inside (a crash, a hang, nonsense on stdout) comes back as an answer with a problem: a plug-in raises
nothing that would keep the others from being asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from qresolve.arch import Architectures
    from qresolve.facts import FactTable
    from qresolve.knowledge.records import Engine, Route, Scheme
    from qresolve.machine_code.instructions import Instructions
    from qresolve.verify.environment import Environment
    from qresolve.verify.evidence import Evidence, FormatRow
    from qresolve.verify.libraries import InstalledLibraries
    from qresolve.verify.predicates import PredicateAnswer
    from qresolve.verify.selection import Answered


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """The probes of one arch: where they lie, and what the harness says of each. ``problem``: it said nothing."""

    sm: int
    folder: Path
    probes: Mapping[str, Mapping[str, Any]]
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looking:
    """What every plug-in gets.

    ``driver`` is a stub libcuda.so.1 for throwaway processes, ``bytecode`` a folder where their interpreters may keep
    compiled modules, ``limit`` seconds for one process. ``probes`` are the compact kernels that Triton compiled, by sm.
    """

    environment: Environment
    libraries: InstalledLibraries
    architectures: Architectures
    instructions: Instructions
    driver: Path
    bytecode: Path
    limit: float
    probes: Mapping[int, Compiled] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One row that an engine is asked about, with its scheme and the facts that hold here."""

    row: FormatRow
    scheme: Scheme
    facts: FactTable = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicates:
    """Answers by operation and sm, and the libraries that were asked."""

    answers: Mapping[tuple[str, int], PredicateAnswer]
    source: str


class EnginePlugin(Protocol):
    """How the selectors and predicates of one engine are asked."""

    def ask(self, looking: Looking, engine: Engine, asked: Sequence[Asked]) -> Mapping[FormatRow, Answered]:
        """What the installed selector picks for each row, with a GPU of the row's arch put in its place."""

    def predicates(self, looking: Looking, operations: Sequence[str], sms: Sequence[int]) -> Predicates:
        """What the compiled predicates answer."""


class LibraryPlugin(Protocol):
    """How the kernels of a library that compiles at run time are built for an arch without a card."""

    def build(self, looking: Looking, asked: Asked, route: Route) -> Evidence:
        """Rung 6: build the route's kernel for the row's arch with what is installed, and scan what comes out."""
