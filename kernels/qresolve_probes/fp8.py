"""fp8 e4m3 with one float32 scale for A and one for B.

    s eeee fff    bias 7; s1111111 is NaN; largest 448

    C = (A x B) x scale_a x scale_b, scales applied to the sum

The spoiled control has scale_b twice as large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve_probes.inputs import codes_with_edges, rows_of, with_buffer
from qresolve_probes.layouts import decode_e4m3, pack_float32, to_float32, unpack_float32
from qresolve_probes.probe import FLOAT32, HOPPER_FP8, Decoded, Inputs, Probe, Rounding, Shape

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if TYPE_CHECKING:
    import random

# Exponents 4 to 9 (1/8 to 7.5), both signs.
USUAL = tuple(sign | code for sign in (0, 0x80) for code in range(4 << 3, 10 << 3))
EDGES = (0x00, 0x80, 0x01, 0x81, 0x07, 0x08, 0x7E, 0xFE)  # zeros, subnormals, smallest normal, largest of both signs


def codes(source: random.Random, count: int) -> bytes:
    """e4m3 codes without NaN."""
    return bytes(codes_with_edges(source, count, USUAL, EDGES))


def make(source: random.Random, shape: Shape) -> Inputs:
    """A, B and their scales."""
    return Inputs(
        shape,
        {
            "a": codes(source, shape.m * shape.k),
            "b": codes(source, shape.n * shape.k),
            "scale_a": pack_float32([0.0371]),
            "scale_b": pack_float32([1.93]),
        },
    )


def decode(inputs: Inputs) -> Decoded:
    """Values of the codes; the scales are a factor."""
    left, right = ([decode_e4m3(code) for code in inputs.buffers[name]] for name in "ab")
    (first,), (second,) = (unpack_float32(inputs.buffers[name]) for name in ("scale_a", "scale_b"))
    return Decoded(rows_of(left, inputs.shape.k), rows_of(right, inputs.shape.k), first * second)


def spoil(inputs: Inputs) -> Inputs:
    """scale_b one exponent step higher."""
    (scale,) = unpack_float32(inputs.buffers["scale_b"])
    return with_buffer(inputs, "scale_b", pack_float32([to_float32(2 * scale)]))


kernel = None
if triton is not None:

    @triton.jit
    def kernel(a, b, scale_a, scale_b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
        rows = tl.program_id(0) * BM + tl.arange(0, BM)
        columns = tl.program_id(1) * BN + tl.arange(0, BN)
        inner = tl.arange(0, BK)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for start in range(0, K, BK):
            here = start + inner < K
            x = tl.load(
                a + rows[:, None] * K + start + inner[None, :], mask=(rows < M)[:, None] & here[None, :], other=0.0
            )
            y = tl.load(
                b + columns[None, :] * K + start + inner[:, None],
                mask=(columns < N)[None, :] & here[:, None],
                other=0.0,
            )
            total = tl.dot(x, y, total)
        total = total * (tl.load(scale_a) * tl.load(scale_b))
        tl.store(c + rows[:, None] * N + columns[None, :], total, mask=(rows < M)[:, None] & (columns < N)[None, :])


NATIVE = {
    75: None, 80: None, 86: None, 89: r"QMMA\.F32\.E4M3\.E4M3", 90: r"QGMMA\.F32\.E4M3\.E4M3", 100: "UTCQMMA",
    103: "UTCQMMA", 110: "UTCQMMA", 120: r"QMMA\.F32\.E4M3\.E4M3", 121: r"QMMA\.F32\.E4M3\.E4M3",
}  # fmt: skip

PROBE = Probe(
    name="fp8",
    parameters=(("a", "*fp8e4nv"), ("b", "*fp8e4nv"), ("scale_a", "*fp32"), ("scale_b", "*fp32"), ("c", "*fp32")),
    make=make,
    decode=decode,
    spoil=spoil,
    rounding=Rounding(operand=0, sum=HOPPER_FP8, result=3 * FLOAT32),
    native=NATIVE,
    kernel=kernel,
)
