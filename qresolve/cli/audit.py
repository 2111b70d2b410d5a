"""``qresolve audit``: whether the records of a release still say what its sources say and its selectors do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from qresolve.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping
    from typing import Any

    from qresolve.audit.run_inside import Asking


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "audit",
        help="re-read a release's sources, or ask its selectors, and compare with the records",
        epilog="exit codes: 0 all agrees, 9 something moved, changed or is answered otherwise, "
        "7 something could not be read or asked",
    )
    parser.add_argument("engine", metavar="ENGINE==VERSION", help="the release: vllm==0.33.0; it need not be known")
    parser.add_argument(
        "--record",
        nargs="?",
        const="",
        metavar="FILE",
        help="write the digests of what is cited into the data folder; with --behaviour, the answers into FILE",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="what was found too")
    parser.add_argument("--json", action="store_true", help="the report as JSON (schema qresolve.audit/1)")
    group = parser.add_argument_group("the release's own selectors")
    group.add_argument(
        "--behaviour", action="store_true", help="ask the release's own selectors, in the environment of --python"
    )
    group.add_argument("--python", metavar="PYTHON", help="interpreter of an environment with that release")
    group.add_argument("--answers", metavar="FILE", help="answers recorded before, instead of asking")
    group.add_argument(
        "--gpu",
        action="append",
        metavar="GPU",
        help="only these: sm120, 12.0, a name such as rtx5090, several with commas (default: all that are asked for)",
    )
    group.add_argument(
        "--formats", action="append", metavar="FORMAT[@SCHEME][:ROLE]", help="only these, with commas (default: all)"
    )
    group.add_argument(
        "--restart",
        action="store_true",
        help="with --record: ask everything anew; without it, an audit that was stopped goes on from FILE.part",
    )
    group.add_argument("--log", metavar="FILE", help="what the engine said while it was asked")
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


_OF_BEHAVIOUR = ("python", "answers", "log", "gpu", "formats", "restart")


def _sources(arguments: argparse.Namespace, engine: str, version: str) -> int:
    from qresolve.audit.release_files import cache_folder  # noqa: PLC0415
    from qresolve.audit.report import source_exit_code, source_lines, source_mapping  # noqa: PLC0415
    from qresolve.audit.sources import run_source_audit, write_recorded  # noqa: PLC0415
    from qresolve.wheels.pip_index import open_pip_index  # noqa: PLC0415

    if arguments.record:
        raise UsageError(
            "--record takes a file only with --behaviour", hint=f"qresolve audit {arguments.engine} --record"
        )
    stray = [f"--{name}" for name in _OF_BEHAVIOUR if getattr(arguments, name)]
    if stray:
        raise UsageError(
            f"{', '.join(stray)}: only with --behaviour",
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
    from qresolve.audit.ask_selectors import From, Wanted, run_behaviour_audit  # noqa: PLC0415
    from qresolve.audit.progress import progress_path  # noqa: PLC0415
    from qresolve.audit.report import behaviour_exit_code, behaviour_lines, behaviour_mapping  # noqa: PLC0415

    if arguments.record is not None and not arguments.record:
        raise UsageError("--behaviour --record needs a file", hint=f"--record {engine}-{version}.json")
    if arguments.restart and (arguments.answers or not arguments.record):
        raise UsageError("--restart goes with --record FILE and --python", hint=f"--record {engine}-{version}.json")
    record = Path(arguments.record) if arguments.record else None
    wanted = Wanted(archs=_sm_numbers(arguments.gpu), schemes=_scheme_keys(arguments.formats))
    # What is not asked for stays in a record that is there already.
    narrow = bool(wanted.archs or wanted.schemes)
    before = _read_document(record) if record is not None and narrow and record.exists() else None
    given = From(
        asking=None if arguments.answers else _asking(arguments, record),
        recorded=_read_document(Path(arguments.answers)) if arguments.answers else None,
        before=before,
    )
    found = run_behaviour_audit(engine, version, wanted=wanted, given=given)
    if record is not None:
        from qresolve.cli.matrix import write  # noqa: PLC0415

        write(str(record), json.dumps(found.record, indent=1) + "\n")
        if found.whole:
            progress_path(record).unlink(missing_ok=True)
    if arguments.json:
        print(json.dumps(behaviour_mapping(found.comparison, engine=engine, release=found.release), indent=2))
    else:
        _print_lines(behaviour_lines(found.comparison, engine=engine, release=found.release))
    return behaviour_exit_code(found.comparison)


def _asking(arguments: argparse.Namespace, record: Path | None) -> Asking:
    from qresolve.audit.progress import progress_path  # noqa: PLC0415
    from qresolve.audit.run_inside import Asking  # noqa: PLC0415
    from qresolve.install.interpreter import find_interpreter  # noqa: PLC0415

    if not arguments.python:
        raise UsageError(
            "--behaviour asks an installed engine; say which interpreter",
            hint=f"qresolve audit {arguments.engine} --behaviour --python ENV/bin/python",
        )
    progress = progress_path(record) if record is not None else None
    if progress is not None and arguments.restart:
        progress.unlink(missing_ok=True)
    return Asking(
        python=find_interpreter(arguments.python),
        log=Path(arguments.log) if arguments.log else None,
        progress=progress,
    )


def _sm_numbers(given: list[str] | None) -> tuple[int, ...]:
    """The sm numbers of the GPUs that ``--gpu`` names, each once."""
    if not given:
        return ()
    from qresolve.target.names import parse_gpus  # noqa: PLC0415
    from qresolve.target.target import read_target_data  # noqa: PLC0415

    data = read_target_data()
    found = tuple(dict.fromkeys(gpu.sm for gpu in parse_gpus(given, data.names, data.architectures)))
    if not found:
        raise UsageError("with `--gpu none` there is nothing to ask", hint="--gpu sm120")
    return found


def _scheme_keys(given: list[str] | None) -> tuple[str, ...]:
    """The scheme keys that ``--formats`` names."""
    if not given:
        return ()
    from qresolve.knowledge.load import read_formats  # noqa: PLC0415
    from qresolve.request import parse_formats  # noqa: PLC0415

    return tuple(ask.key for ask in parse_formats(given, read_formats()))


def _read_document(path: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{path}: not a record of answers")
    return document
