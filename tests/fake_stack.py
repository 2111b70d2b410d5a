"""A vLLM stack of tiny wheels on a local index: the names, versions and pins that the records speak of.

Like the real index it offers CUDA parts of a newer toolkit beside the right ones, so a resolver that only looks at
the ranges mixes two toolkits.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from qresolve.knowledge.engine import load_engine
from qresolve.wheels.index import cuda_toolkit_pins
from tests.index_server import MadeWheel, make_wheel

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pytest


def isolate_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No set-up of the user's: caches and configuration of the test's own, and an empty folder ``work`` to be in."""
    for name in [name for name in os.environ if name.startswith(("UV_", "PIP_", "QRESOLVE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("UV_CREDENTIALS_DIR", str(tmp_path / "credentials"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own-cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "nowhere"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


NEWER = "13.5.37"
X86 = "manylinux_2_28_x86_64"


def stack(version: str | None = None, *, llguidance_tag: str = "py3-none-any") -> tuple[MadeWheel, ...]:
    """The wheels of one release; ``llguidance_tag`` is the platform of the package that needs a newer glibc."""
    release = load_engine("vllm", version).release
    pins = {pin.package: pin.version for pin in release.pins}
    loose = [name for name in pins if name.startswith("nvidia-cuda-")]
    exact = [f"{name}=={pins[name]}" for name in pins if name not in loose and name != "ninja"]
    wheels: list[MadeWheel] = [
        make_wheel(
            "vllm",
            release.version,
            requires=[*exact, "ninja", "llguidance", *loose],
            tag=f"cp38-abi3-{X86}",
            requires_python=str(release.requires_python),
            files={"vllm/__init__.py": "", "vllm/_C.txt": "kernels"},
        ),
        make_wheel("llguidance", "1.7.6", tag=llguidance_tag),
        make_wheel("ninja", "1.13.2"),
        make_wheel("cuda-toolkit", "13.0.3.0"),
    ]
    for name, pinned in pins.items():
        if name in loose or name == "ninja":
            continue
        requires: Iterable[str] = ("cuda-toolkit==13.0.3",) if name == "torch" else ()
        wheels.append(make_wheel(name, pinned, requires=requires, files={f"{name.replace('-', '_')}.py": "x = 1\n"}))
    for name in loose:
        wheels += [make_wheel(name, newest) for newest in (_part(name), NEWER)]
    return tuple(wheels)


def _part(name: str) -> str:
    """The version that the toolkit release which torch pins has of a part."""
    specifier = (cuda_toolkit_pins("13.0.3") or {})[name]
    return specifier.split(",")[0].removeprefix("==").removesuffix(".*")
