"""Real answers of an engine's predicates and selectors beside our conditions and ladders; their record. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qresolve.audit.behaviour import Comparison, Difference
from qresolve.audit.points import NOTHING, selection_only
from qresolve.completions import answer_from
from qresolve.errors import DataInvalid
from qresolve.gates import Undecided, decide
from qresolve.selector import select
from qresolve.situation import Host, facts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from qresolve.arch import Architectures, ImageArch
    from qresolve.audit.predicate_questions import Predicates
    from qresolve.facts import FactTable, Value
    from qresolve.knowledge.records import Engine, Scheme, Workload

SCHEMA = "qresolve.sglang-predicates/1"
_KINDS = ("predicates", "by-cuda", "points")
_REFUSED, _ERROR, _FAILED = "refused: ", "error: ", "failed"
_ANY_SCHEME = "fp8@w8a16:dense"  # predicates look at no scheme, and a table of facts is made for one


@dataclass(frozen=True, slots=True, kw_only=True)
class PredicateAnswers:
    """What one release answered, by presence, the keys that lead to an answer in the record, and sm.

    Keys are ``("predicates", name)``, ``("by-cuda", version, name)`` and ``("points", text)``; ``("failed",)`` where a
    GPU's questions could not be asked at all. A text begins with ``refused: `` or ``error: `` where there is no name.
    """

    release: str
    torch_cuda: str
    answers: Mapping[tuple[str, tuple[str, ...], int], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """All that our side of the comparison is made from."""

    engine: Engine
    schemes: Mapping[str, Scheme]
    workload: Workload
    architectures: Architectures

    def facts(self, sm: int, scheme: str, assumed: Mapping[str, Value]) -> FactTable:
        """The facts of a point on a host without a toolkit."""
        return facts_of(
            engine=self.engine,
            sm=sm,
            scheme=self.schemes[scheme],
            workload=self.workload,
            host=Host.without_toolkit(),
            images=_no_image_measured,
            architectures=self.architectures,
            assumed=assumed,
        )


def _no_image_measured(
    _project: str, _library: str, _unit: str, _scheme: Scheme | None = None, /
) -> tuple[ImageArch, ...] | None:
    return None


def compare_predicates(answers: PredicateAnswers, questions: Predicates, simulation: Simulation) -> Comparison:
    """Hold conditions and ladders against the answers, one by one."""
    compared = 0
    differences: list[Difference] = []
    unasked: list[tuple[str, str, int, str]] = []
    there = {(presence, sm) for presence, _, sm in answers.answers}
    unasked += [
        (presence.id, "everything", sm, "the record has no such point")
        for presence in questions.presences
        for sm in presence.archs
        if (presence.id, sm) not in there
    ]
    asked = {presence.id: presence for presence in questions.presences}
    for (name, keys, sm), real in answers.answers.items():
        if name not in asked or sm not in asked[name].archs:
            continue
        variables: dict[str, Value] = {f"env.{key}": value == "1" for key, value in asked[name].environ.items()}
        if keys[0] == "points":
            text = keys[1]
            if questions.only is not None and text.partition(" ")[0] not in questions.only:
                continue
            stands, why = _stands_for(name, text, real, questions)
            ours = _our_route(text, sm, variables, questions, simulation) if not why else None
        else:
            text = " ".join((keys[-1], *(f"runtime.cudart={cuda}" for cuda in keys[1:-1])))
            condition = questions.conditions.get(keys[-1])
            if condition == NOTHING:
                continue
            stands, why = real, _no_truth(real, condition, keys)
            variables["runtime.cudart"] = keys[1] if keys[0] == "by-cuda" else answers.torch_cuda
            ours = _our_condition(str(condition), sm, variables, simulation) if not why else None
        if why:
            unasked.append((name, text, sm, why))
            continue
        compared += 1
        if stands is None or stands != ours:
            shown = NOTHING if stands == NOTHING else real
            differences.append(Difference(presence=name, point=text, sm=sm, real=shown, simulated=ours))
    return Comparison(
        compared=compared,
        differences=tuple(differences),
        unasked=tuple(unasked),
        left_out=tuple(_left_out(answers, questions, simulation.engine)),
    )


def _stands_for(presence: str, text: str, answer: str, questions: Predicates) -> tuple[str | None, str]:
    """The route that an answer stands for, None where nothing says so; or why it is no answer."""
    scheme = text.partition(" ")[0]
    if answer.startswith(_REFUSED) or (scheme, answer) in questions.falls_over:
        return NOTHING, ""
    if answer.startswith(_ERROR):
        return None, answer.removeprefix(_ERROR)
    argued = questions.argued.get((presence, scheme, answer))
    return (argued if argued is not None else questions.routes.get(scheme, {}).get(answer)), ""


def _no_truth(answer: str, condition: str | None, keys: tuple[str, ...]) -> str:
    """Why a predicate's answer cannot be compared, empty where it can."""
    if keys == (_FAILED,):
        return answer
    if condition is None:
        return "nothing says which condition stands for the predicate"
    if answer not in {"True", "False"}:
        return answer.removeprefix(_ERROR)
    return ""


def _our_condition(condition: str, sm: int, assumed: Mapping[str, Value], simulation: Simulation) -> str | None:
    try:
        gate = simulation.engine.conditions[condition]
        return str(decide(gate, answer_from(simulation.facts(sm, _ANY_SCHEME, assumed))))
    except Undecided:
        return None


def _our_route(
    text: str, sm: int, variables: Mapping[str, Value], questions: Predicates, simulation: Simulation
) -> str | None:
    """The route that our ladder takes, with what it runs on left aside."""
    engine = simulation.engine
    scheme = text.partition(" ")[0]
    if scheme not in engine.ladders:
        return None
    answer = answer_from(simulation.facts(sm, scheme, point_assumptions(text, variables)))
    try:
        found = select(engine.ladders[scheme], selection_only(engine), answer)
    except Undecided:
        return None
    return questions.same.get(found.route, found.route) if found.route else NOTHING


def point_assumptions(text: str, variables: Mapping[str, Value]) -> dict[str, Value]:
    """The facts that a point's text names: the checkpoint's kind, and backends as settings."""
    _, quantizer, *named = text.split()
    settings = {f"config.{key}": value for key, _, value in (item.partition("=") for item in named)}
    return {"workload.quantizer": quantizer, **variables, **settings}


def _left_out(answers: PredicateAnswers, questions: Predicates, engine: Engine) -> Iterator[tuple[str, str]]:
    asked = {keys[1].partition(" ")[0] for _, keys, _ in answers.answers if keys[0] == "points"}
    for scheme in sorted(set(engine.ladders) - asked - set(questions.unasked)):
        if questions.only is None or scheme in questions.only:
            yield scheme, "the script has no question for it"


def predicates_request(questions: Predicates) -> dict[str, Any]:
    """What the script inside the environment is told: a job for each presence and GPU."""
    jobs: list[dict[str, Any]] = []
    for presence in questions.presences:
        for sm in presence.archs:
            jobs.append(
                {
                    "id": len(jobs),
                    "presence": presence.id,
                    "sm": sm,
                    "environ": dict(presence.environ),
                    "cudas": list(questions.cudas) if presence.cudas else [],
                    "schemes": None if questions.only is None else list(questions.only),
                }
            )
    return {"jobs": jobs}


def parse_predicate_lines(lines: tuple[str, ...], request: Mapping[str, Any]) -> PredicateAnswers:
    """The answers of the script to ``request``.

    Raises:
        DataInvalid: a line is no answer to it.
    """
    release = torch_cuda = ""
    found: dict[tuple[str, tuple[str, ...], int], str] = {}
    try:
        for line in lines:
            document = json.loads(line)
            job = request["jobs"][document["job"]]
            release, torch_cuda = document.get("release", release), document.get("torch-cuda", torch_cuda)
            answers = document["answers"] if "answers" in document else {_FAILED: str(document["failed"])}
            for keys, value in _leaves((), answers):
                found[job["presence"], keys, job["sm"]] = value
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise DataInvalid(f"the script inside the environment answered something else: {error}") from error
    return PredicateAnswers(release=str(release), torch_cuda=str(torch_cuda), answers=found)


def _leaves(keys: tuple[str, ...], found: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each answer with the keys that lead to it."""
    for key, value in found.items():
        if isinstance(value, dict):
            yield from _leaves((*keys, key), value)
        else:
            yield (*keys, key), str(value)


def predicates_document(
    answers: PredicateAnswers, questions: Predicates, *, engine: str, command: str
) -> dict[str, Any]:
    """The record of real answers as JSON values; ``command`` made it. GPUs that agree share a row."""
    rows: dict[tuple[str, ...], dict[str, list[int]]] = {}
    for (presence, keys, sm), value in answers.answers.items():
        rows.setdefault((presence, *keys), {}).setdefault(value, []).append(sm)
    tree: dict[str, Any] = {}
    for path, values in rows.items():
        row = tree
        for key in path:
            row = row.setdefault(key, {})
        row.update({" ".join(str(sm) for sm in sorted(sms)): value for value, sms in values.items()})
    return {
        "schema": SCHEMA,
        "engine": engine,
        "release": answers.release,
        "torch-cuda": answers.torch_cuda,
        "command": command,
        "presences": {presence.id: dict(presence.environ) for presence in questions.presences},
        "answers": tree,
    }


def parse_predicates_record(document: Mapping[str, Any]) -> PredicateAnswers:
    """The record back.

    Raises:
        DataInvalid: it is none.
    """
    if document.get("schema") != SCHEMA:
        raise DataInvalid(f"not a record of {SCHEMA}")
    try:
        return PredicateAnswers(
            release=str(document["release"]),
            torch_cuda=str(document["torch-cuda"]),
            answers={
                (presence, keys[:-1], int(sm)): value
                for presence, kinds in document["answers"].items()
                for keys, value in _leaves((), kinds)
                for sm in keys[-1].split()
                if keys[0] in (*_KINDS, _FAILED)
            },
        )
    except (KeyError, AttributeError, ValueError, IndexError) as error:
        raise DataInvalid(f"a record of behaviour is wrong at {error}") from error


def joined_predicates(old: PredicateAnswers, new: PredicateAnswers) -> PredicateAnswers:
    """The answers of an earlier audit with those of a later one put over them."""
    later = {(presence, sm) for presence, keys, sm in new.answers if keys != (_FAILED,)}
    # A GPU that failed then and answered now has not failed.
    kept = {
        (presence, keys, sm): value
        for (presence, keys, sm), value in old.answers.items()
        if keys != (_FAILED,) or (presence, sm) not in later
    }
    return PredicateAnswers(release=new.release, torch_cuda=new.torch_cuda, answers={**kept, **new.answers})
