"""What was read from a model's configuration, in words for stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qresolve.knowledge.records import Workload
    from qresolve.model.model import Model


def model_lines(model: Model, workload: Workload) -> Iterator[str]:
    """The parts, the facts that were read, and those that are assumed because the configuration does not say them."""
    for part in model.parts:
        yield f"model: {part.key}: {part.said}"
        for variant in part.variants:
            facts = dict(variant.facts)
            words = [f"{key.partition('.')[2]} {value}" for key, value in facts.items()]
            if variant.name or words:
                yield f"  {variant.name or 'all'}: {', '.join(words) or 'sizes unknown'}"
    for problem in model.problems:
        yield f"model: not judged: {problem.what}"
    for key, value in model.facts.items():
        yield f"model: {key} = {_word(value)}"
    for key, why in model.assumed.items():
        if key in workload.facts:
            yield f"assumed: {key} = {_word(workload.facts[key])} ({why})"


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
