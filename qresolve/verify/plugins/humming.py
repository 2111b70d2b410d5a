"""Humming: its own kernel, built by its own heuristics and compiler for an arch without a card, then scanned."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from qresolve.inside.process import SCRIPTS, run_script
from qresolve.knowledge.devices import read_devices
from qresolve.verify.built import judge_built
from qresolve.verify.evidence import Binds, Outcome
from qresolve.verify.rungs import TOOLCHAIN

if TYPE_CHECKING:
    from qresolve.facts import Value
    from qresolve.knowledge.devices import Device
    from qresolve.knowledge.records import Route, Scheme
    from qresolve.verify.evidence import Evidence
    from qresolve.verify.plugins.plugin import Asked, Looking

_DISTRIBUTION = "humming-kernels"
_ROWS = 4096  # a batch that fills its largest tile; small ones hide native paths
# Humming's names of what a scheme's weights and activations are.
_TYPES = {
    "e2m1": "float4e2m1", "e3m2": "float6e3m2", "e2m3": "float6e2m3", "e4m3": "float8e4m3", "e5m2": "float8e5m2",
    "int8": "int8", "int4": "int4",
}  # fmt: skip
_REGISTERS = 65536  # of an SM, and of a block's threads 1024 at most: the same on every arch since sm_50


class Humming:
    """The plug-in."""

    def build(self, looking: Looking, asked: Asked, route: Route) -> Evidence:
        """Build for the arch with the activations that the scheme has; what it resolves otherwise is not built."""
        row, environment = asked.row, looking.environment

        def unproved(why: str) -> Evidence:
            return TOOLCHAIN.observed(row, route.name, Outcome.UNPROVED, binds=Binds.ROUTE, why=why)

        version = environment.versions.get(_DISTRIBUTION)
        if version is None:
            return unproved(f"{_DISTRIBUTION} is not installed")
        device = read_devices().get(row.sm)
        if device is None:
            return unproved(f"no record says what a device of {row.arch} is like")
        layer = layer_of(asked.scheme, dtype=str(asked.facts.get("workload.dtype").value or "bf16"))
        if layer is None:
            return unproved(f"nobody knows how Humming is asked for {row}")
        request = {
            "sm": row.sm,
            "shape": [_ROWS, _whole(asked, "workload.n"), _whole(asked, "workload.k")],
            "device": device_record(device),
            "layer": layer,
        }
        end = run_script(
            environment.python,
            SCRIPTS / "humming_build.py",
            request,
            variables=environment.variables,
            limit=looking.limit,
            bytecode=looking.bytecode,
        )
        answer = end.lines[-1] if end.lines else {}
        if "problem" in answer or "cubin" not in answer:
            said = end.said.splitlines()
            telling = next((line for line in said if "error" in line.lower()), end.last)
            why = str(answer.get("problem") or end.how)
            return unproved(f"it could not be built: {why}{f' ({telling.strip()[:200]})' if telling else ''}")
        try:
            code = base64.b64decode(answer["cubin"], validate=True)
        except (binascii.Error, TypeError):
            return unproved("it answered with something that is no cubin")
        return judge_built(
            row,
            route.name,
            code,
            product=looking.instructions.product_of(asked.scheme.facts),
            architectures=looking.architectures,
            binds=Binds.ROUTE,
            source=f"{_DISTRIBUTION} {version}, {answer.get('compiler')}",
        )


def _whole(asked: Asked, fact: str) -> int:
    value = asked.facts.get(fact).value
    return value if isinstance(value, int) else _ROWS


def device_record(device: Device) -> dict[str, Any]:
    """What Humming reads of a GPU (humming/device.py DeviceInfo); clocks and widths only weigh tiles."""
    return {
        "sm_count": device.multiprocessors,
        "max_threads_per_block": 1024,
        "max_threads_per_sm": device.threads,
        "max_registers_per_sm": _REGISTERS,
        "l2_cache_size": device.l2,
        "l2_cache_size_mb": device.l2 / 2**20,
        "l1_cache_size": device.shared_memory,
        "l1_cache_size_kb": device.shared_memory / 1024,
        "default_smem_size": 49152,
        "max_smem_size": device.shared_memory,
        "max_smem_size_kb": device.shared_memory / 1024,
        "memory_clock_khz": 10_000_000,
        "memory_bus_width": 512,
        "sm_clock_khz": 2_000_000,
        "memory_bandwidth_gbps": 2000.0,
    }


def layer_of(scheme: Scheme, *, dtype: str) -> dict[str, Value] | None:
    """The fields of Humming's LayerConfig for a scheme; None where nobody knows them.

    Source: vllm/model_executor/kernels/linear/*/humming.py; humming/config/config.py LayerConfig.
    """
    facts = {key.removeprefix("scheme."): value for key, value in scheme.facts.items()}
    own = {"bf16": "bfloat16", "fp16": "float16"}.get(dtype)
    weights = _TYPES.get(str(facts.get("weights")))
    if own is None or weights is None or facts.get("zero-point"):
        return None
    activations = own if facts.get("activations") == "none" else _TYPES.get(str(facts.get("activations")))
    if activations is None:
        return None
    layer: dict[str, Value] = {"a_dtype": activations, "b_dtype": weights, "c_dtype": own}
    scale = str(facts.get("weight-scale"))
    if scale.startswith("group"):
        layer["weight_scale_group_size"] = int(scale.removeprefix("group"))
        # e8m0 of MX formats, e4m3 of NVFP4, else the model's own type.
        layer["bs_dtype"] = {"group32": "float8e8m0", "group16": "float8e4m3"}.get(scale, own)
        if scale == "group16":
            layer["weight_scale_2_type"] = "tensor"
        if activations != own:
            layer["input_scale_group_size"] = layer["weight_scale_group_size"]
            layer["as_dtype"] = layer["bs_dtype"]
    elif scale not in ("channel", "tensor"):
        return None
    return layer


PLUGIN = Humming()
