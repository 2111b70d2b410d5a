"""Formats against archs for one release, under a choice of runtime facts: the axis that no support table has.

Every cell is judged by the same gates as ``explain``; nothing is looked up in a table. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from qresolve.classes import at_least_as_good, rank
from qresolve.explain import reason_of
from qresolve.facts import ABSENT, Value
from qresolve.situation import Host, facts_of
from qresolve.ways import bench_of, ways

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from qresolve.arch import Architectures
    from qresolve.knowledge.records import Engine, Workload
    from qresolve.request import Ask
    from qresolve.situation import Images, Toolchain
    from qresolve.ways import Bench, Way


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One position of one axis: what it says and which facts it changes.

    ``packages`` are versions added to the release's pins (``absent`` takes one away); ``assumed`` facts win over all.
    """

    name: str
    words: str
    host: Host | None = None
    packages: tuple[tuple[str, str], ...] = ()
    assumed: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A runtime fact that a reader can switch; the first option is the default."""

    name: str
    words: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One architecture with the CPU machine that its wheels are judged for."""

    arch: str
    sm: int
    machine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What one scheme comes to on one arch: with the engine left to itself, and with the settings of a lock."""

    plain: str
    plain_route: str | None
    plain_why: str
    locked: str
    locked_route: str | None
    settings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """All cells under one position of the axes; ``position`` names an option of each axis in order."""

    position: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]  # a row an ask, a column an arch


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """One engine release: asks as rows, archs as columns, a sheet for each position of the axes."""

    engine: str
    release: str
    workload: str
    asks: tuple[Ask, ...]
    columns: tuple[Column, ...]
    axes: tuple[Axis, ...]
    sheets: tuple[Sheet, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """What every cell is judged on: the records, the workload, what was measured in wheels and of toolchains."""

    engine: Engine
    workload: Workload
    architectures: Architectures
    images: Mapping[str, Images]
    toolchain: Toolchain | None
    assumed: Mapping[str, Value]


def axes_of(engine: Engine, packages: Sequence[str], cudas: Sequence[str]) -> tuple[Axis, ...]:
    """The axes for a release: the host's toolkit, optional packages, the CUDA of the build."""
    toolkit = Axis(
        name="host",
        words="the host shows",
        options=(
            Option(name="bare", words="no CUDA toolkit", host=Host.without_toolkit()),
            Option(
                name="toolkit",
                words=f"nvcc {engine.release.cuda}, ninja and a C++ compiler",
                host=Host(nvcc=engine.release.cuda, ninja=True, cxx=True),
                assumed=tuple(
                    (kind.key, kind.with_toolkit) for kind in engine.vocabulary.kinds() if kind.with_toolkit is not None
                ),
            ),
        ),
    )
    options = [Option(name="pinned", words="as the release pins it")]
    pinned = {pin.package for pin in engine.release.pins}
    for name in packages:
        version = next((item.value for item in engine.provisions if item.fact == f"package.{name}"), "0")
        if name in pinned:
            options.append(Option(name=f"no-{name}", words=f"without {name}", packages=((name, ABSENT),)))
        else:
            options.append(Option(name=name, words=f"with {name}", packages=((name, version),)))
    builds = [Option(name="published", words=f"as published (CUDA {engine.release.cuda})")]
    builds += [
        Option(name=f"cuda-{cuda}", words=f"a build with CUDA {cuda}", assumed=(("build.cuda", cuda),))
        for cuda in cudas
    ]
    return (
        toolkit,
        Axis(name="packages", words="installed", options=tuple(options)),
        Axis(name="build", words="the engine's wheel is", options=tuple(builds)),
    )


def positions(axes: Sequence[Axis]) -> tuple[tuple[Option, ...], ...]:
    """The positions that get a sheet: each axis moved alone and in pairs with the host's, not their whole product."""
    first, *others = axes
    defaults = [axis.options[0] for axis in others]
    found: list[tuple[Option, ...]] = []
    for head in first.options:
        found.append((head, *defaults))
        for place, axis in enumerate(others):
            for option in axis.options[1:]:
                changed = list(defaults)
                changed[place] = option
                found.append((head, *changed))
    return tuple(found)


def build_matrix(
    grounds: Grounds,
    asks: Sequence[Ask],
    columns: Sequence[Column],
    axes: Sequence[Axis],
    chosen: Iterable[tuple[Option, ...]],
    *,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Matrix:
    """Judge every cell under every chosen position."""
    served = tuple(ask for ask in asks if grounds.engine.ladder_for(ask.key) is not None)
    wanted = tuple(chosen)
    locked: dict[tuple[object, ...], Way | None] = {}
    sheets = []
    for number, position in enumerate(wanted):
        progress(number, len(wanted))
        rows = tuple(tuple(_cell(grounds, ask, column, position, locked) for column in columns) for ask in served)
        sheets.append(Sheet(position=tuple(option.name for option in position), cells=rows))
    progress(len(wanted), len(wanted))
    return Matrix(
        engine=grounds.engine.name,
        release=grounds.engine.release.version,
        workload=grounds.workload.name,
        asks=served,
        columns=tuple(columns),
        axes=tuple(axes),
        sheets=tuple(sheets),
    )


def _cell(
    grounds: Grounds,
    ask: Ask,
    column: Column,
    position: tuple[Option, ...],
    locked: dict[tuple[object, ...], Way | None],
) -> Cell:
    bench = _bench(grounds, ask, column, position, known_host=True)
    plain = bench.outcomes()
    verdicts = sorted({item.outcome.verdict for item in plain}, key=rank)
    routes = {item.outcome.route for item in plain}
    words = (reason_of(grounds.engine, item.outcome, bench.table) for item in plain)
    reasons = dict.fromkeys(text for text in words if text)
    # What a lock comes to does not hang on the host, so the host's axis shares it.
    key = (ask.key, column.arch, *(option.name for option in position[1:]))
    if key not in locked:
        locked[key] = _best(_bench(grounds, ask, column, position, known_host=False), ask)
    way = locked[key]
    return Cell(
        plain=verdicts[0] if len(verdicts) == 1 else "unknown",
        plain_route=_name(grounds, next(iter(routes)) if len(routes) == 1 else None),
        plain_why="; ".join(reasons),
        locked=way.outcome.verdict if way is not None else "unknown",
        locked_route=_name(grounds, way.outcome.route if way is not None else None),
        settings=tuple(f"{key}={value}" for key, value in way.assignment) if way is not None else (),
    )


def _name(grounds: Grounds, route: str | None) -> str | None:
    return grounds.engine.routes[route].name if route is not None else None


def _best(bench: Bench, ask: Ask) -> Way | None:
    best: Way | None = None
    for way in ways(bench):
        if way.outcome.verdict == ask.scheme.wants:
            return way
        if best is None or rank(way.outcome.verdict) < rank(best.outcome.verdict):
            best = way
    return best


def _bench(grounds: Grounds, ask: Ask, column: Column, position: tuple[Option, ...], *, known_host: bool) -> Bench:
    engine = grounds.engine
    packages = {pin.package: pin.version for pin in engine.release.pins}
    assumed = dict(grounds.assumed)
    host = Host()
    for option in position:
        for name, version in option.packages:
            if version == ABSENT:
                packages.pop(name, None)
            else:
                packages[name] = version
        if known_host or option.host is None:
            assumed |= dict(option.assumed)
        if known_host and option.host is not None:
            host = option.host
    ladder = engine.ladders[ask.key]
    table = facts_of(
        engine=engine,
        sm=column.sm,
        scheme=ask.scheme,
        workload=grounds.workload,
        host=host,
        images=grounds.images[column.machine],
        architectures=grounds.architectures,
        assumed=assumed,
        packages=packages,
        toolchain=grounds.toolchain,
        machine=column.machine,
    )
    return bench_of(engine, ladder, table, assumed)


def holds(ask: Ask, verdict: str) -> bool:
    """Whether a verdict is what the scheme wants, or better."""
    return at_least_as_good(verdict, ask.scheme.wants)
