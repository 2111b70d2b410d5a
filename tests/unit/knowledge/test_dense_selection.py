"""Settings, toolchains and builds around vLLM 0.33.0's dense ladders: what each changes in the pick and the class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from qresolve.completions import answer_from
from qresolve.gates import decide
from tests.knowledge_support import NO_TOOLKIT, TOOLKIT_ON_HOST, engine, outcome, route_name, table_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qresolve.facts import Value


def verdict_of(scheme: str, sm: int, facts: Mapping[str, Value | None]) -> tuple[str, str | None]:
    found = outcome(scheme, table_for(scheme, sm, facts))
    return found.verdict, route_name(found)


def test_compressed_tensors_refuses_schemes_that_the_selectors_would_take() -> None:
    assert verdict_of("w4a8-fp8@w4a8:dense", 89, NO_TOOLKIT) == ("unsupported", None)
    assert verdict_of("w4a8-fp8@w4a8:dense", 90, NO_TOOLKIT) == ("native", "CutlassW4A8LinearKernel")
    assert verdict_of("w4a8-fp8@w4a8:dense", 120, NO_TOOLKIT) == ("weight-only", "HummingLinearKernel")
    assert verdict_of("mxfp4@w4a4:dense", 75, NO_TOOLKIT) == ("unsupported", None)


def test_compressed_tensors_takes_fp8_below_sm89_for_w8a16() -> None:
    assert verdict_of("fp8@channel-dynamic:dense", 86, NO_TOOLKIT) == ("weight-only", "HummingFP8ScaledMMLinearKernel")
    other = {**NO_TOOLKIT, "workload.quantizer": "modelopt"}
    assert verdict_of("fp8@channel-dynamic:dense", 86, other) == ("weight-only", "MarlinFP8ScaledMMLinearKernel")


PER_QUANT = "config.kernel_config.linear_backend_per_quant."


@pytest.mark.parametrize(
    ("scheme", "key", "backend", "sm", "verdict", "route"),
    [
        ("mxfp4@w4a4:dense", "mxfp4", "humming", 120, "native", "HummingMxFp4LinearKernel"),
        ("nvfp4@w4a4:dense", "nvfp4_w4a4", "humming", 121, "native", "HummingNvFp4LinearKernel"),
        ("mxfp8@w8a8:dense", "mxfp8", "humming", 120, "native", "HummingMxfp8LinearKernel"),
        ("mxfp8@w8a8:dense", "mxfp8", "humming", 100, "weight-only", "HummingMxfp8LinearKernel"),
        ("mxfp8@w8a8:dense", "mxfp8", "b12x", 120, "unsupported", None),
        ("mxfp8@w8a8:dense", "mxfp8", "torch", 100, "unknown", "TorchMxFp8LinearKernel"),
        ("int8@w8a8:dense", "int8_w8a8", "triton", 120, "native", "TritonInt8ScaledMMLinearKernel"),
        ("int8@w8a8:dense", "int8_w8a8", "triton", 75, "broken", "TritonInt8ScaledMMLinearKernel"),
        ("fp8-block@block128:dense", "fp8_block_w8a8", "triton", 89, "native", "TritonFp8BlockScaledMMKernel"),
        ("fp8-block@block128:dense", "fp8_block_w8a8", "triton", 86, "broken", "TritonFp8BlockScaledMMKernel"),
        ("fp8-block@block128:dense", "fp8_block_w8a8", "cutlass", 90, "native", "CutlassFp8BlockScaledMMKernel"),
        ("fp8@channel-dynamic:dense", "fp8_w8a8", "torch", 89, "native", "ChannelWiseTorchFP8ScaledMMLinearKernel"),
        ("fp8@tensor-static:dense", "fp8_w8a8", "torch", 89, "native", "PerTensorTorchFP8ScaledMMLinearKernel"),
        # A backend that has no kernel on a ladder leaves the ladder as it is, MXFP6's too.
        ("mxfp6@w6a6:dense", "mxfp6", "marlin", 120, "mixed", "HummingMxFp6LinearKernel"),
        ("fp8@w8a16:dense", "w8a16_fp8", "cutlass", 120, "weight-only", "HummingFP8ScaledMMLinearKernel"),
        ("int4@w4a16:dense", "mixed_precision", "exllama", 120, "unsupported", None),
    ],
)
def test_a_named_backend(*, scheme: str, key: str, backend: str, sm: int, verdict: str, route: str | None) -> None:
    assert verdict_of(scheme, sm, {**NO_TOOLKIT, f"{PER_QUANT}{key}": backend}) == (verdict, route)


@pytest.mark.parametrize(
    ("scheme", "shape", "sm", "verdict"),
    [
        ("nvfp4@w4a4:dense", {"workload.k": 100}, 100, "broken"),
        ("nvfp4@w4a4:dense", {"workload.k": 100}, 120, "broken"),
        ("nvfp4@w4a4:dense", {"workload.k": 112}, 120, "native"),
        # 18944 features over 8 ranks.
        ("fp8-block@block128:dense", {"workload.k": 2368}, 90, "broken"),
        ("fp8-block@block128:dense", {"workload.k": 2368}, 120, "broken"),
        ("fp8-block@block128:dense", {"workload.k": 2432}, 120, "native"),
        ("fp8-block@block128:dense", {"workload.n": 4100}, 120, "broken"),
    ],
)
def test_a_quantizer_refuses_shapes_that_the_selector_takes(
    *, scheme: str, shape: Mapping[str, Value], sm: int, verdict: str
) -> None:
    backend = {f"{PER_QUANT}nvfp4_w4a4": "cutlass", f"{PER_QUANT}fp8_block_w8a8": "cutlass"}
    assert verdict_of(scheme, sm, {**NO_TOOLKIT, **backend, **shape})[0] == verdict


@pytest.mark.parametrize("sm", [89, 90, 120])
def test_no_backend_makes_a_block_fp8_layer_native_whose_k_is_not_whole_groups(sm: int) -> None:
    for backend in ("cutlass", "triton", "torch"):
        facts = {**NO_TOOLKIT, f"{PER_QUANT}fp8_block_w8a8": backend, "workload.k": 2368}
        assert verdict_of("fp8-block@block128:dense", sm, facts)[0] != "native"


def test_disabled_kernels_are_passed_over() -> None:
    disabled = frozenset({"FlashInferMxFp4LinearKernel", "MarlinMxFp4LinearKernel"})
    facts: Mapping[str, Value | None] = {**TOOLKIT_ON_HOST, "env.VLLM_DISABLED_KERNELS": disabled}
    assert verdict_of("mxfp4@w4a4:dense", 120, facts) == ("native", "HummingMxFp4LinearKernel")


def test_batch_invariance() -> None:
    facts: Mapping[str, Value | None] = {**NO_TOOLKIT, "env.VLLM_BATCH_INVARIANT": True}
    assert verdict_of("nvfp4@w4a4:dense", 120, facts) == ("native", "CutlassNvFp4LinearKernel")
    assert verdict_of("nvfp4@w4a4:dense", 90, facts) == ("emulated", "EmulationNvFp4LinearKernel")
    assert verdict_of("nvfp4@w4a16:dense", 120, facts) == ("unsupported", None)
    assert verdict_of("fp8-block@block128:dense", 89, facts) == ("weight-only", "HummingFP8ScaledMMLinearKernel")
    assert verdict_of("int4@w4a16:dense", 120, facts) == ("weight-only", "dequantize + batch-invariant matmul")


@pytest.mark.parametrize(
    ("scheme", "value", "sm", "verdict"),
    [
        ("int4@w4a16:dense", "int8", 80, "mixed"),
        ("int4@w4a16:dense", "fp8", 120, "mixed"),
        ("int4@w4a16:dense", "fp8", 89, "mixed"),
        ("int4@w4a16:dense", "fp8", 100, "broken"),
        ("int8@w8a16:dense", "int8", 80, "broken"),
        ("int4@awq:dense", "int8", 80, "broken"),
    ],
)
def test_the_input_dtype_of_marlin(scheme: str, value: str, sm: int, verdict: str) -> None:
    facts = {**NO_TOOLKIT, "env.VLLM_MARLIN_INPUT_DTYPE": value}
    assert verdict_of(scheme, sm, facts) == (verdict, "MarlinLinearKernel")


NVCC_OF_THE_WHEEL: Mapping[str, Value | None] = {
    **NO_TOOLKIT,
    "env.CUDA_HOME": "{site_packages}/nvidia/cu13",
    "env.PATH": "{env_bin}:{PATH}",
}


def test_the_nvcc_wheel_serves_kernels_that_need_no_linker() -> None:
    assert verdict_of("mxfp4@w4a4:dense", 100, NVCC_OF_THE_WHEEL) == ("native", "FlashInferMxFp4LinearKernel")
    assert verdict_of("mxfp8@w8a8:dense", 103, NVCC_OF_THE_WHEEL) == ("native", "FlashInferCutedslMxfp8LinearKernel")
    deepgemm = "DeepGemmFp8BlockScaledMMKernel"
    assert verdict_of("fp8-block@block128:dense", 120, {**NVCC_OF_THE_WHEEL, "host.cxx": True}) == ("native", deepgemm)
    # nvcc calls gcc even where it makes a cubin alone.
    assert verdict_of("fp8-block@block128:dense", 120, NVCC_OF_THE_WHEEL) == ("broken", deepgemm)


def test_the_nvcc_wheel_alone_breaks_kernels_that_flashinfer_links() -> None:
    """It makes vLLM pick FlashInfer, whose link step wants a libcudart.so that no wheel has."""
    assert verdict_of("fp8@tensor-static:dense", 120, NVCC_OF_THE_WHEEL)[0] == "broken"
    linkable = {**NVCC_OF_THE_WHEEL, "host.linkable-cudart": True, "host.cxx": True}
    assert verdict_of("fp8@tensor-static:dense", 120, linkable) == ("native", "FlashInferFP8ScaledMMLinearKernel")


@pytest.mark.parametrize(
    ("sm", "nvcc", "verdict"),
    [
        (100, "12.8", "native"),
        (100, "12.6", "broken"),
        (103, "12.8", "broken"),
        (103, "12.9", "native"),
        (110, "12.9", "broken"),
        (110, "13.0", "native"),
        (120, "12.8", "native"),
        (121, "12.8", "broken"),
        (121, "12.9", "native"),
    ],
)
def test_the_hosts_nvcc_must_know_the_gpu(sm: int, nvcc: str, verdict: str) -> None:
    facts: Mapping[str, Value | None] = {**TOOLKIT_ON_HOST, "host.nvcc": nvcc}
    assert verdict_of("fp8@tensor-static:dense", sm, facts) == (verdict, "FlashInferFP8ScaledMMLinearKernel")


@pytest.mark.parametrize("sm", [100, 120])
def test_flashinfer_cannot_build_without_a_cxx_compiler(sm: int) -> None:
    """c++ links what ninja builds, and nvcc starts gcc."""
    assert verdict_of("fp8@tensor-static:dense", sm, TOOLKIT_ON_HOST)[0] == "native"
    assert verdict_of("fp8@tensor-static:dense", sm, {**TOOLKIT_ON_HOST, "host.cxx": False})[0] == "broken"


def test_flashinfers_b12x_kernel_wants_cuda_12_9() -> None:
    key = f"{PER_QUANT}nvfp4_w4a4"
    for nvcc, verdict in (("12.8", "broken"), ("12.9", "native")):
        facts: Mapping[str, Value | None] = {"host.nvcc": nvcc, "host.ninja": True, key: "flashinfer_b12x"}
        assert verdict_of("nvfp4@w4a4:dense", 120, facts) == (verdict, "FlashInferB12xNvFp4LinearKernel")


def test_without_a_toolkit_cutlass_serves_block_fp8_where_deepgemm_would_be_picked() -> None:
    for facts in (
        {**NO_TOOLKIT, f"{PER_QUANT}fp8_block_w8a8": "cutlass"},
        {**NO_TOOLKIT, "env.VLLM_USE_DEEP_GEMM": "0"},
    ):
        assert verdict_of("fp8-block@block128:dense", 120, facts) == ("native", "CutlassFp8BlockScaledMMKernel")


def test_deepgemm_wants_cuda_12_9() -> None:
    for nvcc, verdict in (("12.8", "broken"), ("12.9", "native")):
        facts: Mapping[str, Value | None] = {"host.nvcc": nvcc, "host.ninja": False, "host.cxx": True}
        assert verdict_of("fp8-block@block128:dense", 90, facts) == (verdict, "DeepGemmFp8BlockScaledMMKernel")


def test_deepgemm_is_left_out_for_models_that_vllm_excludes() -> None:
    facts: Mapping[str, Value | None] = {**TOOLKIT_ON_HOST, "workload.model-type": "qwen3_5_text"}
    assert verdict_of("fp8-block@block128:dense", 120, facts) == ("native", "CutlassFp8BlockScaledMMKernel")
    assert verdict_of("fp8-block@block128:dense", 90, facts)[1] == "FlashInferFp8DeepGEMMDynamicBlockScaledKernel"


def test_int8_of_an_odd_shape_leaves_cutlass() -> None:
    assert verdict_of("int8@w8a8:dense", 120, NO_TOOLKIT) == ("broken", "CutlassInt8ScaledMMLinearKernel")
    odd: Mapping[str, Value | None] = {**NO_TOOLKIT, "workload.n": 4090}
    assert verdict_of("int8@w8a8:dense", 120, odd) == ("native", "CutlassInt8ScaledMMLinearKernel")


# ---------------------------------------------------------------- the CUDA of the build


def condition_holds(identifier: str, sm: int, cuda: str) -> bool:
    table = table_for("fp8@channel-dynamic:dense", sm, {"build.cuda": cuda, "runtime.cudart": cuda})
    return decide(engine().conditions[identifier], answer_from(table))


FP8 = "vllm.cutlass-supports-fp8"
BLOCK_FP8 = "vllm.cutlass-supports-block-fp8"
GROUPED = "vllm.cutlass-group-gemm-supported"
FP4 = "vllm.cutlass-supports-fp4"


@pytest.mark.parametrize(
    ("sm", "cuda", "held"),
    [
        (100, "12.6", {FP8}),
        (100, "12.8", {FP8, BLOCK_FP8, GROUPED, FP4}),
        (90, "11.8", set()),
        (90, "12.0", {FP8, BLOCK_FP8}),
        (90, "12.2", {FP8, BLOCK_FP8}),
        (90, "12.3", {FP8, BLOCK_FP8, GROUPED}),
        (89, "12.3", set()),
        (89, "12.4", {FP8}),
        (120, "12.8", {FP8, BLOCK_FP8, FP4}),
        (110, "13.0", {FP8, BLOCK_FP8, FP4}),
    ],
)
def test_what_a_build_for_a_cuda_release_tells_its_selectors(sm: int, cuda: str, held: set[str]) -> None:
    asked = (FP8, BLOCK_FP8, GROUPED, FP4)
    assert {identifier for identifier in asked if condition_holds(identifier, sm, cuda)} == held


def test_a_predicate_that_says_yes_does_not_make_the_kernel() -> None:
    """On a B200 a build for CUDA 12.6 reports FP8, picks CUTLASS, and has no kernel for it."""
    facts: Mapping[str, Value | None] = {**NO_TOOLKIT, "build.cuda": "12.6", "runtime.cudart": "12.6"}
    found = outcome("fp8@channel-dynamic:dense", table_for("fp8@channel-dynamic:dense", 100, facts))
    assert (found.verdict, found.gate) == ("broken", "built")
    facts = {**NO_TOOLKIT, "build.cuda": "12.8", "runtime.cudart": "12.8"}
    assert verdict_of("fp8@channel-dynamic:dense", 100, facts)[0] == "native"
