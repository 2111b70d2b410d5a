"""Judging under unknowns: the set of outcomes over all completions of the unknown facts.

A question is a function of an ``answer`` callable that gives a comparison's value or None. Where it raises
:class:`~qresolve.gates.Undecided`, the fact that it names is tried with one representative of each region that the
comparisons on it can tell apart. So learning a fact can only narrow the set: every branch is one completion.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import TYPE_CHECKING, Generic, TypeVar

from packaging.version import Version

from qresolve.facts import ABSENT, FactKind, FactTable, Value
from qresolve.gates import Compare, Undecided, holds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Answer = "Callable[[Compare], bool | None]"
_Outcome = TypeVar("_Outcome")


@dataclass(frozen=True, slots=True)
class Completion(Generic[_Outcome]):
    """One outcome with the assumed values that lead to it; ``members`` are (set fact, member) pairs."""

    outcome: _Outcome
    assumed: tuple[tuple[str, Value], ...]
    members: tuple[tuple[str, str, bool], ...]


class TooManyCompletions(Exception):
    """A question asks more unknown facts than can be walked."""


class Thresholds:
    """For every fact, the constants that gates compare it with; gathered once per engine."""

    def __init__(self, compares: Iterable[Compare]) -> None:
        self._constants: dict[str, set[tuple[str, Value | tuple[Value, ...]]]] = {}
        for compare in compares:
            self._constants.setdefault(compare.fact, set()).add((compare.operator, compare.operand))

    def representatives(self, kind: FactKind, key: str) -> tuple[Value, ...]:
        """One value of each region of ``key`` that some comparison can tell apart."""
        constants: set[Value] = set()
        for _, operand in self._constants.get(key, set()):
            constants.update(operand if isinstance(operand, tuple) else (operand,))
        if kind.choices:
            return kind.choices
        match kind.type:
            case "bool":
                return (False, True)
            case "int":
                return self._numbers(key)
            case "version":
                versions = sorted(
                    {str(item) for item in constants if isinstance(item, str) and item != ABSENT}, key=Version
                )
                regions = ["0", *(value for text in versions for value in (text, _just_above(text)))]
                return (*((ABSENT,) if kind.may_be_absent else ()), *regions)
            case "text":
                return (*sorted(str(item) for item in constants if isinstance(item, str)), "<another>")
            case "set":
                raise AssertionError(f"`{key}` is a set: it is completed member by member")

    def _numbers(self, key: str) -> tuple[int, ...]:
        """One natural number of each region between constants for each pattern of divisibility."""
        ordered: set[int] = set()
        moduli: set[int] = set()
        for operator, operand in self._constants.get(key, set()):
            listed = operand if isinstance(operand, tuple) else (operand,)
            found = {item for item in listed if isinstance(item, int) and not isinstance(item, bool)}
            (moduli if operator == "multiple-of" else ordered).update(found)
        numbers = {number for number in ordered if number >= 0}
        for start in (0, *(number + 1 for number in numbers)):
            patterns: dict[tuple[bool, ...], int] = {}
            for number in range(start, start + lcm(*moduli)):
                patterns.setdefault(tuple(number % modulus == 0 for modulus in sorted(moduli)), number)
            numbers |= set(patterns.values())
        return tuple(sorted(numbers))


def _just_above(text: str) -> str:
    """A version above ``text`` and below every other that gates name: the likelier-looking one where it parses."""
    version = Version(text)
    plain = version.pre is None and version.post is None and version.dev is None
    return f"{version.public}.0.0.1" if plain else f"{version.public}+0"


def answer_from(
    table: FactTable,
    *,
    assumed: Mapping[str, Value] | None = None,
    members: Mapping[tuple[str, str], bool] | None = None,
    trace: set[str] | None = None,
) -> Callable[[Compare], bool | None]:
    """The ``answer`` of a table: each comparison's value, None where the fact is unknown."""

    def answer(compare: Compare) -> bool | None:
        if trace is not None:
            trace.add(compare.fact)
        if assumed and compare.fact in assumed:
            value: Value | None = assumed[compare.fact]
        else:
            value = table.get(compare.fact).value
        if value is None:
            if compare.operator == "has" and members is not None:
                return members.get((compare.fact, str(compare.operand)))
            return None
        return holds(compare, value, table.vocabulary[compare.fact].type)

    return answer


def possible(
    question: Callable[[Callable[[Compare], bool | None]], _Outcome],
    table: FactTable,
    thresholds: Thresholds,
    *,
    limit: int = 4096,
) -> tuple[Completion[_Outcome], ...]:
    """Every outcome of ``question`` over all completions of the unknown facts, each once, in a fixed order.

    Raises:
        TooManyCompletions: more than ``limit`` completions; then the question asks far too many unknown facts.

    """
    found: dict[_Outcome, Completion[_Outcome]] = {}
    pending: list[tuple[dict[str, Value], dict[tuple[str, str], bool]]] = [({}, {})]
    walked = 0
    while pending:
        assumed, members = pending.pop()
        walked += 1
        if walked > limit:
            raise TooManyCompletions(f"more than {limit} completions of the unknown facts")
        try:
            outcome = question(answer_from(table, assumed=assumed, members=members))
        except Undecided as undecided:
            key = undecided.key
            if undecided.member is not None:
                pending += [(assumed, {**members, (key, undecided.member): value}) for value in (True, False)]
            else:
                values = thresholds.representatives(table.vocabulary[key], key)
                pending += [({**assumed, key: value}, members) for value in reversed(values)]
            continue
        if outcome not in found:
            found[outcome] = Completion(
                outcome,
                tuple(sorted(assumed.items())),
                tuple(sorted((key, member, value) for (key, member), value in members.items())),
            )
    return tuple(found.values())
