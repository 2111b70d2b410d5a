"""What a shared library holds for the GPU and what it asks of the host.

Read are the fatbin containers by translation unit, the needed libraries and the newest glibc version.

Own ``struct`` code instead of pyelftools: only four tables are read, and a library of 93 MB with 100 000
symbols takes a fraction of a second instead of several.

``.nv_fatbin`` holds what the driver loads as it is. ``__nv_relfatbin`` holds relocatable code (``nvcc -rdc``), the
input of the device linker, and it is not dead: where the linked image does not fit the GPU, the driver links these
images when the library is loaded, and compiles PTX among them. Measured on an H200 with driver 580.159.04, programs
and shared libraries of CUDA 13.0, stripped or not: objects with sm_90, sm_90a or compute_80 and a linked image for
sm_100 alone ran on sm90; objects with sm_80 or compute_120 did not. So they are told apart, never left out. Some
libraries hold registered containers in other data sections (large-model builds: ``.lrodata``), so these are searched
too.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qresolve.errors import Unproved
from qresolve.machine_code.fatbin import parse_section, search_containers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from qresolve.arch import ImageArch
    from qresolve.machine_code.fatbin import Buffer, Container

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC = struct.Struct("<qQ")
_NEEDED_FILE = struct.Struct("<HHIII")
_NEEDED_VERSION = struct.Struct("<IHHII")

_TYPE_PROGBITS, _TYPE_SYMTAB, _TYPE_DYNAMIC, _TYPE_VERNEED, _TYPE_NOBITS = 1, 2, 6, 0x6FFFFFFE, 8
_FLAG_ALLOC, _FLAG_EXECUTABLE = 0x2, 0x4
_SYMBOL_FILE = 4
_TAG_NEEDED = 1

CUBIN_MACHINE = 190
"""``e_machine`` of a cubin (EM_CUDA)."""

_CUBIN_MAGIC = b"\x7fELF\x02\x01\x01"
_LOADED_SECTION = b".nv_fatbin"
_LINKER_SECTION = b"__nv_relfatbin"
_CONTAINER_SYMBOL = "fatbinData"
# What nvcc calls the host file of a translation unit; the middle is its process id.
_UNIT_FILE = re.compile(r"\Atmpxft_[0-9a-f]+_[0-9a-f]+-\d+_(?P<unit>.+?)(?:\.compute_\w+|\.sm_\w+)?\.cudafe\d+\.cpp\Z")
_GLIBC = re.compile(r"\AGLIBC_(?P<version>\d+(?:\.\d+)+)\Z")


class ElfInvalid(Unproved):
    """The bytes are no 64-bit little-endian ELF file, or a table of it lies."""

    def __init__(self, problem: str, *, offset: int) -> None:
        super().__init__(f"ELF at offset {offset}: {problem}")
        self.problem = problem
        self.offset = offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One container; ``name`` is the source file's stem, None where the library is stripped.

    ``section`` is the one that holds it. Offsets in ``container`` are from the start of the file.
    """

    name: str | None
    section: str
    container: Container

    @property
    def images(self) -> tuple[ImageArch, ...]:
        """What the driver could load, in file order, each once."""
        return self.container.images


@dataclass(frozen=True, slots=True, kw_only=True)
class LooseCubin:
    """A cubin in a data section: where it starts in the file, and its length in bytes."""

    section: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryMeasurement:
    """What was read from one shared library.

    ``needed`` keeps the file's order. ``glibc`` is the newest ``GLIBC_x.y`` asked for, as text, None where
    no versioned symbol of glibc is used. ``units`` keep the containers' order in the file. ``relocatable`` are those
    that the driver links where no linked image fits. ``loose`` are cubins among other data, in no container: what
    loads them is the library's own code.
    """

    path: str
    needed: tuple[str, ...]
    glibc: str | None
    units: tuple[Unit, ...]
    relocatable: tuple[Unit, ...]
    loose: tuple[LooseCubin, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    name: bytes
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int


def parse_library(data: Buffer, *, path: str) -> LibraryMeasurement:
    """Measure the shared library in ``data``; ``path`` is its name in the wheel and only copied.

    Raises:
        ElfInvalid: no ELF file that can be read.
        FatbinInvalid: ``.nv_fatbin`` holds something else than containers.
    """
    view = memoryview(data)
    sections = _parse_sections(view)
    placed = tuple(_parse_containers(data, sections))
    names = _parse_unit_names(view, sections, holders=[sections.index(one) for one in {one for one, _ in placed}])
    units = [
        Unit(
            name=names.get(section.address + container.offset - section.offset),
            section=section.name.decode("utf-8", "replace"),
            container=container,
        )
        for section, container in placed
    ]
    linker_section = _LINKER_SECTION.decode()
    return LibraryMeasurement(
        path=path,
        needed=_parse_needed(view, sections),
        glibc=_parse_glibc(view, sections),
        units=tuple(unit for unit in units if unit.section != linker_section),
        relocatable=tuple(unit for unit in units if unit.section == linker_section),
        loose=tuple(_search_cubins(data, sections, placed)),
    )


def _parse_sections(view: memoryview) -> tuple[_Section, ...]:
    if len(view) < _HEADER.size or bytes(view[:6]) != b"\x7fELF\x02\x01":
        raise ElfInvalid("not a 64-bit little-endian ELF file", offset=0)
    header = _HEADER.unpack_from(view, 0)
    table, entry_size, count, names_index = header[6], header[11], header[12], header[13]
    if count and entry_size != _SECTION.size:
        raise ElfInvalid(f"section headers of {entry_size} bytes", offset=0)
    if table + count * _SECTION.size > len(view):
        raise ElfInvalid("the section table is cut off", offset=table)
    raw = [_SECTION.unpack_from(view, table + index * _SECTION.size) for index in range(count)]
    if count and names_index >= count:
        raise ElfInvalid(f"section {names_index} of {count} is to hold the names", offset=0)
    sections = []
    for index, (name, kind, flags, address, offset, size, link, info, _align, _size) in enumerate(raw):
        if kind != _TYPE_NOBITS and offset + size > len(view):
            raise ElfInvalid(f"section {index} is cut off", offset=offset)
        strings = raw[names_index]
        sections.append(
            _Section(
                name=_string(view, start=strings[4], size=strings[5], index=name),
                kind=kind,
                flags=flags,
                address=address,
                offset=offset,
                size=size,
                link=link,
                info=info,
            )
        )
    return tuple(sections)


def _bytes(view: memoryview, section: _Section) -> memoryview:
    return view[section.offset : section.offset + section.size]


def _string(view: memoryview, *, start: int, size: int, index: int, most: int = 4096) -> bytes:
    """The NUL-terminated string ``index`` bytes into the string table at ``start``."""
    if index >= size:
        return b""
    return bytes(view[start + index : min(start + size, start + index + most)]).split(b"\0", 1)[0]


def _linked_string(view: memoryview, sections: tuple[_Section, ...], section: _Section, index: int) -> str:
    if section.link >= len(sections):
        raise ElfInvalid(f"string table {section.link} does not exist", offset=section.offset)
    strings = sections[section.link]
    return _string(view, start=strings.offset, size=strings.size, index=index).decode("utf-8", "replace")


def _parse_containers(data: Buffer, sections: tuple[_Section, ...]) -> Iterator[tuple[_Section, Container]]:
    """Each container that a driver may load or link, with the section that holds it."""
    for section in sections:
        if section.name == _LOADED_SECTION:
            found = parse_section(data, section.offset, section.offset + section.size)
        elif _holds_data(section):
            found = search_containers(data, section.offset, section.offset + section.size)
        else:
            continue
        for container in found:
            yield section, container


def _holds_data(section: _Section) -> bool:
    """Whether it is loaded with the library and is no code."""
    return section.kind == _TYPE_PROGBITS and bool(section.flags & _FLAG_ALLOC) and not section.flags & _FLAG_EXECUTABLE


def _search_cubins(
    data: Buffer, sections: tuple[_Section, ...], placed: tuple[tuple[_Section, Container], ...]
) -> Iterator[LooseCubin]:
    """Cubins in data sections and in no container. A cubin ends with its section table, as ptxas writes it."""
    view = memoryview(data)
    searched = bytes(view) if isinstance(data, memoryview) else data
    spans = sorted((container.offset, container.end) for _, container in placed)
    for section in sections:
        if section.name == _LOADED_SECTION or not _holds_data(section):
            continue
        end = section.offset + section.size
        position = searched.find(_CUBIN_MAGIC, section.offset, end)
        while position >= 0:
            length = _cubin_length(view, position, end)
            inside = spans[bisect_left(spans, (position + 1, 0)) - 1 :][:1] if spans else []
            if length and not (inside and inside[0][0] <= position < inside[0][1]):
                yield LooseCubin(section=section.name.decode("utf-8", "replace"), offset=position, length=length)
            position = searched.find(_CUBIN_MAGIC, position + max(length, 1), end)


def _cubin_length(view: memoryview, start: int, end: int) -> int:
    """The length of the cubin at ``start``, 0 where none is or it does not end before ``end``."""
    if start + _HEADER.size > end:
        return 0
    header = _HEADER.unpack_from(view, start)
    length = header[6] + header[11] * header[12]
    machine, entry_size = header[2], header[11]
    fits = machine == CUBIN_MACHINE and entry_size == _SECTION.size and _HEADER.size <= header[6]
    return int(length) if fits and start + length <= end else 0


def parse_unit_name(file_symbol: str) -> str | None:
    """The unit that nvcc compiled as ``file_symbol``, or None for a file of another compiler."""
    match = _UNIT_FILE.match(file_symbol)
    return match["unit"] if match else None


def _parse_unit_names(view: memoryview, sections: tuple[_Section, ...], *, holders: list[int]) -> Mapping[int, str]:
    """Container address → unit: a FILE symbol stands before the local symbols of its file.

    ``holders`` are the indexes of the sections that hold containers.

    Libraries have hundreds of thousands of symbols, and a few hundred of them matter: they are found in the columns of
    the table by searches in C, so that reading headers stays a matter of milliseconds.
    """
    names: dict[int, str] = {}
    for section in sections:
        if section.kind != _TYPE_SYMTAB or section.link >= len(sections):
            continue
        table = bytes(_bytes(view, section)[: section.size - section.size % _SYMBOL.size])
        low, high = table[6 :: _SYMBOL.size], table[7 :: _SYMBOL.size]
        files = _positions(table[4 :: _SYMBOL.size], bytes([_SYMBOL_FILE]))  # local binding is 0
        for holder in holders:
            for position in _positions(low, bytes([holder & 0xFF])):
                if high[position] != holder >> 8:
                    continue
                name, _info, _other, _index, value, _size = _SYMBOL.unpack_from(table, position * _SYMBOL.size)
                before = bisect_left(files, position) - 1
                if before < 0 or _linked_string(view, sections, section, name) != _CONTAINER_SYMBOL:
                    continue
                (file,) = struct.unpack_from("<I", table, files[before] * _SYMBOL.size)
                if (unit := parse_unit_name(_linked_string(view, sections, section, file))) is not None:
                    names[value] = unit
    return names


def _positions(column: bytes, byte: bytes) -> list[int]:
    """Every position at which ``byte`` stands, rising."""
    found = []
    position = column.find(byte)
    while position >= 0:
        found.append(position)
        position = column.find(byte, position + 1)
    return found


def _parse_needed(view: memoryview, sections: tuple[_Section, ...]) -> tuple[str, ...]:
    needed = []
    for section in sections:
        if section.kind != _TYPE_DYNAMIC:
            continue
        whole = section.size - section.size % _DYNAMIC.size
        for tag, value in _DYNAMIC.iter_unpack(_bytes(view, section)[:whole]):
            if tag == 0:
                break
            if tag == _TAG_NEEDED:
                needed.append(_linked_string(view, sections, section, value))
    return tuple(needed)


def _parse_glibc(view: memoryview, sections: tuple[_Section, ...]) -> str | None:
    versions: set[str] = set()
    for section in sections:
        if section.kind == _TYPE_VERNEED:
            versions.update(_parse_needed_versions(view, sections, section))
    return newest_glibc(versions)


def newest_glibc(names: Iterable[str]) -> str | None:
    """The newest ``x.y`` of the version names ``GLIBC_x.y``; other names are of other libraries."""
    matches = [match["version"] for match in map(_GLIBC.match, names) if match]
    return max(matches, key=lambda text: tuple(map(int, text.split("."))), default=None)


def _parse_needed_versions(view: memoryview, sections: tuple[_Section, ...], section: _Section) -> Iterator[str]:
    """The version names of ``.gnu.version_r``: a chain of files, each with a chain of versions.

    The chains only go forward (an offset of 0 ends them), so the walk is bounded by the section.
    """
    data = _bytes(view, section)
    left = len(data) // _NEEDED_VERSION.size
    file_position = 0
    while file_position + _NEEDED_FILE.size <= len(data):
        _version, count, _file, first, next_file = _NEEDED_FILE.unpack_from(data, file_position)
        position = file_position + first
        for _ in range(count):
            left -= 1
            if left < 0 or position + _NEEDED_VERSION.size > len(data):
                raise ElfInvalid("the version records do not fit in their section", offset=section.offset + position)
            _hash, _flags, _other, name, next_version = _NEEDED_VERSION.unpack_from(data, position)
            yield _linked_string(view, sections, section, name)
            if next_version == 0:
                break
            position += next_version
        if next_file == 0:
            return
        file_position += next_file
