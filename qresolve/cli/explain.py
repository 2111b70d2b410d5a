"""``qresolve explain``: what each format comes to on a GPU, why, and what to do."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING

from qresolve.cli.options import add_request_options, add_target_options, read_question

if TYPE_CHECKING:
    import argparse

    from qresolve.judging import Answer
    from qresolve.question import Question


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = subparsers.add_parser("explain", help="what each format comes to on a GPU, why, and what to do")
    add_target_options(parser)
    add_request_options(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="every route with the gates that rejected it")
    parser.add_argument("--json", action="store_true", help="the answer as JSON (schema qresolve.explain/1)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Judge and print; nothing is resolved or written."""
    from qresolve.exit_code import exit_code  # noqa: PLC0415
    from qresolve.judging import answer  # noqa: PLC0415
    from qresolve.knowledge.indexes import read_indexes  # noqa: PLC0415
    from qresolve.lanes import take_lane  # noqa: PLC0415
    from qresolve.release_fit import driver_runs  # noqa: PLC0415
    from qresolve.target.drivers import read_cuda_releases  # noqa: PLC0415

    question = read_question(arguments)
    for line in take_lane(question, read_indexes(), runs=driver_runs(question, read_cuda_releases())):
        print(line, file=sys.stderr)
    found = answer(question)
    if arguments.json:
        from qresolve.report.explain_json import explain_mapping  # noqa: PLC0415

        print(json.dumps(explain_mapping(question, found), indent=2))
    else:
        from qresolve.report.explain_text import explain_lines  # noqa: PLC0415

        width = min(shutil.get_terminal_size((120, 24)).columns, 160)
        for line in explain_lines(question, found, verbose=arguments.verbose, width=width):
            print(line)
    warn_of_refusal(question, found)
    return exit_code(found.rows)


def warn_of_refusal(question: Question, found: Answer) -> None:
    """Say on stderr when `lock` would refuse the judged release for this target: verdicts do not look at that."""
    from qresolve.errors import NoResolution  # noqa: PLC0415
    from qresolve.release_fit import check_release  # noqa: PLC0415
    from qresolve.target.drivers import read_cuda_releases  # noqa: PLC0415

    target = question.target
    for line in question.passed_over(found.engine.release):
        print(line, file=sys.stderr)
    if (barred := question.unlockable(found.engine.release)) is not None:
        print(f"warning: `lock` refuses this release: {barred.why}", file=sys.stderr)
        return
    if target.driver is None and target.cuda is None and found.engine.release.requires_python.contains(target.python):
        return
    try:
        check_release(question, found.engine, read_cuda_releases())
    except NoResolution as refusal:
        print(f"warning: `lock` refuses this target: {refusal.message}", file=sys.stderr)
