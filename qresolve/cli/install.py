"""``qresolve install``: from a lock to an environment."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from qresolve.install.installers import INSTALLERS

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = subparsers.add_parser("install", help="install what a lock lists into an environment")
    parser.add_argument("--lock", default="pylock.toml", metavar="FILE", help="the lock (default: pylock.toml)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--env", metavar="DIR", help="virtual environment, created if need be (default: .venv)")
    where.add_argument("--python", metavar="PYTHON", help="interpreter of a virtual environment that is there")
    parser.add_argument(
        "--installer", choices=INSTALLERS, default="uv", help="default: uv, which also removes what isn't locked"
    )
    parser.add_argument(
        "--wheelhouse",
        metavar="DIR",
        help="install from this folder of `qresolve wheelhouse` alone, without the network",
    )
    parser.add_argument("--driver", metavar="VERSION", help="NVIDIA driver, where it can't be read here")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Install; words and progress go to stderr."""
    from qresolve.install.perform import perform_install  # noqa: PLC0415
    from qresolve.lock.file import read_lock  # noqa: PLC0415
    from qresolve.wheelhouse.check import read_wheelhouse  # noqa: PLC0415

    lock_file = Path(arguments.lock)
    if arguments.wheelhouse is not None:
        lock_file = read_wheelhouse(Path(arguments.wheelhouse), lock_file)
    report = perform_install(
        read_lock(lock_file),
        lock_file,
        offline=arguments.wheelhouse is not None,
        environment=arguments.env,
        python=arguments.python,
        installer=arguments.installer,
        dry_run=arguments.dry_run,
        driver=arguments.driver,
        say=lambda words: print(words, file=sys.stderr, flush=True),
    )
    if arguments.json:
        answer = {
            "schema": "qresolve.install/1",
            "environment": str(report.environment),
            "installer": report.installer,
            "dry_run": report.dry_run,
            "created": report.created,
            "resumed": report.resumed,
            "add": list(report.changes.add),
            "remove": list(report.changes.remove) if report.installer == "uv" else [],
            "keep": len(report.changes.keep),
            "commands": [list(command) for command in report.commands],
        }
        print(json.dumps(answer, indent=2))
    elif report.dry_run:
        for command in report.commands:
            print(shlex.join(command))
        for package in report.changes.remove if report.installer == "uv" else ():
            print(f"- {package}")
        for package in report.changes.add:
            print(f"+ {package}")
    else:
        print(report.environment)
    return 0
