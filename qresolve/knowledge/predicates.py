"""Predicates that engines compile into their libraries: ``constraints/predicates.toml`` as records."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from qresolve.data import data_folder
from qresolve.gates import All, AnyOf, Named, Not
from qresolve.strict import read_toml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qresolve.gates import Expression
    from qresolve.strict import Table

_FILE = "predicates.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPredicate:
    """An operation that a library answers for a compute capability, and the condition that stands for it here.

    ``operation`` is ``NAMESPACE.NAME`` in ``torch.ops``.
    """

    engine: str
    condition: str
    operation: str
    where: str


def parse_predicates(table: Table) -> tuple[CompiledPredicate, ...]:
    """Check the records of ``predicates.toml``.

    Raises:
        DataInvalid: a key is missing or unknown, or a condition stands twice.
    """
    table.check_schema(1)
    table.day("checked")
    found: dict[tuple[str, str], CompiledPredicate] = {}
    for row in table.tables("predicate"):
        one = CompiledPredicate(
            engine=row.text("engine"),
            condition=row.text("condition"),
            operation=row.text("operation"),
            where=row.text("where"),
        )
        if (one.engine, one.condition) in found:
            raise row.fail("condition", "stands twice")
        row.done()
        found[one.engine, one.condition] = one
    table.done()
    return tuple(found.values())


@cache
def read_predicates() -> tuple[CompiledPredicate, ...]:
    """The predicates that are shipped.

    Raises:
        DataInvalid: the file is missing or wrong.
    """
    return parse_predicates(read_toml(data_folder("constraints") / _FILE, name=f"constraints/{_FILE}"))


def conditions_in(expression: Expression) -> Iterator[str]:
    """The ids of every condition that an expression names, directly or through others."""
    match expression:
        case Named():
            yield expression.id
            yield from conditions_in(expression.expression)
        case Not():
            yield from conditions_in(expression.part)
        case All() | AnyOf():
            for part in expression.parts:
                yield from conditions_in(part)
        case _:
            return
