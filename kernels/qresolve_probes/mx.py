"""What the formats with a scale for each group of K share: the kernel, and scales of one byte.

scale_a   M x K/group      scale_b   N x K/group

C[m, n] = factor x sum over k of  A[m, k] x scale_a[m, k / group] x B[n, k] x scale_b[n, k / group]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve_probes.inputs import codes_with_edges, rows_of, with_byte
from qresolve_probes.layouts import pack_float32
from qresolve_probes.probe import Inputs

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from qresolve_probes.probe import Shape

E8M0_USUAL = tuple(range(122, 130))  # 1/32 to 4
E8M0_EDGES = (107, 147)  # 2^-20 and 2^20


def e8m0_scales(source: random.Random, count: int) -> bytes:
    """e8m0 codes near one, with a very small and a very large one that keep sums finite."""
    return bytes(codes_with_edges(source, count, E8M0_USUAL, E8M0_EDGES))


def scaled(values: Sequence[float], scales: Sequence[float], group: int) -> list[float]:
    """Each value with the scale of its group; rows are whole groups."""
    return [value * scales[position // group] for position, value in enumerate(values)]


def decode_groups(
    inputs: Inputs, element: Callable[[int], float], codes: Callable[[bytes], Sequence[int]],
    scale: Callable[[int], float], group: int,
) -> list[list[Sequence[float]]]:  # fmt: skip
    """A and B by rows, each value with the scale of its group. ``codes`` are the elements of a buffer."""
    sides = []
    for name in "ab":
        values = [element(code) for code in codes(inputs.buffers[name])]
        scales = [scale(code) for code in inputs.buffers[f"scale_{name}"]]
        sides.append(rows_of(scaled(values, scales, group), inputs.shape.k))
    return sides


def spoil_scale(inputs: Inputs, usual: Sequence[int], step: int) -> Inputs:
    """An ordinary scale of B, the largest of those, one exponent ``step`` of its code higher."""
    scales = inputs.buffers["scale_b"]
    place = scales.index(max(usual))
    return with_byte(inputs, "scale_b", place, scales[place] + step)


def make_e8m0(source: random.Random, shape: Shape, codes: Callable[[random.Random, int], bytes], group: int) -> Inputs:
    """A, B, their e8m0 scales, and a factor of one."""
    groups = shape.k // group
    return Inputs(
        shape,
        {
            "a": codes(source, shape.m * shape.k),
            "b": codes(source, shape.n * shape.k),
            "scale_a": e8m0_scales(source, shape.m * groups),
            "scale_b": e8m0_scales(source, shape.n * groups),
            "factor": pack_float32([1.0]),
        },
    )


kernel = None
if triton is not None:

    @triton.jit
    def kernel(
        a, b, scale_a, scale_b, factor, c, M, N, K,
        BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
        FORMAT: tl.constexpr, PACK: tl.constexpr, GROUP: tl.constexpr,
    ):  # fmt: skip
        rows = tl.program_id(0) * BM + tl.arange(0, BM)
        columns = tl.program_id(1) * BN + tl.arange(0, BN)
        inner = tl.arange(0, BK // PACK)
        groups = tl.arange(0, BK // GROUP)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for start in range(0, K, BK):
            here = start // PACK + inner < K // PACK
            scaled_here = start // GROUP + groups < K // GROUP
            x = tl.load(
                a + rows[:, None] * (K // PACK) + start // PACK + inner[None, :],
                mask=(rows < M)[:, None] & here[None, :], other=0.0,
            )  # fmt: skip
            y = tl.load(
                b + columns[None, :] * (K // PACK) + start // PACK + inner[:, None],
                mask=(columns < N)[None, :] & here[:, None], other=0.0,
            )  # fmt: skip
            s = tl.load(
                scale_a + rows[:, None] * (K // GROUP) + start // GROUP + groups[None, :],
                mask=(rows < M)[:, None] & scaled_here[None, :], other=0.0,
            )  # fmt: skip
            t = tl.load(
                scale_b + columns[:, None] * (K // GROUP) + start // GROUP + groups[None, :],
                mask=(columns < N)[:, None] & scaled_here[None, :], other=0.0,
            )  # fmt: skip
            total = tl.dot_scaled(x, s, FORMAT, y, t, FORMAT, total)
        total = total * tl.load(factor)
        tl.store(c + rows[:, None] * N + columns[None, :], total, mask=(rows < M)[:, None] & (columns < N)[None, :])
