"""Parsing a checkpoint's files into a :class:`~qresolve.model.model.Model`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve.errors import UsageError
from qresolve.model.layers import LinearLayer, check_blocks, experts_of, head_size_of, linear_layers, optional_whole
from qresolve.model.model import Model, Part, Problem, Variant
from qresolve.model.quantization import WITHOUT_MODEL, Held, Quantization, parse_quantization, word
from qresolve.model.records import SCHEME_KEYS
from qresolve.strict import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from qresolve.facts import Value
    from qresolve.knowledge.records import FormatBook, Scheme
    from qresolve.model.read import Checkpoint
    from qresolve.model.records import CheckpointBook, Layout, Method

    Facts = tuple[tuple[str, Value], ...]


def parse_model(
    checkpoint: Checkpoint, *, tp: int | None, ep: int | None, formats: FormatBook, book: CheckpointBook
) -> Model:
    """What a checkpoint's files say.

    Raises:
        UsageError: an unknown method or pattern, or a parallelism that does not divide. DataInvalid: a wrong type.
    """
    outer = Table(checkpoint.config, file=checkpoint.given)
    config = outer.table("text_config") if isinstance(outer.raw("text_config"), dict) else outer
    kind = config.raw("model_type") if config.raw("model_type") is not None else outer.raw("model_type")
    if kind is not None and (not isinstance(kind, str) or not kind or len(kind) > 100 or not kind.isprintable()):
        raise config.fail("model_type", "must be a name")
    layout = book.layout(kind)
    ranks, expert_ranks = tp or 1, ep or 1
    layers = linear_layers(config, layout, book, tp=ranks, ep=expert_ranks)
    facts, assumed = _facts(outer, config, kind, layout, book, tp=tp, ep=ep)
    for key, unsized in (
        ("workload.n", [layer.name for layer in layers if layer.n is None]),
        ("workload.k", [layer.name for layer in layers if layer.k is None]),
    ):
        if unsized:
            assumed[key] = f"the sizes of {', '.join(unsized)} are not said"
    records: dict[str, str] = {}
    if layout is not None:
        records[f"layout:{layout.model_types[0]}"] = layout.digest
    found = _quantization(checkpoint, outer, config, kind, book)
    parts: list[Part]
    problems: list[Problem] = []
    if found is None:
        parts = _unquantized(facts, layers, formats, book, checkpoint.given)
    else:
        facts["workload.quantizer"] = found.method.quantizer
        assumed.pop("workload.quantizer", None)
        records[f"checkpoint:{found.method.name}"] = found.method.digest
        parts, problems = _parts(found, layers, formats, book, tp=ranks)
        cache = _cache_part(found, formats, book, problems)
        parts += [cache] if cache is not None else []
    order = [scheme.key(role) for item in formats.formats for scheme in item.schemes for role in scheme.roles]
    return Model(
        given=checkpoint.given,
        kind=kind or "unknown",
        facts=dict(sorted(facts.items())),
        assumed=dict(sorted(assumed.items())),
        parts=tuple(sorted(parts, key=lambda part: order.index(part.key))),
        problems=tuple(problems),
        latent_attention=_latent_attention(config, layout),
        roles={role: _smallest(layers, role) for role in ("dense", "moe")},
        records=records,
    )


def _facts(
    outer: Table,
    config: Table,
    kind: str | None,
    layout: Layout | None,
    book: CheckpointBook,
    *,
    tp: int | None,
    ep: int | None,
) -> tuple[dict[str, Value], dict[str, str]]:
    """The facts that the config says, and for the others why they are assumed."""
    facts: dict[str, Value] = {}
    assumed: dict[str, str] = {}
    words = [word(table.raw(key)) for table in (config, outer) for key in book.dtype_keys if table.raw(key) is not None]
    dtype = book.dtypes.get(words[0].removeprefix("torch.")) if words else None
    _say(facts, assumed, "workload.dtype", dtype, f"dtype {words[0]}" if words else "no dtype")
    head = None
    if _latent_attention(config, layout):
        why = "multi-head latent attention"
    elif layout is None:
        head, why = optional_whole(config, "head_dim"), f"model type {kind or 'missing'} is not described here"
    else:
        head, why = head_size_of(config), "no head_dim, hidden_size or num_attention_heads"
    _say(facts, assumed, "workload.head-size", head, why)
    _say(facts, assumed, "workload.sinks", layout.sinks if layout is not None else None, why)
    if experts_of(config, book) is not None:
        activation = layout.moe_activation if layout is not None and layout.moe_activation else config.raw("hidden_act")
        activation = activation if isinstance(activation, str) and activation.isidentifier() else None
        _say(facts, assumed, "workload.moe-activation", activation, "no hidden_act")
    _say(facts, assumed, "workload.model-type", kind, "no model_type")
    _say(facts, assumed, "workload.tp", tp, "no --tp")
    _say(facts, assumed, "workload.ep", ep, "no --ep")
    assumed["workload.dcp"] = "no option"
    assumed["workload.quantizer"] = "the checkpoint is not quantized"
    return facts, assumed


def _latent_attention(config: Table, layout: Layout | None) -> bool:
    """Whether keys and values are cached in a latent space, also of a model type that is not described."""
    return config.raw("kv_lora_rank") is not None if layout is None else layout.attention == "latent"


def _say(facts: dict[str, Value], assumed: dict[str, str], key: str, value: Value | None, why: str) -> None:
    if value is None:
        assumed[key] = why
    else:
        facts[key] = value


def _quantization(
    checkpoint: Checkpoint, outer: Table, config: Table, kind: str | None, book: CheckpointBook
) -> Quantization | None:
    table = next(
        (
            source.table(key)
            for source in (outer, config)
            for key in book.quantization_keys
            if source.raw(key) is not None
        ),
        None,
    )
    modelopt = (
        Table(checkpoint.modelopt, file=f"{checkpoint.given} (hf_quant_config.json)") if checkpoint.modelopt else None
    )
    if table is None and modelopt is not None:
        table = Table({"quant_method": "modelopt", **modelopt.values}, file=modelopt.file)
    elif table is not None and modelopt is not None:
        table = _with_modelopt(table, modelopt)
    if table is None and checkpoint.gptq is not None:
        table = Table({"quant_method": "gptq", **checkpoint.gptq}, file=f"{checkpoint.given} (quantize_config.json)")
    if table is None:
        return None
    name = word(table.raw("quant_method"))
    if "quant_method" not in table and "config_groups" in table:
        name = "compressed-tensors"
    if "quant_method" not in table and ("load_in_4bit" in table or "load_in_8bit" in table):
        name = "bitsandbytes"
    return parse_quantization(_method(table, name, kind, book), table, kind)


def _with_modelopt(table: Table, modelopt: Table) -> Table:
    """config.json's table, with the layers of ModelOpt's own file where only that has them."""
    inner = modelopt.table("quantization") if isinstance(modelopt.raw("quantization"), dict) else modelopt
    here, there = (word(item.raw("quant_algo")).upper() for item in (table, inner))
    if not word(table.raw("quant_method")).startswith("modelopt") or "quant_algo" not in table:
        return table
    if here != there:
        raise UsageError(
            f"{table.file}: {table.at('quant_algo')} = {here}, and hf_quant_config.json says {there}",
            hint="name the file that is right",
        )
    if "quantized_layers" in table or "quantized_layers" not in inner:
        return table
    return Table({**table.values, "quantized_layers": inner.raw("quantized_layers")}, file=table.file, path=table.path)


def _method(table: Table, name: str, kind: str | None, book: CheckpointBook) -> Method:
    methods = book.methods_of(name)
    if not methods:
        known = ", ".join(sorted({item for method in book.methods for item in method.quant_methods}))
        raise UsageError(
            f"{table.file}: {table.at('quant_method')} = {name[:100]} is not known; known are {known}",
            hint=WITHOUT_MODEL,
        )
    found = next((item for item in methods if not item.model_types or kind in item.model_types), None)
    if found is None:
        raise UsageError(
            f"{table.file}: {table.at('quant_method')} = {name} is known of {', '.join(methods[0].model_types)} only, "
            f"not of model_type {kind or '(missing)'}",
            hint=WITHOUT_MODEL,
        )
    return found


def _shape(layer: LinearLayer) -> Facts:
    sizes: list[tuple[str, Value]] = []
    if layer.n is not None:
        sizes.append(("workload.n", layer.n))
    if layer.k is not None:
        sizes.append(("workload.k", layer.k))
    return tuple(sizes)


def _smallest(layers: Iterable[LinearLayer], role: str) -> Facts:
    """The shape of the layer of a role with the fewest input features."""
    known = [layer for layer in layers if layer.role == role and layer.n is not None and layer.k is not None]
    return _shape(min(known, key=lambda layer: (layer.k or 0, layer.n or 0))) if known else ()


def _unquantized(
    facts: Mapping[str, Value], layers: tuple[LinearLayer, ...], formats: FormatBook, book: CheckpointBook, file: str
) -> list[Part]:
    dtype = facts.get("workload.dtype")
    serves = book.unquantized.get(str(dtype))
    if serves is None:
        raise UsageError(f"{file}: there is neither a quantization_config nor a known dtype", hint=WITHOUT_MODEL)
    scheme = _scheme(serves, formats)
    by_role: dict[str, list[tuple[str, Facts]]] = {}
    for layer in layers:
        by_role.setdefault(layer.role, []).append((layer.name, _shape(layer)))
    return [
        Part(scheme=scheme, role=role, variants=_variants(found), said=f"dtype {dtype}, no quantization_config")
        for role, found in by_role.items()
        if role in scheme.roles
    ]


def _scheme(serves: str, formats: FormatBook) -> Scheme:
    name, _, scheme = serves.partition("@")
    return next(item for form in formats.formats if form.name == name for item in form.schemes if item.name == scheme)


def _parts(
    found: Quantization, layers: tuple[LinearLayer, ...], formats: FormatBook, book: CheckpointBook, *, tp: int
) -> tuple[list[Part], list[Problem]]:
    layouts: dict[tuple[str, str], list[tuple[str, Facts]]] = {}
    said: dict[tuple[str, str], str] = {}
    problems: dict[tuple[str, str], Problem] = {}
    ragged: dict[tuple[str, str], str] = {}
    for layer in layers:
        held = dict.fromkeys(item for names in layer.names() if (item := found.held(names, layer.role)) is not None)
        for item in held:
            scheme = _scheme_of(item, layer.role, found.method.quantizer, formats, book)
            if scheme is None or item.facts is None:
                what = f"no record speaks of {layer.role} layers held as {_shown(item)} ({item.said})"
                problems[layer.role, item.said] = Problem(role=layer.role, what=what)
                continue
            size = book.blocks.get(item.facts[1])
            if size is not None:
                check_blocks(layer, size, tp=tp)
            key = (f"{scheme.format}@{scheme.name}", layer.role)
            stated: dict[str, Value] = dict(zip(SCHEME_KEYS, item.facts, strict=True))
            own = [
                (f"scheme.{name}", value) for name, value in stated.items() if scheme.facts[f"scheme.{name}"] != value
            ]
            if (why := _ragged(layer, item.facts[1], pads=found.method.pads)) is not None:
                ragged.setdefault(key, why)
            layouts.setdefault(key, []).append((layer.name, (*_shape(layer), *own)))
            said.setdefault(key, item.said)
    if not layouts and not problems:
        raise UsageError(
            f"every linear layer is on the list of {' or '.join(found.method.ignore_keys)}: nothing is quantized",
            hint=WITHOUT_MODEL,
        )
    parts = [
        Part(
            scheme=_scheme(serves, formats),
            role=role,
            variants=_variants(shapes),
            said=said[serves, role],
            unknown=ragged.get((serves, role), ""),
        )
        for (serves, role), shapes in layouts.items()
    ]
    return parts, list(problems.values())


def _ragged(layer: LinearLayer, scale: str, *, pads: bool) -> str | None:
    """Why a layer whose groups of weights are not whole on a rank cannot be judged; None where they are."""
    size = scale.removeprefix("group")
    if not size.isdigit() or not int(size) or layer.k is None:
        return None
    # The second weight of an expert has the intermediate size as its input features.
    inner = layer.n if layer.role == "moe" and not pads else None
    broken = next((value for value in (layer.k, inner) if value is not None and value % int(size)), None)
    if broken is None:
        return None
    return (
        f"{layer.name} has {broken} input features on a rank, not whole groups of {size}: what engines do is not known"
    )


def _variants(shapes: Iterable[tuple[str, Facts]]) -> tuple[Variant, ...]:
    """One variant for each distinct set of facts, with the names of its layers."""
    by_facts: dict[Facts, list[str]] = {}
    for name, facts in shapes:
        names = by_facts.setdefault(facts, [])
        if name not in names:
            names.append(name)
    return tuple(Variant(name=", ".join(names), facts=facts) for facts, names in by_facts.items())


def _scheme_of(held: Held, role: str, quantizer: str, formats: FormatBook, book: CheckpointBook) -> Scheme | None:
    if held.facts is None:
        return None
    for rule in book.schemes:
        if rule.holds(held.facts, quantizer, held.packing):
            scheme = _scheme(rule.serves, formats)
            if role in scheme.roles:
                return scheme
    return None


def _shown(held: Held) -> str:
    if held.facts is None:
        return "these keys say"
    weights, scale, activations, activation_scale, zero_point = held.facts
    text = f"{weights} weights scaled by {scale}" + (" with zero points" if zero_point else "")
    return text + (
        f", {activations} activations by {activation_scale}" if activations != "none" else ", 16-bit activations"
    )


def _cache_part(found: Quantization, formats: FormatBook, book: CheckpointBook, problems: list[Problem]) -> Part | None:
    cache = found.cache
    if cache is None:
        return None
    for rule in book.caches:
        if (
            (cache in rule.algorithms)
            if isinstance(cache, str)
            else (rule.facts is not None and cache.facts == rule.facts)
        ):
            said = f"kv_cache_quant_algo {cache}" if isinstance(cache, str) else cache.said
            return Part(
                scheme=_scheme(rule.serves, formats), role="kv", variants=(Variant(name="", facts=()),), said=said
            )
    said = f"kv_cache_quant_algo {cache}" if isinstance(cache, str) else cache.said
    problems.append(Problem(role="kv", what=f"no record speaks of a KV cache held as this one ({said})"))
    return None
