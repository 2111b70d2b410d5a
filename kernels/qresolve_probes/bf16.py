"""bf16, the control: 16-bit operands, no scales. What every other format is timed against.

    s eeeeeeee fffffff    bias 127

The spoiled control has the exponent of one element of B one step too high.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve_probes.inputs import bf16_values, rows_of, with_word
from qresolve_probes.layouts import decode_bf16, encode_bf16, unpack_uint16
from qresolve_probes.probe import FLOAT32, Decoded, Inputs, Probe, Rounding, Shape

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if TYPE_CHECKING:
    import random


def make(source: random.Random, shape: Shape) -> Inputs:
    """A and B."""
    buffers = {"a": bf16_values(source, shape.m * shape.k), "b": bf16_values(source, shape.n * shape.k)}
    return Inputs(shape, buffers)


def decode(inputs: Inputs) -> Decoded:
    """Their values."""
    left, right = ([decode_bf16(code) for code in unpack_uint16(inputs.buffers[name])] for name in "ab")
    return Decoded(rows_of(left, inputs.shape.k), rows_of(right, inputs.shape.k))


def spoil(inputs: Inputs) -> Inputs:
    """The largest element of B, whose share of a sum stands out, twice as large."""
    words = unpack_uint16(inputs.buffers["b"])
    place = max(range(len(words)), key=lambda position: abs(decode_bf16(words[position])))
    return with_word(inputs, "b", place, encode_bf16(2 * decode_bf16(words[place])))


kernel = None
if triton is not None:

    @triton.jit
    def kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
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
        tl.store(c + rows[:, None] * N + columns[None, :], total, mask=(rows < M)[:, None] & (columns < N)[None, :])


PROBE = Probe(
    name="bf16",
    parameters=(("a", "*bf16"), ("b", "*bf16"), ("c", "*fp32")),
    make=make,
    decode=decode,
    spoil=spoil,
    rounding=Rounding(operand=0, sum=FLOAT32, result=FLOAT32),
    native={
        80: r"HMMA\..*BF16",
        86: r"HMMA\..*BF16",
        89: r"HMMA\..*BF16",
        90: r"HGMMA\..*BF16",
        100: "UTCHMMA",
        103: "UTCHMMA",
        110: "UTCHMMA",
        120: r"HMMA\..*BF16",
        121: r"HMMA\..*BF16",
    },  # fmt: skip
    kernel=kernel,
)
