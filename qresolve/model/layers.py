"""The linear layers of a model as an engine holds them: fused, with their sizes on one rank. Pure.

Sizes are output features n and input features k of one tensor-parallel rank. An expert is one layer whose k is the
hidden size and whose n is the intermediate size of the rank: these are the two that selectors of fused experts test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from qresolve.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from qresolve.model.records import CheckpointBook, Layout
    from qresolve.strict import Table

MOST_LAYERS = 2000
MOST_SIZE = 1 << 32
EXPERT = "experts"

PREFIXES = ("model.layers.{}.", "model.language_model.layers.{}.", "language_model.model.layers.{}.")
"""What a decoder layer is called in checkpoints of text models and of models with a text part."""

GENERIC = ("self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj")
GENERIC_EXPERT = ("mlp.experts.0.gate_proj", "mlp.experts.0.down_proj")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearLayer:
    """One fused layer. ``modules`` are its parts in the checkpoint, ``indices`` the decoder layers that have it.

    ``n`` and ``k`` are None where the sizes are not known. ``outputs`` are the sizes of its parts, ``split`` the
    dimension that tensor parallelism splits (n, k, or nothing).
    """

    name: str
    role: str
    modules: tuple[str, ...]
    indices: tuple[int, ...]
    n: int | None = None
    k: int | None = None
    outputs: tuple[int, ...] = ()
    split: str = ""

    def names(self) -> Iterator[tuple[str, ...]]:
        """Every part on every decoder layer, each as all names that it may have."""
        for index in self.indices:
            for module in self.modules:
                yield tuple(prefix.format(index) + module for prefix in PREFIXES)


def optional_whole(table: Table, key: str) -> int | None:
    """A positive integer, or None where the key is missing or null.

    Raises:
        DataInvalid: another type, or out of range.
    """
    if table.raw(key) is None:
        return None
    value = table.whole(key)
    if not 0 <= value <= MOST_SIZE:
        raise table.fail(key, f"out of range: {value}")
    return value


def experts_of(config: Table, book: CheckpointBook) -> int | None:
    """The number of routed experts, None where the model has none (or one)."""
    for key in book.expert_count_keys:
        count = optional_whole(config, key)
        if count is not None and count > 1:
            return count
    return None


def linear_layers(
    config: Table, layout: Layout | None, book: CheckpointBook, *, tp: int, ep: int
) -> tuple[LinearLayer, ...]:
    """The layers of the decoder.

    Raises:
        UsageError: tensor parallelism does not divide the model. DataInvalid: a key of the wrong type.
    """
    count = optional_whole(config, "num_hidden_layers") or 1
    if count > MOST_LAYERS:
        raise config.fail("num_hidden_layers", f"out of range: {count}")
    everywhere = tuple(range(count))
    experts = experts_of(config, book)
    if layout is None:
        found = [LinearLayer(name="linear layers", role="dense", modules=GENERIC, indices=everywhere)]
        if experts is not None:
            found.append(LinearLayer(name=EXPERT, role="moe", modules=GENERIC_EXPERT, indices=everywhere))
        return tuple(found)
    split = _splitter(config, tp)
    hidden = optional_whole(config, "hidden_size")
    sparse = _sparse_indices(config, everywhere) if experts is not None and layout.experts else ()
    dense = tuple(index for index in everywhere if index not in set(sparse))
    layers = [*(_grouped if layout.attention == "grouped" else _latent)(config, everywhere, hidden, split, tp)]
    if dense:
        layers += _mlp("mlp", (optional_whole(config, "intermediate_size"), "intermediate_size"), dense, hidden, split)
    if sparse:
        size_key = next((key for key in book.expert_size_keys if config.raw(key) is not None), "")
        size = optional_whole(config, size_key) if size_key else None
        if layout.shared_expert is not None:
            shared = _shared_size(config, size)
            if shared[0]:
                layers += _mlp(layout.shared_expert, shared, sparse, hidden, split)
        n = None if size is None else size if ep > 1 else split(size, size_key)
        layers.append(
            LinearLayer(
                name=EXPERT,
                role="moe",
                modules=layout.experts,
                indices=sparse,
                n=n,
                k=hidden,
                outputs=() if n is None else (n, n),
                split="" if ep > 1 or tp == 1 else "both",
            )
        )
    return tuple(layers)


def _splitter(config: Table, tp: int) -> Callable[[int, str], int]:
    def split(size: int, key: str) -> int:
        if size % tp:
            divisors = [item for item in range(1, tp) if size % item == 0]
            raise UsageError(
                f"--tp {tp} does not divide `{key}` = {size} of {config.file}",
                hint=f"--tp {divisors[-1] if divisors else 1}",
            )
        return size // tp

    return split


def _sparse_indices(config: Table, everywhere: tuple[int, ...]) -> tuple[int, ...]:
    first = optional_whole(config, "first_k_dense_replace") or 0
    step = optional_whole(config, "decoder_sparse_step") or 1
    every = optional_whole(config, "moe_layer_freq") or 1 if isinstance(config.raw("moe_layer_freq"), int) else 1
    dense_only = set(config.wholes("mlp_only_layers")) if config.raw("mlp_only_layers") else set()
    return tuple(
        index
        for index in everywhere
        if index >= first and (index + 1) % step == 0 and index % every == 0 and index not in dense_only
    )


def _shared_size(config: Table, expert_size: int | None) -> tuple[int | None, str]:
    """The intermediate size of the shared expert, and the key that says it."""
    size = optional_whole(config, "shared_expert_intermediate_size")
    if size is not None:
        return size, "shared_expert_intermediate_size"
    count = optional_whole(config, "n_shared_experts")
    return (count * expert_size if count and expert_size else None), "n_shared_experts x moe_intermediate_size"


def _mlp(
    prefix: str,
    sized: tuple[int | None, str],
    indices: tuple[int, ...],
    hidden: int | None,
    split: Callable[[int, str], int],
) -> list[LinearLayer]:
    """``sized`` is the intermediate size and the key that says it."""
    size, key = sized
    part = None if size is None else split(size, key)
    return [
        LinearLayer(
            name=f"{prefix}.gate_up_proj",
            role="dense",
            modules=(f"{prefix}.gate_proj", f"{prefix}.up_proj"),
            indices=indices,
            n=None if part is None else 2 * part,
            k=hidden,
            outputs=() if part is None else (part, part),
            split="n",
        ),
        LinearLayer(
            name=f"{prefix}.down_proj",
            role="dense",
            modules=(f"{prefix}.down_proj",),
            indices=indices,
            n=hidden,
            k=part,
            outputs=() if hidden is None else (hidden,),
            split="k",
        ),
    ]


def head_size_of(config: Table) -> int | None:
    """The size of an attention head, None where the config does not say."""
    given = optional_whole(config, "head_dim")
    if given:
        return given
    hidden, heads = optional_whole(config, "hidden_size"), optional_whole(config, "num_attention_heads")
    return hidden // heads if hidden and heads and hidden % heads == 0 else None


def _grouped(
    config: Table, indices: tuple[int, ...], hidden: int | None, split: Callable[[int, str], int], tp: int
) -> list[LinearLayer]:
    size, heads = head_size_of(config), optional_whole(config, "num_attention_heads")
    outputs: tuple[int, ...] = ()
    inside = None
    if size and heads:
        groups = optional_whole(config, "num_key_value_heads") or heads
        if tp > groups and tp % groups:
            raise UsageError(f"--tp {tp} is no multiple of `num_key_value_heads` = {groups}", hint=f"--tp {groups}")
        groups_here = 1 if tp > groups else split(groups, "num_key_value_heads")
        inside = split(heads, "num_attention_heads") * size
        outputs = (inside, groups_here * size, groups_here * size)
    names = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    return [
        LinearLayer(
            name="self_attn.qkv_proj",
            role="dense",
            modules=names,
            indices=indices,
            n=sum(outputs) or None,
            k=hidden,
            outputs=outputs,
            split="n",
        ),
        LinearLayer(
            name="self_attn.o_proj",
            role="dense",
            modules=("self_attn.o_proj",),
            indices=indices,
            n=hidden,
            k=inside,
            outputs=() if hidden is None else (hidden,),
            split="k",
        ),
    ]


def _latent(
    config: Table, indices: tuple[int, ...], hidden: int | None, split: Callable[[int, str], int], _tp: int
) -> list[LinearLayer]:
    heads, low = optional_whole(config, "num_attention_heads"), optional_whole(config, "q_lora_rank")
    latent, turned = optional_whole(config, "kv_lora_rank"), optional_whole(config, "qk_rope_head_dim")
    plain, value = optional_whole(config, "qk_nope_head_dim"), optional_whole(config, "v_head_dim")
    here = split(heads, "num_attention_heads") if heads else None
    down = latent + turned if latent and turned else None

    def times(size: int | None) -> int | None:
        return here * size if here and size else None

    def layer(
        name: str, modules: tuple[str, ...], outputs: tuple[int | None, ...], k: int | None, split: str
    ) -> LinearLayer:
        known = tuple(item for item in outputs if item is not None)
        whole = known if len(known) == len(outputs) else ()
        return LinearLayer(
            name=f"self_attn.{name}",
            role="dense",
            modules=tuple(f"self_attn.{module}" for module in modules),
            indices=indices,
            n=sum(whole) or None,
            k=k,
            outputs=whole,
            split=split,
        )

    query = times(plain + turned if plain and turned else None)
    if low:
        found = [
            layer("fused_qkv_a_proj", ("q_a_proj", "kv_a_proj_with_mqa"), (low, down), hidden, ""),
            layer("q_b_proj", ("q_b_proj",), (query,), low, "n"),
        ]
    else:
        found = [
            layer("kv_a_proj_with_mqa", ("kv_a_proj_with_mqa",), (down,), hidden, ""),
            layer("q_proj", ("q_proj",), (query,), hidden, "n"),
        ]
    both = times(plain + value if plain and value else None)
    return [
        *found,
        layer("kv_b_proj", ("kv_b_proj",), (both,), latent, "n"),
        layer("o_proj", ("o_proj",), (hidden,), times(value), "k"),
    ]


def check_blocks(layer: LinearLayer, size: int, *, tp: int) -> None:
    """Refuse a layer whose part on a rank does not hold whole blocks of weights.

    Raises:
        UsageError: it does not; the engine refuses to load it.
    """
    broken: tuple[str, int] | None = None
    if layer.split == "k" and tp > 1 and layer.k is not None and layer.k % size:
        broken = ("input features", layer.k)
    shown = layer.outputs
    if layer.role == "dense" and not (layer.split == "n" and tp > 1):
        shown = layer.outputs[:-1]  # of a merged layer that is not split, the last part may be uneven
    for output in shown:
        if output % size:
            broken = ("output features", output)
    if broken is not None:
        raise UsageError(
            f"{layer.name} has {broken[1]} {broken[0]} on a rank with --tp {tp}, which is not a multiple of the "
            f"{size}x{size} blocks of its weights: engines refuse to load it",
            hint=f"--tp {tp} --ep {tp}" if tp > 1 and layer.role == "moe" else "--tp 1" if tp > 1 else None,
        )
