"""The simulated fused MoE selectors of vLLM 0.33.0 against what its real ones picked, and what breaks then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.facts import ABSENT, Value
from qresolve.measured import images_for
from tests.knowledge_support import (
    ARCHS,
    NO_TOOLKIT,
    TOOLKIT_ON_HOST,
    derive_from_images,
    engine,
    every_image_loads,
    oracle_cells,
    outcome,
    outcomes,
    route_name,
    table_for,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from qresolve.facts import Fact

# Scheme and checkpoint kind of each point. The selectors that the oracle called are those of these quantizers;
# `silu` is the reference workload's.
FORMATS: Mapping[str, tuple[str, str]] = {
    "moe_fp8_tensor": ("fp8@tensor-static:moe", "compressed-tensors"),
    "moe_fp8_tensor_nocutlass": ("fp8@tensor-static:moe", "fp8"),
    "moe_fp8_channel": ("fp8@channel-dynamic:moe", "compressed-tensors"),
    "moe_fp8_block": ("fp8-block@block128:moe", "compressed-tensors"),
    "moe_nvfp4": ("nvfp4@w4a4:moe", "compressed-tensors"),
    "moe_nvfp4_w4a16": ("nvfp4@w4a16:moe", "compressed-tensors"),
    "moe_mxfp4_gptoss": ("mxfp4@gpt-oss:moe", "gpt-oss"),
    "moe_mxfp4_a4": ("mxfp4@w4a4:moe", "quark"),
    "moe_mxfp4_a_mxfp8": ("mxfp4@w4a8-mxfp8:moe", "gpt-oss"),
    "moe_mxfp4_dsv4": ("mxfp4@deepseek-v4:moe", "fp8"),
    "moe_mxfp8": ("mxfp8@w8a8:moe", "compressed-tensors"),
    "moe_int8": ("int8@w8a8:moe", "compressed-tensors"),
    "moe_int4_wna16": ("int4@w4a16:moe", "compressed-tensors"),
}

WORKING: Mapping[str, Value | None] = {**TOOLKIT_ON_HOST, "host.nvidia-artifactory": True}
BARE: Mapping[str, Value | None] = {**NO_TOOLKIT, "host.nvidia-artifactory": True}
NO_HUMMING: Mapping[str, Value | None] = {"package.humming-kernels": ABSENT}
QUARK: Mapping[str, Value | None] = {"package.amd-quark": "0.12"}
B12X: Mapping[str, Value | None] = {"package.b12x": "1.5.1"}
VARIANTS: Mapping[str, Mapping[str, Value | None]] = {
    "stock": BARE,
    "flashinfer": WORKING,
    "nohumming": {**BARE, **NO_HUMMING},
    "flashinfer+nohumming": {**WORKING, **NO_HUMMING},
    "nohumming+quark": {**BARE, **NO_HUMMING, **QUARK},
    "quark": {**BARE, **QUARK},
    "flashinfer+quark": {**WORKING, **QUARK},
    "b12x": {**BARE, **B12X},
    "flashinfer_plus_b12x": {**WORKING, **B12X},
}

CLASSES = {"weight_only": "weight-only"}


def exception(variant: str, name: str, picked: str, sm: int) -> tuple[str, str | None, str] | None:
    """(verdict here, gate that breaks it, why) where the class recorded with the oracle is not the one of the records.

    The oracle launched nothing and classed a W4A8 kernel by its weights.
    """
    if picked.startswith("DEEPGEMM") and not variant.startswith("flashinfer"):
        return "broken", "deepgemm-compiles", "DeepGEMM compiles at run time, with an nvcc of CUDA 12.9 or newer"
    if picked == "MARLIN" and sm == 75 and name.startswith(("moe_mxfp4", "moe_mxfp8")):
        return "broken", "mx-kernel", "marlin/generate_kernels.py: e8m0 scales with bf16 only, and no bf16 for sm75"
    if name == "moe_int8" and sm == 75:
        return "broken", "triton-compiles-int8", "Triton 3.8.0 does not compile an int8 dot for sm75"
    if picked == "HUMMING" and name in {"moe_mxfp4_a_mxfp8", "moe_mxfp4_dsv4"}:
        return "mixed", None, "oracle/mxfp4.py _humming_input_schema: declared MXFP8 activations, block FP8 on sm90"
    if picked == "HUMMING" and name in {"moe_nvfp4", "moe_mxfp4_a4", "moe_mxfp8"}:
        return (
            "weight-only",
            None,
            "utils/humming/moe.py: no input scheme is handed over, so HummingInputSchema() is A16",
        )
    if picked in {"DEEPGEMM_MXFP4", "FLASHINFER_TRTLLM_MXFP4_MXFP8", "FLASHINFER_CUTLASS_MXFP4_MXFP8"}:
        return "native", None, "the scheme asks for e4m3 activations in groups, and these kernels multiply in them"
    return None


def differences(
    derive: Callable[[int], Callable[[str], Fact | None]], archs: tuple[int, ...]
) -> tuple[int, int, list[str]]:
    """How many points were compared, how many of them are argued exceptions, and what differs beyond those."""
    compared, excepted, wrong = 0, 0, []
    for variant, facts in VARIANTS.items():
        for name, (scheme, quantizer) in FORMATS.items():
            for text, (pick, seen) in oracle_cells(variant, name).items():
                sm = int(text)
                if sm not in archs:
                    continue
                compared += 1
                backend, _, experts = pick.partition(" / ")
                found = outcome(
                    scheme, table_for(scheme, sm, {**facts, "workload.quantizer": quantizer}, derive=derive(sm))
                )
                argued = exception(variant, name, backend, sm)
                excepted += argued is not None
                wanted = (CLASSES.get(seen, seen), None) if argued is None else argued[:2]
                where = engine().routes[found.route].source.where if found.route else ""
                if (route_name(found), (found.verdict, found.gate)) != (backend, wanted) or experts not in where:
                    wrong.append(
                        f"{variant} {name} sm{sm}: {pick} {wanted}, found {route_name(found)} in {where}, "
                        f"({found.verdict}, {found.gate})"
                    )
                if argued is not None and argued[0] == CLASSES.get(seen, seen):
                    wrong.append(f"{variant} {name} sm{sm}: the exception does not contradict the oracle")
    return compared, excepted, wrong


def test_picks_and_classes_agree_with_the_real_selectors(capsys: pytest.CaptureFixture[str]) -> None:
    compared, excepted, wrong = differences(lambda sm: every_image_loads, ARCHS)
    with capsys.disabled():
        print(f" [{compared} MoE points compared, {excepted} argued exceptions of class]", end="")
    assert not wrong, "\n".join(wrong)
    # Two variants hold two formats for three GPUs only.
    assert compared == len(VARIANTS) * len(FORMATS) * len(ARCHS) - 2 * 2 * (len(ARCHS) - 3)


@pytest.mark.parametrize(
    ("machine", "archs"),
    [("x86_64", (75, 80, 86, 89, 90, 100, 103, 120, 121)), ("aarch64", (80, 90, 100, 103, 110, 120, 121))],
)
def test_the_published_wheels_hold_what_the_oracle_assumed(machine: str, archs: tuple[int, ...]) -> None:
    images = images_for({"vllm": "0.33.0"}, machine)
    _, _, wrong = differences(lambda sm: derive_from_images(images, sm), archs)
    assert not wrong, "\n".join(wrong)


# ---------------------------------------------------------------- traps


@pytest.mark.parametrize(
    ("machine", "sm", "scheme", "verdict", "gate"),
    [
        # sm110 is picked by arch alone; only the aarch64 wheel has an image for it.
        ("x86_64", 110, "nvfp4@w4a4:moe", "broken", "image"),
        ("aarch64", 110, "nvfp4@w4a4:moe", "native", None),
        ("x86_64", 110, "mxfp4@w4a4:moe", "broken", "image"),
        ("aarch64", 110, "mxfp4@w4a4:moe", "native", None),
        # Marlin is in both wheels as PTX of sm80, and for sm75 in one.
        ("x86_64", 75, "nvfp4@w4a4:moe", "weight-only", None),
        ("aarch64", 75, "nvfp4@w4a4:moe", "broken", "image"),
        ("x86_64", 90, "w4a8-fp8@w4a8:moe", "native", None),
        ("x86_64", 90, "fp8@channel-dynamic:moe", "native", None),
    ],
)
def test_a_pick_needs_an_image_that_loads(machine: str, sm: int, scheme: str, verdict: str, gate: str | None) -> None:
    images = images_for({"vllm": "0.33.0"}, machine)
    found = outcome(scheme, table_for(scheme, sm, BARE, derive=derive_from_images(images, sm)))
    assert (found.verdict, found.gate) == (verdict, gate)


def test_an_image_that_was_not_measured_is_unknown() -> None:
    found = outcomes("nvfp4@w4a4:moe", table_for("nvfp4@w4a4:moe", 120, BARE, derive=None))
    assert {item.outcome.verdict for item in found} == {"native", "broken"}


@pytest.mark.parametrize("sm", [80, 89, 90, 120, 121])
def test_quark_makes_mxfp4_experts_emulated(sm: int) -> None:
    facts = {**WORKING, "workload.quantizer": "quark"}
    without = outcome("mxfp4@w4a4:moe", table_for("mxfp4@w4a4:moe", sm, facts))
    found = outcome("mxfp4@w4a4:moe", table_for("mxfp4@w4a4:moe", sm, {**facts, **QUARK}))
    assert (without.verdict, found.verdict) == ("weight-only", "emulated")


@pytest.mark.parametrize("scheme", ["mxfp4@gpt-oss:moe", "mxfp4@w4a4:moe"])
def test_quark_leaves_gpt_oss_and_compressed_tensors_alone(scheme: str) -> None:
    for sm in ARCHS:
        assert outcome(scheme, table_for(scheme, sm, {**BARE, **QUARK})) == outcome(scheme, table_for(scheme, sm, BARE))


@pytest.mark.parametrize("sm", [110, 120, 121])
def test_no_grouped_fp8_cutlass_beyond_sm10x(sm: int) -> None:
    for backend, verdict in (("auto", "native"), ("cutlass", "unsupported")):
        facts = {**BARE, "config.kernel_config.moe_backend": backend}
        found = outcome("fp8@channel-dynamic:moe", table_for("fp8@channel-dynamic:moe", sm, facts))
        assert (found.verdict, route_name(found)) == (verdict, "TRITON" if backend == "auto" else None)


@pytest.mark.parametrize("sm", ARCHS)
def test_compressed_tensors_mxfp4_asks_no_selector(sm: int) -> None:
    for backend in ("auto", "humming", "triton"):
        facts = {**WORKING, "config.kernel_config.moe_backend": backend}
        found = outcome("mxfp4@w4a4:moe", table_for("mxfp4@w4a4:moe", sm, facts))
        weight_only = "weight-only" if sm >= 80 else "broken"
        expected = ("CUTLASS_MXFP4_MXFP4", "native") if 100 <= sm < 120 else ("MARLIN", weight_only)
        assert (route_name(found), found.verdict) == expected


@pytest.mark.parametrize("scheme", ["mxfp4@gpt-oss:moe", "mxfp8@w8a8:moe"])
def test_marlin_has_no_e8m0_kernel_for_fp16(scheme: str) -> None:
    for dtype, gate in (("bf16", None), ("fp16", "mx-kernel")):
        found = outcome(scheme, table_for(scheme, 120, {**BARE, "workload.dtype": dtype}))
        assert (route_name(found), found.gate) == ("MARLIN", gate)


def test_the_cutlass_mxfp4_class_needs_a_build_of_cuda_12_9() -> None:
    for cuda, verdict in (("12.8", "weight-only"), ("12.9", "native")):
        facts = {**BARE, "build.cuda": cuda, "build.hypothetical": True}
        assert outcome("mxfp4@w4a4:moe", table_for("mxfp4@w4a4:moe", 100, facts)).verdict == verdict


@pytest.mark.parametrize(
    ("sm", "ep", "route"), [(90, 1, "TRITON"), (90, 8, "FLASHINFER_CUTLASS"), (100, 8, "FLASHINFER_TRTLLM")]
)
def test_block_fp8_on_hopper_depends_on_expert_parallelism(sm: int, ep: int, route: str) -> None:
    found = outcome("fp8-block@block128:moe", table_for("fp8-block@block128:moe", sm, {**WORKING, "workload.ep": ep}))
    assert route_name(found) == route


@pytest.mark.parametrize(
    ("deep_gemm", "moe_deep_gemm", "sm", "route", "verdict"),
    [
        # Set to 1 is not unset: DeepGEMM is taken before everything, or the selector raises.
        ("<unset>", "<unset>", 100, "FLASHINFER_TRTLLM", "native"),
        ("1", "<unset>", 100, "DEEPGEMM", "native"),
        ("<unset>", "1", 100, "DEEPGEMM", "native"),
        ("<unset>", "1", 90, "DEEPGEMM", "native"),
        ("1", "1", 89, None, "unsupported"),
        ("1", "0", 120, "TRITON", "native"),
        ("0", "<unset>", 120, "TRITON", "native"),
        ("<unset>", "<unset>", 120, "DEEPGEMM", "native"),
    ],
)
def test_a_deep_gemm_variable_that_is_set_forces_or_removes(
    deep_gemm: str, moe_deep_gemm: str, sm: int, route: str | None, verdict: str
) -> None:
    facts: dict[str, Value | None] = {
        **WORKING, "env.VLLM_USE_DEEP_GEMM": deep_gemm, "env.VLLM_MOE_USE_DEEP_GEMM": moe_deep_gemm,
    }  # fmt: skip
    found = outcome("fp8-block@block128:moe", table_for("fp8-block@block128:moe", sm, facts))
    assert (route_name(found), found.verdict) == (route, verdict)


def test_a_named_backend_goes_before_the_deep_gemm_variables() -> None:
    facts = {**WORKING, "env.VLLM_USE_DEEP_GEMM": "1", "config.kernel_config.moe_backend": "triton"}
    assert route_name(outcome("fp8-block@block128:moe", table_for("fp8-block@block128:moe", 100, facts))) == "TRITON"


def test_deep_gemm_is_off_for_models_that_it_hurts() -> None:
    for model, route in (("generic", "DEEPGEMM"), ("qwen3_5_moe_text", "TRITON"), ("kolibri1", "TRITON")):
        found = outcome(
            "fp8-block@block128:moe",
            table_for("fp8-block@block128:moe", 120, {**WORKING, "workload.model-type": model}),
        )
        assert route_name(found) == route


@pytest.mark.parametrize(
    ("scheme", "backend", "sm", "route", "verdict"),
    [
        ("nvfp4@w4a4:moe", "b12x", 120, "B12X", "native"),
        ("nvfp4@w4a4:moe", "flashinfer_b12x", 120, "FLASHINFER_B12X", "native"),
        ("nvfp4@w4a4:moe", "flashinfer_b12x", 121, "FLASHINFER_B12X", "unknown"),
        ("nvfp4@w4a4:moe", "b12x", 100, None, "unsupported"),
        ("nvfp4@w4a4:moe", "deep_gemm", 120, None, "unsupported"),
        ("nvfp4@w4a4:moe", "marlin", 120, "MARLIN", "weight-only"),
        ("mxfp8@w8a8:moe", "triton", 120, None, "unsupported"),
        ("mxfp8@w8a8:moe", "emulation", 120, None, "unsupported"),
        ("mxfp4@w4a8-mxfp8:moe", "b12x", 120, "B12X_MXFP4_MXFP8", "native"),
        ("mxfp4@gpt-oss:moe", "b12x", 120, None, "unsupported"),
        ("mxfp4@gpt-oss:moe", "triton", 120, "TRITON", "weight-only"),
        ("mxfp4@gpt-oss:moe", "triton", 89, None, "unsupported"),
        # DeepSeek V4's selector tries the 16-bit variant of a named vendor first.
        ("mxfp4@deepseek-v4:moe", "flashinfer_trtllm", 100, "FLASHINFER_TRTLLM_MXFP4_BF16", "weight-only"),
        ("int4@w4a16:moe", "flashinfer_trtllm", 100, None, "unsupported"),
        ("w4a8-fp8@w4a8:moe", "cutlass", 120, None, "unsupported"),
    ],
)
def test_a_named_backend_is_taken_or_raises(
    scheme: str, backend: str, sm: int, route: str | None, verdict: str
) -> None:
    facts = {**WORKING, **B12X, "config.kernel_config.moe_backend": backend}
    found = outcome(scheme, table_for(scheme, sm, facts))
    assert (route_name(found), found.verdict) == (route, verdict)


@pytest.mark.parametrize(
    ("facts", "gate"),
    [
        ({"host.nvcc": "13.0"}, None),
        ({"host.nvcc": "12.9"}, "cuda-13"),
        ({"host.nvcc": ABSENT, "package.flashinfer-cubin": "0.7.2.post1"}, None),
        ({"workload.dtype": "fp16"}, "bf16"),
    ],
)
def test_flashinfer_b12x_wants_cuda_13_and_bf16(facts: Mapping[str, Value], gate: str | None) -> None:
    named = {**WORKING, "config.kernel_config.moe_backend": "flashinfer_b12x"}
    found = outcome("nvfp4@w4a4:moe", table_for("nvfp4@w4a4:moe", 120, {**named, **facts}))
    assert (route_name(found), found.gate) == ("FLASHINFER_B12X", gate)


def test_every_named_backend_is_one_that_the_configuration_accepts() -> None:
    accepted = {
        "triton", "deep_gemm", "cutlass", "flashinfer_trtllm", "flashinfer_cutlass", "flashinfer_cutedsl",
        "flashinfer_moe_ep_cutedsl", "flashinfer_b12x", "b12x", "marlin", "humming", "triton_unfused", "hpc",
        "emulation",
    }  # fmt: skip
    named = {backend for route in engine().routes.values() if ".moe." in route.id for backend in route.backends}
    assert named == accepted


@pytest.mark.parametrize(
    ("sm", "verdict", "gate"),
    [(75, "broken", "fp8-activations"), (89, "unknown", None), (90, "native", None), (120, "unknown", None)],
)
def test_int4_with_fp8_activations_is_native_on_hopper_only(sm: int, verdict: str, gate: str | None) -> None:
    found = outcome("w4a8-fp8@w4a8:moe", table_for("w4a8-fp8@w4a8:moe", sm, BARE))
    assert (found.verdict, found.gate) == (verdict, gate)


@pytest.mark.parametrize("scheme", ["nvfp4@w4a4:moe", "fp8@tensor-static:moe", "mxfp8@w8a8:moe", "mxfp4@gpt-oss:moe"])
def test_generated_kernels_break_without_their_cubins(scheme: str) -> None:
    reached = {**WORKING, "host.nvidia-artifactory": False}
    found = outcome(scheme, table_for(scheme, 100, reached))
    assert (found.verdict, found.gate) == ("broken", "cubins")
    assert outcome(scheme, table_for(scheme, 100, {**reached, "package.flashinfer-cubin": "0.7.2.post1"})).gate is None
    possible = {item.outcome.verdict for item in outcomes(scheme, table_for(scheme, 100, TOOLKIT_ON_HOST))}
    assert "broken" in possible
    assert len(possible) == 2


def test_a_claim_of_cubins_makes_flashinfer_picked_and_broken() -> None:
    facts = {**BARE, "env.VLLM_HAS_FLASHINFER_CUBIN": True}
    found = outcome("nvfp4@w4a4:moe", table_for("nvfp4@w4a4:moe", 120, facts))
    assert (route_name(found), found.verdict, found.gate) == ("FLASHINFER_CUTLASS", "broken", "flashinfer-builds")


@pytest.mark.parametrize(
    ("scheme", "sm", "route"),
    [
        ("fp8@tensor-static:moe", 100, "TRITON"),
        ("nvfp4@w4a4:moe", 120, "VLLM_CUTLASS"),
        ("nvfp4@w4a4:moe", 89, "HUMMING"),
        ("mxfp8@w8a8:moe", 100, "HUMMING"),
        ("int4@w4a16:moe", 100, "TRITON"),
    ],
)
def test_batch_invariance_leaves_the_classes_that_declare_it(scheme: str, sm: int, route: str) -> None:
    assert route_name(outcome(scheme, table_for(scheme, sm, {**WORKING, "env.VLLM_BATCH_INVARIANT": True}))) == route


FLIPPED: Mapping[str, st.SearchStrategy[Value]] = {
    "package.humming-kernels": st.sampled_from([ABSENT, "0.1.19"]),
    "package.flashinfer-cubin": st.sampled_from([ABSENT, "0.7.2.post1"]),
    "package.b12x": st.sampled_from([ABSENT, "1.5.1"]),
    "package.amd-quark": st.sampled_from([ABSENT, "0.12"]),
    "env.VLLM_BATCH_INVARIANT": st.booleans(),
    "env.VLLM_USE_DEEP_GEMM": st.sampled_from(["<unset>", "0", "1"]),
    "env.VLLM_MOE_USE_DEEP_GEMM": st.sampled_from(["<unset>", "0", "1"]),
    "host.nvcc": st.sampled_from([ABSENT, "12.8", "13.0"]),
    "host.ninja": st.booleans(),
    "host.nvidia-artifactory": st.booleans(),
    "workload.ep": st.sampled_from([1, 8]),
    "workload.quantizer": st.sampled_from(["compressed-tensors", "fp8", "quark", "gpt-oss"]),
    "workload.moe-activation": st.sampled_from(["silu", "swigluoai"]),
    "config.kernel_config.moe_backend": st.sampled_from(["auto", "marlin", "flashinfer_trtllm", "b12x", "aiter"]),
}
SERVED = sorted({scheme for scheme, _ in FORMATS.values()} | {"w4a8-fp8@w4a8:moe"})


@given(
    scheme=st.sampled_from(SERVED),
    sm=st.sampled_from(ARCHS),
    facts=st.fixed_dictionaries(dict(FLIPPED)),
    forgotten=st.sets(st.sampled_from(sorted(FLIPPED)), max_size=2),
)
def test_learning_a_fact_only_narrows(scheme: str, sm: int, facts: dict[str, Value], forgotten: set[str]) -> None:
    known = outcomes(scheme, table_for(scheme, sm, facts))
    assert len(known) == 1
    unknown: dict[str, Value | None] = {**facts, **dict.fromkeys(forgotten)}
    wide = {item.outcome.verdict for item in outcomes(scheme, table_for(scheme, sm, unknown))}
    assert known[0].outcome.verdict in wide
