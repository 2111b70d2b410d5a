"""An inspection in words: each binary, what of it loads where, then the answers."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from qresolve.inspect.summary import compressions, cuda_of, image_counts, load_counts, tools
from qresolve.report.table import render_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qresolve.inspect.answer import InspectData
    from qresolve.inspect.perform import Inspection
    from qresolve.machine_code.scan import BinaryScan, ImageScan, UnitScan

_LEGEND = (
    "specific/other/ptx/none: units of which the driver loads machine code made for this part or its family, other "
    "machine code that runs there, PTX that it compiles first, nothing. Nothing is usual for units made for others."
)
_CELL_GAP = 2


def inspect_lines(inspection: Inspection, data: InspectData, *, width: int, verbose: bool) -> Iterator[str]:
    """The whole report."""
    size = "" if inspection.size is None else f"{megabytes(inspection.size)}, "
    yield f"{inspection.name}: {inspection.kind}, {size}{megabytes(inspection.read)} read"
    shown = [scan for scan in inspection.binaries if scan.units]
    for scan in shown:
        yield ""
        yield from _binary_lines(scan, width=width)
        if verbose:
            yield from (f"  {line}" for line in _unit_lines(scan, data, width=width - 2))
    if shown:
        yield ""
        yield from _load_lines(shown, inspection, data, width=width)
        yield from textwrap.wrap(_LEGEND, width)
    if plain := [scan.path for scan in inspection.binaries if not scan.units]:
        yield ""
        yield from textwrap.wrap(f"without code for GPUs: {', '.join(plain)}", width, subsequent_indent="  ")
    for one in inspection.not_read:
        if one.broken or not inspection.answers:
            yield from textwrap.wrap(f"not read: {one.path}: {one.why}", width, subsequent_indent="  ")
    if inspection.answers:
        yield ""
        head = ("format", "arch", "native", "why")
        rows = [(one.ask.key, f"sm{one.sm}", one.outcome, one.why) for one in inspection.answers]
        yield from render_table(head, rows, width=width)


def megabytes(size: int) -> str:
    """A length as people write it; a megabyte is a million bytes."""
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} kB"


def _binary_lines(scan: BinaryScan, *, width: int) -> Iterator[str]:
    facts = [megabytes(scan.size)]
    if cuda := cuda_of(scan):
        facts.append(f"linked to CUDA {cuda}")
    if scan.glibc:
        facts.append(f"glibc {scan.glibc} or newer")
    loaded = len(scan.loaded)
    if loaded:
        facts.append(f"{loaded} unit{'' if loaded == 1 else 's'} ({'/'.join(compressions(scan))})")
    if scan.relocatable:
        facts.append(f"{len(scan.relocatable)} of relocatable code, which the driver links where no image fits")
    yield from textwrap.wrap(f"{scan.path}: {'; '.join(facts)}", width, subsequent_indent="  ")
    if images := ", ".join(f"{arch} ({count})" for arch, count in image_counts(scan)):
        yield from _indented(f"images: {images}", width)
    if made := tools(scan):
        yield from _indented(f"made by {'; '.join(made)}", width)


def _indented(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="    ", break_long_words=False)


def _load_lines(scans: list[BinaryScan], inspection: Inspection, data: InspectData, *, width: int) -> Iterator[str]:
    """A row for each binary, a column for each arch; archs on which everything loads alike share one."""
    counts = [load_counts(scan, inspection.sms, data.architectures) for scan in scans]
    columns: dict[tuple[str, ...], list[str]] = {}
    for position, one in enumerate(counts[0]):
        cells = tuple(
            f"{row[position].specific}/{row[position].sass}/{row[position].ptx}/{row[position].none}" for row in counts
        )
        columns.setdefault(cells, []).append(f"sm{one.sm}")
    label = max(len(_stem(scan.path)) for scan in scans)
    waiting = [(", ".join(archs), cells) for cells, archs in columns.items()]
    while waiting:
        taken = 0
        used = label
        for head, cells in waiting:
            used += _CELL_GAP + max(len(head), *(len(cell) for cell in cells))
            if taken and used > width:
                break
            taken += 1
        block, waiting = waiting[:taken], waiting[taken:]
        rows = [(_stem(scan.path), *(cells[row] for _, cells in block)) for row, scan in enumerate(scans)]
        yield from render_table(("", *(head for head, _ in block)), rows, width=max(width, used))
        yield ""


def _stem(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0] or path


def _unit_lines(scan: BinaryScan, data: InspectData, *, width: int) -> Iterator[str]:
    """A line for each thing that images of a unit hold; images that hold the same share one."""
    rows = []
    for unit in scan.units:
        kernels = [name for image in unit.images for name in image.kernels or ()]
        families = data.families.of(path=scan.path, unit=unit.name, kernels=kernels)
        served = ", ".join(key for family in families for key in family.serves)
        held: dict[str, list[str]] = {}
        for image in unit.images:
            held.setdefault(_held(image), []).append(str(image.arch))
        for position, (text, archs) in enumerate(held.items()):
            first = position == 0
            rows.append((unit_name(unit) if first else "", ", ".join(archs), text, served if first else ""))
    yield from render_table(("unit", "images", "instructions", "serves"), rows, width=width)


def _held(image: ImageScan) -> str:
    if image.instructions is None:
        return image.why
    return ", ".join(f"{name} {count}" for name, count in image.instructions.items()) or "no tensor cores"


def unit_name(unit: UnitScan) -> str:
    """The translation unit, or where the container is."""
    return (unit.name or f"at {unit.offset:#x}") + (" (relocatable)" if unit.relocatable else "")
