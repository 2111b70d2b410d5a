"""The probes' references: decoders against what the formats' definitions say, bounds that explain and refute."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import pytest

from qresolve.machine_code.instructions import read_instructions
from tests.unit.kernels import probes_support  # noqa: F401 - finds the package
from tests.unit.kernels.probes_support import KERNELS

layouts: Any = __import__("qresolve_probes.layouts", fromlist=["x"])
probe: Any = __import__("qresolve_probes.probe", fromlist=["x"])
nf4: Any = __import__("qresolve_probes.nf4", fromlist=["x"])

SMALL = probe.Shape(40, 24, 384)


def exact_float(code: int, *, exponent_bits: int, fraction_bits: int, bias: int) -> Fraction:
    """The value of a code by the definition of a binary float, in exact numbers."""
    fraction = code & ((1 << fraction_bits) - 1)
    exponent = (code >> fraction_bits) & ((1 << exponent_bits) - 1)
    sign = -1 if code >> (fraction_bits + exponent_bits) & 1 else 1
    if exponent == 0:
        return sign * Fraction(fraction, 1 << fraction_bits) * Fraction(2) ** (1 - bias)
    return sign * (1 + Fraction(fraction, 1 << fraction_bits)) * Fraction(2) ** (exponent - bias)


def test_all_sixteen_e2m1_codes() -> None:
    written = [0, 0.5, 1, 1.5, 2, 3, 4, 6]  # OCP MX v1.0, table 5
    assert [layouts.decode_e2m1(code) for code in range(16)] == [*written, *(-value for value in written)]
    assert math.copysign(1, layouts.decode_e2m1(8)) == -1


def test_all_e4m3_codes() -> None:
    for code in range(256):
        value = layouts.decode_e4m3(code)
        if code & 0x7F == 0x7F:
            assert math.isnan(value)
            continue
        assert Fraction(value) == exact_float(code, exponent_bits=4, fraction_bits=3, bias=7)
    assert layouts.decode_e4m3(0x7E) == 448


def test_all_e8m0_codes() -> None:
    for code in range(255):
        assert Fraction(layouts.decode_e8m0(code)) == Fraction(2) ** (code - 127)
    assert math.isnan(layouts.decode_e8m0(255))


def test_bf16_rounds_to_nearest_even_and_back() -> None:
    for code in (*range(0x3F00, 0x4100), 0, 0x8000, 0x0001, 0x7F7F):
        assert layouts.encode_bf16(layouts.decode_bf16(code)) == code
    below, above = layouts.decode_bf16(0x3F80), layouts.decode_bf16(0x3F81)
    assert layouts.encode_bf16((below + above) / 2) == 0x3F80  # a tie goes to the even one
    assert layouts.encode_bf16((below + above) / 2 + 1e-6) == 0x3F81


def test_nf4_levels_are_those_of_the_kernel() -> None:
    text = (KERNELS / "qresolve_probes" / "nf4.py").read_text(encoding="utf-8")
    levels = nf4.levels()
    assert levels[0] == -1
    assert levels[7] == 0
    assert levels[15] == 1
    assert list(levels) == sorted(levels)
    for code, level in enumerate(levels):
        if code == 7:
            continue
        (written,) = [
            float(line.partition(",")[2].partition(",")[0]) for line in text.splitlines() if f"code == {code}," in line
        ]
        assert written == pytest.approx(level, abs=2e-7)


def test_nibbles_lie_low_half_first() -> None:
    assert layouts.pack_nibbles([1, 2, 3, 4]) == b"\x21\x43"
    assert layouts.unpack_nibbles(b"\x21\x43") == [1, 2, 3, 4]


@pytest.mark.parametrize("name", probe.FORMATS)
def test_inputs_are_the_same_each_time_and_odd(name: str) -> None:
    found = probe.load_probe(name)
    assert found.inputs(SMALL) == found.inputs(SMALL)
    shape = found.odd
    assert shape.m % probe.TILE[0]
    assert shape.n % probe.TILE[1]
    assert shape.k % found.group == 0
    assert (shape.k % probe.TILE[2] != 0) is (found.group < probe.TILE[2])
    decoded = found.decode(found.inputs(SMALL))
    for rows, count in ((decoded.left, SMALL.m), (decoded.right, SMALL.n)):
        assert len(rows) == count
        assert {len(row) for row in rows} == {SMALL.k}
        assert all(math.isfinite(value) for row in rows for value in row)


def element_codes(name: str) -> list[int]:
    inputs = probe.load_probe(name).inputs(SMALL)
    data = inputs.buffers["b"]
    return layouts.unpack_nibbles(data) if name in ("mxfp4", "nvfp4", "int4_w4a16", "nf4") else list(data)


def test_edge_values_of_the_formats_are_among_the_inputs() -> None:
    for name in ("mxfp4", "nvfp4", "int4_w4a16", "nf4"):
        assert set(element_codes(name)) == set(range(16)), name
    for name in ("fp8", "fp8_block", "mxfp8"):
        codes = set(element_codes(name))
        assert {0x00, 0x80, 0x01, 0x7E, 0xFE} <= codes, name
        assert not {0x7F, 0xFF} & codes, name
    assert {0x80, 0x7F, 0x00} <= set(element_codes("int8"))


def float32_product(found: Any, inputs: Any) -> list[float]:
    """The product as an emulating kernel has it: exact operands, sums in float32."""
    decoded = found.decode(inputs)
    result = []
    for row in decoded.left:
        for column in decoded.right:
            total = 0.0
            for left, right in zip(row, column, strict=True):
                total = layouts.to_float32(total + layouts.to_float32(left * right))
            result.append(layouts.to_float32(total * decoded.factor))
    return result


@pytest.mark.parametrize("name", [name for name in probe.FORMATS if name != "int8"])
def test_rounding_in_float32_is_inside_the_bound(name: str) -> None:
    found = probe.load_probe(name)
    shape = probe.Shape(9, 7, 384)
    inputs = found.inputs(shape)
    judged = probe.judge(found, probe.reference(found, inputs), float32_product(found, inputs))
    assert judged.agree, judged


@pytest.mark.parametrize("name", probe.FORMATS)
def test_one_scale_an_exponent_step_off_is_refuted(name: str) -> None:
    found = probe.load_probe(name)
    inputs = found.inputs(SMALL)
    expected = probe.reference(found, inputs)
    assert probe.judge(found, expected, expected.values).agree
    spoiled = probe.reference(found, found.spoil(inputs))
    judged = probe.judge(found, expected, spoiled.values)
    assert not judged.agree
    assert judged.worst > 10
    changed = sum(
        left != right
        for name_ in inputs.buffers
        for left, right in zip(inputs.buffers[name_], found.spoil(inputs).buffers[name_], strict=True)
    )
    assert 1 <= changed <= 4  # one value, of at most four bytes


@pytest.mark.parametrize("result", [math.nan, math.inf])
def test_what_is_no_number_differs(result: float) -> None:
    found = probe.load_probe("bf16")
    expected = probe.reference(found, found.inputs(probe.Shape(2, 2, 384)))
    judged = probe.judge(found, expected, [result, *expected.values[1:]])
    assert not judged.agree
    assert judged.outside == 1


def test_a_result_of_another_length_differs() -> None:
    found = probe.load_probe("bf16")
    expected = probe.reference(found, found.inputs(probe.Shape(2, 2, 384)))
    assert not probe.judge(found, expected, expected.values[:3]).agree


PRODUCTS = {
    "bf16": "16-bit", "fp8": "fp8", "fp8_block": "fp8", "int8": "int8", "mxfp8": "mxfp8", "mxfp4": "mxfp4",
    "nvfp4": "nvfp4", "int4_w4a16": "16-bit", "nf4": "16-bit",
}  # fmt: skip
EXAMPLES = {
    ("nvfp4", 120): "OMMA.SF.F32.E2M1.E2M1.UE4M3.4X", ("nvfp4", 100): "UTCOMMA.4X scaled",
    ("fp8", 90): "QGMMA.F32.E4M3.E4M3",
    ("mxfp4", 121): "OMMA.SF.F32.E2M1.E2M1.E8", ("mxfp8", 120): "QMMA.SF.F32.E4M3.E4M3.E8", ("int8", 90): "IGMMA.S8.S8",
    ("bf16", 90): "HGMMA.F32.BF16", ("fp8", 120): "QMMA.F32.E4M3.E4M3", ("nf4", 120): "HMMA.F32.BF16",
}  # fmt: skip


@pytest.mark.parametrize(("name", "sm"), EXAMPLES)
def test_what_a_probe_calls_native_is_what_the_records_call_native(name: str, sm: int) -> None:
    found = probe.load_probe(name)
    product = read_instructions().named(PRODUCTS[name])
    assert product is not None
    assert re.fullmatch(found.native[sm], EXAMPLES[name, sm])
    assert product.has(EXAMPLES[name, sm])
    assert found.wants == ("weight-only" if name in ("int4_w4a16", "nf4") else "native")
