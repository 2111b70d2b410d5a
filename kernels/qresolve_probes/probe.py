"""The protocol: what a probe of one format is, and how its numbers are judged.

A probe multiplies A (M x K, by rows) with B (N x K, by rows: K is contiguous in both, as tensor cores want it) and
gives C (M x N, float32, by rows). Its inputs are bytes as they lie in memory. The reference decodes those bytes by the
layouts of ``layouts.py`` and sums in float64; the kernel is Triton's and shares no decoder with it.

Correct numbers prove nothing of how they were computed: emulated paths are more exact than native ones. So a probe's
numbers are paired with the instructions of its machine code, and each probe has a spoiled control (one scale one
exponent step off) that must come out wrong under the same tolerance; a comparison that cannot fail proves nothing.
"""

from __future__ import annotations

import importlib
import math
import random
from dataclasses import dataclass, field
from operator import mul
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

FORMATS = ("bf16", "fp8", "fp8_block", "int8", "mxfp8", "mxfp4", "nvfp4", "int4_w4a16", "nf4")
"""The files, the control first."""

TILE = (128, 128, 128)
"""Rows, columns and depth of a tile: smaller ones hide native paths on sm90 and sm100."""

SEED = 20261201


@dataclass(frozen=True)
class Shape:
    """M, N and K. The odd shape is no multiple of a tile; K is whole groups of every format."""

    m: int
    n: int
    k: int


ODD = Shape(200, 136, 384)
"""No multiple of a tile but in K, which a probe makes a group longer where its groups are shorter than a tile."""
TIMED = Shape(2048, 2048, 2048)


@dataclass(frozen=True)
class Inputs:
    """Buffers by name, as they lie in memory."""

    shape: Shape
    buffers: Mapping[str, bytes]


@dataclass(frozen=True)
class Decoded:
    """What the buffers mean: rows of A and of B in float64, and a factor on every element of C."""

    left: Sequence[Sequence[float]]
    right: Sequence[Sequence[float]]
    factor: float = 1.0


@dataclass(frozen=True)
class Rounding:
    """Where a kernel may round, relative to what it rounds.

    ``operand``: each dequantized operand (0 where the tensor core takes it as it is); ``sum``: each partial sum,
    against the sum of magnitudes; ``result``: the scaled result. The bound of an element of C is

        (2 x operand + K x sum) x sum|a b|  +  result x |c|

    to first order: K additions, each of which rounds a partial sum that is at most sum|a b| (Higham, Accuracy and
    Stability of Numerical Algorithms, 2nd ed., section 3.1); a product of two operands that were rounded once each.
    """

    operand: float
    sum: float
    result: float

    def bound(self, magnitude: float, value: float, k: int) -> float:
        """The largest error that rounding explains."""
        return (2 * self.operand + k * self.sum) * magnitude + self.result * abs(value)


FLOAT32 = 2.0**-23
"""Spacing of float32 at 1: tensor cores cut rather than round, so a step is one of these."""
HOPPER_FP8 = 2.0**-13 / 32
"""A share of each term of an FP8 sum. sm90 cuts the 32 products of a step, and the sum so far, below the largest of
them to some 13 bits (DeepSeek-V3 technical report, 3.3.2; MMA-Sim, arXiv:2511.10909). This is no worst case, in which
every cut has the same sign: it is what a step's one cut comes to, of which an H200 used 0.42."""


@dataclass(frozen=True)
class Probe:
    """One format. ``parameters`` are the kernel's pointers in order, ``c`` the last; then come M, N and K.

    ``wants``: ``native``, or ``weight-only`` where a 16-bit product is what the format asks for. ``native`` says for
    each arch which instruction is native there (a regular expression for the whole name), None: the arch has none.
    ``kernel`` is Triton's function, None where there is no Triton. ``group`` is how many of K share a scale, at least
    the 16 that a load wants.
    """

    name: str
    parameters: tuple[tuple[str, str], ...]
    make: Callable[[random.Random, Shape], Inputs]
    decode: Callable[[Inputs], Decoded]
    spoil: Callable[[Inputs], Inputs]
    rounding: Rounding
    native: Mapping[int, str | None]
    kernel: object
    wants: str = "native"
    group: int = 16
    constants: Mapping[str, object] = field(default_factory=dict)

    @property
    def odd(self) -> Shape:
        """A shape that ends in the middle of a tile wherever the format lets it."""
        return Shape(ODD.m, ODD.n, ODD.k + (self.group if self.group < TILE[2] else 0))

    def inputs(self, shape: Shape | None = None) -> Inputs:
        """The inputs of a shape, the same each time."""
        return self.make(random.Random(SEED), shape or self.odd)  # noqa: S311 - numbers for a product, not secrets


@dataclass(frozen=True)
class Judged:
    """What a result is beside the reference. ``worst`` is the largest error over its bound; above 1 numbers differ."""

    agree: bool
    worst: float
    error: float
    bound: float
    outside: int


@dataclass(frozen=True)
class Reference:
    """C in float64 and, for each element, sum|a b| times the factor."""

    values: Sequence[float]
    magnitudes: Sequence[float]
    k: int


def reference(probe: Probe, inputs: Inputs) -> Reference:
    """The product in float64 of what the buffers mean."""
    decoded = probe.decode(inputs)
    sizes = [[abs(value) for value in row] for row in decoded.right]
    values: list[float] = []
    magnitudes: list[float] = []
    for row in decoded.left:
        size = [abs(value) for value in row]
        values += [math.fsum(map(mul, row, column)) * decoded.factor for column in decoded.right]
        magnitudes += [sum(map(mul, size, column)) * abs(decoded.factor) for column in sizes]
    return Reference(values, magnitudes, inputs.shape.k)


def judge(probe: Probe, expected: Reference, result: Sequence[float]) -> Judged:
    """Hold a result against the reference; what is not finite differs."""
    worst, error, bound, outside = 0.0, 0.0, 0.0, 0
    for value, magnitude, seen in zip(expected.values, expected.magnitudes, result):
        limit = probe.rounding.bound(magnitude, value, expected.k)
        off = abs(seen - value)
        if not off <= limit:
            outside += 1
        share = math.inf if not math.isfinite(off) else off / limit if limit else (0.0 if off == 0 else math.inf)
        if share > worst:
            worst, error, bound = share, off, limit
    if len(result) != len(expected.values):
        return Judged(agree=False, worst=math.inf, error=math.inf, bound=0.0, outside=len(expected.values))
    return Judged(agree=outside == 0, worst=worst, error=error, bound=bound, outside=outside)


def load_probe(name: str) -> Probe:
    """The probe of a format.

    Raises:
        KeyError: there is none of that name.
    """
    if name not in FORMATS:
        raise KeyError(name)
    found: Probe = importlib.import_module(f"{__package__}.{name}").PROBE
    return found
