"""fp8 e4m3 in blocks: a float32 scale for each 128 x 128 block of B and for each 128 of a row of A.

    scale_a   M x K/128           one for a row and 128 of K
    scale_b   N/128 x K/128       one for 128 columns and 128 of K

    C[m, n] = sum over blocks g of  scale_a[m, g] x scale_b[n / 128, g] x (A[m, g] x B[n, g])

The spoiled control has one scale of B twice as large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve_probes.fp8 import NATIVE, codes
from qresolve_probes.inputs import rows_of, with_buffer
from qresolve_probes.layouts import decode_e4m3, pack_float32, unpack_float32
from qresolve_probes.probe import FLOAT32, HOPPER_FP8, Decoded, Inputs, Probe, Rounding, Shape

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if TYPE_CHECKING:
    import random

BLOCK = 128


def make(source: random.Random, shape: Shape) -> Inputs:
    """A, B and their scales, from 2^-6 to 4."""
    groups, blocks = shape.k // BLOCK, -(-shape.n // BLOCK)

    def scales(count: int) -> bytes:
        return pack_float32(source.uniform(1, 2) * 2.0 ** source.randrange(-6, 2) for _ in range(count))

    return Inputs(
        shape,
        {
            "a": codes(source, shape.m * shape.k),
            "b": codes(source, shape.n * shape.k),
            "scale_a": scales(shape.m * groups),
            "scale_b": scales(blocks * groups),
        },
    )


def decode(inputs: Inputs) -> Decoded:
    """Values with their scales."""
    k = inputs.shape.k
    groups = k // BLOCK
    first, second = (unpack_float32(inputs.buffers[name]) for name in ("scale_a", "scale_b"))
    left = [
        decode_e4m3(code) * first[position // k * groups + position % k // BLOCK]
        for position, code in enumerate(inputs.buffers["a"])
    ]
    right = [
        decode_e4m3(code) * second[position // k // BLOCK * groups + position % k // BLOCK]
        for position, code in enumerate(inputs.buffers["b"])
    ]
    return Decoded(rows_of(left, k), rows_of(right, k))


def spoil(inputs: Inputs) -> Inputs:
    """The largest scale of B one exponent step higher."""
    scales = unpack_float32(inputs.buffers["scale_b"])
    place = max(range(len(scales)), key=scales.__getitem__)
    scales[place] *= 2
    return with_buffer(inputs, "scale_b", pack_float32(scales))


kernel = None
if triton is not None:

    @triton.jit
    def kernel(a, b, scale_a, scale_b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
        rows = tl.program_id(0) * BM + tl.arange(0, BM)
        columns = tl.program_id(1) * BN + tl.arange(0, BN)
        inner = tl.arange(0, BK)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        groups = K // BK
        for group in range(0, groups):
            start = group * BK
            x = tl.load(a + rows[:, None] * K + start + inner[None, :], mask=(rows < M)[:, None], other=0.0)
            y = tl.load(b + columns[None, :] * K + start + inner[:, None], mask=(columns < N)[None, :], other=0.0)
            s = tl.load(scale_a + rows * groups + group, mask=rows < M, other=0.0)
            t = tl.load(scale_b + columns // BK * groups + group, mask=columns < N, other=0.0)
            total += tl.dot(x, y) * s[:, None] * t[None, :]
        tl.store(c + rows[:, None] * N + columns[None, :], total, mask=(rows < M)[:, None] & (columns < N)[None, :])


PROBE = Probe(
    name="fp8_block",
    parameters=(("a", "*fp8e4nv"), ("b", "*fp8e4nv"), ("scale_a", "*fp32"), ("scale_b", "*fp32"), ("c", "*fp32")),
    make=make,
    decode=decode,
    spoil=spoil,
    rounding=Rounding(operand=0, sum=HOPPER_FP8, result=3 * FLOAT32),
    native=NATIVE,
    kernel=kernel,
    group=BLOCK,
)
