"""Making inputs: codes of a format at random, with its edge values among them, and buffers with one value changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve_probes.layouts import encode_bf16, pack_uint16, unpack_uint16
from qresolve_probes.probe import Inputs

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence


def codes_with_edges(source: random.Random, count: int, usual: Sequence[int], edges: Sequence[int]) -> list[int]:
    """``count`` codes, most of them ``usual``; each of the ``edges`` stands at a place of its own, spread evenly."""
    found = [source.choice(usual) for _ in range(count)]
    step = max(1, count // (len(edges) + 1))
    for position, code in enumerate(edges):
        found[(position + 1) * step % count] = code
    return found


def bf16_values(source: random.Random, count: int) -> bytes:
    """Values near one with both signs, zeros of both signs, and small and large ones that keep sums finite."""
    found = [encode_bf16(source.uniform(-2, 2)) for _ in range(count)]
    edges = (0x0000, 0x8000, encode_bf16(2.0**-20), encode_bf16(-64.0), encode_bf16(64.0), 0x3F81, 0x0001, 0x8001)
    step = max(1, count // (len(edges) + 1))
    for position, code in enumerate(edges):
        found[(position + 1) * step % count] = code
    return pack_uint16(found)


def with_buffer(inputs: Inputs, name: str, data: bytes) -> Inputs:
    """The same inputs with another buffer."""
    return Inputs(inputs.shape, {**inputs.buffers, name: data})


def with_byte(inputs: Inputs, name: str, position: int, value: int) -> Inputs:
    """The same inputs with one byte of a buffer changed."""
    data = bytearray(inputs.buffers[name])
    data[position] = value
    return with_buffer(inputs, name, bytes(data))


def with_word(inputs: Inputs, name: str, position: int, value: int) -> Inputs:
    """The same inputs with one 16-bit word of a buffer changed."""
    words = list(unpack_uint16(inputs.buffers[name]))
    words[position] = value
    return with_buffer(inputs, name, pack_uint16(words))


def rows_of(values: Sequence[float], width: int) -> list[Sequence[float]]:
    """A flat buffer by rows."""
    return [values[start : start + width] for start in range(0, len(values), width)]
