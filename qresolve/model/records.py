"""``constraints/checkpoints.toml`` as frozen records: methods, cases, schemes and the layers of models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from qresolve.data import data_folder
from qresolve.knowledge.load import digest_of
from qresolve.strict import Table, read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qresolve.facts import Value
    from qresolve.knowledge.records import FormatBook

MATCHES = ("regex", "regex-or-wildcard", "exact", "wildcard-or-inside", "inside")
LAYOUTS = ("fields", "modelopt", "groups", "quark")
ATTENTION = ("grouped", "latent")
SCHEME_KEYS = ("weights", "weight-scale", "activations", "activation-scale", "zero-point")

SchemeFacts = tuple[str, str, str, str, bool]
"""Weights, weight scale, activations, activation scale, zero point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the keys of a method come to: where each key has one of the texts, the scheme has the facts."""

    when: Mapping[str, tuple[str, ...]]
    facts: SchemeFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A key with which the rest is not known."""

    key: str
    values: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One ``quant_method`` (for the model types it is of, all where empty) and how its keys are laid out."""

    name: str
    quant_methods: tuple[str, ...]
    model_types: tuple[str, ...]
    roles: tuple[str, ...]
    quantizer: str
    pads: bool
    layout: str
    ignore_keys: tuple[str, ...]
    match: str
    group_size_keys: tuple[str, ...]
    elements: Mapping[str, str]
    cases: tuple[Case, ...]
    refusals: tuple[Refusal, ...]
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemeRule:
    """The scheme that facts make; empty ``quantizers`` and ``packings`` mean any."""

    serves: str
    quantizers: tuple[str, ...]
    packings: tuple[str, ...]
    facts: Mapping[str, tuple[Value, ...]]

    def holds(self, facts: SchemeFacts, quantizer: str, packing: str | None) -> bool:
        """Whether the facts, the quantizer and the packing (None where the method has none) are those of the rule."""
        return (
            all(value in self.facts[key] for key, value in zip(SCHEME_KEYS, facts, strict=True))
            and (not self.quantizers or quantizer in self.quantizers)
            and (not self.packings or packing is None or packing in self.packings)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRule:
    """A scheme of the KV cache: by ModelOpt's algorithm, or by the facts of its values."""

    serves: str
    algorithms: tuple[str, ...]
    facts: SchemeFacts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The linear layers of a model type. ``experts`` are the modules of an expert, ``shared_expert`` its prefix."""

    model_types: tuple[str, ...]
    attention: str
    sinks: bool
    moe_activation: str | None
    experts: tuple[str, ...]
    shared_expert: str | None
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointBook:
    """Everything that is known of checkpoints. ``blocks`` are sizes that a rank's part must be a multiple of."""

    dtype_keys: tuple[str, ...]
    dtypes: Mapping[str, str]
    expert_count_keys: tuple[str, ...]
    expert_size_keys: tuple[str, ...]
    quantization_keys: tuple[str, ...]
    unquantized: Mapping[str, str]
    methods: tuple[Method, ...]
    schemes: tuple[SchemeRule, ...]
    caches: tuple[CacheRule, ...]
    blocks: Mapping[str, int]
    layouts: tuple[Layout, ...]

    def layout(self, model_type: str | None) -> Layout | None:
        """The layers of a model type, None where they are not known."""
        return next((item for item in self.layouts if model_type in item.model_types), None)

    def methods_of(self, quant_method: str) -> tuple[Method, ...]:
        """The methods of that name; more than one where the model type decides."""
        return tuple(item for item in self.methods if quant_method in item.quant_methods)


def read_checkpoint_book(formats: FormatBook) -> CheckpointBook:
    """Read ``constraints/checkpoints.toml``.

    Raises:
        DataInvalid: an unknown key, or a scheme that the formats do not have.
    """
    table = read_toml(data_folder("constraints") / "checkpoints.toml", name="constraints/checkpoints.toml")
    table.day("checked")
    known = {f"{item.name}@{scheme.name}" for item in formats.formats for scheme in item.schemes}
    config = table.table("config")
    unquantized = _texts(table.table("unquantized"))
    for dtype, serves in unquantized.items():
        if serves not in known:
            raise table.fail(f"unquantized.{dtype}", f"no scheme is called `{serves}`")
    book = CheckpointBook(
        dtype_keys=config.texts("dtype-keys"),
        dtypes=_texts(config.table("dtypes")),
        expert_count_keys=config.texts("expert-count-keys"),
        expert_size_keys=config.texts("expert-size-keys"),
        quantization_keys=config.texts("quantization-keys"),
        unquantized=unquantized,
        methods=tuple(_method(entry) for entry in table.tables("method")),
        schemes=tuple(_scheme(entry, known) for entry in table.tables("scheme")),
        caches=tuple(_cache(entry, known) for entry in table.tables("kv")),
        blocks=dict(_block(entry) for entry in table.tables("whole-blocks")),
        layouts=tuple(_layout(entry) for entry in table.tables("layout")),
    )
    config.text("where")
    config.raw("dtypes")
    config.done()
    table.done()
    return book


def _texts(table: Table) -> dict[str, str]:
    return {key: table.text(key) for key in table.keys()}  # noqa: SIM118 - a Table is no mapping


def _facts(table: Table) -> SchemeFacts:
    found = (
        table.text("weights"),
        table.text("weight-scale"),
        table.text("activations"),
        table.text("activation-scale"),
        table.flag("zero-point"),
    )
    table.done()
    return found


def _method(table: Table) -> Method:
    cases = []
    for entry in table.tables("case"):
        when = entry.table("when")
        cases.append(
            Case(
                when={key: when.texts(key) for key in when.keys()},  # noqa: SIM118
                facts=_facts(entry.table("facts")),
            )
        )
        entry.done()
    refusals = []
    for entry in table.tables("refuse"):
        refusals.append(Refusal(key=entry.text("key"), values=entry.texts("values"), why=entry.text("why")))
        entry.done()
    elements = table.optional_table("elements")
    found = Method(
        name=table.text("name"),
        quant_methods=table.texts("quant-methods"),
        model_types=table.texts("model-types", ()),
        roles=table.texts("roles", ("dense", "moe")),
        quantizer=table.text("quantizer"),
        pads=table.flag("pads", default=False),
        layout=table.choice("layout", LAYOUTS),
        ignore_keys=table.texts("ignore-keys"),
        match=table.choice("match", MATCHES),
        group_size_keys=table.texts("group-size-keys", ()),
        elements=_texts(elements) if elements is not None else {},
        cases=tuple(cases),
        refusals=tuple(refusals),
        digest=digest_of(table.values),
    )
    table.text("where")
    table.done()
    return found


def _scheme(table: Table, known: set[str]) -> SchemeRule:
    entry = table.table("facts")
    found = SchemeRule(
        serves=table.text("serves"),
        quantizers=table.texts("quantizers", ()),
        packings=table.texts("packings", ()),
        facts={key: tuple(entry.raw(key) or ()) for key in SCHEME_KEYS},
    )
    entry.done()
    if found.serves not in known:
        raise table.fail("serves", f"no scheme is called `{found.serves}`")
    table.done()
    return found


def _cache(table: Table, known: set[str]) -> CacheRule:
    entry = table.optional_table("facts")
    found = CacheRule(
        serves=table.text("serves"),
        algorithms=table.texts("algorithms", ()),
        facts=_facts(entry) if entry is not None else None,
    )
    if found.serves not in known:
        raise table.fail("serves", f"no scheme is called `{found.serves}`")
    table.done()
    return found


def _block(table: Table) -> tuple[str, int]:
    found = table.text("weight-scale"), table.whole("size")
    table.text("where")
    table.done()
    return found


def _layout(table: Table) -> Layout:
    found = Layout(
        model_types=table.texts("model-types"),
        attention=table.choice("attention", ATTENTION),
        sinks=table.flag("sinks"),
        moe_activation=table.optional_text("moe-activation"),
        experts=table.texts("experts", ()),
        shared_expert=table.optional_text("shared-expert"),
        digest=digest_of(table.values),
    )
    table.text("where")
    table.done()
    return found
