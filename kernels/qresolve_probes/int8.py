"""int8 with a float32 scale for each row of A and each row of B.

    s vvvvvvv    two's complement

    C[m, n] = (A x B)[m, n] x scale_a[m] x scale_b[n]; the sum is exact in int32

The spoiled control has one scale of B twice as large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve_probes.inputs import codes_with_edges, rows_of, with_buffer
from qresolve_probes.layouts import pack_float32, unpack_float32
from qresolve_probes.probe import FLOAT32, Decoded, Inputs, Probe, Rounding, Shape

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if TYPE_CHECKING:
    import random

EDGES = (0x80, 0x7F, 0x00, 0xFF, 0x01)  # -128, 127, 0, -1, 1


def make(source: random.Random, shape: Shape) -> Inputs:
    """A, B and their scales."""

    def codes(count: int) -> bytes:
        return bytes(codes_with_edges(source, count, range(256), EDGES))

    def scales(count: int) -> bytes:
        return pack_float32(source.uniform(0.001, 0.01) for _ in range(count))

    return Inputs(
        shape,
        {
            "a": codes(shape.m * shape.k),
            "b": codes(shape.n * shape.k),
            "scale_a": scales(shape.m),
            "scale_b": scales(shape.n),
        },
    )


def decode(inputs: Inputs) -> Decoded:
    """Values with their scales."""
    k = inputs.shape.k
    sides = []
    for name, scale in (("a", "scale_a"), ("b", "scale_b")):
        factors = unpack_float32(inputs.buffers[scale])
        values = [(code - 256 if code > 127 else code) * factors[position // k]
                  for position, code in enumerate(inputs.buffers[name])]  # fmt: skip
        sides.append(rows_of(values, k))
    return Decoded(*sides)


def spoil(inputs: Inputs) -> Inputs:
    """The scale of B's first row one exponent step higher."""
    scales = unpack_float32(inputs.buffers["scale_b"])
    scales[0] *= 2
    return with_buffer(inputs, "scale_b", pack_float32(scales))


kernel = None
if triton is not None:

    @triton.jit
    def kernel(a, b, scale_a, scale_b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
        rows = tl.program_id(0) * BM + tl.arange(0, BM)
        columns = tl.program_id(1) * BN + tl.arange(0, BN)
        inner = tl.arange(0, BK)
        total = tl.zeros((BM, BN), dtype=tl.int32)
        for start in range(0, K, BK):
            here = start + inner < K
            x = tl.load(
                a + rows[:, None] * K + start + inner[None, :], mask=(rows < M)[:, None] & here[None, :], other=0
            )
            y = tl.load(
                b + columns[None, :] * K + start + inner[:, None], mask=(columns < N)[None, :] & here[:, None], other=0
            )
            total += tl.dot(x, y, out_dtype=tl.int32)
        s = tl.load(scale_a + rows, mask=rows < M, other=0.0)
        t = tl.load(scale_b + columns, mask=columns < N, other=0.0)
        result = total.to(tl.float32) * s[:, None] * t[None, :]
        tl.store(c + rows[:, None] * N + columns[None, :], result, mask=(rows < M)[:, None] & (columns < N)[None, :])


PROBE = Probe(
    name="int8",
    parameters=(("a", "*i8"), ("b", "*i8"), ("scale_a", "*fp32"), ("scale_b", "*fp32"), ("c", "*fp32")),
    make=make,
    decode=decode,
    spoil=spoil,
    # Exact until the int32 becomes a float32 and is scaled twice: three roundings of the result.
    rounding=Rounding(operand=0, sum=0, result=4 * FLOAT32),
    native={
        75: r"IMMA\.S8\.S8",
        80: r"IMMA\.S8\.S8",
        86: r"IMMA\.S8\.S8",
        89: r"IMMA\.S8\.S8",
        90: r"IGMMA\.S8\.S8",
        100: "UTCIMMA|IMMA\\.S8\\.S8",
        103: r"IMMA\.S8\.S8",
        110: "UTCIMMA|IMMA\\.S8\\.S8",
        120: r"IMMA\.S8\.S8",
        121: r"IMMA\.S8\.S8",
    },  # fmt: skip
    kernel=kernel,
)
