"""From the bytes of a binary to its images with their kernels and tensor-core instructions. Pure.

A library's containers are read with their headers first; images are decompressed one at a time and dropped again, so
the memory that a scan takes is that of its largest image. Which images are decompressed is the caller's choice: for
one GPU only those that the driver would load there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qresolve.arch import ImageArch
from qresolve.errors import Unproved
from qresolve.machine_code.cubin import Cubin, parse_cubin
from qresolve.machine_code.elf import CUBIN_MACHINE, ElfInvalid, parse_library
from qresolve.machine_code.fatbin import MAGIC, FatbinInvalid, parse_section
from qresolve.machine_code.payload import read_payload
from qresolve.machine_code.sass import tensor_instructions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from qresolve.machine_code.elf import LooseCubin, Unit
    from qresolve.machine_code.fatbin import Buffer, Compression, Container, Entry

_ELF = b"\x7fELF"


class NotABinary(Unproved):
    """The bytes are neither a library, nor a fatbin container, nor a cubin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageScan:
    """One image of a unit.

    ``instructions`` are the tensor-core instructions by name with how often they stand there; empty: looked, and there
    is none; None: not looked, or it cannot be read, and ``why`` says so. ``kernels`` are mangled names, None as above.
    ``tool`` is the compiler that the image's own note names.
    """

    arch: ImageArch
    compression: Compression
    stored_length: int
    raw_length: int
    instructions: Mapping[str, int] | None = None
    kernels: tuple[str, ...] | None = None
    tool: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitScan:
    """One container, or one cubin by itself. ``name`` is the translation unit, None where nothing says it.

    ``relocatable``: the driver links it, and compiles its PTX, where no linked image of the same kernels fits.
    """

    name: str | None
    section: str
    offset: int
    images: tuple[ImageScan, ...]
    relocatable: bool = False

    @property
    def archs(self) -> tuple[ImageArch, ...]:
        """What the driver could load, in file order."""
        return tuple(dict.fromkeys(image.arch for image in self.images))


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryScan:
    """One file. ``kind`` is ``library``, ``fatbin`` or ``cubin``; the rest is as in ``LibraryMeasurement``."""

    path: str
    kind: str
    size: int
    needed: tuple[str, ...] = ()
    glibc: str | None = None
    units: tuple[UnitScan, ...] = ()

    @property
    def loaded(self) -> tuple[UnitScan, ...]:
        """The units whose images the driver loads as they are."""
        return tuple(unit for unit in self.units if not unit.relocatable)

    @property
    def relocatable(self) -> tuple[UnitScan, ...]:
        """The units that it links."""
        return tuple(unit for unit in self.units if unit.relocatable)


def scan_binary(
    data: Buffer, *, path: str, wanted: Callable[[tuple[ImageArch, ...]], Iterable[ImageArch]]
) -> BinaryScan:
    """Scan the bytes of one file; ``path`` is only copied.

    ``wanted`` says of the images of one unit which are to be decompressed and searched.

    Raises:
        NotABinary: none of the three kinds.
        ElfInvalid: a library whose tables lie.
        FatbinInvalid: containers that cannot be read.
    """
    view = memoryview(data)
    head = bytes(view[:20])
    if head[:4] == _ELF and int.from_bytes(head[18:20], "little") == CUBIN_MACHINE:
        return _scan_cubin(data, path=path)
    if head[:4] == _ELF:
        library = parse_library(data, path=path)
        units = [_scan_unit(data, unit, relocatable=False, wanted=wanted) for unit in library.units]
        units += [_scan_unit(data, unit, relocatable=True, wanted=wanted) for unit in library.relocatable]
        units += [_scan_loose(data, loose, wanted=wanted) for loose in library.loose]
        return BinaryScan(
            path=path,
            kind="library",
            size=len(view),
            needed=library.needed,
            glibc=library.glibc,
            units=tuple(units),
        )
    if head[:4] == MAGIC:
        containers = parse_section(data)
        found = tuple(_scan_container(data, one, name=None, section="", wanted=wanted) for one in containers)
        return BinaryScan(path=path, kind="fatbin", size=len(view), units=found)
    raise NotABinary(f"{path}: neither an ELF library, nor a fatbin container, nor a cubin")


def arch_of(cubin: Cubin) -> ImageArch:
    """The arch of a cubin that is in no container.

    Without a note that gives the suffix it is taken for the exact part alone: so it runs nowhere that it might not.
    """
    return ImageArch(sm=cubin.sm, suffix="a" if cubin.suffix is None else cubin.suffix)


def _scan_cubin(data: Buffer, *, path: str) -> BinaryScan:
    cubin = parse_cubin(data)
    size = len(memoryview(data))
    image = _scan_code(data, cubin, arch=arch_of(cubin), compression="raw", stored=size, raw=size)
    unit = UnitScan(name=None, section="", offset=0, images=(image,))
    return BinaryScan(path=path, kind="cubin", size=size, units=(unit,))


def _scan_unit(
    data: Buffer, unit: Unit, *, relocatable: bool, wanted: Callable[[tuple[ImageArch, ...]], Iterable[ImageArch]]
) -> UnitScan:
    scan = _scan_container(data, unit.container, name=unit.name, section=unit.section, wanted=wanted)
    return replace(scan, relocatable=relocatable)


def _scan_loose(
    data: Buffer, loose: LooseCubin, *, wanted: Callable[[tuple[ImageArch, ...]], Iterable[ImageArch]]
) -> UnitScan:
    code = memoryview(data)[loose.offset : loose.offset + loose.length]
    cubin = parse_cubin(code)
    arch = arch_of(cubin)
    if arch in wanted((arch,)):
        image = _scan_code(code, cubin, arch=arch, compression="raw", stored=loose.length, raw=loose.length)
    else:
        image = ImageScan(
            arch=arch, compression="raw", stored_length=loose.length, raw_length=loose.length, why="not read"
        )
    return UnitScan(name=None, section=loose.section, offset=loose.offset, images=(image,))


def _scan_container(
    data: Buffer,
    container: Container,
    *,
    name: str | None,
    section: str,
    wanted: Callable[[tuple[ImageArch, ...]], Iterable[ImageArch]],
) -> UnitScan:
    chosen = frozenset(wanted(container.images))
    images = tuple(
        _scan_entry(data, entry, arch=arch, read=arch in chosen)
        for entry in container.entries
        if (arch := entry.image) is not None
    )
    return UnitScan(name=name, section=section, offset=container.offset, images=images)


def _scan_entry(data: Buffer, entry: Entry, *, arch: ImageArch, read: bool) -> ImageScan:
    if not read or arch.kind == "ptx":
        why = "PTX: the driver chooses the instructions when it compiles it" if arch.kind == "ptx" else "not read"
        return ImageScan(
            arch=arch,
            compression=entry.compression,
            stored_length=entry.stored_length,
            raw_length=entry.raw_length,
            why=why,
        )
    code = read_payload(data, entry)
    try:
        cubin = parse_cubin(code)
    except ElfInvalid as error:
        raise FatbinInvalid(f"its image is no cubin: {error.problem}", offset=entry.offset) from error
    if cubin.sm != arch.sm:
        raise FatbinInvalid(f"the header says {arch} and its cubin sm_{cubin.sm}", offset=entry.offset)
    return _scan_code(
        code,
        cubin,
        arch=arch,
        compression=entry.compression,
        stored=entry.stored_length,
        raw=entry.raw_length,
    )


def _scan_code(
    code: Buffer, cubin: Cubin, *, arch: ImageArch, compression: Compression, stored: int, raw: int
) -> ImageScan:
    found: Counter[str] = Counter()
    why = ""
    view = memoryview(code)
    try:
        for kernel in cubin.kernels:
            found.update(tensor_instructions(view[kernel.offset : kernel.offset + kernel.size], arch.sm))
    except Unproved as error:
        why = error.message
    return ImageScan(
        arch=arch,
        compression=compression,
        stored_length=stored,
        raw_length=raw,
        instructions=None if why else dict(sorted(found.items())),
        kernels=tuple(kernel.name for kernel in cubin.kernels),
        tool=None if cubin.tool is None else f"{cubin.tool.name}: {cubin.tool.version}",
        why=why,
    )
