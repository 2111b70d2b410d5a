"""Launches every probe and every operation that this host can, and writes what was seen as JSON.

    python measure_on_card.py RESULT.json [--vllm-library FILE] [--probes FOLDER ...]

Runs in an interpreter with torch and Triton, from a checkout; bitsandbytes, Humming and grouped-nf4-gemm are taken
along where they are installed. ``--vllm-library`` is vLLM's main extension by itself: torch's stable ABI lets it load.
``--probes`` are folders of ``qresolve verify --export-probes`` that were compiled by another Triton.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OPERATIONS = HERE / "operations" / "operations.py"
LIBRARIES = (
    ("torch", "torch", "torch_operations.py", ["scaled_mm by tensor", "scaled_mm by row", "bf16"]),
    ("bitsandbytes", "bitsandbytes", "bitsandbytes_operations.py", ["nf4 matmul_4bit"]),
    (
        "nf4_grouped", "grouped-nf4-gemm", "grouped_nf4_operations.py",
        ["gemm_4bit_grouped prefill", "gemm_4bit_grouped decode"],
    ),
    (
        "humming", "humming-kernels", "humming_operations.py",
        ["int8 weights", "int4 weights", "fp8 weights and activations"],
    ),
)  # fmt: skip
VLLM = [
    "CutlassFP8ScaledMMLinearKernel", "CutlassFp8BlockScaledMMKernel", "CutlassInt8ScaledMMLinearKernel",
    "CutlassNvFp4LinearKernel",
]  # fmt: skip
LONGEST = 160  # letters of a kernel's name


def ask(script: Path, request: dict[str, Any], *, isolated: bool) -> tuple[list[dict[str, Any]], float]:
    """The lines that a script answers on a descriptor of its own, and the seconds that it took."""
    reading, writing = os.pipe()
    started = time.monotonic()
    with tempfile.TemporaryFile() as words:
        child = subprocess.Popen(
            [sys.executable, *(["-I"] if isolated else []), str(script), str(writing)],
            stdin=subprocess.PIPE, stdout=words, stderr=words, pass_fds=(writing,),
        )  # fmt: skip
        os.close(writing)
        child.stdin.write(json.dumps(request).encode())  # type: ignore[union-attr]
        child.stdin.close()  # type: ignore[union-attr]
        with os.fdopen(reading) as pipe:
            lines = [json.loads(line) for line in pipe]
        child.wait()
    return lines, time.monotonic() - started


def shortened(line: dict[str, Any]) -> dict[str, Any]:
    """A line with kernel names that a person can read."""
    if "kernels" in line:
        line = {**line, "kernels": [name[:LONGEST] for name in line["kernels"] if not name.startswith("Mem")]}
    return line


def versions() -> dict[str, str]:
    """The releases of what takes part."""
    found = {"python": platform.python_version()}
    for name in ("torch", "triton", *(distribution for _, distribution, _, _ in LIBRARIES)):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("result")
    parser.add_argument("--vllm-library")
    parser.add_argument("--probes", nargs="*", default=[])
    arguments = parser.parse_args()
    harness = HERE / "harness.py"
    document: dict[str, Any] = {"schema": "qresolve.card/1", "versions": versions(), "probes": [], "operations": []}
    with tempfile.TemporaryDirectory() as made:
        code = (
            f"import sys, json; sys.path.insert(0, {str(HERE)!r})\n"
            "from qresolve_probes.driver import Driver; found = Driver()\n"
            "print(json.dumps({'devices': found.devices(), 'cuda': found.version()}))"
        )
        asked = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
        devices = json.loads(asked.stdout)
        document["host"] = devices
        folders = [Path(folder) for folder in arguments.probes]
        for sm in sorted({device["sm"] for device in devices["devices"]}):
            folder = Path(made) / f"sm{sm}"
            (compiled,), seconds = ask(
                harness, {"do": "compile", "sm": sm, "folder": str(folder), "limit": 60}, isolated=True
            )
            document["probes"].append({"compiled": compiled, "seconds": round(seconds, 1)})
            folders.append(folder)
        for folder in folders:
            (launched,), seconds = ask(harness, {"do": "launch", "folder": str(folder)}, isolated=True)
            manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
            by = next((one["triton"] for one in manifest["probes"].values() if "triton" in one), None)
            document["probes"].append({"launched": launched, "triton": by, "seconds": round(seconds, 1)})
    jobs = [(file, names, {}) for module, _, file, names in LIBRARIES if importlib.util.find_spec(module) is not None]
    if arguments.vllm_library:
        jobs.append(("vllm_operations.py", VLLM, {"libraries": [str(Path(arguments.vllm_library).resolve())]}))
    for file, names, more in jobs:
        lines, seconds = ask(OPERATIONS, {"file": file, "arguments": more, "operations": names}, isolated=False)
        document["operations"].append(
            {"file": file, "seconds": round(seconds, 1), "lines": [shortened(line) for line in lines]}
        )
    Path(arguments.result).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
