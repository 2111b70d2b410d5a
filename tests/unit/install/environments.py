"""Tiny wheels, locks and environments for tests: real files, real installers, no index."""

from __future__ import annotations

import base64
import hashlib
import platform
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qresolve.lock.model import GatedBecause, Lock, LockedFormat, LockedPackage, LockedTarget, LockedWheel
from qresolve.wheels.record import parse_record, record_digest

if TYPE_CHECKING:
    from pathlib import Path

    from qresolve.setting import Setting

HERE_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
OTHER_PYTHON = "3.99"


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A wheel in a folder, its sha256 and the digest over its RECORD."""

    name: str
    version: str
    file: Path
    sha256: str
    record: str


def build_wheel(folder: Path, name: str, version: str, *, content: str = "built = 1\n") -> Built:
    """A pure wheel with one module, one console script and one script in its data folder."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": content,
        f"{name}-{version}.data/scripts/{name}-script": "#!python\nprint('script')\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    rows = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text.encode())}\n")
    record = "".join(rows) + f"{info}/RECORD,,\n"
    file = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            # A fixed moment: a wheel that a test builds again must be the same bytes, whatever the clock says.
            archive.writestr(zipfile.ZipInfo(path), text)
    return Built(
        name=name,
        version=version,
        file=file,
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        record=record_digest(parse_record(record)),
    )


def locked(wheel: Built, *, url: str | None = None, sha256: str | None = None, gated: bool = True) -> LockedPackage:
    """The wheel as a lock lists it; ``gated`` with the digest of its files."""
    return LockedPackage(
        name=wheel.name,
        version=wheel.version,
        wheel=LockedWheel(filename=wheel.file.name, url=url or wheel.file.as_uri(), sha256=sha256 or wheel.sha256),
        because=GatedBecause(routes=("SomeKernel",), gates=("some-gate",), record=wheel.record) if gated else None,
    )


def make_lock(
    packages: tuple[LockedPackage, ...],
    *,
    python: str = HERE_PYTHON,
    machine: str = platform.machine(),
    glibc: str = "2.17",
    driver_floor: str | None = None,
    settings: tuple[Setting, ...] = (),
    formats: tuple[LockedFormat, ...] | None = None,
) -> Lock:
    """A lock for this host unless told otherwise, that claims a native verdict on sm120."""
    claimed = LockedFormat(
        format="nvfp4",
        scheme="w4a4",
        role="dense",
        arch="sm120",
        wanted="native",
        verdict="native",
        level="launched",
        route="SomeKernel",
    )
    return Lock(
        target=LockedTarget(gpus=(("rtx5090", "sm120"),), machine=machine, glibc=glibc, python=python),
        engine="vllm",
        engine_version="0.33.0",
        packages=packages,
        formats=(claimed,) if formats is None else formats,
        settings=settings,
        data_digest="sha256:" + "0" * 64,
        driver_floor=driver_floor,
    )


def write_pylock(file: Path, lock: Lock) -> Path:
    """The part of ``lock`` that installers read, written without qresolve's own writer."""
    lines = ['lock-version = "1.0"', 'created-by = "qresolve"', f'requires-python = "=={lock.target.python}.*"']
    for package in lock.packages:
        lines += [
            "[[packages]]",
            f'name = "{package.name}"',
            f'version = "{package.version}"',
            "[[packages.wheels]]",
            f'name = "{package.wheel.filename}"',
            f'url = "{package.wheel.url}"',
            f'hashes = {{sha256 = "{package.wheel.sha256}"}}',
        ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def module_of(environment: Path, wheel: Built) -> Path:
    """The installed module of a wheel of :func:`build_wheel`."""
    return environment / "lib" / f"python{HERE_PYTHON}" / "site-packages" / wheel.name / "__init__.py"


def imports(environment: Path, module: str) -> bool:
    """Whether the environment's own Python can import ``module``."""
    python = environment / "bin" / "python"
    return subprocess.run([python, "-I", "-c", f"import {module}"], check=False, capture_output=True).returncode == 0
