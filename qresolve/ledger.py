"""Every candidate of a resolution with its one decision. Reasons are types; words are made from them at the edge."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassTooLow:
    """The way works, in a class below the wanted one."""

    found: str
    wanted: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingClash:
    """Two rows need different values of one setting."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeChanges:
    """Beside what the other rows need, the selector picks something else."""

    other: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoWay:
    """No way of the row reaches the wanted class under this release."""

    row: str
    wanted: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosureFailed:
    """The release's closure does not resolve for the target."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotKnown:
    """The release is on the index, and there are no records of it."""


Reason = ClassTooLow | SettingClash | OutcomeChanges | NoWay | ClosureFailed | NotKnown


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One candidate: accepted, or rejected with reasons."""

    candidate: str
    accepted: bool
    reasons: tuple[Reason, ...] = ()


@dataclass(slots=True)
class Ledger:
    """Decisions by candidate, the first rejection kept, an acceptance final."""

    _decisions: dict[str, Decision] = field(default_factory=dict)

    def reject(self, candidate: str, *reasons: Reason) -> None:
        """Note a rejection; further reasons for the same candidate are added, each once."""
        before = self._decisions.get(candidate)
        known = before.reasons if before is not None and not before.accepted else ()
        added = tuple(reason for reason in reasons if reason not in known)
        self._decisions[candidate] = Decision(candidate=candidate, accepted=False, reasons=(*known, *added))

    def accept(self, candidate: str) -> None:
        """Note that the candidate is in the solution."""
        self._decisions[candidate] = Decision(candidate=candidate, accepted=True)

    def decisions(self) -> tuple[Decision, ...]:
        """All decisions, by candidate."""
        return tuple(self._decisions[key] for key in sorted(self._decisions))
