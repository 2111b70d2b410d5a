"""Recorded wheels in which something that looks like a native kernel is none, and their neighbours in which it is.

Each was a wrong answer of something: of a predicate, of a list of archs, or of a name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from qresolve.arch import Loadability, best_loadability, read_architectures
from qresolve.machine_code.instructions import read_instructions
from qresolve.measured import row_for
from qresolve.wheels.index import ANY_UNIT, images_of

if TYPE_CHECKING:
    from qresolve.wheels.index_rows import WheelRow

ARCHITECTURES = read_architectures()
STABLE = "vllm/_C_stable_libtorch.abi3.so"
OLD = "vllm/_C.abi3.so"


def loads(row: WheelRow | None, library: str, unit: str, *, sm: int, product: str | None = None) -> Loadability:
    assert row is not None
    wanted = None if product is None else read_instructions().named(product)
    assert (product is None) == (wanted is None)
    images = images_of(row, library, unit, product=wanted)
    assert images is not None, "it was measured"
    return best_loadability(images, sm, ARCHITECTURES)


@pytest.mark.parametrize(
    "case",
    [
        # vLLM 0.9.2: its predicate says yes for sm120. There is no kernel, and of the experts' one a shell.
        ("0.9.2", "x86_64", OLD, "nvfp4_scaled_mm_sm120_kernels", 120, "nvfp4", "none"),
        ("0.9.2", "x86_64", OLD, "nvfp4_scaled_mm_kernels", 120, "nvfp4", "none"),
        ("0.9.2", "x86_64", OLD, "nvfp4_scaled_mm_kernels", 100, "nvfp4", "sass"),
        ("0.9.2", "x86_64", OLD, "nvfp4_blockwise_moe_kernel", 120, None, "sass"),
        ("0.9.2", "x86_64", OLD, "nvfp4_blockwise_moe_kernel", 120, "nvfp4", "none"),
        # vLLM 0.12.0: its predicate says yes for sm103 and sm121, and its images are for exactly sm100 and sm120.
        ("0.12.0", "x86_64", OLD, "nvfp4_scaled_mm_kernels", 100, "nvfp4", "sass"),
        ("0.12.0", "x86_64", OLD, "nvfp4_scaled_mm_kernels", 103, "nvfp4", "none"),
        ("0.12.0", "x86_64", OLD, "nvfp4_scaled_mm_sm120_kernels", 120, "nvfp4", "sass"),
        ("0.12.0", "x86_64", OLD, "nvfp4_scaled_mm_sm120_kernels", 121, "nvfp4", "none"),
        # vLLM 0.33.0: right for all of these, but for sm110, of which only the aarch64 wheel has an image.
        ("0.33.0", "x86_64", STABLE, "nvfp4_scaled_mm_kernels", 103, "nvfp4", "sass"),
        ("0.33.0", "x86_64", STABLE, "nvfp4_scaled_mm_sm120_kernels", 121, "nvfp4", "sass"),
        ("0.33.0", "x86_64", STABLE, "nvfp4_scaled_mm_kernels", 110, "nvfp4", "none"),
        ("0.33.0", "aarch64", STABLE, "nvfp4_scaled_mm_kernels", 110, "nvfp4", "sass"),
        # vLLM 0.20.2 on aarch64: its FP8 kernels have an sm_110f image, and it is a shell; from 0.21.0 on it is not.
        ("0.20.2", "aarch64", STABLE, "scaled_mm_sm100_fp8", 110, None, "sass"),
        ("0.20.2", "aarch64", STABLE, "scaled_mm_sm100_fp8", 110, "fp8", "none"),
        ("0.20.2", "aarch64", STABLE, "scaled_mm_sm100_fp8", 100, "fp8", "sass"),
        ("0.21.0", "aarch64", STABLE, "scaled_mm_sm100_fp8", 110, "fp8", "sass"),
        # FP8 experts: the grouped kernels exist for sm90 and sm10x alone.
        ("0.33.0", "x86_64", STABLE, "grouped_mm_c3x_sm90", 90, "fp8", "sass"),
        ("0.33.0", "x86_64", STABLE, "grouped_mm_c3x_sm100", 100, "fp8", "sass"),
        ("0.33.0", "x86_64", STABLE, "grouped_mm_c3x_sm90", 120, "fp8", "none"),
        ("0.33.0", "x86_64", STABLE, "grouped_mm_c3x_sm100", 120, "fp8", "none"),
        # Machete: an image for every arch, with instructions in that of sm_90a alone.
        ("0.33.0", "x86_64", STABLE, "machete_mm_impl_part1", 120, None, "sass"),
        ("0.33.0", "x86_64", STABLE, "machete_mm_impl_part1", 120, "16-bit", "none"),
        ("0.33.0", "x86_64", STABLE, "machete_mm_impl_part1", 90, "16-bit", "sass"),
        # The other 4-bit format is no NVFP4.
        ("0.33.0", "x86_64", STABLE, "nvfp4_scaled_mm_sm120_kernels", 120, "mxfp4", "none"),
    ],
)
def test_what_vllm_wheels_hold(case: tuple[str, str, str, str, int, str | None, str]) -> None:
    version, machine, library, unit, sm, product, expected = case
    assert loads(row_for("vllm", version, machine), library, unit, sm=sm, product=product).value == expected


def test_nothing_of_qutlass_runs_on_sm120() -> None:
    library = "vllm/_qutlass_C.abi3.so"
    row = row_for("vllm", "0.33.0", "x86_64")
    assert loads(row, library, ANY_UNIT, sm=120) is Loadability.NONE
    assert loads(row, library, ANY_UNIT, sm=100) is Loadability.SASS


@pytest.mark.parametrize(("machine", "expected"), [("x86_64", Loadability.NONE), ("aarch64", Loadability.SASS)])
def test_sglang_kernel_loads_on_sm121_on_one_machine_alone(machine: str, expected: Loadability) -> None:
    library = "sgl_kernel/sm100/common_ops.abi3.so"
    row = row_for("sglang-kernel", "0.4.10", machine)
    assert loads(row, library, ANY_UNIT, sm=121) is expected
    assert loads(row, library, ANY_UNIT, sm=120) is Loadability.SASS


def test_a_unit_whose_instructions_were_not_read_is_unknown() -> None:
    row = row_for("vllm", "0.33.0", "x86_64")
    assert row is not None
    product = read_instructions().named("nvfp4")
    assert images_of(row, STABLE, "no_such_unit", product=product) == ()
    assert images_of(row, "vllm/no_such_library.so", "unit", product=product) is None
