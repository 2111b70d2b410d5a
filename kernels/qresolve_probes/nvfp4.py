"""NVFP4: e2m1 elements, two a byte, an e4m3 scale for every 16 of K, and one float32 factor.

    byte      hhhh llll     even position of K in llll
    element   s ee f        0, 0.5, 1, 1.5, 2, 3, 4, 6
    scale     0 eeee fff    unsigned e4m3, bias 7, largest 448
    factor    float32       of the whole product

The spoiled control has the exponent of one scale of B one step too high.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve_probes.inputs import codes_with_edges
from qresolve_probes.layouts import decode_e2m1, decode_e4m3, pack_float32, unpack_float32, unpack_nibbles
from qresolve_probes.mx import decode_groups, kernel, spoil_scale
from qresolve_probes.mxfp4 import codes
from qresolve_probes.probe import FLOAT32, Decoded, Inputs, Probe, Rounding, Shape

if TYPE_CHECKING:
    import random

GROUP = 16
SCALES = tuple(range(5 << 3, 9 << 3))  # 1/4 to 3.75
SCALE_EDGES = (0x01, 0x08, 0x76)  # smallest subnormal, smallest normal, 224: its double is still a number


def make(source: random.Random, shape: Shape) -> Inputs:
    """A, B, their scales and the factor."""
    groups = shape.k // GROUP

    def scales(count: int) -> bytes:
        return bytes(codes_with_edges(source, count, SCALES, SCALE_EDGES))

    return Inputs(
        shape,
        {
            "a": codes(source, shape.m * shape.k),
            "b": codes(source, shape.n * shape.k),
            "scale_a": scales(shape.m * groups),
            "scale_b": scales(shape.n * groups),
            "factor": pack_float32([0.0173]),
        },
    )


def decode(inputs: Inputs) -> Decoded:
    """Values with their scales; the float32 is a factor."""
    left, right = decode_groups(inputs, decode_e2m1, unpack_nibbles, decode_e4m3, GROUP)
    (factor,) = unpack_float32(inputs.buffers["factor"])
    return Decoded(left, right, factor)


def spoil(inputs: Inputs) -> Inputs:
    """An ordinary scale of B, the largest of those, one exponent step higher."""
    return spoil_scale(inputs, SCALES, 8)


PROBE = Probe(
    name="nvfp4",
    parameters=(
        ("a", "*u8"),
        ("b", "*u8"),
        ("scale_a", "*fp8e4nv"),
        ("scale_b", "*fp8e4nv"),
        ("factor", "*fp32"),
        ("c", "*fp32"),
    ),  # fmt: skip
    make=make,
    decode=decode,
    spoil=spoil,
    rounding=Rounding(operand=0, sum=FLOAT32, result=2 * FLOAT32),
    native={
        75: None,
        80: None,
        86: None,
        89: None,
        90: None,
        100: r"UTCOMMA\.(4X|BLOCK16) scaled",
        103: r"UTCOMMA\.(4X|BLOCK16) scaled",
        110: r"UTCOMMA\.(4X|BLOCK16) scaled",
        120: r"OMMA\.SF\.F32\.E2M1\.E2M1\.UE4M3\.4X",
        121: r"OMMA\.SF\.F32\.E2M1\.E2M1\.UE4M3\.4X",
    },  # fmt: skip
    kernel=kernel,
    constants={"FORMAT": "e2m1", "PACK": 2, "GROUP": GROUP},
)
