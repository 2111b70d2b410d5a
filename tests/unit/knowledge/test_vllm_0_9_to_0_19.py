"""vLLM 0.9.2 to 0.19.0: what their FP4 and FP8 linear layers come to on the images of their wheels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from qresolve.classes import CLASSES
from qresolve.facts import ABSENT, Value
from qresolve.knowledge.engine import read_releases
from qresolve.measured import row_for
from qresolve.setting import Setting
from qresolve.situation import Host
from tests.knowledge_support import ARCHS, engine, release_bench
from tests.older_vllm import (
    ANY_HOST,
    BARE,
    FP8,
    MODELOPT,
    NOTHING,
    RELEASES,
    TOOLKIT,
    first_native,
    judged,
    name_of,
    unless_torch_lacks_it,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

NVFP4 = "nvfp4@w4a4:dense"
CHANNEL = "fp8@channel-dynamic:dense"
TENSOR = "fp8@tensor-static:dense"
BLOCK = "fp8-block@block128:dense"


# ================================================================ releases


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_is_known_and_pins_what_its_metadata_says(release: str) -> None:
    assert release in {item.version for item in read_releases("vllm")}
    row = row_for("vllm", release, "x86_64")
    assert row is not None
    declared = {text.replace(" ", "") for text in row.declared.requires_dist}
    own = {pin.requirement for pin in engine("vllm", release).release.pins if ";" not in pin.requirement}
    assert own <= declared
    assert engine("vllm", release).release.requires_python == SpecifierSet(row.declared.requires_python or "")
    assert (row.declared.upload_time or "").startswith(str(engine("vllm", release).release.released))


@pytest.mark.parametrize("release", RELEASES)
def test_the_wheels_link_cuda_12_as_their_release_says(release: str) -> None:
    row = row_for("vllm", release, "x86_64")
    assert row is not None
    assert row.measured is not None
    assert row.measured.libraries is not None
    needed = {
        name for library in row.measured.libraries if library.path == "vllm/_C.abi3.so" for name in library.needed
    }
    assert "libcudart.so.12" in needed
    assert engine("vllm", release).release.cuda.startswith("12.")


@pytest.mark.parametrize("release", RELEASES)
def test_nothing_is_known_on_aarch64_where_the_torch_that_they_pin_has_no_cuda(release: str) -> None:
    torch = next(pin.version for pin in engine("vllm", release).release.pins if pin.package == "torch")
    assert Version(torch) < Version("2.11")  # from which one on the default index's wheel for aarch64 has CUDA
    assert row_for("vllm", release, "aarch64") is None
    for key in engine("vllm", release).ladders:
        for sm in (90, 100, 121):
            for assumed in (NOTHING, FP8):
                for host in (BARE, TOOLKIT):
                    found = release_bench(release, key, sm, host=host, machine="aarch64", assumed=assumed).outcomes()
                    verdicts = {item.outcome.verdict for item in found}
                    assert not (len(verdicts) == 1 and verdicts <= set(CLASSES)), (key, sm, verdicts)


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
                if outcome.verdict == "unknown":  # FlashInfer whose kernels were not read, or a torch without the GPU
                    assert sm in {103, 110, 121} or (release == "0.9.2" and sm >= 100)
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


@pytest.mark.parametrize("release", RELEASES)
def test_nvfp4_is_native_only_where_an_image_loads_whatever_the_predicate_says(release: str) -> None:
    # 0.9.2 and 0.11.2 call the kernel for sm100 on every GPU, though 0.11.2 has one for sm120.
    native = {100} if release in {"0.9.2", "0.11.2"} else {100, 120}
    cutlass: Mapping[str, Value] = {"package.flashinfer-python": ABSENT}
    for sm in (100, 103, 110, 120, 121):
        found = judged(release, NVFP4, sm, assumed=cutlass)
        assert name_of(release, found) == "cutlass"
        if sm in native:
            assert found.verdict == unless_torch_lacks_it(release, sm, "native"), (release, sm)
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
    before = unless_torch_lacks_it(release, 100, "native")
    assert found.verdict == ("emulated" if release in {"0.16.0", "0.18.1", "0.19.0"} else before)


def test_fbgemms_variable_counts_beside_a_named_backend_before_0_16_and_alone_after() -> None:
    alone: Mapping[str, Value] = {"env.VLLM_USE_FBGEMM": True}
    beside: Mapping[str, Value] = {**alone, "env.VLLM_NVFP4_GEMM_BACKEND": "cutlass"}
    assert judged("0.15.1", NVFP4, 100, assumed=alone).verdict == "native"
    assert judged("0.15.1", NVFP4, 100, assumed=beside).verdict == "unsupported"
    assert judged("0.16.0", NVFP4, 100, assumed=alone).verdict == "unsupported"


@pytest.mark.parametrize("release", RELEASES)
def test_nvfp4_w4a16_is_marlin_called_directly(release: str) -> None:
    for sm in (80, 90, 100, 103, 120, 121):
        assert judged(release, "nvfp4@w4a16:dense", sm).verdict == unless_torch_lacks_it(release, sm, "weight-only")
    assert judged(release, "nvfp4@w4a16:dense", 100, assumed=MODELOPT).verdict == "unsupported"


# ================================================================ FP8


@pytest.mark.parametrize("release", RELEASES)
def test_fp8_per_channel_is_cutlass_where_an_image_loads_on_any_host(release: str) -> None:
    for sm in (89, 90, 100, 120):
        laid_out = release_bench(release, CHANNEL, sm, host=ANY_HOST, machine="x86_64", assumed=NOTHING)
        verdict = unless_torch_lacks_it(release, sm, "native")
        assert {item.outcome.verdict for item in laid_out.outcomes()} == {verdict}, sm
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
    assert found.verdict == unless_torch_lacks_it(release, 120, "native")
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
        assert judged(release, "fp8@w8a16:dense", sm).verdict == unless_torch_lacks_it(release, sm, "weight-only")
    assert judged(release, "fp8@w8a16:dense", 90, assumed=MODELOPT).verdict == "unsupported"


# ================================================================ 128x128 blocks


def test_block_fp8_of_0_9_2_says_yes_on_sm120_and_its_kernel_refuses() -> None:
    found = judged("0.9.2", BLOCK, 120, assumed=FP8)
    assert (found.verdict, found.gate) == ("broken", "takes-block-scales")
    for sm in (89, 90):
        assert judged("0.9.2", BLOCK, sm, assumed=FP8).verdict == "native", sm
    assert "CUDA 12.6" in judged("0.9.2", BLOCK, 100, assumed=FP8).why
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
