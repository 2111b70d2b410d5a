"""Hold our names against NVIDIA's disassembler, instruction by instruction, over everything that a library holds.

    python -m tests.data.sass.compare_library NVDISASM LIBRARY [ARCH…] > RECORD

RECORD is JSON with a line for each architecture: images, bytes of code, instructions of the tensor cores by name as
both see them, and every disagreement. ``library-*.json`` beside this file were made by it.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qresolve.machine_code.cubin import parse_cubin
from qresolve.machine_code.fatbin import FatbinInvalid, parse_container
from qresolve.machine_code.payload import read_payload
from qresolve.machine_code.sass import WIDTH, instruction_name, tensor_instructions
from tests.nvdisasm import name_of, tensor_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qresolve.machine_code.fatbin import Buffer, Entry

_MAGIC = b"\x50\xed\x55\xba"


def images(data: mmap.mmap) -> Iterator[Entry]:
    """Machine code of every container in the file, wherever it stands."""
    position = data.find(_MAGIC)
    while position >= 0:
        try:
            container = parse_container(data, position)
        except FatbinInvalid:
            position = data.find(_MAGIC, position + 1)
            continue
        yield from (entry for entry in container.entries if entry.kind == "sass")
        position = data.find(_MAGIC, container.end)


def compare(program: str, raw: Buffer, sm: int) -> tuple[int, Counter[str], list[str]]:
    """Bytes of code, counts by name, and disagreements of one cubin."""
    view = memoryview(raw)
    cubin = parse_cubin(raw)
    theirs: dict[str, list[tuple[int, str]]] = {}
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(raw)
        file.flush()
        for name, offset, text in tensor_lines(program, Path(file.name)):
            theirs.setdefault(name, []).append((offset, text))
    wrong: list[str] = []
    counts: Counter[str] = Counter()
    size = 0
    for kernel in cubin.kernels:
        code = view[kernel.offset : kernel.offset + kernel.size]
        size += kernel.size
        ours = Counter(tensor_instructions(code, sm))
        seen: Counter[str] = Counter()
        for offset, text in theirs.pop(kernel.name, ()):
            expected = name_of(text)
            word = bytes(code[offset : offset + WIDTH])
            if expected is not None:
                seen[expected] += 1
            if instruction_name(word, sm) != expected:
                wrong.append(f"{word.hex()} {text}: {instruction_name(word, sm)}")
        if seen != ours:
            wrong.append(f"{kernel.name}: {dict(ours - seen)} more, {dict(seen - ours)} less")
        counts += ours
    wrong += [f"{name}: not seen" for name in theirs]
    return size, counts, wrong


def main() -> None:
    """Compare, and print the record."""
    program, library, *archs = sys.argv[1:]
    with Path(library).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        rows: dict[str, dict[str, Any]] = {}
        for entry in images(data):
            arch = f"sm_{entry.sm}{entry.suffix}"
            if archs and arch not in archs:
                continue
            raw = bytes(read_payload(data, entry))
            row = rows.setdefault(arch, {"images": 0, "code_bytes": 0, "names": Counter(), "disagreements": []})
            size, counts, wrong = compare(program, raw, entry.sm)
            row["images"] += 1
            row["code_bytes"] += size
            row["names"] += counts
            row["disagreements"] += wrong
            print(arch, entry.offset, len(wrong), file=sys.stderr, flush=True)
        says = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        digest = hashlib.sha256(data).hexdigest()
    for row in rows.values():
        row["names"] = dict(sorted(row["names"].items()))
    record = {
        "library": Path(library).name,
        "sha256": digest,
        "disassembler": says.split(", V")[-1].splitlines()[0],
        "command": "python -m tests.data.sass.compare_library nvdisasm LIBRARY",
        "archs": dict(sorted(rows.items())),
    }
    json.dump(record, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
