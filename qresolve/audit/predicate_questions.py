"""How an engine is asked whose gates are predicates more than selectors, and what its answers stand for. Pure.

Read from ``constraints/audited/<engine>.toml`` with ``protocol = "predicates"``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qresolve.audit.points import NOTHING, check_archs
from qresolve.knowledge.load import read_specifier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qresolve.strict import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class VariablePresence:
    """Variables of the engine under which everything is asked, and for which sm numbers.

    ``cudas`` says whether predicates are asked for other CUDA versions of torch too.
    """

    id: str
    environ: Mapping[str, str]
    archs: tuple[int, ...]
    cudas: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicates:
    """What is asked, and what an answer stands for in the records.

    ``conditions`` by name of a predicate, :data:`~qresolve.audit.points.NOTHING` where no condition stands for it.
    ``routes`` by scheme key and answer. ``argued`` by presence, scheme key and answer, where the ladder rightly says
    more than the answer. ``same`` maps routes that an answer cannot tell apart to the one that it names. ``falls_over``
    are scheme keys with errors of the engine's own that are refusals. ``only``: see ``Questionnaire``.
    """

    script: str
    archs: tuple[int, ...]
    cudas: tuple[str, ...]
    presences: tuple[VariablePresence, ...]
    conditions: Mapping[str, str]
    routes: Mapping[str, Mapping[str, str]]
    argued: Mapping[tuple[str, str, str], str]
    same: Mapping[str, str]
    falls_over: tuple[tuple[str, str], ...]
    unasked: tuple[str, ...]
    only: tuple[str, ...] | None = None


def parse_predicates(table: Table, release: str) -> Predicates:
    """Read ``constraints/audited/<engine>.toml`` as it holds for a release.

    Raises:
        DataInvalid: a key is missing, unknown or of another type.
    """
    table.day("checked")
    table.text("read-from")
    table.choice("protocol", ("predicates",))
    archs = table.wholes("archs")
    found = Predicates(
        script=table.text("script"),
        archs=archs,
        cudas=table.texts("cudas"),
        presences=_presences(table, archs),
        conditions=_conditions(table),
        routes=_routes(table),
        argued=_argued(table),
        same=_same(table),
        falls_over=_falls_over(table, release),
        unasked=table.texts("unasked", ()),
    )
    table.done()
    return found


def _presences(table: Table, archs: tuple[int, ...]) -> tuple[VariablePresence, ...]:
    found = []
    for entry in table.tables("presence"):
        environ = entry.optional_table("environ")
        found.append(
            VariablePresence(
                id=entry.text("id"),
                environ={} if environ is None else {key: environ.text(key) for key in environ},
                archs=entry.wholes("archs") if "archs" in entry else archs,
                cudas=entry.flag("cudas", default=False),
            )
        )
        entry.done()
    return tuple(found)


def _conditions(table: Table) -> dict[str, str]:
    found = {}
    for entry in table.tables("predicate"):
        if "condition" in entry:
            found[entry.text("name")] = entry.text("condition")
        else:
            found[entry.text("name")] = NOTHING
            entry.text("why")
        entry.done()
    return found


def _routes(table: Table) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for entry in table.tables("answers"):
        routes = entry.table("routes")
        stands = {key: routes.text(key) for key in routes}
        refuses = dict.fromkeys(entry.texts("refuses", ()), NOTHING)
        for scheme in entry.texts("schemes"):
            if scheme in found:
                raise entry.fail("schemes", f"`{scheme}` has its answers already")
            found[scheme] = stands | refuses
        entry.done()
    return found


def _argued(table: Table) -> dict[tuple[str, str, str], str]:
    found = {}
    for entry in table.tables("argued"):
        entry.text("why")
        found[entry.text("presence"), entry.text("scheme"), entry.text("answer")] = entry.text("route")
        entry.done()
    return found


def _same(table: Table) -> dict[str, str]:
    found = {}
    for entry in table.tables("same"):
        entry.text("why")
        found[entry.text("route")] = entry.text("as")
        entry.done()
    return found


def _falls_over(table: Table, release: str) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for entry in table.tables("falls-over"):
        entry.text("why")
        schemes, answer = entry.texts("schemes"), entry.text("answer")
        if read_specifier(entry, "releases").contains(release, prereleases=True):
            found += [(scheme, answer) for scheme in schemes]
        entry.done()
    return tuple(found)


def narrowed_predicates(questions: Predicates, *, archs: tuple[int, ...], schemes: tuple[str, ...]) -> Predicates:
    """The part of it that is about those sm numbers and scheme keys; an empty tuple means all.

    Predicates belong to no scheme: they are asked with every choice.

    Raises:
        UsageError: an arch that is never asked for.
    """
    check_archs(archs, questions.archs)
    if archs:
        kept = [
            replace(presence, archs=tuple(sm for sm in presence.archs if sm in archs))
            for presence in questions.presences
        ]
        questions = replace(
            questions,
            archs=tuple(sm for sm in questions.archs if sm in archs),
            presences=tuple(presence for presence in kept if presence.archs),
        )
    return replace(questions, only=schemes or None)
