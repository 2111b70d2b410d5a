"""Which records a decision used, and their digests: what a lock's data digest covers."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from qresolve.errors import DataInvalid
from qresolve.gates import All, AnyOf, Compare, Expression, Named, Not, leaves
from qresolve.knowledge.load import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qresolve.facts import FactKind
    from qresolve.knowledge.records import Engine, Ladder


def conditions_of(expression: Expression) -> Iterable[str]:
    """Ids of all conditions that an expression uses, nested ones too."""
    match expression:
        case Named():
            yield expression.id
            yield from conditions_of(expression.expression)
        case Not():
            yield from conditions_of(expression.part)
        case All() | AnyOf():
            for part in expression.parts:
                yield from conditions_of(part)
        case Compare():
            return


def records_of_ladder(engine: Engine, ladder: Ladder) -> dict[str, str]:
    """Digests of the records that a decision on this ladder used: itself, its routes, and their conditions."""
    keys = {f"ladder:{ladder.id}"}
    expressions: list[Expression] = [move.when for move in ladder.moves] + [force.when for force in ladder.forces]
    for identifier in (*ladder.order, *(force.route for force in ladder.forces)):
        route = engine.routes[identifier]
        keys.add(f"route:{identifier}")
        expressions += [gate.when for gate in (*route.select, *route.execute)]
        expressions += [variant.when for variant in route.classes]
    for expression in expressions:
        keys |= {f"condition:{identifier}" for identifier in conditions_of(expression)}
    missing = keys - set(engine.digests)
    if missing:
        raise DataInvalid(f"no digest of {', '.join(sorted(missing))}")
    facts = {leaf.fact for expression in expressions for leaf in leaves(expression)}
    facts |= {explicit.fact for explicit in ladder.explicit} | ({ladder.disabled_by} if ladder.disabled_by else set())
    digests = {key: engine.digests[key] for key in keys}
    digests |= {f"fact:{kind.key}": digest_of_kind(kind) for kind in (engine.vocabulary[fact] for fact in facts)}
    return dict(sorted(digests.items()))


def digest_of_kind(kind: FactKind) -> str:
    """The digest of a word of the vocabulary; sets in a fixed order, so that the hash seed does not count."""
    values = {field.name: getattr(kind, field.name) for field in fields(kind)}
    return digest_of({key: sorted(value) if isinstance(value, frozenset) else value for key, value in values.items()})
