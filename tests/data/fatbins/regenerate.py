"""Build the recorded fatbins and libraries again: ``python tests/data/fatbins/regenerate.py [FOLDER]``.

Needs nvcc 13.0 and a host compiler. ``native_cuda12`` also needs CUDA 12.9's ptxas (bin/ptxas of the wheel
nvidia-cuda-nvcc-cu12 12.9.86), named by ``PTXAS_OF_CUDA_12``; without it the recorded file stays. Tests that have
nvcc call :func:`build_fatbins` on a folder of their own; all others read the recorded files. What each file must hold
is in its name's row of ``TARGETS``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

# file → (targets as nvcc takes them, further options)
TARGETS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "plain.fatbin": (("sm_80", "sm_120"), ()),
    "exact.fatbin": (("sm_90a", "sm_120a"), ()),
    "family.fatbin": (("sm_100f", "sm_120f"), ()),
    "ptx.fatbin": (("sm_80", "compute_80", "compute_90a", "compute_120f"), ()),
    "zstd.fatbin": (("sm_80", "sm_120f", "compute_80"), ("--compress-mode=size",)),
    "lz4.fatbin": (("sm_80", "compute_80"), ("--compress-mode=speed",)),
    "lto.fatbin": (("sm_80", "lto_90"), ()),
}


def _generate_code(targets: tuple[str, ...]) -> list[str]:
    options = []
    for target in targets:
        virtual = "compute_" + target.split("_")[1]
        options += ["-gencode", f"arch={virtual},code={target}"]
    return options


def _run(*command: str, folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, timeout=280)


def build_fatbins(folder: Path) -> None:
    """Every fatbin of ``TARGETS`` into ``folder``."""
    shutil.copy(HERE / "tiny.cu", folder / "tiny.cu")
    for name, (targets, options) in TARGETS.items():
        code = _generate_code(targets)
        _run("nvcc", "-DUNIT=tiny", "-fatbin", *options, *code, "tiny.cu", "-o", name, folder=folder)


def build_libraries(folder: Path) -> None:
    """Three libraries of two units: with symbols, stripped, and one made for the device linker."""
    units = {"first_sm120_kernels": ("sm_120f",), "second": ("sm_80", "sm_90a", "compute_80")}
    for kind, options in (("two_units", ()), ("linker_input", ("-rdc=true",))):
        objects = []
        for unit, targets in units.items():
            shutil.copy(HERE / "tiny.cu", folder / f"{unit}.cu")
            command = ["nvcc", "-c", f"-DUNIT={unit}", "-Xcompiler=-fPIC,-Os", "--compress-mode=size", *options]
            _run(*command, *_generate_code(targets), f"{unit}.cu", "-o", f"{unit}.o", folder=folder)
            objects.append(f"{unit}.o")
        _run("gcc", "-shared", *objects, "-o", f"{kind}.so", folder=folder)
    _run("strip", "two_units.so", "-o", "stripped.so", folder=folder)
    for leftover in (*folder.glob("*.o"), *(folder / f"{unit}.cu" for unit in units)):
        leftover.unlink()


def build_native(folder: Path) -> None:
    """A library with real tensor-core instructions, named as vLLM's so that its units are known (``native/*.cu``)."""
    units = {
        "nvfp4_scaled_mm_sm120_kernels": ("size", ("sm_80", "sm_120f")),
        "scaled_mm_c2x": ("speed", ("sm_89", "sm_90", "compute_89")),
        "nvfp4_quant_kernels": ("size", ("sm_100f", "sm_120f")),
    }
    objects = []
    for unit, (mode, targets) in units.items():
        command = ["nvcc", "-c", "-Xcompiler=-fPIC,-Os", f"--compress-mode={mode}"]
        _run(*command, *_generate_code(targets), f"{unit}.cu", "-o", f"{unit}.o", folder=folder)
        objects.append(f"{unit}.o")
    _run("gcc", "-shared", *objects, "-o", "_C_stable_libtorch.abi3.so", folder=folder)
    for leftover in folder.glob("*.o"):
        leftover.unlink()


_PTXAS = """#!/bin/sh
for word in "$@"; do case "$word" in *.ptx) sed -i 's/^\\.version 9\\.0$/.version 8.8/' "$word";; esac; done
exec '{ptxas}' "$@"
"""


def build_native_cuda12(folder: Path, ptxas: Path) -> None:
    """The NVFP4 units of ``native/*.cu`` assembled by CUDA 12.9's ptxas, whose images keep no note of the release.

    A copy of nvcc's folder gets that ptxas in place of its own; PTX is of a version that it reads.
    """
    toolkit = folder / "toolkit"
    nvcc = Path(shutil.which("nvcc") or "nvcc").resolve()
    shutil.copytree(os.environ.get("CUDA_HOME") or nvcc.parents[1], toolkit)
    (toolkit / "bin" / "ptxas").write_text(_PTXAS.format(ptxas=ptxas.resolve()), encoding="utf-8")
    (toolkit / "bin" / "ptxas").chmod(0o755)
    objects = []
    for unit, targets in {
        "nvfp4_quant_kernels": ("sm_100f", "sm_120f"),
        "nvfp4_scaled_mm_sm120_kernels": ("sm_80", "sm_120f"),
    }.items():
        shutil.copy(HERE / "native" / f"{unit}.cu", folder / f"{unit}.cu")
        command = [str(toolkit / "bin" / "nvcc"), "-c", "-Xcompiler=-fPIC,-Os", "--compress-mode=size"]
        _run(*command, *_generate_code(targets), f"{unit}.cu", "-o", f"{unit}.o", folder=folder)
        objects.append(f"{unit}.o")
    _run("gcc", "-shared", *objects, "-o", "_C_stable_libtorch.abi3.so", folder=folder)
    shutil.rmtree(toolkit)
    for leftover in (*folder.glob("*.o"), *folder.glob("*.cu")):
        leftover.unlink()


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    build_fatbins(target)
    build_libraries(target)
    if target != HERE:
        shutil.copytree(HERE / "native", target / "native")
    build_native(target / "native")
    if "PTXAS_OF_CUDA_12" in os.environ:
        (target / "native_cuda12").mkdir(exist_ok=True)
        build_native_cuda12(target / "native_cuda12", Path(os.environ["PTXAS_OF_CUDA_12"]))
    if target != HERE:
        (target / "tiny.cu").unlink()
