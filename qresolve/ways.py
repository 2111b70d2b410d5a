"""Ways to run a row: assignments of what the environment may choose, each with what the selector then picks. Pure.

A way is a set of deviations from the plain install (a backend named in the configuration, a variable set, a package
added). Ways are tried from the fewest deviations up, so the first that reaches a class needs the fewest settings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations, product
from typing import TYPE_CHECKING

from qresolve.classes import at_least_as_good
from qresolve.completions import Completion, TooManyCompletions, answer_from, possible
from qresolve.facts import ABSENT, UNSET, FactTable, Scope, Value
from qresolve.gates import kleene
from qresolve.selector import UNKNOWN_CLASS, Outcome, select
from qresolve.setting import Setting
from qresolve.situation import compares_of, offered_backends, thresholds_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from qresolve.completions import Thresholds
    from qresolve.knowledge.records import Engine, Ladder

MOST_DEVIATIONS = 4
"""Ways with more deviations than this are not tried: no native route of any record needs them."""

Assignment = tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A fact that the environment may choose: the value of a plain install and the others."""

    key: str
    plain: Value
    others: tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """An assignment and the one outcome it has for every value of what is not known.

    ``pins`` are facts that must keep their plain value beside it, because another row's setting would change the
    outcome. They are no deviations and become no settings: the solver only sees to it that no row changes them.
    """

    assignment: Assignment
    outcome: Outcome
    pins: Assignment = ()

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The settings among the deviations."""
        return settings_of(self.assignment)


def settings_of(assignment: Assignment) -> tuple[Setting, ...]:
    """The deviations that are settings, sorted; added packages are not settings."""
    found = []
    for key, value in assignment:
        if key.startswith("config.") and not isinstance(value, frozenset):
            found.append(Setting(path=key.removeprefix("config."), value=value))
        elif key.startswith("env."):
            text = None if value == UNSET else str(value)
            found.append(Setting(env=key.removeprefix("env."), value=text))
    return tuple(sorted(found, key=lambda setting: setting.sort_key))


@dataclass(frozen=True, slots=True)
class Bench:
    """One row laid out for trying: its ladder and facts; outcomes under an assignment are remembered."""

    engine: Engine
    ladder: Ladder
    table: FactTable
    assumed: Mapping[str, Value]
    thresholds: Thresholds
    _seen: dict[Assignment, tuple[Completion[Outcome], ...]] = field(default_factory=dict)

    def outcomes(self, assignment: Assignment = ()) -> tuple[Completion[Outcome], ...]:
        """All outcomes of the selector under an assignment, over all values of what is not known."""
        if assignment not in self._seen:
            under = self.table.with_values(dict(assignment), "chosen") if assignment else self.table
            try:
                self._seen[assignment] = self.outcomes_on(under)
            except TooManyCompletions as error:
                lost = Outcome(verdict=UNKNOWN_CLASS, route=None, why=str(error))
                self._seen[assignment] = (Completion(lost, (), ()),)
        return self._seen[assignment]

    def outcomes_on(self, table: FactTable) -> tuple[Completion[Outcome], ...]:
        """All outcomes of the selector on other facts."""
        return possible(lambda answer: select(self.ladder, self.engine.routes, answer), table, self.thresholds)

    def single(self, assignment: Assignment) -> Outcome | None:
        """The outcome under an assignment where there is only one."""
        found = self.outcomes(assignment)
        return found[0].outcome if len(found) == 1 else None


def bench_of(engine: Engine, ladder: Ladder, table: FactTable, assumed: Mapping[str, Value]) -> Bench:
    """Lay out a row."""
    return Bench(engine, ladder, table, assumed, thresholds_of(engine, ladder))


def choices_of(bench: Bench) -> tuple[Choice, ...]:
    """What the environment may choose on this ladder; what was assumed is no choice any more."""
    engine, ladder = bench.engine, bench.ladder
    found: dict[str, Choice] = {}
    provisions = {provision.fact: provision.value for provision in engine.provisions}
    for compare in compares_of(engine, ladder):
        key = compare.fact
        if key in found or key in bench.assumed:
            continue
        kind = engine.vocabulary[key]
        if key in provisions and bench.table.get(key).value == ABSENT:
            found[key] = Choice(key=key, plain=ABSENT, others=(provisions[key],))
        elif kind.scope is Scope.ENVIRONMENT and kind.choices:
            plain = bench.table.get(key).value or kind.choices[0]
            found[key] = Choice(key=key, plain=plain, others=tuple(item for item in kind.choices if item != plain))
    for explicit in ladder.explicit:
        if explicit.offer and explicit.fact not in bench.assumed:
            others = offered_backends(engine, ladder)
            found[explicit.fact] = Choice(key=explicit.fact, plain=explicit.auto[0], others=others)
    return tuple(sorted(found.values(), key=lambda choice: choice.key))


def assignments(choices: tuple[Choice, ...]) -> Iterator[Assignment]:
    """Every assignment, fewest deviations first, in a fixed order."""
    for count in range(min(len(choices), MOST_DEVIATIONS) + 1):
        for chosen in combinations(choices, count):
            for values in product(*(choice.others for choice in chosen)):
                yield tuple(zip((choice.key for choice in chosen), values, strict=True))


def can_reach(bench: Bench, wanted: str) -> bool:
    """Whether some route could have the wanted class or a better one, whatever the environment chooses.

    False is certain: for every route, a gate fails or every class it can have is lower, on facts that no choice
    changes. It saves walking the ways of a row that cannot hold, which is most of the work for an impossible request.
    """
    free = bench.table.with_values({choice.key: None for choice in choices_of(bench)}, "the environment may choose it")
    answer = answer_from(free)
    for route in bench.engine.routes.values():
        if route.id not in bench.ladder.order and all(force.route != route.id for force in bench.ladder.forces):
            continue
        if any(kleene(gate.when, answer) is False for gate in (*route.select, *route.execute)):
            continue
        if any(
            at_least_as_good(variant.class_, wanted) and kleene(variant.when, answer) is not False
            for variant in route.classes
        ):
            return True
    return False


def ways(bench: Bench, contexts: tuple[Assignment, ...] = ()) -> Iterator[Way]:
    """The ways of a row, lazily, fewest deviations first.

    ``contexts`` are assignments that other rows need. A way is only given when its outcome is one and the same for
    every value of the unknown facts and no deviation can be left out without losing that outcome, alone or beside a
    context. Beside each context it keeps its outcome, contradicts it, or pins what the context may not change.
    """
    choices = choices_of(bench)
    plain = {choice.key: choice.plain for choice in choices}
    for assignment in assignments(choices):
        outcome = bench.single(assignment)
        if outcome is None:
            continue
        upset = _upset(bench, assignment, contexts, outcome)
        if any(_as_good(bench, rest, contexts, outcome, upset) for rest in _each_dropped(assignment)):
            continue
        for pins in _pins(plain, dict(assignment), upset):
            yield Way(assignment=assignment, outcome=outcome, pins=pins)


def _each_dropped(assignment: Assignment) -> Iterator[Assignment]:
    for position in range(len(assignment)):
        yield assignment[:position] + assignment[position + 1 :]


def _upset(
    bench: Bench, assignment: Assignment, contexts: tuple[Assignment, ...], outcome: Outcome
) -> tuple[Assignment, ...]:
    """The contexts beside which the outcome is another."""
    return tuple(context for context in contexts if not holds_in(bench, assignment, context, outcome))


def _as_good(
    bench: Bench, rest: Assignment, contexts: tuple[Assignment, ...], outcome: Outcome, upset: tuple[Assignment, ...]
) -> bool:
    return bench.single(rest) == outcome and set(_upset(bench, rest, contexts, outcome)) <= set(upset)


def _pins(
    plain: Mapping[str, Value], own: Mapping[str, Value], upset: tuple[Assignment, ...]
) -> tuple[Assignment, ...]:
    """The sets of facts to keep plain so that no upsetting context can stand beside the way; fewest first."""
    keys = [[key for key, _ in context if key in plain and key not in own] for context in upset]
    found = {tuple((key, plain[key]) for key in sorted(set(picked))) for picked in product(*keys)}
    return tuple(sorted(found, key=lambda pins: (len(pins), [key for key, _ in pins])))


def holds_in(bench: Bench, assignment: Assignment, context: Assignment, outcome: Outcome) -> bool:
    """Whether the outcome stays the same beside what other rows need.

    Where the two contradict each other it holds trivially: the solver sees that they never stand together.
    """
    own = dict(assignment)
    if any(own.get(key, value) != value for key, value in context):
        return True
    merged = tuple(sorted({**own, **dict(context)}.items(), key=lambda item: item[0]))
    return bench.single(merged) == outcome


def host_variables(bench: Bench, assignment: Assignment, outcome: Outcome) -> Assignment:
    """Variables of the host that could change the outcome, with the text that a setting fixes each by.

    Each engine variable that the ladder reads is freed (its value becomes unknown); those on which some other
    outcome hangs are fixed, until the outcome is one again with all others free.
    """
    vocabulary = bench.engine.vocabulary
    variables = sorted(
        {
            compare.fact
            for compare in compares_of(bench.engine, bench.ladder)
            if vocabulary[compare.fact].scope is Scope.HOST and vocabulary[compare.fact].fix is not None
        }
        - {key for key, _ in assignment}
        - set(bench.assumed)
    )
    under = bench.table.with_values(dict(assignment), "chosen")
    # One at a time first: most outcomes hang on one variable, and freeing all at once walks their product.
    fixed = {key for key in variables if _guilty(bench, under, (key,), outcome)}
    while True:
        free = tuple(key for key in variables if key not in fixed)
        try:
            guilty = _guilty(bench, under, free, outcome)
        except TooManyCompletions:
            guilty = set(free)  # fixing a variable that would not have mattered is safe
        if not guilty:
            break
        fixed |= guilty
    return tuple((key, vocabulary[key].fix or "") for key in sorted(fixed))


def _guilty(bench: Bench, table: FactTable, free: tuple[str, ...], outcome: Outcome) -> set[str]:
    """Those of the freed variables that lead to another outcome."""
    found = bench.outcomes_on(table.with_values(dict.fromkeys(free), "the host may set it"))
    return {
        key
        for completion in found
        if completion.outcome != outcome
        for key in (*(key for key, _ in completion.assumed), *(key for key, _, held in completion.members if held))
        if key in free
    }
