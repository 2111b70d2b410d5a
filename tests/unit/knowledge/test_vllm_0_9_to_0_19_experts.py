"""vLLM 0.9.2 to 0.19.0: what their NVFP4, FP8 and gpt-oss experts and their FP8 caches come to on measured images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from qresolve.setting import Setting
from tests.knowledge_support import release_bench
from tests.older_vllm import BARE, FP8, NOTHING, RELEASES, TOOLKIT, first_native, judged, name_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qresolve.facts import Value

# ================================================================ NVFP4 experts

EXPERTS = "nvfp4@w4a4:moe"


@pytest.mark.parametrize("release", RELEASES)
def test_nvfp4_experts_are_native_only_where_an_image_loads(release: str) -> None:
    # Without FlashInfer: from 0.15.1 on a variable (or a backend that is named) takes it off the ladder.
    off: Mapping[str, Value] = {"env.VLLM_USE_FLASHINFER_MOE_FP4": "0"}
    for sm in (103, 110, 121):
        found = judged(release, EXPERTS, sm, assumed=off)
        assert (found.verdict, found.gate) == ("broken", "image"), sm
    datacenter = judged(release, EXPERTS, 100, assumed=off)
    assert datacenter.verdict == ("unknown" if release == "0.9.2" else "native")
    geforce = judged(release, EXPERTS, 120, assumed=off)
    assert geforce.verdict == ("broken" if release in {"0.9.2", "0.11.2"} else "native")


@pytest.mark.parametrize("release", RELEASES)
def test_nvfp4_experts_are_weight_only_below_blackwell(release: str) -> None:
    for sm in (80, 89, 90):
        assert judged(release, EXPERTS, sm, host=TOOLKIT).verdict == "weight-only", sm


def test_flashinfers_nvfp4_experts_are_not_known_and_asked_for_before_0_15() -> None:
    asked: Mapping[str, Value] = {"env.VLLM_USE_FLASHINFER_MOE_FP4": "1"}
    for release in ("0.11.2", "0.12.0", "0.14.1"):
        assert judged(release, EXPERTS, 100, host=TOOLKIT).verdict == "native"
        assert judged(release, EXPERTS, 100, host=TOOLKIT, assumed=asked).verdict == "unknown"
    for release in ("0.15.1", "0.16.0", "0.18.1", "0.19.0"):
        assert judged(release, EXPERTS, 120, host=TOOLKIT).verdict == "unknown"
    # TensorRT-LLM's are tried first on sm100, without a look at whether FlashInfer is usable, up to 0.18.1.
    for release in ("0.15.1", "0.16.0", "0.18.1"):
        found = judged(release, EXPERTS, 100)
        assert (found.verdict, name_of(release, found)) == ("unknown", "FLASHINFER_TRTLLM")


@pytest.mark.parametrize("release", ["0.15.1", "0.16.0", "0.18.1", "0.19.0"])
def test_one_setting_makes_nvfp4_experts_native_on_any_host(release: str) -> None:
    for sm in (100, 120):
        way = first_native(release, EXPERTS, sm)
        assert way is not None
        if release in {"0.15.1", "0.16.0"}:
            assert Setting(env="VLLM_USE_FLASHINFER_MOE_FP4", value="0") in way.settings
        else:
            assert Setting(path="kernel_config.moe_backend", value="cutlass") in way.settings


@pytest.mark.parametrize("release", RELEASES)
def test_expert_parallelism_is_no_part_of_vllms_own_nvfp4_experts(release: str) -> None:
    parallel: Mapping[str, Value] = {"workload.ep": 2, "env.VLLM_USE_FLASHINFER_MOE_FP4": "0"}
    found = judged(release, EXPERTS, 100, assumed=parallel)
    if release in {"0.9.2", "0.11.2", "0.12.0", "0.14.1"}:
        assert (found.verdict, found.gate) == ("broken", "no-expert-parallelism")
    else:
        assert found.verdict == "weight-only"


def test_marlin_can_be_forced_for_nvfp4_experts_from_0_14_on() -> None:
    forced: Mapping[str, Value] = {"env.VLLM_TEST_FORCE_FP8_MARLIN": "1"}
    assert judged("0.12.0", EXPERTS, 100, assumed=forced).verdict == "native"
    for release in ("0.14.1", "0.15.1", "0.16.0", "0.18.1", "0.19.0"):
        assert judged(release, EXPERTS, 100, assumed=forced).verdict == "weight-only"


# ================================================================ gpt-oss

GPT_OSS = "mxfp4@gpt-oss:moe"
FETCHES: Mapping[str, Value] = {"host.nvidia-artifactory": True}


@pytest.mark.parametrize("release", RELEASES[1:])
def test_gpt_oss_is_weight_only_everywhere_and_refused_on_turing(release: str) -> None:
    for sm in (80, 86, 89, 90, 120, 121):
        for host in (BARE, TOOLKIT):
            assert judged(release, GPT_OSS, sm, host=host, assumed=FETCHES).verdict == "weight-only", sm
    assert judged(release, GPT_OSS, 75).verdict == "unsupported"
    assert judged(release, GPT_OSS, 90, assumed={"workload.dtype": "fp16"}).verdict != "native"


def test_gpt_oss_runs_in_tritons_kernels_on_hopper_once_the_wheel_has_them_and_in_marlin_on_geforce() -> None:
    for release in RELEASES[1:]:
        expected = "MARLIN" if release == "0.11.2" else "TRITON"
        assert name_of(release, judged(release, GPT_OSS, 90)) == expected
        assert name_of(release, judged(release, GPT_OSS, 120, host=TOOLKIT)) == "MARLIN"
        marlin: Mapping[str, Value] = {"env.VLLM_MXFP4_USE_MARLIN": True}
        assert name_of(release, judged(release, GPT_OSS, 90, assumed=marlin)) == "MARLIN"


def test_gpt_oss_takes_flashinfer_on_datacenter_blackwell_and_on_sm103_from_0_14_on() -> None:
    for release in RELEASES[1:]:
        found = judged(release, GPT_OSS, 100, host=TOOLKIT, assumed=FETCHES)
        assert found.verdict == "weight-only"
        assert "BF16" in (name_of(release, found) or "")
        newer = name_of(release, judged(release, GPT_OSS, 103, host=TOOLKIT, assumed=FETCHES)) or ""
        assert ("BF16" in newer) is (release not in {"0.11.2", "0.12.0"})
    offline = judged("0.18.1", GPT_OSS, 100, host=TOOLKIT, assumed={"host.nvidia-artifactory": False})
    assert (offline.verdict, offline.gate) == ("broken", "cubins")


@pytest.mark.parametrize("release", RELEASES[1:])
def test_mxfp8_activations_for_gpt_oss_are_mixed_and_asked_for(release: str) -> None:
    asked: Mapping[str, Value] = {**FETCHES, "env.VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8": True}
    assert judged(release, GPT_OSS, 100, host=TOOLKIT, assumed=asked).verdict == "mixed"


@pytest.mark.parametrize("release", RELEASES[1:])
def test_hopper_takes_flashinfer_for_gpt_oss_only_where_it_is_asked_for(release: str) -> None:
    asked: Mapping[str, Value] = {"env.VLLM_USE_FLASHINFER_MOE_MXFP4_BF16": "1"}
    found = judged(release, GPT_OSS, 90, host=TOOLKIT, assumed=asked)
    assert found.verdict == "weight-only"
    assert "BF16" in (name_of(release, found) or "")


# ================================================================ FP8 experts

CHANNEL_EXPERTS = "fp8@channel-dynamic:moe"
TENSOR_EXPERTS = "fp8@tensor-static:moe"
BLOCK_EXPERTS = "fp8-block@block128:moe"
READ = ("0.9.2", "0.11.2", "0.12.0", "0.15.1", "0.16.0", "0.18.1", "0.19.0")


def test_fp8_experts_of_0_14_1_were_not_read() -> None:
    for key in (CHANNEL_EXPERTS, TENSOR_EXPERTS, BLOCK_EXPERTS):
        assert "not read" in judged("0.14.1", key, 90).why


@pytest.mark.parametrize("release", READ)
def test_fp8_experts_are_cutlass_for_compressed_tensors_on_hopper_and_triton_for_the_fp8_quantization(
    release: str,
) -> None:
    own = judged(release, CHANNEL_EXPERTS, 90)
    assert own.verdict == "native"
    assert "cutlass" in (name_of(release, own) or "").lower()
    other = judged(release, CHANNEL_EXPERTS, 90, assumed=FP8)
    assert (other.verdict, (name_of(release, other) or "").lower().startswith(("triton", "fused"))) == ("native", True)


@pytest.mark.parametrize("release", READ)
def test_fp8_experts_are_weight_only_below_ada(release: str) -> None:
    for sm in (80, 86):
        for assumed in (NOTHING, FP8):
            for key in (CHANNEL_EXPERTS, TENSOR_EXPERTS):
                assert judged(release, key, sm, assumed=assumed).verdict == "weight-only"


@pytest.mark.parametrize("release", READ)
def test_fp8_experts_on_geforce_blackwell_follow_what_the_pinned_triton_compiles(release: str) -> None:
    found = judged(release, CHANNEL_EXPERTS, 120)
    if release == "0.9.2":  # Triton 3.3.0
        assert (found.verdict, found.gate) == ("broken", "triton-fp8")
    else:
        assert found.verdict == "native"
    spark = judged(release, CHANNEL_EXPERTS, 121)
    assert spark.verdict == ("storage-only" if release in {"0.18.1", "0.19.0"} else "broken")


@pytest.mark.parametrize("release", ["0.15.1", "0.16.0", "0.18.1", "0.19.0"])
def test_grouped_fp8_kernels_of_sm100_do_not_load_on_sm103(release: str) -> None:
    assert judged(release, CHANNEL_EXPERTS, 100).verdict == "native"
    assert judged(release, CHANNEL_EXPERTS, 103).gate == "image"


def test_0_12_0_takes_triton_on_sm103_whose_triton_has_not_been_seen_to_multiply_there() -> None:
    found = release_bench("0.12.0", CHANNEL_EXPERTS, 103, host=BARE, machine="x86_64", assumed=NOTHING).outcomes()
    assert {item.outcome.route for item in found} == {"vllm.moe.fp8.triton"}
    assert len(found) > 1


@pytest.mark.parametrize("release", READ)
def test_block_fp8_experts_are_tritons_on_hopper_and_not_known_on_datacenter_blackwell(release: str) -> None:
    hopper = judged(release, BLOCK_EXPERTS, 90, assumed=FP8)
    assert hopper.verdict == "native"
    datacenter = judged(release, BLOCK_EXPERTS, 100, assumed=FP8)
    assert datacenter.verdict == "unknown"
    assert datacenter.why
    by_compressed_tensors = judged(release, BLOCK_EXPERTS, 90)
    assert by_compressed_tensors.verdict == ("unsupported" if release == "0.9.2" else "native")


@pytest.mark.parametrize("release", READ)
def test_marlin_can_be_forced_for_fp8_experts(release: str) -> None:
    forced: Mapping[str, Value] = {**FP8, "env.VLLM_TEST_FORCE_FP8_MARLIN": "1"}
    assert judged(release, TENSOR_EXPERTS, 89, assumed=forced).verdict == "weight-only"


@pytest.mark.parametrize("release", READ[1:])
def test_flashinfers_fp8_experts_are_not_known(release: str) -> None:
    asked: Mapping[str, Value] = {**FP8, "env.VLLM_USE_FLASHINFER_MOE_FP8": "1"}
    assert judged(release, TENSOR_EXPERTS, 90, host=TOOLKIT, assumed=asked).verdict == "unknown"
    unasked = judged(release, TENSOR_EXPERTS, 90, host=TOOLKIT, assumed=FP8)
    assert unasked.verdict == ("native" if release in {"0.11.2", "0.12.0"} else "unknown")


@pytest.mark.parametrize("release", ["0.15.1", "0.16.0", "0.18.1", "0.19.0"])
def test_one_setting_makes_fp8_experts_native_on_any_host(release: str) -> None:
    for sm in (90, 100, 120):
        way = first_native(release, TENSOR_EXPERTS, sm)
        assert way is not None, sm
        assert way.settings


@pytest.mark.parametrize("release", ["0.15.1", "0.16.0", "0.18.1", "0.19.0"])
def test_a_deepgemm_variable_of_1_forces_it_and_raises_without_the_package(release: str) -> None:
    forced: Mapping[str, Value] = {**FP8, "env.VLLM_USE_DEEP_GEMM": "1"}
    assert judged(release, BLOCK_EXPERTS, 90, assumed=forced).verdict == "unsupported"
    there: Mapping[str, Value] = {**forced, "package.deep-gemm": "2.0.0"}
    assert judged(release, BLOCK_EXPERTS, 90, assumed=there).verdict == "unknown"


# ================================================================ FP8 caches

CACHE = "fp8@e4m3:kv"


@pytest.mark.parametrize("release", ["0.16.0", "0.18.1", "0.19.0"])
def test_an_fp8_cache_is_native_on_hopper_and_meets_a_flashinfer_that_cannot_build_elsewhere(release: str) -> None:
    for host in (BARE, TOOLKIT):
        hopper = judged(release, CACHE, 90, host=host)
        assert (hopper.verdict, name_of(release, hopper)) == ("native", "FLASH_ATTN")
    for sm in (80, 86, 89, 100, 120, 121):
        assert judged(release, CACHE, sm).gate == "flashinfer-builds", sm
    for sm in (80, 86, 89, 120):
        found = judged(release, CACHE, sm, host=TOOLKIT)
        assert (found.verdict, name_of(release, found)) == ("storage-only", "FLASHINFER"), sm
    assert judged(release, CACHE, 100, host=TOOLKIT).verdict == "unknown"


@pytest.mark.parametrize("release", ["0.16.0", "0.18.1", "0.19.0"])
def test_tritons_attention_has_no_fp8_cache_on_ampere(release: str) -> None:
    named: Mapping[str, Value] = {"config.attention_config.backend": "TRITON_ATTN"}
    found = judged(release, CACHE, 86, assumed=named)
    assert (found.verdict, found.gate) == ("broken", "triton-fp8")
    assert judged(release, CACHE, 89, assumed=named).verdict in {"native", "storage-only"}
    refused = judged(release, CACHE, 89, assumed={"config.attention_config.backend": "FLASH_ATTN"})
    assert refused.verdict == "unsupported"


@pytest.mark.parametrize("release", ["0.9.2", "0.11.2", "0.12.0", "0.14.1", "0.15.1"])
def test_fp8_caches_before_0_16_were_not_read(release: str) -> None:
    assert "not read" in judged(release, CACHE, 90).why
