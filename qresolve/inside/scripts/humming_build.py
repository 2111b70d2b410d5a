"""Builds a kernel of Humming for a GPU that is not there, as its own heuristics and compiler would.

Runs in the interpreter of an environment with Humming, by itself, in a throwaway process: it imports nothing of
qresolve, reads one JSON document on stdin and writes one JSON object on the descriptor that its first argument names.

In:  ``{"sm": 120, "shape": [M, N, K], "device": {field: value}, "layer": {field: value}}``; ``device`` are the fields
     of the record that Humming reads of a GPU, ``layer`` those of its LayerConfig, types by their names
Out: ``{"release": version, "compiler": text, "cubin": base64, "config": text}`` or ``{"problem": text}``

What is replaced: the record of the device, and torch's current device; the kernel is compiled and never loaded.
"""

# ruff: noqa: BLE001, D103 - it stands in for Humming's own objects, and whatever goes wrong is an answer
from __future__ import annotations

import base64
import contextlib
import dataclasses
import importlib
import importlib.metadata
import json
import os
import sys
import types
from pathlib import Path
from typing import Any


def module(name: str) -> Any:
    return importlib.import_module(name)


class Rates(dict):  # type: ignore[type-arg]
    """Tensor-core rates of every type: they choose a tile, never what it multiplies."""

    def __missing__(self, key: str) -> float:
        return 1000.0

    def __contains__(self, key: object) -> bool:
        return True


def put_gpu(request: dict[str, Any]) -> None:
    """Make Humming's device record that of the GPU that is asked about."""
    torch = module("torch")
    torch.cuda.current_device = lambda: 0

    @contextlib.contextmanager
    def same(*_: Any) -> Any:
        yield

    torch.cuda.device = same
    sm = int(request["sm"])
    record = types.SimpleNamespace(
        index=0,
        name=f"no GPU, taken for sm{sm}",
        is_ppu=False,
        sm_version=sm,
        sm_major=sm // 10,
        sm_minor=sm % 10,
        tensorcore_tops=Rates(),
        **request["device"],
    )
    extension = types.SimpleNamespace(_DeviceInfo=lambda _index: record)
    for name in ("humming.utils.device", "humming.device"):
        module(name)._get_device_info_extension = lambda: extension  # noqa: SLF001 - the one place that asks the card


def build(request: dict[str, Any]) -> dict[str, Any]:
    put_gpu(request)
    configs = module("humming.config")
    kernels = module("humming.kernel.humming")
    rows, columns, depth = request["shape"]
    layer = configs.LayerConfig(shape_n=columns, shape_k=depth, sm_version=int(request["sm"]), **request["layer"])
    chosen = module("humming.tune").get_heuristics_config(layer, shape_m=rows)
    kernels.HummingKernel.register_kernel = lambda _self: None  # it would load the cubin into a driver
    known = {field.name for kind in (configs.LayerConfig, configs.ComputeConfig, configs.TuningConfig)
             for field in dataclasses.fields(kind)}  # fmt: skip
    arguments = {field.name: getattr(layer, field.name) for field in dataclasses.fields(configs.LayerConfig)}
    arguments |= {name: value for name, value in chosen.items() if name in known}
    kernel = kernels.HummingKernel(**arguments)
    return {
        "release": importlib.metadata.version("humming-kernels"),
        "compiler": kernel._get_compiler().signature(),  # noqa: SLF001 - Humming says it nowhere else
        "cubin": base64.b64encode(Path(kernel.kernel_filename).read_bytes()).decode(),
        "config": str(chosen.get("mma_type", "")),
    }


def main() -> None:
    own = int(sys.argv[1])
    request = json.load(sys.stdin)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        answer = build(request)
    except BaseException as error:
        import traceback  # noqa: PLC0415 - only here

        traceback.print_exc()
        lines = [line for line in str(error).strip().splitlines() if line.strip()]
        answer = {"problem": f"{type(error).__name__}: {lines[0][:300] if lines else ''}"}
    data = (json.dumps(answer) + "\n").encode()
    while data:
        data = data[os.write(own, data) :]


if __name__ == "__main__":
    main()
