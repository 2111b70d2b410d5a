"""How tensor-core instructions are encoded in the generations of SASS from sm_75 on.

NVIDIA publishes no encodings. These were read out of its disassembler (nvdisasm 13.5.37) on 2026-12-01: for each
architecture, words with the operation bits set and the others random or flipped, 80 000 to 600 000 that it took for
instructions of the tensor cores (8.1 million in all), were grouped by what it printed until every bit that changes a
name was known. The fields below name all of them as it does. So do they, instruction by instruction, what is in 78
kernels of Triton 3.9.0 and in published libraries. ``tests/data/sass/`` holds a sample, the records, and how both
are made; ``tests/network/test_nvdisasm.py`` repeats the search with new random words.

=========== ============= ============ =================================================
operation   bits 11 to 0  bit 91       generations
=========== ============= ============ =================================================
HMMA.884    236           0            sm_75
IMMA        237           0            all
HMMA        23c           0            all
BMMA        23d           0            sm_75 to sm_90
DMMA        23f           0            from sm_80
QMMA        27a           0            sm_89, sm_120, sm_121
QMMA.SF     47a           0            sm_120, sm_121
OMMA.SF     47f           0            sm_120, sm_121
HGMMA       9f0, df0      1            sm_90
IGMMA       9f1, df1      1            sm_90
BGMMA       9f2, df2      1            sm_90
QGMMA       9f3, df3      1            sm_90
UTC?MMA     5ea, 9ea      1            sm_100, sm_103, sm_107, sm_110: the kind is bits 63, 73, 72 (4: UTCOMMA with
                                       block scales, 3: UTCQMMA, 1: UTCIMMA, not on sm_103 and sm_107, 0: UTCHMMA)
UTCQMMA     dea, fea      1            the same; with block scales
=========== ============= ============ =================================================

The second of two forms has its left operand in registers (``GMMA``) or tensor memory. sm_101 is what CUDA 12 called
sm_110. Values that the disassembler prints as ``INVALID3`` or ``???3`` are left out of the fields, and so unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# The bit that tells apart two instruction sets with the same twelve bits.
OPERATION_BIT = 91


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Bits, the lowest of the value first, and what each value adds to the name; others are unknown."""

    bits: tuple[int, ...]
    words: Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """One instruction: ``opcodes`` are bits 0 to 11, ``high`` is bit 91. The name is ``operation`` and its fields'."""

    operation: str
    opcodes: tuple[int, ...]
    high: bool
    fields: tuple[Field, ...]


def _field(*bits: int, **words: str) -> Field:
    return Field(bits=bits, words={int(code[1:]): word for code, word in words.items()})


def _choice(bits: tuple[int, ...], *words: str | None) -> Field:
    return Field(bits=bits, words={code: word for code, word in enumerate(words) if word is not None})


def _mma(operation: str, opcode: int, *fields: Field) -> Encoding:
    return Encoding(operation=operation, opcodes=(opcode,), high=False, fields=fields)


def _shapes(bits: tuple[int, ...], sparse_bit: int, *, dense: tuple[int, ...], sparse: tuple[int, ...]) -> Field:
    """Shapes do not show in the name, but an unknown one makes the instruction unknown; sparsity shows."""
    marker = 1 << len(bits)
    words = dict.fromkeys(dense, "") | {marker | code: "SP" for code in sparse}
    return Field(bits=(*bits, sparse_bit), words=words)


def _result(bit: int) -> Field:
    return _choice((bit,), "F16", "F32")


_LEFT_INTEGER, _RIGHT_INTEGER = (76, 77, 83), (78, 79, 84)
_ALL_INTEGERS = ("U8", "S8", None, None, "U4", "S4")
_BYTES = ("U8", "S8")
_FP8 = ("E4M3", "E5M2")
_NARROW_FLOATS = ("E4M3", "E5M2", None, "E3M2", "E2M3", "E2M1")
_LEFT_FLOAT, _RIGHT_FLOAT = (78, 82, 83), (79, 84, 85)

_HMMA_TURING = _mma("HMMA", 0x23C, _choice((75, 78), "", "", "", None), _result(76))
_HMMA = _mma(
    "HMMA",
    0x23C,
    _shapes((75, 78), 73, dense=(0, 1, 2), sparse=(0, 1, 3)),
    _result(76),
    _choice((82, 83), "", "BF16", "TF32"),
)
_HMMA_VOLTA = _mma(
    "HMMA",
    0x236,
    _choice((76, 80), "", "", None, ""),
    _choice((76, 78), "F16.F16", "F32.F16", None, "F32.F32"),
)


def _imma(types: tuple[str | None, ...], *, dense: tuple[int, ...], sparse: tuple[int, ...]) -> Encoding:
    return _mma(
        "IMMA",
        0x237,
        _shapes((75, 85, 86), 72, dense=dense, sparse=sparse),
        _choice(_LEFT_INTEGER, *types),
        _choice(_RIGHT_INTEGER, *types),
    )


_IMMA_TURING = _mma(
    "IMMA",
    0x237,
    _field(75, 83, 84, 85, c0="", c14=""),
    _choice(_LEFT_INTEGER, *_ALL_INTEGERS),
    _choice(_RIGHT_INTEGER, *_ALL_INTEGERS),
)
_IMMA_AMPERE = _imma(_ALL_INTEGERS, dense=(0, 2, 4, 5, 6), sparse=(2, 3, 5, 6, 7))
_IMMA_HOPPER = _imma(_BYTES, dense=(0, 4, 5), sparse=(2, 5, 6))
_IMMA_BLACKWELL = _imma(_BYTES, dense=(4, 5), sparse=(5, 6))


def _bmma(shapes: int, operations: Mapping[int, str]) -> Encoding:
    return _mma(
        "BMMA",
        0x23D,
        _choice((75, 76), *[""] * shapes),
        Field(bits=(77, 78), words=operations),
        _field(80, c1="POPC"),
    )


_BMMA_TURING = _mma("BMMA", 0x23D, _choice((75, 76), ""), _field(77, c0="XOR"), _field(80, c1="POPC"))
_BMMA_AMPERE = _bmma(3, {0: "XOR", 2: "AND"})
_BMMA_HOPPER = _bmma(3, {2: "AND"})
_DMMA_AMPERE = _mma("DMMA", 0x23F, _field(76, c0=""))
_DMMA_HOPPER = _mma("DMMA", 0x23F)
_DMMA_BLACKWELL = _mma("DMMA", 0x23F, _field(76, 77, c0=""))

_QMMA_SHAPES = _shapes((75, 76), 80, dense=(0, 1), sparse=(1, 2))
_QMMA_ADA = _mma("QMMA", 0x27A, _QMMA_SHAPES, _result(77), _choice((78,), *_FP8), _choice((79,), *_FP8))
_QMMA_BLACKWELL = _mma(
    "QMMA",
    0x27A,
    _QMMA_SHAPES,
    _result(77),
    _choice(_LEFT_FLOAT, *_NARROW_FLOATS),
    _choice(_RIGHT_FLOAT, *_NARROW_FLOATS),
)
_QMMA_SCALED = _mma(
    "QMMA.SF",
    0x47A,
    _choice((80,), "F32", "SP.F32"),
    _choice(_LEFT_FLOAT, *_NARROW_FLOATS),
    _choice(_RIGHT_FLOAT, *_NARROW_FLOATS),
    _choice((), "E8"),
)
_OMMA_SCALED = _mma(
    "OMMA.SF",
    0x47F,
    _choice((80,), "F32.E2M1.E2M1", "SP.F32.E2M1.E2M1"),
    _choice((82,), "E8", "UE4M3"),
    _choice((83,), "4X", ""),
)

_COLUMNS = (53, 54, 55, 56, 57)
# Shapes of the integer products are numbered three apart, those of sparse ones one higher.
_IGMMA_SHAPES = tuple(range(0, 54, 3))


def _gmma(operation: str, opcode: int, *fields: Field) -> Encoding:
    return Encoding(operation=operation, opcodes=(0x900 | opcode, 0xD00 | opcode), high=True, fields=fields)


_WARPGROUP = (
    _gmma(
        "HGMMA",
        0xF0,
        _shapes((58, 59), 73, dense=(0, 1), sparse=(0, 2)),
        _result(75),
        _choice((76, 77), "", "BF16", "TF32"),
    ),
    _gmma(
        "IGMMA",
        0xF1,
        _shapes((*_COLUMNS, 58), 73, dense=_IGMMA_SHAPES, sparse=tuple(shape + 1 for shape in _IGMMA_SHAPES)),
        _choice((76, 77), *_BYTES),
        _choice((82, 83), *_BYTES),
    ),
    _gmma(
        "BGMMA",
        0xF2,
        Field(bits=(*_COLUMNS, 58), words=dict.fromkeys(range(18), "")),
        _field(77, 78, c2="AND"),
        _field(80, c1="POPC"),
    ),
    _gmma(
        "QGMMA",
        0xF3,
        _shapes((58,), 73, dense=(0,), sparse=(1,)),
        _result(75),
        _choice((76,), *_FP8),
        _choice((77,), *_FP8),
    ),
)


def _tensor_memory(*, integers: bool, sixteen: str, table: bool, free_kind: bool) -> tuple[Encoding, ...]:
    """tcgen05: the types are in a descriptor; shown are the kind, the block of scales and whether scales are taken.

    ``sixteen`` is the word for one scale in 16 values; without it there is one in 32. ``table`` is whether a
    left-out value of bit 60 is a product with a lookup table. ``free_kind``: the kind's bits do not count where the
    operation says it.
    """
    fp8 = ("UTCQMMA", "UTCQMMA.LUTB" if table else "UTCQMMA")
    words: dict[int, str] = {}
    scaled: dict[int, str] = {}
    for rest in range(4):
        without_block, lut = rest & 1, rest >> 1
        low = without_block << 3 | lut << 4
        words[low] = "UTCHMMA"
        if integers:
            words[low | 1] = "UTCIMMA"
        words[low | 3] = fp8[lut]
        words[low | 4] = "UTCOMMA scaled" if without_block else f"UTCOMMA.{sixteen} scaled"
        for kind in range(8) if free_kind else (3,):
            scaled[low | kind] = f"{fp8[lut]} scaled"
    bits = (72, 73, 63, 62, 60)
    return (
        Encoding(operation="", opcodes=(0x5EA, 0x9EA), high=True, fields=(Field(bits=bits, words=words),)),
        Encoding(operation="", opcodes=(0xDEA, 0xFEA), high=True, fields=(Field(bits=bits, words=scaled),)),
    )


_TURING = (_HMMA_VOLTA, _HMMA_TURING, _IMMA_TURING, _BMMA_TURING)
_AMPERE = (_HMMA, _IMMA_AMPERE, _BMMA_AMPERE, _DMMA_AMPERE)
_HOPPER = (_HMMA, _IMMA_HOPPER, _BMMA_HOPPER, _DMMA_HOPPER, *_WARPGROUP)
_BLACKWELL = (_HMMA, _IMMA_BLACKWELL, _DMMA_BLACKWELL)
_THOR = (*_BLACKWELL, *_tensor_memory(integers=True, sixteen="4X", table=False, free_kind=True))
_GEFORCE = (*_BLACKWELL, _QMMA_BLACKWELL, _QMMA_SCALED, _OMMA_SCALED)

GENERATIONS: Mapping[int, tuple[Encoding, ...]] = {
    75: _TURING,
    80: _AMPERE,
    86: _AMPERE,
    87: _AMPERE,
    88: _AMPERE,
    89: (*_AMPERE, _QMMA_ADA),
    90: _HOPPER,
    100: (*_BLACKWELL, *_tensor_memory(integers=True, sixteen="4X", table=False, free_kind=False)),
    101: _THOR,
    103: (*_BLACKWELL, *_tensor_memory(integers=False, sixteen="BLOCK16", table=False, free_kind=True)),
    107: (*_BLACKWELL, *_tensor_memory(integers=False, sixteen="BLOCK16", table=True, free_kind=True)),
    110: _THOR,
    120: _GEFORCE,
    121: _GEFORCE,
}
