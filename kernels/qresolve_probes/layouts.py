"""Number formats by their bits, in float64. Nothing here knows of a compiler or a GPU.

    bf16   s eeeeeeee fffffff          bias 127, as the upper half of a float32
    e4m3   s eeee fff                  bias 7; no infinities; s1111111 is NaN; largest 448; subnormals in steps of 2^-9
    e8m0   eeeeeeee                    2^(e - 127); 255 is NaN
    e2m1   s ee f                      bias 1; 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; no NaN, no infinity

Two e2m1 codes share a byte: the even position in K has the lower four bits. Sources: OCP Microscaling Formats (MX)
v1.0, sections 5.3 and 5.4; OCP 8-bit Floating Point Specification (OFP8) v1.0, section 5.1.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence  # noqa: TC003 - this file is read by Python 3.10 as it stands

NAN = math.nan


def decode_e2m1(code: int) -> float:
    """The value of a four-bit code."""
    sign = -1.0 if code & 0b1000 else 1.0
    exponent, fraction = (code >> 1) & 0b11, code & 1
    if exponent == 0:
        return sign * fraction * 0.5
    return sign * (1 + fraction / 2) * 2.0 ** (exponent - 1)


def decode_e4m3(code: int) -> float:
    """The value of a byte; NaN where all of exponent and fraction are ones."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent, fraction = (code >> 3) & 0b1111, code & 0b111
    if exponent == 0b1111 and fraction == 0b111:
        return NAN
    if exponent == 0:
        return sign * fraction * 2.0**-9
    return sign * (1 + fraction / 8) * 2.0 ** (exponent - 7)


def decode_e8m0(code: int) -> float:
    """The power of two that a byte stands for; 255 is NaN."""
    return NAN if code == 255 else 2.0 ** (code - 127)


def decode_bf16(code: int) -> float:
    """The value of two bytes."""
    return float(struct.unpack("<f", struct.pack("<I", code << 16))[0])


def encode_bf16(value: float) -> int:
    """The nearest bf16, ties to even; ``value`` is finite and in its range."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return int((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)


def to_float32(value: float) -> float:
    """``value`` rounded to float32."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def pack_float32(values: Iterable[float]) -> bytes:
    """Values as little-endian float32."""
    found = list(values)
    return struct.pack(f"<{len(found)}f", *found)


def unpack_float32(data: bytes) -> list[float]:
    """The reverse of :func:`pack_float32`."""
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def pack_uint16(values: Iterable[int]) -> bytes:
    """Values as little-endian 16-bit words."""
    found = list(values)
    return struct.pack(f"<{len(found)}H", *found)


def unpack_uint16(data: bytes) -> tuple[int, ...]:
    """The reverse of :func:`pack_uint16`."""
    return struct.unpack(f"<{len(data) // 2}H", data)


def pack_nibbles(codes: Sequence[int]) -> bytes:
    """Four-bit codes, two a byte, the first in the lower half."""
    return bytes(low | high << 4 for low, high in zip(codes[::2], codes[1::2]))


def unpack_nibbles(data: bytes) -> list[int]:
    """The reverse of :func:`pack_nibbles`."""
    return [code for byte in data for code in (byte & 0xF, byte >> 4)]
