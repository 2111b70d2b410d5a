"""Runs in an interpreter (3.10 or newer) that has Triton: compiles matrix products for GPUs that are not there.

    python -I compile_triton.py DISASSEMBLER < REQUEST > ANSWER

REQUEST is ``{"limit": SECONDS, "cells": [{"arch": 120, "format": "nvfp4", "tile": [128, 128, 128]}, …]}``. No GPU,
driver, torch or C compiler takes part. Each cell is compiled in a child process of its own, because a compiler that
aborts or never ends is an answer too. ANSWER holds what was seen, and judges nothing:

* ``triton``: the version; ``assemblers``: the ptxas of each arch, with its release and the newest GPU that it knows;
* ``cells``: for each cell ``end`` (``compiled``, ``error``, ``crashed``, ``timed out``), ``opcodes`` (the tensor-core
  instructions of the machine code, with their modifiers; ``FFMA`` where it has only those), ``ptx`` (the kinds and
  block scales that the PTX asked for) and ``why`` (the error's type and first telling line).
"""

from __future__ import annotations

import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]

MATRIX_OPCODE = re.compile(r"\b((?:UTC)?[A-Z]{0,2}MMA[A-Za-z0-9_.]*)([^;\n]*)")
# The block scales of a tcgen05 product are an operand in tensor memory; its name does not show them.
SCALE_OPERAND = re.compile(r"idesc\[\w+\], tmem\[")
PLAIN_OPCODE = re.compile(r"\b(FFMA|HFMA2|IDP)\b")
PTX_KIND = re.compile(r"kind::\w+|block_scale(?:\.(?:scale_vec::\dX|block\d+))?")


@triton.jit  # type: ignore[untyped-decorator]
def multiply(  # type: ignore[no-untyped-def]
    left, right, out, steps,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((M, N), dtype=tl.int32 if WHOLE else tl.float32)
    for step in range(steps):
        a = tl.load(left + step * M * K + rows[:, None] * K + inner[None, :])
        b = tl.load(right + step * N * K + columns[None, :] * K + inner[:, None])
        if WHOLE:
            total += tl.dot(a, b, out_dtype=tl.int32)
        else:
            total = tl.dot(a, b, total)
    tl.store(out + rows[:, None] * N + columns[None, :], total)


@triton.jit  # type: ignore[untyped-decorator]
def multiply_scaled(  # type: ignore[no-untyped-def]
    left, left_scale, right, right_scale, out, steps,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, LEFT_PACK: tl.constexpr, RIGHT_PACK: tl.constexpr,
    LEFT_SCALED: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    left_inner, right_inner = tl.arange(0, K // LEFT_PACK), tl.arange(0, K // RIGHT_PACK)
    groups = tl.arange(0, K // GROUP)
    total = tl.zeros((M, N), dtype=tl.float32)
    for step in range(steps):
        a = tl.load(left + step * M * (K // LEFT_PACK) + rows[:, None] * (K // LEFT_PACK) + left_inner[None, :])
        b = tl.load(right + step * N * (K // RIGHT_PACK) + columns[None, :] * (K // RIGHT_PACK) + right_inner[:, None])
        t = tl.load(right_scale + step * N * (K // GROUP) + columns[:, None] * (K // GROUP) + groups[None, :])
        if LEFT_SCALED:
            s = tl.load(left_scale + step * M * (K // GROUP) + rows[:, None] * (K // GROUP) + groups[None, :])
            total = tl.dot_scaled(a, s, LEFT, b, t, RIGHT, total)
        else:
            total = tl.dot_scaled(a, None, LEFT, b, t, RIGHT, total)
    tl.store(out + rows[:, None] * N + columns[None, :], total)


# Plain products: (element type of both operands, of the result).
PLAIN = {"bf16": ("bf16", "fp32"), "fp8": ("fp8e4nv", "fp32"), "int8": ("i8", "i32")}
# Scaled products: (left format, its pointer, right format, its pointer, scale pointer, group).
SCALED = {
    "mxfp8": ("e4m3", "fp8e4nv", "e4m3", "fp8e4nv", "u8", 32),
    "mxfp4": ("e2m1", "u8", "e2m1", "u8", "u8", 32),
    "nvfp4": ("e2m1", "u8", "e2m1", "u8", "fp8e4nv", 16),
    "e4m3-e2m1": ("e4m3", "fp8e4nv", "e2m1", "u8", "u8", 32),
    "bf16-e2m1": ("bf16", "bf16", "e2m1", "u8", "u8", 32),
}


def source_of(name: str, tile: list[int]) -> object:
    """What Triton compiles for one format and tile."""
    from triton.compiler import ASTSource  # type: ignore[import-not-found]  # noqa: PLC0415 - in the child only

    shape = dict(zip("MNK", tile, strict=True))
    if name in PLAIN:
        element, result = PLAIN[name]
        pointers = {"left": f"*{element}", "right": f"*{element}", "out": f"*{result}", "steps": "i32"}
        constants: dict[str, object] = {**shape, "WHOLE": element == "i8"}
        kernel = multiply
    else:
        left, left_pointer, right, right_pointer, scale, group = SCALED[name]
        pointers = {
            "left": f"*{left_pointer}",
            "left_scale": f"*{scale}",
            "right": f"*{right_pointer}",
            "right_scale": f"*{scale}",
            "out": "*fp32",
            "steps": "i32",
        }
        constants = {
            **shape,
            "GROUP": group,
            "LEFT": left,
            "RIGHT": right,
            "LEFT_PACK": 2 if left == "e2m1" else 1,
            "RIGHT_PACK": 2 if right == "e2m1" else 1,
            "LEFT_SCALED": left != "bf16",
        }
        kernel = multiply_scaled
    signature = {**pointers, **dict.fromkeys(constants, "constexpr")}
    return ASTSource(fn=kernel, signature=signature, constexprs=constants)


def compiled(cell: dict[str, object], disassembler: str) -> dict[str, object]:
    """Compile one cell and read its machine code."""
    from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found]  # noqa: PLC0415 - in the child

    built = triton.compile(
        source_of(str(cell["format"]), cell["tile"]),  # type: ignore[arg-type]
        target=GPUTarget("cuda", cell["arch"], 32),
        options={"num_warps": 4},
    )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(built.asm["cubin"])
        file.flush()
        text = subprocess.run([disassembler, "-c", file.name], capture_output=True, text=True, check=True).stdout
    opcodes = {
        f"{opcode} scaled" if SCALE_OPERAND.search(operands) else opcode
        for opcode, operands in MATRIX_OPCODE.findall(text)
    } or set(PLAIN_OPCODE.findall(text))
    return {"end": "compiled", "opcodes": sorted(opcodes), "ptx": sorted(set(PTX_KIND.findall(built.asm["ptx"])))}


def telling_line(said: list[str], written: list[str]) -> str:
    """The line that says most, without paths, positions or addresses; ``written`` is what the compiler printed."""
    for pattern, lines in (
        (r"\b(?:error|fatal)\s+:", said),
        (r"Error\(|not supported", said),
        (r"\berror:|LLVM ERROR|Assertion|UNREACHABLE", written),
        (r"\S", said[::-1]),
    ):
        found = next((line for line in lines if re.search(pattern, line)), None)
        if found is not None:
            plain = re.sub(r"(?:/[\w.+~-]+)+(?:, line \d+|:\d+)*[:;]?|0x[0-9a-f]+|\bat \d+:\d+:?", "", found)
            return " ".join(plain.split())[:120].rstrip()
    return ""


def answer_of(cell: dict[str, object], disassembler: str, log: int) -> dict[str, object]:
    """What the child says of its cell; an exception of the compiler is an answer."""
    try:
        return compiled(cell, disassembler)
    except BaseException as error:  # noqa: BLE001 - whatever the compiler raises is the answer
        sys.stderr.flush()
        written = os.pread(log, 1 << 20, 0).decode("utf-8", "replace").splitlines()
        if "SIGXCPU" in str(error) or "code -24" in str(error):
            return {"end": "timed out"}
        return {"end": "error", "why": f"{type(error).__name__}: {telling_line(str(error).splitlines(), written)}"}


def in_child(cell: dict[str, object], disassembler: str, limit: int) -> dict[str, object]:
    """The answer of a child process that gets ``limit`` seconds of processor time, as does each program it starts.

    Not of the clock's, so that a busy machine gives the same answer; the clock ends what waits forever.
    """
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as log, tempfile.TemporaryDirectory() as cache:
        child = os.fork()
        if child == 0:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.environ["TRITON_CACHE_DIR"] = cache
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            os.write(writer, json.dumps(answer_of(cell, disassembler, log.fileno())).encode())
            os._exit(0)
        os.close(writer)
        read = b""
        end = time.monotonic() + 20 * limit
        while (left := end - time.monotonic()) > 0:
            if select.select([reader], [], [], left)[0]:
                part = os.read(reader, 65536)
                if not part:
                    break
                read += part
        else:
            os.killpg(child, signal.SIGKILL)
        os.close(reader)
        _, status = os.waitpid(child, 0)
        if read:
            return dict(json.loads(read))
        ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        if time.monotonic() >= end or ended_by == signal.SIGXCPU:
            return {"end": "timed out"}
        written = os.pread(log.fileno(), 1 << 20, 0).decode("utf-8", "replace").splitlines()
        name = signal.Signals(ended_by).name if ended_by else f"exit {os.waitstatus_to_exitcode(status)}"
        return {"end": "crashed", "why": f"{name}: {telling_line([], written)}"}


def assembler_of(arch: int) -> dict[str, str]:
    """The ptxas that this Triton uses for an arch: its file name, release, and the newest GPU that it knows."""
    from triton.backends.nvidia import compiler  # type: ignore[import-not-found]  # noqa: PLC0415 - by version

    if not hasattr(compiler, "get_ptxas"):
        found = compiler._path_to_binary("ptxas")  # noqa: SLF001 - older releases have no public way
    else:
        takes_arch = compiler.get_ptxas.__code__.co_argcount > 0 if hasattr(compiler.get_ptxas, "__code__") else True
        found = compiler.get_ptxas(arch) if takes_arch else compiler.get_ptxas()
    path = found.path if hasattr(found, "path") else found[0]
    says = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    helps = subprocess.run([path, "--help"], capture_output=True, text=True, check=True).stdout
    release = re.search(r"V(\d+(?:\.\d+)+)", says)
    newest = max((int(number) for number in re.findall(r"'sm_(\d+)[af]?'", helps)), default=0)
    return {"file": Path(path).name, "release": release.group(1) if release else "", "newest": f"sm_{newest}"}


def main() -> None:
    """Answer the request."""
    disassembler = sys.argv[1]
    request = json.load(sys.stdin)
    cells = []
    for cell in request["cells"]:
        started = time.monotonic()
        answer = in_child(cell, disassembler, request["limit"])
        print(f"{cell} {answer} {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)
        cells.append({**cell, **answer})
    archs = sorted({cell["arch"] for cell in request["cells"]})
    json.dump(
        {"triton": triton.__version__, "assemblers": {str(arch): assembler_of(arch) for arch in archs}, "cells": cells},
        sys.stdout,
    )


if __name__ == "__main__":
    main()
