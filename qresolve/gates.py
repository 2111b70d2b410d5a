"""Gate expressions: a closed condition over facts (all, any, not; comparisons) in three-valued logic.

An expression is a tree of frozen nodes. :func:`kleene` evaluates it to True, False or None (unknown).
:func:`decide` evaluates it for facts that answer every question it asks, and raises :class:`Undecided` naming
the first fact that is not known, which is how :mod:`qresolve.completions` walks all completions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, assert_never

from packaging.version import InvalidVersion, Version

from qresolve.facts import ABSENT, FactType, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from qresolve.strict import Table

Operator = Literal["is", "in", "at-least", "at-most", "above", "below", "has", "multiple-of", "present"]
OPERATORS: tuple[Operator, ...] = (
    "is", "in", "at-least", "at-most", "above", "below", "has", "multiple-of", "present",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Compare:
    """One comparison of one fact with a constant. Source of the meaning of each operator: docs/gates.md."""

    fact: str
    operator: Operator
    operand: Any


@dataclass(frozen=True, slots=True)
class All:
    """True when every part is."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """True when one part is."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """True when the part is false."""

    part: Expression


@dataclass(frozen=True, slots=True)
class Named:
    """A condition with an id, used by several gates; ``expression`` is filled in by the loader."""

    id: str
    expression: Expression


Expression = Compare | All | AnyOf | Not | Named
ALWAYS = All(())


class Undecided(Exception):
    """The fact ``key`` decides and is not known; for a set, whether it holds ``member``."""

    def __init__(self, key: str, member: str | None = None) -> None:
        super().__init__(key)
        self.key = key
        self.member = member


@lru_cache(maxsize=4096)
def _version(text: str) -> Version:
    return Version(text)


def holds(compare: Compare, value: Value, kind: FactType) -> bool:
    """Whether ``value`` satisfies the comparison. An absent package satisfies no version comparison."""
    operand = compare.operand
    if compare.operator == "present":
        return bool((value != ABSENT) is bool(operand))
    if value == ABSENT and kind == "version":
        named = operand if compare.operator == "in" else (operand,)
        return compare.operator in {"is", "in"} and ABSENT in named
    match compare.operator:
        case "has":
            return isinstance(value, frozenset) and operand in value
        case "multiple-of":
            return isinstance(value, int) and value % int(operand) == 0
        case "is":
            if kind == "version" and operand != ABSENT:
                return _version(str(value)) == _version(str(operand))
            return bool(value == operand)
        case "in":
            return any(holds(Compare(compare.fact, "is", item), value, kind) for item in operand)
        case "at-least" | "at-most" | "above" | "below":
            left: Any = _version(str(value)) if kind == "version" else value
            right: Any = _version(str(operand)) if kind == "version" else operand
            if compare.operator == "at-least":
                return bool(left >= right)
            if compare.operator == "at-most":
                return bool(left <= right)
            return bool(left > right) if compare.operator == "above" else bool(left < right)
        case _:
            assert_never(compare.operator)


def kleene(expression: Expression, answer: Callable[[Compare], bool | None]) -> bool | None:
    """Three-valued value of the expression; ``answer`` gives each comparison's (None: unknown)."""
    match expression:
        case Compare():
            return answer(expression)
        case Named():
            return kleene(expression.expression, answer)
        case Not():
            inner = kleene(expression.part, answer)
            return None if inner is None else not inner
        case All() | AnyOf():
            stops_at = isinstance(expression, AnyOf)
            unknown = False
            for part in expression.parts:
                value = kleene(part, answer)
                if value is stops_at:
                    return stops_at
                unknown = unknown or value is None
            return None if unknown else not stops_at
        case _:
            assert_never(expression)


def decide(expression: Expression, answer: Callable[[Compare], bool | None]) -> bool:
    """Two-valued value of the expression.

    Raises:
        Undecided: the value depends on a comparison that ``answer`` cannot give. Only facts that still decide
            are named: an ``all`` with a false part never asks about its unknown ones.

    """
    value = kleene(expression, answer)
    if value is not None:
        return value
    compare = next(leaf for leaf in undecided_leaves(expression, answer))
    raise Undecided(compare.fact, str(compare.operand) if compare.operator == "has" else None)


def undecided_leaves(expression: Expression, answer: Callable[[Compare], bool | None]) -> Iterator[Compare]:
    """The unknown comparisons that the unknown value hangs on, in reading order."""
    match expression:
        case Compare():
            if answer(expression) is None:
                yield expression
        case Named():
            yield from undecided_leaves(expression.expression, answer)
        case Not():
            yield from undecided_leaves(expression.part, answer)
        case All() | AnyOf():
            for part in expression.parts:
                if kleene(part, answer) is None:
                    yield from undecided_leaves(part, answer)
        case _:
            assert_never(expression)


def leaves(expression: Expression) -> Iterator[Compare]:
    """Every comparison in the expression."""
    match expression:
        case Compare():
            yield expression
        case Named():
            yield from leaves(expression.expression)
        case Not():
            yield from leaves(expression.part)
        case All() | AnyOf():
            for part in expression.parts:
                yield from leaves(part)
        case _:
            assert_never(expression)


def describe(expression: Expression) -> str:
    """The expression in words, for people: ``gpu.sm >= 120 and flashinfer is usable``."""
    match expression:
        case Compare():
            return _describe_compare(expression)
        case Named():
            return expression.id
        case Not():
            inner = describe(expression.part)
            return f"not ({inner})" if isinstance(expression.part, All | AnyOf) else f"not {inner}"
        case All():
            return " and ".join(_bracket(part) for part in expression.parts) or "always"
        case AnyOf():
            return " or ".join(_bracket(part) for part in expression.parts) or "never"
        case _:
            assert_never(expression)


def _bracket(part: Expression) -> str:
    text = describe(part)
    return f"({text})" if isinstance(part, All | AnyOf) and len(part.parts) > 1 else text


_SIGNS = {"is": "=", "at-least": ">=", "at-most": "<=", "above": ">", "below": "<"}


def _describe_compare(compare: Compare) -> str:
    if compare.operator == "present":
        return f"{compare.fact} {'present' if compare.operand else 'absent'}"
    if compare.operator == "in":
        return f"{compare.fact} in {{{', '.join(map(str, compare.operand))}}}"
    if compare.operator == "has":
        return f"{compare.fact} has {compare.operand}"
    if compare.operator == "multiple-of":
        return f"{compare.fact} is a multiple of {compare.operand}"
    if isinstance(compare.operand, bool) and compare.operator == "is":
        return compare.fact if compare.operand else f"not {compare.fact}"
    return f"{compare.fact} {_SIGNS[compare.operator]} {compare.operand}"


class ExpressionReader:
    """Reads expressions out of data files; conditions are looked up by id and may name each other."""

    def __init__(self, types: Callable[[str], FactType | None]) -> None:
        self._types = types
        self._pending: dict[str, Table] = {}
        self._conditions: dict[str, Named] = {}
        self._reading: list[str] = []

    def declare(self, identifier: str, table: Table) -> None:
        """Make a condition known; it is read when something first uses it."""
        if identifier in self._pending or identifier in self._conditions:
            raise table.fail("id", f"the condition `{identifier}` is declared twice")
        self._pending[identifier] = table

    def condition(self, identifier: str, asked_by: Table, key: str) -> Named:
        """The condition with that id.

        Raises:
            DataInvalid: dangling, or it names itself in a circle.

        """
        if identifier in self._conditions:
            return self._conditions[identifier]
        table = self._pending.get(identifier)
        if table is None:
            raise asked_by.fail(key, f"no condition has the id `{identifier}`")
        if identifier in self._reading:
            raise asked_by.fail(key, f"the condition `{identifier}` names itself: {' > '.join(self._reading)}")
        self._reading.append(identifier)
        named = Named(identifier, self.read(table, "when"))
        self._reading.pop()
        self._conditions[identifier] = named
        return named

    def finish(self) -> Mapping[str, Named]:
        """Read every condition that is left, so that errors in unused ones are found too."""
        for identifier, table in list(self._pending.items()):
            self.condition(identifier, table, "id")
        return dict(self._conditions)

    def read(self, table: Table, key: str) -> Expression:
        """The expression at ``key``, which must be there."""
        return self._node(table.table(key))

    def read_optional(self, table: Table, key: str) -> Expression:
        """The expression at ``key``; always true where it is absent."""
        return self.read(table, key) if key in table else ALWAYS

    def _node(self, node: Table) -> Expression:
        heads = [key for key in ("all", "any", "not", "condition", "fact", "image") if key in node]
        if len(heads) != 1:
            raise node.fail("", "an expression has exactly one of all, any, not, condition, fact, image")
        found: Expression
        match heads[0]:
            case "all":
                found = All(tuple(self._node(part) for part in node.tables("all")))
            case "any":
                found = AnyOf(tuple(self._node(part) for part in node.tables("any")))
            case "not":
                found = Not(self._node(node.table("not")))
            case "condition":
                found = self.condition(node.text("condition"), node, "condition")
            case "image":
                found = Compare(f"image.{node.text('image')}", "is", "sass")
            case _:
                found = self._compare(node)
        node.done()
        return found

    def _compare(self, node: Table) -> Compare:
        fact = node.text("fact")
        kind = self._types(fact)
        if kind is None:
            raise node.fail("fact", f"no fact is called `{fact}`")
        used = [operator for operator in OPERATORS if operator in node]
        if len(used) != 1:
            raise node.fail("", f"exactly one comparison of {', '.join(OPERATORS)}")
        operator = used[0]
        operand = node.raw(operator)
        if operator == "in":
            if not isinstance(operand, list) or not operand:
                raise node.fail(operator, "must be a list of values")
            operand = tuple(operand)
        _check_operand(node, operator, operand, kind)
        return Compare(fact, operator, operand)


def _check_operand(node: Table, operator: Operator, operand: object, kind: FactType) -> None:
    expected: type = {"bool": bool, "int": int, "version": str, "text": str, "set": str}[kind]
    if operator == "present":
        expected = bool
    if operator == "multiple-of":
        expected = int
    for item in operand if isinstance(operand, tuple) else (operand,):
        if not isinstance(item, expected) or (expected is int and isinstance(item, bool)):
            raise node.fail(operator, f"must be {expected.__name__} for a {kind} fact, not {item!r}")
        if kind == "version" and expected is str and not _is_version_or_absent(str(item)):
            raise node.fail(operator, f"not a version: {item!r}")
    if operator == "multiple-of" and (kind != "int" or operand == 0):
        raise node.fail(operator, f"only whole numbers are multiples, and of another number than 0; this is {kind}")
    # Completions of an unknown set are walked by its members alone, so no other question may be asked of one.
    if kind == "set" and operator != "has":
        raise node.fail(operator, "a set is only asked whether it has a member")
    if operator == "has" and kind != "set":
        raise node.fail(operator, f"only a set has members, and this fact is {kind}")
    if operator in {"at-least", "at-most", "above", "below"} and kind not in {"int", "version"}:
        raise node.fail(operator, f"only numbers and versions have an order, and this fact is {kind}")


def _is_version_or_absent(text: str) -> bool:
    try:
        return text == ABSENT or bool(Version(text))
    except InvalidVersion:
        return False
