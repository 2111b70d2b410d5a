"""An environment with a small vLLM and torch that answer as the real ones do, around a library of real machine code.

The library (``tests/data/fatbins/native``) was compiled by nvcc: its NVFP4 unit holds the instruction in an sm_120f
image. Selectors and predicates are a few lines each, with vLLM's names.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DATA = Path(__file__).with_name("data") / "fatbins"
NATIVE = DATA / "native" / "_C_stable_libtorch.abi3.so"
WITHOUT = DATA / "two_units.so"

TORCH = """
import contextlib, os, types
bfloat16 = "bfloat16"
class _Namespace:
    def __getattr__(self, name):
        if name not in _ANSWERS or not _LOADED:
            raise AttributeError(f"no operation {name}")
        return lambda sm: _ANSWERS[name](sm)
_LOADED = []
_ANSWERS = {
    "cutlass_scaled_mm_supports_fp4": lambda sm: 100 <= sm < 130,
    "cutlass_scaled_mm_supports_fp8": lambda sm: sm >= 89,
}
class _Ops:
    _C = _Namespace()
    def load_library(self, path):
        with open(path, "rb") as file:
            if file.read(4) != b"\\x7fELF":
                raise OSError("Could not load this library: " + path)
        _LOADED.append(path)
ops = _Ops()
def empty(*arguments, **named):
    return None
cuda = types.SimpleNamespace(get_device_capability=None)
"""
PLATFORMS = """
_current_platform = None
def __getattr__(name):
    if name == "current_platform":
        return _current_platform
    raise AttributeError(name)
"""
CUDA = "class NonNvmlCudaPlatform:\n    pass\n"
INTERFACE = """
from typing import NamedTuple
class DeviceCapability(NamedTuple):
    major: int
    minor: int
    def to_int(self):
        return self.major * 10 + self.minor
"""
CONFIG = """
import contextlib
class KernelConfig:
    def __init__(self, linear_backend="auto", linear_backend_per_quant=None):
        self.linear_backend = linear_backend
        self.linear_backend_per_quant = linear_backend_per_quant or {}
class VllmConfig:
    def __init__(self):
        self.kernel_config = KernelConfig()
        self.model_config = None
CURRENT = []
@contextlib.contextmanager
def set_current_vllm_config(config):
    CURRENT.append(config)
    try:
        yield
    finally:
        CURRENT.pop()
"""
LINEAR = """
import os
import vllm.platforms
from vllm.config import CURRENT
class CutlassNvFp4LinearKernel:
    backend = "cutlass"
    @staticmethod
    def is_supported():
        return 100 <= vllm.platforms.current_platform.get_device_capability().to_int() < 130
class MarlinNvFp4LinearKernel:
    backend = "marlin"
    @staticmethod
    def is_supported():
        return True
_POSSIBLE_NVFP4_KERNELS = [
    CutlassNvFp4LinearKernel,
    MarlinNvFp4LinearKernel,
]
def init_nvfp4_linear_kernel(use_a16=False):
    off = os.environ.get("VLLM_DISABLED_KERNELS", "").split(",")
    named = CURRENT[-1].kernel_config.linear_backend_per_quant.get("nvfp4_w4a4", "auto")
    for kernel in _POSSIBLE_NVFP4_KERNELS:
        if kernel.__name__ in off or named not in ("auto", kernel.backend) or not kernel.is_supported():
            continue
        return kernel()
    raise ValueError("Failed to find a kernel that can implement the NVFP4 linear layer.")
"""


class FakeEnvironment:
    """A virtual environment; ``site`` is its folder of packages."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.site = next(folder.glob("lib/python3*/site-packages"))

    @property
    def linear(self) -> Path:
        """The file with the list of kernels."""
        return self.site / "vllm" / "model_executor" / "kernels" / "linear" / "__init__.py"

    @property
    def library(self) -> Path:
        """The main extension."""
        return self.site / "vllm" / "_C_stable_libtorch.abi3.so"

    def add(self, name: str, version: str, files: dict[str, str | bytes]) -> None:
        """Install a distribution of these files."""
        for path, content in files.items():
            place = self.site / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content if isinstance(content, bytes) else content.encode())
        info = self.site / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        rows = [f"{path},," for path in (*files, f"{info.name}/METADATA", f"{info.name}/RECORD")]
        (info / "RECORD").write_text("\n".join(rows) + "\n")


def make_environment(folder: Path, *, version: str = "0.33.0", library: Path = NATIVE) -> FakeEnvironment:
    """vLLM of that version with a library that holds, or lacks, the NVFP4 kernel; and torch."""
    made = FakeEnvironment(folder)
    packages = ("vllm", "vllm/model_executor", "vllm/model_executor/kernels", "vllm/utils")
    files: dict[str, str | bytes] = {f"{package}/__init__.py": "" for package in packages}
    files |= {
        "vllm/platforms/__init__.py": PLATFORMS,
        "vllm/platforms/cuda.py": CUDA,
        "vllm/platforms/interface.py": INTERFACE,
        "vllm/config.py": CONFIG,
        "vllm/model_executor/kernels/linear/__init__.py": LINEAR,
        "vllm/_C_stable_libtorch.abi3.so": library.read_bytes(),
    }
    made.add("vllm", version, files)
    made.add("torch", "2.14.0", {"torch/__init__.py": TORCH})
    return made
