"""Compiling one probe for an arch with the Triton of this interpreter. Runs in a child process: a compiler can abort.

No GPU, driver, torch or host compiler takes part. Nothing here says whether what came out is native.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qresolve_probes.probe import TILE

if TYPE_CHECKING:
    from qresolve_probes.probe import Probe

WARPS = 4
STAGES = 1
"""Of a software pipeline: with more, the tiles of 16-bit operands need more shared memory than sm120 has (99 KiB)."""
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(?P<type>[bsuf]\d+)")


def compile_probe(probe: Probe, sm: int) -> tuple[bytes, dict[str, Any]]:
    """The cubin of a probe for ``sm``, and what a launch needs to know of it.

    Raises:
        Exception: whatever the compiler raises.
    """
    import triton  # noqa: PLC0415 - only where something is compiled
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415
    from triton.compiler import ASTSource  # noqa: PLC0415

    rows, columns, depth = TILE
    constants = {"BM": rows, "BN": columns, "BK": depth, **probe.constants}
    signature = {**dict(probe.parameters), **dict.fromkeys("MNK", "i32"), **dict.fromkeys(constants, "constexpr")}
    names = list(probe.kernel.arg_names)  # type: ignore[attr-defined]
    ordered = {name: signature[name] for name in names}
    # Buffers begin at multiples of 256 bytes and K is whole groups: without this, loads are of one element each.
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in (*dict(probe.parameters), "K")}
    source = ASTSource(fn=probe.kernel, signature=ordered, constexprs=constants, attrs=aligned)
    built = triton.compile(source, target=GPUTarget("cuda", sm, 32), options={"num_warps": WARPS, "num_stages": STAGES})
    entry = built.asm["ptx"].partition(".entry")[2].partition("{")[0]
    visible = [name for name in names if ordered[name] != "constexpr"]
    kinds = [match["type"] for match in _PARAMETER.finditer(entry)]
    if len(kinds) < len(visible):
        raise RuntimeError(f"the kernel takes {len(kinds)} parameters, {len(visible)} were declared")
    metadata = built.metadata
    return built.asm["cubin"], {
        "kernel": metadata.name,
        "shared": metadata.shared,
        "threads": 32 * metadata.num_warps,
        "parameters": visible,
        # What Triton adds after them: pointers to scratch memory, which these kernels need none of.
        "hidden": len(kinds) - len(visible),
        "scratch": int(getattr(metadata, "global_scratch_size", 0) or 0),
        "tile": list(TILE),
        "triton": triton.__version__,
        "ptxas": ptxas_of(sm),
    }


def ptxas_of(sm: int) -> dict[str, str]:
    """The file name and release of the ptxas that this Triton uses for an arch."""
    from triton.backends.nvidia import compiler  # noqa: PLC0415

    if not hasattr(compiler, "get_ptxas"):
        found = compiler._path_to_binary("ptxas")  # noqa: SLF001 - older releases have no public way
    else:
        code = getattr(compiler.get_ptxas, "__code__", None)
        takes_arch = code.co_argcount > 0 if code is not None else True
        found = compiler.get_ptxas(sm) if takes_arch else compiler.get_ptxas()
    path = found.path if hasattr(found, "path") else found[0]
    says = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    release = re.search(r"V(\d+(?:\.\d+)+)", says)
    return {"file": Path(path).name, "release": release.group(1) if release else ""}
