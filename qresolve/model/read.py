"""Reading a checkpoint's JSON files from disk. They are untrusted: bounded, only parsed, nothing is run or fetched."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qresolve.errors import DataInvalid, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_BYTES = 16 * 1024 * 1024
"""The largest real config.json (one entry a quantized layer) is a few MiB."""

CONFIG, MODELOPT, GPTQ = "config.json", "hf_quant_config.json", "quantize_config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The parsed JSON of a checkpoint. ``modelopt`` and ``gptq`` are the files beside config.json, None where absent.

    ``given`` is the path as it was given: for messages and hints, never for a lock.
    """

    given: str
    config: Mapping[str, Any]
    modelopt: Mapping[str, Any] | None = None
    gptq: Mapping[str, Any] | None = None


def read_checkpoint(given: str) -> Checkpoint:
    """Read ``--model``: a config.json, one of the quantization files beside it, or the folder that holds them.

    Raises:
        UsageError: nothing there that can be read. DataInvalid: not JSON; the message names file and position.
    """
    path = Path(given)
    if path.is_dir():
        folder: Path | None = path
        main = path / CONFIG
        if not main.is_file() and not (path / MODELOPT).is_file() and not (path / GPTQ).is_file():
            raise UsageError(
                f"`{given}` holds no {CONFIG}",
                hint="--model names a checkpoint's config.json or the folder that holds it",
            )
    else:
        if not path.exists():
            raise UsageError(f"`{given}` does not exist", hint="--model names a file or folder on this machine")
        folder = path.parent if path.name in {CONFIG, MODELOPT, GPTQ} else None
        main = path if path.name not in {MODELOPT, GPTQ} else path.parent / CONFIG
    beside = {name: _optional(folder / name) for name in (MODELOPT, GPTQ)} if folder is not None else {}
    config = _read(main) if main.is_file() or folder is None else {}
    if "quantization" in config and "model_type" not in config:
        # A ModelOpt file under another name.
        return Checkpoint(given=given, config={}, modelopt=config)
    return Checkpoint(given=given, config=config, modelopt=beside.get(MODELOPT), gptq=beside.get(GPTQ))


def _optional(path: Path) -> Mapping[str, Any] | None:
    return _read(path) if path.is_file() else None


def _read(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise UsageError(f"`{path}` is not a file", hint="--model names a checkpoint's config.json or its folder")
    try:
        with path.open("rb") as stream:
            raw = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read: {error.strerror or error}") from error
    if len(raw) > MOST_BYTES:
        raise UsageError(
            f"`{path}` is larger than {MOST_BYTES} bytes, which no checkpoint's configuration is",
            hint="--model names config.json, not the weights",
        )
    try:
        found = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DataInvalid.at(str(path), "", f"not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise DataInvalid.at(
            str(path), "", f"not JSON at line {error.lineno} column {error.colno}: {error.msg}"
        ) from error
    except (RecursionError, ValueError) as error:
        raise DataInvalid.at(str(path), "", "nested too deeply, or a number in it is too long") from error
    if not isinstance(found, dict):
        raise DataInvalid.at(str(path), "", f"must be an object, not {type(found).__name__}")
    return found
