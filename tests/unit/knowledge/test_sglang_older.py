"""SGLang before 0.5.22: what its selectors did otherwise."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

from qresolve.completions import answer_from
from qresolve.facts import ABSENT
from qresolve.gates import decide
from qresolve.knowledge.engine import load_engine, read_releases
from qresolve.measured import images_for, versions_of
from qresolve.selector import select
from tests.knowledge_support import NO_TOOLKIT, derive_from_images, every_image_loads, table_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from qresolve.facts import Fact, FactTable, Value
    from qresolve.knowledge.records import Engine

NAME = "sglang"
OLDER = ("0.5.21", "0.5.20", "0.5.19")
SINCE_0_5_22 = ("0.5.22", "0.5.23")
TOOLKIT: Mapping[str, Value | None] = {"host.nvcc": "13.0", "host.ninja": True, "host.cxx": True}

FP8 = "fp8@channel-dynamic:dense"
BLOCK = "fp8-block@block128:dense"
NVFP4 = "nvfp4@w4a4:dense"

older = pytest.mark.parametrize("version", OLDER)


@cache
def known(version: str) -> Engine:
    return load_engine(NAME, version)


def facts_for(
    version: str, scheme: str, sm: int, facts: Mapping[str, Value | None] = TOOLKIT, *, machine: str | None = None
) -> FactTable:
    """The facts of one GPU with what that release pins; with ``machine`` on the images of its kernel wheel."""
    pinned: dict[str, Value | None] = {f"package.{pin.package}": pin.version for pin in known(version).release.pins}
    derive: Callable[[str], Fact | None] = every_image_loads
    if machine is not None:
        derive = derive_from_images(images_for(versions_of(known(version)), machine), sm)
    return table_for(scheme, sm, {**pinned, **facts}, name=NAME, derive=derive)


def verdict_of(
    version: str, scheme: str, sm: int, facts: Mapping[str, Value | None] = TOOLKIT, *, machine: str | None = None
) -> tuple[str, str | None]:
    engine = known(version)
    found = select(
        engine.ladders[scheme], dict(engine.routes), answer_from(facts_for(version, scheme, sm, facts, machine=machine))
    )
    return found.verdict, None if found.route is None else engine.routes[found.route].name


def test_the_releases_are_known_newest_first() -> None:
    versions = [release.version for release in read_releases(NAME)]
    assert versions == [*reversed(SINCE_0_5_22), *OLDER]


@older
def test_what_a_release_pins(version: str) -> None:
    pinned = {pin.package: pin.version for pin in known(version).release.pins}
    assert (pinned["torch"], pinned["triton"], pinned["flashinfer-python"]) == ("2.13.0", "3.7.1", "0.6.18")
    assert known(version).release.requires_python.contains("3.10")
    assert pinned["sglang-kernel"] == {"0.5.21": "0.4.7", "0.5.20": "0.4.7", "0.5.19": "0.4.6.post1"}[version]
    assert pinned["sgl-deep-gemm"] == {"0.5.21": "0.2.0", "0.5.20": "0.2.0", "0.5.19": "0.1.7"}[version]


@older
@pytest.mark.parametrize("sm", [75, 80, 89, 90])
def test_compressed_tensors_has_no_nvfp4_below_blackwell(version: str, sm: int) -> None:
    assert verdict_of(version, NVFP4, sm) == ("unsupported", None)
    named = {**TOOLKIT, "config.fp4_gemm_runner_backend": "marlin"}
    assert verdict_of(version, NVFP4, sm, named) == ("unsupported", None)
    assert verdict_of(version, "nvfp4@w4a4:moe", sm) == ("unsupported", None)


@older
def test_modelopt_has_marlin_below_blackwell_and_by_name(version: str) -> None:
    modelopt = {**TOOLKIT, "workload.quantizer": "modelopt"}
    assert verdict_of(version, NVFP4, 75, modelopt) == ("unsupported", None)
    assert verdict_of(version, NVFP4, 90, modelopt) == ("weight-only", "apply_fp4_marlin_linear")
    named = {"config.fp4_gemm_runner_backend": "marlin"}
    assert verdict_of(version, NVFP4, 120, {**modelopt, **named}) == ("weight-only", "apply_fp4_marlin_linear")
    assert verdict_of(version, NVFP4, 120, {**TOOLKIT, **named}) == ("broken", "apply_fp4_marlin_linear")


@older
def test_nvfp4_on_blackwell_is_what_it_is_now(version: str) -> None:
    assert verdict_of(version, NVFP4, 100) == ("native", "mm_fp4 (cute-dsl)")
    assert verdict_of(version, NVFP4, 110) == ("native", "mm_fp4 (cutlass)")
    assert verdict_of(version, NVFP4, 121) == ("native", "mm_fp4 (cutlass)")
    assert verdict_of(version, "nvfp4@w4a4:moe", 120)[0] == "native"


@older
@pytest.mark.parametrize("sm", [80, 90, 100, 120])
def test_16_bit_activations_came_with_0_5_22(version: str, sm: int) -> None:
    for scheme in ("nvfp4@w4a16:dense", "nvfp4@w4a16:moe", "fp8@w8a16:dense"):
        assert verdict_of(version, scheme, sm) == ("unsupported", None)
        assert all(verdict_of(later, scheme, sm)[0] == "weight-only" for later in SINCE_0_5_22)
    # ModelOpt's method takes 16-bit activations its own way, in every release.
    assert verdict_of(version, "nvfp4@w4a16:dense", sm, {**TOOLKIT, "workload.quantizer": "modelopt"})[0] == "unknown"


@older
def test_sm110_is_given_a_deepgemm_that_has_no_kernel_for_it(version: str) -> None:
    assert verdict_of(version, BLOCK, 110) == ("broken", "w8a8_block_fp8_matmul_deepgemm")
    assert verdict_of("0.5.22", BLOCK, 110)[1] == "w8a8_block_fp8_matmul_triton"
    odd = {**TOOLKIT, "workload.n": 4096 + 32}
    assert verdict_of(version, BLOCK, 110, odd)[1] == "w8a8_block_fp8_matmul_triton"
    named = {**TOOLKIT, "config.fp8_gemm_runner_backend": "triton"}
    assert verdict_of(version, BLOCK, 110, named)[1] == "w8a8_block_fp8_matmul_triton"
    trtllm = {**TOOLKIT, "config.fp8_gemm_runner_backend": "flashinfer_trtllm"}
    assert verdict_of(version, BLOCK, 110, trtllm) == ("unsupported", None)


@older
def test_without_deepgemm_all_of_blackwell_but_sm12x_takes_flashinfer(version: str) -> None:
    off = {**TOOLKIT, "env.SGLANG_ENABLE_JIT_DEEPGEMM": False}
    assert verdict_of(version, BLOCK, 100, off) == ("unknown", "gemm_fp8_nt_groupwise (trtllm)")
    assert verdict_of(version, BLOCK, 110, off) == ("broken", "gemm_fp8_nt_groupwise (trtllm)")
    assert verdict_of(version, BLOCK, 120, off) == ("native", "fp8_blockwise_scaled_mm")
    assert verdict_of(version, BLOCK, 90, off)[1] == "w8a8_block_fp8_matmul_triton"


@older
def test_block_fp8_elsewhere_is_what_it_is_now(version: str) -> None:
    for sm in (75, 86, 89, 90, 103, 121):
        assert verdict_of(version, BLOCK, sm)[1] == verdict_of("0.5.22", BLOCK, sm)[1]
    assert verdict_of(version, BLOCK, 90) == ("native", "w8a8_block_fp8_matmul_deepgemm")


@older
@pytest.mark.parametrize(
    ("machine", "sm", "fp8"),
    [("x86_64", 90, "native"), ("x86_64", 121, "broken"), ("aarch64", 90, "broken"), ("aarch64", 121, "native")],
)
def test_the_images_of_the_kernel_wheel_decide_fp8(version: str, machine: str, sm: int, fp8: str) -> None:
    assert verdict_of(version, FP8, sm, machine=machine) == (fp8, "fp8_scaled_mm")


@older
def test_the_jit_serves_every_model_here_too(version: str) -> None:
    for scheme, sm in ((FP8, 89), (NVFP4, 100), ("int4@w4a16:dense", 80)):
        assert verdict_of(version, scheme, sm, NO_TOOLKIT)[0] == "broken"


def test_0_5_21_leaves_deepgemm_unimported_where_it_is_switched_off() -> None:
    imports = known("0.5.21").conditions["sglang.imports-deepgemm"].expression
    off = {**NO_TOOLKIT, "env.SGLANG_ENABLE_JIT_DEEPGEMM": False}
    assert decide(imports, answer_from(facts_for("0.5.21", FP8, 90, off))) is True
    assert decide(imports, answer_from(facts_for("0.5.21", FP8, 90, NO_TOOLKIT))) is False


@pytest.mark.parametrize("version", OLDER[1:])
def test_up_to_0_5_20_deepgemm_is_imported_even_where_it_is_switched_off(version: str) -> None:
    imports = known(version).conditions["sglang.imports-deepgemm"].expression
    off = {"env.SGLANG_ENABLE_JIT_DEEPGEMM": False}
    for facts, imported in ((NO_TOOLKIT, False), (TOOLKIT, True)):
        assert decide(imports, answer_from(facts_for(version, FP8, 90, {**facts, **off}))) is imported
    linkable = {**NO_TOOLKIT, "host.linkable-cudart": True, **off}
    assert verdict_of(version, FP8, 90, linkable)[0] == "broken"
    assert decide(imports, answer_from(facts_for(version, FP8, 89, NO_TOOLKIT))) is True
    assert decide(imports, answer_from(facts_for(version, FP8, 90, {**NO_TOOLKIT, "package.sgl-deep-gemm": ABSENT})))


NVFP4_KV = "nvfp4@nvfp4:kv"
CUBINS: Mapping[str, Value | None] = {**TOOLKIT, "host.nvidia-artifactory": True}


def test_0_5_21_chooses_the_backends_of_an_nvfp4_cache() -> None:
    assert verdict_of("0.5.21", NVFP4_KV, 100, CUBINS)[0] == "native"
    assert verdict_of("0.5.21", NVFP4_KV, 121, CUBINS)[0] == "storage-only"


@pytest.mark.parametrize("version", OLDER[1:])
def test_up_to_0_5_20_an_nvfp4_cache_wants_two_backends_by_name(version: str) -> None:
    for sm in (100, 120):
        assert verdict_of(version, NVFP4_KV, sm, CUBINS)[0] == "unknown"
    for sm in (90, 110):
        assert verdict_of(version, NVFP4_KV, sm, CUBINS) == ("unsupported", None)


@older
def test_an_fp8_cache_is_what_it_is_now(version: str) -> None:
    for sm in (89, 90, 100, 120):
        assert verdict_of(version, "fp8@e4m3:kv", sm, CUBINS) == verdict_of("0.5.22", "fp8@e4m3:kv", sm, CUBINS)


def test_0_5_19_has_no_deepgemm_on_sm120_and_has_it_on_sm121() -> None:
    named = {**TOOLKIT, "config.fp8_gemm_runner_backend": "deep_gemm"}
    assert verdict_of("0.5.19", BLOCK, 120, named) == ("unsupported", None)
    for version, sm in (("0.5.19", 121), ("0.5.20", 120)):
        assert verdict_of(version, BLOCK, sm, named) == ("unknown", "w8a8_block_fp8_matmul_deepgemm")
    imports = known("0.5.19").conditions["sglang.imports-deepgemm"].expression
    for sm, imported in ((90, False), (100, False), (120, True), (121, False)):
        assert decide(imports, answer_from(facts_for("0.5.19", FP8, sm, NO_TOOLKIT))) is imported


def test_0_5_19_gives_an_fp8_checkpoint_one_scale_a_channel_on_sm12x_too() -> None:
    own = {**TOOLKIT, "workload.quantizer": "fp8"}
    scheme = "fp8@tensor-static:dense"
    assert verdict_of("0.5.19", scheme, 120, own)[1] == "fp8_scaled_mm"
    assert verdict_of("0.5.20", scheme, 120, own)[1] == "torch._scaled_mm per tensor"
    for version in ("0.5.19", "0.5.20"):
        assert verdict_of(version, scheme, 90, own)[1] == "fp8_scaled_mm"
        assert verdict_of(version, scheme, 120)[1] == "torch._scaled_mm per tensor"  # compressed-tensors
    # With the image of sm_120a alone that is broken on sm121.
    assert verdict_of("0.5.19", scheme, 121, own, machine="x86_64")[0] == "broken"


def test_0_5_19_s_deepgemm_compiles_for_hopper_with_an_older_nvcc() -> None:
    old = {**TOOLKIT, "host.nvcc": "12.4"}
    assert verdict_of("0.5.19", BLOCK, 90, old) == ("native", "w8a8_block_fp8_matmul_deepgemm")
    assert verdict_of("0.5.20", BLOCK, 90, old) == ("broken", "w8a8_block_fp8_matmul_deepgemm")
    assert verdict_of("0.5.19", BLOCK, 90, {**TOOLKIT, "host.nvcc": "12.2"})[0] == "broken"


@pytest.mark.parametrize("version", [*SINCE_0_5_22, *OLDER])
def test_the_variable_that_asks_deepgemm_for_nvrtc(version: str) -> None:
    named = {name: {**TOOLKIT, f"env.{name}_DG_USE_NVRTC": True} for name in ("SGL", "SGLANG")}
    read, ignored = ("SGLANG", "SGL") if version == "0.5.23" else ("SGL", "SGLANG")
    assert verdict_of(version, BLOCK, 90, named[read])[0] == "broken"
    assert verdict_of(version, BLOCK, 90, named[ignored])[0] == "native"
