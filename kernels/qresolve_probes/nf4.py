"""NF4 weights, 16-bit activations: sixteen levels of a normal distribution, a float32 largest value for every 64 of K.

    byte     hhhh llll     even position of K in hhhh, as bitsandbytes packs them
    weight   level[code] x absmax[n, k / 64]

The reference takes the levels from their definition: quantiles of the normal distribution, eight positive, seven
negative and zero, between 1 - (1/32 + 1/30) / 2 and one half, over the largest (Dettmers et al., QLoRA, 2023, section 3
and appendix E). The kernel has them as numbers. A tensor core multiplies bf16 with bf16, which is what the format asks
for. The spoiled control has one largest value twice as large.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING

from qresolve_probes.bf16 import PROBE as BF16
from qresolve_probes.inputs import bf16_values, codes_with_edges, rows_of, with_buffer
from qresolve_probes.layouts import decode_bf16, pack_float32, unpack_float32, unpack_uint16
from qresolve_probes.mx import scaled
from qresolve_probes.probe import FLOAT32, Decoded, Inputs, Probe, Rounding, Shape

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if TYPE_CHECKING:
    import random

GROUP = 64
EVERY = tuple(range(16))


def levels() -> tuple[float, ...]:
    """The sixteen levels in the order of their codes: rising, zero in the middle."""
    quantile = NormalDist().inv_cdf
    offset = 0.5 * ((1 - 1 / 30) + (1 - 1 / 32))

    def side(count: int) -> list[float]:
        return [quantile(offset + (0.5 - offset) * step / count) for step in range(count)]

    values = sorted([*side(8), 0.0, *(-value for value in side(7))])
    return tuple(value / values[-1] for value in values)


def make(source: random.Random, shape: Shape) -> Inputs:
    """A in bf16, B in codes, and largest values of B."""
    codes = codes_with_edges(source, shape.n * shape.k, EVERY, EVERY)
    return Inputs(
        shape,
        {
            "a": bf16_values(source, shape.m * shape.k),
            "b": bytes(high << 4 | low for high, low in zip(codes[::2], codes[1::2])),
            "absmax": pack_float32(source.uniform(0.1, 4) for _ in range(shape.n * shape.k // GROUP)),
        },
    )


def decode(inputs: Inputs) -> Decoded:
    """Values of A; weights with their largest values."""
    table = levels()
    left = [decode_bf16(code) for code in unpack_uint16(inputs.buffers["a"])]
    weights = [table[code] for byte in inputs.buffers["b"] for code in (byte >> 4, byte & 0xF)]
    k = inputs.shape.k
    largest = unpack_float32(inputs.buffers["absmax"])
    return Decoded(rows_of(left, k), rows_of(scaled(weights, largest, GROUP), k))


def spoil(inputs: Inputs) -> Inputs:
    """The largest of the largest values one exponent step higher."""
    largest = unpack_float32(inputs.buffers["absmax"])
    place = max(range(len(largest)), key=largest.__getitem__)
    largest[place] *= 2
    return with_buffer(inputs, "absmax", pack_float32(largest))


kernel = None
if triton is not None:

    @triton.jit
    def level(code):
        size = tl.where(code == 0, -1.0, 0.0)
        size = tl.where(code == 1, -0.6961928009986877, size)
        size = tl.where(code == 2, -0.5250730514526367, size)
        size = tl.where(code == 3, -0.39491748809814453, size)
        size = tl.where(code == 4, -0.28444138169288635, size)
        size = tl.where(code == 5, -0.18477343022823334, size)
        size = tl.where(code == 6, -0.09105003625154495, size)
        size = tl.where(code == 8, 0.07958029955625534, size)
        size = tl.where(code == 9, 0.16093020141124725, size)
        size = tl.where(code == 10, 0.24611230194568634, size)
        size = tl.where(code == 11, 0.33791524171829224, size)
        size = tl.where(code == 12, 0.44070982933044434, size)
        size = tl.where(code == 13, 0.5626170039176941, size)
        size = tl.where(code == 14, 0.7229568362236023, size)
        return tl.where(code == 15, 1.0, size)

    @triton.jit
    def kernel(
        a, b, absmax, c, M, N, K,
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
            code = (byte.to(tl.int32) >> (4 - (at % 2) * 4)[:, None]) & 0xF
            s = tl.load(absmax + columns[None, :] * (K // GROUP) + (at // GROUP)[:, None], mask=there, other=0.0)
            y = (level(code) * s).to(tl.bfloat16)
            total = tl.dot(x, y, total)
        tl.store(c + rows[:, None] * N + columns[None, :], total, mask=(rows < M)[:, None] & (columns < N)[None, :])


PROBE = Probe(
    name="nf4",
    parameters=(("a", "*bf16"), ("b", "*u8"), ("absmax", "*fp32"), ("c", "*fp32")),
    make=make,
    decode=decode,
    spoil=spoil,
    # One operand is rounded to bf16: half a step of 2^-8; the kernel's levels are float32.
    rounding=Rounding(operand=2.0**-9 + FLOAT32, sum=FLOAT32, result=FLOAT32),
    native=BF16.native,
    kernel=kernel,
    group=GROUP,
    wants="weight-only",
    constants={"GROUP": GROUP},
)
