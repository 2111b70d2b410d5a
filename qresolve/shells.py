"""Kernels whose image loads and is a shell: no instruction of the asked product stands in it. Pure.

A compiler leaves such an image where the kernel's code is written for other archs alone. It loads, is launched and
computes nothing of what its name says, so it counts as absent; but "no image loads" would be untrue of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve.completions import answer_from
from qresolve.gates import kleene, leaves

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qresolve.facts import FactTable
    from qresolve.knowledge.records import Gate


def words_of_gate(gate: Gate, table: FactTable) -> str:
    """What is to be said where the gate fails: its record's words, or, of shells, which images are to blame and how."""
    keys = _to_blame(gate, table)
    if not any(table.get(key).shell_image for key in keys):
        return gate.say
    return "; ".join(_words(key, table) for key in keys)


def _to_blame(gate: Gate, table: FactTable) -> tuple[str, ...]:
    """The fewest images for whose sake alone the gate fails; none where something else fails it."""
    facts = dict.fromkeys(leaf.fact for leaf in leaves(gate.when) if leaf.fact.startswith("image."))
    keys = [key for key in facts if table.get(key).value not in (None, "sass")]
    if kleene(gate.when, answer_from(table)) is not False or not _holds_with(gate, table, keys):
        return ()
    for key in tuple(keys):
        others = [one for one in keys if one != key]
        if _holds_with(gate, table, others):
            keys = others
    return tuple(keys)


def _holds_with(gate: Gate, table: FactTable, keys: Iterable[str]) -> bool:
    """Whether the gate would hold if these images were whole."""
    whole = table.with_values(dict.fromkeys(keys, "sass"), "as if the kernel were there")
    return kleene(gate.when, answer_from(whole)) is True


def _words(key: str, table: FactTable) -> str:
    unit, shell = key.removeprefix("image.").partition("/")[2], table.get(key).shell_image
    if not shell:
        return f"no image of {unit} loads on this GPU"
    return (
        f"the {shell} image of {unit} loads on this GPU and is a shell: "
        "no tensor-core instruction of this format stands in it"
    )
