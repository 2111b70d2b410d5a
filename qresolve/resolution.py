"""The core resolution: which release, and which way for every row, so that all of them hold together.

A row (a format, scheme and role on one GPU) is a requirement whose candidates are its ways; a way's deviations are
its dependencies on fact packages with one candidate a value. So settings that contradict each other fall out as
ordinary conflicts. What each way does beside the others is simulated after each solution; a disagreement becomes a
context in which that row's ways must hold, and the core is solved again, to a bounded fixpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from resolvelib import AbstractProvider, BaseReporter, ResolutionImpossible, Resolver

from qresolve.classes import CLASSES, at_least_as_good, rank
from qresolve.ledger import ClassTooLow, Ledger, NoWay, OutcomeChanges, SettingClash
from qresolve.setting import Setting, merge_settings
from qresolve.ways import Assignment, Bench, Way, holds_in, host_variables, settings_of, ways

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from qresolve.request import Ask

MOST_ROUNDS = 100_000
"""resolvelib's default of 100 is fewer than the packages of one environment."""

MOST_SOLUTIONS = 50
"""Bound of the fixpoint: solutions tried before giving up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One asked scheme and role on one GPU, with the class that it must reach."""

    ask: Ask
    arch: str
    sm: int
    wanted: str

    @property
    def key(self) -> str:
        """``mxfp4@w4a4:dense/sm120``."""
        return f"{self.ask.key}/{self.arch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRow:
    """A row with the way that was chosen for it."""

    row: Row
    way: Way


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """A release and one way for each row; ``settings`` are merged and include the host variables that are fixed."""

    release: str
    rows: tuple[ResolvedRow, ...]
    assignment: Assignment
    settings: tuple[Setting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Impossible:
    """No release serves all rows as wanted: for each release and row, the best verdict there is."""

    best: tuple[tuple[str, Row, Way | None], ...]
    clashes: tuple[SettingClash, ...]


@dataclass(frozen=True, slots=True)
class _Requirement:
    name: str
    payload: Any = None


@dataclass(frozen=True, slots=True)
class _Candidate:
    name: str
    value: Any


@dataclass(slots=True)
class Core:
    """The question: releases newest first, rows, and how to lay out a row's bench for a release."""

    releases: Sequence[str]
    rows: Sequence[Row]
    bench: Callable[[str, Row], Bench | None]
    ledger: Ledger = field(default_factory=Ledger)
    contexts: dict[tuple[str, str], tuple[Assignment, ...]] = field(default_factory=dict)
    _ways: dict[tuple[str, str, tuple[Assignment, ...]], tuple[Way, ...]] = field(default_factory=dict)

    def ways_of(self, release: str, row: Row) -> Iterator[Way]:
        """The ways that reach the wanted class, best class first, then fewest deviations."""
        for way in self._sorted(release, row):
            if at_least_as_good(way.outcome.verdict, row.wanted):
                yield way
            else:
                self.ledger.reject(
                    f"{release} {row.key} {_words(way.assignment)}",
                    ClassTooLow(found=way.outcome.verdict, wanted=row.wanted),
                )

    def _sorted(self, release: str, row: Row) -> Iterator[Way]:
        contexts = self.contexts.get((release, row.key), ())
        key = (release, row.key, contexts)
        if key in self._ways:
            yield from self._ways[key]
            return
        bench = self.bench(release, row)
        best = row.ask.scheme.wants
        waiting, given = [], []
        for way in ways(bench, contexts) if bench is not None else ():
            # A way in the class that the scheme wants cannot be beaten by one with more deviations.
            if way.outcome.verdict == best:
                given.append(way)
                yield way
            else:
                waiting.append(way)
        rest = sorted(waiting, key=lambda way: (rank(way.outcome.verdict), len(way.assignment)))
        yield from rest
        self._ways[key] = (*given, *rest)

    def best_way(self, release: str, row: Row) -> Way | None:
        """The best way there is, whatever its class; None where no ladder serves the row or nothing is certain."""
        found = list(self._sorted(release, row))
        return min(found, key=lambda way: (rank(way.outcome.verdict), len(way.assignment))) if found else None


class _Provider(AbstractProvider[_Requirement, _Candidate, str]):
    def __init__(self, core: Core) -> None:
        self._core = core
        self._rows = {row.key: row for row in core.rows}

    def identify(self, requirement_or_candidate: _Requirement | _Candidate) -> str:
        return requirement_or_candidate.name

    def get_preference(
        self,
        identifier: str,
        resolutions: Mapping[str, _Candidate],  # noqa: ARG002 - resolvelib's interface
        candidates: Mapping[str, Iterator[_Candidate]],  # noqa: ARG002
        information: Mapping[str, Iterator[Any]],  # noqa: ARG002
        backtrack_causes: Sequence[Any],  # noqa: ARG002
    ) -> tuple[int, str]:
        return ({"engine": 0, "row": 1}.get(identifier.partition(":")[0], 2), identifier)

    def find_matches(
        self,
        identifier: str,
        requirements: Mapping[str, Iterator[_Requirement]],
        incompatibilities: Mapping[str, Iterator[_Candidate]],
    ) -> Callable[[], Iterator[_Candidate]]:
        excluded = list(incompatibilities[identifier])
        payloads = {item.payload for item in requirements[identifier]}

        def matches() -> Iterator[_Candidate]:
            for candidate in self._all(identifier, payloads):
                if candidate not in excluded:
                    yield candidate

        return matches

    def _all(self, identifier: str, payloads: set[Any]) -> Iterator[_Candidate]:
        kind, _, name = identifier.partition(":")
        if kind == "engine":
            yield from (_Candidate(identifier, release) for release in self._core.releases)
        elif len(payloads) != 1:
            values = tuple(sorted(map(str, payloads)))
            self._core.ledger.reject(identifier, SettingClash(key=name, values=values))
        elif kind == "row":
            release = next(iter(payloads))
            yield from (_Candidate(identifier, (release, way)) for way in self._core.ways_of(release, self._rows[name]))
        else:
            yield _Candidate(identifier, next(iter(payloads)))

    def is_satisfied_by(self, requirement: _Requirement, candidate: _Candidate) -> bool:
        if requirement.name.startswith("row:"):
            return bool(candidate.value[0] == requirement.payload)
        return requirement.name == "engine" or bool(candidate.value == requirement.payload)

    def get_dependencies(self, candidate: _Candidate) -> Iterable[_Requirement]:
        if candidate.name == "engine":
            return [_Requirement(f"row:{key}", candidate.value) for key in sorted(self._rows)]
        if candidate.name.startswith("row:"):
            return [_Requirement(f"fact:{key}", value) for key, value in candidate.value[1].assignment]
        return []


def _words(assignment: Assignment) -> str:
    return " ".join(f"{key}={value}" for key, value in assignment) or "(plain install)"


def solve(core: Core) -> Resolution | Impossible:
    """Solve to the fixpoint.

    Returns:
        The newest release under which every row reaches its wanted class, with the fewest deviations a row; or why
        there is none.
    """
    for _ in range(MOST_SOLUTIONS):
        resolver: Resolver[_Requirement, _Candidate, str] = Resolver(_Provider(core), BaseReporter())
        try:
            result = resolver.resolve([_Requirement("engine")], max_rounds=MOST_ROUNDS)
        except ResolutionImpossible:
            return _impossible(core)
        release: str = result.mapping["engine"].value
        chosen = {row.key: result.mapping[f"row:{row.key}"].value[1] for row in core.rows}
        merged: Assignment = tuple(
            sorted({pair for way in chosen.values() for pair in way.assignment}, key=lambda pair: pair[0])
        )
        if not _disagreements(core, release, chosen, merged):
            return _finish(core, release, chosen, merged)
    return _impossible(core)


def _disagreements(core: Core, release: str, chosen: Mapping[str, Way], merged: Assignment) -> bool:
    """Note a context for each row whose selector picks something else beside the others."""
    found = False
    for row in core.rows:
        bench = core.bench(release, row)
        way = chosen[row.key]
        if bench is None or holds_in(bench, way.assignment, merged, way.outcome):
            continue
        key = (release, row.key)
        core.contexts[key] = tuple(dict.fromkeys((*core.contexts.get(key, ()), merged)))
        other = tuple((name, str(value)) for name, value in merged if (name, value) not in way.assignment)
        core.ledger.reject(f"{release} {row.key} {_words(way.assignment)}", OutcomeChanges(other=other))
        found = True
    return found


def _finish(core: Core, release: str, chosen: Mapping[str, Way], merged: Assignment) -> Resolution:
    rows, groups = [], [settings_of(merged)]
    for row in core.rows:
        way = chosen[row.key]
        bench = core.bench(release, row)
        if bench is not None:
            groups.append(settings_of(host_variables(bench, merged, way.outcome)))
        core.ledger.accept(f"{release} {row.key} {_words(way.assignment)}")
        rows.append(ResolvedRow(row=row, way=way))
    core.ledger.accept(f"engine {release}")
    settings, conflicts = merge_settings(groups)
    if conflicts:
        raise AssertionError(f"two values for {conflicts[0].key} after the solver joined them")
    return Resolution(release=release, rows=tuple(rows), assignment=merged, settings=settings)


def _impossible(core: Core) -> Impossible:
    best: list[tuple[str, Row, Way | None]] = []
    for release in core.releases:
        for row in core.rows:
            way = core.best_way(release, row)
            best.append((release, row, way))
            verdict = way.outcome.verdict if way is not None else "unknown"
            if not at_least_as_good(verdict, row.wanted):
                core.ledger.reject(f"engine {release}", NoWay(row=row.key, best=verdict))
    clashes: Iterable[SettingClash] = (
        reason
        for decision in core.ledger.decisions()
        for reason in decision.reasons
        if isinstance(reason, SettingClash)
    )
    return Impossible(best=tuple(best), clashes=tuple(clashes))


def worst(verdicts: Iterable[str]) -> str:
    """The worst of some verdicts."""
    return max(verdicts, key=rank, default=CLASSES[0])
