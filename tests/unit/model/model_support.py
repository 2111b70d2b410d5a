"""Checkpoints of the tests: recorded shapes of well-known models in the formats' own words, and changes to them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qresolve.knowledge.load import read_formats
from qresolve.model.parse import parse_model
from qresolve.model.read import read_checkpoint
from qresolve.model.records import read_checkpoint_book

if TYPE_CHECKING:
    from qresolve.knowledge.records import FormatBook
    from qresolve.model.model import Model
    from qresolve.model.records import CheckpointBook

CHECKPOINTS = Path(__file__).parents[2] / "data" / "checkpoints"


@cache
def books() -> tuple[FormatBook, CheckpointBook]:
    formats = read_formats()
    return formats, read_checkpoint_book(formats)


def parsed(path: str | Path, *, tp: int | None = None, ep: int | None = None) -> Model:
    formats, book = books()
    return parse_model(read_checkpoint(str(path)), tp=tp, ep=ep, formats=formats, book=book)


def config(name: str) -> Any:
    return json.loads((CHECKPOINTS / name / "config.json").read_text(encoding="utf-8"))


def changed(folder: Path, name: str, /, quantization: dict[str, Any] | None = None, **keys: Any) -> Path:
    """A copy of a checkpoint's config.json in a folder of its own, with keys changed; None removes one."""
    found = config(name)
    for key, value in keys.items():
        found[key] = value
        if value is None:
            del found[key]
    if quantization is not None:
        found["quantization_config"] = {**found.get("quantization_config", {}), **quantization}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps(found), encoding="utf-8")
    return path
