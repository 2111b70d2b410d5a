"""The probes compiled by real Triton releases for GPUs that are not there: native or decomposed as measured."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from qresolve.knowledge.load import schemes_by_key
from qresolve.knowledge.probes import read_probes
from qresolve.machine_code.instructions import read_instructions
from qresolve.machine_code.scan import scan_binary
from tests.unit.kernels.probes_support import HARNESS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.network, pytest.mark.timeout(900)]

if platform.system() != "Linux" or platform.machine() != "x86_64":
    pytest.skip("Triton's wheels are asked for on Linux on x86_64", allow_module_level=True)

# What instruction family does each probe's product, by arch.
NATIVE = "native"
NEWER: dict[int, dict[str, str | None]] = {
    90: {"fp8": NATIVE, "int8": NATIVE, "mxfp8": "HGMMA", "mxfp4": "HGMMA", "nvfp4": "HGMMA", "int4_w4a16": "HGMMA"},
    100: {"fp8": NATIVE, "mxfp8": NATIVE, "mxfp4": NATIVE, "nvfp4": NATIVE},
    120: {"fp8": NATIVE, "int8": NATIVE, "mxfp8": NATIVE, "mxfp4": NATIVE, "nvfp4": NATIVE, "nf4": "HMMA"},
    121: {"fp8": NATIVE, "mxfp4": NATIVE, "nvfp4": NATIVE},
    86: {"int8": NATIVE, "fp8": None},
}
OLDER: dict[int, dict[str, str | None]] = {
    121: {"fp8": "HMMA", "mxfp4": "HMMA"},  # 3.6.0 does not know the part, and says nothing
    120: {"fp8": NATIVE, "mxfp4": NATIVE, "nvfp4": NATIVE},
    90: {"fp8": NATIVE, "nvfp4": None},  # its compiler fails
}
CASES: dict[str, dict[int, dict[str, str | None]]] = {"3.9.0": NEWER, "3.6.0": OLDER}


@pytest.fixture(scope="module", params=CASES)
def triton(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """An environment with that Triton and nothing else: no torch, no compiler of the host."""
    folder = tmp_path_factory.mktemp("triton") / "env"
    uv = shutil.which("uv", path=f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")  # noqa: PTH120
    assert uv is not None
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    command = [uv, "pip", "install", "-q", "--no-deps", "--python", str(python), f"triton=={request.param}"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        pytest.skip(f"triton {request.param} cannot be had: {run.stderr.strip().splitlines()[-1]}")
    return request.param, python


def product_of(name: str) -> str:
    key = next(key for key, probe in read_probes().items() if probe == name)
    product = read_instructions().product_of(schemes_by_key()[key].facts)
    assert product is not None
    return product.name


@pytest.mark.parametrize("sm", sorted({*NEWER, *OLDER}))
def test_probes_come_out_as_measured(triton: tuple[str, Path], sm: int, tmp_path: Path) -> None:
    version, python = triton
    expected = CASES[version].get(sm)
    if expected is None:
        pytest.skip("nothing is expected of this release on this arch")
    request = {"do": "compile", "sm": sm, "formats": list(expected), "folder": str(tmp_path), "limit": 60}
    reading, writing = os.pipe()
    subprocess.run(
        [str(python), "-I", str(HARNESS), str(writing)],
        input=json.dumps(request), text=True, pass_fds=(writing,), check=True, env={"PATH": "/nowhere"},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(writing)
    with os.fdopen(reading) as pipe:
        probes: dict[str, Any] = json.load(pipe)["probes"]
    for name, wanted in expected.items():
        facts = probes[name]
        if wanted is None:
            assert facts["end"] in ("error", "crashed"), (name, facts)
            continue
        assert facts["end"] == "compiled", (name, facts)
        scan = scan_binary((tmp_path / facts["file"]).read_bytes(), path=name, wanted=lambda images: images)
        held = {one for unit in scan.units for image in unit.images for one in image.instructions or ()}
        product = read_instructions().named(product_of(name))
        assert product is not None
        if wanted == NATIVE:
            assert held
            assert set(product.among(held)) == held, (name, held)
        else:
            assert held
            assert all(one.startswith(wanted) for one in held), (name, held)
            if name not in ("int4_w4a16", "nf4"):
                assert not product.among(held)
