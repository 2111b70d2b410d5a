"""``explain --json``: the schema ``qresolve.explain/1``, published in qresolve/schemas/explain.json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qresolve.model.asking import shared_facts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qresolve.explain import GateView, RouteView, RowView
    from qresolve.facts import Value
    from qresolve.judging import Answer
    from qresolve.question import Question


def explain_mapping(question: Question, answer: Answer) -> dict[str, Any]:
    """The whole document."""
    return {
        "schema": "qresolve.explain/1",
        "target": question.target.to_mapping(),
        "engine": _engine(question, answer),
        "assumes": {
            **{key: plain(value) for key, value in shared_facts(question.model, question.workload).items()},
            **{key: plain(value) for key, value in question.assumed.items()},
        },
        "formats": [row_mapping(row) for row in answer.rows],
        "settings": [setting.to_mapping() for setting in answer.settings],
        "data_digest": answer.data_digest,
    }


def _engine(question: Question, answer: Answer) -> dict[str, str | None]:
    release = answer.engine.release
    barred = question.unlockable(release)
    unlockable = None if barred is None else barred.why
    return {"name": answer.engine.name, "version": release.version, "unlockable": unlockable}


def plain(value: Value) -> Any:
    """A fact's value as JSON."""
    return sorted(value) if isinstance(value, frozenset) else value


def row_mapping(row: RowView) -> dict[str, Any]:
    """One element of ``formats``."""
    return {
        "format": row.format,
        "scheme": row.scheme,
        "role": row.role,
        "arch": row.arch,
        "asked": row.asked,
        "wanted": row.wanted,
        "holds": row.holds,
        "verdict": row.verdict,
        "level": row.level,
        "possible": list(row.possible),
        "route": row.route,
        "settings": [setting.to_mapping() for setting in row.settings],
        "auto": {
            "verdict": row.auto.verdict,
            "route": row.auto.route,
            "loudness": row.auto.loudness,
            "assumes": {key: plain(value) for key, value in row.auto.assumes},
        },
        "routes": [
            {
                "name": route.name,
                "class": route.class_,
                "decision": route.decision,
                "gates": [*(gate_mapping(gate) for gate in route.gates), *_status(route)],
            }
            for route in row.routes
        ],
        "remedy": [{"say": remedy.say, "run": remedy.run} for remedy in row.remedy],
        "alone": None if row.alone is None else {"verdict": row.alone.verdict, "route": row.alone.route},
        "layers": [
            {
                "name": group.name,
                "verdict": group.verdict,
                "holds": group.holds,
                "route": group.route,
                "why": group.why,
            }
            for group in row.layers
        ],
    }


def gate_mapping(gate: GateView) -> dict[str, Any]:
    """One element of a route's ``gates``."""
    return {
        "id": gate.id,
        "outcome": gate.outcome,
        "needs": gate.needs,
        "have": gate.have,
        "loudness": gate.loudness,
        "source": gate.source,
    }


def _status(route: RouteView) -> list[dict[str, Any]]:
    """How far a route's authors vouch for it, as one more gate: what the shape of a route promises stays as it is."""
    if route.status == "supported":
        return []
    have = f"{route.status}: {route.status_why}"
    gate = {"id": "status", "outcome": "unknown", "needs": "supported", "have": have}
    return [{**gate, "loudness": "silent", "source": "the record of the route"}]


def target_words(target: Mapping[str, Any]) -> str:
    """One line about the target."""
    gpus = ", ".join(
        gpu["arch"] if gpu["name"] == gpu["arch"] else f"{gpu['name']} ({gpu['arch']})" for gpu in target["gpus"]
    )
    return f"{gpus}, {target['machine']}, glibc {target['glibc']}, Python {target['python']}"
