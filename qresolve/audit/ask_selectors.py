"""The behaviour audit of one release: what is asked inside its environment, or was recorded, beside the records."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qresolve.arch import read_architectures
from qresolve.audit.behaviour import (
    compare,
    joined,
    parse_answer_lines,
    parse_record,
    record_document,
    request_document,
)
from qresolve.audit.points import narrowed, parse_questionnaire
from qresolve.audit.predicate_questions import narrowed_predicates, parse_predicates
from qresolve.audit.predicates import (
    Simulation,
    compare_predicates,
    joined_predicates,
    parse_predicate_lines,
    parse_predicates_record,
    predicates_document,
    predicates_request,
)
from qresolve.audit.run_inside import TOOLKIT, environment_variables, run_jobs
from qresolve.data import data_folder
from qresolve.errors import UsageError
from qresolve.knowledge.engine import load_engine
from qresolve.knowledge.load import read_formats, read_workload
from qresolve.strict import read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qresolve.audit.behaviour import Answers, Comparison
    from qresolve.audit.points import Presence, Questionnaire
    from qresolve.audit.predicate_questions import Predicates
    from qresolve.audit.predicates import PredicateAnswers
    from qresolve.audit.run_inside import Asking
    from qresolve.knowledge.records import Engine
    from qresolve.strict import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The sm numbers and scheme keys that an audit is about; an empty tuple means all."""

    archs: tuple[int, ...] = ()
    schemes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class From:
    """Where the answers come from: whom to ask, or what was ``recorded``; ``before`` is a record to add them to."""

    asking: Asking | None = None
    recorded: Mapping[str, Any] | None = None
    before: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviourAudit:
    """What was found; ``record`` are the answers as JSON values.

    ``whole`` says whether every job that was wanted has been answered, so that nothing is left to go on with.
    """

    release: str
    comparison: Comparison
    record: Mapping[str, Any]
    whole: bool


def read_questions(engine: str) -> Table:
    """The table that says how ``engine`` is asked.

    Raises:
        UsageError: its selectors cannot be asked.
    """
    path = data_folder("constraints") / "audited" / f"{engine}.toml"
    if not path.is_file():
        raise UsageError(f"the behaviour of {engine} cannot be audited: nothing says how its selectors are asked")
    return read_toml(path, name=f"constraints/audited/{path.name}")


def read_questionnaire(engine: str, release: str) -> Questionnaire:
    """How a release's selectors are asked.

    Raises:
        UsageError: its selectors cannot be asked. DataInvalid: the file is wrong.
    """
    return parse_questionnaire(read_questions(engine), release)


def read_predicates(engine: str, release: str) -> Predicates:
    """How a release's predicates are asked.

    Raises:
        UsageError: they cannot be asked. DataInvalid: the file is wrong.
    """
    return parse_predicates(read_questions(engine), release)


def read_simulation(engine: Engine) -> Simulation:
    """Our side of a comparison."""
    return Simulation(
        engine=engine,
        schemes={
            scheme.key(role): scheme
            for form in read_formats().formats
            for scheme in form.schemes
            for role in scheme.roles
        },
        workload=read_workload()[0],
        architectures=read_architectures(),
    )


def run_behaviour_audit(engine: str, version: str, *, wanted: Wanted, given: From) -> BehaviourAudit:
    """Ask, or take what was recorded, and compare.

    Raises:
        UsageError: the release cannot be asked, or the answers are another's. Unproved: nothing was answered.
        DataInvalid: a record or a data file is wrong.
    """
    known = load_engine(engine, version)
    table = read_questions(engine)
    by_predicates = table.choice("protocol", ("selectors", "predicates")) == "predicates"
    return (_audit_predicates if by_predicates else _audit_selectors)(known, table, wanted, given)


def _command(engine: Engine) -> str:
    return f"qresolve audit {engine.name}=={engine.release.version} --behaviour --python PYTHON --record FILE"


def _check_release(found: Answers | PredicateAnswers, engine: Engine) -> None:
    release = engine.release.version
    if found.release != release:
        raise UsageError(
            f"the answers are those of {engine.name} {found.release}, not of {release}",
            hint=f"qresolve audit {engine.name}=={found.release} --behaviour --python PYTHON",
        )


def _all_answered(lines: tuple[str, ...]) -> bool:
    return not any("failed" in json.loads(line) for line in lines)


def _audit_selectors(known: Engine, table: Table, wanted: Wanted, given: From) -> BehaviourAudit:
    questionnaire = narrowed(
        parse_questionnaire(table, known.release.version), archs=wanted.archs, schemes=wanted.schemes
    )
    whole = True
    if given.asking is None:
        answers = parse_record(given.recorded or {})
    else:
        answers, whole = run_selectors(known, questionnaire, given.asking)
    _check_release(answers, known)
    kept = answers
    if given.before is not None:
        old = parse_record(given.before)
        _check_release(old, known)
        kept = joined(old, answers)
    simulation = read_simulation(known)
    comparison = compare(
        answers,
        engine=known,
        questionnaire=questionnaire,
        schemes=simulation.schemes,
        workload=simulation.workload,
        architectures=simulation.architectures,
    )
    return BehaviourAudit(
        release=known.release.version,
        comparison=comparison,
        record=record_document(kept, engine=known.name, command=_command(known)),
        whole=whole,
    )


def run_selectors(engine: Engine, questionnaire: Questionnaire, asking: Asking) -> tuple[Answers, bool]:
    """The answers of selectors, and whether every job was answered.

    Raises:
        Unproved: nothing was answered. UsageError: it cannot be started here, or another release answers.
    """

    def environ(presence: Presence) -> Mapping[str, str]:
        return {"CUDA_HOME": TOOLKIT, "PATH": f"{TOOLKIT}/bin"} if presence.toolkit else {}

    request = request_document(engine, questionnaire, environ=environ)
    lines = run_jobs(request, script=questionnaire.script, engine=engine, asking=asking)
    return parse_answer_lines(lines, request), _all_answered(lines)


def run_predicates(engine: Engine, questions: Predicates, asking: Asking) -> tuple[PredicateAnswers, bool]:
    """The answers of predicates, and whether every job was answered.

    Raises:
        Unproved: nothing was answered. UsageError: it cannot be started here, or another release answers.
    """
    request = predicates_request(questions)
    # Extensions that build kernels look for the toolkit of the environment's own wheels when they are imported.
    variables = environment_variables(asking.python)
    lines = run_jobs(request, script=questions.script, engine=engine, asking=asking, environ=variables)
    return parse_predicate_lines(lines, request), _all_answered(lines)


def _audit_predicates(known: Engine, table: Table, wanted: Wanted, given: From) -> BehaviourAudit:
    every = parse_predicates(table, known.release.version)
    questions = narrowed_predicates(every, archs=wanted.archs, schemes=wanted.schemes)
    whole = True
    if given.asking is None:
        answers = parse_predicates_record(given.recorded or {})
    else:
        answers, whole = run_predicates(known, questions, given.asking)
    _check_release(answers, known)
    kept = answers
    if given.before is not None:
        old = parse_predicates_record(given.before)
        _check_release(old, known)
        kept = joined_predicates(old, answers)
    return BehaviourAudit(
        release=known.release.version,
        comparison=compare_predicates(answers, questions, read_simulation(known)),
        record=predicates_document(kept, every, engine=known.name, command=_command(known)),
        whole=whole,
    )
