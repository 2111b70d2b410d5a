"""Scans made by hand, and small records to judge them with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve.arch import ImageArch, parse_image_arch, read_architectures
from qresolve.inspect.answer import InspectData
from qresolve.knowledge.load import read_formats
from qresolve.machine_code.families import parse_families
from qresolve.machine_code.instructions import parse_instructions
from qresolve.machine_code.scan import BinaryScan, ImageScan, UnitScan
from qresolve.request import parse_formats
from qresolve.strict import Table

if TYPE_CHECKING:
    from datetime import date

    from qresolve.request import Ask

LIBRARY = "engine/_C.abi3.so"


def small_data(checked: date) -> InspectData:
    """Two families of one library, and three products."""
    products = [
        {"name": "fp4", "meaning": "-", "computes": [{"weights": ["e2m1"], "activations": ["e2m1"]}]},
        {"name": "fp8", "meaning": "-", "computes": [{"weights": ["e4m3"], "activations": ["e4m3"]}]},
        {"name": "16-bit", "meaning": "-", "computes": [{"activations": ["none"]}]},
    ]
    patterns = {"fp4": ["OMMA.*"], "fp8": ["QMMA.*"], "16-bit": ["HMMA.*"]}
    instructions = [{**one, "instructions": patterns[str(one["name"])]} for one in products]
    families = [
        {"id": "e.fp4", "units": ["fp4_mm"], "kernels": ["fp4_gemm"], "serves": ["nvfp4@w4a4:dense"]},
        {"id": "e.w4", "units": ["w4_mm"], "kernels": [], "serves": ["nvfp4@w4a16:dense"]},
        {"id": "e.attention", "units": ["attention"], "kernels": [], "serves": []},
    ]
    rows = [{"libraries": ["_C.abi3.so"], "where": "-", **one} for one in families]
    return InspectData(
        architectures=read_architectures(),
        instructions=parse_instructions(Table({"schema": 1, "product": instructions}, file="instructions")),
        families=parse_families(Table({"schema": 1, "checked": checked, "family": rows}, file="families")),
    )


def image(arch: str, *instructions: str, read: bool = True, kernels: tuple[str, ...] = ()) -> ImageScan:
    """An image; ``compute_90`` is PTX and is never searched."""
    parsed: ImageArch = parse_image_arch(arch)
    searched = read and parsed.kind == "sass"
    return ImageScan(
        arch=parsed,
        compression="zstd",
        stored_length=10,
        raw_length=100,
        instructions=dict.fromkeys(instructions, 4) if searched else None,
        kernels=kernels if searched else None,
        why="" if searched else "not read",
    )


def unit(name: str | None, *images: ImageScan, offset: int = 0) -> UnitScan:
    """A container."""
    return UnitScan(name=name, section=".nv_fatbin", offset=offset, images=images)


def library(*units: UnitScan, path: str = LIBRARY) -> BinaryScan:
    """A library."""
    return BinaryScan(path=path, kind="library", size=1000, needed=("libcudart.so.13",), units=units)


def ask(text: str) -> Ask:
    """``nvfp4`` as a row."""
    return parse_formats([text], read_formats())[0]
