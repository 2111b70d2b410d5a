"""MXFP8: e4m3 elements, an e8m0 scale for every 32 of K.

    element   s eeee fff    bias 7      scale   eeeeeeee    2^(e - 127)

The spoiled control has one scale of B one exponent step too high.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve_probes.fp8 import codes
from qresolve_probes.layouts import decode_e4m3, decode_e8m0
from qresolve_probes.mx import E8M0_USUAL, decode_groups, kernel, make_e8m0, spoil_scale
from qresolve_probes.probe import FLOAT32, HOPPER_FP8, Decoded, Probe, Rounding

if TYPE_CHECKING:
    import random

    from qresolve_probes.probe import Inputs, Shape

GROUP = 32


def make(source: random.Random, shape: Shape) -> Inputs:
    """A, B and their scales."""
    return make_e8m0(source, shape, codes, GROUP)


def decode(inputs: Inputs) -> Decoded:
    """Values with their scales."""
    return Decoded(*decode_groups(inputs, decode_e4m3, list, decode_e8m0, GROUP))


def spoil(inputs: Inputs) -> Inputs:
    """An ordinary scale of B, the largest of those, one exponent step higher."""
    return spoil_scale(inputs, E8M0_USUAL, 1)


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
