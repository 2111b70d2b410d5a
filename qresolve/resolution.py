"""The core resolution: which release, and which way for every row, so that all of them hold together.

A row (a format, scheme and role on one GPU) is a requirement whose candidates are its ways; a way's deviations are
its dependencies on fact packages with one candidate a value. So settings that contradict each other fall out as
ordinary conflicts. What each way does beside the others is simulated after each solution; a disagreement becomes a
context in which that row's ways must hold (or which they exclude), and the core is solved again, to a bounded
fixpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from resolvelib import AbstractProvider, BaseReporter, ResolutionImpossible, Resolver

from qresolve.classes import CLASSES, at_least_as_good, rank
from qresolve.ledger import ClassTooLow, Ledger, NoWay, OutcomeChanges, SettingClash
from qresolve.setting import Setting, merge_settings
from qresolve.ways import Assignment, Bench, Way, can_reach, holds_in, host_variables, settings_of, ways

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from qresolve.request import Ask

MOST_ROUNDS = 100_000
"""resolvelib's default of 100 is fewer than the packages of one environment."""

MOST_SOLUTIONS = 50
"""Bound of the fixpoint: solutions tried before giving up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One asked scheme and role on one GPU, with the class that it must reach.

    ``variant`` names the layers of a model that it speaks of, where layers of one scheme and role have other facts.
    """

    ask: Ask
    arch: str
    sm: int
    wanted: str
    variant: str = ""

    @property
    def key(self) -> str:
        """``mxfp4@w4a4:dense/sm120``."""
        return f"{self.ask.key}/{self.arch}" + (f"/{self.variant}" if self.variant else "")


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
    """No release serves all rows as wanted. What each row comes to all the same: :func:`best_alone`."""

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
class _Ways:
    """Ways that are found when they are first asked for, and kept: the solver asks for a row's ways again and again."""

    source: Iterator[Way]
    found: list[Way] = field(default_factory=list)

    def __iter__(self) -> Iterator[Way]:
        position = 0
        while True:
            if position == len(self.found):
                way = next(self.source, None)
                if way is None:
                    return
                self.found.append(way)
            yield self.found[position]
            position += 1


@dataclass(slots=True)
class Core:
    """The question: releases newest first, rows, and how to lay out a row's bench for a release."""

    releases: Sequence[str]
    rows: Sequence[Row]
    bench: Callable[[str, Row], Bench | None]
    ledger: Ledger = field(default_factory=Ledger)
    contexts: dict[tuple[str, str], tuple[Assignment, ...]] = field(default_factory=dict)
    _sorted_ways: dict[tuple[str, str, tuple[Assignment, ...]], _Ways] = field(default_factory=dict)
    _wanted_ways: dict[tuple[str, str, tuple[Assignment, ...]], _Ways] = field(default_factory=dict)

    def ways_of(self, release: str, row: Row) -> Iterator[Way]:
        """The ways that reach the wanted class, best class first, then fewest deviations."""
        key = (release, row.key, self.contexts.get((release, row.key), ()))
        if key not in self._wanted_ways:
            self._wanted_ways[key] = _Ways(self._find_wanted(release, row))
        return iter(self._wanted_ways[key])

    def _find_wanted(self, release: str, row: Row) -> Iterator[Way]:
        bench = self.bench(release, row)
        if bench is None or not can_reach(bench, row.wanted):
            return
        for way in self._sorted(release, row):
            if at_least_as_good(way.outcome.verdict, row.wanted):
                yield way
            else:
                self.ledger.reject(
                    f"{release} {row.key} {_words(way)}",
                    ClassTooLow(found=way.outcome.verdict, wanted=row.wanted),
                )

    def _sorted(self, release: str, row: Row) -> Iterator[Way]:
        contexts = self.contexts.get((release, row.key), ())
        key = (release, row.key, contexts)
        if key not in self._sorted_ways:
            self._sorted_ways[key] = _Ways(self._sort(release, row, contexts))
        return iter(self._sorted_ways[key])

    def _sort(self, release: str, row: Row, contexts: tuple[Assignment, ...]) -> Iterator[Way]:
        bench = self.bench(release, row)
        waiting = []
        for way in ways(bench, contexts) if bench is not None else ():
            # A way in the class that the scheme wants cannot be beaten by one with more deviations.
            if way.outcome.verdict == row.ask.scheme.wants:
                yield way
            else:
                waiting.append(way)
        yield from sorted(waiting, key=lambda way: (rank(way.outcome.verdict), len(way.assignment)))

    def all_ways(self, release: str, row: Row) -> tuple[Way, ...]:
        """Every way of the row under the release that is worth taking, best class first.

        A deviation that only reaches a broken, unsupported or unknown outcome is none: the plain install stands for
        what is not known of it.
        """
        return tuple(way for way in self._sorted(release, row) if way.outcome.verdict in CLASSES or not way.assignment)

    def best_way(self, release: str, row: Row) -> Way | None:
        """The best way there is, whatever its class; None where no ladder serves the row or nothing is certain."""
        found = self.all_ways(release, row)
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
        backtrack_causes: Sequence[Any],
    ) -> tuple[int, bool, str]:
        # What was in the last conflict goes first, or every row between the two is tried in all its ways.
        clashing = any(
            identifier in {cause.requirement.name, cause.parent.name if cause.parent is not None else ""}
            for cause in backtrack_causes
        )
        return ({"engine": 0, "row": 1}.get(identifier.partition(":")[0], 2), not clashing, identifier)

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
            way: Way = candidate.value[1]
            return [_Requirement(f"fact:{key}", value) for key, value in (*way.assignment, *way.pins)]
        return []


def _words(way: Way) -> str:
    deviations = " ".join(f"{key}={value}" for key, value in way.assignment) or "(plain install)"
    return deviations + "".join(f" {key}={value} (kept)" for key, value in way.pins)


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
        core.ledger.reject(f"{release} {row.key} {_words(way)}", OutcomeChanges(other=other))
        found = True
    return found


def _finish(core: Core, release: str, chosen: Mapping[str, Way], merged: Assignment) -> Resolution:
    rows, groups = [], [settings_of(merged)]
    for row in core.rows:
        way = chosen[row.key]
        bench = core.bench(release, row)
        if bench is not None:
            groups.append(settings_of(host_variables(bench, merged, way.outcome)))
        core.ledger.accept(f"{release} {row.key} {_words(way)}")
        rows.append(ResolvedRow(row=row, way=way))
    core.ledger.accept(f"engine {release}")
    settings, conflicts = merge_settings(groups)
    if conflicts:
        raise AssertionError(f"two values for {conflicts[0].key} after the solver joined them")
    return Resolution(release=release, rows=tuple(rows), assignment=merged, settings=settings)


def best_alone(core: Core) -> tuple[tuple[str, Row, Way | None], ...]:
    """For each release and row, the best way there is of that row alone, whatever its class."""
    return tuple((release, row, core.best_way(release, row)) for release in core.releases for row in core.rows)


def _impossible(core: Core) -> Impossible:
    # Only whether a row has a wanted way is asked here: the best of each would walk every way of every release.
    for release in core.releases:
        for row in core.rows:
            if next(core.ways_of(release, row), None) is None:
                core.ledger.reject(f"engine {release}", NoWay(row=row.key, wanted=row.wanted))
    clashes: Iterable[SettingClash] = (
        reason
        for decision in core.ledger.decisions()
        for reason in decision.reasons
        if isinstance(reason, SettingClash)
    )
    return Impossible(clashes=tuple(clashes))


def best_together(core: Core, release: str) -> dict[str, tuple[Way | None, Assignment]]:
    """What each row comes to in one environment of a release, where not all can be had as wanted.

    Where all rows can have the best class that each has alone, they do. Else rows that can be had as wanted come
    first, and each takes its best way that stands beside those taken before. Keyed by the row, with all deviations
    of the environment; None where no way of a row stands there.
    """
    alone = {row.key: Core(releases=(release,), rows=(row,), bench=core.bench) for row in core.rows}
    best = {row.key: alone[row.key].best_way(release, row) for row in core.rows}

    def reached(row: Row) -> str:
        way = best[row.key]
        return way.outcome.verdict if way is not None else "unknown"

    lowered = [
        row if at_least_as_good(reached(row), row.wanted) else replace(row, wanted=reached(row))
        for row in core.rows
        if reached(row) in CLASSES
    ]
    solved = solve(Core(releases=(release,), rows=lowered, bench=core.bench)) if lowered else None
    chosen: dict[str, Way] = {}
    merged: Assignment = ()
    if isinstance(solved, Resolution):
        chosen = {item.row.key: item.way for item in solved.rows}
        merged = solved.assignment
    for row in sorted(core.rows, key=lambda row: (not at_least_as_good(reached(row), row.wanted), row.key)):
        if row.key in chosen:
            continue
        for way in sorted(alone[row.key].all_ways(release, row), key=lambda way: rank(way.outcome.verdict)):
            together = _join(merged, way.assignment)
            if together is not None and all(
                _keeps(core, release, other, together) for other in {**chosen, row.key: way}.items()
            ):
                chosen[row.key] = way
                merged = together
                break
    return {row.key: (chosen.get(row.key), merged) for row in core.rows}


def _join(one: Assignment, other: Assignment) -> Assignment | None:
    joined = dict(one)
    for key, value in other:
        if joined.setdefault(key, value) != value:
            return None
    return tuple(sorted(joined.items(), key=lambda pair: pair[0]))


def _keeps(core: Core, release: str, taken: tuple[str, Way], together: Assignment) -> bool:
    key, way = taken
    bench = core.bench(release, next(row for row in core.rows if row.key == key))
    return bench is not None and holds_in(bench, way.assignment, together, way.outcome)
