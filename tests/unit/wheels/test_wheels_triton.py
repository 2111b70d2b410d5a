"""What Triton compiles: reading the measurements, judging instructions, and the script that compiles."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from qresolve.data import data_folder
from qresolve.errors import DataInvalid
from qresolve.strict import Table
from qresolve.wheels.measure_triton import COMMAND, script_request
from qresolve.wheels.triton import (
    Product,
    dump_measured,
    judge,
    parse_answer,
    parse_measured,
    parse_request,
    read_measured,
    read_request,
)

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = data_folder("kernels") / "compile_triton.py"
PRODUCTS = {product.name: product for product in read_request().products}


@pytest.mark.parametrize(
    ("product", "opcode", "wanted"),
    [
        ("fp8", "QMMA.16832.F32.E4M3.E4M3", "native"),
        ("fp8", "QGMMA.64x128x32.F32.E4M3.E4M3", "native"),
        ("fp8", "UTCQMMA", "native"),
        ("fp8", "HMMA.16816.F32", "decomposed"),
        ("fp8", "QMMA.SF.16832.F32.E4M3.E4M3.E8", "decomposed"),
        ("fp8", "UTCQMMA scaled", "decomposed"),
        ("mxfp8", "UTCQMMA scaled", "native"),
        ("mxfp8", "UTCQMMA", "decomposed"),
        ("mxfp8", "QMMA.16832.F32.E4M3.E4M3", "decomposed"),
        ("mxfp4", "OMMA.SF.16864.F32.E2M1.E2M1.E8", "native"),
        ("mxfp4", "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X", "decomposed"),
        ("nvfp4", "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X", "native"),
        ("nvfp4", "OMMA.SF.16864.F32.E2M1.E2M1.E8", "decomposed"),
        ("nvfp4", "UTCOMMA.BLOCK16 scaled", "native"),
        ("nvfp4", "UTCOMMA scaled", "decomposed"),
        ("e4m3-e2m1", "QMMA.SF.16832.F32.E4M3.E2M1.E8", "native"),
        ("e4m3-e2m1", "HMMA.16816.F32.BF16", "decomposed"),
        ("int8", "IMMA.16832.S8.S8.SAT", "native"),
        ("int8", "IDP", "decomposed"),
        ("bf16", "HGMMA.64x128x16.F32.BF16", "native"),
        ("bf16", "FFMA", "decomposed"),
    ],
)
def test_an_instruction_is_native_only_for_the_product_that_it_does(product: str, opcode: str, wanted: str) -> None:
    assert judge(PRODUCTS[product], (opcode,)) == wanted


def test_a_product_that_is_native_in_part_is_mixed_and_one_without_instructions_is_not_native() -> None:
    assert judge(PRODUCTS["fp8"], ("HMMA.16816.F32", "QMMA.16832.F32.E4M3.E4M3")) == "mixed"
    assert judge(PRODUCTS["fp8"], ()) == "decomposed"


def answer(*cells: dict[str, Any]) -> dict[str, Any]:
    tool = {"file": "ptxas", "release": "13.1", "newest": "sm_121"}
    return {"triton": "9.9.9", "assemblers": {"90": tool, "120": tool}, "cells": list(cells)}


def cell(arch: int, product: Product, **said: Any) -> dict[str, Any]:
    return {"arch": arch, "format": product.kernel, "tile": list(product.tile), **said}


def test_how_a_compilation_ended_is_kept_apart_from_what_it_gave() -> None:
    release = parse_answer(
        read_request(),
        answer(
            cell(120, PRODUCTS["fp8"], end="compiled", opcodes=["QMMA.16832.F32.E4M3.E4M3"], ptx=[]),
            cell(90, PRODUCTS["fp8"], end="error", why="no such type"),
            cell(120, PRODUCTS["nvfp4"], end="crashed", why="SIGABRT"),
            cell(90, PRODUCTS["nvfp4"], end="timed out"),
        ),
    )
    assert [(row.arch, row.product, row.result) for row in release.rows] == [
        (90, "fp8", "none"),
        (90, "nvfp4", "timed out"),
        (120, "fp8", "native"),
        (120, "nvfp4", "crashed"),
    ]
    assert [tool.archs for tool in release.assemblers] == [(90, 120)]


def test_the_same_kernel_in_another_tile_is_another_product() -> None:
    small, large = PRODUCTS["fp8-16-rows"], PRODUCTS["fp8"]
    assert (small.kernel, small.tile) != (large.kernel, large.tile)
    release = parse_answer(
        read_request(),
        answer(
            cell(90, small, end="compiled", opcodes=["HMMA.16816.F32"]),
            cell(90, large, end="compiled", opcodes=["QGMMA.64x128x32.F32.E4M3.E4M3"]),
        ),
    )
    assert {row.product: row.result for row in release.rows} == {"fp8": "native", "fp8-16-rows": "decomposed"}


def test_what_is_written_reads_back() -> None:
    releases = tuple(read_measured().values())
    text = dump_measured(COMMAND, "nvdisasm", releases)
    assert parse_measured(text, file="triton.json") == releases
    assert dump_measured(COMMAND, "nvdisasm", parse_measured(text, file="triton.json")) == text


def document(row: dict[str, Any], **more: Any) -> str:
    release = {"version": "9.9.9", "assemblers": [], "rows": [row, *more.pop("rows", [])]}
    return json.dumps(
        {"schema": "qresolve.triton_measured/1", "command": "c", "disassembler": "d", "releases": [release], **more}
    )


ROW = {"arch": 90, "product": "fp8", "result": "none"}


@pytest.mark.parametrize(
    "text",
    [
        document({**ROW, "verdict": "native"}),
        document({**ROW, "result": "probably"}),
        document({"arch": 90, "product": "fp8"}),
        document(ROW, rows=[ROW]),
        document(ROW, more=1),
        "[]",
        "{",
    ],
)
def test_a_wrong_file_is_refused(text: str) -> None:
    with pytest.raises(DataInvalid):
        parse_measured(text, file="triton.json")
    assert parse_measured(document(ROW), file="triton.json")


@pytest.mark.parametrize(
    "change", [{"native": ["("]}, {"tile": [128, 128]}, {"verdict": "native"}, {"native": "HMMA"}], ids=str
)
def test_a_wrong_request_is_refused(change: dict[str, Any]) -> None:
    product = {"name": "fp8", "kernel": "fp8", "tile": [128, 128, 64], "native": ["QMMA"]}
    values = {
        "schema": 1, "python": "3", "beside": [], "disassembler": "d", "seconds": 1, "versions": [], "archs": [90],
    }  # fmt: skip
    assert parse_request(Table({**values, "product": [product]}, file="f")).archs == (90,)
    with pytest.raises(DataInvalid):
        parse_request(Table({**values, "product": [product | change]}, file="f"))


def test_every_kernel_that_is_asked_for_is_in_the_script() -> None:
    text = SCRIPT.read_text(encoding="utf-8")
    asked = {cell["format"] for cell in json.loads(script_request(read_request()))["cells"]}
    assert asked == {name for name in asked if f'"{name}": (' in text}


FAKE = """
import os, sys
__version__ = "9.9.9"
def jit(function):
    return function
class Built:
    asm = {"cubin": b"", "ptx": "mma.kind::mxf8f6f4.block_scale.scale_vec::1X"}
def compile(source, target, options):
    if target.arch == 75:
        raise ValueError("/tmp/x/kernel.py:12: type fp8e4nv not supported in this architecture")
    if target.arch == 80:
        print("/src/Dialect.cpp:7: Assertion `fits` failed", file=sys.stderr, flush=True)
        os.abort()
    while target.arch == 86:
        pass
    return Built()
"""


@pytest.fixture
def fake_triton(tmp_path: Path) -> Path:
    """A package named triton that refuses, aborts, never ends or compiles, by arch, and a disassembler."""
    files = {
        "triton/__init__.py": FAKE,
        "triton/language.py": "class constexpr: pass\n",
        "triton/compiler.py": "def ASTSource(fn, signature, constexprs): return fn\n",
        "triton/backends/__init__.py": "",
        "triton/backends/compiler.py": "class GPUTarget:\n    def __init__(self, kind, arch, warp): self.arch = arch\n",
        "triton/backends/nvidia/__init__.py": "",
        "triton/backends/nvidia/compiler.py": (
            "import os\nclass Tool: path = os.environ['FAKE'] + '/ptxas'\ndef get_ptxas(arch): return Tool\n"
        ),
        "ptxas": "#!/bin/sh\necho \"Cuda compilation tools, V13.1.80 'sm_90' 'sm_120a' 'sm_121f'\"\n",
        "nvdisasm": (
            "#!/bin/sh\n"
            "echo '  /*0*/  UTCQMMA gdesc[UR8], gdesc[UR10], tmem[UR16], tmem[UR34], idesc[UR35], tmem[UR18], UP0 ;'\n"
            "echo '  /*1*/  QMMA.16832.F32.E4M3.E4M3 R1, R2, R3, R4 ;'\n"
            "echo '  /*2*/  FFMA R1, R2, R3, R4 ;'\n"
        ),
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    return tmp_path


def test_the_script_survives_a_compiler_that_refuses_aborts_or_never_ends(fake_triton: Path) -> None:
    cells = [{"arch": arch, "format": "fp8", "tile": [128, 128, 64]} for arch in (75, 80, 86, 89)]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(fake_triton / "nvdisasm")],
        input=json.dumps({"limit": 1, "cells": cells}),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={"PYTHONPATH": str(fake_triton), "FAKE": str(fake_triton), "PATH": "/usr/bin:/bin"},
    )
    found = json.loads(done.stdout)
    refused, aborted, endless, built = found["cells"]
    assert refused["end"] == "error"
    assert refused["why"] == "ValueError: type fp8e4nv not supported in this architecture"
    assert (aborted["end"], aborted["why"]) == ("crashed", "SIGABRT: Assertion `fits` failed")
    assert endless["end"] == "timed out"
    assert built["opcodes"] == ["QMMA.16832.F32.E4M3.E4M3", "UTCQMMA scaled"]
    assert built["ptx"] == ["block_scale.scale_vec::1X", "kind::mxf8f6f4"]
    assert found["assemblers"]["89"] == {"file": "ptxas", "release": "13.1.80", "newest": "sm_121"}
