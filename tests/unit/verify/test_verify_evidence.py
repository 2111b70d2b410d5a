"""From evidence to verdicts, exit codes and documents: what may never come out as proved."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.arch import read_architectures
from qresolve.classes import CLASSES
from qresolve.cli.main import main
from qresolve.errors import UsageError
from qresolve.knowledge.engine import load_engine
from qresolve.knowledge.load import schemes_by_key
from qresolve.knowledge.operations import read_operations
from qresolve.knowledge.predicates import read_predicates
from qresolve.knowledge.probes import read_probes
from qresolve.machine_code.instructions import read_instructions
from qresolve.verify.built import judge_built
from qresolve.verify.evidence import Binds, Evidence, FormatRow, Outcome, VerifiedEnvironment, VerifyReport, exit_code
from qresolve.verify.joining import join
from qresolve.verify.junit import to_junit
from qresolve.verify.merge import merge, merged_code, merged_rows
from qresolve.verify.operating import judge_operation, operation_evidence
from qresolve.verify.plugins import engine_plugin, library_plugin
from qresolve.verify.plugins.humming import layer_of
from qresolve.verify.probing import Launched, judge_launch, launch_evidence
from qresolve.verify.report import reasons, to_mapping
from qresolve.verify.rungs import NOTHING_THERE, RUNGS, SELECTION, STATIC
from qresolve.verify.selection import Picked
from tests.fake_engine import DATA
from tests.unit.kernels.probes_support import KERNELS

if TYPE_CHECKING:
    from pathlib import Path

    from qresolve.verify.evidence import Verdict

ROW = FormatRow(format="nvfp4", scheme="w4a4", role="dense", arch="sm120", wanted="native", engine="vllm")
ROUTE = load_engine("vllm", "0.33.0").routes["vllm.nvfp4.cutlass"]
NUMBERS = [rung.number for rung in RUNGS]


def seen(
    rung: int, outcome: Outcome, *, binds: Binds = Binds.ROUTE, implies: str | None = None, row: FormatRow = ROW
) -> Evidence:
    return Evidence(rung=rung, binds=binds, subject="x", outcome=outcome, about=row, why="w", implies=implies)


def picked(class_: str | None = "native", outcome: Outcome = Outcome.PROVED) -> Picked:
    return Picked(evidence=seen(5, outcome), route=ROUTE, class_=class_)


def static(**outcomes: Outcome) -> list[Evidence]:
    given_ = {number: outcomes.get(f"rung{number}", Outcome.PROVED) for number in range(1, 7)}
    return [seen(number, outcome) for number, outcome in given_.items()]


def verdict(evidence: list[Evidence], pick: Picked | None = None, **how: Any) -> Verdict:
    return join(ROW, pick or picked(), evidence, **{"launching": False, **how})


OUTCOMES = st.sampled_from(Outcome)


@given(st.lists(OUTCOMES, min_size=8, max_size=8), st.booleans(), st.sampled_from([*CLASSES, None]))
def test_no_verdict_holds_unless_every_rung_that_applies_is_proved(
    outcomes: list[Outcome], launching: bool, class_: str | None
) -> None:
    evidence = [
        seen(number, outcome, implies="broken" if outcome is Outcome.REFUTED else None)
        for number, outcome in zip(NUMBERS, outcomes, strict=True)
    ]
    found = join(ROW, picked(class_), evidence, launching=launching)
    last = 8 if launching else 6
    blocked = any(outcome in (Outcome.REFUTED, Outcome.UNPROVED) for outcome in outcomes[:last])
    refuted_later = Outcome.REFUTED in outcomes
    if blocked or refuted_later or outcomes[4] is not Outcome.PROVED or class_ != "native":
        assert not found.holds
    if found.holds:
        assert found.verdict == "native"
        assert found.level == ("launched" if launching else "static")


@given(st.lists(OUTCOMES, min_size=6, max_size=6), st.lists(OUTCOMES, max_size=3))
def test_evidence_about_compilers_and_gpus_never_makes_a_static_verdict(
    outcomes: list[Outcome], beside: list[Outcome]
) -> None:
    own = [
        seen(number, outcome, implies="broken" if outcome is Outcome.REFUTED else None)
        for number, outcome in zip(range(1, 7), outcomes, strict=True)
    ]
    others = [seen(6, outcome, binds=Binds.TOOLCHAIN) for outcome in beside]
    others += [seen(7, outcome, binds=Binds.SILICON) for outcome in beside]
    assert verdict(own) == verdict(own + others)


def test_a_launch_of_a_probe_stands_in_only_where_the_route_has_no_operation() -> None:
    probe = seen(7, Outcome.PROVED, binds=Binds.SILICON)
    assert verdict([*static(), probe], launching=True).level == "launched"
    unproved = verdict([*static(), probe, seen(8, Outcome.UNPROVED)], launching=True)
    assert not unproved.holds
    assert not verdict(static(), launching=True).holds


def test_of_several_gpus_each_has_to_hold() -> None:
    both = [*static(), seen(8, Outcome.PROVED), seen(8, Outcome.UNPROVED)]
    assert not verdict(both, launching=True).holds


def test_the_worst_refutation_names_the_verdict() -> None:
    evidence = [*static(rung3=Outcome.PROVED), seen(3, Outcome.REFUTED, implies="emulated"),
                seen(1, Outcome.REFUTED, implies="broken")]  # fmt: skip
    found = verdict(evidence)
    assert (found.verdict, found.refuted) == ("broken", True)


def test_a_kernel_that_could_not_be_built_passes_only_by_name_and_at_the_level_of_data() -> None:
    evidence = static(rung6=Outcome.UNPROVED)
    assert not verdict(evidence).holds
    allowed = verdict(evidence, unbuilt=True)
    assert (allowed.holds, allowed.level) == (True, "data")
    assert not verdict(static(rung6=Outcome.UNPROVED, rung1=Outcome.UNPROVED), unbuilt=True).holds


def test_a_refuted_probe_of_the_compiler_is_no_exit_code_6() -> None:
    evidence = [*static(), seen(6, Outcome.REFUTED, binds=Binds.TOOLCHAIN)]
    assert exit_code(evidence, [verdict(evidence)]) == 0


# ---------------------------------------------------------------- what was built


def built(name: str, key: str, sm: int) -> Evidence:
    format_, _, rest = key.partition("@")
    scheme, _, role = rest.partition(":")
    row = FormatRow(format=format_, scheme=scheme, role=role, arch=f"sm{sm}", wanted="native")
    return judge_built(
        row,
        "probe",
        (DATA / name).read_bytes(),
        product=read_instructions().product_of(schemes_by_key()[key].facts),
        architectures=read_architectures(),
        binds=Binds.ROUTE,
        source="test",
    )


def test_machine_code_without_the_instruction_is_refuted_and_of_another_arch_too() -> None:
    assert built("plain.fatbin", "nvfp4@w4a4:dense", 90).outcome is Outcome.REFUTED
    assert built("ptx.fatbin", "nvfp4@w4a4:dense", 120).outcome is Outcome.REFUTED
    assert built("tiny.cu", "nvfp4@w4a4:dense", 120).outcome is Outcome.UNPROVED


def test_the_native_instruction_among_others_is_not_enough() -> None:
    whole = built("native/_C_stable_libtorch.abi3.so", "nvfp4@w4a4:dense", 120)
    assert whole.outcome is Outcome.UNPROVED  # it holds other formats' code as well


# ---------------------------------------------------------------- what was launched

NATIVE = seen(6, Outcome.PROVED, binds=Binds.TOOLCHAIN)
DECOMPOSED = seen(6, Outcome.REFUTED, binds=Binds.TOOLCHAIN)
RIGHT = {
    "end": "launched",
    "numbers": "agree",
    "spoiled": "refuted",
    "outside": 0,
    "error": 0.0,
    "bound": 1.0,
    "ratio": 2.5,
}


@pytest.mark.parametrize(
    ("facts", "native", "outcome"),
    [
        ({}, NATIVE, Outcome.PROVED),
        ({}, DECOMPOSED, Outcome.REFUTED),  # perfect numbers of an emulating probe
        ({}, seen(6, Outcome.UNPROVED), Outcome.UNPROVED),
        ({"numbers": "differ", "outside": 3}, NATIVE, Outcome.REFUTED),
        ({"spoiled": "not refuted"}, NATIVE, Outcome.UNPROVED),
        ({"ratio": 0.8}, NATIVE, Outcome.UNPROVED),  # 4 bits no faster than 16 are a finding
        ({"end": "timed out"}, NATIVE, Outcome.UNPROVED),
        ({"end": "refused", "why": "no image for this GPU"}, NATIVE, Outcome.UNPROVED),
    ],
)
def test_a_launched_probe(facts: dict[str, Any], native: Evidence, outcome: Outcome) -> None:
    assert judge_launch("nvfp4", {**RIGHT, **facts}, native)[0] is outcome


def test_every_gpu_of_the_host_is_judged_by_itself() -> None:
    devices = (
        {"index": 0, "name": "A", "sm": 120, "probes": {"nvfp4": RIGHT}},
        {"index": 1, "name": "B", "sm": 120, "probes": {"nvfp4": {**RIGHT, "numbers": "differ"}}},
        {"index": 2, "name": "C", "sm": 90, "probes": {}},
    )
    found = launch_evidence(ROW, NATIVE, Launched(devices=devices))
    assert [one.outcome for one in found] == [Outcome.PROVED, Outcome.REFUTED]
    (elsewhere,) = launch_evidence(ROW, NATIVE, Launched(devices=devices[2:]))
    assert elsewhere.outcome is Outcome.UNPROVED
    assert "C (sm90)" in (elsewhere.why or "")
    (nothing,) = launch_evidence(ROW, NATIVE, Launched(devices=(), why="cuInit: a stub library of the toolkit (34)"))
    assert nothing.outcome is Outcome.UNPROVED
    assert "stub" in (nothing.why or "")


OPERATION = next(one for one in read_operations() if one.name == "CutlassNvFp4LinearKernel")
RAN = {"end": "launched", "numbers": "agree", "spoiled": "refuted", "kernels": ["void cutlass::x<float_e2m1_t>()"]}


@pytest.mark.parametrize(
    ("line", "outcome", "implies"),
    [
        ({}, Outcome.PROVED, None),
        ({"kernels": ["nvjet_sm90_tst_64x8"]}, Outcome.REFUTED, "emulated"),
        ({"kernels": []}, Outcome.UNPROVED, None),
        ({"numbers": "differ", "outside": 1}, Outcome.REFUTED, "broken"),
        ({"spoiled": "not refuted"}, Outcome.UNPROVED, None),
        ({"end": "refused", "why": "No compiled nvfp4 mm kernel for SM 90"}, Outcome.REFUTED, "broken"),
        ({"end": "error", "why": "out of memory"}, Outcome.UNPROVED, None),
    ],
)
def test_a_launched_operation(line: dict[str, Any], outcome: Outcome, implies: str | None) -> None:
    found = judge_operation(OPERATION, {**RAN, **line})
    assert (found[0], found[3]) == (outcome, implies)


def test_only_the_picked_routes_own_operation_is_evidence_about_it() -> None:
    device = {"index": 0, "name": "A", "sm": 120}
    lines = {OPERATION.file: [{**RAN, "operation": OPERATION.name, "device": device}]}
    (own,) = operation_evidence(ROW, ROUTE, (OPERATION,), lines)
    assert (own.outcome, own.binds) == (Outcome.PROVED, Binds.ROUTE)
    marlin = load_engine("vllm", "0.33.0").routes["vllm.nvfp4.marlin"]
    (other,) = operation_evidence(ROW, marlin, (OPERATION,), lines)
    assert other.outcome is Outcome.UNPROVED
    (nothing,) = operation_evidence(ROW, ROUTE, (OPERATION,), {OPERATION.file: [{"problem": "torch finds no GPU"}]})
    assert nothing.outcome is Outcome.UNPROVED
    assert "torch finds no GPU" in (nothing.why or "")


# ---------------------------------------------------------------- documents


def report(*evidence: Evidence, verdicts: tuple[Verdict, ...] = ()) -> VerifyReport:
    environment = VerifiedEnvironment(
        python="python", version="3.12.1", prefix="/env", distributions=1, unfinished_install=False
    )
    return VerifyReport(target=None, environment=environment, evidence=evidence, verdicts=verdicts)


def test_junit_counts_refuted_as_failed_and_unproved_as_errors() -> None:
    good, bad = static(), static(rung1=Outcome.UNPROVED)
    package = Evidence(rung=0, binds=Binds.PACKAGE, subject="a\x01==1", outcome=Outcome.REFUTED, why="<changed> & \x00")
    refuted = join(ROW, picked(), [seen(1, Outcome.REFUTED, implies="broken")], launching=False)
    document = ET.fromstring(to_junit(report(*good, package, verdicts=(verdict(good), verdict(bad), refuted))))  # noqa: S314 - ours
    formats, packages = document
    assert (formats.get("tests"), formats.get("failures"), formats.get("errors")) == ("3", "1", "1")
    assert (packages.get("tests"), packages.get("failures")) == ("1", "1")
    assert "nvfp4@w4a4:dense on sm120 by vllm" in {case.get("name") for case in formats}


def test_reports_of_several_machines_hold_where_all_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = to_mapping(report(*static(), verdicts=(verdict(static()),)))
    unknown = to_mapping(report(verdicts=(verdict(static(rung1=Outcome.UNPROVED)),)))
    broken_verdict = join(ROW, picked(), [seen(1, Outcome.REFUTED, implies="broken")], launching=False)
    broken = to_mapping(report(verdicts=(broken_verdict,)))
    assert merged_code(merge([("a", good), ("b", good)])) == 0
    assert merged_code(merge([("a", good), ("b", unknown)])) == 7
    assert merged_code(merge([("a", good), ("b", broken), ("c", unknown)])) == 6
    assert [row[2] for row in merged_rows(merge([("b", good), ("a", unknown)]))] == ["a", "b"]
    for name, document in (("one", good), ("two", broken)):
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    files = [str(tmp_path / "one.json"), str(tmp_path / "two.json")]
    assert main(["verify", "--merge", *files]) == 6
    shown = capsys.readouterr().out
    assert "one" in shown
    assert "broken" in shown
    assert main(["verify", "--merge", *files, "--json"]) == 6
    assert len(json.loads(capsys.readouterr().out)["reports"]) == 2


@pytest.mark.parametrize("document", [[], {}, {"schema": "qresolve.verify/1"}, {"schema": "x", "verdicts": []}])
def test_what_is_no_report_is_not_joined(document: object) -> None:
    with pytest.raises(UsageError):
        merge([("a", document)])
    with pytest.raises(UsageError):
        merge([])


# ---------------------------------------------------------------- records


def test_records_of_verify_name_what_there_is() -> None:
    known = set(schemes_by_key())
    assert set(read_probes()) <= known
    assert set(read_probes().values()) <= {path.stem for path in (KERNELS / "qresolve_probes").glob("*.py")}
    vllm = load_engine("vllm", "0.33.0")
    names = {route.name for route in vllm.routes.values()}
    for one in read_operations():
        assert set(one.serves) <= known
        assert (KERNELS / "operations" / one.file).is_file()
        if one.engine == "vllm":
            assert one.name in names
            assert any(
                vllm.routes[route].name == one.name for key in one.serves for route in vllm.ladders[key].order
            ), one.name
    for predicate in read_predicates():
        assert predicate.condition in vllm.conditions
    assert {rung.number for rung in STATIC} == {1, 2, 3, 4, 5, 6}


def test_plugins_are_there_for_what_they_say() -> None:
    assert engine_plugin("vllm") is not None
    assert engine_plugin("tensorrt-llm") is None
    assert library_plugin("humming") is not None
    assert library_plugin("nobody") is None


@pytest.mark.parametrize(
    ("key", "layer"),
    [
        ("mxfp4@w4a4:dense", {"a_dtype": "float4e2m1", "b_dtype": "float4e2m1", "bs_dtype": "float8e8m0",
                              "as_dtype": "float8e8m0", "input_scale_group_size": 32, "weight_scale_group_size": 32}),
        ("mxfp4@w4a16:dense", {"a_dtype": "bfloat16", "b_dtype": "float4e2m1", "bs_dtype": "float8e8m0",
                               "weight_scale_group_size": 32}),
        ("fp8@channel-dynamic:dense", {"a_dtype": "float8e4m3", "b_dtype": "float8e4m3"}),
        ("int4@awq:dense", None),
    ],
)  # fmt: skip
def test_humming_is_asked_for_what_the_scheme_is(key: str, layer: dict[str, object] | None) -> None:
    found = layer_of(schemes_by_key()[key], dtype="bf16")
    assert found == (None if layer is None else {**layer, "c_dtype": "bfloat16"})


def test_where_no_engine_is_installed_that_is_said_once_for_every_format() -> None:
    rows = [
        FormatRow(format=name, scheme="w8a8", role="dense", arch="sm90", wanted="native") for name in ("fp8", "int8")
    ]
    evidence = [
        rung.observed(row, rung.looks_at, Outcome.UNPROVED, why="no engine" if rung is SELECTION else NOTHING_THERE)
        for row in rows
        for rung in STATIC
    ]
    report = VerifyReport(
        target=None,
        environment=VerifiedEnvironment(
            python="python", version="3.12.1", prefix=".venv", distributions=0, unfinished_install=False
        ),
        evidence=tuple(evidence),
        verdicts=tuple(join(row, None, [one for one in evidence if one.about == row], launching=False) for row in rows),
    )
    assert reasons(report) == (f"every format: rung 5 unproved: {SELECTION.looks_at}: no engine",)
