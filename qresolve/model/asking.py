"""From a model to asked rows, and from the rows of its layers back to one answer. Pure."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from qresolve.classes import rank
from qresolve.errors import UsageError
from qresolve.explain import Layers
from qresolve.request import Ask, parse_allow, parse_formats

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from qresolve.explain import RowView
    from qresolve.facts import Value
    from qresolve.knowledge.records import FormatBook, Workload
    from qresolve.model.model import Model
    from qresolve.resolution import Row

SIZES = ("workload.n", "workload.k")


def asks_of(model: Model, formats: Sequence[str], book: FormatBook) -> tuple[Ask, ...]:
    """The rows to judge: all that the model has, or those that ``--formats`` selects of it.

    A KV cache may be asked for beside any model: its dtype is chosen when the engine starts.

    Raises:
        UsageError: the model has what no record speaks of, or has not what was asked for.
    """
    words = [word.strip() for text in formats for word in text.split(",") if word.strip()]
    if not words:
        if model.problems:
            what = "; ".join(dict.fromkeys(problem.what for problem in model.problems))
            selectable = ",".join(part.key for part in model.parts)
            raise UsageError(
                f"{model.given}: {what}",
                hint=f"--formats {selectable} judges the rest of the model" if selectable else None,
            )
        return tuple(Ask(scheme=part.scheme, role=part.role) for part in model.parts)
    found: dict[str, Ask] = {}
    for word in words:
        selector = parse_allow([f"{word}=native"], book)[0]
        chosen = [ask for part in model.parts if selector.matches(ask := Ask(scheme=part.scheme, role=part.role))]
        if not chosen and selector.role == "kv":
            chosen = list(parse_formats([word], book))
        if not chosen:
            has = ", ".join(part.key for part in model.parts) or "nothing that the records speak of"
            raise UsageError(
                f"`--formats {word}`: the checkpoint {model.given} has {has}",
                hint=f"--formats {model.parts[0].key}" if model.parts else None,
            )
        found |= {ask.key: ask for ask in chosen}
    order = [scheme.key(role) for item in book.formats for scheme in item.schemes for role in scheme.roles]
    return tuple(found[key] for key in order if key in found)


def one_a_row(rows: Iterable[Row], views: Iterable[RowView]) -> tuple[RowView, ...]:
    """One view for each row: of a model whose layers differ, the worst, with all their settings and what each is."""
    found = []
    for _, group in groupby(zip(rows, views, strict=True), key=lambda pair: (pair[0].ask.key, pair[0].arch)):
        pairs = tuple(group)
        layers = tuple(
            Layers(name=row.variant, verdict=view.verdict, holds=view.holds, route=view.route, why=view.why)
            for row, view in pairs
            if row.variant
        )
        if len(pairs) == 1:
            found.append(replace(pairs[0][1], layers=layers))
            continue
        worst = max((view for _, view in pairs), key=lambda view: (not view.holds, rank(view.verdict)))
        auto = max((view.auto for _, view in pairs), key=lambda auto: rank(auto.verdict))
        settings = {setting.sort_key: setting for _, view in pairs for setting in view.settings}
        found.append(
            replace(
                worst,
                auto=auto,
                settings=tuple(settings[key] for key in sorted(settings)),
                layers=layers,
            )
        )
    return tuple(found)


def shared_facts(model: Model | None, workload: Workload) -> Mapping[str, Value]:
    """The workload's facts that hold for every row; sizes of layers do not where the model says them."""
    if model is None or not _sizes(model):
        return workload.facts
    return {key: value for key, value in workload.facts.items() if key not in SIZES}


def _sizes(model: Model) -> dict[str, list[str]]:
    """For each part the sizes of its layers as ``NxK``, in order."""
    found = {}
    for part in model.parts:
        shapes = [dict(variant.facts) for variant in part.variants]
        if any(key in shape for shape in shapes for key in SIZES):
            found[part.key] = ["x".join(str(shape.get(key, "?")) for key in SIZES) for shape in shapes]
    return found


def recorded_facts(
    model: Model | None, workload: Workload, base: Workload, assumed: Mapping[str, Value]
) -> tuple[tuple[str, str], ...]:
    """What a lock records of the workload: where it differs from the reference, and every assumption. No path."""
    found = {key: str(value) for key, value in workload.facts.items() if base.facts.get(key) != value}
    if model is not None:
        found |= {f"workload.layers.{key}": " ".join(dict.fromkeys(sizes)) for key, sizes in _sizes(model).items()}
        for part in model.parts:
            for key in sorted({key for item in part.variants for key, _ in item.facts if key.startswith("scheme.")}):
                values = {str(value) for item in part.variants for name, value in item.facts if name == key}
                found[f"{key}.{part.key}"] = " ".join(sorted(values))
    found |= {key: str(value) for key, value in assumed.items()}
    return tuple(sorted(found.items()))
