"""An inspection as JSON (``qresolve.inspect/1``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qresolve.inspect.summary import cuda_of, load_counts

if TYPE_CHECKING:
    from qresolve.inspect.answer import Answer, InspectData, Seen
    from qresolve.inspect.perform import Inspection
    from qresolve.machine_code.scan import BinaryScan, ImageScan, UnitScan

SCHEMA = "qresolve.inspect/1"


def inspect_mapping(inspection: Inspection, data: InspectData) -> dict[str, Any]:
    """What ``inspect --json`` prints."""
    return {
        "schema": SCHEMA,
        "subject": {
            "name": inspection.name,
            "kind": inspection.kind,
            "size": inspection.size,
            "read": inspection.read,
        },
        "binaries": [_binary(one, inspection, data) for one in inspection.binaries],
        "not_read": [{"path": one.path, "why": one.why, "broken": one.broken} for one in inspection.not_read],
        "answers": [_answer(one) for one in inspection.answers],
    }


def _binary(scan: BinaryScan, inspection: Inspection, data: InspectData) -> dict[str, Any]:
    return {
        "path": scan.path,
        "kind": scan.kind,
        "size": scan.size,
        "needed": list(scan.needed),
        "cuda": cuda_of(scan),
        "glibc": scan.glibc,
        "loads": [
            {
                "arch": f"sm{count.sm}",
                "specific": count.specific,
                "sass": count.sass,
                "ptx": count.ptx,
                "none": count.none,
            }
            for count in load_counts(scan, inspection.sms, data.architectures)
        ],
        "units": [_unit(unit, scan, data) for unit in scan.units],
    }


def _unit(unit: UnitScan, scan: BinaryScan, data: InspectData) -> dict[str, Any]:
    kernels = [name for image in unit.images for name in image.kernels or ()]
    return {
        "name": unit.name,
        "section": unit.section,
        "offset": unit.offset,
        "relocatable": unit.relocatable,
        "families": [one.id for one in data.families.of(path=scan.path, unit=unit.name, kernels=kernels)],
        "images": [_image(image) for image in unit.images],
    }


def _image(image: ImageScan) -> dict[str, Any]:
    return {
        "arch": str(image.arch),
        "compression": image.compression,
        "stored": image.stored_length,
        "raw": image.raw_length,
        "tool": image.tool,
        "kernels": None if image.kernels is None else list(image.kernels),
        "instructions": None if image.instructions is None else dict(image.instructions),
        "why": image.why or None,
    }


def _answer(one: Answer) -> dict[str, Any]:
    return {
        "format": one.ask.scheme.format,
        "scheme": one.ask.scheme.name,
        "role": one.ask.role,
        "arch": f"sm{one.sm}",
        "outcome": one.outcome,
        "why": one.why,
        "product": one.product,
        "seen": [_seen(item) for item in one.seen],
    }


def _seen(one: Seen) -> dict[str, Any]:
    return {
        "library": one.library,
        "unit": one.unit,
        "families": list(one.families),
        "image": None if one.image is None else str(one.image),
        "state": one.state,
        "instructions": list(one.instructions),
    }
