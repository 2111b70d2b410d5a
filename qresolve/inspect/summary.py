"""Counts over a scanned binary: what loads on each arch, the CUDA that it is linked to. Pure."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qresolve.arch import driver_choice

if TYPE_CHECKING:
    from qresolve.arch import Architectures
    from qresolve.machine_code.scan import BinaryScan

_RUNTIME = re.compile(r"lib(?:cudart|cublas|cublasLt|nvrtc|cusparse|cufft)\.so\.(?P<major>\d+)(?:\.\d+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCount:
    """How the units of one binary load on one GPU.

    ``specific``: machine code built for this part or its family (suffix ``a`` or ``f``); ``sass``: other machine code;
    ``ptx``: as PTX alone; ``none``: no image loads as it is. A unit counts once, relocatable code not at all. None is
    usual for units made for other archs: a total says nothing about a format.
    """

    sm: int
    specific: int
    sass: int
    ptx: int
    none: int


def load_counts(scan: BinaryScan, sms: tuple[int, ...], architectures: Architectures) -> tuple[LoadCount, ...]:
    """A count for each of ``sms``, or for every known arch where none is given."""
    found = []
    for sm in sms or tuple(one.sm for one in architectures.known):
        chosen = [driver_choice(unit.archs, sm, architectures) for unit in scan.loaded]
        sass = [one for one in chosen if one is not None and one.kind == "sass"]
        specific = sum(bool(one.suffix) for one in sass)
        ptx = sum(one is not None and one.kind == "ptx" for one in chosen)
        found.append(
            LoadCount(sm=sm, specific=specific, sass=len(sass) - specific, ptx=ptx, none=len(chosen) - len(sass) - ptx)
        )
    return tuple(found)


def cuda_of(scan: BinaryScan) -> str | None:
    """The CUDA major that the library asks the loader for; None: it asks for none, or for several."""
    majors = {match["major"] for name in scan.needed if (match := _RUNTIME.fullmatch(name))}
    return majors.pop() if len(majors) == 1 else None


def image_counts(scan: BinaryScan) -> tuple[tuple[str, int], ...]:
    """How many units have each image, machine code first, by arch."""
    counts = Counter(arch for unit in scan.loaded for arch in unit.archs)
    ordered = sorted(counts, key=lambda arch: (arch.kind == "ptx", arch.sm, arch.suffix))
    return tuple((str(arch), counts[arch]) for arch in ordered)


def compressions(scan: BinaryScan) -> tuple[str, ...]:
    """Which compressions its images have, sorted."""
    return tuple(sorted({image.compression for unit in scan.loaded for image in unit.images}))


def tools(scan: BinaryScan) -> tuple[str, ...]:
    """Which compilers the images' own notes name, sorted."""
    return tuple(sorted({image.tool for unit in scan.units for image in unit.images if image.tool}))
