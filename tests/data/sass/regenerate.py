"""Make the corpus of instructions again: ``python -m tests.data.sass.regenerate NVDISASM PTXAS [CUBIN…] > corpus.tsv``.

A line is ``sm``, the instruction's 16 bytes in hexadecimal, what nvdisasm prints for it (empty: no instruction of
the tensor cores) and where the word comes from:

* ``ptxas``: probes of every matrix instruction of PTX, assembled for each target. They are never launched;
* ``cubin``: the cubins named on the command line (Triton's products, images of published libraries);
* ``fuzz``: operation bits of the tensor cores with the other bits random, and words of the above with bits flipped.

Kept is one word for each architecture, operation and mnemonic that was compiled, and for each name (or other
instruction) that only random words have. The choice is seeded.
"""

from __future__ import annotations

import itertools
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from qresolve.machine_code.cubin import parse_cubin
from tests.nvdisasm import WIDTH, disassemble, name_of, tensor_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus.tsv"

# sm → the target whose instruction set is asked of the disassembler: the largest of that architecture.
TARGETS = {
    75: "SM75",
    80: "SM80",
    86: "SM86",
    87: "SM87",
    88: "SM88",
    89: "SM89",
    90: "SM90a",
    100: "SM100a",
    101: "SM101a",
    103: "SM103a",
    107: "SM107a",
    110: "SM110a",
    120: "SM120a",
    121: "SM121a",
}
# CUDA 13 has no assembler for what it calls sm_110 now; the disassembler still takes it.
RENAMED = 101
# Operations of twelve bits from which the random search starts. What it finds with bits flipped need not be among them.
OPERATIONS = (0x236, 0x237, 0x23C, 0x23D, 0x23F, 0x27A, 0x47A, 0x47F)
WIDE_OPERATIONS = (0x9F0, 0x9F1, 0x9F2, 0x9F3, 0xDF0, 0xDF1, 0xDF2, 0xDF3, 0x5EA, 0x9EA, 0xDEA, 0xFEA)
HEADER = ".version {version}\n.target {target}\n.address_size 64\n"
# On one line, so that the assembler's complaint says which probe it is about.
PROBE = (
    ".visible .entry k{number}(.param .u64 p, .param .u32 q) {{"
    " .reg .b64 rd<8>; .reg .b32 r<200>; .reg .f32 f<200>; .reg .f64 d<40>; .reg .pred p<4>;"
    " ld.param.u64 rd0,[p]; ld.param.u32 r0,[q]; add.u64 rd1,rd0,16; add.u64 rd2,rd0,32; setp.ne.u32 p1,r0,0;"
    " {loads} {body} {stores} ret; }}\n"
)
_COMPLAINT = re.compile(r", line (\d+); error")


def probes() -> Iterator[str]:
    """Bodies of kernels in PTX, each with one matrix instruction; no target takes all."""
    yield from _mma()
    yield from _wgmma()
    yield from _tensor_memory()


def _registers(kind: str, start: int, count: int) -> str:
    return "{" + ",".join(f"{kind}{start + index}" for index in range(count)) + "}"


def _mma() -> Iterator[str]:
    def line(shape: str, result: str, left: str, right: str, counts: tuple[int, int, int], *, more: str = "") -> str:
        out, a, b = counts
        register = {"f32": "f", "f64": "d"}.get(result, "r")
        operand = "d" if left == "f64" else "r"
        target = _registers(register, 1, out)
        sources = f"{_registers(operand, 20, a)},{_registers(operand, 30, b)}"
        return f"mma.sync.aligned.{shape}.row.col{more}.{result}.{left}.{right}.{result} {target},{sources},{target};"

    for result in ("f16", "f32"):
        out = 2 if result == "f16" else 4
        yield line("m16n8k8", result, "f16", "f16", (out, 2, 1))
        yield line("m16n8k16", result, "f16", "f16", (out, 4, 2))
    yield line("m16n8k8", "f32", "bf16", "bf16", (4, 2, 1))
    yield line("m16n8k16", "f32", "bf16", "bf16", (4, 4, 2))
    yield line("m16n8k4", "f32", "tf32", "tf32", (4, 2, 1))
    yield line("m16n8k8", "f32", "tf32", "tf32", (4, 4, 2))
    yield line("m8n8k4", "f64", "f64", "f64", (2, 1, 1))
    yield line("m16n8k16", "f64", "f64", "f64", (4, 8, 4))
    for left, right in itertools.product(("s8", "u8"), repeat=2):
        yield line("m8n8k16", "s32", left, right, (2, 1, 1))
        yield line("m16n8k32", "s32", left, right, (4, 4, 2))
    for left, right in itertools.product(("s4", "u4"), repeat=2):
        yield line("m8n8k32", "s32", left, right, (2, 1, 1))
        yield line("m16n8k64", "s32", left, right, (4, 4, 2))
    for operation in ("xor", "and"):
        target, sources = _registers("r", 1, 4), f"{_registers('r', 20, 4)},{_registers('r', 30, 2)}"
        shape = "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32"
        yield f"{shape}.{operation}.popc {target},{sources},{target};"
    narrow = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
    for left, right in itertools.product(narrow[:2], repeat=2):
        yield line("m16n8k32", "f32", left, right, (4, 4, 2))
        yield line("m16n8k32", "f16", left, right, (2, 4, 2))
    for left, right in itertools.product(narrow, repeat=2):
        yield line("m16n8k32", "f32", left, right, (4, 4, 2), more=".kind::f8f6f4")
        yield _scaled("mxf8f6f4", "1X", left, right, inner=32)
    yield _scaled("mxf4", "2X", "e2m1", "e2m1")
    yield _scaled("mxf4nvf4", "2X", "e2m1", "e2m1")
    yield _scaled("mxf4nvf4", "4X", "e2m1", "e2m1", scale="ue4m3")
    four, two = _registers("r", 20, 4), _registers("r", 30, 4)
    for types in ("f32.f16.f16.f32", "f32.bf16.bf16.f32"):
        for spelling in ("sp", "sp::ordered_metadata"):
            result = _registers("f", 1, 4)
            yield f"mma.{spelling}.sync.aligned.m16n8k32.row.col.{types} {result},{four},{two},{result},r40,0;"
    for spelling in ("sp", "sp::ordered_metadata"):
        result = _registers("r", 1, 4)
        yield f"mma.{spelling}.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32 {result},{four},{two},{result},r40,0;"
        result = _registers("f", 1, 4)
        yield f"mma.{spelling}.sync.aligned.m16n8k64.row.col.f32.e4m3.e5m2.f32 {result},{four},{two},{result},r40,0;"


def _scaled(kind: str, vector: str, left: str, right: str, *, scale: str = "ue8m0", inner: int = 64) -> str:
    result = _registers("f", 1, 4)
    shape = f"mma.sync.aligned.m16n8k{inner}.row.col.kind::{kind}.block_scale.scale_vec::{vector}"
    operands = f"{result},{_registers('r', 20, 4)},{_registers('r', 30, 2)},{result},r41,{{0,0}},r42,{{0,0}}"
    return f"{shape}.f32.{left}.{right}.f32.{scale} {operands};"


def _wgmma() -> Iterator[str]:
    kinds = [
        *(("f32", left, left, inner, "1,1,1,0,0") for left, inner in (("f16", 16), ("bf16", 16))),
        ("f32", "tf32", "tf32", 8, "1,1,1"),
        ("f16", "f16", "f16", 16, "1,1,1,0,0"),
        *(("f32", left, right, 32, "1,1,1") for left, right in itertools.product(("e4m3", "e5m2"), repeat=2)),
        *(("s32", left, right, 32, "1") for left, right in itertools.product(("s8", "u8"), repeat=2)),
    ]
    wait = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
    yield (
        "wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc "
        f"{_registers('r', 1, 4)},rd1,rd2,p1; {wait}"
    )
    for result, left, right, inner, flags in kinds:
        for columns in (8, 64):
            count = columns // 2 if result != "f16" else columns // 4
            target = _registers("f" if result == "f32" else "r", 1, count)
            name = f"m64n{columns}k{inner}.{result}.{left}.{right}"
            flags_in_order = _scales(flags)
            for spelling, shape, metadata in (("", inner, ""), (".sp", inner * 2, "r0,0,")):
                name = f"wgmma.mma_async{spelling}.sync.aligned.m64n{columns}k{shape}.{result}.{left}.{right}"
                yield (f"wgmma.fence.sync.aligned; {name} {target},rd1,rd2,{metadata}{flags_in_order}; {wait}")


def _scales(flags: str) -> str:
    first, *others = flags.split(",")
    return ",".join(["p1" if first == "1" else first, *others])


def _tensor_memory() -> Iterator[str]:
    scaled = {
        "mxf8f6f4": ("", ".scale_vec::1X", ".block32"),
        "mxf4": ("", ".scale_vec::2X", ".block32"),
        "mxf4nvf4": (".scale_vec::2X", ".scale_vec::4X", ".block16", ".block32"),
    }
    for sparse, left in itertools.product(("", ".sp"), ("rd1", "[r1]")):
        metadata = ",[r4]" if sparse else ""
        for kind in ("f16", "tf32", "f8f6f4", "i8"):
            operands = f"[r2],{left},rd2{metadata},r0,p1;"
            for group in (1, 2):
                yield f"tcgen05.mma{sparse}.cta_group::{group}.kind::{kind} {operands}"
            yield f"tcgen05.mma.ws{sparse}.cta_group::1.kind::{kind} {operands}"
        for kind, blocks in scaled.items():
            for block, group in itertools.product(blocks, (1, 2)):
                name = f"tcgen05.mma{sparse}.cta_group::{group}.kind::{kind}.block_scale{block}"
                yield f"{name} [r2],{left},rd2{metadata},r0,[r5],[r6],p1;"


def _probe(number: int, body: str) -> str:
    kinds = {"r": "b32", "f": "f32", "d": "f64"}
    used = sorted(set(re.findall(r"\b[rfd]\d+\b", body)) - {"r0"})
    places = [(f"{kinds[name[0]]}", name, f"[rd0+{int(name[1:]) * 8}]") for name in used]
    loads = " ".join(f"ld.global.{kind} {name},{place};" for kind, name, place in places)
    stores = " ".join(f"st.global.{kind} {place},{name};" for kind, name, place in places)
    return PROBE.format(number=number, loads=loads, body=body, stores=stores)


def assemble(ptxas: str, target: str, folder: Path) -> Path:
    """A cubin with every probe that the target takes."""
    lines = [_probe(number, body) for number, body in enumerate(probes())]
    source, cubin = folder / "probes.ptx", folder / f"{target}.cubin"
    header = HEADER.format(version="9.4" if target.startswith("sm_107") else "9.0", target=target)
    while lines:
        source.write_text(header + "".join(lines), encoding="utf-8")
        command = [ptxas, "-arch", target, str(source), "-o", str(cubin)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode == 0:
            return cubin
        bad = {int(number) - header.count("\n") - 1 for number in _COMPLAINT.findall(run.stderr)}
        if not bad:
            raise RuntimeError(run.stderr)
        lines = [line for place, line in enumerate(lines) if place not in bad]
    raise RuntimeError(f"{target} takes no probe")


def instructions(nvdisasm: str, cubin: Path) -> Iterator[tuple[int, int, str]]:
    """(sm, word, text) of the tensor-core instructions in a cubin."""
    data = cubin.read_bytes()
    parsed = parse_cubin(data)
    starts = {kernel.name: kernel.offset for kernel in parsed.kernels}
    for kernel, offset, text in tensor_lines(nvdisasm, cubin):
        at = starts[kernel] + offset
        yield parsed.sm, int.from_bytes(data[at : at + WIDTH], "little"), text


def fuzz(
    nvdisasm: Path | str, sm: int, seeds: Iterable[int], *, words: int, chance: random.Random
) -> Iterator[tuple[int, str]]:
    """Random words with an operation of the tensor cores, then valid ones with bits flipped; (word, text) of all."""
    made: set[int] = set()
    firsts = {operation & 0xFF for operation in (*OPERATIONS, *WIDE_OPERATIONS)}
    others = [form << 8 | first for form in range(16) for first in sorted(firsts)]
    for operation in (*(operation for operation in OPERATIONS for _ in range(words // 40)), *others * 6):
        made.add((chance.getrandbits(105) & chance.getrandbits(105) & ~0xFFFF) | 0x7000 | operation)
    grown: dict[tuple[int, str | None], list[int]] = {}
    made |= set(seeds)
    made |= {seed & ~0xFFF | operation for seed in list(made) for operation in WIDE_OPERATIONS if seed >> 91 & 1}
    for _round in range(4):
        texts = disassemble(nvdisasm, sorted(made), TARGETS[sm])
        for word, text in zip(sorted(made), texts, strict=True):
            if text is not None:
                yield word, text
                if name_of(text) is not None:
                    grown.setdefault((word & 0xFFF, name_of(text)), []).append(word)
        made = set()
        for found in grown.values():
            for _ in range(max(4, words // len(grown))):
                word = chance.choice(found)
                for _flip in range(chance.choice((1, 1, 2, 3, 5))):
                    word ^= 1 << chance.randrange(9, 105)
                made.add(word)


def main() -> None:
    """Print the corpus."""
    nvdisasm, ptxas, *cubins = sys.argv[1:]
    chance = random.Random("tensor cores")
    kept: dict[tuple[int, int, int, str | None, str], tuple[str, str, str]] = {}
    compiled: set[tuple[int, int, str | None]] = set()
    words: dict[int, set[int]] = {sm: set() for sm in TARGETS}

    def keep(sm: int, word: int, text: str, source: str) -> None:
        name = name_of(text)
        # Of what was compiled, every mnemonic; of the many random ones, what was not compiled.
        mnemonic = "" if source == "fuzz" else text.split("MMA", 1)[1].split(" ", 1)[0]
        if source == "fuzz" and (sm, word & 0xFFF, name) in compiled:
            return
        compiled.update({(sm, word & 0xFFF, name)} if source != "fuzz" else ())
        key = (sm, word & 0xFFF, word >> 91 & 1, name, mnemonic)
        kept.setdefault(key, (word.to_bytes(WIDTH, "little").hex(), text if name else "", source))

    with tempfile.TemporaryDirectory() as folder:
        targets = [target.lower().replace("sm", "sm_") for sm, target in TARGETS.items() if sm != RENAMED]
        made = [assemble(ptxas, target, Path(folder)) for target in targets]
        for source, files in (("ptxas", made), ("cubin", [Path(cubin) for cubin in cubins])):
            for file in files:
                for sm, word, text in instructions(nvdisasm, file):
                    words[sm].add(word)
                    keep(sm, word, text, source)
    for sm in TARGETS:
        near = {word for other, found in words.items() if other // 10 == sm // 10 or sm >= 100 for word in found}
        for word, text in fuzz(nvdisasm, sm, near, words=8000, chance=chance):
            keep(sm, word, text, "fuzz")
    for key in sorted(kept, key=str):
        print(key[0], *kept[key], sep="\t")


if __name__ == "__main__":
    main()
