"""SGLang: what its selectors come to on each GPU, with and without a toolkit, and what its kernel wheel holds."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

import pytest

from qresolve.cli.main import main
from qresolve.completions import answer_from
from qresolve.engine_flags import read_engine_flags, render_flags
from qresolve.gates import decide
from qresolve.knowledge.engine import engine_names, load_engine, read_releases
from qresolve.measured import images_for, versions_of
from qresolve.selector import select
from qresolve.setting import Setting
from qresolve.wheels.index import images_of, read_wheel_index
from tests.knowledge_support import ARCHS, NO_TOOLKIT, derive_from_images, engine, outcome, route_name, table_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from qresolve.facts import Fact, Value
    from qresolve.selector import Outcome

NAME = "sglang"
TOOLKIT: Mapping[str, Value | None] = {"host.nvcc": "13.0", "host.ninja": True, "host.cxx": True}
"""A host with CUDA 13.0, ninja and a C++ compiler: SGLang's and FlashInfer's run-time compilers work."""

WHEEL_TOOLKIT: Mapping[str, Value | None] = {**NO_TOOLKIT, "env.CUDA_HOME": "{site_packages}/nvidia/cu13"}
"""A bare host, and CUDA_HOME at the nvcc wheel: DeepGEMM can be imported, nothing can be linked."""


@cache
def measured(sm: int, machine: str) -> Callable[[str], Fact | None]:
    return derive_from_images(images_for(versions_of(engine(NAME)), machine), sm)


def found_for(
    scheme: str, sm: int, facts: Mapping[str, Value | None] = TOOLKIT, *, machine: str | None = None
) -> Outcome:
    """The outcome; with ``machine`` on the images that were measured, else every image loads."""
    if machine is None:
        return outcome(scheme, table_for(scheme, sm, facts, name=NAME), name=NAME)
    return outcome(scheme, table_for(scheme, sm, facts, name=NAME, derive=measured(sm, machine)), name=NAME)


def verdict_of(
    scheme: str, sm: int, facts: Mapping[str, Value | None] = TOOLKIT, *, machine: str | None = None
) -> tuple[str, str | None]:
    found = found_for(scheme, sm, facts, machine=machine)
    return found.verdict, route_name(found, name=NAME)


def test_vllm_stays_the_default_engine() -> None:
    assert engine_names()[:2] == ("vllm", NAME)


FP8 = "fp8@channel-dynamic:dense"
BLOCK = "fp8-block@block128:dense"
NVFP4 = "nvfp4@w4a4:dense"
MARLIN_FP4 = "apply_fp4_marlin_linear"


@pytest.mark.parametrize(
    ("scheme", "sm", "verdict", "route"),
    [
        # Marlin starts at sm80 here (at sm75 in vLLM).
        (FP8, 75, "unsupported", None),
        (FP8, 86, "weight-only", "apply_fp8_marlin_linear"),
        (FP8, 89, "native", "fp8_scaled_mm"),
        (FP8, 90, "native", "fp8_scaled_mm"),
        (FP8, 100, "native", "fp8_scaled_mm"),
        ("fp8@tensor-static:dense", 90, "native", "torch._scaled_mm per tensor"),
        ("fp8@w8a16:dense", 75, "unsupported", None),
        ("fp8@w8a16:dense", 120, "weight-only", "apply_fp8_marlin_linear"),
        (BLOCK, 86, "unsupported", None),
        (BLOCK, 89, "native", "w8a8_block_fp8_matmul_triton"),
        (BLOCK, 90, "native", "w8a8_block_fp8_matmul_deepgemm"),
        (BLOCK, 103, "native", "w8a8_block_fp8_matmul_deepgemm"),
        # auto is rewritten before the dispatch: CUTLASS on sm12x, Triton on sm110.
        (BLOCK, 110, "unknown", "w8a8_block_fp8_matmul_triton"),
        (BLOCK, 120, "native", "fp8_blockwise_scaled_mm"),
        (BLOCK, 121, "native", "fp8_blockwise_scaled_mm"),
        (NVFP4, 75, "unsupported", None),
        (NVFP4, 80, "weight-only", MARLIN_FP4),
        (NVFP4, 90, "weight-only", MARLIN_FP4),
        (NVFP4, 100, "native", "mm_fp4 (cute-dsl)"),
        (NVFP4, 110, "native", "mm_fp4 (cutlass)"),
        (NVFP4, 120, "native", "mm_fp4 (cutlass)"),
        (NVFP4, 121, "native", "mm_fp4 (cutlass)"),
        ("nvfp4@w4a16:dense", 100, "weight-only", "mm_bf16_fp4"),
        ("nvfp4@w4a16:dense", 120, "weight-only", MARLIN_FP4),
        ("int8@w8a8:dense", 75, "unsupported", None),
        ("int8@w8a8:dense", 90, "native", "int8_scaled_mm"),
        ("int8@w8a8:dense", 100, "broken", "int8_scaled_mm"),
        ("int8@w8a8:dense", 120, "broken", "int8_scaled_mm"),
        ("int4@w4a16:dense", 75, "unsupported", None),
        ("int4@w4a16:dense", 80, "weight-only", "gptq_marlin_gemm"),
        ("int4@awq:dense", 121, "weight-only", "gptq_marlin_gemm"),
        # compressed-tensors has no MXFP8 here.
        ("mxfp8@w8a8:dense", 120, "unsupported", None),
    ],
)
def test_auto_with_a_toolkit(scheme: str, sm: int, verdict: str, route: str | None) -> None:
    assert verdict_of(scheme, sm) == (verdict, route)


def test_dense_mxfp4_has_no_route() -> None:
    assert engine(NAME).ladder_for("mxfp4@w4a4:dense") is None
    assert engine(NAME).ladder_for("mxfp4@w4a16:dense") is None


@pytest.mark.parametrize(
    ("machine", "sm", "fp8"),
    [
        ("x86_64", 89, "native"),
        ("x86_64", 90, "native"),
        ("x86_64", 103, "native"),
        # sm_120a runs on sm120 alone, and there is no PTX: torch's CUDA and the major let sm121 through.
        ("x86_64", 120, "native"),
        ("x86_64", 121, "broken"),
        ("x86_64", 110, "broken"),
        # The aarch64 wheel has sm_90 and no sm_90a, so its sm90 kernels hold no tensor-core instruction.
        ("aarch64", 90, "broken"),
        ("aarch64", 110, "native"),
        ("aarch64", 121, "native"),
        ("aarch64", 89, "broken"),
    ],
)
def test_the_kernel_wheel_decides_fp8(machine: str, sm: int, fp8: str) -> None:
    assert verdict_of(FP8, sm, machine=machine) == (fp8, "fp8_scaled_mm")


def test_int8_of_the_kernel_wheel() -> None:
    assert verdict_of("int8@w8a8:dense", 90, machine="x86_64")[0] == "native"
    assert verdict_of("int8@w8a8:dense", 90, machine="aarch64")[0] == "broken"
    assert verdict_of("int8@w8a8:dense", 86, machine="x86_64")[0] == "native"


def test_a_stripped_library_is_asked_as_a_whole() -> None:
    [row] = [
        row
        for row in read_wheel_index("sglang-kernel")
        if row.version == "0.4.10" and row.filename.endswith("x86_64.whl")
    ]
    path = "sgl_kernel/sm100/common_ops.abi3.so"
    every = images_of(row, path, "*")
    assert every is not None
    assert {str(image) for image in every} == {"sm_80", "sm_89", "sm_90", "sm_90a", "sm_100f", "sm_120a"}
    specific = images_of(row, path, "*.specific")
    assert specific is not None
    assert {str(image) for image in specific} == {"sm_90a", "sm_100f", "sm_120a"}
    assert images_of(row, path, "fp8_gemm_kernel") is None  # without names it is not known which unit it is


def test_one_stem_in_two_folders_is_told_apart() -> None:
    images = images_for({"sglang-kernel": "0.4.10"}, "x86_64")
    assert images("sglang-kernel", "sm90", "common_ops/*")
    assert images("sglang-kernel", "sm80", "common_ops/*") is None
    assert images("sglang-kernel", "flash_ops", "*") is None  # left out for its size
    assert images("other", "sm90", "common_ops/*") is None


@pytest.mark.parametrize("scheme", [FP8, BLOCK, "int4@w4a16:dense", "fp8@channel-dynamic:moe"])
@pytest.mark.parametrize("sm", [sm for sm in ARCHS if sm >= 90])
def test_without_a_linkable_toolkit_what_the_jit_builds_is_broken(scheme: str, sm: int) -> None:
    for facts in (NO_TOOLKIT, WHEEL_TOOLKIT):
        assert found_for(scheme, sm, facts).verdict == "broken"


def test_from_sm90_on_deepgemm_wants_a_cuda_home_even_where_the_jit_could_link() -> None:
    known = engine(NAME).conditions["sglang.imports-deepgemm"].expression
    linkable = {**NO_TOOLKIT, "host.linkable-cudart": True}
    for sm, facts, imports in (
        (89, linkable, True),
        (90, linkable, False),
        (120, {**linkable, "env.SGLANG_ENABLE_JIT_DEEPGEMM": False}, True),
        (120, {**linkable, "env.CUDA_HOME": "{site_packages}/nvidia/cu13"}, True),
    ):
        assert decide(known, answer_from(table_for(FP8, sm, facts, name=NAME))) is imports


@pytest.mark.parametrize(("scheme", "sm"), [(NVFP4, 100), ("int8@w8a8:dense", 86), ("int8@w8a8:dense", 90)])
def test_no_model_is_served_without_sglangs_jit(scheme: str, sm: int) -> None:
    assert found_for(scheme, sm).verdict == "native"
    for facts in (NO_TOOLKIT, WHEEL_TOOLKIT):
        found = found_for(scheme, sm, facts)
        assert (found.verdict, found.gate) == ("broken", "serves")
    linkable = {**WHEEL_TOOLKIT, "host.linkable-cudart": True, "host.ninja": True, "host.cxx": True}
    assert found_for(scheme, sm, linkable).verdict == "native"
    without = found_for(scheme, sm, {**TOOLKIT, "host.cxx": False})
    assert (without.verdict, without.gate) == ("broken", "serves")


def test_predicates_read_torchs_cuda() -> None:
    old = {**TOOLKIT, "runtime.cudart": "12.6"}
    assert verdict_of(BLOCK, 120, old)[1] != "fp8_blockwise_scaled_mm"
    # compressed-tensors looks at the compute capability alone; ModelOpt at torch's CUDA too.
    assert verdict_of(NVFP4, 120, old) == ("broken", "mm_fp4 (cutlass)")
    assert verdict_of(NVFP4, 120, {**old, "workload.quantizer": "modelopt"}) == ("unsupported", None)
    assert (
        verdict_of(FP8, 89, {**TOOLKIT, "runtime.cudart": "12.2"})[1]
        == "torch._scaled_mm, scales applied to its result"
    )


@pytest.mark.parametrize(
    ("backend", "sm", "verdict", "route"),
    [
        ("cutlass", 90, "unsupported", None),
        ("cutlass", 121, "native", "fp8_blockwise_scaled_mm"),
        ("flashinfer_trtllm", 120, "unsupported", None),
        ("flashinfer_cutlass", 90, "unsupported", None),
        ("flashinfer_cutlass", 120, "native", "gemm_fp8_nt_groupwise (cutlass)"),
        ("flashinfer_cutlass", 110, "broken", "gemm_fp8_nt_groupwise (cutlass)"),
        ("flashinfer_deepgemm", 90, "native", "fp8_blockscale_gemm_sm90"),
        ("flashinfer_deepgemm", 100, "unsupported", None),
        ("deep_gemm", 89, "unsupported", None),
        ("deep_gemm", 120, "unknown", "w8a8_block_fp8_matmul_deepgemm"),
        ("deep_gemm", 110, "broken", "w8a8_block_fp8_matmul_deepgemm"),
        ("triton", 120, "native", "w8a8_block_fp8_matmul_triton"),
    ],
)
def test_a_named_fp8_backend_raises_where_auto_goes_on(backend: str, sm: int, verdict: str, route: str | None) -> None:
    facts = {**TOOLKIT, "config.fp8_gemm_runner_backend": backend}
    assert verdict_of(BLOCK, sm, facts) == (verdict, route)


@pytest.mark.parametrize(
    ("backend", "sm", "verdict", "route"),
    [
        ("marlin", 120, "weight-only", MARLIN_FP4),
        ("flashinfer_cutlass", 90, "weight-only", MARLIN_FP4),  # a warning, once
        ("flashinfer_cutedsl", 90, "unsupported", None),
        ("flashinfer_cutlass", 100, "native", "mm_fp4 (cutlass)"),
        ("flashinfer_trtllm", 120, "broken", "mm_fp4 (trtllm)"),
    ],
)
def test_a_named_fp4_backend(backend: str, sm: int, verdict: str, route: str | None) -> None:
    assert verdict_of(NVFP4, sm, {**TOOLKIT, "config.fp4_gemm_runner_backend": backend}) == (verdict, route)


def test_an_odd_shape_leaves_deepgemm_and_cutlass_for_triton() -> None:
    odd = {**TOOLKIT, "workload.n": 4096 + 32}
    assert verdict_of(BLOCK, 100, odd)[1] == "w8a8_block_fp8_matmul_triton"
    assert verdict_of(BLOCK, 120, odd) == ("native", "w8a8_block_fp8_matmul_triton")


def test_without_deepgemm_blackwell_takes_flashinfer_and_hopper_triton() -> None:
    off = {**TOOLKIT, "env.SGLANG_ENABLE_JIT_DEEPGEMM": False}
    assert verdict_of(BLOCK, 100, off)[1] == "gemm_fp8_nt_groupwise (trtllm)"
    assert verdict_of(BLOCK, 90, off)[1] == "w8a8_block_fp8_matmul_triton"


def test_the_fp8_method_has_marlin_below_sm89_and_by_force() -> None:
    own = {**TOOLKIT, "workload.quantizer": "fp8"}
    assert verdict_of(BLOCK, 86, own) == ("weight-only", "apply_fp8_marlin_linear")
    assert verdict_of(BLOCK, 90, {**own, "env.SGLANG_FORCE_FP8_MARLIN": True})[0] == "weight-only"
    assert verdict_of("fp8@tensor-static:dense", 90, own)[1] == "fp8_scaled_mm"  # one scale becomes one a channel
    assert verdict_of("fp8@tensor-static:dense", 120, own)[1] == "torch._scaled_mm per tensor"
    assert verdict_of("fp8@tensor-static:dense", 120, {**own, "env.SGLANG_FORCE_FP8_MARLIN": True})[0] == "weight-only"


def test_mxfp8_of_sglangs_own_method() -> None:
    own = {**TOOLKIT, "workload.quantizer": "fp8"}
    assert verdict_of("mxfp8@w8a8:dense", 100, own) == ("native", "mm_mxfp8 (cute-dsl)")
    assert verdict_of("mxfp8@w8a8:dense", 120, own) == ("unknown", "mm_mxfp8 (cutlass)")
    assert verdict_of("mxfp8@w8a8:dense", 90, own) == ("unsupported", None)


@pytest.mark.parametrize("quantizer", ["quark", "awq", "online", "modelopt"])
def test_a_method_that_was_not_read_is_unknown(quantizer: str) -> None:
    facts = {**TOOLKIT, "workload.quantizer": quantizer}
    assert found_for(FP8, 90, facts).verdict == "unknown"
    assert found_for("fp8@channel-dynamic:moe", 120, facts).verdict == "unknown"


@pytest.mark.parametrize(
    ("scheme", "sm", "verdict"),
    [
        ("nvfp4@w4a4:moe", 75, "broken"),
        ("nvfp4@w4a4:moe", 90, "weight-only"),
        ("nvfp4@w4a4:moe", 120, "native"),
        ("nvfp4@w4a16:moe", 100, "weight-only"),
        ("fp8@channel-dynamic:moe", 86, "broken"),
        ("fp8@channel-dynamic:moe", 90, "unknown"),
        ("fp8@channel-dynamic:moe", 120, "native"),
        ("int4@w4a16:moe", 75, "broken"),
        ("int4@w4a16:moe", 100, "weight-only"),
        ("mxfp4@gpt-oss:moe", 75, "unsupported"),
        ("mxfp4@gpt-oss:moe", 90, "weight-only"),
        ("mxfp4@gpt-oss:moe", 120, "unknown"),
        ("mxfp8@w8a8:moe", 100, "unknown"),
    ],
)
def test_experts(scheme: str, sm: int, verdict: str) -> None:
    assert found_for(scheme, sm).verdict == verdict


def test_gpt_oss_experts_under_expert_parallelism_are_upcast() -> None:
    assert verdict_of("mxfp4@gpt-oss:moe", 90, {**TOOLKIT, "workload.ep": 2}) == ("emulated", "weights upcast to bf16")


def test_marlin_for_gpt_oss_starts_at_sm90_and_leaves_out_sm110() -> None:
    for sm, verdict in ((89, "unsupported"), (90, "weight-only"), (110, "unsupported"), (121, "weight-only")):
        assert found_for("mxfp4@gpt-oss:moe", sm, {**TOOLKIT, "config.moe_runner_backend": "marlin"}).verdict == verdict


def test_nvfp4_kv_wants_sm100_or_sm120_and_a_torch_with_the_type() -> None:
    cubins = {**TOOLKIT, "host.nvidia-artifactory": True}
    assert found_for("nvfp4@nvfp4:kv", 100, cubins).verdict == "native"
    assert found_for("nvfp4@nvfp4:kv", 121, cubins).verdict == "storage-only"
    for sm in (90, 110):
        assert found_for("nvfp4@nvfp4:kv", sm, cubins).verdict == "unsupported"
    assert found_for("nvfp4@nvfp4:kv", 100, {**cubins, "package.torch": "2.7.1"}).verdict == "unsupported"
    assert found_for("nvfp4@nvfp4:kv", 100, {**cubins, "host.nvidia-artifactory": False}).verdict == "broken"


def test_fp8_kv_by_the_default_attention_backend() -> None:
    cubins = {**TOOLKIT, "host.nvidia-artifactory": True}
    assert verdict_of("fp8@e4m3:kv", 90, cubins) == ("unknown", "fa3")
    assert verdict_of("fp8@e5m2:kv", 90, cubins)[1] == "triton"
    assert verdict_of("fp8@e4m3:kv", 100, cubins) == ("native", "trtllm_mha")
    assert verdict_of("fp8@e4m3:kv", 120, cubins) == ("storage-only", "flashinfer")
    assert verdict_of("fp8@e4m3:kv", 120, {**cubins, "workload.sinks": True})[1] == "triton"


def test_options_of_the_server() -> None:
    flags = read_engine_flags(NAME)
    keys = ("fp8_gemm_runner_backend", "fp4_gemm_runner_backend", "moe_runner_backend", "attention_backend")
    rendered = render_flags([Setting(path=key, value="triton") for key in keys], flags)
    assert rendered[::2] == ("--fp8-gemm-backend", "--fp4-gemm-backend", "--moe-runner-backend", "--attention-backend")
    known = load_engine(NAME).vocabulary
    for flag in flags.flags:
        if flag.selects_kernels:
            assert known.get(f"config.{'.'.join(flag.root)}") is not None


def test_every_known_release_is_cuda_13() -> None:
    for release in read_releases(NAME):
        assert release.cuda.startswith("13.")
        assert release.requires_python.contains("3.12")


def test_explain_says_which_toolkit_of_the_host_would_do_and_keeps_the_engine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["explain", "--engine", NAME, "--gpu", "sm90", "--formats", "fp8", "--json"]
    main(asked)
    row = next(item for item in json.loads(capsys.readouterr().out)["formats"] if item["asked"])
    assert row["verdict"] == "unknown"
    run = row["remedy"][0]["run"]
    assert "--engine sglang" in run
    assert run.endswith("--nvcc 13.0 --assume host.cxx=true")
    assert main([*asked, "--nvcc", "13.0"]) == 7
    row = next(item for item in json.loads(capsys.readouterr().out)["formats"] if item["asked"])
    assert (row["verdict"], set(row["possible"])) == ("unknown", {"native", "broken"})
    assert row["remedy"][0]["run"].endswith("--assume host.cxx=true")
    assert main([*asked, "--nvcc", "13.0", "--assume", "host.cxx=true"]) == 0
    row = next(item for item in json.loads(capsys.readouterr().out)["formats"] if item["asked"])
    assert (row["verdict"], row["auto"]["verdict"]) == ("native", "broken")
    assert {"env": "PATH", "value": "{env_bin}:{PATH}"} in row["settings"]


def test_0_5_22_has_no_weight_only_path_for_a_named_marlin_on_blackwell() -> None:
    known = engine(NAME, "0.5.22")
    named = {**TOOLKIT, "config.fp4_gemm_runner_backend": "marlin"}

    def verdict(sm: int) -> str:
        table = table_for(NVFP4, sm, named, name=NAME)
        return select(known.ladders[NVFP4], dict(known.routes), answer_from(table)).verdict

    assert [verdict(sm) for sm in (75, 90, 100, 120)] == ["unsupported", "weight-only", "broken", "broken"]
