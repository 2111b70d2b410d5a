"""Tensor-core instructions: recorded words and what NVIDIA's disassembler prints for them, and laws.

The corpus holds each architecture, operation and name from compiled probes, from Triton's and vLLM's kernels, and
from random words; ``tests/data/sass/regenerate.py`` makes it.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.data import data_folder
from qresolve.machine_code.sass import SassUnknown, instruction_name, tensor_instructions
from qresolve.machine_code.sass_encodings import GENERATIONS
from tests.nvdisasm import name_of

FIXTURES = Path(__file__).resolve().parents[2] / "data" / "sass"
# An ordinary addition of floats, of every generation (operation 0x221).
OTHER = bytes.fromhex("21720000000000000000000000000000")

OMMA = "OMMA.SF.F32.E2M1.E2M1.E8"


class Row(NamedTuple):
    sm: int
    word: bytes
    text: str
    source: str


@cache
def _corpus() -> tuple[Row, ...]:
    lines = (FIXTURES / "corpus.tsv").read_text(encoding="utf-8").splitlines()
    fields = [line.split("\t") for line in lines]
    return tuple(Row(int(sm), bytes.fromhex(word), text, source) for sm, word, text, source in fields)


def _names(sm: int, *sources: str) -> set[str]:
    rows = [row for row in _corpus() if row.sm == sm and row.source in sources]
    return {name for name in (name_of(row.text) for row in rows) if name is not None}


@cache
def _features() -> dict[int, list[str]]:
    table = tomllib.loads((data_folder("constraints") / "architectures.toml").read_text(encoding="utf-8"))
    return {record["sm"]: [item["instruction"] for item in record["feature"]] for record in table["architecture"]}


@cache
def _products() -> dict[str, list[str]]:
    file = data_folder("constraints") / "measured" / "triton.toml"
    return {item["name"]: item["native"] for item in tomllib.loads(file.read_text(encoding="utf-8"))["product"]}


def _native(product: str, name: str) -> bool:
    """As the measurements of Triton are judged."""
    return any(re.fullmatch(pattern, name) for pattern in _products()[product])


@pytest.mark.parametrize("sm", sorted(GENERATIONS))
def test_each_recorded_word_has_the_name_that_the_disassembler_printed(sm: int) -> None:
    rows = [row for row in _corpus() if row.sm == sm]
    assert rows
    wrong = [
        (row, instruction_name(row.word, sm)) for row in rows if instruction_name(row.word, sm) != name_of(row.text)
    ]
    assert wrong == []


def test_the_corpus_has_other_instructions_that_begin_like_those_of_the_tensor_cores() -> None:
    firsts = {row.word[0] for row in _corpus() if row.text}
    assert {row.sm for row in _corpus() if not row.text and row.word[0] in firsts} >= {90, 100, 103, 107, 120, 121}


@pytest.mark.parametrize("sm", sorted(_features()))
def test_compiled_code_in_the_corpus_has_every_instruction_that_the_records_know(sm: int) -> None:
    names = _names(sm, "ptxas", "cubin")
    for instruction in _features()[sm]:
        # The records write the block scales of tcgen05 as those of mma.
        words = ["UTCQMMA", "scaled"] if instruction == "UTCQMMA.SF" else instruction.split(".")
        found = [name for name in names if set(words) <= set(re.split(r"[. ]", name))]
        assert found, f"sm_{sm} has no {instruction}"


@pytest.mark.parametrize("sm", sorted(GENERATIONS))
def test_no_unknown_instruction_was_ever_compiled(sm: int) -> None:
    assert not [name for name in _names(sm, "ptxas", "cubin") if name.startswith("unknown")]


def test_unknown_modifiers_never_pass_for_a_format() -> None:
    unknown = {name for sm in GENERATIONS for name in _names(sm, "fuzz") if name.startswith("unknown")}
    assert {"unknown HMMA", "unknown IMMA", "unknown QMMA", "unknown QGMMA"} <= unknown
    assert not [(product, name) for product in _products() for name in unknown if _native(product, name)]


@pytest.mark.parametrize(
    ("name", "products"),
    [
        ("HMMA.F32.BF16", {"bf16", "bf16-e2m1"}),
        ("QMMA.F32.E4M3.E4M3", {"fp8", "fp8-64-rows", "fp8-16-rows"}),
        ("QMMA.SF.F32.E4M3.E4M3.E8", {"mxfp8"}),
        ("QMMA.SF.F32.E4M3.E2M1.E8", {"e4m3-e2m1"}),
        ("OMMA.SF.F32.E2M1.E2M1.E8", {"mxfp4"}),
        ("OMMA.SF.F32.E2M1.E2M1.UE4M3.4X", {"nvfp4"}),
        ("QGMMA.F32.E4M3.E4M3", {"fp8", "fp8-64-rows", "fp8-16-rows"}),
        ("UTCQMMA", {"fp8", "fp8-64-rows", "fp8-16-rows"}),
        ("UTCQMMA scaled", {"mxfp8", "e4m3-e2m1"}),
        ("UTCOMMA scaled", {"mxfp4"}),
        ("UTCOMMA.4X scaled", {"nvfp4"}),
        ("UTCOMMA.BLOCK16 scaled", {"nvfp4"}),
        ("IMMA.S8.S8", {"int8"}),
    ],
)
def test_names_are_those_that_the_records_of_triton_judge_by(name: str, products: set[str]) -> None:
    assert any(name in _names(sm, "ptxas", "cubin") for sm in GENERATIONS)
    assert {product for product in _products() if _native(product, name)} == products


def test_what_a_whole_library_holds_was_seen_alike() -> None:
    """The recorded comparisons over published libraries: every tensor-core instruction, no disagreement."""
    records = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(FIXTURES.glob("library-*.json"))]
    assert records
    for record in records:
        for arch, row in record["archs"].items():
            assert row["disagreements"] == [], f"{record['library']} {arch}"
            assert row["images"] > 0
    known = Counter[str]()
    for record in records:
        for row in record["archs"].values():
            known.update(row["names"])
    # As an independent count over vLLM 0.33.0: NVFP4 384 and 64 for sm_120f, 32 and 4 for sm_100f; MXFP4 4.
    assert known["OMMA.SF.F32.E2M1.E2M1.UE4M3.4X"] == 448
    assert known["UTCOMMA.4X scaled"] == 36
    assert known["UTCOMMA scaled"] == 4


def test_instructions_are_counted_by_name() -> None:
    rows = [row for row in _corpus() if row.sm == 120 and row.source == "ptxas"]
    repeated = [row for number, row in enumerate(rows) for _ in range(number % 3 + 1)]
    code = OTHER + b"".join(row.word + OTHER for row in repeated)
    expected = Counter(name_of(row.text) for row in repeated)
    counts = tensor_instructions(code, 120)
    assert counts == expected
    assert list(counts) == sorted(counts)
    assert tensor_instructions(memoryview(bytearray(code)), 120) == expected
    assert tensor_instructions(b"", 120) == {}


def test_an_instruction_is_of_its_generation_only() -> None:
    omma = next(row.word for row in _corpus() if row.sm == 120 and name_of(row.text) == OMMA)
    assert instruction_name(omma, 121) == OMMA
    assert instruction_name(omma, 100) is None
    assert instruction_name(omma, 90) is None


@pytest.mark.parametrize("sm", [103, 107])
def test_a_kind_that_the_architecture_does_not_have_is_unknown(sm: int) -> None:
    """ptxas refuses tcgen05 with integers for these; nvdisasm takes such a word for no instruction."""
    words = {row.word for row in _corpus() if row.sm == 100 and name_of(row.text) == "UTCIMMA"}
    assert words
    assert {instruction_name(word, sm) for word in words} == {"unknown UTCMMA"}
    assert {instruction_name(word, 110) for word in words} == {"UTCIMMA"}


def test_words_are_read_at_their_own_boundaries_only() -> None:
    omma = next(row.word for row in _corpus() if row.sm == 120 and name_of(row.text) == OMMA)
    shifted = bytes(8) + omma + bytes(8)
    assert tensor_instructions(shifted, 120) == {}


@pytest.mark.parametrize("sm", [0, 35, 61, 70, 72, 125, 130])
def test_another_generation_is_refused(sm: int) -> None:
    with pytest.raises(SassUnknown, match=f"sm_{sm} "):
        tensor_instructions(OTHER, sm)


@pytest.mark.parametrize("length", [1, 8, 15, 17])
def test_a_part_of_an_instruction_is_refused(length: int) -> None:
    with pytest.raises(SassUnknown, match="whole number"):
        tensor_instructions(bytes(length), 120)


# Registers, predicates and scheduling: nothing that a name hangs on, in any generation.
FREE_BITS = (*range(12, 48), *range(64, 72), *range(87, 91), *range(92, 128))


@given(data=st.data())
def test_registers_and_scheduling_do_not_change_a_name(data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(_corpus()))
    word = int.from_bytes(row.word, "little")
    for bit in data.draw(st.lists(st.sampled_from(FREE_BITS), max_size=12)):
        word ^= 1 << bit
    assert instruction_name(word.to_bytes(16, "little"), row.sm) == name_of(row.text)


@given(code=st.binary(max_size=40).map(lambda part: part * 16), sm=st.sampled_from(sorted(GENERATIONS)))
def test_all_bytes_are_counted_at_most_once_and_the_same_wherever_they_stand(code: bytes, sm: int) -> None:
    words = [code[start : start + 16] for start in range(0, len(code), 16)]
    alone = Counter(name for name in (instruction_name(word, sm) for word in words) if name is not None)
    assert tensor_instructions(code, sm) == alone
    assert sum(alone.values()) <= len(words)


def test_every_bit_of_the_encodings_is_looked_at_once() -> None:
    """A name that two fields of one encoding could both decide would depend on their order."""
    for sm, encodings in GENERATIONS.items():
        operations = [(opcode, encoding.high) for encoding in encodings for opcode in encoding.opcodes]
        assert len(operations) == len(set(operations)), sm
        for encoding in encodings:
            for field in encoding.fields:
                assert len(set(field.bits)) == len(field.bits)
                assert all(0 <= value < 1 << len(field.bits) for value in field.words)
                assert not set(field.bits) & set(FREE_BITS)
