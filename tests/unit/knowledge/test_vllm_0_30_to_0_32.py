"""vLLM 0.30.0, 0.31.0 and 0.32.0: what the real selectors picked, what is not the same in each, on measured images."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.specifiers import SpecifierSet

from qresolve.classes import VERDICTS
from qresolve.facts import ABSENT, Value
from qresolve.gates import leaves
from qresolve.knowledge.engine import load_engine
from qresolve.measured import images_for, row_for, versions_of
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

    Cells = Mapping[str, Mapping[str, Mapping[str, str | None]]]

RELEASES = ("0.30.0", "0.31.0", "0.32.0")
ARCHS = (75, 80, 86, 89, 90, 100, 103, 110, 120, 121)
BARE = Host.without_toolkit()
TOOLKIT = Host(nvcc="13.0", ninja=True, cxx=True)
ANY_HOST = Host()
NOTHING: Mapping[str, Value] = {}
ON_PATH: Mapping[str, Value] = {
    "host.nvcc-on-path": True,
    "host.linkable-cudart": True,
    "host.nvidia-artifactory": True,
}
ORACLES = Path(__file__).parents[2] / "data" / "oracle"

# What the selectors were asked for a scheme that more than one of them can take.
QUANTIZERS = {"mxfp4@gpt-oss:moe": "mxfp4", "mxfp4@deepseek-v4:moe": "mxfp4"}


@cache
def engine(release: str) -> Engine:
    return load_engine("vllm", release)


def judged(
    release: str,
    key: str,
    sm: int,
    *,
    host: Host = BARE,
    machine: str = "x86_64",
    assumed: Mapping[str, Value] = NOTHING,
) -> Outcome:
    """The one outcome on a host that is known; a host with a toolkit shows its nvcc on PATH."""
    known = {**(ON_PATH if host is TOOLKIT else {}), **assumed}
    found = release_bench(release, key, sm, host=host, machine=machine, assumed=known).outcomes()
    assert len(found) == 1, [item.outcome for item in found]
    return found[0].outcome


def picked(release: str, key: str, sm: int, *, host: Host = BARE, assumed: Mapping[str, Value] = NOTHING) -> str | None:
    route = judged(release, key, sm, host=host, assumed=assumed).route
    return None if route is None else engine(release).routes[route].name


def first_native(release: str, key: str, sm: int) -> Way | None:
    """The way with the fewest settings that is native on every host."""
    laid_out = release_bench(release, key, sm, host=ANY_HOST, machine="x86_64", assumed=NOTHING)
    return next((way for way in ways(laid_out) if way.outcome.verdict == "native"), None)


# ---------------------------------------------------------------- the release


@pytest.mark.parametrize("release", RELEASES)
def test_pins_are_those_of_the_metadata(release: str) -> None:
    row = row_for("vllm", release, "x86_64")
    assert row is not None
    declared = {text.replace(" ", "") for text in row.declared.requires_dist}
    own = {pin.requirement for pin in engine(release).release.pins if ";" not in pin.requirement}
    assert own <= declared
    assert engine(release).release.requires_python == SpecifierSet(row.declared.requires_python or "")
    assert row.declared.upload_time is not None
    assert row.declared.upload_time.startswith(engine(release).release.released.isoformat())


@pytest.mark.parametrize("release", RELEASES)
def test_the_toolkit_and_triton_are_those_of_the_pinned_torch(release: str) -> None:
    pins = {pin.package: pin for pin in engine(release).release.pins}
    rows = [row for row in read_wheel_index("torch") if row.version == pins["torch"].version]
    assert {row.declared.cuda for row in rows} == {engine(release).release.toolkit}
    for row in rows:
        assert any(text.startswith(f"triton=={pins['triton'].version};") for text in row.declared.requires_dist)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("release", RELEASES)
def test_every_image_that_a_gate_names_is_in_the_measured_wheel(release: str, machine: str) -> None:
    known = engine(release)
    images = images_for(versions_of(known), machine)
    named = {
        leaf.fact.removeprefix("image.")
        for route in known.routes.values()
        for gate in (*route.select, *route.execute)
        for leaf in leaves(gate.when)
        if leaf.fact.startswith("image.")
    }
    assert named
    # The aarch64 wheels are built without sm75.
    missing = set()
    for name in named:
        project, _, rest = name.partition(":")
        library, _, unit = rest.partition("/")
        if not images(project, library, unit):
            missing.add(name)
    assert all(machine == "aarch64" and "/sm75_kernel_" in name for name in missing), missing


def test_b12x_can_be_added_to_0_32_and_not_to_those_whose_extra_contradicts_their_own_pin() -> None:
    assert [item.fact for item in engine("0.32.0").provisions] == ["package.b12x"]
    for release in ("0.30.0", "0.31.0"):
        assert engine(release).provisions == ()
        own = {pin.package: pin.version for pin in engine(release).release.pins}["nvidia-cutlass-dsl"]
        row = row_for("vllm", release, "x86_64")
        assert row is not None
        wanted = next(text for text in row.declared.requires_dist if text.startswith("b12x=="))
        version = wanted.removeprefix("b12x==").partition(";")[0].strip()
        (b12x,) = [item for item in read_wheel_index("b12x") if item.version == version]
        pinned = next(text for text in b12x.declared.requires_dist if text.startswith("nvidia-cutlass-dsl=="))
        assert pinned != f"nvidia-cutlass-dsl=={own}"


# ---------------------------------------------------------------- against the real selectors


@cache
def oracle(release: str) -> Cells:
    cells: Cells = json.loads((ORACLES / f"vllm-{release}.json").read_text(encoding="utf-8"))["cells"]
    return cells


def _asked(key: str) -> Mapping[str, Value]:
    """What the oracle's question was: no checkpoint, so nothing that compressed-tensors does before it selects."""
    if key.endswith(":dense"):
        return {"workload.quantizer": "modelopt"}
    if key == "mxfp4@gpt-oss:moe":
        return {"workload.quantizer": "mxfp4", "workload.moe-activation": "swigluoai"}
    if key.startswith("mxfp4@"):
        return {"workload.quantizer": QUANTIZERS.get(key, "quark")}
    return NOTHING


@pytest.mark.parametrize("host", [BARE, TOOLKIT], ids=["bare", "toolkit"])
@pytest.mark.parametrize("release", RELEASES)
def test_the_real_selectors_pick_what_the_records_say(release: str, host: Host) -> None:
    compared = 0
    for key, hosts in oracle(release).items():
        for sm, name in hosts["bare" if host is BARE else "toolkit"].items():
            found = picked(release, key, int(sm), host=host, assumed=_asked(key))
            assert found == name, (release, key, sm, found, name)
            compared += 1
    assert compared > 240


# ---------------------------------------------------------------- one verdict everywhere


FLOORS = {"fp8": 89, "fp8-block": 89, "w4a8-fp8": 89, "int8": 75, "mxfp8": 89, "nvfp4": 100, "mxfp4": 89}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("release", RELEASES)
def test_every_scheme_has_one_verdict_on_every_arch_and_none_is_native_below_its_unit(
    release: str, machine: str
) -> None:
    for key in engine(release).ladders:
        for sm in ARCHS:
            outcome = judged(release, key, sm, host=TOOLKIT, machine=machine)
            assert outcome.verdict in (*VERDICTS, "unknown"), (key, sm, outcome)
            assert outcome.verdict != "unknown" or outcome.why, (key, sm)
            if outcome.verdict == "native" and not key.startswith(("bf16@", "fp16@")):
                assert sm >= FLOORS[key.partition("@")[0]], (key, sm)


# ---------------------------------------------------------------- 0.32.0 against 0.33.0


@pytest.mark.parametrize("sm", [100, 103, 120, 121])
@pytest.mark.parametrize("release", RELEASES)
def test_nvfp4_is_native_in_vllms_own_kernel_on_a_bare_host(release: str, sm: int) -> None:
    found = judged(release, "nvfp4@w4a4:dense", sm)
    assert (found.verdict, found.route) == ("native", "vllm.nvfp4.cutlass")


@pytest.mark.parametrize("release", RELEASES)
def test_torch_has_no_mxfp8_kernel_before_0_33(release: str) -> None:
    ladder = engine(release).ladders["mxfp8@w8a8:dense"]
    names = {engine(release).routes[route].name for route in ladder.order}
    assert "TorchMxFp8LinearKernel" not in names
    assert "TorchMxFp8LinearKernel" in {route.name for route in load_engine("vllm", "0.33.0").routes.values()}


@pytest.mark.parametrize("release", RELEASES)
def test_batch_invariance_does_not_dequantize_int4_before_0_33(release: str) -> None:
    assumed: Mapping[str, Value] = {"env.VLLM_BATCH_INVARIANT": True, "workload.quantizer": "compressed-tensors"}
    assert picked(release, "int4@w4a16:dense", 120, assumed=assumed) == "MarlinLinearKernel"


@pytest.mark.parametrize("release", RELEASES)
def test_experts_use_deepgemm_for_a_model_that_dense_layers_exclude(release: str) -> None:
    assumed: Mapping[str, Value] = {"workload.model-type": "qwen3_5_moe_text"}
    assert picked(release, "fp8-block@block128:moe", 120, host=TOOLKIT, assumed=assumed) == "DEEPGEMM"
    dense = picked(release, "fp8-block@block128:dense", 120, host=TOOLKIT, assumed=assumed)
    assert dense == "CutlassFp8BlockScaledMMKernel"


def test_triton_of_these_releases_converts_fp8_to_16_bits_on_sm121() -> None:
    for release in RELEASES:
        assert judged(release, "fp8@channel-dynamic:moe", 121).verdict == "storage-only"
        assert judged(release, "fp8@channel-dynamic:moe", 120).verdict == "native"


@pytest.mark.parametrize("release", RELEASES)
def test_flashinfer_wants_cuda_12_9_for_sm120_up_to_0_7_0(release: str) -> None:
    old = Host(nvcc="12.8", ninja=True, cxx=True)
    found = judged(release, "mxfp8@w8a8:dense", 120, host=old, assumed=ON_PATH)
    assert (found.verdict, found.gate) == ("broken", "flashinfer-compiles")
    new = Host(nvcc="12.9", ninja=True, cxx=True)
    assert judged(release, "mxfp8@w8a8:dense", 120, host=new, assumed=ON_PATH).verdict == "native"


@pytest.mark.parametrize(
    ("release", "verdict"), [("0.32.0", "native"), ("0.31.0", "native"), ("0.30.0", "weight-only")]
)
def test_humming_multiplies_mxfp4_natively_on_sm120_since_0_31(release: str, verdict: str) -> None:
    named: Mapping[str, Value] = {"config.kernel_config.linear_backend_per_quant.mxfp4": "humming"}
    assert judged(release, "mxfp4@w4a4:dense", 120, assumed=named).verdict == verdict
    assert judged(release, "mxfp4@w4a4:dense", 100, assumed=named).verdict == "weight-only"
    way = first_native(release, "mxfp4@w4a4:dense", 120)
    if verdict == "native":
        assert way is not None
        assert Setting(path="kernel_config.linear_backend_per_quant.mxfp4", value="humming") in way.settings
    else:
        assert way is None


# ---------------------------------------------------------------- 0.31.0 against 0.32.0


@pytest.mark.parametrize("release", ["0.30.0", "0.31.0"])
def test_flashinfer_is_not_seen_where_nvcc_is_not_on_path(release: str) -> None:
    elsewhere: Mapping[str, Value] = {"host.nvcc-on-path": False}
    table = {"host": TOOLKIT, "machine": "x86_64", "assumed": {**ON_PATH, **elsewhere}}
    found = release_bench(release, "mxfp8@w8a8:dense", 120, **table).outcomes()  # type: ignore[arg-type]
    assert {item.outcome.route for item in found} == {"vllm.mxfp8.marlin"}
    assert picked(release, "mxfp8@w8a8:dense", 120, host=TOOLKIT) == "FlashInferCutlassMxfp8LinearKernel"
    assert picked("0.32.0", "mxfp8@w8a8:dense", 120, host=TOOLKIT, assumed=elsewhere) == (
        "FlashInferCutlassMxfp8LinearKernel"
    )


@pytest.mark.parametrize("key", ["mxfp4@w4a4:dense", "nvfp4@w4a4:dense", "mxfp8@w8a8:dense", "nvfp4@w4a4:moe"])
def test_humming_comes_before_marlin_on_hopper_since_0_32(key: str) -> None:
    for release, name in (("0.32.0", "humming"), ("0.31.0", "marlin"), ("0.30.0", "marlin")):
        found = picked(release, key, 90)
        assert found is not None
        assert found.lower().startswith(name), (release, key)


def test_declared_activations_of_mxfp4_experts_are_not_given_up_before_0_32() -> None:
    quark: Mapping[str, Value] = {"workload.quantizer": "quark"}
    assert judged("0.32.0", "mxfp4@w4a4:moe", 100, host=TOOLKIT, assumed=quark).verdict == "native"
    assert judged("0.32.0", "mxfp4@w4a4:moe", 120, host=TOOLKIT, assumed=quark).verdict == "weight-only"
    for release in ("0.30.0", "0.31.0"):
        for sm in (100, 120):
            found = judged(release, "mxfp4@w4a4:moe", sm, host=TOOLKIT, assumed=quark)
            assert found.verdict == "unsupported"
        emulated = {**quark, "package.amd-quark": "0.12"}
        assert judged(release, "mxfp4@w4a4:moe", 100, host=TOOLKIT, assumed=emulated).verdict == "emulated"


def test_compressed_tensors_takes_8_bit_activations_for_4_bit_ones_before_0_32() -> None:
    for release in ("0.30.0", "0.31.0"):
        found = judged(release, "mxfp4@w4a8-mxfp8:moe", 100, host=TOOLKIT)
        assert (found.verdict, found.route) == ("mixed", "vllm.moe.mxfp4.cutlass")
        assert judged(release, "mxfp4@w4a4:moe", 100, host=TOOLKIT).verdict == "native"
        assert judged(release, "mxfp4@w4a8-mxfp8:moe", 120, host=TOOLKIT).verdict == "weight-only"
    assert judged("0.32.0", "mxfp4@w4a8-mxfp8:moe", 100, host=TOOLKIT).verdict == "native"


def test_grouped_nvfp4_of_vllm_takes_spread_experts_since_0_32() -> None:
    spread: Mapping[str, Value] = {"workload.ep": 2}
    assert picked("0.32.0", "nvfp4@w4a4:moe", 120, assumed=spread) == "VLLM_CUTLASS"
    for release in ("0.30.0", "0.31.0"):
        assert picked(release, "nvfp4@w4a4:moe", 120, assumed=spread) == "MARLIN"
        assert picked(release, "nvfp4@w4a4:moe", 120) == "VLLM_CUTLASS"


@pytest.mark.parametrize("sm", [89, 90, 120])
def test_an_nvfp4_cache_is_for_datacenter_blackwell_alone_before_0_32(sm: int) -> None:
    for release in ("0.30.0", "0.31.0"):
        assert judged(release, "nvfp4@nvfp4:kv", sm, host=TOOLKIT).verdict == "unsupported"
        assert judged(release, "nvfp4@nvfp4:kv", 100, host=TOOLKIT).verdict == "native"
    assert judged("0.32.0", "nvfp4@nvfp4:kv", sm, host=TOOLKIT).verdict == "storage-only"


def test_nvfp4_w4a16_has_no_b12x_kernel_before_0_32() -> None:
    asked: Mapping[str, Value] = {
        "package.b12x": "1.5.1",
        "config.kernel_config.linear_backend_per_quant.nvfp4_w4a16": "b12x",
    }
    assert picked("0.32.0", "nvfp4@w4a16:dense", 120, assumed=asked) == "B12xNvFp4W4A16LinearKernel"
    for release in ("0.30.0", "0.31.0"):
        assert picked(release, "nvfp4@w4a16:dense", 120, assumed=asked) == "MarlinNvFp4LinearKernel"


# ---------------------------------------------------------------- 0.30.0 against 0.31.0


@pytest.mark.parametrize("sm", [75, 80, 86])
def test_fp8_below_ada_breaks_in_cutlass_in_0_30(sm: int) -> None:
    modelopt: Mapping[str, Value] = {"workload.quantizer": "modelopt"}
    found = judged("0.30.0", "fp8@channel-dynamic:dense", sm, assumed=modelopt)
    assert (found.verdict, found.gate) == ("broken", "supports-fp8")
    assert judged("0.31.0", "fp8@channel-dynamic:dense", sm, assumed=modelopt).verdict == "weight-only"
    # compressed-tensors takes such a checkpoint for W8A16 and never comes there.
    assert judged("0.30.0", "fp8@channel-dynamic:dense", sm).verdict == "weight-only"


def test_mxfp6_is_emulated_in_0_30_and_then_only_with_quark() -> None:
    for sm in (90, 120):
        assert judged("0.30.0", "mxfp6@w6a6:dense", sm).verdict == "broken"
        with_quark = judged("0.30.0", "mxfp6@w6a6:dense", sm, assumed={"package.amd-quark": "0.12"})
        assert with_quark.verdict == "emulated"
    assert judged("0.31.0", "mxfp6@w6a6:dense", 120).verdict == "mixed"
    assert judged("0.31.0", "mxfp6@w6a6:dense", 90).verdict == "weight-only"


def test_a_shape_that_mm_mxfp8_refuses_is_picked_in_0_30_and_passed_over_since() -> None:
    narrow: Mapping[str, Value] = {"workload.n": 64}
    found = judged("0.30.0", "mxfp8@w8a8:dense", 120, host=TOOLKIT, assumed=narrow)
    assert (found.verdict, found.gate) == ("broken", "shape")
    assert picked("0.31.0", "mxfp8@w8a8:dense", 120, host=TOOLKIT, assumed=narrow) == "MarlinMxfp8LinearKernel"


def test_int4_experts_with_fp8_activations_are_for_hopper_alone_in_0_30() -> None:
    assert judged("0.30.0", "w4a8-fp8@w4a8:moe", 90).verdict == "native"
    for sm in (89, 100, 120):
        assert judged("0.30.0", "w4a8-fp8@w4a8:moe", sm).verdict == "unsupported"
        assert picked("0.31.0", "w4a8-fp8@w4a8:moe", sm) == "HUMMING"


def test_an_fp8_cache_with_heads_of_512_reaches_flash_attention_on_hopper_since_0_31() -> None:
    wide: Mapping[str, Value] = {"workload.head-size": 512}
    assert picked("0.31.0", "fp8@e4m3:kv", 90, assumed=wide) == "FLASH_ATTN"
    assert picked("0.30.0", "fp8@e4m3:kv", 90, assumed=wide) != "FLASH_ATTN"
    assert judged("0.30.0", "fp8@e4m3:kv", 90).verdict == "native"


def test_flashinfers_b12x_kernel_wants_cuda_13_in_0_30() -> None:
    named: Mapping[str, Value] = {
        **ON_PATH,
        "config.kernel_config.linear_backend_per_quant.nvfp4_w4a4": "flashinfer_b12x",
    }
    old = Host(nvcc="12.9", ninja=True, cxx=True)
    assert judged("0.30.0", "nvfp4@w4a4:dense", 120, host=old, assumed=named).verdict == "broken"
    assert judged("0.31.0", "nvfp4@w4a4:dense", 120, host=old, assumed=named).verdict == "native"


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_without_flashinfer_still_has_its_own_kernels(release: str) -> None:
    gone: Mapping[str, Value] = {"package.flashinfer-python": ABSENT}
    assert picked(release, "nvfp4@w4a4:dense", 120, host=TOOLKIT, assumed=gone) == "CutlassNvFp4LinearKernel"
    assert picked(release, "fp8@tensor-static:dense", 120, host=TOOLKIT, assumed=gone) == (
        "CutlassFP8ScaledMMLinearKernel"
    )
