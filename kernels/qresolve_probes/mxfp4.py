"""MXFP4: e2m1 elements, two a byte, an e8m0 scale for every 32 of K.

    byte      hhhh llll     even position of K in llll
    element   s ee f        0, 0.5, 1, 1.5, 2, 3, 4, 6
    scale     eeeeeeee      2^(e - 127)

The spoiled control has one scale of B one exponent step too high.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve_probes.inputs import codes_with_edges
from qresolve_probes.layouts import decode_e2m1, decode_e8m0, pack_nibbles, unpack_nibbles
from qresolve_probes.mx import E8M0_USUAL, decode_groups, kernel, make_e8m0, spoil_scale
from qresolve_probes.probe import FLOAT32, Decoded, Probe, Rounding

if TYPE_CHECKING:
    import random

    from qresolve_probes.probe import Inputs, Shape

GROUP = 32
EVERY = tuple(range(16))


def codes(source: random.Random, count: int) -> bytes:
    """e2m1 codes, each of the sixteen among them."""
    return pack_nibbles(codes_with_edges(source, count, EVERY, EVERY))


def make(source: random.Random, shape: Shape) -> Inputs:
    """A, B and their scales."""
    return make_e8m0(source, shape, codes, GROUP)


def decode(inputs: Inputs) -> Decoded:
    """Values with their scales."""
    return Decoded(*decode_groups(inputs, decode_e2m1, unpack_nibbles, decode_e8m0, GROUP))


def spoil(inputs: Inputs) -> Inputs:
    """An ordinary scale of B, the largest of those, one exponent step higher."""
    return spoil_scale(inputs, E8M0_USUAL, 1)


PROBE = Probe(
    name="mxfp4",
    parameters=(
        ("a", "*u8"),
        ("b", "*u8"),
        ("scale_a", "*u8"),
        ("scale_b", "*u8"),
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
        100: "UTCOMMA scaled",
        103: "UTCOMMA scaled",
        110: "UTCOMMA scaled",
        120: r"OMMA\.SF\.F32\.E2M1\.E2M1\.E8",
        121: r"OMMA\.SF\.F32\.E2M1\.E2M1\.E8",
    },  # fmt: skip
    kernel=kernel,
    group=GROUP,
    constants={"FORMAT": "e2m1", "PACK": 2, "GROUP": GROUP},
)
