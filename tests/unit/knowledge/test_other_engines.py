"""LMDeploy, TensorRT-LLM and MLC-LLM: what their records say, and what they never say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

from qresolve.classes import CLASSES
from qresolve.completions import Thresholds, possible
from qresolve.engine_flags import read_engine_flags, render_flags
from qresolve.facts import ABSENT
from qresolve.knowledge.engine import engine_names, read_releases
from qresolve.measured import images_for
from qresolve.selector import UNKNOWN_CLASS, Outcome, select
from qresolve.setting import Setting
from qresolve.situation import compares_of
from tests.knowledge_support import ARCHS, derive_from_images, engine, outcome, schemes, table_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qresolve.facts import FactTable, Value

NAMES = ("lmdeploy", "tensorrt-llm", "mlc-llm")
PYTORCH: Mapping[str, Value | None] = {"config.backend": "pytorch"}
FP8_CHECKPOINT: Mapping[str, Value | None] = {"workload.quantizer": "fp8"}
SMOOTH_QUANT: Mapping[str, Value | None] = {"workload.quantizer": "smooth_quant"}
WITH_IMAGES = ("int4@w4a16:dense", "int4@awq:dense", "bf16@w16a16:dense", "int8@per-token-head:kv")


def lmdeploy(key: str, sm: int, **more: Value | None) -> Outcome:
    return outcome(key, lmdeploy_table(key, sm, more), name="lmdeploy")


def lmdeploy_table(key: str, sm: int, more: Mapping[str, Value | None]) -> FactTable:
    overrides: dict[str, Value | None] = {"package.deep-gemm": ABSENT}
    return table_for(key, sm, {**overrides, **more}, name="lmdeploy")


def all_outcomes(name: str, key: str, sm: int) -> set[Outcome]:
    """Every outcome with everything that a test would have to assume left unknown."""
    known = engine(name)
    ladder = known.ladders[key]
    free = {
        compare.fact: None
        for compare in compares_of(known, ladder)
        if not compare.fact.startswith(("gpu.", "scheme.", "workload.model-type"))
    }
    table = table_for(key, sm, dict(free), name=name, derive=None)
    thresholds = Thresholds(compares_of(known, ladder))
    return {item.outcome for item in possible(lambda a: select(ladder, dict(known.routes), a), table, thresholds)}


# ================================================================ all three


def test_they_come_after_the_engines_whose_sources_were_read_in_full() -> None:
    names = engine_names()
    assert names[:2] == ("vllm", "sglang")
    assert set(NAMES) <= set(names)


@pytest.mark.parametrize("name", NAMES)
def test_every_scheme_that_is_served_exists(name: str) -> None:
    assert set(engine(name).ladders) <= set(schemes())


@pytest.mark.parametrize("name", NAMES)
def test_every_release_of_the_record_loads(name: str) -> None:
    for release in read_releases(name):
        assert engine(name, release.version).ladders


@pytest.mark.parametrize("name", NAMES)
def test_every_route_can_be_picked_somewhere(name: str) -> None:
    known = engine(name)
    picked = {
        found.route for key in known.ladders for sm in ARCHS for found in all_outcomes(name, key, sm) if found.route
    }
    assert picked == set(known.routes)


@pytest.mark.parametrize("name", NAMES)
def test_the_command_line_is_known(name: str) -> None:
    flags = read_engine_flags(name)
    assert flags.engine == name
    assert flags.commands


# ================================================================ TensorRT-LLM: documentation alone


def test_nothing_of_tensorrt_llm_ever_holds() -> None:
    found = {
        item.verdict
        for key in engine("tensorrt-llm").ladders
        for sm in ARCHS
        for item in all_outcomes("tensorrt-llm", key, sm)
    }
    assert found <= {UNKNOWN_CLASS, "unsupported"}


@pytest.mark.parametrize(
    ("key", "sm", "claimed"),
    [
        ("nvfp4@w4a4:dense", 100, "native"),
        ("nvfp4@w4a4:dense", 120, "native"),
        ("int4@awq:dense", 80, "weight-only"),
        ("mxfp4@gpt-oss:moe", 90, "weight-only"),
        ("mxfp4@gpt-oss:moe", 100, "mixed"),
    ],
)
def test_what_documentation_claims_is_kept(key: str, sm: int, claimed: str) -> None:
    found = outcome(key, table_for(key, sm, name="tensorrt-llm"), name="tensorrt-llm")
    assert (found.verdict, found.claimed) == (UNKNOWN_CLASS, claimed)
    assert "documentation only" in found.why


def test_where_two_documents_contradict_each_other_nothing_is_claimed() -> None:
    found = outcome("mxfp4@gpt-oss:moe", table_for("mxfp4@gpt-oss:moe", 120, name="tensorrt-llm"), name="tensorrt-llm")
    assert (found.verdict, found.claimed) == (UNKNOWN_CLASS, "")
    assert "sm120" in found.why


def test_a_gpu_that_documentation_leaves_out_has_no_route() -> None:
    table = table_for("nvfp4@w4a4:dense", 90, name="tensorrt-llm")
    assert outcome("nvfp4@w4a4:dense", table, name="tensorrt-llm").verdict == "unsupported"


@pytest.mark.parametrize(("name", "flat"), [("tensorrt-llm", False), ("mlc-llm", True)])
def test_wheels_that_the_default_index_lacks_have_an_index_of_their_own(name: str, flat: bool) -> None:
    known = engine(name)
    assert known.index is not None
    assert known.distribution in known.index.packages
    assert known.index.flat == flat
    assert engine("lmdeploy").index is None


# ================================================================ MLC-LLM: chosen when the model is compiled


def mlc(key: str, sm: int, **more: Value | None) -> Outcome:
    return outcome(key, table_for(key, sm, more, name="mlc-llm"), name="mlc-llm")


def test_mlc_takes_cutlass_for_two_targets_and_only_if_it_is_compiled_in() -> None:
    inside = {"build.tvm-cutlass-fp8-groupwise": True}
    for sm in ARCHS:
        expected = "mlc-llm.fp8-block.cutlass" if sm in {90, 100} else "mlc-llm.fp8-block.triton"
        assert mlc("fp8-block@block128:dense", sm, **inside).route == expected
    assert mlc("fp8-block@block128:dense", 90, **{"build.tvm-cutlass-fp8-groupwise": False}).route == (
        "mlc-llm.fp8-block.triton"
    )
    assert mlc("fp8-block@block128:dense", 90, **inside, **{"config.compile.cutlass": "0"}).route == (
        "mlc-llm.fp8-block.triton"
    )


def test_mlc_is_not_native_while_nobody_knows_what_is_compiled_in() -> None:
    verdicts = {item.verdict for item in all_outcomes("mlc-llm", "fp8-block@block128:dense", 90)}
    assert verdicts == {"native", UNKNOWN_CLASS}


def test_mlc_awq_is_weight_only() -> None:
    assert {mlc("int4@awq:dense", sm).verdict for sm in ARCHS} == {"weight-only"}


# ================================================================ LMDeploy


@pytest.mark.parametrize("sm", ARCHS)
def test_a_plain_install_takes_turbomind_for_int4(sm: int) -> None:
    found = lmdeploy("int4@w4a16:dense", sm)
    assert (found.route, found.verdict) == ("lmdeploy.turbomind.int4", "weight-only")


@pytest.mark.parametrize("missing", ["nvidia-cuda-runtime-cu12", "nvidia-cublas-cu12", "nvidia-nccl-cu12"])
def test_without_its_cuda_12_libraries_turbomind_is_passed_over(missing: str) -> None:
    without = {f"package.{missing}": ABSENT}
    assert lmdeploy("int4@w4a16:dense", 90, **without).verdict == "unsupported"
    assert lmdeploy("int4@awq:dense", 80, **without, **{"workload.quantizer": "awq"}).route == (
        "lmdeploy.pytorch.awq.triton"
    )


def test_a_model_that_turbomind_does_not_implement_goes_to_the_pytorch_engine() -> None:
    model = {"workload.model-type": "deepseek_v3", **FP8_CHECKPOINT}
    assert lmdeploy("fp8-block@block128:dense", 90, **model).route == "lmdeploy.pytorch.fp8-block.gluon"


@pytest.mark.parametrize(("sm", "loads"), [(75, True), (80, True), (86, True), (89, True), (90, True), (100, True),
                                           (120, True), (103, False), (110, False), (121, False)])  # fmt: skip
@pytest.mark.parametrize("key", WITH_IMAGES)
def test_turbomind_is_broken_where_its_wheel_holds_no_image(key: str, sm: int, loads: bool) -> None:
    images = images_for({"lmdeploy": "0.18.0"}, "x86_64")
    table = table_for(key, sm, name="lmdeploy", derive=derive_from_images(images, sm))
    found = outcome(key, table, name="lmdeploy")
    assert (found.verdict == "broken") == (not loads)


def test_images_of_a_machine_without_a_wheel_are_unknown() -> None:
    images = images_for({"lmdeploy": "0.18.0"}, "aarch64")
    assert images("lmdeploy", "_turbomind", "*.any") is None


def test_the_engines_own_awq_kernel_is_for_sm90_alone() -> None:
    on = {**PYTORCH, "workload.quantizer": "awq"}
    for sm in ARCHS:
        expected = "lmdeploy.pytorch.awq.turbomind" if sm == 90 else "lmdeploy.pytorch.awq.triton"
        assert lmdeploy("int4@awq:dense", sm, **on).route == expected
    triton = {**on, "env.LMDEPLOY_W4A16_GEMM_BACKEND": "triton"}
    assert lmdeploy("int4@awq:dense", 90, **triton).route == "lmdeploy.pytorch.awq.triton"
    turbomind = {**on, "env.LMDEPLOY_W4A16_GEMM_BACKEND": "turbomind"}
    assert lmdeploy("int4@awq:dense", 80, **turbomind).verdict == "unsupported"


def test_block_fp8_by_turbomind_is_never_called_native() -> None:
    found = {sm: lmdeploy("fp8-block@block128:dense", sm, **FP8_CHECKPOINT) for sm in ARCHS}
    assert {item.route for item in found.values()} == {"lmdeploy.turbomind.fp8-block"}
    assert found[90].verdict == UNKNOWN_CLASS
    assert found[120].verdict == found[89].verdict == "weight-only"
    assert "native" not in {item.verdict for item in found.values()}


def test_block_fp8_by_the_pytorch_engine_on_hopper_is_gluon_then_triton() -> None:
    on = {**PYTORCH, **FP8_CHECKPOINT}
    key = "fp8-block@block128:dense"
    assert lmdeploy(key, 90, **on).route == "lmdeploy.pytorch.fp8-block.gluon"
    assert lmdeploy(key, 90, **on, **{"package.deep-gemm": "2.0"}).route == "lmdeploy.pytorch.fp8-block.deepgemm"
    for change in (
        {"package.triton": "3.5.1"},
        {"package.triton": "3.8.0"},
        {"workload.dtype": "fp16"},
        {"workload.k": 4000},
    ):
        assert lmdeploy(key, 90, **on, **change).route == "lmdeploy.pytorch.fp8-block.triton"
    for sm in (89, 100, 120):
        assert lmdeploy(key, sm, **on).route == "lmdeploy.pytorch.fp8-block.triton"


def test_a_named_block_fp8_backend_that_cannot_be_had_raises() -> None:
    on = {**PYTORCH, **FP8_CHECKPOINT, "env.LMDEPLOY_BLOCKED_FP8_GEMM_BACKEND": "deepgemm"}
    assert lmdeploy("fp8-block@block128:dense", 90, **on).verdict == "unsupported"


def test_fp8_needs_a_triton_that_compiles_it() -> None:
    on = {**PYTORCH, **FP8_CHECKPOINT, "toolchain.triton.fp8": "none"}
    assert lmdeploy("fp8-block@block128:dense", 80, **on).verdict == "broken"
    converted = {**on, "toolchain.triton.fp8": "decomposed"}
    assert lmdeploy("fp8-block@block128:dense", 120, **converted).verdict == "storage-only"


@pytest.mark.parametrize("key", ["fp8-block@block128:dense", "fp8-block@block128:moe", "fp8@tensor-static:dense"])
@pytest.mark.parametrize("backend", ["turbomind", "pytorch"])
def test_fp8_of_compressed_tensors_runs_in_neither_engine(key: str, backend: str) -> None:
    found = lmdeploy(key, 90, **{"config.backend": backend, "workload.quantizer": "compressed-tensors"})
    assert found.verdict not in CLASSES


def test_static_fp8_needs_the_pytorch_engine() -> None:
    key = "fp8@tensor-static:dense"
    assert lmdeploy(key, 90, **FP8_CHECKPOINT).verdict == "broken"
    assert lmdeploy(key, 90, **FP8_CHECKPOINT, **PYTORCH).verdict == "native"


@pytest.mark.parametrize("key", ["int8@w8a8:dense", "int8@w8a8:moe", "fp8@channel-dynamic:dense"])
def test_smooth_quant_goes_to_the_pytorch_engine_whatever_is_asked(key: str) -> None:
    routes = {lmdeploy(key, 90, **SMOOTH_QUANT, **{"config.backend": name}).route for name in ("turbomind", "pytorch")}
    assert len(routes) == 1
    assert lmdeploy(key, 90, **SMOOTH_QUANT).verdict == "native"
    assert lmdeploy(key, 90).verdict == "unsupported"


def test_gpt_oss_is_turbominds_alone() -> None:
    assert lmdeploy("mxfp4@gpt-oss:moe", 120).verdict == "weight-only"
    assert lmdeploy("mxfp4@gpt-oss:moe", 90).verdict == UNKNOWN_CLASS
    assert lmdeploy("mxfp4@gpt-oss:moe", 120, **PYTORCH).verdict == "unsupported"


def test_an_fp8_cache_needs_the_pytorch_engine_and_is_storage_only() -> None:
    assert lmdeploy("fp8@e4m3:kv", 90).verdict == "broken"
    assert lmdeploy("fp8@e4m3:kv", 90, **PYTORCH).verdict == "storage-only"
    assert lmdeploy("int8@per-token-head:kv", 90).verdict == "storage-only"


def test_nvfp4_is_in_no_ladder_and_the_record_says_why() -> None:
    known = engine("lmdeploy")
    assert not any(key.startswith("nvfp4@") for key in known.ladders)
    assert "NVFP4" in known.unserved["nvfp4"]


def test_the_backend_setting_becomes_its_option() -> None:
    flags = read_engine_flags("lmdeploy")
    assert render_flags([Setting(path="backend", value="pytorch")], flags) == ("--backend", "pytorch")


def test_a_lock_keeps_torch_at_the_cuda_of_turbomind() -> None:
    release = engine("lmdeploy").release
    (constraint,) = (Requirement(text) for text in release.constraints)
    (pin,) = (pin for pin in release.pins if pin.package == "torch")
    assert constraint.name == "torch"
    assert constraint.specifier.contains(pin.version)
    assert not constraint.specifier.contains("2.12.1")
