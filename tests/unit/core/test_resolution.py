"""The core resolution on small hand-made engines: releases, clashes, and rows that change each other."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from qresolve.gates import AnyOf, Compare, Not
from qresolve.ledger import OutcomeChanges
from qresolve.resolution import Core, Impossible, Resolution, Row, best_alone, best_together, solve
from qresolve.setting import Setting
from qresolve.ways import Bench, bench_of
from tests.unit.core.small_engine import bench, engine, explicit, facts, is_, ladder, route, row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qresolve.knowledge.records import Engine

FAST = is_("config.mode", "fast")
SAFE = is_("config.mode", "safe")
STRICT = is_("env.STRICT", value=True)


def core(rows: Sequence[Row], releases: dict[str, Engine]) -> Core:
    """Releases newest first."""
    kept: dict[tuple[str, str], Bench] = {}

    def lay_out(release: str, of: Row) -> Bench | None:
        built = releases[release]
        served = built.ladder_for(of.ask.key)
        if served is None:
            return None
        key = (release, of.key)
        if key not in kept:
            kept[key] = bench_of(built, served, facts({"gpu.sm": of.sm}), {})
        return kept[key]

    return Core(releases=tuple(releases), rows=rows, bench=lay_out)


def solved(rows: Sequence[Row], *built: Engine) -> Resolution:
    found = solve(core(rows, {f"{len(built) - number}.0": item for number, item in enumerate(built)}))
    assert isinstance(found, Resolution)
    return found


def ways_of(found: Resolution) -> dict[str, dict[str, object]]:
    return {item.row.ask.scheme.format: dict(item.way.assignment) for item in found.rows}


NATIVE = engine([route("a")], [ladder("f", ("a",))])
LOWER = engine([route("a", "weight-only")], [ladder("f", ("a",))])


def test_a_plain_install_that_does_needs_nothing() -> None:
    found = solved([row("f")], NATIVE)
    assert (found.release, found.assignment, found.settings) == ("1.0", (), ())


def test_the_newest_release_that_serves_is_taken() -> None:
    assert solved([row("f")], NATIVE, NATIVE).release == "2.0"


def test_the_class_comes_before_the_newest_release() -> None:
    found = solved([row("f")], LOWER, NATIVE, NATIVE)
    assert (found.release, found.rows[0].way.outcome.verdict) == ("2.0", "native")


def test_a_release_without_the_ladder_is_passed_over() -> None:
    other = engine([route("a")], [ladder("another", ("a",))])
    assert solved([row("f")], other, NATIVE).release == "1.0"


def test_a_lower_class_is_taken_only_where_it_is_wanted() -> None:
    assert isinstance(solve(core([row("f")], {"1.0": LOWER})), Impossible)
    assert solved([row("f", "weight-only")], LOWER).rows[0].way.outcome.verdict == "weight-only"


def test_the_best_there_is_is_said_for_each_release_and_row() -> None:
    of = core([row("f")], {"2.0": LOWER, "1.0": engine([route("a", "mixed")], [ladder("f", ("a",))])})
    assert isinstance(solve(of), Impossible)
    assert [(release, way and way.outcome.verdict) for release, _, way in best_alone(of)] == [
        ("2.0", "weight-only"),
        ("1.0", "mixed"),
    ]


def test_what_is_not_known_of_a_plain_install_is_not_hidden_by_a_key_that_certainly_fails() -> None:
    """Naming a backend that is rejected is certain to be unsupported; the plain install may still be native."""
    never = route("b", backends=("bee",), select=[Compare("gpu.sm", "at-least", 100)])
    unread = engine([route("a", []), never], [ladder("f", ("a", "b"), explicit=(explicit("config.backend.f"),))])
    way = core([row("f")], {"1.0": unread}).best_way("1.0", row("f"))
    assert way is not None
    assert (way.outcome.verdict, way.assignment) == ("unknown", ())
    tool = Compare("host.tool", "present", operand=True)
    of_host = engine(
        [route("a", execute=[tool]), never], [ladder("f", ("a", "b"), explicit=(explicit("config.backend.f"),))]
    )
    assert core([row("f")], {"1.0": of_host}).best_way("1.0", row("f")) is None


def test_a_broken_route_serves_no_class() -> None:
    broken = engine([route("a", execute=[FAST])], [ladder("f", ("a",))])
    assert dict(solved([row("f", "emulated")], broken).assignment) == {"config.mode": "fast"}
    hopeless = engine([route("a", execute=[Compare("gpu.sm", "at-least", 100)])], [ladder("f", ("a",))])
    assert isinstance(solve(core([row("f", "emulated")], {"1.0": hopeless})), Impossible)


def two_modes(first: str, second: str) -> Engine:
    return engine(
        [
            route("a1", select=[is_("config.mode", first)]),
            route("a2", "weight-only"),
            route("b1", select=[is_("config.mode", second)]),
            route("b2", "weight-only"),
        ],
        [ladder("a", ("a1", "a2")), ladder("b", ("b1", "b2"))],
    )


def test_rows_that_need_one_value_of_a_key_share_it() -> None:
    found = solved([row("a"), row("b")], two_modes("fast", "fast"))
    assert found.settings == (Setting(path="mode", value="fast"),)


def test_rows_that_need_two_values_of_one_key_clash() -> None:
    of = core([row("a"), row("b")], {"1.0": two_modes("fast", "safe")})
    found = solve(of)
    assert isinstance(found, Impossible)
    assert [(clash.key, clash.values) for clash in found.clashes] == [("config.mode", ("fast", "safe"))]
    # Each for itself would do, which is why the clash is the reason.
    assert all(way is not None and way.outcome.verdict == "native" for _, _, way in best_alone(of))


def test_the_best_together_is_never_better_than_one_environment_gives() -> None:
    rows = [row("a"), row("b")]
    of = core(rows, {"1.0": two_modes("fast", "safe")})
    assert isinstance(solve(of), Impossible)
    found = best_together(of, "1.0")
    assert {key: way and way.outcome.verdict for key, (way, _) in found.items()} == {
        "a@s:dense/sm90": "native",
        "b@s:dense/sm90": "weight-only",
    }
    for one in rows:
        way, beside = found[one.key]
        laid_out = of.bench("1.0", one)
        assert laid_out is not None
        assert way is not None
        assert laid_out.single(beside) == way.outcome


def test_a_row_takes_another_way_so_that_a_row_of_a_lower_class_keeps_its_best() -> None:
    newer = Compare("gpu.sm", "at-least", 100)
    built = engine(
        [
            route("a1", backends=("one",), explicit_only=True, select=[newer]),
            route("a2", [(newer, "native"), (Not(newer), "weight-only")], backends=("two",), explicit_only=True),
            route("a3", "emulated"),
        ],
        [ladder("a", ("a1", "a2", "a3"), explicit=(explicit("config.backend.a"),))],
    )
    of = core([row("a", sm=90), row("a", sm=120)], {"1.0": built})
    assert isinstance(solve(of), Impossible)
    found = best_together(of, "1.0")
    assert {key: way and way.outcome.verdict for key, (way, _) in found.items()} == {
        "a@s:dense/sm90": "weight-only",
        "a@s:dense/sm120": "native",
    }
    assert {beside for _, beside in found.values()} == {(("config.backend.a", "two"),)}


def test_a_row_that_another_rows_setting_spoils_is_not_said_to_hold() -> None:
    of = core([row("a"), row("b")], {"1.0": changing(second_way=False)})
    assert isinstance(solve(of), Impossible)
    way, beside = best_together(of, "1.0")["b@s:dense/sm90"]
    assert way is not None
    assert (way.outcome.verdict, beside) == ("weight-only", (("config.mode", "fast"),))


def test_an_older_release_without_the_clash_is_taken() -> None:
    assert solved([row("a"), row("b")], two_modes("fast", "safe"), two_modes("safe", "safe")).release == "1.0"


def changing(*, second_way: bool, first_way: bool = False) -> Engine:
    """Row a is native in the fast mode (or by a backend); that mode takes row b's route away unless it is named."""
    named_a = (explicit("config.xbackend"),) if first_way else ()
    named_b = (explicit("config.backend.b"),) if second_way else ()
    return engine(
        [
            route("a1", select=[FAST]),
            route("a2", "weight-only"),
            route("a3", backends=("ay",), explicit_only=True),
            route("b1", select=[Not(FAST)]),
            route("b2", "weight-only"),
            route("b3", backends=("bee",), explicit_only=True),
        ],
        [
            ladder("a", ("a1", "a2", "a3"), explicit=named_a),
            ladder("b", ("b1", "b2", "b3"), explicit=named_b),
        ],
    )


def test_a_row_that_another_rows_setting_changes_gets_another_way() -> None:
    of = core([row("a"), row("b")], {"1.0": changing(second_way=True)})
    found = solve(of)
    assert isinstance(found, Resolution)
    assert ways_of(found) == {"a": {"config.mode": "fast"}, "b": {"config.backend.b": "bee"}}
    assert all(item.way.outcome.verdict == "native" for item in found.rows)
    reasons = [reason for decision in of.ledger.decisions() for reason in decision.reasons]
    assert OutcomeChanges(other=(("config.mode", "fast"),)) in reasons


def test_a_row_that_another_rows_setting_changes_without_another_way_is_impossible() -> None:
    assert isinstance(solve(core([row("a"), row("b")], {"1.0": changing(second_way=False)})), Impossible)


def test_the_row_whose_setting_changes_another_gets_another_way_where_the_other_has_none() -> None:
    found = solved([row("a"), row("b")], changing(second_way=False, first_way=True))
    assert ways_of(found) == {"a": {"config.xbackend": "ay"}, "b": {}}


def test_a_deviation_that_is_idle_alone_is_taken_where_another_rows_setting_makes_it_count() -> None:
    safe_or_named = AnyOf((Not(FAST), is_("config.backend.b", "bee")))
    built = engine(
        [
            route("a1", select=[FAST]),
            route("a2", "weight-only"),
            route("b1", backends=("bee",), select=[safe_or_named]),
        ],
        [ladder("a", ("a1", "a2")), ladder("b", ("b1",), explicit=(explicit("config.backend.b"),))],
    )
    assert ways_of(solved([row("a"), row("b")], built)) == {
        "a": {"config.mode": "fast"},
        "b": {"config.backend.b": "bee"},
    }


def test_what_comes_out_does_not_depend_on_the_order_of_the_rows() -> None:
    built = engine(
        [
            route("a1", select=[FAST]),
            route("a2", "weight-only"),
            route("b1", select=[Not(FAST)]),
            route("b2", backends=("bee",), explicit_only=True),
            route("c1", select=[AnyOf((FAST, SAFE))]),
        ],
        [
            ladder("a", ("a1", "a2")),
            ladder("b", ("b1", "b2"), explicit=(explicit("config.backend.b"),)),
            ladder("c", ("c1",)),
        ],
    )
    found = [solved(order, built) for order in permutations([row("a"), row("b"), row("c")])]
    assert {(item.release, item.assignment, item.settings) for item in found} == {
        (found[0].release, found[0].assignment, found[0].settings)
    }
    assert {tuple(sorted((one.row.key, one.way.assignment) for one in item.rows)) for item in found} == {
        tuple(sorted((one.row.key, one.way.assignment) for one in found[0].rows))
    }


def test_one_set_of_settings_must_do_for_every_gpu() -> None:
    newer = Compare("gpu.sm", "at-least", 100)
    built = engine(
        [route("a1", select=[AnyOf((FAST, newer))]), route("a2", "weight-only", select=[Not(newer)])],
        [ladder("a", ("a1", "a2"))],
    )
    assert dict(solved([row("a"), row("a", sm=120)], built).assignment) == {"config.mode": "fast"}
    assert solved([row("a", sm=120)], built).assignment == ()


def test_host_variables_of_every_row_are_fixed() -> None:
    built = engine(
        [route("a", select=[Not(STRICT)]), route("b", "weight-only"), route("c")],
        [ladder("f", ("a", "b")), ladder("g", ("c",), disabled_by="env.DISABLED")],
    )
    found = solved([row("f"), row("g")], built)
    assert found.settings == (Setting(env="DISABLED", value=""), Setting(env="STRICT", value="0"))


def test_more_rounds_than_the_resolver_has_by_default() -> None:
    """A release is refused only at its last row: each needs well over a hundred rounds of resolvelib."""
    names = [f"f{number:03}" for number in range(130)]
    routes = [route(name) for name in names]
    newest = engine([*routes[:-1], route(names[-1], "weight-only")], [ladder(name, (name,)) for name in names])
    older = engine(routes, [ladder(name, (name,)) for name in names])
    found = solved([row(name) for name in names], newest, older)
    assert (found.release, len(found.rows)) == ("1.0", len(names))


def test_each_candidate_has_one_decision() -> None:
    of = core([row("a"), row("b")], {"1.0": changing(second_way=True)})
    solve(of)
    candidates = [decision.candidate for decision in of.ledger.decisions()]
    assert len(candidates) == len(set(candidates))
    accepted = [decision.candidate for decision in of.ledger.decisions() if decision.accepted]
    assert sorted(accepted) == [
        "1.0 a@s:dense/sm90 config.mode=fast",
        "1.0 b@s:dense/sm90 config.backend.b=bee",
        "engine 1.0",
    ]


modes = st.sampled_from(["plain", "fast", "safe"])


@given(st.lists(st.tuples(st.sets(modes, min_size=1), st.booleans()), min_size=1, max_size=4))
def test_it_is_solved_exactly_where_brute_force_finds_a_solution(needs: list[tuple[set[str], bool]]) -> None:
    """Each row is native in some modes, and some rows also by a name of their own in any mode."""
    routes, ladders, rows = [], [], []
    for number, (allowed, named) in enumerate(needs):
        name = f"f{number}"
        select = AnyOf(tuple(is_("config.mode", mode) for mode in sorted(allowed)))
        routes += [route(f"{name}a", select=[select]), route(f"{name}b", backends=("bee",), explicit_only=True)]
        keys = (explicit(f"config.backend.{name}"),) if named else ()
        ladders.append(ladder(name, (f"{name}a", f"{name}b"), explicit=keys))
        rows.append(row(name))
    possible = any(all(mode in allowed or named for allowed, named in needs) for mode in ("plain", "fast", "safe"))
    of = core(rows, {"1.0": engine(routes, ladders)})
    found = solve(of)
    assert isinstance(found, Resolution) is possible
    if isinstance(found, Resolution):
        for item in found.rows:
            laid_out = bench(of.bench("1.0", item.row).engine, item.row.ask.scheme.format)  # type: ignore[union-attr]
            outcome = laid_out.single(found.assignment)
            assert outcome is not None
            assert outcome.verdict == "native"
