"""``qresolve run -- COMMAND``: starts an engine with the settings of a lock."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "run",
        help="start an engine with the lock's settings",
        usage="qresolve run [--lock FILE] [--python PYTHON] [--dry-run] [--json] -- vllm serve MODEL …",
    )
    parser.add_argument("--lock", default="pylock.toml", metavar="FILE", help="the lock (default: pylock.toml)")
    parser.add_argument(
        "--python", metavar="PYTHON", help="interpreter of the environment (default: .venv, or the active one)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the command instead of starting it")
    parser.add_argument("--json", action="store_true", help="with --dry-run: as JSON")
    parser.add_argument("engine_command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the engine's command")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Start the command; returns only under ``--dry-run``."""
    from qresolve.engine_flags import read_engine_flags  # noqa: PLC0415
    from qresolve.engine_run import plan_start, read_config_text, run_engine  # noqa: PLC0415
    from qresolve.errors import UsageError  # noqa: PLC0415
    from qresolve.install.interpreter import find_interpreter, read_interpreter  # noqa: PLC0415
    from qresolve.lock.file import read_lock  # noqa: PLC0415
    from qresolve.settings_text import fill_placeholders, needs_paths  # noqa: PLC0415

    command = list(arguments.engine_command)
    if command[:1] == ["--"]:
        command = command[1:]
    if arguments.json and not arguments.dry_run:
        raise UsageError("--json goes with --dry-run: a started engine owns stdout")
    lock = read_lock(Path(arguments.lock))
    flags = read_engine_flags(lock.engine)
    try:
        paths = read_interpreter(find_interpreter(arguments.python)).paths
    except UsageError:
        # What would be started can be shown before anything is installed, unless a value is a path in there.
        if not arguments.dry_run or arguments.python is not None or needs_paths(lock.settings):
            raise
        paths = None
    start = plan_start(
        command,
        lock.settings if paths is None else fill_placeholders(lock.settings, paths),
        flags,
        variables=os.environ,
        programs=None if paths is None else paths.programs,
        config_text=read_config_text(command, flags),
        installed=not arguments.dry_run,
    )
    for change in start.replaced:
        now = "removed" if change.now is None else f"set to {change.now}"
        print(f"{change.name} was {change.before}, {now} as locked", file=sys.stderr)
    for say in start.owed:
        print(f"the lock's verdicts need this of the program: {say}", file=sys.stderr)
    for choice in start.unlocked:
        print(f"warning: the lock's verdicts were made without: {choice}", file=sys.stderr)
    if arguments.dry_run:
        names = [setting.env for setting in lock.settings if setting.env is not None]
        if arguments.json:
            answer = {
                "schema": "qresolve.run/1",
                "program": start.program,
                "argv": list(start.argv),
                "environment": {name: start.variables.get(name) for name in sorted(set(names))},
            }
            print(json.dumps(answer, indent=2))
            return 0
        removed = [word for name in sorted(set(names)) if name not in start.variables for word in ("-u", name)]
        given = [f"{name}={start.variables[name]}" for name in sorted(set(names)) if name in start.variables]
        prefix = ["env", *removed, *given] if removed or given else []
        print(shlex.join([*prefix, start.program, *start.argv[1:]]))
        return 0
    sys.stdout.flush()
    sys.stderr.flush()
    return run_engine(start)
