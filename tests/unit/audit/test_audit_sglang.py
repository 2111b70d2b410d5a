"""What SGLang's own predicates and selectors answered, as recorded, against our conditions and ladders."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qresolve.arch import read_architectures
from qresolve.audit.points import selection_only
from qresolve.completions import answer_from
from qresolve.gates import decide
from qresolve.knowledge.engine import load_engine
from qresolve.knowledge.load import read_formats, read_workload
from qresolve.selector import BROKEN, select
from qresolve.situation import Host, facts_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from qresolve.facts import FactTable, Value
    from qresolve.knowledge.records import Engine

RECORDS = sorted((Path(__file__).parents[2] / "data" / "audit").glob("sglang-*.json"))

CONDITIONS = {
    "is_sm90_supported": "sglang.is-sm90",
    "is_sm100_supported": "sglang.is-sm100",
    "is_sm110_supported": "sglang.is-sm110",
    "is_sm120_supported": "sglang.is-sm120",
    "is_blackwell_supported": "sglang.is-blackwell",
    "is_flashinfer_available": "sglang.has-flashinfer",
    "cutlass_fp8_supported": "sglang.cutlass-fp8-supported",
    "query_marlin_supported_quant_types": "sglang.marlin-supported",
    "ENABLE_JIT_DEEPGEMM": "sglang.deepgemm-enabled",
    "Mxfp4Config.get_min_capability": "sglang.mxfp4-method",
    "is_triton_kernels_available": "sglang.has-triton-kernels",
    "fp4_quantize is cute-dsl": "sglang.is-sm100",
}
# No condition of ours stands for it: the ladders that take Marlin say it, and their points are compared.
WITHOUT_CONDITION = {"can_auto_enable_marlin_fp8"}

FP8 = {
    "CompressedTensorsW8A16Fp8": "sglang.fp8.marlin",
    "apply_fp8_marlin_linear": "sglang.fp8.marlin",
    "fp8_scaled_mm": "sglang.fp8.cutlass",
    "triton_scaled_mm": "sglang.fp8.triton",
    "torch._scaled_mm": "sglang.fp8.torch-tensor",
    "_apply_fallback_scaled_mm": "sglang.fp8.torch-channel",
}
FP8_MOE = {
    "CompressedTensorsW8A8Fp8MoE triton": "sglang.fp8-moe.triton",
    "CompressedTensorsW8A8Fp8MoE flashinfer_trtllm": "sglang.fp8-moe.flashinfer-trtllm",
    # No runner is made, and the first forward fails.
    "CompressedTensorsW8A8Fp8MoE no runner": "",
}
MARLIN = {"CompressedTensorsWNA16": "sglang.int4.marlin"}
ATTENTION = {
    "fa3": "sglang.kv.fp8.fa3",
    "trtllm_mha": "sglang.kv.fp8.trtllm-mha",
    "flashinfer": "sglang.kv.fp8.flashinfer",
    "triton": "sglang.kv.fp8.triton",
}
NVFP4_MOE = {
    "CompressedTensorsW4A4Nvfp4MoE flashinfer_cutlass": "sglang.nvfp4-moe.flashinfer-cutlass",
    "CompressedTensorsW4A4Nvfp4MoE flashinfer_trtllm": "sglang.nvfp4-moe.flashinfer-trtllm",
    "CompressedTensorsW4A16Nvfp4MoE marlin": "sglang.nvfp4-moe.marlin",
}
ROUTES: dict[str, dict[str, str]] = {
    "fp8@tensor-static:dense": FP8,
    "fp8@channel-dynamic:dense": FP8,
    "fp8@w8a16:dense": {"CompressedTensorsW8A16Fp8": "sglang.fp8-w8a16.marlin"},
    "fp8-block@block128:dense": {
        "apply_fp8_marlin_linear": "sglang.fp8-block.marlin",
        "cutlass_w8a8_block_fp8_linear_with_fallback": "sglang.fp8-block.cutlass",
        "deepgemm_w8a8_block_fp8_linear_with_fallback": "sglang.fp8-block.deepgemm",
        "flashinfer_gemm_w8a8_block_fp8_linear_with_fallback trtllm": "sglang.fp8-block.flashinfer-trtllm",
        "flashinfer_gemm_w8a8_block_fp8_linear_with_fallback cutlass": "sglang.fp8-block.flashinfer-cutlass",
        "flashinfer_deepgemm_w8a8_block_fp8_linear_with_fallback": "sglang.fp8-block.flashinfer-deepgemm",
        "triton_w8a8_block_fp8_linear": "sglang.fp8-block.triton",
    },
    "mxfp8@w8a8:dense": {
        "flashinfer_cutedsl": "sglang.mxfp8.flashinfer-cutedsl",
        "flashinfer_cutlass": "sglang.mxfp8.flashinfer-cutlass",
        "flashinfer_trtllm": "sglang.mxfp8.flashinfer-trtllm",
        "deep_gemm": "sglang.mxfp8.deepgemm",
        # A function that raises when it is called.
        "unsupported": "",
    },
    "int8@w8a8:dense": {"CompressedTensorsW8A8Int8": "sglang.int8.cutlass"},
    "int8@w8a16:dense": MARLIN,
    "int4@w4a16:dense": MARLIN,
    "nvfp4@w4a4:dense": {
        **{
            f"{method} {backend}": f"sglang.nvfp4.{route}"
            for method in ("CompressedTensorsW4A4Fp4", "fp4_gemm")
            for backend, route in (
                ("cute-dsl", "flashinfer-cutedsl"),
                ("cutlass", "flashinfer-cutlass"),
                ("cudnn", "flashinfer-cudnn"),
                ("trtllm", "flashinfer-trtllm"),
            )
        },
        # Up to 0.5.22: FlashInfer's mm_fp4 is asked for a backend that it does not have, as the route's gate says.
        "CompressedTensorsW4A4Fp4 marlin": "sglang.nvfp4.marlin",
        "CompressedTensorsW4A16Fp4 marlin": "sglang.nvfp4.marlin",
        "apply_fp4_marlin_linear": "sglang.nvfp4.marlin",
    },
    "nvfp4@w4a16:dense": {
        "CompressedTensorsW4A16Fp4 marlin": "sglang.nvfp4-w4a16.marlin",
        # The same function of FlashInfer with another backend; which one, the point says.
        "CompressedTensorsW4A16Fp4 mm_bf16_fp4": "sglang.nvfp4-w4a16.flashinfer",
    },
    "fp8@tensor-static:moe": FP8_MOE,
    "fp8@channel-dynamic:moe": FP8_MOE,
    "fp8-block@block128:moe": FP8_MOE,
    "nvfp4@w4a4:moe": NVFP4_MOE,
    "nvfp4@w4a16:moe": NVFP4_MOE,
    "int4@w4a16:moe": {
        "CompressedTensorsWNA16MoE marlin": "sglang.int4-moe.marlin",
        "CompressedTensorsWNA16TritonMoE triton": "sglang.int4-moe.triton",
    },
    "mxfp4@gpt-oss:moe": {
        "flashinfer_mxfp4 trtllm_sm100": "sglang.mxfp4-moe.flashinfer-trtllm",
        "flashinfer_mxfp4 cutlass_sm120": "sglang.mxfp4-moe.flashinfer-cutlass",
        "flashinfer_mxfp4 cutlass_sm90": "sglang.mxfp4-moe.flashinfer-cutlass-sm90",
        "triton_kernel": "sglang.mxfp4-moe.triton-kernels",
        "triton": "sglang.mxfp4-moe.upcast",
        "marlin": "sglang.mxfp4-moe.marlin",
    },
    "fp8@e4m3:kv": ATTENTION,
    "fp8@e5m2:kv": ATTENTION,
}
# Where our ladder says more than the function that SGLang binds, and why.
ARGUED = {
    # It takes FlashInfer's kernel below 32 rows and DeepGEMM from there on, or Triton where there is no DeepGEMM.
    ("no-deepgemm", "fp8-block@block128:dense", "flashinfer_deepgemm_w8a8_block_fp8_linear_with_fallback"): (
        "sglang.fp8-block.triton"
    ),
}
# Routes that an answer does not tell apart: Marlin by itself or instead of a named backend, a function's two backends.
SAME = {
    "sglang.nvfp4.marlin-instead": "sglang.nvfp4.marlin",
    "sglang.nvfp4-w4a16.flashinfer-cudnn": "sglang.nvfp4-w4a16.flashinfer",
}
REFUSED = ""
# Up to 0.5.21 compressed-tensors reads the activations' bits of weight-only NVFP4, which has none, and falls over.
FALLS_OVER = "error: AttributeError: 'NoneType' object has no attribute 'num_bits'"


@cache
def record(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


@cache
def engine_of(path: Path) -> Engine:
    return load_engine("sglang", record(path)["release"])


def environment(path: Path, presence: str) -> dict[str, Value]:
    """What the variables of a presence are as facts."""
    variables = record(path)["presences"][presence]
    return {f"env.{name}": value == "1" for name, value in variables.items()}


def table(path: Path, sm: int, scheme: str, assumed: dict[str, Value]) -> FactTable:
    schemes = {
        found.key(role): found for form in read_formats().formats for found in form.schemes for role in found.roles
    }
    return facts_of(
        engine=engine_of(path),
        sm=sm,
        scheme=schemes[scheme],
        workload=read_workload()[0],
        host=Host.without_toolkit(),
        images=lambda *_: None,
        architectures=read_architectures(),
        assumed=assumed,
    )


def predicates(path: Path) -> Iterator[tuple[str, str, str, int, bool]]:
    """Presence, CUDA of torch, predicate, sm, answer."""
    document = record(path)
    for presence, answers in document["answers"].items():
        for cuda, asked in ((document["torch-cuda"], answers["predicates"]), *answers.get("by-cuda", {}).items()):
            for name, rows in asked.items():
                for value, sm in ((value, int(sm)) for sms, value in rows.items() for sm in sms.split()):
                    assert value in {"True", "False"}, (presence, name, value)
                    yield presence, cuda, name, sm, value == "True"


def points(path: Path) -> Iterator[tuple[str, str, int, str]]:
    """Presence, text of the point, sm, answer."""
    for presence, answers in record(path)["answers"].items():
        for text, rows in answers["points"].items():
            for sms, value in rows.items():
                for sm in sms.split():
                    yield presence, text, int(sm), value


def facts_at(path: Path, presence: str, text: str, sm: int) -> FactTable:
    """The facts of a point."""
    scheme, quantizer, *named = text.split()
    assumed: dict[str, Value] = {"workload.quantizer": quantizer, **environment(path, presence)}
    assumed |= {f"config.{key}": value for key, _, value in (item.partition("=") for item in named)}
    return table(path, sm, scheme, assumed)


def picked(path: Path, presence: str, text: str, sm: int) -> str:
    """The route that our ladder takes, with what it runs on left aside."""
    engine = engine_of(path)
    ladder = engine.ladders[text.partition(" ")[0]]
    found = select(ladder, selection_only(engine), answer_from(facts_at(path, presence, text, sm)))
    return SAME.get(found.route or REFUSED, found.route or REFUSED)


def real(presence: str, text: str, answer: str) -> str:
    """The route that a recorded answer stands for."""
    scheme = text.partition(" ")[0]
    if answer.startswith("refused: ") or (answer == FALLS_OVER and scheme.startswith("nvfp4@w4a16:")):
        return REFUSED
    return ARGUED.get((presence, scheme, answer), ROUTES[scheme][answer])


def test_there_is_a_record() -> None:
    assert RECORDS


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_our_conditions_say_what_the_predicates_say(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conditions = engine_of(path).conditions
    different, compared = [], 0
    for presence, cuda, name, sm, answer in predicates(path):
        if name in WITHOUT_CONDITION:
            continue
        assumed: dict[str, Value] = {"runtime.cudart": cuda, **environment(path, presence)}
        ours = decide(conditions[CONDITIONS[name]], answer_from(table(path, sm, "fp8@w8a16:dense", assumed)))
        compared += 1
        if ours != answer:
            different.append(f"{name} [{presence}, CUDA {cuda}] sm{sm}: SGLang {answer}, {CONDITIONS[name]} {ours}")
    with capsys.disabled():
        print(f" [{compared} answers of predicates compared]", end="")
    assert not different, "\n".join(different)
    assert compared > len(CONDITIONS) * 10


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_our_ladders_pick_what_the_selectors_picked(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    different, compared = [], 0
    for presence, text, sm, answer in points(path):
        ours = picked(path, presence, text, sm)
        compared += 1
        if ours != real(presence, text, answer):
            different.append(f"{text} [{presence}] sm{sm}: SGLang `{answer}`, our ladder `{ours}`")
    with capsys.disabled():
        print(f" [{compared} points compared]", end="")
    assert not different, "\n".join(different)
    assert compared > 1000


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_every_answer_is_one_and_both_kinds_occur(path: Path) -> None:
    answers = [answer for _, _, _, answer in points(path)]
    assert {answer for answer in answers if answer.startswith("error: ")} <= {FALLS_OVER}
    assert any(answer.startswith("refused: ") for answer in answers)
    for role in ("dense", "moe", "kv"):
        assert len({answer for _, text, _, answer in points(path) if f":{role}" in text}) > 2, role
    both: dict[str, set[bool]] = {}
    for _, _, name, _, answer in predicates(path):
        both.setdefault(name, set()).add(answer)
    # The module is in the wheel of sglang-kernel, which every environment here has.
    assert [name for name, found in both.items() if len(found) < 2] == ["is_triton_kernels_available"]


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
    engine = engine_of(path)
    for presence, text, sm, answer in points(path):
        if answer != "CompressedTensorsW4A4Fp4 marlin":
            continue
        ladder = engine.ladders[text.partition(" ")[0]]
        found = select(ladder, engine.routes, answer_from(facts_at(path, presence, text, sm)))
        assert (found.verdict, found.gate) == (BROKEN, "weight-only-scheme"), (presence, text, sm)
