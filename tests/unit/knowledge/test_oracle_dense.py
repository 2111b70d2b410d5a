"""The simulated selector of vLLM 0.33.0 against what its real selectors picked, for every dense point."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.completions import answer_from
from qresolve.facts import ABSENT, Fact, Value
from qresolve.gates import AnyOf, decide, leaves
from qresolve.measured import images_for
from qresolve.selector import select
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

    from qresolve.knowledge.records import Route
    from qresolve.selector import Outcome

    Point = tuple[str, str, int]

SCHEMES = {
    "fp8_tensor_static": "fp8@tensor-static:dense",
    "fp8_channel_token": "fp8@channel-dynamic:dense",
    "fp8_block128": "fp8-block@block128:dense",
    "fp8_w8a16": "fp8@w8a16:dense",
    "mxfp8": "mxfp8@w8a8:dense",
    "nvfp4_w4a4": "nvfp4@w4a4:dense",
    "nvfp4_w4a16": "nvfp4@w4a16:dense",
    "mxfp4_a4": "mxfp4@w4a4:dense",
    "mxfp4_a16": "mxfp4@w4a16:dense",
    "mxfp4_a_mxfp6": "mxfp4@w4a6:dense",
    "mxfp6_e3m2": "mxfp6@w6a6:dense",
    "int8_w8a8": "int8@w8a8:dense",
    "gptq_int4_g128": "int4@w4a16:dense",
    "awq_int4_g128": "int4@awq:dense",
    "int8_w8a16_g128": "int8@w8a16:dense",
    "w4a8_fp8": "w4a8-fp8@w4a8:dense",
}

NO_HUMMING: Mapping[str, Value | None] = {"package.humming-kernels": ABSENT}
QUARK: Mapping[str, Value | None] = {"package.amd-quark": "0.12"}
B12X: Mapping[str, Value | None] = {"package.b12x": "1.5.1"}
VARIANTS: Mapping[str, Mapping[str, Value | None]] = {
    "stock": NO_TOOLKIT,
    "flashinfer": TOOLKIT_ON_HOST,
    "nohumming": {**NO_TOOLKIT, **NO_HUMMING},
    "flashinfer+nohumming": {**TOOLKIT_ON_HOST, **NO_HUMMING},
    "nohumming+quark": {**NO_TOOLKIT, **NO_HUMMING, **QUARK},
    "quark": {**NO_TOOLKIT, **QUARK},
    "flashinfer+quark": {**TOOLKIT_ON_HOST, **QUARK},
    "b12x": {**NO_TOOLKIT, **B12X},
    "flashinfer_plus_b12x": {**TOOLKIT_ON_HOST, **B12X},
}

# The oracle called the selectors themselves. No quantization config ran before them, which for compressed-tensors
# would refuse or replace some schemes.
SELECTOR_ITSELF: Mapping[str, Value | None] = {"workload.quantizer": "none: the selector itself"}

CLASSES = {"weight_only": "weight-only", "fails": "broken", "error": "unsupported"}


def base_of(variant: str) -> str:
    return "flashinfer" if variant.startswith("flashinfer") else "stock"


def exception(variant: str, name: str, sm: int) -> tuple[str, str, str] | None:
    """(verdict here, gate that breaks it, why the source wins), where the class of the oracle does not hold.

    The oracle launched nothing, so what fails after the pick was seen only where somebody had looked.
    """
    if name == "fp8_block128" and base_of(variant) == "stock" and (sm == 90 or sm // 10 in {10, 12}):
        return (
            "broken",
            "deepgemm-compiles",
            "the oracle took DeepGEMM to be importable; it compiles at run time, with an nvcc of CUDA 12.9 or newer",
        )
    if name in {"mxfp8", "mxfp4_a4", "mxfp4_a16"} and sm == 75:
        return (
            "broken",
            "mx-kernel",
            "csrc/quantization/marlin/generate_kernels.py: e8m0 scales with bf16 only, and no bf16 for sm75",
        )
    if name == "w4a8_fp8" and sm == 90:
        return (
            "native",
            "",
            "the oracle classes by the weights; the scheme asks for an fp8 product, which CUTLASS W4A8 computes",
        )
    if name == "mxfp6_e3m2" and variant in {"nohumming", "flashinfer+nohumming"}:
        return (
            "broken",
            "quark",
            "vllm/model_executor/layers/quantization/utils/mxfp6_utils.py: the forward pass imports quark",
        )
    return None


def differences(
    derive: Callable[[int], Callable[[str], Fact | None]], archs: tuple[int, ...]
) -> tuple[int, list[str], set[Point]]:
    """How many points were compared, what differs beyond the exceptions, and which exceptions were met."""
    compared, wrong, met = 0, [], set()
    for variant, facts in VARIANTS.items():
        for name, scheme in SCHEMES.items():
            for text, (pick, seen) in oracle_cells(variant, name).items():
                sm = int(text)
                if sm not in archs:
                    continue
                compared += 1
                table = table_for(scheme, sm, {**facts, **SELECTOR_ITSELF}, derive=derive(sm))
                found = outcome(scheme, table)
                excepted = exception(variant, name, sm)
                wanted = (
                    (CLASSES.get(seen, seen), found.gate) if excepted is None else (excepted[0], excepted[1] or None)
                )
                met |= {(variant, name, sm)} if excepted is not None else set()
                if route_name(found) != pick or (found.verdict, found.gate) != wanted:
                    wrong.append(
                        f"{variant} {name} sm{sm}: {pick} {wanted}, found {route_name(found)} "
                        f"({found.verdict}, {found.gate})"
                    )
    return compared, wrong, met


def test_picks_and_classes_agree_with_the_real_selectors(capsys: pytest.CaptureFixture[str]) -> None:
    compared, wrong, met = differences(lambda sm: every_image_loads, ARCHS)
    with capsys.disabled():
        print(f" [{compared} dense points compared, {len(met)} argued exceptions]", end="")
    assert not wrong, "\n".join(wrong)
    assert compared == len(VARIANTS) * len(SCHEMES) * len(ARCHS)


def test_every_exception_is_met_and_contradicts_the_oracle() -> None:
    _, _, met = differences(lambda sm: every_image_loads, ARCHS)
    for variant in VARIANTS:
        for name in SCHEMES:
            for text, (_, seen) in oracle_cells(variant, name).items():
                excepted = exception(variant, name, int(text))
                if excepted is not None:
                    assert (variant, name, int(text)) in met
                    assert excepted[0] != CLASSES.get(seen, seen)


@pytest.mark.parametrize(
    ("machine", "archs"),
    [("x86_64", (75, 80, 86, 89, 90, 100, 103, 120)), ("aarch64", (90, 100, 103, 110, 120, 121))],
)
def test_the_published_wheels_hold_what_the_oracle_assumed(machine: str, archs: tuple[int, ...]) -> None:
    images = images_for({"vllm": "0.33.0"}, machine)
    compared, wrong, _ = differences(lambda sm: derive_from_images(images, sm), archs)
    assert compared == len(VARIANTS) * len(SCHEMES) * len(archs)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("machine", "sm", "scheme", "verdict", "gate"),
    [
        # The x86_64 wheel has no sm110 image, and the aarch64 wheel none for sm75.
        ("x86_64", 110, "fp8@channel-dynamic:dense", "broken", "image"),
        ("x86_64", 110, "nvfp4@w4a4:dense", "broken", "activation-quantizer"),
        ("aarch64", 110, "fp8@channel-dynamic:dense", "native", None),
        ("aarch64", 75, "int4@w4a16:dense", "broken", "image"),
        ("aarch64", 75, "int8@w8a8:dense", "broken", "image"),
        ("x86_64", 75, "int4@w4a16:dense", "weight-only", None),
    ],
)
def test_a_wheel_without_the_image_breaks_the_pick(
    machine: str, sm: int, scheme: str, verdict: str, gate: str | None
) -> None:
    images = images_for({"vllm": "0.33.0"}, machine)
    found = outcome(scheme, table_for(scheme, sm, NO_TOOLKIT, derive=derive_from_images(images, sm)))
    assert (found.verdict, found.gate) == (verdict, gate)


def test_every_image_that_a_dense_route_names_is_in_the_published_wheels() -> None:
    known = engine()
    asked = {
        leaf.fact
        for scheme in SCHEMES.values()
        for route in known.ladders[scheme].order
        for gate in (*known.routes[route].select, *known.routes[route].execute)
        for leaf in leaves(gate.when)
        if leaf.fact.startswith("image.")
    }
    assert asked
    lookups = [images_for({"vllm": "0.33.0"}, machine) for machine in ("x86_64", "aarch64")]
    for key in sorted(asked):
        project, _, rest = key.removeprefix("image.").partition(":")
        library, _, unit = rest.partition("/")
        assert any(images(project, library, unit) for images in lookups), f"no wheel has {key}"


def test_an_image_that_was_not_measured_is_unknown() -> None:
    scheme = "fp8@channel-dynamic:dense"
    possible = outcomes(scheme, table_for(scheme, 120, NO_TOOLKIT, derive=None))
    assert {item.outcome.verdict for item in possible} == {"native", "broken"}


# ---------------------------------------------------------------- laws

FLIPPED: Mapping[str, st.SearchStrategy[Value]] = {
    "package.humming-kernels": st.sampled_from([ABSENT, "0.1.19"]),
    "package.flashinfer-python": st.sampled_from([ABSENT, "0.6.13", "0.7.2.post1"]),
    "package.flashinfer-cubin": st.sampled_from([ABSENT, "0.7.2.post1"]),
    "package.b12x": st.sampled_from([ABSENT, "1.5.1"]),
    "package.amd-quark": st.sampled_from([ABSENT, "0.12"]),
    "package.conch-triton-kernels": st.sampled_from([ABSENT, "1.3"]),
    "package.nvidia-cuda-nvcc": st.sampled_from([ABSENT, "12.8", "13.0"]),
    "env.VLLM_BATCH_INVARIANT": st.booleans(),
    "env.VLLM_HAS_FLASHINFER_CUBIN": st.booleans(),
    "env.VLLM_MARLIN_INPUT_DTYPE": st.sampled_from(["none", "int8", "fp8"]),
    "env.CUDA_HOME": st.sampled_from(["<host>", "{site_packages}/nvidia/cu13"]),
    "env.PATH": st.sampled_from(["<host>", "{env_bin}:{PATH}"]),
    "host.nvcc": st.sampled_from([ABSENT, "12.6", "12.8", "12.9", "13.0"]),
    "host.ninja": st.booleans(),
    "host.linkable-cudart": st.booleans(),
    "workload.dtype": st.sampled_from(["bf16", "fp16"]),
    "workload.n": st.sampled_from([4096, 4000, 100]),
    "workload.k": st.sampled_from([4096, 4000, 100]),
    "workload.quantizer": st.sampled_from(["compressed-tensors", "fp8", "modelopt"]),
}
VERDICTS = {"native", "mixed", "storage-only", "weight-only", "emulated", "broken", "unsupported", "unknown"}

assignments = st.fixed_dictionaries(dict(FLIPPED))
points = st.tuples(st.sampled_from(sorted(SCHEMES.values())), st.sampled_from(ARCHS))


@given(point=points, facts=assignments)
def test_full_facts_give_exactly_one_verdict(point: tuple[str, int], facts: dict[str, Value]) -> None:
    scheme, sm = point
    table = table_for(scheme, sm, facts)
    found = outcome(scheme, table)
    assert found.verdict in VERDICTS
    assert (found.route is None) == (found.verdict == "unsupported")
    assert [item.outcome for item in outcomes(scheme, table)] == [found]


@given(point=points, facts=assignments, forgotten=st.sets(st.sampled_from(sorted(FLIPPED)), max_size=3))
def test_learning_a_fact_only_narrows(point: tuple[str, int], facts: dict[str, Value], forgotten: set[str]) -> None:
    scheme, sm = point
    unknown: dict[str, Value | None] = {**facts, **dict.fromkeys(forgotten)}
    wide = {item.outcome.verdict for item in outcomes(scheme, table_for(scheme, sm, unknown))}
    for learnt in sorted(forgotten):
        narrow = {
            item.outcome.verdict for item in outcomes(scheme, table_for(scheme, sm, {**unknown, learnt: facts[learnt]}))
        }
        assert narrow <= wide
    assert outcome(scheme, table_for(scheme, sm, facts)).verdict in wide


@given(point=points, facts=assignments)
def test_a_route_is_not_picked_once_one_of_its_selection_gates_fails(
    point: tuple[str, int], facts: dict[str, Value]
) -> None:
    scheme, sm = point
    table = table_for(scheme, sm, facts)
    found: Outcome = outcome(scheme, table)
    if found.route is None:
        return
    known = engine()
    picked: Route = known.routes[found.route]
    answer = answer_from(table)
    for gate in picked.select:
        assert decide(gate.when, answer), f"{picked.name} was picked although {gate.id} fails"
        without = {
            **known.routes,
            picked.id: _with_failing_gate(picked, gate.id),
        }
        assert select(known.ladders[scheme], without, answer).route != picked.id


def _with_failing_gate(route: Route, identifier: str) -> Route:
    never = AnyOf(())
    return replace(
        route, select=tuple(replace(gate, when=never) if gate.id == identifier else gate for gate in route.select)
    )
