"""vLLM 0.20.2, 0.22.1, 0.24.0, 0.26.0 and 0.28.0: what their selectors come to on the images of their wheels."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest
from packaging.specifiers import SpecifierSet

from qresolve.classes import CLASSES
from qresolve.facts import ABSENT, Value
from qresolve.knowledge.engine import load_engine, read_releases
from qresolve.measured import row_for
from qresolve.setting import Setting
from qresolve.situation import Host
from qresolve.ways import ways
from qresolve.wheels.index import read_wheel_index
from tests.knowledge_support import release_bench

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qresolve.knowledge.records import Engine
    from qresolve.selector import Outcome
    from qresolve.ways import Bench, Way

RELEASES = ("0.20.2", "0.22.1", "0.24.0", "0.26.0", "0.28.0")
WITH_A_BACKEND_OPTION = RELEASES[1:]
ARCHS = (75, 80, 86, 89, 90, 100, 103, 110, 120, 121)
VERDICTS = (*CLASSES, "broken", "unsupported")
NO_TOOLKIT = Host.without_toolkit()
TOOLKIT = Host(nvcc="13.0", ninja=True, cxx=True)
ANY_HOST = Host()
NOTHING: Mapping[str, Value] = {}
BACKEND = "config.kernel_config.linear_backend"


@cache
def engine(release: str) -> Engine:
    return load_engine("vllm", release)


def wheel_for(sm: int) -> str:
    return "aarch64" if sm in {110, 121} else "x86_64"


def bench(
    release: str,
    key: str,
    sm: int,
    *,
    host: Host = ANY_HOST,
    machine: str | None = None,
    assumed: Mapping[str, Value] = NOTHING,
) -> Bench:
    return release_bench(release, key, sm, host=host, machine=machine or wheel_for(sm), assumed=assumed)


def judged(
    release: str,
    key: str,
    sm: int,
    *,
    host: Host = NO_TOOLKIT,
    machine: str | None = None,
    assumed: Mapping[str, Value] = NOTHING,
) -> Outcome:
    """The one outcome of a plain install on a host that is known and reaches NVIDIA's server of kernels."""
    known = {"host.nvidia-artifactory": True, **assumed}
    found = bench(release, key, sm, host=host, machine=machine, assumed=known).outcomes()
    assert len(found) == 1, [item.outcome for item in found]
    return found[0].outcome


def name_of(release: str, outcome: Outcome) -> str | None:
    return None if outcome.route is None else engine(release).routes[outcome.route].name


def first_native(release: str, key: str, sm: int) -> Way | None:
    """The way with the fewest settings that is native on every host."""
    return next((way for way in ways(bench(release, key, sm)) if way.outcome.verdict == "native"), None)


# ================================================================ releases


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_is_known_and_pins_what_its_metadata_says(release: str) -> None:
    assert release in {item.version for item in read_releases("vllm")}
    for machine in ("x86_64", "aarch64"):
        row = row_for("vllm", release, machine)
        assert row is not None
        declared = {text.replace(" ", "") for text in row.declared.requires_dist}
        own = {pin.requirement for pin in engine(release).release.pins if ";" not in pin.requirement}
        assert own <= declared
        assert engine(release).release.requires_python == SpecifierSet(row.declared.requires_python or "")


@pytest.mark.parametrize("release", RELEASES)
def test_the_toolkit_is_the_one_that_the_pinned_torch_claims(release: str) -> None:
    torch = next(pin.version for pin in engine(release).release.pins if pin.package == "torch")
    claimed = {row.declared.cuda for row in read_wheel_index("torch") if row.version == torch}
    assert claimed == {engine(release).release.toolkit}


def test_no_release_up_to_0_28_can_be_given_b12x() -> None:
    for release in RELEASES:
        assert all(item.fact != "package.b12x" for item in engine(release).provisions)
    assert any(item.id == "b12x-extra-resolves" for item in engine("0.28.0").claims)


# ================================================================ every scheme

DENSE = (
    "fp8@channel-dynamic:dense", "fp8@tensor-static:dense", "fp8@w8a16:dense", "fp8-block@block128:dense",
    "mxfp8@w8a8:dense", "nvfp4@w4a4:dense", "nvfp4@w4a16:dense", "mxfp4@w4a4:dense", "mxfp4@w4a16:dense",
    "mxfp4@w4a6:dense", "mxfp6@w6a6:dense", "int8@w8a8:dense", "int8@w8a16:dense", "int4@w4a16:dense",
    "int4@awq:dense", "w4a8-fp8@w4a8:dense",
)  # fmt: skip
EXPERTS = (
    "nvfp4@w4a4:moe", "nvfp4@w4a16:moe", "fp8@tensor-static:moe", "fp8@channel-dynamic:moe", "fp8-block@block128:moe",
    "mxfp8@w8a8:moe", "mxfp4@w4a4:moe", "int8@w8a8:moe",
)  # fmt: skip
CACHES = ("fp8@e4m3:kv", "nvfp4@nvfp4:kv")


def may_be_unknown(release: str, key: str, sm: int, route: str | None) -> bool:
    """What the records say they do not know: each has its reason in `why`."""
    return (
        (key == "w4a8-fp8@w4a8:dense" and sm != 90)
        or (release == "0.26.0" and route is not None and "Humming" in route)
        or (release == "0.20.2" and key == "fp8-block@block128:dense" and sm in {90, 100, 103})
        or (release == "0.22.1" and key == "nvfp4@nvfp4:kv" and sm in {110, 120, 121})
    )


@pytest.mark.parametrize("host", [NO_TOOLKIT, TOOLKIT], ids=["bare", "toolkit"])
@pytest.mark.parametrize("release", RELEASES)
def test_every_scheme_has_one_verdict_on_every_arch_and_none_is_native_below_its_unit(release: str, host: Host) -> None:
    floor = {"fp8": 89, "fp8-block": 89, "w4a8-fp8": 90, "int8": 75, "mxfp8": 100, "nvfp4": 100, "mxfp4": 100}
    for key in (*DENSE, *EXPERTS, *CACHES):
        if key not in engine(release).ladders:
            assert (release, key) == ("0.20.2", "nvfp4@nvfp4:kv")
            continue
        for sm in ARCHS:
            outcome = judged(release, key, sm, host=host)
            if outcome.verdict == "unknown":
                assert may_be_unknown(release, key, sm, name_of(release, outcome)), (key, sm, outcome)
                assert outcome.why
            else:
                assert outcome.verdict in VERDICTS, (key, sm, outcome)
            if outcome.verdict == "native":
                assert sm >= floor[key.partition("@")[0]], (key, sm)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("key", ["nvfp4@w4a4:dense", "fp8@channel-dynamic:dense", "nvfp4@w4a4:moe"])
def test_nothing_of_vllms_own_runs_on_thor_from_the_x86_64_wheel(release: str, key: str) -> None:
    assert judged(release, key, 110, machine="x86_64").verdict == "broken"
    if (release, key) == ("0.20.2", "fp8@channel-dynamic:dense"):
        return  # its aarch64 wheel has an sm_110f image of the kernel without any tensor-core instruction
    way = first_native(release, key, 110)
    assert way is not None
    assert name_of(release, way.outcome) != "TRITON"


# ================================================================ NVFP4

BLACKWELL = (100, 103, 120, 121)


@pytest.mark.parametrize("sm", BLACKWELL)
@pytest.mark.parametrize("release", ["0.26.0", "0.28.0"])
def test_nvfp4_is_native_as_installed_once_flashinfers_cubins_are_no_requirement(release: str, sm: int) -> None:
    bare = judged(release, "nvfp4@w4a4:dense", sm)
    assert (bare.verdict, name_of(release, bare)) == ("native", "CutlassNvFp4LinearKernel")
    assert judged(release, "nvfp4@w4a4:dense", sm, host=TOOLKIT).verdict == "native"


@pytest.mark.parametrize("sm", BLACKWELL)
@pytest.mark.parametrize("release", ["0.20.2", "0.22.1", "0.24.0"])
def test_nvfp4_meets_a_flashinfer_that_cannot_build_where_its_cubins_are_a_requirement(release: str, sm: int) -> None:
    bare = judged(release, "nvfp4@w4a4:dense", sm)
    if release == "0.24.0" and sm in {100, 103}:
        assert (bare.verdict, name_of(release, bare)) == ("native", "FlashInferCuteDslNvFp4LinearKernel")
    else:
        assert (bare.verdict, bare.gate) == ("broken", "flashinfer-builds")
    assert judged(release, "nvfp4@w4a4:dense", sm, host=TOOLKIT).verdict == "native"


@pytest.mark.parametrize("sm", [*BLACKWELL, 110])
@pytest.mark.parametrize("release", RELEASES)
def test_one_setting_makes_nvfp4_native_on_every_host(release: str, sm: int) -> None:
    way = first_native(release, "nvfp4@w4a4:dense", sm)
    assert way is not None
    if release == "0.20.2":
        assert way.settings == (Setting(env="VLLM_NVFP4_GEMM_BACKEND", value="cutlass"),)
    elif release == "0.24.0" and sm in {100, 103}:
        assert len(way.settings) <= 1
    else:
        assert way.settings == (Setting(path="kernel_config.linear_backend", value="cutlass"),)
        assert name_of(release, way.outcome) == "CutlassNvFp4LinearKernel"


@pytest.mark.parametrize("release", RELEASES)
def test_nvfp4_is_weight_only_before_blackwell_and_w4a16_everywhere(release: str) -> None:
    for sm in (75, 80, 86, 89, 90):
        for host in (NO_TOOLKIT, TOOLKIT):
            found = judged(release, "nvfp4@w4a4:dense", sm, host=host)
            assert (found.verdict, name_of(release, found)) == ("weight-only", "MarlinNvFp4LinearKernel")
        assert first_native(release, "nvfp4@w4a4:dense", sm) is None
    for sm in ARCHS:
        assert judged(release, "nvfp4@w4a16:dense", sm, host=TOOLKIT).verdict == "weight-only"


@pytest.mark.parametrize("release", RELEASES)
def test_a_build_with_an_old_cuda_has_no_nvfp4(release: str) -> None:
    for sm in (100, 120):
        found = judged(release, "nvfp4@w4a4:dense", sm, assumed={"build.cuda": "12.6"})
        if (release, sm) == ("0.24.0", 100):
            assert name_of(release, found) == "FlashInferCuteDslNvFp4LinearKernel"
            assert found.verdict == "broken"
        else:
            assert (found.verdict, name_of(release, found)) == ("weight-only", "MarlinNvFp4LinearKernel")


def test_batch_invariance_emulates_nvfp4_in_0_20_and_takes_cutlass_from_0_22_1_on() -> None:
    invariant: Mapping[str, Value] = {"env.VLLM_BATCH_INVARIANT": True}
    assert judged("0.20.2", "nvfp4@w4a4:dense", 120, host=TOOLKIT, assumed=invariant).verdict == "emulated"
    for release in WITH_A_BACKEND_OPTION:
        found = judged(release, "nvfp4@w4a4:dense", 120, host=TOOLKIT, assumed=invariant)
        assert (found.verdict, name_of(release, found)) == ("native", "CutlassNvFp4LinearKernel"), release


# ================================================================ the option that names a backend


@pytest.mark.parametrize("release", ["0.22.1", "0.24.0", "0.26.0"])
def test_a_backend_without_a_kernel_for_the_layer_raises_up_to_0_26(release: str) -> None:
    found = judged(release, "nvfp4@w4a4:dense", 120, assumed={BACKEND: "machete"})
    assert found.verdict == "unsupported"


def test_a_backend_without_a_kernel_for_the_layer_is_passed_over_in_0_28() -> None:
    found = judged("0.28.0", "nvfp4@w4a4:dense", 120, assumed={BACKEND: "machete"})
    assert (found.verdict, name_of("0.28.0", found)) == ("native", "CutlassNvFp4LinearKernel")


@pytest.mark.parametrize("release", WITH_A_BACKEND_OPTION)
def test_a_backend_that_does_not_run_on_the_gpu_is_refused(release: str) -> None:
    assert judged(release, "nvfp4@w4a4:dense", 90, assumed={BACKEND: "cutlass"}).verdict == "unsupported"


# ================================================================ FP8


@pytest.mark.parametrize("release", RELEASES)
def test_fp8_per_channel_is_vllms_own_cutlass_from_ada_on_on_any_host(release: str) -> None:
    for sm in (89, 90, 100, 103, 110, 120, 121):
        found = bench(release, "fp8@channel-dynamic:dense", sm).outcomes()
        # The sm_110f image of 0.20.2 loads, and is a shell: no tensor-core instruction stands in it.
        expected = "broken" if (release, sm) == ("0.20.2", 110) else "native"
        assert {item.outcome.verdict for item in found} == {expected}, sm
        bare = judged(release, "fp8@channel-dynamic:dense", sm)
        assert name_of(release, bare) == "CutlassFP8ScaledMMLinearKernel"


@pytest.mark.parametrize("release", RELEASES)
def test_fp8_per_tensor_goes_through_flashinfer_on_blackwell_where_vllm_finds_it(release: str) -> None:
    assert judged(release, "fp8@tensor-static:dense", 120, host=TOOLKIT).verdict == "native"
    bare = judged(release, "fp8@tensor-static:dense", 120)
    if release in {"0.26.0", "0.28.0"}:
        assert (bare.verdict, name_of(release, bare)) == ("native", "CutlassFP8ScaledMMLinearKernel")
    else:
        assert (bare.verdict, bare.gate) == ("broken", "flashinfer-builds")
    for sm in (75, 80, 86):
        below = judged(release, "fp8@tensor-static:dense", sm)
        assert below.verdict == ("unknown" if release == "0.26.0" else "weight-only")


@pytest.mark.parametrize("sm", [120, 121])
def test_block_fp8_on_geforce_blackwell_follows_the_deepgemm_inside_the_wheel(sm: int) -> None:
    key = "fp8-block@block128:dense"
    for release in ("0.20.2", "0.22.1"):
        found = judged(release, key, sm, host=TOOLKIT)
        assert (found.verdict, name_of(release, found)) == ("native", "CutlassFp8BlockScaledMMKernel")
    # 0.24.0 admits DeepGEMM on sm12x, while its wheel holds a DeepGEMM that has no kernel for it.
    for host in (NO_TOOLKIT, TOOLKIT):
        found = judged("0.24.0", key, sm, host=host)
        assert found.verdict == "broken"
    assert judged("0.24.0", key, sm, host=TOOLKIT).gate == "has-the-arch"
    for release in ("0.26.0", "0.28.0"):
        assert judged(release, key, sm).gate == "deepgemm-builds"
        found = judged(release, key, sm, host=TOOLKIT)
        assert (found.verdict, name_of(release, found)) == ("native", "DeepGemmFp8BlockScaledMMKernel")
    for release in ("0.24.0", "0.26.0", "0.28.0"):
        way = first_native(release, key, sm)
        assert way is not None
        assert way.settings == (Setting(path="kernel_config.linear_backend", value="cutlass"),)


@pytest.mark.parametrize("release", RELEASES)
def test_block_fp8_needs_a_toolkit_on_hopper_and_sm10x_unless_deepgemm_is_put_aside(release: str) -> None:
    for sm in (90, 100, 103):
        bare = judged(release, "fp8-block@block128:dense", sm)
        assert (bare.verdict, bare.gate) == ("broken", "deepgemm-builds")
        way = first_native(release, "fp8-block@block128:dense", sm)
        assert way is not None
        assert len(way.settings) == 1
        assert name_of(release, way.outcome) == "CutlassFp8BlockScaledMMKernel"
    found = judged(release, "fp8-block@block128:dense", 89)
    assert (found.verdict, name_of(release, found)) == ("native", "TritonFp8BlockScaledMMKernel")


def test_the_deepgemm_of_0_20_2_loads_on_one_python_only() -> None:
    found = judged("0.20.2", "fp8-block@block128:dense", 100, host=TOOLKIT)
    assert found.verdict == "unknown"
    assert found.why is not None
    assert "3.12" in found.why


# ================================================================ MX formats and integers


@pytest.mark.parametrize("release", RELEASES)
def test_mxfp4_is_never_native_on_geforce_blackwell_without_b12x(release: str) -> None:
    for sm in (120, 121):
        for host in (NO_TOOLKIT, TOOLKIT):
            assert judged(release, "mxfp4@w4a4:dense", sm, host=host).verdict != "native"
            assert judged(release, "mxfp4@w4a4:moe", sm, host=host).verdict == "weight-only"
        assert first_native(release, "mxfp4@w4a4:dense", sm) is None


@pytest.mark.parametrize("release", RELEASES)
def test_flashinfer_is_picked_for_mxfp4_on_geforce_blackwell_and_refuses_it(release: str) -> None:
    found = judged(release, "mxfp4@w4a4:dense", 120, host=TOOLKIT)
    if release == "0.20.2":
        assert (found.verdict, name_of(release, found)) == ("weight-only", "CompressedTensorsW4A16Mxfp4")
    else:
        assert (found.verdict, found.gate) == ("broken", "flashinfer-accepts-mxfp4")
        assert judged(release, "mxfp4@w4a4:dense", 100, host=TOOLKIT).verdict == "native"


@pytest.mark.parametrize("release", RELEASES)
def test_mxfp8_takes_flashinfer_on_blackwell_without_asking_whether_it_can_build(release: str) -> None:
    assert judged(release, "mxfp8@w8a8:dense", 90).verdict == "weight-only"
    assert judged(release, "mxfp8@w8a8:dense", 75).verdict == "broken"
    assert judged(release, "mxfp8@w8a8:dense", 120).verdict == "broken"
    assert judged(release, "mxfp8@w8a8:dense", 120, host=TOOLKIT).verdict == "native"
    gone = judged(release, "mxfp8@w8a8:dense", 120, host=TOOLKIT, assumed={"package.flashinfer-python": ABSENT})
    assert gone.verdict == "broken"


@pytest.mark.parametrize("release", RELEASES)
def test_int8_is_native_up_to_hopper_and_has_no_kernel_in_the_wheel_on_blackwell(release: str) -> None:
    for sm in (75, 80, 86, 89, 90):
        assert judged(release, "int8@w8a8:dense", sm).verdict == "native", sm
    for sm in (100, 103, 110, 120, 121):
        found = judged(release, "int8@w8a8:dense", sm, host=TOOLKIT)
        assert (found.verdict, found.gate) == ("broken", "int8-compiled")
    if release in WITH_A_BACKEND_OPTION:
        way = first_native(release, "int8@w8a8:dense", 120)
        assert way is not None
        assert way.settings == (Setting(path="kernel_config.linear_backend", value="triton"),)


@pytest.mark.parametrize("release", RELEASES)
def test_integer_weights_are_weight_only_and_machete_on_hopper(release: str) -> None:
    for key in ("int4@w4a16:dense", "int4@awq:dense", "int8@w8a16:dense"):
        for sm in ARCHS:
            assert judged(release, key, sm).verdict == "weight-only", (key, sm)
        assert name_of(release, judged(release, key, 90)) == "MacheteLinearKernel"
        assert name_of(release, judged(release, key, 120)) == "MarlinLinearKernel"


# ================================================================ experts


@pytest.mark.parametrize("sm", BLACKWELL)
@pytest.mark.parametrize("release", RELEASES)
def test_nvfp4_experts_are_native_on_every_host_by_naming_vllms_own_kernel(release: str, sm: int) -> None:
    way = first_native(release, "nvfp4@w4a4:moe", sm)
    assert way is not None
    assert way.settings == (Setting(path="kernel_config.moe_backend", value="cutlass"),)
    bare = judged(release, "nvfp4@w4a4:moe", sm)
    if release in {"0.26.0", "0.28.0"}:
        assert (bare.verdict, name_of(release, bare)) == ("native", "VLLM_CUTLASS")
    else:
        assert (bare.verdict, bare.gate) == ("broken", "flashinfer-builds")


@pytest.mark.parametrize("release", ["0.26.0", "0.28.0"])
def test_tensorrt_llms_experts_need_nvidias_server_where_the_cubins_are_no_requirement(release: str) -> None:
    offline: Mapping[str, Value] = {"host.nvidia-artifactory": False}
    found = judged(release, "nvfp4@w4a4:moe", 100, host=TOOLKIT, assumed=offline)
    assert (found.verdict, found.gate) == ("broken", "cubins")
    assert judged(release, "nvfp4@w4a4:moe", 100, host=TOOLKIT).verdict == "native"


@pytest.mark.parametrize("release", RELEASES)
def test_fp8_experts_on_gb10_are_16_bit_in_triton(release: str) -> None:
    spark = judged(release, "fp8@channel-dynamic:moe", 121)
    assert (spark.verdict, name_of(release, spark)) == ("storage-only", "TRITON")
    assert judged(release, "fp8@channel-dynamic:moe", 120).verdict == "native"
    thor = judged(release, "fp8@channel-dynamic:moe", 110)
    assert thor.verdict == ("native" if release == "0.28.0" else "broken")


@pytest.mark.parametrize("release", RELEASES)
def test_gpt_oss_is_weight_only_in_triton_on_hopper_and_in_marlin_on_geforce_blackwell(release: str) -> None:
    for host in (NO_TOOLKIT, TOOLKIT):
        for sm, expected in ((90, "TRITON"), (120, "MARLIN"), (121, "MARLIN"), (86, "MARLIN")):
            found = judged(release, "mxfp4@gpt-oss:moe", sm, host=host)
            assert (found.verdict, name_of(release, found)) == ("weight-only", expected), (sm, host)
    assert judged(release, "mxfp4@gpt-oss:moe", 100, host=TOOLKIT).verdict == "weight-only"


def test_batch_invariance_emulates_gpt_oss_up_to_0_21_and_is_refused_by_0_22_1() -> None:
    invariant: Mapping[str, Value] = {"env.VLLM_BATCH_INVARIANT": True, "package.amd-quark": "0.11"}
    assert judged("0.20.2", "mxfp4@gpt-oss:moe", 90, assumed=invariant).verdict == "emulated"
    assert judged("0.22.1", "mxfp4@gpt-oss:moe", 90, assumed=invariant).verdict == "unsupported"
    named: Mapping[str, Value] = {"config.kernel_config.moe_backend": "emulation", "package.amd-quark": "0.11"}
    assert judged("0.22.1", "mxfp4@gpt-oss:moe", 90, assumed=named).verdict == "emulated"


# ================================================================ caches


@pytest.mark.parametrize("release", RELEASES)
def test_an_fp8_cache_is_native_on_hopper_and_by_tensorrt_llms_kernels(release: str) -> None:
    found = judged(release, "fp8@e4m3:kv", 90)
    assert (found.verdict, name_of(release, found)) == ("native", "FLASH_ATTN")
    assert judged(release, "fp8@e4m3:kv", 100).gate == "flashinfer-builds"
    assert judged(release, "fp8@e4m3:kv", 100, host=TOOLKIT).verdict == "native"
    for sm in (80, 89, 120, 121):
        assert judged(release, "fp8@e4m3:kv", sm, host=TOOLKIT).verdict == "storage-only"


def test_0_28_reads_an_fp8_cache_with_flashattention_4_on_datacenter_blackwell() -> None:
    named: Mapping[str, Value] = {"config.attention_config.backend": "FLASH_ATTN"}
    assert judged("0.28.0", "fp8@e4m3:kv", 100, assumed=named).verdict == "native"
    assert judged("0.28.0", "fp8@e4m3:kv", 120, assumed=named).verdict == "unsupported"
    for release in RELEASES[:-1]:
        assert judged(release, "fp8@e4m3:kv", 100, assumed=named).verdict == "unsupported"


def test_an_nvfp4_cache_is_native_on_datacenter_blackwell_only() -> None:
    elsewhere = {"0.22.1": "unknown", "0.24.0": "broken", "0.26.0": "unsupported", "0.28.0": "unsupported"}
    for release, verdict in elsewhere.items():
        assert judged(release, "nvfp4@nvfp4:kv", 100, host=TOOLKIT).verdict == "native"
        assert judged(release, "nvfp4@nvfp4:kv", 120, host=TOOLKIT).verdict == verdict
