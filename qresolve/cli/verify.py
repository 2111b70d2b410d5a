"""``qresolve verify``: what an environment really holds, and what that proves."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from qresolve.verify.evidence import VerifyReport

_PACKAGE_HEADER = ("outcome", "package", "seen", "why")
_FORMAT_HEADER = ("format", "arch", "verdict", "level", "holds", "evidence")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = subparsers.add_parser("verify", help="prove or refute that an environment is what its lock says")
    parser.add_argument("--lock", metavar="FILE", help="the lock (default: pylock.toml; none with --formats)")
    parser.add_argument(
        "--python", metavar="PYTHON", help="interpreter of the environment (default: .venv, or the active one)"
    )
    parser.add_argument("--static", action="store_true", help="launch nothing on a GPU")
    parser.add_argument("--only", action="append", metavar="FORMAT", help="of the lock's formats, only these")
    parser.add_argument(
        "--gpu", action="append", metavar="GPU", help="of the lock's GPUs, only these: sm120, a name, or auto"
    )
    parser.add_argument("--formats", action="append", metavar="FORMAT", help="formats to look at without a lock")
    parser.add_argument("--engine", metavar="NAME", help="of several installed engines, this one")
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    parser.set_defaults(run=run)


def _print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if not rows:
        return
    if not sys.stdout.isatty():
        from qresolve.verify.report import plain_table  # noqa: PLC0415

        print(f"\n{title}\n{plain_table(header, rows)}")
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(*header, title=title, title_justify="left")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def _print(report: VerifyReport) -> None:
    from qresolve.verify.report import format_rows, package_rows, package_summary  # noqa: PLC0415

    print(f"{report.environment.prefix} (Python {report.environment.version})")
    print(package_summary(report.evidence))
    _print_table("packages that are not proved", _PACKAGE_HEADER, package_rows(report.evidence))
    _print_table("formats", _FORMAT_HEADER, format_rows(report))


def _archs(given: list[str] | None) -> tuple[str, ...]:
    """The archs of the GPUs that ``--gpu`` names, each once."""
    if not given:
        return ()
    from qresolve.target.target import build_target, read_target_data  # noqa: PLC0415

    return tuple(dict.fromkeys(gpu.arch for gpu in build_target(gpu=given, data=read_target_data()).gpus))


def run(arguments: argparse.Namespace) -> int:
    """Print the report; 6 if anything is refuted, 7 if anything is unproved, 0 if all holds."""
    from qresolve.errors import UsageError  # noqa: PLC0415
    from qresolve.install.interpreter import find_interpreter  # noqa: PLC0415
    from qresolve.lock.file import read_lock  # noqa: PLC0415
    from qresolve.verify.check import Wish, run_verify  # noqa: PLC0415
    from qresolve.verify.evidence import exit_code  # noqa: PLC0415
    from qresolve.verify.report import to_mapping  # noqa: PLC0415
    from qresolve.verify.request import select_given, select_locked, split_list  # noqa: PLC0415

    only, archs = split_list(arguments.only), _archs(arguments.gpu)
    formats = split_list(arguments.formats)
    if formats and arguments.lock is not None:
        raise UsageError(
            "--formats is for an environment without a lock; a lock names its own formats",
            hint=f"qresolve verify --lock {arguments.lock} --only {','.join(formats)}",
        )
    if formats and only:
        raise UsageError("--only picks from a lock's formats, and --formats is for no lock")
    if formats:
        from qresolve.knowledge.load import read_formats  # noqa: PLC0415
        from qresolve.request import parse_formats  # noqa: PLC0415

        lock, rows = None, select_given(parse_formats(formats, read_formats()), archs)
    else:
        lock = read_lock(Path(arguments.lock or "pylock.toml"))
        rows = select_locked(lock, only=only, archs=archs)
    wish = Wish(launching=not arguments.static, engine=arguments.engine, unbuilt=frozenset())
    report = run_verify(lock, rows, python=find_interpreter(arguments.python), wish=wish)
    if arguments.json:
        print(json.dumps(to_mapping(report), indent=2))
    else:
        _print(report)
    return exit_code(report.evidence, report.verdicts)
