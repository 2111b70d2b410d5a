"""NVIDIA's disassembler as an oracle: what it prints, brought to the names of ``qresolve.machine_code.sass``.

This is the one place that says which words of a mnemonic do not count.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

# Words of a mnemonic that our names leave out: the shape, and what follows. A shape that is none is kept as unknown.
SHAPE = re.compile(r"\d+(?:x\d+x\d+)?")
DROPPED = {
    *("SAT", "SATFINITE"),  # saturation
    *("RM", "RP", "RZ"),  # rounding of DMMA
    *("STEP0", "STEP1", "STEP2", "STEP3"),  # a quarter of Volta's product
    *("REGOFFSET", "ASHIFT"),  # how the left operand is addressed
    *("2CTA", "WS"),  # how blocks and warps share the product
}
UNKNOWN_WORD = re.compile(r"INVALID\d*|\?\?\?\d*|")
_INSTRUCTION = re.compile(r"(?:@!?U?P\w+ )?(?P<mnemonic>[\w.?]+)(?P<operands>.*)")
_TENSOR = re.compile(r"(?:UTC)?[A-Z]?(?:GMMA|MMA)(?=\.|\Z)")
# tcgen05 takes block scales from tensor memory: an operand behind the descriptor.
_SCALES = re.compile(r"idesc\[\w+\], tmem\[")

_BAD = re.compile(r"at address 0x([0-9a-f]+)")
_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+([^;\n]*);")
_SECTION = re.compile(r"\n\.text\.(\S+):")
_TENSOR_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:\{\s*)?((?:@!?U?P\w+ +)?(?:UTC)?[A-Z]{0,2}MMA\b[^;\n]*);")
WIDTH = 16


def name_of(text: str) -> str | None:
    """Our name for a printed instruction; None for what is no tensor-core instruction."""
    match = _INSTRUCTION.match(text.strip())
    if match is None or not _TENSOR.match(match["mnemonic"]):
        return None
    operation, *words = match["mnemonic"].split(".")
    if words[:1] == ["SF"]:
        operation, words = f"{operation}.SF", words[1:]
    if any(UNKNOWN_WORD.fullmatch(word) for word in words):
        return f"unknown {operation}"
    kept = [word for word in words if not SHAPE.fullmatch(word) and word not in DROPPED]
    scaled = " scaled" if _SCALES.search(match["operands"]) else ""
    return ".".join([operation, *kept]) + scaled


def disassemble(program: Path | str, words: Sequence[int], target: str) -> list[str | None]:
    """What is printed for each word of 128 bits on ``target`` (``SM120a``), None where it is no instruction.

    The program gives no output at all as long as one word is none, but names some of these.
    """
    texts: list[str | None] = [None] * len(words)
    left = list(range(len(words)))
    while left:
        with tempfile.NamedTemporaryFile(suffix=".bin") as file:
            file.write(b"".join(words[index].to_bytes(WIDTH, "little") for index in left))
            file.flush()
            command = [str(program), "--binary", target, "-ndf", "-raw", file.name]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode == 0:
            for address, text in _LINE.findall(run.stdout):
                texts[left[int(address, 16) // WIDTH]] = text.strip()
            return texts
        bad = {int(address, 16) // WIDTH for address in _BAD.findall(run.stderr)}
        if not bad:
            raise RuntimeError(run.stderr)
        left = [index for place, index in enumerate(left) if place not in bad]
    return texts


def tensor_lines(program: str | Path, cubin: Path) -> Iterator[tuple[str, int, str]]:
    """(kernel, offset in its code, text) of every tensor-core instruction of a cubin."""
    command = [str(program), "-c", "-ndf", str(cubin)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    starts = list(_SECTION.finditer(printed))
    ends = [start.start() for start in starts[1:]] + [len(printed)]
    for start, end in zip(starts, ends, strict=False):
        for match in _TENSOR_LINE.finditer(printed, start.end(), end):
            yield start[1], int(match[1], 16), match[2].strip()
