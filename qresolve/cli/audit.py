"""``qresolve audit``: whether the records of a release still say what its sources say and its selectors do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from qresolve.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from qresolve.audit.behaviour import Answers


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "audit", help="re-read a release's sources, or ask its selectors, and compare with the records"
    )
    parser.add_argument("engine", metavar="ENGINE==VERSION", help="the release: vllm==0.33.0; it need not be known")
    parser.add_argument(
        "--behaviour", action="store_true", help="ask the release's own selectors, in the environment of --python"
    )
    parser.add_argument("--python", metavar="PYTHON", help="interpreter of an environment with that release")
    parser.add_argument(
        "--answers", metavar="FILE", help="with --behaviour: answers recorded before, instead of asking"
    )
    parser.add_argument(
        "--record",
        nargs="?",
        const="",
        metavar="FILE",
        help="write the digests of what is cited into the data folder; with --behaviour, the answers into FILE",
    )
    parser.add_argument("--log", metavar="FILE", help="with --behaviour: what the engine said while it was asked")
    parser.add_argument("-v", "--verbose", action="store_true", help="what was found too")
    parser.add_argument("--json", action="store_true", help="the report as JSON (schema qresolve.audit/1)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Audit and print."""
    engine, equals, version = arguments.engine.partition("==")
    if not equals or not version:
        raise UsageError(f"`{arguments.engine}` names no release", hint=f"qresolve audit {engine}==VERSION")
    return _behaviour(arguments, engine, version) if arguments.behaviour else _sources(arguments, engine, version)


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def _sources(arguments: argparse.Namespace, engine: str, version: str) -> int:
    from qresolve.audit.release_files import cache_folder  # noqa: PLC0415
    from qresolve.audit.report import source_exit_code, source_lines, source_mapping  # noqa: PLC0415
    from qresolve.audit.sources import run_source_audit, write_recorded  # noqa: PLC0415
    from qresolve.wheels.pip_index import open_pip_index  # noqa: PLC0415

    if arguments.record:
        raise UsageError(
            "--record takes a file only with --behaviour", hint=f"qresolve audit {arguments.engine} --record"
        )
    if arguments.python or arguments.answers or arguments.log:
        raise UsageError(
            "--python, --answers and --log go with --behaviour",
            hint=f"qresolve audit {arguments.engine} --behaviour --python PYTHON",
        )
    recording = arguments.record is not None
    with open_pip_index() as index:
        # Digests that are about to be replaced say nothing about what is right now.
        audit = run_source_audit(engine, version, index=index, cache=cache_folder(), use_digests=not recording)
    if recording:
        print(f"wrote {write_recorded(audit)}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(source_mapping(audit), indent=2))
    else:
        _print_lines(source_lines(audit, verbose=arguments.verbose))
    return source_exit_code(audit)


def _behaviour(arguments: argparse.Namespace, engine: str, version: str) -> int:
    from qresolve.arch import read_architectures  # noqa: PLC0415
    from qresolve.audit.ask_selectors import read_questionnaire, run_selectors  # noqa: PLC0415
    from qresolve.audit.behaviour import compare, record_document  # noqa: PLC0415
    from qresolve.audit.report import behaviour_exit_code, behaviour_lines, behaviour_mapping  # noqa: PLC0415
    from qresolve.install.interpreter import find_interpreter  # noqa: PLC0415
    from qresolve.knowledge.engine import load_engine  # noqa: PLC0415
    from qresolve.knowledge.load import read_formats, read_workload  # noqa: PLC0415

    known = load_engine(engine, version)
    questionnaire = read_questionnaire(engine)
    if arguments.answers:
        answers = _read_answers(Path(arguments.answers))
    else:
        if not arguments.python:
            raise UsageError(
                "--behaviour asks an installed engine; say which interpreter",
                hint=f"qresolve audit {arguments.engine} --behaviour --python ENV/bin/python",
            )
        log = Path(arguments.log) if arguments.log else None
        answers = run_selectors(known, questionnaire, python=find_interpreter(arguments.python), log=log)
    if answers.release != known.release.version:
        raise UsageError(
            f"the answers are those of {engine} {answers.release}, not of {known.release.version}",
            hint=f"qresolve audit {engine}=={answers.release} --behaviour --python PYTHON",
        )
    if arguments.record is not None:
        if not arguments.record:
            raise UsageError("--behaviour --record needs a file", hint=f"--record {engine}-{version}.json")
        command = f"qresolve audit {engine}=={version} --behaviour --python PYTHON --record FILE"
        document = record_document(answers, engine=engine, command=command)
        Path(arguments.record).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    schemes = {
        scheme.key(role): scheme for form in read_formats().formats for scheme in form.schemes for role in scheme.roles
    }
    comparison = compare(
        answers,
        engine=known,
        questionnaire=questionnaire,
        schemes=schemes,
        workload=read_workload()[0],
        architectures=read_architectures(),
    )
    if arguments.json:
        print(json.dumps(behaviour_mapping(comparison, engine=engine, release=known.release.version), indent=2))
    else:
        _print_lines(behaviour_lines(comparison, engine=engine, release=known.release.version))
    return behaviour_exit_code(comparison)


def _read_answers(path: Path) -> Answers:
    from qresolve.audit.behaviour import parse_record  # noqa: PLC0415

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error
    return parse_record(document)
