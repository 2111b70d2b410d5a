"""A cubin: the ELF file that holds the machine code of one image for one arch.

Its header has the sm number and no suffix: that stands in the container's entry, or, in a loose cubin, in the note in
which ptxas keeps its command line (``-arch sm_120f``). Two layouts of the flags exist, told apart by the OS ABI byte:

    0x33 (until CUDA 12): e_flags bits 0-7 are the sm
    0x41 (CUDA 13, and sm_100 and later before it): bits 8-15 are the sm

Both were read off cubins that ptxas 12.9 and 13.0 made for known targets.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from qresolve.arch import ImageArch
from qresolve.machine_code.elf import CUBIN_MACHINE, ElfInvalid

if TYPE_CHECKING:
    from qresolve.arch import Suffix
    from qresolve.machine_code.fatbin import Buffer

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOBITS = 8
_OLD_ABI, _NEW_ABI = 0x33, 0x41
_KERNEL = b".text."
_TOOL_NOTE = b".note.nv.tkinfo"
_MOST_NAME = 64 * 1024  # bytes; mangled names of CUTLASS kernels have several thousand
_MOST_NOTE = 64 * 1024

_RELEASE = re.compile(rb"\bV(\d+\.\d+\.\d+)\b")
_TARGET = re.compile(rb"-arch[ =](?:sm|compute)_(\d{2,3})([af]?)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """Machine code of one function: its mangled name, where it starts in the cubin, and its length in bytes."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cubin:
    """What a cubin says of itself.

    ``arch`` has a suffix only where the compiler's note gives one. ``tool`` is the compiler with its release
    (``ptxas V13.0.88``), None where there is no note.
    """

    arch: ImageArch
    tool: str | None
    kernels: tuple[Kernel, ...]


def parse_cubin(data: Buffer) -> Cubin:
    """Read the headers of the cubin in ``data``; no code is copied.

    Raises:
        ElfInvalid: no cubin, or a table of it lies; the offset is from the start of the cubin.
    """
    view = memoryview(data)
    sm, sections, strings = _parse_tables(view)
    kernels = []
    suffix, tool = "", None
    for index, (name, kind, _flags, _address, offset, size, *_) in enumerate(sections):
        label = _name(view, strings, name)
        if not label.startswith(_KERNEL) and label != _TOOL_NOTE:
            continue
        if kind == _NOBITS or offset + size > len(view):
            raise ElfInvalid(f"section {index} is cut off", offset=offset)
        if label == _TOOL_NOTE:
            suffix, tool = _read_note(bytes(view[offset : offset + min(size, _MOST_NOTE)]), sm)
        else:
            text = label.removeprefix(_KERNEL).decode("utf-8", "replace")
            kernels.append(Kernel(name=text, offset=offset, size=size))
    return Cubin(arch=ImageArch(sm=sm, suffix=cast("Suffix", suffix)), tool=tool, kernels=tuple(kernels))


def _parse_tables(view: memoryview) -> tuple[int, list[tuple[int, ...]], tuple[int, ...]]:
    """The sm, the section headers, and that of the section with their names."""
    if len(view) < _HEADER.size or bytes(view[:6]) != b"\x7fELF\x02\x01":
        raise ElfInvalid("not a 64-bit little-endian ELF file", offset=0)
    header = _HEADER.unpack_from(view, 0)
    if header[2] != CUBIN_MACHINE:
        raise ElfInvalid(f"machine {header[2]} is not CUDA", offset=18)
    table, flags, entry_size, count, names_index = header[6], header[7], header[11], header[12], header[13]
    if view[7] not in (_OLD_ABI, _NEW_ABI):
        raise ElfInvalid(f"ABI 0x{view[7]:x} is unknown", offset=7)
    if not count or entry_size != _SECTION.size or names_index >= count:
        raise ElfInvalid(f"{count} section headers of {entry_size} bytes, names in {names_index}", offset=0)
    if table + count * _SECTION.size > len(view):
        raise ElfInvalid("the section table is cut off", offset=table)
    sections = [_SECTION.unpack_from(view, table + index * _SECTION.size) for index in range(count)]
    sm = flags & 0xFF if view[7] == _OLD_ABI else flags >> 8 & 0xFF
    if not sm:
        raise ElfInvalid(f"flags 0x{flags:x} name no arch", offset=48)
    return sm, sections, sections[names_index]


def _name(view: memoryview, strings: tuple[int, ...], index: int) -> bytes:
    start, size = strings[4], strings[5]
    if index >= size or start + size > len(view):
        raise ElfInvalid("a section's name is cut off", offset=start)
    return bytes(view[start + index : min(start + size, start + index + _MOST_NAME)]).split(b"\0", 1)[0]


def _read_note(note: bytes, sm: int) -> tuple[str, str | None]:
    """The suffix and the compiler. A note that speaks of another sm says nothing about this one's suffix."""
    release = _RELEASE.search(note)
    target = _TARGET.search(note)
    suffix = target[2].decode() if target is not None and int(target[1]) == sm else ""
    name = "ptxas" if b"\0ptxas\0" in note else "compiler"
    return suffix, None if release is None else f"{name} V{release[1].decode()}"
