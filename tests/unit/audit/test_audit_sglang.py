"""What SGLang's own predicates and selectors answered, as recorded, against our conditions and ladders."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest

import qresolve
from qresolve.audit.ask_selectors import read_predicates, read_simulation
from qresolve.audit.points import NOTHING
from qresolve.audit.predicate_questions import narrowed_predicates, parse_predicates
from qresolve.audit.predicates import (
    PredicateAnswers,
    compare_predicates,
    joined_predicates,
    parse_predicate_lines,
    parse_predicates_record,
    point_assumptions,
    predicates_document,
    predicates_request,
)
from qresolve.audit.report import behaviour_exit_code, behaviour_lines, behaviour_mapping
from qresolve.cli.main import main
from qresolve.completions import answer_from
from qresolve.errors import DataInvalid, UsageError
from qresolve.knowledge.engine import load_engine
from qresolve.selector import BROKEN, select
from qresolve.strict import Table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from qresolve.audit.behaviour import Comparison
    from qresolve.audit.predicate_questions import Predicates
    from qresolve.audit.predicates import Simulation
    from qresolve.facts import FactTable, Value

RECORDS = sorted((Path(__file__).parents[2] / "data" / "audit").glob("sglang-*.json"))
SCHEMA = json.loads((Path(qresolve.__file__).parent / "schemas" / "audit.json").read_text(encoding="utf-8"))
# Up to 0.5.21 compressed-tensors reads the activations' bits of weight-only NVFP4, which has none, and falls over.
FALLS_OVER = "error: AttributeError: 'NoneType' object has no attribute 'num_bits'"
# What nobody has written a question for. A ladder that is not here is asked.
NOT_ASKED = {
    "int4@awq:dense", "mxfp4@deepseek-v4:moe", "mxfp4@w4a8-mxfp8:moe", "mxfp8@w8a8:moe", "nvfp4@nvfp4:kv",
    "w4a8-fp8@w4a8:dense", "w4a8-fp8@w4a8:moe",
}  # fmt: skip


@cache
def document(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


@cache
def recorded(path: Path) -> PredicateAnswers:
    return parse_predicates_record(document(path))


@cache
def simulation_of(path: Path) -> Simulation:
    return read_simulation(load_engine("sglang", recorded(path).release))


def questions_of(path: Path) -> Predicates:
    return read_predicates("sglang", recorded(path).release)


def held_against(path: Path, answers: PredicateAnswers, questions: Predicates | None = None) -> Comparison:
    return compare_predicates(answers, questions or questions_of(path), simulation_of(path))


@cache
def compared(path: Path) -> Comparison:
    return held_against(path, recorded(path))


def points(path: Path) -> Iterator[tuple[str, str, int, str]]:
    """Presence, text of the point, sm, answer."""
    for (presence, keys, sm), answer in recorded(path).answers.items():
        if keys[0] == "points":
            yield presence, keys[1], sm, answer


def facts_at(path: Path, presence: str, text: str, sm: int) -> FactTable:
    """The facts of a point."""
    environ = next(one.environ for one in questions_of(path).presences if one.id == presence)
    variables: dict[str, Value] = {f"env.{key}": value == "1" for key, value in environ.items()}
    return simulation_of(path).facts(sm, text.partition(" ")[0], point_assumptions(text, variables))


def only(answers: PredicateAnswers, *keys: tuple[str, tuple[str, ...], int]) -> PredicateAnswers:
    return replace(answers, answers={key: answers.answers[key] for key in keys})


def one_gpu(path: Path) -> Predicates:
    """A single presence and GPU, so that a record of one answer lacks nothing else."""
    questions = questions_of(path)
    stock = replace(questions.presences[0], archs=(120,))
    return replace(questions, presences=(stock,))


def test_there_is_a_record() -> None:
    assert RECORDS


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_our_conditions_and_ladders_say_what_sglang_says(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = compared(path)
    with capsys.disabled():
        print(f" [{found.compared} answers compared]", end="")
    assert not found.differences, "\n".join(behaviour_lines(found, engine="sglang", release=recorded(path).release))
    assert not found.unasked
    uncompared = sum(keys[-1] == "can_auto_enable_marlin_fp8" for _, keys, _ in recorded(path).answers)
    assert found.compared == len(recorded(path).answers) - uncompared > 2500
    assert {scheme for scheme, _ in found.left_out} == NOT_ASKED
    assert path.stem == f"sglang-{recorded(path).release}"


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_every_answer_is_one_and_both_kinds_occur(path: Path) -> None:
    answers = [answer for _, _, _, answer in points(path)]
    assert {answer for answer in answers if answer.startswith("error: ")} <= {FALLS_OVER}
    assert any(answer.startswith("refused: ") for answer in answers)
    for role in ("dense", "moe", "kv"):
        assert len({answer for _, text, _, answer in points(path) if f":{role}" in text}) > 2, role
    both: dict[str, set[str]] = {}
    for (_, keys, _), answer in recorded(path).answers.items():
        if keys[0] != "points":
            both.setdefault(keys[-1], set()).add(answer)
    assert set.union(*both.values()) == {"True", "False"}
    # The module is in the wheel of sglang-kernel, which every environment here has.
    assert [name for name, found in both.items() if len(found) < 2] == ["is_triton_kernels_available"]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_is_read_and_written_alike(path: Path) -> None:
    written = predicates_document(
        recorded(path), questions_of(path), engine="sglang", command=document(path)["command"]
    )
    assert written == document(path)


def test_every_route_and_condition_that_an_answer_stands_for_is_one_of_ours() -> None:
    routes: set[str] = set()
    conditions: set[str] = set()
    named: set[str] = set()
    wanted: set[str] = set()
    for path in RECORDS:
        engine, questions = simulation_of(path).engine, questions_of(path)
        routes |= set(engine.routes)
        conditions |= set(engine.conditions)
        named |= {route for stands in questions.routes.values() for route in stands.values()}
        named |= {*questions.argued.values(), *questions.same, *questions.same.values()}
        wanted |= set(questions.conditions.values())
    assert named - {NOTHING} <= routes
    assert wanted - {NOTHING} <= conditions


def key_of(path: Path, text: str) -> tuple[str, tuple[str, ...], int]:
    return "stock", ("points", text), 120


NVFP4 = "nvfp4@w4a4:dense compressed-tensors"


@pytest.mark.parametrize(
    ("answer", "real"),
    [
        ("CompressedTensorsW4A4Fp4 trtllm", "CompressedTensorsW4A4Fp4 trtllm"),
        ("a name that nothing is said of", "a name that nothing is said of"),
        ("refused: ValueError: no", NOTHING),
    ],
)
def test_a_wrong_answer_is_a_difference(answer: str, real: str) -> None:
    path = RECORDS[-1]
    key = key_of(path, NVFP4)
    right = held_against(path, only(recorded(path), key), one_gpu(path))
    assert (right.compared, right.differences) == (1, ())
    wrong = replace(recorded(path), answers={key: answer})
    (difference,) = held_against(path, wrong, one_gpu(path)).differences
    assert (difference.presence, difference.point, difference.sm, difference.real) == ("stock", NVFP4, 120, real)
    assert difference.simulated
    assert difference.simulated.startswith("sglang.nvfp4.")


def test_a_predicate_that_says_otherwise_is_a_difference() -> None:
    path = RECORDS[-1]
    key = ("stock", ("by-cuda", "12.8", "is_sm120_supported"), 120)
    (difference,) = held_against(path, replace(recorded(path), answers={key: "False"}), one_gpu(path)).differences
    assert difference.point == "is_sm120_supported runtime.cudart=12.8"
    assert (difference.real, difference.simulated) == ("False", "True")


@pytest.mark.parametrize(
    ("keys", "answer", "why"),
    [
        (("points", NVFP4), "error: TypeError: other arguments", "TypeError: other arguments"),
        (("points", "nvfp4@w4a16:dense compressed-tensors"), FALLS_OVER, FALLS_OVER.removeprefix("error: ")),
        (("predicates", "is_sm120_supported"), "error: no such", "no such"),
        (("predicates", "a new one"), "True", "nothing says which condition stands for the predicate"),
        (("failed",), "the process ended", "the process ended"),
    ],
)
def test_what_could_not_be_asked_is_no_agreement(keys: tuple[str, ...], answer: str, why: str) -> None:
    path = RECORDS[-1]
    found = held_against(path, replace(recorded(path), answers={("stock", keys, 120): answer}), one_gpu(path))
    assert [item[-1] for item in found.unasked] == [why]
    assert found.compared == 0
    assert behaviour_exit_code(found) == 7


def test_a_gpu_that_the_record_lacks_is_unasked() -> None:
    path = RECORDS[-1]
    kept = {key: value for key, value in recorded(path).answers.items() if (key[0], key[2]) != ("forced", 100)}
    found = held_against(path, replace(recorded(path), answers=kept))
    assert found.unasked == (("forced", "everything", 100, "the record has no such point"),)


def test_some_gpus_and_schemes_only() -> None:
    path = RECORDS[-1]
    questions = narrowed_predicates(questions_of(path), archs=(86, 120), schemes=("nvfp4@w4a4:dense",))
    assert {(presence.id, presence.archs) for presence in questions.presences} == {
        ("stock", (86, 120)), ("no-flashinfer", (120,)), ("no-deepgemm", (120,)), ("neither", (120,)),
    }  # fmt: skip
    found = held_against(path, recorded(path), questions)
    assert (found.differences, found.unasked, found.left_out) == ((), (), ())
    wanted = sum(
        keys[-1] != "can_auto_enable_marlin_fp8" and (keys[0] != "points" or keys[1].startswith("nvfp4@w4a4:dense "))
        for presence, keys, sm in recorded(path).answers
        if sm in {86, 120}
    )
    assert found.compared == wanted
    with pytest.raises(UsageError, match="sm70"):
        narrowed_predicates(questions, archs=(70,), schemes=())


def lines_of(path: Path, request: dict[str, Any]) -> Iterator[str]:
    """What the script would have answered, from the record."""
    for job in request["jobs"]:
        found: dict[str, Any] = {}
        for (presence, keys, sm), value in recorded(path).answers.items():
            if (presence, sm) == (job["presence"], job["sm"]):
                row = found
                for key in keys[:-1]:
                    row = row.setdefault(key, {})
                row[keys[-1]] = value
        line = {"job": job["id"], "release": recorded(path).release, "torch-cuda": "13.0", "answers": found}
        yield json.dumps(line)


def test_the_request_asks_for_every_presence_and_gpu_and_its_answers_are_the_record() -> None:
    path = RECORDS[-1]
    request = predicates_request(questions_of(path))
    assert parse_predicate_lines(tuple(lines_of(path, request)), request) == recorded(path)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"job": 999999}', '{"job": 0, "release": "1"}', '{"job": 0, "answers": 1}']
)
def test_a_line_that_is_no_answer(text: str) -> None:
    with pytest.raises(DataInvalid):
        parse_predicate_lines((text,), predicates_request(questions_of(RECORDS[-1])))


@pytest.mark.parametrize("values", [{}, {"schema": "qresolve.sglang-predicates/1"}])
def test_a_document_that_is_no_record(values: dict[str, str]) -> None:
    with pytest.raises(DataInvalid):
        parse_predicates_record(values)


def test_later_answers_go_over_earlier_ones() -> None:
    failed, asked, other = (("s", ("failed",), 90), ("s", ("points", "a"), 90), ("s", ("failed",), 100))
    old = PredicateAnswers(release="1", torch_cuda="13.0", answers={failed: "why", other: "why"})
    new = PredicateAnswers(release="1", torch_cuda="13.0", answers={asked: "B"})
    assert dict(joined_predicates(old, new).answers) == {other: "why", asked: "B"}


def test_how_it_is_asked_is_read_strictly() -> None:
    values: dict[str, Any] = {
        "protocol": "predicates", "script": "s.py", "archs": [90], "cudas": [], "read-from": "r",
        "checked": __import__("datetime").date(2026, 1, 1), "presence": [{"id": "stock"}],
        "falls-over": [{"releases": "<2", "schemes": ["a"], "answer": "error: b", "why": "c"}],
    }  # fmt: skip
    assert parse_predicates(Table(values, file="q.toml"), "1.0").falls_over == (("a", "error: b"),)
    assert parse_predicates(Table(values, file="q.toml"), "2.0").falls_over == ()
    with pytest.raises(DataInvalid, match="unknown key"):
        parse_predicates(Table({**values, "more": 1}, file="q.toml"), "1.0")
    twice = {"schemes": ["a"], "routes": {"x": "y"}}
    with pytest.raises(DataInvalid, match="already"):
        parse_predicates(Table({**values, "answers": [twice, twice]}, file="q.toml"), "1.0")


def test_the_command_on_recorded_answers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = RECORDS[-1]
    release = recorded(path).release
    command = ["audit", f"sglang=={release}", "--behaviour", "--answers"]
    assert main([*command, str(path), "--json"]) == behaviour_exit_code(compared(path))
    said = json.loads(capsys.readouterr().out)
    jsonschema.validate(said, SCHEMA)
    assert said == behaviour_mapping(compared(path), engine="sglang", release=release)
    assert main([*command, str(path), "--gpu", "rtx5090", "--formats", "nvfp4"]) == 0
    assert " 0 differ, 0 could not be asked" in capsys.readouterr().out
    key = key_of(path, NVFP4)
    wrong = replace(recorded(path), answers={**recorded(path).answers, key: "SomethingElse"})
    file = tmp_path / "wrong.json"
    values = predicates_document(wrong, questions_of(path), engine="sglang", command="c")
    file.write_text(json.dumps(values), encoding="utf-8")
    assert main([*command, str(file)]) == 9
    assert f"{NVFP4} [stock] sm120: the selector SomethingElse, the records sglang.nvfp4." in capsys.readouterr().out
    assert main(["audit", "sglang==0.5.20", "--behaviour", "--answers", str(path)]) == 2
    assert "not of 0.5.20" in capsys.readouterr().err


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_each_refusal_is_one_of_sglang(path: Path) -> None:
    """A refusal that names a method's floor, a GPU, or a scheme that there is none of; not a question gone wrong."""
    said = {answer for _, _, _, answer in points(path) if answer.startswith("refused: ")}
    words = (
        "Min capability", "the method starts at", "require", "deprecated on this hardware", "not available",
        "compatible scheme was found", "Unsupported weight strategy", "does not support",
        "is not supported now",
    )  # fmt: skip
    assert [text for text in said if not any(word in text for word in words)] == []


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_backend_that_flashinfer_does_not_have_is_broken(path: Path) -> None:
    engine = simulation_of(path).engine
    for presence, text, sm, answer in points(path):
        if answer != "CompressedTensorsW4A4Fp4 marlin":
            continue
        ladder = engine.ladders[text.partition(" ")[0]]
        found = select(ladder, engine.routes, answer_from(facts_at(path, presence, text, sm)))
        assert (found.verdict, found.gate) == (BROKEN, "weight-only-scheme"), (presence, text, sm)
