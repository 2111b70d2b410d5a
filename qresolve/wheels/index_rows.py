"""What the wheel index holds, as records: declared and measured facts of wheels, and CUDA toolkit releases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qresolve.arch import ImageArch


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitGroup:
    """Translation units that hold the same images with the same tensor-core instructions.

    ``names`` sorted, a name as often as units have it; ``unnamed`` counts those of a stripped library, and
    ``families`` are then the families (constraints/kernel_families.toml) that their kernels' names belong to.
    ``instructions``: for each image of machine code the names of its tensor-core instructions, sorted, or None where
    they cannot be read (of generations before those that are known); an image that does not stand there has none.
    None in place of all: they were not read.
    """

    images: tuple[ImageArch, ...]
    instructions: tuple[tuple[ImageArch, tuple[str, ...] | None], ...] | None = None
    names: tuple[str, ...] = ()
    unnamed: int = 0
    families: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTool:
    """A compiler that a wheel brings: its CUDA release, and every arch whose name stands in it."""

    path: str
    release: str
    archs: tuple[ImageArch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLibrary:
    """One shared library that was read. ``glibc`` is the newest version asked for, None where none is.

    ``compilers`` are the CUDA releases that its images' own notes name, sorted; none where they keep no notes.
    """

    path: str
    needed: tuple[str, ...]
    glibc: str | None
    groups: tuple[UnitGroup, ...]
    compilers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """Claims. ``cuda`` as claimed (``13.0`` from a local label, ``13.0.3`` from a pin); None: no claim."""

    requires_python: str | None
    requires_dist: tuple[str, ...]
    upload_time: str | None
    cuda: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Observations. ``record``: digest of RECORD. ``libraries`` and ``tools`` None: none was looked at."""

    record: str
    libraries: tuple[MeasuredLibrary, ...] | None
    tools: tuple[MeasuredTool, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelRow:
    """One wheel; ``sha256`` is its key, ``size`` in bytes, ``index`` the name of the index, not its URL."""

    filename: str
    name: str
    version: str
    size: int
    sha256: str
    index: str
    declared: Declared
    measured: Measured | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolkitRelease:
    """One release of the CUDA toolkit's metapackage.

    ``parts``: (extra, package, specifier) as METADATA has it, sorted; markers are left out, as a
    specifier is used as a constraint and constrains nothing that is not installed.
    """

    version: str
    filename: str
    sha256: str
    parts: tuple[tuple[str, str, str], ...]
