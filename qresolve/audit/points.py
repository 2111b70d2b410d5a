"""Which questions the behaviour audit asks a release's selectors, and what our simulation says to each. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qresolve.completions import answer_from
from qresolve.errors import DataInvalid, UsageError
from qresolve.gates import ALWAYS, Undecided, decide
from qresolve.knowledge.load import read_specifier
from qresolve.knowledge.records import ClassVariant
from qresolve.selector import named_backend, ordered_routes, select
from qresolve.situation import Host, facts_of, offered_backends

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from qresolve.arch import Architectures, ImageArch
    from qresolve.facts import FactTable, Value
    from qresolve.knowledge.records import Engine, Ladder, Route, Scheme, Workload
    from qresolve.strict import Table

NOTHING = ""
"""The answer of a selector that refuses: there is no kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """What is taken to be there: modules hidden or stubbed, a CUDA toolkit with ninja or none, and the facts so made.

    ``settings`` says whether named backends are asked for too, ``alone`` whether a process asks for nothing else: the
    engine looks for the package once, when it is imported.
    """

    id: str
    toolkit: bool
    settings: bool
    alone: bool
    hide: tuple[str, ...]
    stub: tuple[str, ...]
    facts: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Questionnaire:
    """How an engine's selectors are asked; ``quantizers`` by role and, before that, by scheme key.

    ``unasked`` are scheme keys for which the engine asks no selector; ``unread`` the ids of routes that stand for what
    nobody has read in a release. ``only`` are the scheme keys that this audit is about, None for all.
    """

    script: str
    archs: tuple[int, ...]
    presences: tuple[Presence, ...]
    quantizers: Mapping[str, str]
    unasked: tuple[str, ...]
    unread: tuple[str, ...]
    only: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One question: a scheme under settings (fact, value); everything else automatic."""

    scheme: str
    settings: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """``mxfp4@w4a4:dense config.kernel_config.moe_backend=b12x``."""
        return " ".join((self.scheme, *(f"{fact}={value}" for fact, value in self.settings)))


def parse_questionnaire(table: Table, release: str) -> Questionnaire:
    """Read ``constraints/audited/<engine>.toml`` as it holds for a release.

    Raises:
        DataInvalid: a key is missing, unknown or of another type.
    """
    table.day("checked")
    table.text("read-from")
    table.choice("protocol", ("selectors",))
    presences = []
    for entry in table.tables("presence"):
        facts = entry.optional_table("facts")
        presences.append(
            Presence(
                id=entry.text("id"),
                toolkit=entry.flag("toolkit"),
                settings=entry.flag("settings"),
                alone=entry.flag("alone", default=False),
                hide=entry.texts("hide", ()),
                stub=entry.texts("stub", ()),
                facts={} if facts is None else {key: facts.text(key) for key in facts},
            )
        )
        entry.done()
    quantizers: dict[str, str] = {}
    for entry in table.tables("quantizer"):
        name = entry.text("name")
        keys = entry.texts("schemes", ()) or (entry.text("role"),)
        holds = "releases" not in entry or read_specifier(entry, "releases").contains(release, prereleases=True)
        for key in keys if holds else ():
            if key in quantizers:
                raise entry.fail("name", f"`{key}` has a quantizer already")
            quantizers[key] = name
        entry.done()
    found = Questionnaire(
        script=table.text("script"),
        archs=table.wholes("archs"),
        presences=tuple(presences),
        quantizers=quantizers,
        unasked=table.texts("unasked", ()),
        unread=table.texts("unread", ()),
    )
    table.done()
    if len({presence.id for presence in found.presences}) != len(found.presences):
        raise table.fail("presence", "two have the same id")
    return found


def unread_schemes(engine: Engine, questionnaire: Questionnaire) -> tuple[str, ...]:
    """The scheme keys whose selector nobody has read in the release: there is nothing to hold an answer against."""
    return tuple(
        sorted(
            key
            for key, ladder in engine.ladders.items()
            if set(ladder.order) <= set(questionnaire.unread)
            and (questionnaire.only is None or key in questionnaire.only)
        )
    )


def _schemes(engine: Engine, questionnaire: Questionnaire) -> tuple[str, ...]:
    left_out = {*questionnaire.unasked, *unread_schemes(engine, questionnaire)}
    known = set(engine.ladders) if questionnaire.only is None else set(engine.ladders) & set(questionnaire.only)
    return tuple(sorted(known - left_out))


def narrowed(questionnaire: Questionnaire, *, archs: tuple[int, ...], schemes: tuple[str, ...]) -> Questionnaire:
    """The part of it that is about those sm numbers and scheme keys; an empty tuple means all.

    Raises:
        UsageError: an arch that is never asked for.
    """
    check_archs(archs, questionnaire.archs)
    kept = tuple(sm for sm in questionnaire.archs if sm in archs) if archs else questionnaire.archs
    return replace(questionnaire, archs=kept, only=schemes or None)


def check_archs(wanted: tuple[int, ...], asked: tuple[int, ...]) -> None:
    """Whether every wanted sm number is one that the audit asks for.

    Raises:
        UsageError: one is not.
    """
    for sm in wanted:
        if sm not in asked:
            names = ",".join(f"sm{known}" for known in asked)
            raise UsageError(f"the selectors are not asked for sm{sm}", hint=f"--gpu {names}")


def points_of(engine: Engine, questionnaire: Questionnaire, presence: Presence) -> tuple[Point, ...]:
    """Every scheme that the release has a ladder for: automatic, and with each backend that names a route of it."""
    found = []
    for scheme in _schemes(engine, questionnaire):
        ladder = engine.ladders[scheme]
        found.append(Point(scheme=scheme, settings=()))
        for explicit in ladder.explicit if presence.settings else ():
            if explicit.offer:
                backends = offered_backends(engine, ladder)
                found += [Point(scheme=scheme, settings=((explicit.fact, backend),)) for backend in backends]
    return tuple(found)


def quantizer_of(point: Point, questionnaire: Questionnaire) -> str:
    """The checkpoint kind that the entry point asked for ``point`` stands for.

    Raises:
        DataInvalid: nothing says.
    """
    role = point.scheme.rpartition(":")[2]
    quantizer = questionnaire.quantizers.get(point.scheme) or questionnaire.quantizers.get(role)
    if quantizer is None:
        raise DataInvalid(f"the questionnaire has no quantizer for {point.scheme}")
    return quantizer


def _no_image_measured(
    _project: str, _library: str, _unit: str, _scheme: Scheme | None = None, /
) -> tuple[ImageArch, ...] | None:
    return None


def point_facts(
    point: Point,
    *,
    sm: int,
    presence: Presence,
    engine: Engine,
    questionnaire: Questionnaire,
    schemes: Mapping[str, Scheme],
    workload: Workload,
    architectures: Architectures,
) -> FactTable:
    """All facts of a point: the release's pins, a host that shows what ``presence`` says, and the point's settings."""
    quantizer = quantizer_of(point, questionnaire)
    assumed: dict[str, Value] = {"workload.quantizer": quantizer, "host.nvidia-artifactory": True}
    if presence.toolkit:
        assumed |= {"host.nvcc": engine.release.cuda, "host.ninja": True, "host.nvcc-on-path": True, "host.cxx": True}
    if point.scheme == "mxfp4@gpt-oss:moe":
        assumed["workload.moe-activation"] = "swigluoai"
    assumed |= presence.facts
    assumed |= dict(point.settings)
    return facts_of(
        engine=engine,
        sm=sm,
        scheme=schemes[point.scheme],
        workload=workload,
        host=Host.without_toolkit(),
        images=_no_image_measured,
        architectures=architectures,
        assumed=assumed,
    )


def selection_only(engine: Engine) -> dict[str, Route]:
    """The routes with only what the engine's selector looks at: not what a picked kernel needs later."""
    nothing = (ClassVariant(when=ALWAYS, class_="native", why=""),)
    return {key: replace(route, execute=(), classes=nothing) for key, route in engine.routes.items()}


def simulated(ladder: Ladder, routes: Mapping[str, Route], facts: FactTable, *, role: str) -> str | None:
    """What our selector answers: names of routes, :data:`NOTHING` where it refuses, None where it cannot tell.

    ``routes`` are those of :func:`selection_only`. For a KV cache with no backend named, all valid ones in order,
    joined by ``+``, as the engine lists them.
    """
    answer = answer_from(facts)
    try:
        if role == "kv" and all(named_backend(item, ("?",), answer) is None for item in ladder.explicit):
            valid = [
                routes[route].name
                for route in ordered_routes(ladder, answer)
                if not routes[route].explicit_only and all(decide(gate.when, answer) for gate in routes[route].select)
            ]
            return "+".join(dict.fromkeys(valid)) or NOTHING
        found = select(ladder, routes, answer)
    except Undecided:
        return None
    return routes[found.route].name if found.route else NOTHING


def experts_agree(engine: Engine, simulated_name: str, real: str) -> bool:
    """Whether a real answer ``BACKEND/ExpertsClass`` is the simulated backend, by a class that its record names."""
    backend, _, experts = real.partition("/")
    if backend != simulated_name:
        return False
    if not experts:
        return True
    named = [route.source.where for route in engine.routes.values() if route.name == backend]
    return any(experts in where for where in named)


def all_points(engine: Engine, questionnaire: Questionnaire) -> Iterator[tuple[Presence, int, Point]]:
    """Every question of an audit in order."""
    for presence in questionnaire.presences:
        points = points_of(engine, questionnaire, presence)
        for sm in questionnaire.archs:
            for point in points:
                yield presence, sm, point
