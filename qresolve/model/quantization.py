"""What a checkpoint's quantization configuration holds: for each module the facts of its scheme, or that it is none.

Pure. Each method has its own dialect; the words of the dialects and what they come to are in
``constraints/checkpoints.toml``, their grammar is here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qresolve.errors import UsageError
from qresolve.model.matching import Names, names_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from qresolve.model.records import Method, SchemeFacts
    from qresolve.strict import Table

ABSENT = "<absent>"
WITHOUT_MODEL = "say the formats with --formats and the shapes with --assume, without --model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """How a module is held. ``facts`` are None where the keys are known and their combination is not.

    ``said`` are the keys and values that say it; ``packing`` is compressed-tensors' format.
    """

    facts: SchemeFacts | None
    said: str
    packing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Modules that are held in one way: by name, every linear layer, or every routed expert."""

    names: Names
    linear: bool
    experts: bool
    held: Held


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """A parsed configuration. ``cache`` says the KV cache: ModelOpt's word, facts, or None where it has none."""

    method: Method
    ignore: Names
    targets: tuple[Target, ...]
    cache: str | Held | None

    def held(self, names: tuple[str, ...], role: str) -> Held | None:
        """How the module that has one of these names is held; None where it is not quantized."""
        if role not in self.method.roles or self.ignore.match_any(names):
            return None
        for target in self.targets:
            if target.names.match_any(names):
                return target.held
        for target in self.targets:
            if target.experts and role == "moe":
                return target.held
        return next((target.held for target in self.targets if target.linear), None)


def parse_quantization(method: Method, table: Table, model_type: str | None) -> Quantization:
    """Parse a quantization configuration of a known method.

    Raises:
        UsageError: a combination of keys that is not known, with the keys. DataInvalid: a key of the wrong type.
    """
    refuse(method, table, model_type)
    inner = table.table("quantization") if method.layout == "modelopt" and "quantization" in table else table
    ignore = names_of(
        tuple(entry for key in method.ignore_keys for entry in _entries(inner, key)),
        method.match,
        at=f"{inner.file}: {inner.at(' or '.join(method.ignore_keys))}",
    )
    if method.layout == "groups":
        return Quantization(method=method, ignore=ignore, targets=_groups(method, table), cache=_cache(method, table))
    if method.layout == "quark":
        return Quantization(
            method=method, ignore=ignore, targets=_quark(method, table), cache=_quark_cache(method, table)
        )
    if method.layout == "modelopt":
        return Quantization(
            method=method, ignore=ignore, targets=_modelopt(method, inner), cache=_modelopt_cache(inner)
        )
    return Quantization(method=method, ignore=ignore, targets=(_every(by_case(method, inner)),), cache=None)


def refuse(method: Method, table: Table, model_type: str | None) -> None:
    """Raise where a key says that the rest is not known."""
    for refusal in method.refusals:
        value = (model_type or ABSENT) if refusal.key == "model_type" else word(table.raw(refusal.key))
        if value in refusal.values:
            where = refusal.key if refusal.key == "model_type" else table.at(refusal.key)
            raise UsageError(f"{table.file}: {where} = {value}: {refusal.why}", hint=WITHOUT_MODEL)


def word(value: Any) -> str:
    """A JSON value as the word that cases are written in."""
    if value is None or value in ({}, []):
        return ABSENT
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and all(isinstance(item, int) for item in value):
        return "x".join(str(item) for item in value)
    return str(value) if isinstance(value, str | int | float) else "<some>"


def _entries(table: Table, key: str) -> tuple[str, ...]:
    return table.texts(key) if table.raw(key) is not None else ()


def _no_names() -> Names:
    return Names(exact=frozenset(), patterns=(), inside=(), experts=())


def _every(held: Held) -> Target:
    return Target(names=_no_names(), linear=True, experts=False, held=held)


def by_case(method: Method, table: Table, given: Mapping[str, str] | None = None) -> Held:
    """What the first case comes to whose keys have one of its words."""
    keys = tuple(dict.fromkeys(key for case in method.cases for key in case.when))
    words = {key: word(table.raw(key)) for key in keys if "." not in key} | dict(given or {})
    shown = {key: value for key, value in words.items() if value != ABSENT}
    group = ABSENT
    for key in method.group_size_keys:
        if table.raw(key) is not None:
            group = word(table.raw(key))
            shown[key] = group
    said = ", ".join(f"{table.at(key)} = {value}" for key, value in shown.items()) or table.at("quant_method")
    for case in method.cases:
        if all(words.get(key, ABSENT) in allowed for key, allowed in case.when.items()):
            weights, scale, *rest = case.facts
            if scale == "<group>":
                scale = "channel" if group == "-1" else f"group{group}"
            return Held(facts=(weights, scale, *rest), said=said)  # type: ignore[arg-type]
    return Held(facts=None, said=said)


# ---------------------------------------------------------------- compressed-tensors


def _groups(method: Method, table: Table) -> tuple[Target, ...]:
    groups = table.optional_table("config_groups")
    overall = table.optional_text("format")
    found = []
    for name in groups.keys() if groups is not None else ():
        assert groups is not None  # noqa: S101 - for the type checker
        group = groups.table(name)
        targets = group.texts("targets")
        if len(targets) == 1 and targets[0].endswith("Attention"):
            continue  # goes with the KV cache, not with a linear layer
        classes = {target for target in targets if "." not in target and not target.startswith("re:")}
        unknown = sorted(classes - {"Linear", "RoutedExperts", "FusedMoE"})
        named = tuple(target for target in targets if target not in classes)
        packing = group.optional_text("format") if group.raw("format") is not None else overall
        held = _group_held(method, group, packing)
        if unknown:
            raise UsageError(
                f"{group.file}: {group.at('targets')}: which layers `{unknown[0]}` means is not known",
                hint=WITHOUT_MODEL,
            )
        found.append(
            Target(
                names=names_of(named, method.match, at=f"{group.file}: {group.at('targets')}"),
                linear="Linear" in classes,
                experts=bool(classes & {"RoutedExperts", "FusedMoE"}),
                held=held,
            )
        )
    if not found:
        raise UsageError(f"{table.file}: {table.at('config_groups')} quantizes no linear layer", hint=WITHOUT_MODEL)
    return tuple(found)


def _group_held(method: Method, group: Table, packing: str | None) -> Held:
    if group.raw("weights") is None:
        return Held(facts=None, said=f"{group.at('weights')} is missing", packing=packing)
    weights = group.table("weights")
    element, scale, said = _tensor(method, weights)
    zero_point = weights.raw("symmetric") is False
    order = word(weights.raw("actorder"))
    activation, activation_scale = "none", "none"
    words = [said]
    if group.raw("input_activations") is not None:
        given = group.table("input_activations")
        activation, tensor_scale, said = _tensor(method, given)
        activation_scale = _activation_scale(
            tensor_scale, dynamic=given.raw("dynamic") not in (None, False), weights=scale
        )
        words.append(said)
    if group.raw("output_activations") is not None:
        words.append(f"{group.at('output_activations')} is given")
        return Held(facts=None, said="; ".join(words), packing=packing)
    if order in {"group", "dynamic", "true"}:
        words.append(f"{weights.at('actorder')} = {order}")
        return Held(facts=None, said="; ".join(words), packing=packing)
    if packing is not None:
        words.append(f"format {packing}")
    return Held(
        facts=(element, scale, activation, activation_scale, zero_point), said="; ".join(words), packing=packing
    )


def _tensor(method: Method, table: Table) -> tuple[str, str, str]:
    """Element, granularity of the scales and the words of a ``QuantizationArgs``; unknown ones stand in ``<>``."""
    bits, kind, strategy = word(table.raw("num_bits")), word(table.raw("type")), word(table.raw("strategy"))
    element = method.elements.get(f"{kind}{bits}", f"<{kind}{bits}>")
    size = word(table.raw("group_size"))
    said = f"{table.path} {kind}{bits}" + (f" by {strategy}" if strategy != ABSENT else "")
    if size not in {ABSENT, "-1"}:
        said += f" of {size}"
    if strategy in {"tensor", "channel", "token"}:
        return element, strategy, said
    if strategy == "block":
        block = word(table.raw("block_structure"))
        return element, "block128" if block == "128x128" else f"<block {block}>", said
    if strategy == "tensor_group":
        return element, f"group{size}" if size == "16" else f"<tensor_group {size}>", said
    if strategy == "group":
        # Floats in groups are microscaling formats, in groups of 32 with e8m0 scales and no tensor scale.
        plain_float = kind == "float" and (
            size != "32" or (bits == "8" and word(table.raw("scale_dtype")) not in {"torch.uint8", "uint8"})
        )
        return element, f"<group {size} of floats>" if plain_float else f"group{size}", said
    return element, f"<{strategy}>", said


def _activation_scale(scale: str, *, dynamic: bool, weights: str) -> str:
    """The granularity of the activations; groups only where they are as large as those of the weights."""
    if scale == "tensor":
        return "tensor-dynamic" if dynamic else "tensor-static"
    if not dynamic:
        return f"<static {scale}>"
    if scale == "token":
        return "token-dynamic"
    size, wanted = (
        re.search(r"group_?(?:size)? ?([0-9]+)", text) for text in (scale, weights.replace("block", "group"))
    )
    if size is not None and wanted is not None and size[1] == wanted[1]:
        return "group-dynamic"
    return f"<dynamic {scale}>"


def _cache(method: Method, table: Table) -> Held | None:
    if table.raw("kv_cache_scheme") is None:
        return None
    given = table.table("kv_cache_scheme")
    element, scale, said = _tensor(method, given)
    if given.raw("dynamic") not in (None, False):
        scale = f"<dynamic {scale}>"
    return Held(facts=(element, scale, "none", "none", given.raw("symmetric") is False), said=said)


# ---------------------------------------------------------------- ModelOpt


def _modelopt(method: Method, table: Table) -> tuple[Target, ...]:
    algorithm = word(table.raw("quant_algo")).upper()
    if algorithm != "MIXED_PRECISION":
        return (_every(_algorithm(method, table, algorithm)),)
    if table.raw("quantized_layers") is None:
        raise UsageError(
            f"{table.file}: {table.at('quant_algo')} = MIXED_PRECISION without `quantized_layers`",
            hint="keep hf_quant_config.json beside config.json and name the folder",
        )
    layers = table.table("quantized_layers")
    by_algorithm: dict[tuple[str, str], list[str]] = {}
    for name in layers.keys():  # noqa: SIM118
        entry = layers.table(name)
        key = word(entry.raw("quant_algo")).upper(), word(entry.raw("group_size"))
        by_algorithm.setdefault(key, []).append(name)
    found = []
    for (algorithm, size), names in by_algorithm.items():
        held = by_case(method, layers, {"quant_algo": algorithm, "group_size": size})
        found.append(
            Target(
                names=names_of(tuple(names), "exact", at=f"{table.file}: {layers.path}"),
                linear=False,
                experts=False,
                held=held,
            )
        )
    return tuple(found)


def _algorithm(method: Method, table: Table, algorithm: str) -> Held:
    given = {"quant_algo": algorithm}
    groups = table.optional_table("config_groups") if table.raw("config_groups") else None
    if groups is not None:
        members = [groups.table(name) for name in groups.keys()]  # noqa: SIM118
        silent = all(group.raw("input_activations") is None for group in members)
        given["config_groups.input_activations"] = "none" if silent else "some"
    return by_case(method, table, given)


def _modelopt_cache(table: Table) -> str | None:
    algorithm = word(table.raw("kv_cache_quant_algo"))
    if algorithm not in {ABSENT, "", "none", "None"}:
        return algorithm.upper()
    if table.raw("kv_cache_scheme") is None:
        return None
    given = table.table("kv_cache_scheme")
    kind, bits = word(given.raw("type")), word(given.raw("num_bits"))
    return "FP8" if (kind, bits) == ("float", "8") else f"{given.path}: {kind}{bits}"


# ---------------------------------------------------------------- Quark


def _quark(method: Method, table: Table) -> tuple[Target, ...]:
    for key in ("layer_quant_config", "layer_type_quant_config"):
        cache = set(_entries(table.table("export"), "kv_cache_group")) if table.raw("export") is not None else set()
        extra = [name for name in table.table(key).keys() if name not in cache] if table.raw(key) else []  # noqa: SIM118
        if extra:
            raise UsageError(
                f"{table.file}: {table.at(key)}: single layers are held in another way, which is not read here: "
                f"{extra[0]}",
                hint=WITHOUT_MODEL,
            )
    overall = table.table("global_quant_config")
    weights, inputs = overall.raw("weight"), overall.raw("input_tensors")
    element, scale, zero_point, said = _quark_tensor(method, weights, overall.at("weight"))
    activation, activation_scale = "none", "none"
    if inputs is not None:
        activation, tensor_scale, _, words = _quark_tensor(method, inputs, overall.at("input_tensors"))
        said = f"{said}; {words}"
        first = inputs[0] if isinstance(inputs, list) and inputs else inputs
        dynamic = bool(isinstance(first, dict) and first.get("is_dynamic"))
        tensor_scale = "token" if tensor_scale == "channel" else tensor_scale
        activation_scale = _activation_scale(tensor_scale, dynamic=dynamic, weights=scale)
    if overall.raw("output_tensors") or overall.raw("bias"):
        return (_every(Held(facts=None, said=f"{overall.path}: output_tensors or bias is quantized")),)
    return (_every(Held(facts=(element, scale, activation, activation_scale, zero_point), said=said)),)


def _quark_tensor(method: Method, value: Any, at: str) -> tuple[str, str, bool, str]:
    """Element, granularity, zero point and words of a Quark tensor; NVFP4 is a list of two, the second per tensor."""
    parts = [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)]
    if not parts:
        return "<missing>", "<missing>", False, f"{at} is missing"
    first = parts[0]
    kind, scheme, size = word(first.get("dtype")), word(first.get("qscheme")), word(first.get("group_size"))
    said = f"{at} {kind} {scheme}" + (f" of {size}" if size != ABSENT else "")
    element = method.elements.get(kind, f"<{kind}>")
    zero_point = first.get("symmetric") is False
    if len(parts) == 2 and word(parts[1].get("dtype")) == "fp8_e4m3" and word(parts[1].get("qscheme")) == "per_tensor":
        return element, f"group{size}" if size == "16" else f"<two scales, {size}>", zero_point, said
    if len(parts) != 1:
        return element, f"<{len(parts)} scales>", zero_point, said
    if scheme == "per_group":
        microscaling = word(first.get("scale_format")) == "e8m0" and size == "32"
        plain = kind in {"int4", "int8"}
        return element, f"group{size}" if microscaling or plain else f"<per_group {size}>", zero_point, said
    scales: Mapping[str, str] = {"per_tensor": "tensor", "per_channel": "channel"}
    return element, scales.get(scheme, f"<{scheme}>"), zero_point, said


def _quark_cache(method: Method, table: Table) -> Held | None:
    groups: Iterable[str] = _entries(table.table("export"), "kv_cache_group") if table.raw("export") is not None else ()
    layers = table.table("layer_quant_config") if table.raw("layer_quant_config") else None
    for name in groups:
        if layers is None or name not in layers:
            return Held(facts=None, said=f"{table.at('export.kv_cache_group')} names {name}, which has no entry")
        element, scale, zero_point, said = _quark_tensor(
            method, layers.table(name).raw("output_tensors"), f"{layers.at(name)}.output_tensors"
        )
        return Held(facts=(element, scale, "none", "none", zero_point), said=said)
    return None
