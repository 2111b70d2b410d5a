"""Evidence: what was looked at, on which rung, about which subject, and what came of it; verdicts made of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qresolve.lock.model import LockedTarget


class Outcome(Enum):
    """What looking came to; ``unproved``: could not look, ``skipped``: does not apply."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNPROVED = "unproved"
    SKIPPED = "skipped"


class Binds(Enum):
    """What a piece of evidence is about, and so for what it counts."""

    PACKAGE = "package"
    ROUTE = "route"
    TOOLCHAIN = "toolchain"
    SILICON = "silicon and driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatRow:
    """A format that is asked about on one arch."""

    format: str
    scheme: str
    role: str
    arch: str
    wanted: str

    def __str__(self) -> str:
        return f"{self.format}@{self.scheme}:{self.role}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One observation. ``about`` is None where it is not about one format (a package of rung 0).

    ``seen`` is what was observed, raw; ``why`` explains the outcome; ``source`` is where it was observed.
    """

    rung: int
    binds: Binds
    subject: str
    outcome: Outcome
    about: FormatRow | None = None
    seen: str | None = None
    why: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the evidence comes to for one format on one arch."""

    about: FormatRow
    verdict: str
    level: str
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedEnvironment:
    """The environment that was looked at; paths as text, versions raw."""

    python: str
    version: str
    prefix: str
    distributions: int
    unfinished_install: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """All evidence and all verdicts. ``target`` is None where there was no lock to name one."""

    target: LockedTarget | None
    environment: VerifiedEnvironment
    evidence: tuple[Evidence, ...]
    verdicts: tuple[Verdict, ...]


def exit_code(evidence: Iterable[Evidence], verdicts: Iterable[Verdict]) -> int:
    """6 if anything is refuted, else 7 if anything could not be proved or does not hold, else 0."""
    outcomes = {observation.outcome for observation in evidence}
    if Outcome.REFUTED in outcomes:
        return 6
    if Outcome.UNPROVED in outcomes or not all(verdict.holds for verdict in verdicts):
        return 7
    return 0
