"""Laws over all records of all engines and releases."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache, partial
from itertools import islice, product
from typing import TYPE_CHECKING

import pytest

from qresolve.arch import ImageArch, read_architectures
from qresolve.classes import VERDICTS
from qresolve.completions import answer_from, possible
from qresolve.facts import Fact, Scope
from qresolve.gates import Not, Undecided, decide, leaves
from qresolve.knowledge.engine import engine_names, load_engine, read_releases
from qresolve.knowledge.load import read_formats, read_workload
from qresolve.selector import select
from qresolve.situation import Host, compares_of, facts_of, thresholds_of
from tests.knowledge_support import ARCHS, schemes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from qresolve.completions import Thresholds
    from qresolve.facts import FactTable, Value
    from qresolve.knowledge.records import Engine, Gate, Ladder, Route

RELEASES = [(name, release.version) for name in engine_names() for release in read_releases(name)]
MOST_TRIED = 4000  # assignments of a gate's facts that are looked at for one that passes and one that fails

OLDER = (52, 70)  # archs that floors of 60 and 75 reject

pytestmark = pytest.mark.parametrize(("name", "version"), RELEASES)


@cache
def loaded(name: str, version: str) -> Engine:
    return load_engine(name, version)


def _table(engine: Engine, served: str, sm: int, values: Mapping[str, Value] | None = None) -> FactTable:
    """A plain install on a host without a toolkit, every image of the wheel loading."""
    table = facts_of(
        engine=engine,
        sm=sm,
        scheme=schemes()[served],
        workload=read_workload()[0],
        host=Host.without_toolkit(),
        images=lambda *_: (ImageArch(sm=sm, suffix="", kind="sass"),),
        architectures=read_architectures(),
        assumed={},
        toolchain=lambda key, sm, version: Fact(value="native", source="the test"),
    )
    return table.with_values(dict(values or {}), "the test")


def _gates(engine: Engine) -> Iterator[tuple[Route, Gate]]:
    for route in engine.routes.values():
        for gate in (*route.select, *route.execute):
            yield route, gate


def _ladders_with(engine: Engine, route: str) -> Iterator[tuple[str, Ladder]]:
    for served, ladder in engine.ladders.items():
        if route in ladder.order or any(force.route == route for force in ladder.forces):
            yield served, ladder


def _representatives(engine: Engine, thresholds: Thresholds, fact: str) -> tuple[Value, ...]:
    kind = engine.vocabulary[fact]
    if kind.type == "set":
        members = sorted(
            {str(leaf.operand) for _, gate in _gates(engine) for leaf in leaves(gate.when) if leaf.fact == fact}
        )
        return (frozenset(), frozenset(members))
    if fact.startswith("image."):
        return ("sass", "ptx", "none")
    if fact == "gpu.family":
        return tuple(sorted({sm // 10 * 10 for sm in (*OLDER, *ARCHS)}))
    if fact == "gpu.sm":
        return (*OLDER, *ARCHS)
    return thresholds.representatives(kind, fact)


def test_every_served_scheme_is_in_the_formats(name: str, version: str) -> None:
    known = {scheme.key(role) for item in read_formats().formats for scheme in item.schemes for role in scheme.roles}
    assert set(loaded(name, version).ladders) <= known


def test_every_route_stands_on_a_ladder(name: str, version: str) -> None:
    engine = loaded(name, version)
    for identifier in engine.routes:
        assert any(True for _ in _ladders_with(engine, identifier)), identifier


def test_every_fact_of_a_gate_can_be_known(name: str, version: str) -> None:
    """A workload fact is in the reference workload, a scheme fact in each scheme; the others have a reader."""
    engine = loaded(name, version)
    workload = set(read_workload()[0].facts)
    for served, ladder in engine.ladders.items():
        table = _table(engine, served, 90)
        for compare in compares_of(engine, ladder):
            kind = engine.vocabulary[compare.fact]
            assert kind.meaning
            if kind.scope is Scope.WORKLOAD:
                assert compare.fact in workload or kind.default is not None, compare.fact
            if kind.scope is Scope.SCHEME:
                assert table.get(compare.fact).value is not None, (served, compare.fact)


def test_every_gate_can_pass_and_can_fail(name: str, version: str) -> None:
    engine = loaded(name, version)
    for route, gate in _gates(engine):
        compares = tuple(leaves(gate.when))
        facts = sorted({leaf.fact for leaf in compares})
        served, ladder = next(_ladders_with(engine, route.id))
        thresholds = thresholds_of(engine, ladder)
        seen: set[bool] = set()
        values = [_representatives(engine, thresholds, fact) for fact in facts]
        everything = list(islice(product(*values), 200_000))
        random.Random(1).shuffle(everything)
        base = _table(engine, served, 90)
        for chosen in everything[:MOST_TRIED]:
            assumed = dict(zip(facts, chosen, strict=True))
            if "gpu.sm" in assumed and "gpu.family" in assumed:
                assumed["gpu.family"] = int(str(assumed["gpu.sm"])) // 10 * 10
            seen.add(decide(gate.when, answer_from(base, assumed=assumed)))
            if len(seen) == 2:
                break
        assert seen == {True, False}, (route.id, gate.id)


def _random_table(served: str, engine: Engine, ladder: Ladder, *, seed: int) -> tuple[int, Mapping[str, Value]]:
    chance = random.Random(seed)
    thresholds = thresholds_of(engine, ladder)
    values: dict[str, Value] = {}
    for fact in sorted({compare.fact for compare in compares_of(engine, ladder)}):
        kind = engine.vocabulary[fact]
        if kind.scope is Scope.SCHEME or fact in {"gpu.sm", "gpu.family"}:
            continue
        options = _representatives(engine, thresholds, fact)
        if options:
            values[fact] = chance.choice(options)
    return chance.choice(ARCHS), values


def test_a_full_assignment_has_exactly_one_verdict(name: str, version: str) -> None:
    engine = loaded(name, version)
    for served, ladder in engine.ladders.items():
        for seed in range(8):
            sm, values = _random_table(served, engine, ladder, seed=seed)
            table = _table(engine, served, sm, values)
            outcome = select(ladder, engine.routes, answer_from(table))
            assert outcome.verdict in VERDICTS
            found = possible(partial(select, ladder, engine.routes), table, thresholds_of(engine, ladder))
            assert [item.outcome for item in found] == [outcome]


def test_failing_a_gate_of_the_picked_route_removes_it(name: str, version: str) -> None:
    engine = loaded(name, version)
    for served, ladder in engine.ladders.items():
        for sm in ARCHS:
            table = _table(engine, served, sm)
            answer = answer_from(table)
            try:
                outcome = select(ladder, engine.routes, answer)
            except Undecided:  # the law is about facts that are known on a plain install
                continue
            if outcome.route is None:
                continue
            route = engine.routes[outcome.route]
            for position, gate in enumerate(route.select):
                failing = replace(
                    route,
                    select=(
                        *route.select[:position],
                        replace(gate, when=Not(gate.when)),
                        *route.select[position + 1 :],
                    ),
                )
                try:
                    again = select(ladder, {**engine.routes, route.id: failing}, answer)
                except Undecided:  # another route is asked about now
                    continue
                assert again.route != route.id, (served, sm, gate.id)


def test_a_broken_route_says_which_gate_and_why(name: str, version: str) -> None:
    engine = loaded(name, version)
    for route in engine.routes.values():
        for gate in route.execute:
            assert gate.say, (route.id, gate.id)
