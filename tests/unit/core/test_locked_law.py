"""The law of a lock, over the real records: its verdicts hold for every value of the host facts it does not fix."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qresolve.classes import at_least_as_good
from qresolve.facts import Scope, Value
from qresolve.question import Question, ask_question
from qresolve.resolution import Core, Resolution, solve
from qresolve.target.target import build_target, read_target_data

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qresolve.facts import FactTable
    from qresolve.resolution import ResolvedRow

ARCHS = ("sm75", "sm80", "sm86", "sm89", "sm90", "sm100", "sm103", "sm110", "sm120", "sm121")
NAMED = (
    ("sm120", "mxfp4,nvfp4"),
    ("sm120", "mxfp4,nvfp4,mxfp8,fp8,fp8-block,nvfp4:moe"),
    ("sm100", "mxfp4,nvfp4,mxfp8,fp8-block"),
    ("sm90", "fp8,fp8-block,w4a8-fp8,fp8-block:moe"),
    ("sm121", "mxfp4,nvfp4"),
)


@cache
def question(gpu: str, formats: str) -> Question:
    data = read_target_data()
    return ask_question(
        formats=[formats],
        target=build_target(gpu=[gpu], data=data),
        architectures=data.architectures,
        engine="vllm==0.33.0",
    )


@cache
def resolution(gpu: str, formats: str) -> Resolution | None:
    found = solve(question(gpu, formats).core())
    return found if isinstance(found, Resolution) else None


def locked(of: Question, found: Resolution, row: ResolvedRow, host: Mapping[str, Value | None]) -> FactTable:
    """The row's facts on a host where everything that the host may say is ``host``, under the lock's settings."""
    bench = of.bench(found.release, row.row)
    assert bench is not None
    vocabulary = bench.engine.vocabulary
    fixed: dict[str, Value | None] = {}
    for setting in found.settings:
        kind = vocabulary[setting.key]
        if kind.scope is Scope.HOST:
            assert kind.default is not None
            fixed[setting.key] = kind.default
    said = {kind.key: host.get(kind.key) for kind in vocabulary.kinds() if kind.scope is Scope.HOST}
    return bench.table.with_values({**said, **dict(found.assignment), **fixed}, "the host of the test")


def rows_that_hold(gpu: str, role: str) -> list[tuple[Question, Resolution]]:
    engine = question(gpu, "nvfp4").engine("0.33.0")
    found = []
    for served in sorted(engine.ladders):
        if served.endswith(f":{role}"):
            one = resolution(gpu, served)
            if one is not None:
                found.append((question(gpu, served), one))
    return found


@pytest.mark.parametrize("role", ["dense", "moe", "kv"])
@pytest.mark.parametrize("gpu", ARCHS)
def test_with_every_host_fact_unknown_each_locked_row_has_one_outcome(gpu: str, role: str) -> None:
    found = rows_that_hold(gpu, role)
    assert found or role != "dense"
    for of, one in found:
        (row,) = one.rows
        bench = of.bench(one.release, row.row)
        assert bench is not None
        outcomes = bench.outcomes_on(locked(of, one, row, {}))
        assert [item.outcome for item in outcomes] == [row.way.outcome], row.row.key
        assert at_least_as_good(row.way.outcome.verdict, row.row.wanted)


def test_each_promised_question_has_a_resolution() -> None:
    assert [resolution(gpu, formats) is not None for gpu, formats in NAMED] == [True] * len(NAMED)


def host_facts(of: Question) -> st.SearchStrategy[dict[str, Value]]:
    engine = of.engine("0.33.0")
    routes = sorted({route.name for route in engine.routes.values()})
    by_type: dict[str, st.SearchStrategy[Value]] = {
        "bool": st.booleans(),
        "int": st.integers(0, 200),
        "version": st.sampled_from(["absent", "11.8", "12.4", "12.8", "12.9", "13.0", "13.3", "14.0"]),
        "text": st.sampled_from(["<unset>", "none", "", "0", "1", "int8", "fp8", "cutlass", "marlin", "<another>"]),
        "set": st.frozensets(st.sampled_from(routes), max_size=len(routes)),
    }
    kinds = [kind for kind in engine.vocabulary.kinds() if kind.scope is Scope.HOST]
    return st.fixed_dictionaries({kind.key: by_type[kind.type] for kind in kinds})


@settings(max_examples=60)
@given(st.data())
@pytest.mark.parametrize(("gpu", "formats"), NAMED)
def test_a_locked_verdict_holds_on_any_host(gpu: str, formats: str, data: st.DataObject) -> None:
    of, found = question(gpu, formats), resolution(gpu, formats)
    assert found is not None
    host = data.draw(host_facts(of))
    for row in found.rows:
        bench = of.bench(found.release, row.row)
        assert bench is not None
        outcomes = bench.outcomes_on(locked(of, found, row, host))
        assert [item.outcome for item in outcomes] == [row.way.outcome], row.row.key


@pytest.mark.parametrize(("gpu", "formats"), NAMED)
def test_the_settings_are_what_makes_it_hold(gpu: str, formats: str) -> None:
    """Without the variables that the lock fixes, some host has another outcome: the law above can fail."""
    of, found = question(gpu, formats), resolution(gpu, formats)
    assert found is not None
    unfixed = Resolution(release=found.release, rows=found.rows, assignment=found.assignment, settings=())
    several = []
    for row in found.rows:
        bench = of.bench(found.release, row.row)
        assert bench is not None
        several.append(len(bench.outcomes_on(locked(of, unfixed, row, {}))) > 1)
    assert any(several)


@pytest.mark.parametrize(("gpu", "formats"), NAMED)
def test_the_order_of_asking_changes_nothing(gpu: str, formats: str) -> None:
    of = question(gpu, formats)
    backwards = solve(Core(releases=of.releases(), rows=of.rows()[::-1], bench=of.bench))
    found = resolution(gpu, formats)
    assert isinstance(backwards, Resolution)
    assert found is not None
    assert (backwards.assignment, backwards.settings) == (found.assignment, found.settings)
