"""vLLM 0.9.2 to 0.19.0: what their FP4 and FP8 linear layers come to on the images of their wheels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from packaging.specifiers import SpecifierSet

from qresolve.classes import CLASSES
from qresolve.facts import ABSENT, Value
from qresolve.knowledge.engine import read_releases
from qresolve.measured import row_for
from qresolve.setting import Setting
from qresolve.situation import Host
from qresolve.ways import ways
from tests.knowledge_support import ARCHS, engine, release_bench

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qresolve.selector import Outcome
    from qresolve.ways import Way

RELEASES = ("0.9.2", "0.11.2", "0.12.0", "0.14.1", "0.15.1", "0.16.0", "0.18.1", "0.19.0")
BARE = Host.without_toolkit()
TOOLKIT = Host(nvcc="12.9", ninja=True)
ANY_HOST = Host()
NOTHING: Mapping[str, Value] = {}
# A checkpoint of the fp8 quantization, as DeepSeek's and many of Qwen's are; the reference is of compressed-tensors.
FP8: Mapping[str, Value] = {"workload.quantizer": "fp8"}
MODELOPT: Mapping[str, Value] = {"workload.quantizer": "modelopt"}

NVFP4 = "nvfp4@w4a4:dense"
CHANNEL = "fp8@channel-dynamic:dense"
TENSOR = "fp8@tensor-static:dense"
BLOCK = "fp8-block@block128:dense"


def judged(
    release: str,
    key: str,
    sm: int,
    *,
    host: Host = BARE,
    machine: str = "x86_64",
    assumed: Mapping[str, Value] = NOTHING,
) -> Outcome:
    """The one outcome on a host that is known; one with a toolkit shows its nvcc on PATH."""
    known = {**({"host.nvcc-on-path": True} if host.nvcc is not None else {}), **assumed}
    found = release_bench(release, key, sm, host=host, machine=machine, assumed=known).outcomes()
    assert len(found) == 1, [item.outcome for item in found]
    return found[0].outcome


def name_of(release: str, outcome: Outcome) -> str | None:
    return None if outcome.route is None else engine("vllm", release).routes[outcome.route].name


def first_native(release: str, key: str, sm: int) -> Way | None:
    """The way with the fewest settings that is native on every host."""
    laid_out = release_bench(release, key, sm, host=ANY_HOST, machine="x86_64", assumed=NOTHING)
    return next((way for way in ways(laid_out) if way.outcome.verdict == "native"), None)


# ================================================================ releases


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_is_known_and_pins_what_its_metadata_says(release: str) -> None:
    assert release in {item.version for item in read_releases("vllm")}
    for machine in ("x86_64", "aarch64"):
        row = row_for("vllm", release, machine)
        if row is None:
            assert (release, machine) == ("0.9.2", "aarch64")
            continue
        declared = {text.replace(" ", "") for text in row.declared.requires_dist}
        own = {pin.requirement for pin in engine("vllm", release).release.pins if ";" not in pin.requirement}
        assert own <= declared
        assert engine("vllm", release).release.requires_python == SpecifierSet(row.declared.requires_python or "")
        assert (row.declared.upload_time or "").startswith(str(engine("vllm", release).release.released))


@pytest.mark.parametrize("release", RELEASES)
def test_the_wheels_link_cuda_12_as_their_release_says(release: str) -> None:
    for machine in ("x86_64", "aarch64"):
        row = row_for("vllm", release, machine)
        if row is None:
            continue
        assert row.measured is not None
        assert row.measured.libraries is not None
        needed = {
            name for library in row.measured.libraries if library.path == "vllm/_C.abi3.so" for name in library.needed
        }
        assert "libcudart.so.12" in needed
        assert engine("vllm", release).release.cuda.startswith("12.")


# ================================================================ every scheme

DENSE = (
    CHANNEL, TENSOR, "fp8@w8a16:dense", BLOCK, NVFP4, "nvfp4@w4a16:dense", "mxfp4@w4a4:dense", "mxfp4@w4a16:dense",
)  # fmt: skip


@pytest.mark.parametrize("host", [BARE, TOOLKIT], ids=["bare", "toolkit"])
@pytest.mark.parametrize("release", RELEASES)
def test_every_scheme_has_a_verdict_on_every_arch_and_none_is_native_below_its_unit(release: str, host: Host) -> None:
    floor = {"fp8": 89, "fp8-block": 89, "nvfp4": 100}
    for key in DENSE:
        for sm in ARCHS:
            for quantizer in (NOTHING, FP8, MODELOPT):
                outcome = judged(release, key, sm, host=host, assumed=quantizer)
                if outcome.verdict == "unknown":  # FlashInfer where its kernels were not read
                    assert sm in {103, 110, 121}
                    assert outcome.why
                else:
                    assert outcome.verdict in {*CLASSES, "broken", "unsupported"}, (key, sm, outcome)
                if outcome.verdict == "native":
                    assert sm >= floor[key.partition("@")[0]], (key, sm)


@pytest.mark.parametrize("release", RELEASES)
def test_integer_formats_and_e5m2_caches_were_not_read_and_say_so(release: str) -> None:
    for key in ("int8@w8a8:dense", "int4@w4a16:dense", "mxfp8@w8a8:dense", "fp8@e5m2:kv"):
        outcome = judged(release, key, 120)
        assert outcome.verdict == "unknown"
        assert "not read" in outcome.why


# ================================================================ NVFP4: its predicate says more than the images hold


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("release", RELEASES)
def test_nvfp4_is_native_only_where_an_image_loads_whatever_the_predicate_says(release: str, machine: str) -> None:
    if row_for("vllm", release, machine) is None:
        return
    # 0.9.2 and 0.11.2 call the kernel for sm100 on every GPU, though 0.11.2 has one for sm120.
    native = {100} if release in {"0.9.2", "0.11.2"} else {100, 120}
    cutlass: Mapping[str, Value] = {"package.flashinfer-python": ABSENT}
    for sm in (100, 103, 110, 120, 121):
        found = judged(release, NVFP4, sm, machine=machine, assumed=cutlass)
        assert name_of(release, found) == "cutlass"
        if sm in native:
            assert found.verdict == "native", (release, sm)
        else:
            assert (found.verdict, found.gate) == ("broken", "image"), (release, sm)


@pytest.mark.parametrize("release", RELEASES)
def test_nvfp4_is_weight_only_below_blackwell(release: str) -> None:
    for sm in (80, 86, 89, 90):
        for host in (BARE, TOOLKIT):
            assert judged(release, NVFP4, sm, host=host).verdict == "weight-only", sm
        assert first_native(release, NVFP4, sm) is None
    turing = judged(release, NVFP4, 75)
    assert turing.verdict == ("weight-only" if release in {"0.16.0", "0.18.1", "0.19.0"} else "unsupported")


@pytest.mark.parametrize("release", RELEASES)
def test_an_older_runtime_has_no_nvfp4(release: str) -> None:
    old: Mapping[str, Value] = {"runtime.cudart": "12.6", "package.flashinfer-python": ABSENT}
    for sm in (100, 120):
        assert judged(release, NVFP4, sm, assumed=old).verdict == "weight-only"


@pytest.mark.parametrize("release", RELEASES[1:])
def test_naming_cutlass_keeps_nvfp4_native_on_any_host(release: str) -> None:
    way = first_native(release, NVFP4, 100)
    assert way is not None
    assert Setting(env="VLLM_NVFP4_GEMM_BACKEND", value="cutlass") in way.settings
    assert name_of(release, way.outcome) == "cutlass"
    refused = judged(release, NVFP4, 90, assumed={"env.VLLM_NVFP4_GEMM_BACKEND": "cutlass"})
    assert refused.verdict == "unsupported"


def test_0_11_2_runs_nvfp4_on_sm120_by_flashinfer_alone() -> None:
    assert judged("0.11.2", NVFP4, 120).gate == "image"
    found = judged("0.11.2", NVFP4, 120, host=TOOLKIT)
    assert (found.verdict, name_of("0.11.2", found)) == ("native", "flashinfer-cutlass")


@pytest.mark.parametrize("release", RELEASES[1:])
def test_flashinfer_is_native_with_an_nvcc_of_cuda_12_and_not_known_with_one_of_13(release: str) -> None:
    for sm in (100, 120):
        found = judged(release, NVFP4, sm, host=TOOLKIT)
        assert (found.verdict, name_of(release, found)) == ("native", "flashinfer-cutlass")
        newer = judged(release, NVFP4, sm, host=Host(nvcc="13.0", ninja=True))
        assert newer.verdict == "unknown"
        assert "CUDA 13" in newer.why
    # vLLM's own kernel quantizes the activations for FlashInfer too, and has no image there.
    for sm in (103, 121):
        found = judged(release, NVFP4, sm, host=TOOLKIT)
        assert (found.verdict, found.gate) == ("broken", "activation-quantizer")


def test_flashinfers_cubins_as_a_requirement_break_0_19_0_on_a_host_without_a_toolkit() -> None:
    for key in (NVFP4, TENSOR):
        assert judged("0.19.0", key, 120).gate == "flashinfer-builds"
        assert judged("0.18.1", key, 120).verdict == "native"
    way = first_native("0.19.0", NVFP4, 120)
    assert way is not None
    assert Setting(env="VLLM_NVFP4_GEMM_BACKEND", value="cutlass") in way.settings


def test_modelopt_takes_flashinfer_on_hopper_where_compressed_tensors_takes_marlin() -> None:
    for release in ("0.12.0", "0.15.1"):
        assert judged(release, NVFP4, 90, host=TOOLKIT).verdict == "weight-only"
        found = judged(release, NVFP4, 90, host=TOOLKIT, assumed=MODELOPT)
        assert (found.verdict, found.gate) == ("broken", "sm100")
    assert judged("0.16.0", NVFP4, 90, host=TOOLKIT, assumed=MODELOPT).verdict == "weight-only"


def test_shapes_that_are_no_multiple_of_32_are_padded_from_0_16_on() -> None:
    odd: Mapping[str, Value] = {"workload.n": 4112, "package.flashinfer-python": ABSENT}
    for release in RELEASES:
        found = judged(release, NVFP4, 100, assumed=odd)
        if release in {"0.16.0", "0.18.1", "0.19.0"}:
            assert found.verdict == "native"
        else:
            assert (found.verdict, found.gate) == ("broken", "shape")


@pytest.mark.parametrize("release", RELEASES)
def test_a_variable_emulates_nvfp4_and_before_0_16_for_compressed_tensors_alone(release: str) -> None:
    emulated: Mapping[str, Value] = {"env.VLLM_USE_NVFP4_CT_EMULATIONS": True}
    assert judged(release, NVFP4, 100, assumed=emulated).verdict == "emulated"
    found = judged(release, NVFP4, 100, assumed={**emulated, **MODELOPT, "package.flashinfer-python": ABSENT})
    assert found.verdict == ("emulated" if release in {"0.16.0", "0.18.1", "0.19.0"} else "native")


def test_fbgemms_variable_counts_beside_a_named_backend_before_0_16_and_alone_after() -> None:
    alone: Mapping[str, Value] = {"env.VLLM_USE_FBGEMM": True}
    beside: Mapping[str, Value] = {**alone, "env.VLLM_NVFP4_GEMM_BACKEND": "cutlass"}
    assert judged("0.15.1", NVFP4, 100, assumed=alone).verdict == "native"
    assert judged("0.15.1", NVFP4, 100, assumed=beside).verdict == "unsupported"
    assert judged("0.16.0", NVFP4, 100, assumed=alone).verdict == "unsupported"


@pytest.mark.parametrize("release", RELEASES)
def test_nvfp4_w4a16_is_marlin_called_directly(release: str) -> None:
    for sm in (80, 90, 100, 103, 120, 121):
        assert judged(release, "nvfp4@w4a16:dense", sm).verdict == "weight-only"
    assert judged(release, "nvfp4@w4a16:dense", 100, assumed=MODELOPT).verdict == "unsupported"


# ================================================================ FP8


@pytest.mark.parametrize("release", RELEASES)
def test_fp8_per_channel_is_cutlass_where_an_image_loads_on_any_host(release: str) -> None:
    for sm in (89, 90, 100, 120):
        laid_out = release_bench(release, CHANNEL, sm, host=ANY_HOST, machine="x86_64", assumed=NOTHING)
        assert {item.outcome.verdict for item in laid_out.outcomes()} == {"native"}, sm
    for sm in (103, 110, 121):
        found = judged(release, CHANNEL, sm)
        assert (found.verdict, found.gate) == ("broken", "image"), sm


@pytest.mark.parametrize("release", RELEASES)
def test_fp8_is_weight_only_below_ada_and_refused_on_turing_for_long(release: str) -> None:
    for key in (CHANNEL, TENSOR):
        for assumed in (NOTHING, FP8):
            for sm in (80, 86):
                assert judged(release, key, sm, assumed=assumed).verdict == "weight-only", sm
    by_compressed_tensors = "weight-only" if release in {"0.16.0", "0.18.1", "0.19.0"} else "unsupported"
    by_fp8 = "unsupported" if release in {"0.9.2", "0.11.2", "0.12.0"} else "weight-only"
    assert judged(release, CHANNEL, 75).verdict == by_compressed_tensors
    assert judged(release, TENSOR, 75, assumed=FP8).verdict == by_fp8
    assert judged(release, TENSOR, 86, assumed=MODELOPT).verdict == "unsupported"


@pytest.mark.parametrize("release", RELEASES)
def test_marlin_can_be_forced_for_fp8_checkpoints_and_for_all_from_0_19_on(release: str) -> None:
    forced: Mapping[str, Value] = {"env.VLLM_TEST_FORCE_FP8_MARLIN": "1"}
    assert judged(release, TENSOR, 90, assumed={**FP8, **forced}).verdict == "weight-only"
    found = judged(release, TENSOR, 90, assumed=forced)
    assert found.verdict == ("weight-only" if release == "0.19.0" else "native")


@pytest.mark.parametrize("release", RELEASES)
def test_fp8_per_tensor_goes_through_flashinfer_on_blackwell_where_vllm_finds_it(release: str) -> None:
    found = judged(release, TENSOR, 120, host=TOOLKIT)
    assert found.verdict == "native"
    by_flashinfer = "flashinfer" in (name_of(release, found) or "").lower()
    assert by_flashinfer is (release != "0.9.2")
    hopper = judged(release, TENSOR, 90, host=TOOLKIT)
    assert "cutlass" in (name_of(release, hopper) or "").lower()


@pytest.mark.parametrize("release", RELEASES)
def test_a_build_with_an_old_cuda_has_no_fp8_on_blackwell(release: str) -> None:
    assert judged(release, CHANNEL, 120, assumed={"build.cuda": "12.6"}).gate == "built"
    assert judged(release, CHANNEL, 90, assumed={"build.cuda": "12.6", "build.hypothetical": True}).gate != "built"


@pytest.mark.parametrize("release", RELEASES[1:])
def test_batch_invariance_dequantizes_what_the_fp8_quantization_loads(release: str) -> None:
    invariant: Mapping[str, Value] = {"env.VLLM_BATCH_INVARIANT": True}
    assert judged(release, TENSOR, 90, assumed={**FP8, **invariant}).verdict == "weight-only"
    assert judged(release, TENSOR, 90, assumed=invariant).verdict == "native"


@pytest.mark.parametrize("release", RELEASES)
def test_fp8_w8a16_is_marlin_called_directly(release: str) -> None:
    for sm in (80, 90, 100, 103, 120, 121):
        assert judged(release, "fp8@w8a16:dense", sm).verdict == "weight-only"
    assert judged(release, "fp8@w8a16:dense", 90, assumed=MODELOPT).verdict == "unsupported"


# ================================================================ 128x128 blocks


def test_block_fp8_of_0_9_2_says_yes_on_sm120_and_its_kernel_refuses() -> None:
    found = judged("0.9.2", BLOCK, 120, assumed=FP8)
    assert (found.verdict, found.gate) == ("broken", "takes-block-scales")
    for sm in (89, 90, 100):
        assert judged("0.9.2", BLOCK, sm, assumed=FP8).verdict == "native", sm
    assert judged("0.9.2", BLOCK, 86, assumed=FP8).verdict == "weight-only"
    for sm in ARCHS:
        assert judged("0.9.2", BLOCK, sm).verdict == "unsupported"  # compressed-tensors has no scheme for it


@pytest.mark.parametrize("release", RELEASES[1:])
def test_block_fp8_is_native_from_ada_on_where_an_image_loads(release: str) -> None:
    for assumed in (NOTHING, FP8):
        for sm in (89, 90, 100, 120):
            assert judged(release, BLOCK, sm, assumed=assumed).verdict == "native", sm
        for sm in (103, 121):
            assert judged(release, BLOCK, sm, assumed=assumed).gate == "image"
    ada = judged(release, BLOCK, 89)
    assert "triton" in (name_of(release, ada) or "")


@pytest.mark.parametrize("release", RELEASES[1:])
def test_block_fp8_below_ada_depends_on_who_wrote_the_checkpoint(release: str) -> None:
    assert judged(release, BLOCK, 86, assumed=FP8).verdict == "weight-only"
    expected = "weight-only" if release in {"0.16.0", "0.18.1", "0.19.0"} else "unsupported"
    assert judged(release, BLOCK, 86).verdict == expected


def test_an_installed_deepgemm_is_taken_and_not_known() -> None:
    there: Mapping[str, Value] = {"package.deep-gemm": "2.0.0"}
    for release in RELEASES[1:]:
        assert judged(release, BLOCK, 90, assumed=there).verdict == "unknown"
        off: Mapping[str, Value] = {**there, "env.VLLM_USE_DEEP_GEMM": "0"}
        assert judged(release, BLOCK, 90, assumed=off).verdict == "native"
        assert judged(release, BLOCK, 120, assumed=there).verdict == "native"
    assert judged("0.9.2", BLOCK, 90, assumed={**FP8, **there}).verdict == "native"
    on: Mapping[str, Value] = {**FP8, **there, "env.VLLM_USE_DEEP_GEMM": "1"}
    assert judged("0.9.2", BLOCK, 90, assumed=on).verdict == "unknown"


@pytest.mark.parametrize("release", RELEASES)
def test_block_fp8_wants_k_in_whole_groups(release: str) -> None:
    found = judged(release, BLOCK, 100, assumed={**FP8, "workload.k": 4160})
    assert (found.verdict, found.gate) == ("broken", "k-in-whole-groups")


# ================================================================ MX formats


@pytest.mark.parametrize("release", RELEASES)
def test_mxfp4_layers_are_never_native_and_have_no_route_before_0_14(release: str) -> None:
    for sm in (80, 90, 100, 120):
        for host in (BARE, TOOLKIT):
            found = judged(release, "mxfp4@w4a4:dense", sm, host=host)
            before = release in {"0.9.2", "0.11.2", "0.12.0"}
            assert found.verdict == ("unsupported" if before else "weight-only")
        assert first_native(release, "mxfp4@w4a4:dense", sm) is None


@pytest.mark.parametrize("release", RELEASES)
def test_quark_emulates_mxfp4_and_must_be_installed(release: str) -> None:
    quark: Mapping[str, Value] = {"workload.quantizer": "quark"}
    assert judged(release, "mxfp4@w4a4:dense", 120, assumed=quark).gate == "quark"
    installed: Mapping[str, Value] = {**quark, "package.amd-quark": "0.11"}
    assert judged(release, "mxfp4@w4a4:dense", 120, assumed=installed).verdict == "emulated"


# ================================================================ NVFP4 experts

EXPERTS = "nvfp4@w4a4:moe"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("release", RELEASES)
def test_nvfp4_experts_are_native_only_where_an_image_loads(release: str, machine: str) -> None:
    if row_for("vllm", release, machine) is None:
        return
    # Without FlashInfer: from 0.15.1 on a variable (or a backend that is named) takes it off the ladder.
    off: Mapping[str, Value] = {"env.VLLM_USE_FLASHINFER_MOE_FP4": "0"}
    for sm in (103, 110, 121):
        found = judged(release, EXPERTS, sm, machine=machine, assumed=off)
        assert (found.verdict, found.gate) == ("broken", "image"), sm
    datacenter = judged(release, EXPERTS, 100, machine=machine, assumed=off)
    assert datacenter.verdict == ("unknown" if release == "0.9.2" else "native")
    geforce = judged(release, EXPERTS, 120, machine=machine, assumed=off)
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
