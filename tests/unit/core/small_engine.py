"""Hand-made engines for tests of the core: a few routes, a few facts, nothing of a real vendor."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet

from qresolve.facts import ABSENT, Fact, FactKind, FactTable, Scope, Value, Vocabulary
from qresolve.gates import ALWAYS, Compare, Expression
from qresolve.knowledge.records import (
    ClassVariant,
    Engine,
    Explicit,
    Force,
    Gate,
    Ladder,
    Move,
    Provision,
    Release,
    Route,
    Scheme,
    Source,
)
from qresolve.request import Ask
from qresolve.resolution import Row
from qresolve.ways import Bench, bench_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SOURCE = Source(kind="stated", where="the test", checked=date(2026, 1, 1))

KINDS: tuple[FactKind, ...] = tuple(
    FactKind(meaning="of the test", **values)
    for values in (
        {"key": "gpu.sm", "type": "int", "scope": Scope.TARGET},
        {"key": "config.backend.*", "type": "text", "scope": Scope.ENVIRONMENT, "default": "auto"},
        {"key": "config.xbackend", "type": "text", "scope": Scope.ENVIRONMENT, "default": "auto"},
        {"key": "config.global", "type": "text", "scope": Scope.ENVIRONMENT, "default": "auto"},
        {
            "key": "config.mode",
            "type": "text",
            "scope": Scope.ENVIRONMENT,
            "default": "plain",
            "choices": ("plain", "fast", "safe"),
        },
        {"key": "package.*", "type": "version", "scope": Scope.ENVIRONMENT, "may_be_absent": True},
        {"key": "host.tool", "type": "version", "scope": Scope.HOST, "may_be_absent": True},
        {"key": "host.nvcc", "type": "version", "scope": Scope.HOST, "may_be_absent": True},
        {"key": "env.STRICT", "type": "bool", "scope": Scope.HOST, "default": False, "fix": "0"},
        {"key": "env.DISABLED", "type": "set", "scope": Scope.HOST, "default": frozenset(), "fix": ""},
    )
)


def is_(fact: str, value: Value) -> Compare:
    """``fact`` has that value."""
    return Compare(fact, "is", value)


def gate(identifier: str, when: Expression) -> Gate:
    """A gate that says nothing."""
    return Gate(id=identifier, when=when, loudness="silent", say=f"{identifier} does not hold", source=SOURCE)


def route(
    identifier: str,
    class_: str | Sequence[tuple[Expression, str]] = "native",
    *,
    backends: tuple[str, ...] = (),
    select: Iterable[Expression] = (),
    execute: Iterable[Expression] = (),
    explicit_only: bool = False,
) -> Route:
    """A route whose engine name is ``Kernel`` and its id."""
    variants = ((ALWAYS, class_),) if isinstance(class_, str) else class_
    return Route(
        id=identifier,
        name=f"Kernel{identifier}",
        library="the test",
        built="precompiled",
        backends=backends,
        explicit_only=explicit_only,
        select=tuple(gate(f"select{number}", when) for number, when in enumerate(select)),
        execute=tuple(gate(f"execute{number}", when) for number, when in enumerate(execute)),
        classes=tuple(ClassVariant(when=when, class_=name, why=f"because {name}") for when, name in variants),
        source=SOURCE,
    )


def ladder(
    serves: str,
    order: tuple[str, ...],
    *,
    moves: tuple[Move, ...] = (),
    forces: tuple[Force, ...] = (),
    explicit: tuple[Explicit, ...] = (),
    disabled_by: str | None = None,
) -> Ladder:
    """A ladder for the format ``serves`` in the scheme ``s``, dense."""
    return Ladder(
        id=f"ladder-{serves}",
        serves=(f"{serves}@s:dense",),
        order=order,
        moves=moves,
        forces=forces,
        explicit=explicit,
        disabled_by=disabled_by,
        nothing="no kernel is left",
        source=SOURCE,
    )


def explicit(fact: str, *, unmatched: Any = "auto", offer: bool = True) -> Explicit:
    """A configuration key that names a backend."""
    return Explicit(fact=fact, auto=("auto",), unmatched=unmatched, offer=offer)


def engine(
    routes: Iterable[Route], ladders: Iterable[Ladder], *, provisions: Mapping[str, str] | None = None
) -> Engine:
    """An engine of these routes and ladders."""
    release = Release(
        version="1.0",
        released=date(2026, 1, 1),
        requires_python=SpecifierSet(">=3.11"),
        cuda="13.0",
        toolkit=None,
        pins=(),
        source=SOURCE,
    )
    return Engine(
        name="small",
        distribution="small",
        release=release,
        releases=(release,),
        vocabulary=Vocabulary(KINDS),
        conditions={},
        routes={item.id: item for item in routes},
        ladders={served: item for item in ladders for served in item.serves},
        provisions=tuple(
            Provision(fact=fact, value=value, requirements=(fact.removeprefix("package."),), source=SOURCE)
            for fact, value in (provisions or {}).items()
        ),
        unserved={},
        claims=(),
        gated=(),
        digests={},
    )


def facts(values: Mapping[str, Value | None] | None = None) -> FactTable:
    """The facts of a plain install on sm90; the host's tool is not known."""
    vocabulary = Vocabulary(KINDS)
    plain: dict[str, Value | None] = {kind.key: kind.default for kind in KINDS if kind.default is not None}
    plain |= {"gpu.sm": 90, "host.tool": None}
    plain |= values or {}

    def derive(key: str) -> Fact | None:
        if key.startswith("package."):
            return Fact(value=ABSENT, source="the test")
        kind = vocabulary.get(key)
        return Fact(value=kind.default, source="default") if kind is not None and kind.default is not None else None

    return FactTable(
        vocabulary=vocabulary,
        values={key: Fact(value=value, source="the test") for key, value in plain.items()},
        derive=derive,
    )


def bench(
    of: Engine, format_name: str, values: Mapping[str, Value | None] | None = None, *, assumed: Any = None
) -> Bench:
    """A row of that format laid out."""
    known = {**(values or {}), **(assumed or {})}
    return bench_of(of, of.ladders[f"{format_name}@s:dense"], facts(known), assumed or {})


def row(format_name: str, wanted: str = "native", *, sm: int = 90) -> Row:
    """The row of that format that must reach ``wanted``."""
    scheme = Scheme(
        format=format_name, name="s", roles=("dense",), wants="native", meaning="of the test", facts={}, common=False
    )
    return Row(ask=Ask(scheme=scheme, role="dense"), arch=f"sm{sm}", sm=sm, wanted=wanted)
