"""The simulated choice of attention backend by KV cache precision against vLLM 0.33.0's real one, and its traps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.completions import answer_from
from qresolve.facts import ABSENT, FactTable, Value
from qresolve.gates import decide
from qresolve.measured import images_for
from qresolve.selector import ordered_routes
from tests.knowledge_support import (
    ARCHS,
    NO_TOOLKIT,
    TOOLKIT_ON_HOST,
    derive_from_images,
    engine,
    oracle_cells,
    outcome,
    outcomes,
    route_name,
    table_for,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMATS: Mapping[str, str] = {
    "kv_fp8": "fp8@e4m3:kv",
    "kv_fp8_e5m2": "fp8@e5m2:kv",
    "kv_nvfp4": "nvfp4@nvfp4:kv",
    "kv_nvfp4_4over6": "nvfp4@4over6:kv",
    "kv_int8_per_token_head": "int8@per-token-head:kv",
}

# The oracle's environment had no importable FlashInfer where it says that FlashInfer is not usable. vLLM's wheel
# brings the package, and the attention selector asks only whether it can be imported.
WITHOUT: Mapping[str, Value | None] = {
    **NO_TOOLKIT, "package.flashinfer-python": ABSENT, "host.nvidia-artifactory": True,
}  # fmt: skip
WITH: Mapping[str, Value | None] = {**TOOLKIT_ON_HOST, "host.nvidia-artifactory": True}
PRESENT_ONLY: Mapping[str, Value | None] = {**NO_TOOLKIT, "host.nvidia-artifactory": True}
VARIANTS: Mapping[str, Mapping[str, Value | None]] = {
    "stock": WITHOUT,
    "flashinfer": WITH,
    "nohumming": {**WITHOUT, "package.humming-kernels": ABSENT},
    "flashinfer+nohumming": {**WITH, "package.humming-kernels": ABSENT},
    "nohumming+quark": {**WITHOUT, "package.humming-kernels": ABSENT, "package.amd-quark": "0.12"},
    "quark": {**WITHOUT, "package.amd-quark": "0.12"},
    "flashinfer+quark": {**WITH, "package.amd-quark": "0.12"},
    "b12x": {**WITHOUT, "package.b12x": "1.5.1"},
    "flashinfer_plus_b12x": {**WITH, "package.b12x": "1.5.1"},
}

CLASSES = {"fails": "broken", "none": "unsupported", "storage_only": "storage-only"}


def exception(name: str, picked: str, sm: int) -> tuple[str, str | None, str] | None:
    """(verdict here, gate that breaks it, why), where the class recorded with the oracle is not the one of the records.

    The oracle launched nothing, and called a backend native that reads the cache without multiplying in its type.
    """
    if name == "kv_fp8_e5m2" and sm >= 89 and picked == "TRITON_ATTN":
        return (
            "broken",
            "e5m2-query",
            "attention.py:471-519: queries are quantized for Triton, which asserts an e4m3 cache",
        )
    if name == "kv_fp8_e5m2" and sm // 10 == 10 and picked == "FLASHINFER":
        return (
            "broken",
            "e5m2-query",
            "attention.py:517: queries are quantized for trtllm-gen, which asserts an e4m3 cache",
        )
    if name == "kv_fp8_e5m2" and sm == 90 and picked == "FLASHINFER":
        return "unknown", None, "FlashAttention 3 with e5m2 queries was not read"
    if name in {"kv_fp8", "kv_fp8_e5m2"} and picked == "FLASHINFER" and sm not in {90, 100, 103}:
        return "storage-only", None, "flashinfer.py get_q_data_type: the queries keep the model's dtype here"
    if name == "kv_fp8" and picked == "TRITON_ATTN" and sm == 110:
        return "storage-only", None, "constraints/measured/triton.json: tiles of 16 rows become HMMA on sm110"
    return None


def valid_backends(scheme: str, table: FactTable) -> list[str]:
    """Names of the backends whose selection gates all hold, in order, without those that must be named."""
    known, answer = engine(), answer_from(table)
    return [
        known.routes[route].name
        for route in ordered_routes(known.ladders[scheme], answer)
        if not known.routes[route].explicit_only
        and all(decide(gate.when, answer) for gate in known.routes[route].select)
    ]


def test_picks_orders_and_classes_agree_with_the_real_selector(capsys: pytest.CaptureFixture[str]) -> None:
    compared, excepted, wrong = 0, 0, []
    for variant, facts in VARIANTS.items():
        for name, scheme in FORMATS.items():
            for text, (picks, seen) in oracle_cells(variant, name).items():
                sm = int(text)
                compared += 1
                table = table_for(scheme, sm, facts)
                found = outcome(scheme, table)
                argued = exception(name, picks.partition("+")[0], sm)
                excepted += argued is not None
                verdict = CLASSES.get(seen, seen)
                wanted = verdict if argued is None else argued[0]
                gate = {"broken": "sm89"}.get(wanted) if argued is None else argued[1]
                expected = [] if picks == "NONE" else picks.split("+")
                first = expected[0] if expected else None
                if (valid_backends(scheme, table), route_name(found)) != (expected, first):
                    wrong.append(f"{variant} {name} sm{sm}: {picks}, found {valid_backends(scheme, table)}")
                if (found.verdict, found.gate) != (wanted, gate):
                    wrong.append(
                        f"{variant} {name} sm{sm}: {picks} {wanted} {gate}, found {found.verdict} {found.gate}"
                    )
                if argued is not None and argued[0] == verdict:
                    wrong.append(f"{variant} {name} sm{sm}: the exception does not contradict the oracle")
    with capsys.disabled():
        print(f" [{compared} KV points compared, {excepted} argued exceptions of class]", end="")
    assert not wrong, "\n".join(wrong)
    assert compared == len(VARIANTS) * len(FORMATS) * len(ARCHS)


# ---------------------------------------------------------------- traps


@pytest.mark.parametrize("scheme", ["nvfp4@nvfp4:kv", "nvfp4@4over6:kv"])
@pytest.mark.parametrize("sm", ARCHS)
def test_no_nvfp4_cache_without_flashinfer(scheme: str, sm: int) -> None:
    assert outcome(scheme, table_for(scheme, sm, WITHOUT)).verdict == "unsupported"


@pytest.mark.parametrize("scheme", ["fp8@e4m3:kv", "nvfp4@nvfp4:kv"])
@pytest.mark.parametrize("sm", [80, 89, 120, 121])
def test_flashinfer_that_cannot_build_is_picked_and_breaks(scheme: str, sm: int) -> None:
    found = outcome(scheme, table_for(scheme, sm, PRESENT_ONLY))
    assert (route_name(found), found.verdict, found.gate) == ("FLASHINFER", "broken", "flashinfer-builds")


@pytest.mark.parametrize(
    ("backend", "sm", "verdict", "gate"),
    [
        ("TRITON_ATTN", 75, "broken", "sm89"),
        ("TRITON_ATTN", 86, "broken", "sm89"),
        ("TRITON_ATTN", 89, "native", None),
        ("TRITON_ATTN", 90, "storage-only", None),
        ("TRITON_ATTN", 120, "native", None),
        ("FLASH_ATTN", 90, "native", None),
        ("FLASH_ATTN", 100, "native", None),
        ("FLASH_ATTN", 89, "unsupported", None),
        ("FLASH_ATTN", 120, "unsupported", None),
        ("FLASHINFER", 75, "unsupported", None),
        ("FLASHINFER", 100, "native", None),
        ("FLASHINFER", 120, "storage-only", None),
        ("FLEX_ATTENTION", 90, "unsupported", None),
        ("B12X", 120, "unknown", None),
        ("B12X", 100, "unsupported", None),
    ],
)
def test_a_named_backend_is_taken_or_raises(backend: str, sm: int, verdict: str, gate: str | None) -> None:
    facts = {**WITH, "package.b12x": "1.5.1", "config.attention_config.backend": backend}
    found = outcome("fp8@e4m3:kv", table_for("fp8@e4m3:kv", sm, facts))
    assert (found.verdict, found.gate) == (verdict, gate)
    assert route_name(found) == (None if verdict == "unsupported" else backend)


@pytest.mark.parametrize(
    ("sm", "facts", "verdict", "gate"),
    [
        (100, {}, "native", None),
        (120, {}, "storage-only", None),
        (90, {}, "storage-only", None),
        (100, {"workload.head-size": 64}, "native", None),
        (120, {"workload.head-size": 64}, "unsupported", None),
        (120, {"workload.sinks": True}, "unsupported", None),
        (100, {"workload.sinks": True}, "native", None),
        (120, {"workload.dcp": 2}, "broken", "no-decode-context-parallelism"),
        (100, {"workload.dcp": 2}, "unknown", None),
        (100, {"env.VLLM_BATCH_INVARIANT": True}, "unsupported", None),
        (100, {"host.nvidia-artifactory": False}, "unsupported", None),
        (100, {"host.nvidia-artifactory": False, "package.flashinfer-cubin": "0.7.2.post1"}, "native", None),
        (100, {"config.attention_config.use_trtllm_attention": "false"}, "broken", "trtllm-allowed"),
        (110, {}, "unsupported", None),
    ],
)
def test_what_reads_an_nvfp4_cache(sm: int, facts: Mapping[str, Value], verdict: str, gate: str | None) -> None:
    found = outcome("nvfp4@nvfp4:kv", table_for("nvfp4@nvfp4:kv", sm, {**WITH, **facts}))
    assert (found.verdict, found.gate) == (verdict, gate)


def test_whether_the_host_reaches_the_cubins_is_not_assumed() -> None:
    found = outcomes("nvfp4@nvfp4:kv", table_for("nvfp4@nvfp4:kv", 100, TOOLKIT_ON_HOST))
    assert {item.outcome.verdict for item in found} == {"native", "unsupported"}


@pytest.mark.parametrize(
    ("sm", "head_size", "facts", "first"),
    [
        (90, 128, {}, "FLASH_ATTN"),
        (90, 320, {}, "TRITON_ATTN"),
        (90, 512, {}, "FLASH_ATTN"),
        (100, 128, {}, "FLASH_ATTN"),
        (100, 192, {}, "TRITON_ATTN"),
        (100, 128, {"env.VLLM_BATCH_INVARIANT": True}, "TRITON_ATTN"),
        (90, 128, {"env.VLLM_BATCH_INVARIANT": True}, "FLASH_ATTN"),
    ],
)
def test_flash_attention_reads_fp8_by_version_and_head_size(
    sm: int, head_size: int, facts: Mapping[str, Value], first: str
) -> None:
    table = table_for("fp8@e4m3:kv", sm, {**WITHOUT, **facts, "workload.head-size": head_size})
    assert valid_backends("fp8@e4m3:kv", table)[0] == first


def test_the_deepseek_layout_is_for_sm10x() -> None:
    for sm in ARCHS:
        found = outcome("nvfp4@ds-mla:kv", table_for("nvfp4@ds-mla:kv", sm, WITHOUT))
        assert (route_name(found), found.verdict) == (
            ("FLASHMLA_SPARSE", "unknown") if sm in {100, 103} else (None, "unsupported")
        )


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(
    ("scheme", "sm", "facts", "verdict"),
    [
        ("fp8@e4m3:kv", 90, WITHOUT, "native"),
        ("nvfp4@nvfp4:kv", 100, WITH, "native"),
        ("nvfp4@nvfp4:kv", 103, WITH, "native"),
        ("nvfp4@ds-mla:kv", 100, WITHOUT, "unknown"),
    ],
)
def test_the_published_wheels_hold_the_kernels(
    machine: str, scheme: str, sm: int, facts: Mapping[str, Value | None], verdict: str
) -> None:
    derive = derive_from_images(images_for({"vllm": "0.33.0"}, machine), sm)
    assert [item.outcome.verdict for item in outcomes(scheme, table_for(scheme, sm, facts, derive=derive))] == [verdict]


FLIPPED: Mapping[str, st.SearchStrategy[Value]] = {
    "package.flashinfer-python": st.sampled_from([ABSENT, "0.7.2.post1"]),
    "package.flashinfer-cubin": st.sampled_from([ABSENT, "0.7.2.post1"]),
    "package.nvidia-cutlass-dsl": st.sampled_from([ABSENT, "4.8.0"]),
    "env.VLLM_BATCH_INVARIANT": st.booleans(),
    "host.nvcc": st.sampled_from([ABSENT, "12.6", "13.0"]),
    "host.ninja": st.booleans(),
    "host.nvidia-artifactory": st.booleans(),
    "workload.head-size": st.sampled_from([64, 128, 192, 256, 512]),
    "workload.sinks": st.booleans(),
    "workload.dcp": st.sampled_from([1, 2]),
    "config.attention_config.backend": st.sampled_from(["auto", "TRITON_ATTN", "FLASHINFER", "CUSTOM"]),
    "config.attention_config.use_trtllm_attention": st.sampled_from(["auto", "true", "false"]),
}


@given(
    scheme=st.sampled_from(sorted({*FORMATS.values(), "nvfp4@ds-mla:kv"})),
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
