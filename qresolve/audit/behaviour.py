"""Real answers of a release's selectors beside our simulated ones: their record, and the differences. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qresolve.audit.points import (
    NOTHING,
    all_points,
    experts_agree,
    point_facts,
    points_of,
    quantizer_of,
    selection_only,
    simulated,
    unread_schemes,
)
from qresolve.errors import DataInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from qresolve.arch import Architectures
    from qresolve.audit.points import Presence, Questionnaire
    from qresolve.knowledge.records import Engine, Scheme, Workload

SCHEMA = "qresolve.audit-behaviour/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the selectors of one release answered, by presence, point text and sm.

    ``picked`` holds names (:data:`~qresolve.audit.points.NOTHING` for a refusal); ``unasked`` what could not be asked,
    with the reason.
    """

    release: str
    picked: Mapping[tuple[str, str, int], str]
    unasked: Mapping[tuple[str, str, int], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A point at which the simulation and the real selector part; ``simulated`` is None where ours cannot tell."""

    presence: str
    point: str
    sm: int
    real: str
    simulated: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How many points were compared, which differ, and which the record has no answer to (with the reason).

    ``left_out`` are whole schemes that the engine serves and nothing was compared of, with the reason.
    """

    compared: int
    differences: tuple[Difference, ...]
    unasked: tuple[tuple[str, str, int, str], ...]
    left_out: tuple[tuple[str, str], ...]


def compare(
    answers: Answers,
    *,
    engine: Engine,
    questionnaire: Questionnaire,
    schemes: Mapping[str, Scheme],
    workload: Workload,
    architectures: Architectures,
) -> Comparison:
    """Hold the simulation against the answers, point by point."""
    compared = 0
    routes = selection_only(engine)
    differences: list[Difference] = []
    unasked: list[tuple[str, str, int, str]] = []
    for presence, sm, point in all_points(engine, questionnaire):
        key = (presence.id, point.text, sm)
        if key not in answers.picked:
            unasked.append((*key, answers.unasked.get(key, "the record has no such point")))
            continue
        compared += 1
        real = answers.picked[key]
        facts = point_facts(
            point,
            sm=sm,
            presence=presence,
            engine=engine,
            questionnaire=questionnaire,
            schemes=schemes,
            workload=workload,
            architectures=architectures,
        )
        ours = simulated(engine.ladders[point.scheme], routes, facts, role=point.scheme.rpartition(":")[2])
        if ours is None or not (ours == real or (ours != NOTHING and experts_agree(engine, ours, real))):
            differences.append(Difference(presence=presence.id, point=point.text, sm=sm, real=real, simulated=ours))
    unread = unread_schemes(engine, questionnaire)
    return Comparison(
        compared=compared,
        differences=tuple(differences),
        unasked=tuple(unasked),
        left_out=tuple((scheme, "nobody has read the selector of this release") for scheme in unread),
    )


def request_document(
    engine: Engine,
    questionnaire: Questionnaire,
    *,
    environ: Callable[[Presence], Mapping[str, str]],
) -> dict[str, Any]:
    """What the script inside the environment is told: a job for each presence and GPU."""
    jobs: list[dict[str, Any]] = []
    for presences in _processes(questionnaire):
        for sm in questionnaire.archs:
            phases = [
                {
                    "id": presence.id,
                    "hide": list(presence.hide),
                    "stub": list(presence.stub),
                    "environ": dict(environ(presence)),
                    "points": [
                        {
                            "scheme": point.scheme,
                            "quantizer": quantizer_of(point, questionnaire),
                            "settings": dict(point.settings),
                        }
                        for point in points_of(engine, questionnaire, presence)
                    ],
                }
                for presence in presences
            ]
            jobs.append({"id": len(jobs), "sm": sm, "phases": phases})
    return {"jobs": jobs}


def _processes(questionnaire: Questionnaire) -> tuple[tuple[Presence, ...], ...]:
    """The presences that one process can ask for, one after the other."""
    together = tuple(presence for presence in questionnaire.presences if not presence.alone)
    alone = tuple((presence,) for presence in questionnaire.presences if presence.alone)
    return ((together,) if together else ()) + alone


def parse_answer_lines(lines: tuple[str, ...], request: Mapping[str, Any]) -> Answers:
    """The answers of the script to ``request``.

    Raises:
        DataInvalid: a line is no answer to it.
    """
    release = ""
    picked: dict[tuple[str, str, int], str] = {}
    unasked: dict[tuple[str, str, int], str] = {}
    try:
        for line in lines:
            document = json.loads(line)
            job = request["jobs"][document["job"]]
            if "failed" in document:
                answers = [[{"error": document["failed"]}] * len(phase["points"]) for phase in job["phases"]]
            else:
                answers = document["answers"]
            release = str(document.get("release", release))
            for phase, row in zip(job["phases"], answers, strict=True):
                for point, answer in zip(phase["points"], row, strict=True):
                    key = (str(phase["id"]), _point_text(point), int(job["sm"]))
                    if "error" in answer:
                        unasked[key] = str(answer["error"])
                    else:
                        picked[key] = str(answer["picked"]) if "picked" in answer else NOTHING
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DataInvalid(f"the script inside the environment answered something else: {error}") from error
    return Answers(release=release, picked=picked, unasked=unasked)


def joined(old: Answers, new: Answers) -> Answers:
    """The answers of an earlier audit with those of a later one put over them."""
    later = {*new.picked, *new.unasked}
    return Answers(
        release=new.release,
        picked={key: value for key, value in old.picked.items() if key not in later} | dict(new.picked),
        unasked={key: value for key, value in old.unasked.items() if key not in later} | dict(new.unasked),
    )


def _point_text(point: Mapping[str, Any]) -> str:
    return " ".join((point["scheme"], *(f"{fact}={value}" for fact, value in point["settings"].items())))


def _rows(values: Mapping[tuple[str, str, int], str]) -> dict[str, dict[str, dict[str, str]]]:
    """Presence, point, then each answer with the sm numbers that got it: GPUs mostly agree."""
    rows: dict[str, dict[str, dict[str, list[int]]]] = {}
    for (presence, text, sm), value in values.items():
        rows.setdefault(presence, {}).setdefault(text, {}).setdefault(value, []).append(sm)
    return {
        presence: {
            text: {" ".join(str(sm) for sm in sorted(sms)): value for value, sms in sorted(answers.items())}
            for text, answers in sorted(points.items())
        }
        for presence, points in rows.items()
    }


def record_document(answers: Answers, *, engine: str, command: str) -> dict[str, Any]:
    """The record of real answers as JSON values; ``command`` made it."""
    return {
        "schema": SCHEMA,
        "engine": engine,
        "release": answers.release,
        "command": command,
        "answers": _rows(answers.picked),
        "unasked": _rows(answers.unasked),
    }


def parse_record(document: Mapping[str, Any]) -> Answers:
    """The record back.

    Raises:
        DataInvalid: it is none.
    """

    def flat(rows: Mapping[str, Any]) -> dict[tuple[str, str, int], str]:
        return {
            (presence, text, int(sm)): str(value)
            for presence, points in rows.items()
            for text, answers in points.items()
            for sms, value in answers.items()
            for sm in sms.split()
        }

    if document.get("schema") != SCHEMA:
        raise DataInvalid(f"not a record of {SCHEMA}")
    try:
        return Answers(
            release=str(document["release"]), picked=flat(document["answers"]), unasked=flat(document["unasked"])
        )
    except (KeyError, AttributeError, ValueError) as error:
        raise DataInvalid(f"a record of behaviour is wrong at {error}") from error
