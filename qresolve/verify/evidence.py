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
    """A format that is asked about on one arch, of one engine; ``engine`` is None where none is installed."""

    format: str
    scheme: str
    role: str
    arch: str
    wanted: str
    engine: str | None = None

    @property
    def key(self) -> str:
        """``mxfp4@w4a4:dense``."""
        return f"{self.format}@{self.scheme}:{self.role}"

    @property
    def sm(self) -> int:
        """120 of ``sm120``."""
        return int(self.arch.removeprefix("sm"))

    def __str__(self) -> str:
        return self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One observation. ``about`` is None where it is not about one format (a package of rung 0).

    ``seen`` is what was observed, raw; ``why`` explains the outcome; ``source`` is where it was observed. ``implies``
    is what a refutation makes of the row: the verdict that it comes to at best.
    """

    rung: int
    binds: Binds
    subject: str
    outcome: Outcome
    about: FormatRow | None = None
    seen: str | None = None
    why: str | None = None
    source: str | None = None
    implies: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the evidence comes to for one format on one arch. ``route`` is what the installed engine picks.

    ``refuted``: something that counts for the row was looked at and is not so; else what does not hold was not proved.
    """

    about: FormatRow
    verdict: str
    level: str
    holds: bool
    route: str | None = None
    refuted: bool = False
    why: str | None = None


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
    """6 if a package or a row is refuted, else 7 if one could not be proved or does not hold, else 0.

    Evidence about a compiler or a GPU counts where it entered a verdict: a decomposed probe refutes no CUTLASS kernel.
    """
    packages = {observation.outcome for observation in evidence if observation.binds is Binds.PACKAGE}
    found = tuple(verdicts)
    if Outcome.REFUTED in packages or any(verdict.refuted and not verdict.holds for verdict in found):
        return 6
    if Outcome.UNPROVED in packages or not all(verdict.holds for verdict in found):
        return 7
    return 0
