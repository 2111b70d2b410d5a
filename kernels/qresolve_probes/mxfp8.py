"""MXFP8: e4m3 elements, an e8m0 scale for every 32 of K.

    element   s eeee fff    bias 7      scale   eeeeeeee    2^(e - 127)

The spoiled control has one scale of B one exponent step too high.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve_probes.fp8 import codes
from qresolve_probes.inputs import rows_of, with_byte
from qresolve_probes.layouts import decode_e4m3, decode_e8m0, pack_float32
from qresolve_probes.mx import E8M0_USUAL, e8m0_scales, kernel, scaled
from qresolve_probes.probe import FLOAT32, HOPPER_FP8, Decoded, Inputs, Probe, Rounding, Shape

if TYPE_CHECKING:
    import random

GROUP = 32


def make(source: random.Random, shape: Shape) -> Inputs:
    """A, B and their scales."""
    groups = shape.k // GROUP
    return Inputs(
        shape,
        {
            "a": codes(source, shape.m * shape.k),
            "b": codes(source, shape.n * shape.k),
            "scale_a": e8m0_scales(source, shape.m * groups),
            "scale_b": e8m0_scales(source, shape.n * groups),
            "factor": pack_float32([1.0]),
        },
    )


def decode(inputs: Inputs) -> Decoded:
    """Values with their scales."""
    sides = []
    for name in "ab":
        values = [decode_e4m3(code) for code in inputs.buffers[name]]
        scales = [decode_e8m0(code) for code in inputs.buffers[f"scale_{name}"]]
        sides.append(rows_of(scaled(values, scales, GROUP), inputs.shape.k))
    return Decoded(*sides)


def spoil(inputs: Inputs) -> Inputs:
    """An ordinary scale of B, the largest of those, one exponent step higher."""
    scales = inputs.buffers["scale_b"]
    place = scales.index(max(E8M0_USUAL))
    return with_byte(inputs, "scale_b", place, scales[place] + 1)


PROBE = Probe(
    name="mxfp8",
    parameters=(
        ("a", "*fp8e4nv"),
        ("b", "*fp8e4nv"),
        ("scale_a", "*u8"),
        ("scale_b", "*u8"),
        ("factor", "*fp32"),
        ("c", "*fp32"),
    ),  # fmt: skip
    make=make,
    decode=decode,
    spoil=spoil,
    rounding=Rounding(operand=0, sum=HOPPER_FP8, result=2 * FLOAT32),
    native={
        75: None,
        80: None,
        86: None,
        89: None,
        90: None,
        100: "UTCQMMA scaled",
        103: "UTCQMMA scaled",
        110: "UTCQMMA scaled",
        120: r"QMMA\.SF\.F32\.E4M3\.E4M3\.E8",
        121: r"QMMA\.SF\.F32\.E4M3\.E4M3\.E8",
    },  # fmt: skip
    kernel=kernel,
    group=GROUP,
    constants={"FORMAT": "e4m3", "PACK": 1, "GROUP": GROUP},
)
