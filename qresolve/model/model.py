"""What a checkpoint says, as a question: the schemes and roles it has, each with its layers, and workload facts. Pure.

Made by :mod:`qresolve.model.parse`. What the config does not say is not guessed: those facts keep the reference
workload's value and are named as assumed. A combination of keys that no record speaks of is a :class:`Problem`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qresolve.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qresolve.facts import Value
    from qresolve.knowledge.records import Scheme, Workload

MOST_RANKS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Layers of a part that have the same facts; ``facts`` are those of the workload and scheme that differ."""

    name: str
    facts: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One scheme in one role with its layers, and the keys that say so. ``unknown`` says why it cannot be judged."""

    scheme: Scheme
    role: str
    variants: tuple[Variant, ...]
    said: str
    unknown: str = ""

    @property
    def key(self) -> str:
        """``nvfp4@w4a4:moe``."""
        return self.scheme.key(self.role)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Layers whose keys no record speaks of."""

    role: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What a checkpoint says. ``facts`` are of the workload; ``assumed`` those that it does not say, by fact.

    ``given`` is the path for hints, ``kind`` the model type, ``roles`` the facts of a role for rows of schemes that
    the checkpoint does not have. ``records`` are the digests of the records that were used.
    """

    given: str
    kind: str
    facts: Mapping[str, Value]
    assumed: Mapping[str, str]
    parts: tuple[Part, ...]
    problems: tuple[Problem, ...]
    latent_attention: bool
    roles: Mapping[str, tuple[tuple[str, Value], ...]]
    records: Mapping[str, str]

    def part(self, key: str) -> Part | None:
        """The part of ``format@scheme:role``."""
        return next((part for part in self.parts if part.key == key), None)

    def variants(self, key: str) -> tuple[str, ...]:
        """The names of the variants of a part; one empty name where it has none, or is no part of the model."""
        part = self.part(key)
        return tuple(item.name for item in part.variants) if part is not None else ("",)

    def facts_for(self, key: str, variant: str) -> Mapping[str, Value]:
        """The facts of one variant of a row."""
        part = self.part(key)
        if part is not None:
            return dict(next(item.facts for item in part.variants if item.name == variant))
        return dict(self.roles.get(key.rpartition(":")[2], ()))

    def unknown(self, key: str) -> str:
        """Why a row of this model cannot be judged, empty where it can."""
        if key.endswith(":kv") and self.latent_attention:
            return f"how {self.kind} attends to its KV cache (multi-head latent attention) is not in the records"
        part = self.part(key)
        return part.unknown if part is not None else ""


def workload_of(base: Workload, model: Model | None, *, tp: int | None, ep: int | None) -> Workload:
    """The reference workload with what the model and the options say; sizes of layers come with each row."""
    facts = {**base.facts, **(model.facts if model is not None else {})}
    for option, value in (("tp", tp), ("ep", ep)):
        if value is not None:
            facts[f"workload.{option}"] = value
    return replace(base, facts=facts)


def check_ranks(option: str, value: int | None) -> None:
    """Refuse a parallelism that no machine has.

    Raises:
        UsageError: below 1 or above any real one.
    """
    if value is not None and not 1 <= value <= MOST_RANKS:
        raise UsageError(f"`{option} {value}` is not between 1 and {MOST_RANKS}", hint=f"{option} 1")
