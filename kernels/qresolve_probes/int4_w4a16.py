"""int4 weights, 16-bit activations (W4A16): codes of four bits with a bias of eight, a bf16 scale for every 128 of K.

    byte     hhhh llll    even position of K in llll
    weight   (code - 8) x scale[n, k / 128]

    C[m, n] = sum over k of  A[m, k] x weight[n, k]; a tensor core multiplies bf16 with bf16

That is what the format asks for: its native way is a 16-bit product. The spoiled control has one scale twice as large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve_probes.bf16 import PROBE as BF16
from qresolve_probes.inputs import bf16_values, codes_with_edges, rows_of, with_word
from qresolve_probes.layouts import decode_bf16, encode_bf16, pack_nibbles, pack_uint16, unpack_nibbles, unpack_uint16
from qresolve_probes.mx import scaled
from qresolve_probes.probe import FLOAT32, Decoded, Inputs, Probe, Rounding, Shape

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if TYPE_CHECKING:
    import random

GROUP = 128
EVERY = tuple(range(16))


def make(source: random.Random, shape: Shape) -> Inputs:
    """A in bf16, B in codes, and scales of B."""
    scales = [encode_bf16(source.uniform(0.05, 0.5)) for _ in range(shape.n * shape.k // GROUP)]
    return Inputs(
        shape,
        {
            "a": bf16_values(source, shape.m * shape.k),
            "b": pack_nibbles(codes_with_edges(source, shape.n * shape.k, EVERY, EVERY)),
            "scale_b": pack_uint16(scales),
        },
    )


def decode(inputs: Inputs) -> Decoded:
    """Values of A; weights with their scales."""
    left = [decode_bf16(code) for code in unpack_uint16(inputs.buffers["a"])]
    codes = [code - 8 for code in unpack_nibbles(inputs.buffers["b"])]
    scales = [decode_bf16(code) for code in unpack_uint16(inputs.buffers["scale_b"])]
    k = inputs.shape.k
    return Decoded(rows_of(left, k), rows_of(scaled(codes, scales, GROUP), k))


def spoil(inputs: Inputs) -> Inputs:
    """The largest scale one exponent step higher."""
    scales = unpack_uint16(inputs.buffers["scale_b"])
    place = max(range(len(scales)), key=scales.__getitem__)
    return with_word(inputs, "scale_b", place, encode_bf16(2 * decode_bf16(scales[place])))


kernel = None
if triton is not None:

    @triton.jit
    def kernel(
        a, b, scale_b, c, M, N, K,
        BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    ):  # fmt: skip
        rows = tl.program_id(0) * BM + tl.arange(0, BM)
        columns = tl.program_id(1) * BN + tl.arange(0, BN)
        inner = tl.arange(0, BK)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for start in range(0, K, BK):
            at = start + inner
            x = tl.load(a + rows[:, None] * K + at[None, :], mask=(rows < M)[:, None] & (at < K)[None, :], other=0.0)
            there = (columns < N)[None, :] & (at < K)[:, None]
            byte = tl.load(b + columns[None, :] * (K // 2) + (at // 2)[:, None], mask=there, other=0)
            code = (byte.to(tl.int32) >> ((at % 2) * 4)[:, None]) & 0xF
            s = tl.load(scale_b + columns[None, :] * (K // GROUP) + (at // GROUP)[:, None], mask=there, other=0.0)
            y = ((code - 8).to(tl.float32) * s.to(tl.float32)).to(tl.bfloat16)
            total = tl.dot(x, y, total)
        tl.store(c + rows[:, None] * N + columns[None, :], total, mask=(rows < M)[:, None] & (columns < N)[None, :])


PROBE = Probe(
    name="int4_w4a16",
    parameters=(("a", "*bf16"), ("b", "*u8"), ("scale_b", "*bf16"), ("c", "*fp32")),
    make=make,
    decode=decode,
    spoil=spoil,
    # One operand is rounded to bf16: half a step of 2^-8.
    rounding=Rounding(operand=2.0**-9, sum=FLOAT32, result=FLOAT32),
    native=BF16.native,
    kernel=kernel,
    group=GROUP,
    wants="weight-only",
    constants={"GROUP": GROUP},
)
