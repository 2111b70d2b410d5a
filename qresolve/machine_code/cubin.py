"""A cubin: the ELF file with the machine code of one architecture, as it stands in a fatbin or alone.

Own ``struct`` code for the reason given in ``elf.py``. The layout of the flags and notes is not published. It was
read from cubins of ptxas 12.4 to 13.4 for known targets (``tests/data/sass/regenerate.py``)::

    e_flags:          sm in bits 8 to 15 where the ABI version (header byte 8) is 8 or more, else in bits 0 to 7
    .note.nv.tkinfo:  u32 layout (2) | five u32 offsets of strings behind them: object, tool, version, build, options
    .note.nv.cuinfo:  u16 layout (2) | u16 sm that was compiled for | u32 toolkit, 130 for 13.0

The flags do not tell ``sm_120``, ``sm_120a`` and ``sm_120f`` apart; the options in the note do (``-arch sm_120f``).
Where the note is missing (ptxas before 13, and stripped cubins) or names another architecture, the suffix is not
known; before sm_90 there is none.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from qresolve.machine_code.elf import ElfInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qresolve.machine_code.fatbin import Buffer

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOTE = struct.Struct("<III")
_TOOL = struct.Struct("<6I")
_TOOLKIT = struct.Struct("<HHI")

_MACHINE = 190
_MAGIC = b"\x7fELF\x02\x01"
_ABI_BYTE, _ABI_WITH_WIDE_FLAGS = 8, 8
_EXTENDED = 0xFFFF
_PROGBITS, _STRINGS, _NOTE_SECTION = 1, 3, 7
_NOTE_NAME = b"NVIDIA Corp"
_TOOL_NOTE, _TOOLKIT_NOTE = 2000, 1000
_LAYOUT = 2
_MOST_NAME = 1 << 16
# sm_90a is the first architecture that is not its number alone.
_FIRST_WITH_SUFFIX = 90
_CODE = b".text."
_TARGET = re.compile(
    r"(?:\A|\s)(?:-arch|-gpu-name|--gpu-name|--gpu-architecture)[= ]+sm_(?P<sm>\d+)(?P<suffix>[af]?)(?=\s|\Z)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """Machine code of one function: mangled name, and where it stands, in bytes from the start of the cubin."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """What made the cubin, in its own words, such as ``Cuda compilation tools, release 13.0, V13.0.88``."""

    name: str
    version: str
    build: str
    options: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cubin:
    """``suffix`` and ``toolkit`` (``13.0``) are None where the notes do not tell; kernels keep the file's order."""

    sm: int
    suffix: Literal["", "a", "f"] | None
    tool: Tool | None
    toolkit: str | None
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    name: int
    kind: int
    offset: int
    size: int


def parse_cubin(data: Buffer) -> Cubin:
    """Read the headers and notes of the cubin in ``data``; the code itself is not touched or copied.

    Raises:
        ElfInvalid: no cubin, or one whose tables or sections do not fit in ``data``.
    """
    view = memoryview(data).cast("B")
    if len(view) < _HEADER.size or bytes(view[: len(_MAGIC)]) != _MAGIC:
        raise ElfInvalid("not a 64-bit little-endian ELF file", offset=0)
    header = _HEADER.unpack_from(view, 0)
    if header[2] != _MACHINE:
        raise ElfInvalid(f"machine {header[2]} is not NVIDIA's", offset=0)
    flags = header[7]
    sm = flags >> 8 & 0xFF if view[_ABI_BYTE] >= _ABI_WITH_WIDE_FLAGS else flags & 0xFF
    sections, names = _parse_sections(view, header)
    tool: Tool | None = None
    toolkit: str | None = None
    for kind, description in _notes(view, sections):
        if kind == _TOOL_NOTE and tool is None:
            tool = _parse_tool(description)
        elif kind == _TOOLKIT_NOTE and toolkit is None:
            toolkit = _parse_toolkit(description)
    return Cubin(
        sm=sm, suffix=_suffix(tool, sm), tool=tool, toolkit=toolkit, kernels=tuple(_kernels(view, sections, names))
    )


def _parse_sections(view: memoryview, header: tuple[int, ...]) -> tuple[tuple[_Section, ...], _Section | None]:
    """The sections, and the one with their names."""
    table, entry_size, count, names = header[6], header[11], header[12], header[13]
    if table == 0:
        return (), None
    if entry_size != _SECTION.size:
        raise ElfInvalid(f"section headers of {entry_size} bytes", offset=0)
    if table + _SECTION.size > len(view):
        raise ElfInvalid("the section table is cut off", offset=table)
    # Where a number does not fit in the header, the first section has it.
    first = _SECTION.unpack_from(view, table)
    count = count or first[5]
    names = first[6] if names == _EXTENDED else names
    if count > (len(view) - table) // _SECTION.size:
        raise ElfInvalid("the section table is cut off", offset=table)
    if count and names >= count:
        raise ElfInvalid(f"section {names} of {count} is to hold the names", offset=0)
    sections = []
    for index in range(count):
        fields = _SECTION.unpack_from(view, table + index * _SECTION.size)
        section = _Section(name=fields[0], kind=fields[1], offset=fields[4], size=fields[5])
        # Of other kinds some have a size and no bytes, also of NVIDIA's own (`.nv_debug.shared`).
        if section.kind in (_PROGBITS, _STRINGS, _NOTE_SECTION) and section.offset + section.size > len(view):
            raise ElfInvalid(f"section {index} is cut off", offset=section.offset)
        sections.append(section)
    if not sections or sections[names].kind != _STRINGS:
        return tuple(sections), None
    return tuple(sections), sections[names]


def _kernels(view: memoryview, sections: tuple[_Section, ...], names: _Section | None) -> Iterator[Kernel]:
    if names is None:
        return
    strings = view[names.offset : names.offset + names.size]
    # No two functions share a name, so that all names together fit in the table that holds them.
    left = len(strings)
    for section in sections:
        if section.kind != _PROGBITS or bytes(strings[section.name : section.name + len(_CODE)]) != _CODE:
            continue
        name = bytes(strings[section.name : section.name + _MOST_NAME]).split(b"\0", 1)[0]
        left -= len(name)
        if left < 0:
            raise ElfInvalid("the names of the code sections are longer than their table", offset=names.offset)
        yield Kernel(name=name[len(_CODE) :].decode("utf-8", "replace"), offset=section.offset, size=section.size)


def _notes(view: memoryview, sections: tuple[_Section, ...]) -> Iterator[tuple[int, memoryview]]:
    """Type and description of NVIDIA's notes; one that is cut off ends its section."""
    for section in sections:
        if section.kind != _NOTE_SECTION:
            continue
        position, end = section.offset, section.offset + section.size
        while position + _NOTE.size <= end:
            name_size, size, kind = _NOTE.unpack_from(view, position)
            name = position + _NOTE.size
            start = name + (name_size + 3 & ~3)
            if start + size > end:
                raise ElfInvalid("a note is cut off", offset=position)
            if bytes(view[name : name + len(_NOTE_NAME)]) == _NOTE_NAME:
                yield kind, view[start : start + size]
            position = start + (size + 3 & ~3)


def _parse_tool(description: memoryview) -> Tool | None:
    if len(description) < _TOOL.size:
        return None
    layout, _object, *offsets = _TOOL.unpack_from(description, 0)
    if layout != _LAYOUT:
        return None
    strings = bytes(description[_TOOL.size :])
    name, version, build, options = (strings[at:].split(b"\0", 1)[0].decode("utf-8", "replace") for at in offsets)
    return Tool(name=name, version=version, build=build, options=options)


def _parse_toolkit(description: memoryview) -> str | None:
    if len(description) < _TOOLKIT.size:
        return None
    layout, _sm, number = _TOOLKIT.unpack_from(description, 0)
    return f"{number // 10}.{number % 10}" if layout == _LAYOUT else None


def _suffix(tool: Tool | None, sm: int) -> Literal["", "a", "f"] | None:
    """From the options that ptxas got; None where they do not say or speak of another architecture."""
    if tool is None and sm < _FIRST_WITH_SUFFIX:
        return ""
    targets = {(match["sm"], match["suffix"]) for match in _TARGET.finditer(tool.options)} if tool else set()
    if len(targets) != 1:
        return None
    number, suffix = targets.pop()
    if int(number) != sm:
        return None
    return "a" if suffix == "a" else "f" if suffix == "f" else ""
