"""What the real selectors of vLLM answered, as recorded, against the simulation; and the reading of such records."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest

import qresolve
from qresolve.arch import read_architectures
from qresolve.audit.ask_selectors import read_questionnaire
from qresolve.audit.behaviour import (
    Answers,
    Comparison,
    compare,
    joined,
    parse_answer_lines,
    parse_record,
    record_document,
    request_document,
)
from qresolve.audit.points import NOTHING, all_points, narrowed, parse_questionnaire, unread_schemes
from qresolve.audit.report import behaviour_exit_code, behaviour_lines, behaviour_mapping
from qresolve.cli.main import main
from qresolve.errors import DataInvalid, UsageError
from qresolve.knowledge.engine import load_engine
from qresolve.knowledge.load import read_formats, read_workload
from qresolve.strict import Table

if TYPE_CHECKING:
    from typing import Any

DATA = Path(__file__).parents[2] / "data" / "audit"
RECORDS = sorted(DATA.glob("vllm-*.json"))
SCHEMA = json.loads((Path(qresolve.__file__).parent / "schemas" / "audit.json").read_text(encoding="utf-8"))

# Schemes that a release serves by selectors which nobody has read; all others are compared.
UNREAD = {
    "0.28.0": {
        "fp8@e5m2:kv", "int8@per-token-head:kv", "mxfp4@deepseek-v4:moe", "mxfp4@w4a8-mxfp8:moe", "nvfp4@4over6:kv",
        "nvfp4@ds-mla:kv", "w4a8-fp8@w4a8:moe",
    },
}  # fmt: skip


@cache
def recorded(path: Path) -> Answers:
    return parse_record(json.loads(path.read_text(encoding="utf-8")))


def held_against(answers: Answers) -> Comparison:
    return compare(
        answers,
        engine=load_engine("vllm", answers.release),
        questionnaire=read_questionnaire("vllm", answers.release),
        schemes={
            scheme.key(role): scheme
            for form in read_formats().formats
            for scheme in form.schemes
            for role in scheme.roles
        },
        workload=read_workload()[0],
        architectures=read_architectures(),
    )


@cache
def compared(path: Path) -> Comparison:
    return held_against(recorded(path))


def test_there_is_a_record() -> None:
    assert RECORDS


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_simulation_picks_what_the_real_selectors_picked(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = compared(path)
    release = recorded(path).release
    with capsys.disabled():
        print(f" [{found.compared} points compared]", end="")
    assert not found.differences, "\n".join(behaviour_lines(found, engine="vllm", release=release))
    assert found.compared == len(recorded(path).picked)
    assert not found.unasked
    assert {scheme for scheme, _ in found.left_out} == UNREAD.get(release, set())
    assert path.stem == f"vllm-{release}"


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_record_has_refusals_and_more_than_one_answer_of_each_role(path: Path) -> None:
    picked = recorded(path).picked
    assert NOTHING in picked.values()
    for role in ("dense", "moe", "kv"):
        names = {value for (_, point, _), value in picked.items() if f":{role}" in point}
        assert len(names) > 3, role


def test_what_nobody_has_read_is_no_agreement() -> None:
    path = next(path for path in RECORDS if recorded(path).release in UNREAD)
    assert not compared(path).differences
    assert behaviour_exit_code(compared(path)) == 7
    said = "\n".join(behaviour_lines(compared(path), engine="vllm", release=recorded(path).release))
    assert "not compared, nobody has read the selector of this release: fp8@e5m2:kv, " in said


@pytest.mark.parametrize(("release", "quantizer"), [("0.28.0", "compressed-tensors"), ("0.33.0", "quark")])
def test_a_question_stands_for_the_checkpoints_that_the_records_of_its_release_know(
    release: str, quantizer: str
) -> None:
    request = request_document(
        load_engine("vllm", release), read_questionnaire("vllm", release), environ=lambda presence: {}
    )
    asked = {
        point["quantizer"]
        for job in request["jobs"]
        for phase in job["phases"]
        for point in phase["points"]
        if point["scheme"] == "mxfp4@w4a4:moe"
    }
    assert asked == {quantizer}


@pytest.mark.parametrize(
    ("scheme", "elsewhere", "here"),
    [
        # CompressedTensorsW4A8Fp8 is for sm90 exactly (_is_fp8_w4a8_sm90): elsewhere a named backend is not looked at.
        ("w4a8-fp8@w4a8:dense", "not CompressedTensorsW4A8Fp8", {90: "CutlassW4A8LinearKernel"}),
        # CompressedTensorsW4A4Mxfp4MoEMethod takes CUTLASS where its quantization of experts was compiled.
        ("mxfp4@w4a4:moe", "MarlinExperts", dict.fromkeys((100, 103, 110), "CutlassExpertsMxfp4")),
    ],
)
def test_what_compressed_tensors_binds_by_itself(scheme: str, elsewhere: str, here: dict[int, str]) -> None:
    (path,) = (path for path in RECORDS if recorded(path).release == "0.28.0")
    answers = {
        (text, sm): value
        for (_, text, sm), value in recorded(path).picked.items()
        if text.partition(" ")[0] == scheme and not text.endswith("=humming")
    }
    assert {sm for _, sm in answers} > set(here)
    assert {key: here.get(key[1], elsewhere) for key in answers} == answers


def test_some_gpus_and_schemes_only() -> None:
    release = recorded(RECORDS[-1]).release
    engine, whole = load_engine("vllm", release), read_questionnaire("vllm", release)
    some = narrowed(whole, archs=(120, 90), schemes=("nvfp4@w4a4:dense", "fp8@e4m3:kv"))
    wanted = [
        (presence.id, sm, point.text)
        for presence, sm, point in all_points(engine, whole)
        if sm in {90, 120} and point.scheme in {"nvfp4@w4a4:dense", "fp8@e4m3:kv"}
    ]
    assert [(presence.id, sm, point.text) for presence, sm, point in all_points(engine, some)] == wanted
    assert narrowed(whole, archs=(), schemes=()) == whole
    with pytest.raises(UsageError, match="sm70") as refused:
        narrowed(whole, archs=(70,), schemes=())
    assert "sm120" in str(refused.value.hint)


def test_unread_schemes_that_are_not_asked_for_are_not_named() -> None:
    some = narrowed(read_questionnaire("vllm", "0.28.0"), archs=(), schemes=("fp8@e5m2:kv", "int8@w8a8:dense"))
    assert unread_schemes(load_engine("vllm", "0.28.0"), some) == ("fp8@e5m2:kv",)


def test_later_answers_go_over_earlier_ones() -> None:
    a, b, c = (("s", "x", 90), ("s", "x", 100), ("s", "x", 120))
    old = Answers(release="1", picked={a: "A", b: "B"}, unasked={c: "why"})
    new = Answers(release="1", picked={c: "C"}, unasked={b: "not now"})
    assert joined(old, new) == Answers(release="1", picked={a: "A", c: "C"}, unasked={b: "not now"})


def test_a_wrong_answer_is_a_difference() -> None:
    answers = recorded(RECORDS[-1])
    key = next(key for key, value in answers.picked.items() if value.startswith("Marlin"))
    changed = Answers(release=answers.release, picked={key: "CutlassSomethingKernel"}, unasked={})
    (difference,) = held_against(changed).differences
    assert (difference.presence, difference.point, difference.sm) == key
    assert difference.real == "CutlassSomethingKernel"
    assert difference.simulated == answers.picked[key]


def test_other_experts_under_the_same_backend_are_a_difference() -> None:
    answers = recorded(RECORDS[-1])
    key, value = next((key, value) for key, value in answers.picked.items() if value.startswith("MARLIN/"))
    right = held_against(Answers(release=answers.release, picked={key: value}, unasked={}))
    wrong = held_against(Answers(release=answers.release, picked={key: "MARLIN/NoSuchExperts"}, unasked={}))
    assert (right.compared, len(right.differences)) == (1, 0)
    assert (wrong.compared, len(wrong.differences)) == (1, 1)


def test_what_the_record_lacks_is_not_taken_for_agreement() -> None:
    found = held_against(Answers(release=recorded(RECORDS[-1]).release, picked={}, unasked={}))
    assert found.compared == 0
    assert found.unasked
    assert behaviour_exit_code(found) == 7


def request() -> dict[str, Any]:
    release = recorded(RECORDS[-1]).release
    engine, questionnaire = load_engine("vllm", release), read_questionnaire("vllm", release)
    return request_document(engine, questionnaire, environ=lambda presence: {})


def test_the_request_asks_every_point_once() -> None:
    release = recorded(RECORDS[-1]).release
    engine, questionnaire = load_engine("vllm", release), read_questionnaire("vllm", release)
    asked = [
        (phase["id"], job["sm"], point["scheme"], tuple(point["settings"].items()))
        for job in request()["jobs"]
        for phase in job["phases"]
        for point in phase["points"]
    ]
    wanted = [
        (presence.id, sm, point.scheme, point.settings) for presence, sm, point in all_points(engine, questionnaire)
    ]
    assert len(asked) == len(set(asked))
    assert set(asked) == set(wanted)


def line(job: dict[str, Any], first: dict[str, str]) -> str:
    answers = [[{"picked": "A"} for _ in phase["points"]] for phase in job["phases"]]
    answers[0][0] = first
    return json.dumps({"job": job["id"], "release": "1.0", "answers": answers})


@pytest.mark.parametrize(
    ("first", "picked", "unasked"),
    [
        ({"picked": "B"}, "B", None),
        ({"refused": "ValueError: no kernel"}, NOTHING, None),
        ({"error": "TypeError: other arguments"}, None, "TypeError: other arguments"),
    ],
)
def test_an_answer_a_refusal_and_an_error_are_kept_apart(
    first: dict[str, str], picked: str | None, unasked: str | None
) -> None:
    asked = request()
    job = asked["jobs"][0]
    found = parse_answer_lines((line(job, first),), asked)
    point = job["phases"][0]["points"][0]["scheme"]
    key = (job["phases"][0]["id"], point, job["sm"])
    assert found.release == "1.0"
    assert (found.picked.get(key), found.unasked.get(key)) == (picked, unasked)
    assert parse_record(record_document(found, engine="vllm", command="c")) == found


def test_a_job_that_failed_leaves_all_its_points_unasked() -> None:
    asked = request()
    found = parse_answer_lines((json.dumps({"job": 0, "failed": "ended"}),), asked)
    assert not found.picked
    assert set(found.unasked.values()) == {"ended"}
    assert len(found.unasked) == sum(len(phase["points"]) for phase in asked["jobs"][0]["phases"])


@pytest.mark.parametrize("text", ["", "[]", '{"job": 999999}', '{"job": 0, "release": "1", "answers": []}'])
def test_a_line_that_is_no_answer(text: str) -> None:
    with pytest.raises(DataInvalid):
        parse_answer_lines((text,), request())


@pytest.mark.parametrize("document", [{}, {"schema": "qresolve.audit-behaviour/1"}])
def test_a_document_that_is_no_record(document: dict[str, str]) -> None:
    with pytest.raises(DataInvalid):
        parse_record(document)


def test_a_questionnaire_is_read_strictly() -> None:
    values: dict[str, Any] = {
        "protocol": "selectors", "script": "s.py", "archs": [90], "read-from": "r",
        "checked": __import__("datetime").date(2026, 1, 1),
        "quantizer": [{"name": "q", "role": "dense"}],
        "presence": [{"id": "a", "toolkit": False, "settings": False}],
    }  # fmt: skip
    assert parse_questionnaire(Table(values, file="q.toml"), "1.0").presences[0].id == "a"
    twice = {**values, "presence": values["presence"] * 2}
    with pytest.raises(DataInvalid, match="same id"):
        parse_questionnaire(Table(twice, file="q.toml"), "1.0")
    entries = [{"name": "q", "role": "dense", "releases": "<2"}, {"name": "r", "role": "dense", "releases": ">=2"}]
    by_release = Table({**values, "quantizer": entries}, file="q.toml")
    assert parse_questionnaire(by_release, "1.0").quantizers == {"dense": "q"}
    assert parse_questionnaire(by_release, "2.0").quantizers == {"dense": "r"}
    with pytest.raises(DataInvalid, match="unknown key"):
        parse_questionnaire(Table({**values, "more": 1}, file="q.toml"), "1.0")


def test_an_engine_that_nobody_knows_how_to_ask() -> None:
    with pytest.raises(UsageError):
        read_questionnaire("sources-of-nothing", "1.0")


def test_the_command_on_recorded_answers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = RECORDS[-1]
    release = recorded(path).release
    answers = recorded(path)
    expected = behaviour_exit_code(compared(path))
    assert main(["audit", f"vllm=={release}", "--behaviour", "--answers", str(path), "--json"]) == expected
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert document == behaviour_mapping(compared(path), engine="vllm", release=release)
    key = next(key for key, value in answers.picked.items() if value.startswith("Marlin"))
    wrong = Answers(release=release, picked={**answers.picked, key: "Other"}, unasked={})
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps(record_document(wrong, engine="vllm", command="c")), encoding="utf-8")
    assert main(["audit", f"vllm=={release}", "--behaviour", "--answers", str(file)]) == 9
    said = capsys.readouterr().out
    assert f"{key[1]} [{key[0]}] sm{key[2]}: the selector Other, the records {answers.picked[key]}" in said


def test_answers_of_another_release_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    releases = [release.version for release in load_engine("vllm").releases]
    path = RECORDS[-1]
    other = next(version for version in releases if version != recorded(path).release)
    assert main(["audit", f"vllm=={other}", "--behaviour", "--answers", str(path)]) == 2
    assert "not of" in capsys.readouterr().err
