"""What is known of the libraries that engines lean on: floors that pass and fail, and what Triton compiles."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.completions import answer_from
from qresolve.data import data_folder
from qresolve.facts import ABSENT, Fact, FactTable, Value
from qresolve.gates import kleene
from qresolve.knowledge.load import constraint_files
from qresolve.measured import toolchain_fact, toolchain_records
from qresolve.strict import read_toml
from qresolve.wheels.index import read_wheel_index
from qresolve.wheels.triton import judge, read_measured, read_request
from tests.knowledge_support import ARCHS, engine, outcome, outcomes, table_for

if TYPE_CHECKING:
    from collections.abc import Mapping

OWN = ("torch", "bitsandbytes", "quark", "cutlass-dsl", "tvm-ffi", "cudnn-frontend", "triton")

# id -> (facts under which it holds, facts under which it does not).
FLOORS: Mapping[str, tuple[Mapping[str, Value], Mapping[str, Value]]] = {
    "torch.aarch64-wheel-has-cuda": ({"package.torch": "2.11.0"}, {"package.torch": "2.10.0"}),
    "torch.has-e8m0": ({"package.torch": "2.7.0"}, {"package.torch": "2.6.0"}),
    "torch.has-float4": ({"package.torch": "2.8.0"}, {"package.torch": "2.7.1"}),
    "torch.scaled-mm-takes-128x128-blocks": (
        {"package.torch": "2.14.0", "gpu.sm": 90},
        {"package.torch": "2.14.0", "gpu.sm": 100},
    ),
    "bitsandbytes.takes-the-nearest-library": ({"package.bitsandbytes": "0.50.0"}, {"package.bitsandbytes": "0.49.2"}),
    "bitsandbytes.has-cuda-13": ({"package.bitsandbytes": "0.48.0"}, {"package.bitsandbytes": "0.47.0"}),
    "bitsandbytes.has-cuda-13-2": ({"package.bitsandbytes": "0.50.2"}, {"package.bitsandbytes": "0.49.2"}),
    "quark.emulates-mx": ({"package.amd-quark": "0.12.post1"}, {"package.amd-quark": ABSENT}),
    "cutlass-dsl.majors-do-not-overwrite-each-other": (
        {"package.nvidia-cutlass-dsl": "4.6.2"},
        {"package.nvidia-cutlass-dsl": "4.5.2"},
    ),
    "tvm-ffi.is-one-that-b12x-takes": (
        {"package.apache-tvm-ffi": "0.1.8.post2"},
        {"package.apache-tvm-ffi": "0.1.8.post0"},
    ),
    "cudnn-frontend.does-fp4": (
        {"package.nvidia-cudnn-frontend": "1.13.0"},
        {"package.nvidia-cudnn-frontend": "1.12.0"},
    ),
    "triton.compiles-fp8": ({"toolchain.triton.fp8": "decomposed"}, {"toolchain.triton.fp8": "none"}),
    "triton.multiplies-fp8": (
        {"toolchain.triton.fp8": "native", "toolchain.triton.fp8-64-rows": "native"},
        {"toolchain.triton.fp8": "native", "toolchain.triton.fp8-64-rows": "decomposed"},
    ),
    "triton.multiplies-fp8-in-16-rows": (
        {"toolchain.triton.fp8-16-rows": "native"},
        {"toolchain.triton.fp8-16-rows": "decomposed"},
    ),
    "triton.compiles-int8": ({"toolchain.triton.int8": "native"}, {"toolchain.triton.int8": "none"}),
    "triton.multiplies-int8": ({"toolchain.triton.int8": "native"}, {"toolchain.triton.int8": "decomposed"}),
    "triton.multiplies-mxfp8": ({"toolchain.triton.mxfp8": "native"}, {"toolchain.triton.mxfp8": "decomposed"}),
    "triton.multiplies-mxfp4": ({"toolchain.triton.mxfp4": "native"}, {"toolchain.triton.mxfp4": "none"}),
    "triton.multiplies-nvfp4": ({"toolchain.triton.nvfp4": "native"}, {"toolchain.triton.nvfp4": "none"}),
    "triton.multiplies-mxfp8-by-mxfp4": (
        {"toolchain.triton.e4m3-e2m1": "native"},
        {"toolchain.triton.e4m3-e2m1": "decomposed"},
    ),
}


def holds(condition: str, facts: Mapping[str, Value]) -> bool | None:
    known = engine()
    values = {key: Fact(value=value, source="the test") for key, value in facts.items()}
    return kleene(known.conditions[condition], answer_from(FactTable(vocabulary=known.vocabulary, values=values)))


def test_every_condition_of_these_libraries_has_a_bracket_here() -> None:
    files = [path for path in constraint_files(data_folder("constraints") / "libraries") if path.stem in OWN]
    assert len(files) == len(OWN)
    ids = [entry.text("id") for path in files for entry in read_toml(path).tables("condition")]
    assert Counter(ids) == Counter(list(FLOORS))


@pytest.mark.parametrize("condition", FLOORS)
def test_a_condition_passes_fails_and_is_unknown_where_nothing_is_known(condition: str) -> None:
    passing, failing = FLOORS[condition]
    assert holds(condition, passing) is True
    assert holds(condition, failing) is False
    assert holds(condition, {}) is None


def test_the_default_torch_of_aarch64_claims_no_cuda_before_it_has_any() -> None:
    rows = [row for row in read_wheel_index("torch") if row.filename.endswith("_aarch64.whl")]
    assert {row.version for row in rows} >= {"2.10.0", "2.11.0"}
    for row in rows:
        has_cuda = holds("torch.aarch64-wheel-has-cuda", {"package.torch": row.version})
        assert (row.declared.cuda is not None) == has_cuda, row.filename


# ---------------------------------------------------------------- what Triton compiles


def test_every_release_was_measured_on_every_arch_for_every_product() -> None:
    request = read_request()
    measured = read_measured()
    assert tuple(measured) == request.versions
    for release in measured.values():
        assert {(row.arch, row.product) for row in release.rows} == {
            (arch, product.name) for arch in request.archs for product in request.products
        }
        assert sorted(arch for tool in release.assemblers for arch in tool.archs) == list(request.archs)


def test_the_results_follow_from_the_instructions() -> None:
    products = {product.name: product for product in read_request().products}
    for release in read_measured().values():
        for row in release.rows:
            if row.result in {"native", "decomposed", "mixed"}:
                assert judge(products[row.product], row.opcodes) == row.result
            else:
                assert not row.opcodes
            assert bool(row.why) == (row.result in {"none", "crashed"})


@pytest.mark.parametrize(
    ("product", "silicon"),
    [
        ("bf16", {80, 86, 89, 90, 100, 103, 110, 120, 121}),
        ("int8", {75, 80, 86, 89, 90, 100, 103, 110, 120, 121}),
        ("fp8", {89, 90, 100, 103, 110, 120, 121}),
        ("fp8-64-rows", {89, 90, 100, 103, 110, 120, 121}),
        ("fp8-16-rows", {89, 90, 100, 103, 110, 120, 121}),
        ("mxfp8", {100, 103, 110, 120, 121}),
        ("mxfp4", {100, 103, 110, 120, 121}),
        ("nvfp4", {100, 103, 110, 120, 121}),
        ("e4m3-e2m1", {100, 103, 110, 120, 121}),
    ],
)
def test_nothing_is_native_that_the_silicon_cannot_do(product: str, silicon: set[int]) -> None:
    for release in read_measured().values():
        native = {row.arch for row in release.rows if row.product == product and row.result == "native"}
        assert native <= silicon, release.version


def test_a_gpu_that_the_assembler_does_not_know_gets_nothing() -> None:
    """Not every newer assembler names every GPU, so only those above all that it knows are told by its newest."""
    looked_at = 0
    for release in read_measured().values():
        for tool in release.assemblers:
            unknown = [arch for arch in tool.archs if arch > int(tool.newest.removeprefix("sm_"))]
            looked_at += len(unknown)
            for row in release.rows:
                assert row.arch not in unknown or row.result in {"none", "crashed", "timed out"}
    assert looked_at


def test_gb10_multiplies_fp8_and_fp4_from_the_triton_that_torch_2_14_pins() -> None:
    for product in ("fp8", "mxfp8", "mxfp4"):
        key = f"toolchain.triton.{product}"
        assert toolchain_fact(key, 120, "3.7.1").value == "native"
        assert toolchain_fact(key, 121, "3.7.1").value == "decomposed"
        assert toolchain_fact(key, 121, "3.8.0").value == "native"


def test_what_was_not_measured_is_unknown_and_no_triton_compiles_nothing() -> None:
    for version, sm in (("3.8.99", 120), ("3.8.0", 87), (None, 120)):
        fact = toolchain_fact("toolchain.triton.fp8", sm, version)
        assert fact.value is None
        assert fact.why_unknown
    assert toolchain_fact("toolchain.triton.no-such-product", 120, "3.8.0").value is None
    assert toolchain_fact("toolchain.triton.fp8", 120, ABSENT).value == "none"


def test_a_compiler_that_ran_out_of_time_is_unknown() -> None:
    release = read_measured()["3.8.0"]
    slow = [row for row in release.rows if row.result == "timed out"]
    assert slow
    for row in slow:
        assert toolchain_fact(f"toolchain.triton.{row.product}", row.arch, "3.8.0").value is None


def test_the_record_of_a_release_is_its_own() -> None:
    digests = [digest for version in read_measured() for digest in toolchain_records(version).values()]
    assert len(set(digests)) == len(read_measured())
    assert toolchain_records("3.8.99") == {}
    assert toolchain_records(None) == {}


# ---------------------------------------------------------------- what hangs on it in vLLM

TRITON_ROUTES: Mapping[str, Mapping[str, Value | None]] = {
    "int8@w8a8:dense": {"env.VLLM_DISABLED_KERNELS": frozenset({"CutlassInt8ScaledMMLinearKernel"})},
    "fp8@channel-dynamic:moe": {"config.kernel_config.moe_backend": "triton"},
    "fp8-block@block128:moe": {"config.kernel_config.moe_backend": "triton"},
    "int8@w8a8:moe": {"config.kernel_config.moe_backend": "triton"},
}


@pytest.mark.parametrize("scheme", ["fp8@channel-dynamic:moe", "fp8-block@block128:moe"])
def test_experts_on_gb10_are_as_native_as_the_triton_in_the_environment(scheme: str) -> None:
    choice = TRITON_ROUTES[scheme]
    for version, wanted in (("3.7.1", "storage-only"), ("3.8.0", "native")):
        assert outcome(scheme, table_for(scheme, 121, {**choice, "package.triton": version})).verdict == wanted
    unmeasured = table_for(scheme, 121, {**choice, "package.triton": "3.8.99"})
    assert {item.outcome.verdict for item in outcomes(scheme, unmeasured)} == {"native", "storage-only", "broken"}


@pytest.mark.parametrize("scheme", ["int8@w8a8:dense", "int8@w8a8:moe"])
def test_int8_on_turing_fails_where_triton_compiles_no_int8_product(scheme: str) -> None:
    found = outcome(scheme, table_for(scheme, 75, TRITON_ROUTES[scheme]))
    assert found.verdict == "broken"
    assert outcome(scheme, table_for(scheme, 80, TRITON_ROUTES[scheme])).verdict == "native"


@given(
    scheme=st.sampled_from(sorted(TRITON_ROUTES)),
    sm=st.sampled_from(ARCHS),
    version=st.sampled_from(sorted(read_measured())),
)
def test_measuring_a_release_only_narrows(scheme: str, sm: int, version: str) -> None:
    choice = TRITON_ROUTES[scheme]
    known = {item.outcome for item in outcomes(scheme, table_for(scheme, sm, {**choice, "package.triton": version}))}
    unknown = {item.outcome for item in outcomes(scheme, table_for(scheme, sm, {**choice, "package.triton": "3.0.99"}))}
    assert known <= unknown
