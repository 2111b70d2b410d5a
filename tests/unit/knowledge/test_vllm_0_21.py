"""vLLM 0.21.0: what its selectors come to, judged on the images that were measured in its wheels."""

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
    from qresolve.ways import Way

RELEASE = "0.21.0"
ARCHS = (75, 80, 86, 89, 90, 100, 103, 110, 120, 121)
VERDICTS = (*CLASSES, "broken", "unsupported")
NO_TOOLKIT = Host.without_toolkit()
TOOLKIT = Host(nvcc="13.0", ninja=True, cxx=True)
ANY_HOST = Host()
NOTHING: Mapping[str, Value] = {}


@cache
def engine() -> Engine:
    return load_engine("vllm", RELEASE)


def judged(
    key: str, sm: int, *, host: Host = NO_TOOLKIT, machine: str = "x86_64", assumed: Mapping[str, Value] = NOTHING
) -> Outcome:
    """The one outcome of a plain install on a host that is known."""
    found = release_bench(RELEASE, key, sm, host=host, machine=machine, assumed=assumed).outcomes()
    assert len(found) == 1, [item.outcome for item in found]
    return found[0].outcome


def name_of(outcome: Outcome) -> str | None:
    return None if outcome.route is None else engine().routes[outcome.route].name


def first_native(key: str, sm: int, *, machine: str = "x86_64", assumed: Mapping[str, Value] = NOTHING) -> Way | None:
    """The way with the fewest settings that is native on every host."""
    laid_out = release_bench(RELEASE, key, sm, host=ANY_HOST, machine=machine, assumed=assumed)
    return next((way for way in ways(laid_out) if way.outcome.verdict == "native"), None)


def test_both_builds_of_the_release_are_known_and_the_later_build_is_the_one_judged() -> None:
    names = {row.filename for row in read_wheel_index("vllm") if row.version == RELEASE}
    assert {name.split("-")[2] for name in names} == {"1", "cp38"}
    for machine in ("x86_64", "aarch64"):
        row = row_for("vllm", RELEASE, machine)
        assert row is not None
        assert row.filename.split("-")[2] == "1"


def test_the_release_is_older_than_the_newest_and_pins_what_its_metadata_says() -> None:
    assert [item.version for item in read_releases("vllm")].index(RELEASE) > 0
    row = row_for("vllm", RELEASE, "x86_64")
    assert row is not None
    declared = {text.replace(" ", "") for text in row.declared.requires_dist}
    own = {pin.requirement for pin in engine().release.pins if ";" not in pin.requirement}
    assert own <= declared
    assert engine().release.requires_python == SpecifierSet(row.declared.requires_python or "")


def test_the_toolkit_is_the_one_that_the_pinned_torch_claims() -> None:
    torch = next(pin.version for pin in engine().release.pins if pin.package == "torch")
    claimed = {row.declared.cuda for row in read_wheel_index("torch") if row.version == torch}
    assert claimed == {engine().release.toolkit}


DENSE = (
    "fp8@channel-dynamic:dense", "fp8@tensor-static:dense", "fp8@w8a16:dense", "fp8-block@block128:dense",
    "mxfp8@w8a8:dense", "nvfp4@w4a4:dense", "nvfp4@w4a16:dense", "mxfp4@w4a4:dense", "mxfp4@w4a16:dense",
    "mxfp4@w4a6:dense", "mxfp6@w6a6:dense", "int8@w8a8:dense", "int8@w8a16:dense", "int4@w4a16:dense",
    "int4@awq:dense", "w4a8-fp8@w4a8:dense",
)  # fmt: skip


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("host", [NO_TOOLKIT, TOOLKIT], ids=["bare", "toolkit"])
def test_every_dense_scheme_has_one_verdict_on_every_arch(host: Host, machine: str) -> None:
    for key in DENSE:
        for sm in ARCHS:
            outcome = judged(key, sm, host=host, machine=machine)
            if key == "w4a8-fp8@w4a8:dense" and sm != 90:
                assert outcome.verdict == "unknown"
                assert outcome.why
            else:
                assert outcome.verdict in VERDICTS, (key, sm, outcome)


@pytest.mark.parametrize("sm", ARCHS)
@pytest.mark.parametrize("key", DENSE)
def test_nothing_is_native_below_the_unit_that_the_format_needs(key: str, sm: int) -> None:
    floor = {"fp8": 89, "fp8-block": 89, "w4a8-fp8": 90, "int8": 75, "mxfp8": 100, "nvfp4": 100, "mxfp4": 100}
    outcome = judged(key, sm, host=TOOLKIT)
    if outcome.verdict == "native":
        assert sm >= floor[key.partition("@")[0]], (key, sm)


@pytest.mark.parametrize(("sm", "machine"), [(120, "x86_64"), (121, "aarch64"), (100, "x86_64"), (103, "x86_64")])
def test_nvfp4_is_broken_as_installed_and_native_with_one_variable(sm: int, machine: str) -> None:
    plain = judged("nvfp4@w4a4:dense", sm, machine=machine)
    assert (plain.verdict, plain.gate) == ("broken", "flashinfer-builds")
    assert name_of(plain) == "FlashInferCutlassNvFp4LinearKernel"
    way = first_native("nvfp4@w4a4:dense", sm, machine=machine)
    assert way is not None
    assert way.settings == (Setting(env="VLLM_NVFP4_GEMM_BACKEND", value="cutlass"),)
    assert name_of(way.outcome) == "CutlassNvFp4LinearKernel"


def test_nvfp4_needs_no_setting_where_the_host_is_known_to_have_a_toolkit() -> None:
    found = judged("nvfp4@w4a4:dense", 120, host=TOOLKIT)
    assert (found.verdict, name_of(found)) == ("native", "FlashInferCutlassNvFp4LinearKernel")
    old = judged("nvfp4@w4a4:dense", 120, host=Host(nvcc="12.8", ninja=True, cxx=True))
    assert (old.verdict, old.gate) == ("broken", "flashinfer-builds")


def test_nvfp4_is_weight_only_on_hopper_with_and_without_a_toolkit() -> None:
    for host in (NO_TOOLKIT, TOOLKIT):
        found = judged("nvfp4@w4a4:dense", 90, host=host)
        assert (found.verdict, name_of(found)) == ("weight-only", "MarlinNvFp4LinearKernel")
    assert first_native("nvfp4@w4a4:dense", 90) is None


@pytest.mark.parametrize("key", ["nvfp4@w4a4:dense", "fp8@channel-dynamic:dense", "fp8-block@block128:dense"])
def test_thor_has_images_in_the_aarch64_wheel_only(key: str) -> None:
    for host in (NO_TOOLKIT, TOOLKIT):
        assert judged(key, 110, host=host, machine="x86_64").verdict == "broken"
    assert first_native(key, 110, machine="x86_64") is None
    assert first_native(key, 110, machine="aarch64") is not None


@pytest.mark.parametrize("sm", [89, 90, 100, 103, 120, 121])
def test_fp8_per_channel_is_native_from_ada_on_on_any_host(sm: int) -> None:
    laid_out = release_bench(RELEASE, "fp8@channel-dynamic:dense", sm, host=ANY_HOST, machine="x86_64", assumed=NOTHING)
    assert {item.outcome.verdict for item in laid_out.outcomes()} == {"native"}
    assert name_of(judged("fp8@channel-dynamic:dense", sm)) == "CutlassFP8ScaledMMLinearKernel"


@pytest.mark.parametrize("sm", [75, 80, 86])
@pytest.mark.parametrize("key", ["fp8@channel-dynamic:dense", "fp8-block@block128:dense"])
def test_fp8_is_weight_only_before_ada(key: str, sm: int) -> None:
    found = judged(key, sm)
    assert (found.verdict, name_of(found)) == ("weight-only", "MarlinFP8ScaledMMLinearKernel")


def test_fp8_per_tensor_goes_through_flashinfer_on_blackwell_and_cutlass_elsewhere() -> None:
    assert name_of(judged("fp8@tensor-static:dense", 90)) == "CutlassFP8ScaledMMLinearKernel"
    bare = judged("fp8@tensor-static:dense", 120)
    assert (bare.verdict, bare.gate) == ("broken", "flashinfer-builds")
    assert judged("fp8@tensor-static:dense", 120, host=TOOLKIT).verdict == "native"
    without = {"env.VLLM_DISABLED_KERNELS": frozenset({"FlashInferFP8ScaledMMLinearKernel"})}
    found = judged("fp8@tensor-static:dense", 120, assumed=without)
    assert (found.verdict, name_of(found)) == ("native", "CutlassFP8ScaledMMLinearKernel")


def test_forcing_marlin_makes_fp8_weight_only_and_is_the_only_way_to_load_w8a16_from_ada_on() -> None:
    forced: Mapping[str, Value] = {"env.VLLM_TEST_FORCE_FP8_MARLIN": "1"}
    assert judged("fp8@channel-dynamic:dense", 90, assumed=forced).verdict == "weight-only"
    assert judged("fp8@w8a16:dense", 86).verdict == "weight-only"
    assert judged("fp8@w8a16:dense", 90).verdict == "unsupported"
    laid_out = release_bench(RELEASE, "fp8@w8a16:dense", 90, host=ANY_HOST, machine="x86_64", assumed=NOTHING)
    way = next(way for way in ways(laid_out) if way.outcome.verdict == "weight-only")
    assert way.settings == (Setting(env="VLLM_TEST_FORCE_FP8_MARLIN", value="1"),)


@pytest.mark.parametrize("sm", [90, 100, 103])
def test_block_fp8_picks_deepgemm_which_needs_a_toolkit_unless_it_is_switched_off(sm: int) -> None:
    bare = judged("fp8-block@block128:dense", sm)
    assert (bare.verdict, bare.gate) == ("broken", "deepgemm-builds")
    assert judged("fp8-block@block128:dense", sm, host=TOOLKIT).verdict == "native"
    way = first_native("fp8-block@block128:dense", sm)
    assert way is not None
    assert way.settings == (Setting(env="VLLM_USE_DEEP_GEMM", value="0"),)
    assert name_of(way.outcome) == "CutlassFp8BlockScaledMMKernel"


def test_block_fp8_has_no_deepgemm_on_sm12x_and_triton_on_ada() -> None:
    for sm in (120, 121):
        assert name_of(judged("fp8-block@block128:dense", sm, host=TOOLKIT)) == "CutlassFp8BlockScaledMMKernel"
    found = judged("fp8-block@block128:dense", 89)
    assert (found.verdict, name_of(found)) == ("native", "TritonFp8BlockScaledMMKernel")


def test_mxfp4_is_never_native_whatever_the_checkpoint_asks() -> None:
    for sm in ARCHS:
        for host in (NO_TOOLKIT, TOOLKIT):
            assert judged("mxfp4@w4a4:dense", sm, host=host).verdict in {"weight-only", "unsupported"}
        assert first_native("mxfp4@w4a4:dense", sm) is None
    quark: Mapping[str, Value] = {"workload.quantizer": "quark"}
    assert judged("mxfp4@w4a4:dense", 120, assumed=quark).verdict == "broken"
    assert judged("mxfp4@w4a4:dense", 120, assumed={**quark, "package.amd-quark": "0.12"}).verdict == "emulated"


def test_mxfp8_takes_flashinfer_on_blackwell_without_asking_whether_it_is_there() -> None:
    assert judged("mxfp8@w8a8:dense", 90).verdict == "weight-only"
    assert judged("mxfp8@w8a8:dense", 75).verdict == "broken"
    assert judged("mxfp8@w8a8:dense", 120).verdict == "broken"
    assert judged("mxfp8@w8a8:dense", 120, host=TOOLKIT).verdict == "native"
    gone = judged("mxfp8@w8a8:dense", 120, host=TOOLKIT, assumed={"package.flashinfer-python": ABSENT})
    assert (gone.verdict, gone.gate) == ("broken", "flashinfer")


def test_int8_is_native_up_to_hopper_and_a_null_pointer_on_blackwell() -> None:
    for sm in (75, 80, 86, 89, 90):
        assert judged("int8@w8a8:dense", sm).verdict == "native", sm
    for sm in (100, 103, 110, 120, 121):
        found = judged("int8@w8a8:dense", sm, host=TOOLKIT)
        assert (found.verdict, found.gate) == ("broken", "int8-compiled")
    without = {"env.VLLM_DISABLED_KERNELS": frozenset({"CutlassInt8ScaledMMLinearKernel"})}
    assert name_of(judged("int8@w8a8:dense", 120, assumed=without)) == "TritonInt8ScaledMMLinearKernel"


def test_integer_weights_are_weight_only_everywhere_and_machete_on_hopper() -> None:
    for key in ("int4@w4a16:dense", "int4@awq:dense", "int8@w8a16:dense"):
        for sm in ARCHS:
            assert judged(key, sm).verdict == "weight-only", (key, sm)
        assert name_of(judged(key, 90)) == "MacheteLinearKernel"
        assert name_of(judged(key, 120)) == "MarlinLinearKernel"
    # The aarch64 wheel was built without sm75.
    assert judged("int4@w4a16:dense", 75, machine="aarch64").verdict == "broken"


def test_variables_of_the_host_change_nvfp4_as_the_source_says() -> None:
    for variable in ("env.VLLM_BATCH_INVARIANT", "env.VLLM_USE_NVFP4_CT_EMULATIONS"):
        assert judged("nvfp4@w4a4:dense", 120, host=TOOLKIT, assumed={variable: True}).verdict == "emulated"
    fbgemm = judged("nvfp4@w4a4:dense", 120, host=TOOLKIT, assumed={"env.VLLM_USE_FBGEMM": True})
    assert fbgemm.verdict == "unsupported"
    named = judged("nvfp4@w4a4:dense", 90, assumed={"env.VLLM_NVFP4_GEMM_BACKEND": "cutlass"})
    assert named.verdict == "unsupported"


def test_a_build_with_an_old_cuda_has_no_nvfp4() -> None:
    for sm in (100, 120):
        found = judged("nvfp4@w4a4:dense", sm, host=TOOLKIT, assumed={"build.cuda": "12.6"})
        assert (found.verdict, name_of(found)) == ("weight-only", "MarlinNvFp4LinearKernel")
    old = judged("fp8@channel-dynamic:dense", 120, assumed={"build.cuda": "12.6"})
    assert (old.verdict, old.gate) == ("broken", "built")


EXPERTS = (
    "nvfp4@w4a4:moe", "nvfp4@w4a16:moe", "fp8@tensor-static:moe", "fp8@channel-dynamic:moe", "fp8-block@block128:moe",
    "mxfp8@w8a8:moe", "mxfp4@w4a4:moe", "int8@w8a8:moe", "int4@w4a16:moe",
)  # fmt: skip


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("host", [NO_TOOLKIT, TOOLKIT], ids=["bare", "toolkit"])
def test_every_moe_scheme_has_one_verdict_and_none_is_native_below_its_unit(host: Host, machine: str) -> None:
    floor = {"nvfp4": 100, "mxfp4": 100, "mxfp8": 100, "fp8": 89, "fp8-block": 89, "int8": 80}
    for key in EXPERTS:
        for sm in ARCHS:
            outcome = judged(key, sm, host=host, machine=machine)
            assert outcome.verdict in VERDICTS, (key, sm, outcome)
            if outcome.verdict == "native":
                assert sm >= floor[key.partition("@")[0]], (key, sm)


@pytest.mark.parametrize("sm", [100, 103, 120, 121])
def test_nvfp4_experts_are_native_without_a_toolkit_by_naming_vllms_own_kernel(sm: int) -> None:
    plain = judged("nvfp4@w4a4:moe", sm)
    assert (plain.verdict, plain.gate) == ("broken", "flashinfer-builds")
    way = first_native("nvfp4@w4a4:moe", sm)
    assert way is not None
    assert way.settings == (Setting(path="kernel_config.moe_backend", value="cutlass"),)
    assert name_of(way.outcome) == "VLLM_CUTLASS"
    assert judged("nvfp4@w4a4:moe", sm, host=TOOLKIT).verdict == "native"
    assert judged("nvfp4@w4a16:moe", sm).verdict == "weight-only"


def test_nvfp4_experts_are_weight_only_on_hopper_and_have_no_image_on_thor_in_the_x86_64_wheel() -> None:
    assert name_of(judged("nvfp4@w4a4:moe", 90, host=TOOLKIT)) == "MARLIN"
    assert judged("nvfp4@w4a4:moe", 110, host=TOOLKIT).verdict == "broken"
    assert judged("nvfp4@w4a4:moe", 110, machine="aarch64").verdict == "native"


def test_fp8_experts_per_channel_take_cutlass_on_hopper_and_triton_where_there_is_no_grouped_kernel() -> None:
    assert name_of(judged("fp8@channel-dynamic:moe", 90)) == "VLLM_CUTLASS"
    assert name_of(judged("fp8@channel-dynamic:moe", 100)) == "VLLM_CUTLASS"
    for sm in (89, 120):
        found = judged("fp8@channel-dynamic:moe", sm)
        assert (found.verdict, name_of(found)) == ("native", "TRITON")
    assert judged("fp8@channel-dynamic:moe", 86).verdict == "weight-only"
    native_fp8: Mapping[str, Value] = {"workload.quantizer": "fp8"}
    assert name_of(judged("fp8@channel-dynamic:moe", 90, assumed=native_fp8)) == "TRITON"


def test_block_fp8_experts_prefer_triton_on_hopper_unless_experts_are_spread() -> None:
    assert name_of(judged("fp8-block@block128:moe", 90, host=TOOLKIT)) == "TRITON"
    spread = judged("fp8-block@block128:moe", 90, host=TOOLKIT, assumed={"workload.ep": 2})
    assert name_of(spread) == "FLASHINFER_CUTLASS"
    assert name_of(judged("fp8-block@block128:moe", 120, host=TOOLKIT)) == "TRITON"


def test_setting_a_deepgemm_variable_forces_it_for_fp8_experts() -> None:
    forced: Mapping[str, Value] = {"env.VLLM_MOE_USE_DEEP_GEMM": "1"}
    assert name_of(judged("fp8-block@block128:moe", 100, host=TOOLKIT, assumed=forced)) == "DEEPGEMM"
    assert judged("fp8-block@block128:moe", 120, host=TOOLKIT, assumed=forced).verdict == "unsupported"
    assert judged("fp8@channel-dynamic:moe", 90, assumed=forced).verdict == "unsupported"


def test_flashinfers_moe_variables_restrict_the_ladder() -> None:
    def nvfp4(**variables: str) -> str | None:
        assumed = {f"env.{name}": value for name, value in variables.items()}
        return name_of(judged("nvfp4@w4a4:moe", 100, host=TOOLKIT, assumed=assumed))

    assert nvfp4() == "FLASHINFER_TRTLLM"
    assert nvfp4(VLLM_USE_FLASHINFER_MOE_FP4="0") == "VLLM_CUTLASS"
    assert nvfp4(VLLM_USE_FLASHINFER_MOE_FP4="1") == "FLASHINFER_TRTLLM"
    assert nvfp4(VLLM_USE_FLASHINFER_MOE_FP4="1", VLLM_FLASHINFER_MOE_BACKEND="throughput") == "FLASHINFER_CUTLASS"
    assert nvfp4(VLLM_USE_FLASHINFER_MOE_FP4="1", VLLM_FLASHINFER_MOE_BACKEND="masked_gemm") == "FLASHINFER_CUTEDSL"
    assert nvfp4(VLLM_FLASHINFER_MOE_BACKEND="throughput") == "FLASHINFER_TRTLLM"
    only = judged("nvfp4@w4a4:moe", 90, host=TOOLKIT, assumed={"env.VLLM_USE_FLASHINFER_MOE_FP4": "1"})
    assert only.verdict == "unsupported"


def test_mxfp4_experts_are_native_on_datacenter_blackwell_only() -> None:
    for sm in (100, 103):
        assert judged("mxfp4@w4a4:moe", sm).verdict == "native"
    for sm in (90, 120, 121):
        assert judged("mxfp4@w4a4:moe", sm, host=TOOLKIT).verdict == "weight-only"


def test_gpt_oss_experts_are_weight_only_everywhere_and_need_a_named_backend_on_a_bare_sm100() -> None:
    for sm, backend in ((80, "MARLIN"), (90, "TRITON"), (120, "MARLIN")):
        found = judged("mxfp4@gpt-oss:moe", sm)
        assert (found.verdict, name_of(found)) == ("weight-only", backend)
    assert judged("mxfp4@gpt-oss:moe", 100).verdict == "broken"
    assert judged("mxfp4@gpt-oss:moe", 100, host=TOOLKIT).verdict == "weight-only"
    named: Mapping[str, Value] = {"config.kernel_config.moe_backend": "triton"}
    assert judged("mxfp4@gpt-oss:moe", 100, assumed=named).verdict == "weight-only"


def test_variables_choose_the_activations_of_gpt_oss_experts() -> None:
    def asked(sm: int, name: str, value: Value) -> tuple[str, str | None]:
        found = judged("mxfp4@gpt-oss:moe", sm, host=TOOLKIT, assumed={f"env.{name}": value})
        return found.verdict, name_of(found)

    name = "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS"
    assert asked(120, name, True) == ("mixed", "FLASHINFER_CUTLASS_MXFP4_MXFP8")
    assert asked(90, name, True) == ("unsupported", None)
    assert asked(90, "VLLM_USE_FLASHINFER_MOE_MXFP4_BF16", "1") == ("weight-only", "FLASHINFER_CUTLASS_MXFP4_BF16")
    assert asked(100, "VLLM_USE_FLASHINFER_MOE_MXFP4_BF16", "0") == ("weight-only", "TRITON")
    assert asked(120, "VLLM_USE_FLASHINFER_MOE_MXFP4_BF16", "1") == ("unsupported", None)


def test_an_fp8_cache_is_native_on_hopper_and_by_tensorrt_llms_kernels() -> None:
    found = judged("fp8@e4m3:kv", 90)
    assert (found.verdict, name_of(found)) == ("native", "FLASH_ATTN")
    assert judged("fp8@e4m3:kv", 100).gate == "flashinfer-builds"
    assert judged("fp8@e4m3:kv", 100, host=TOOLKIT).verdict == "native"
    refused: Mapping[str, Value] = {"config.attention_config.use_trtllm_attention": "false"}
    assert judged("fp8@e4m3:kv", 100, host=TOOLKIT, assumed=refused).verdict == "unknown"
    for sm in (80, 89, 120, 121):
        assert judged("fp8@e4m3:kv", sm, host=TOOLKIT).verdict == "storage-only"


def test_an_nvfp4_cache_is_native_on_datacenter_blackwell_only() -> None:
    assert judged("nvfp4@nvfp4:kv", 100, host=TOOLKIT).verdict == "native"
    assert judged("nvfp4@nvfp4:kv", 89, host=TOOLKIT).verdict == "broken"
    hopper = judged("nvfp4@nvfp4:kv", 90, host=TOOLKIT)
    assert (hopper.verdict, name_of(hopper)) == ("unknown", "FLASH_ATTN")
    assert judged("nvfp4@nvfp4:kv", 120, host=TOOLKIT).verdict == "unknown"


def test_the_pinned_triton_has_no_fp8_for_gb10_and_no_compiler_for_thor() -> None:
    for key in ("fp8@channel-dynamic:moe", "fp8-block@block128:moe"):
        spark = judged(key, 121, machine="aarch64")
        assert (spark.verdict, name_of(spark)) == ("storage-only", "TRITON")
        assert first_native(key, 121, machine="aarch64") is None
        thor = judged(key, 110, machine="aarch64")
        assert (thor.verdict, thor.gate) == ("broken", "triton-fp8")
    cache: Mapping[str, Value] = {"config.attention_config.backend": "TRITON_ATTN"}
    verdicts = {sm: judged("fp8@e4m3:kv", sm, assumed=cache).verdict for sm in (86, 89, 90, 120, 121)}
    assert verdicts == {86: "broken", 89: "native", 90: "storage-only", 120: "native", 121: "storage-only"}
    assert judged("int8@w8a8:moe", 121).verdict == "native"
    assert judged("int8@w8a8:moe", 75).verdict == "broken"


def test_flashinfer_cannot_build_where_the_toolkit_comes_without_a_cxx_compiler() -> None:
    key, gpu = "fp8@tensor-static:dense", 120
    assert judged(key, gpu, host=TOOLKIT).verdict == "native"
    without = judged(key, gpu, host=Host(nvcc="13.0", ninja=True, cxx=False))
    assert (without.verdict, without.gate) == ("broken", "flashinfer-builds")
