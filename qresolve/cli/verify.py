"""``qresolve verify``: what an environment really holds, and what that proves."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from qresolve.lock.model import Lock
    from qresolve.verify.evidence import FormatRow, VerifyReport

_PACKAGE_HEADER = ("outcome", "package", "seen", "why")
_MERGED_HEADER = ("format", "gpu", "report", "route", "verdict", "level", "holds")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = subparsers.add_parser("verify", help="prove or refute that an environment is what its lock says")
    parser.add_argument("--lock", metavar="FILE", help="the lock (default: pylock.toml; none with --formats)")
    parser.add_argument(
        "--python", metavar="PYTHON", help="interpreter of the environment (default: .venv, or the active one)"
    )
    far = parser.add_mutually_exclusive_group()
    far.add_argument(
        "--static", action="store_true", help="launch nothing on a GPU: what a build without one can prove"
    )
    far.add_argument("--launch", action="store_true", help="launch kernels on every GPU of this host (the default)")
    parser.add_argument("--only", action="append", metavar="FORMAT", help="of the lock's formats, only these")
    parser.add_argument(
        "--gpu", action="append", metavar="GPU", help="of the lock's GPUs, only these: sm120, a name, or auto"
    )
    parser.add_argument("--formats", action="append", metavar="FORMAT", help="formats to look at without a lock")
    parser.add_argument("--engine", metavar="NAME", help="of several installed engines, this one")
    parser.add_argument(
        "--allow-unbuilt",
        action="append",
        metavar="FORMAT",
        help="let this format hold though its kernel, compiled at run time, could not be built here",
    )
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    parser.add_argument("--report", metavar="FILE", help="write the report as JSON to a file as well")
    parser.add_argument("--junit", metavar="FILE", help="write it as JUnit XML to a file as well")
    parser.add_argument(
        "--export-probes",
        metavar="DIR",
        help="write every compact probe, compiled for the GPUs asked about, for a card without compiler or Triton",
    )
    parser.add_argument(
        "--merge", nargs="+", metavar="REPORT", help="look at nothing: join reports of several machines in one table"
    )
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
    from qresolve.verify.report import (  # noqa: PLC0415
        LEGEND,
        format_header,
        format_rows,
        package_rows,
        package_summary,
        reasons,
    )

    print(f"{report.environment.prefix} (Python {report.environment.version})")
    print(package_summary(report.evidence))
    _print_table("packages that are not proved", _PACKAGE_HEADER, package_rows(report.evidence))
    _print_table("formats", format_header(), format_rows(report))
    if report.verdicts:
        print(LEGEND)
    found = reasons(report)
    if found:
        print("\nwhat was not proved")
    for line in found:
        print(f"- {line}")


def _archs(given: list[str] | None) -> tuple[str, ...]:
    """The archs of the GPUs that ``--gpu`` names, each once."""
    if not given:
        return ()
    from qresolve.target.target import build_target, read_target_data  # noqa: PLC0415

    return tuple(dict.fromkeys(gpu.arch for gpu in build_target(gpu=given, data=read_target_data()).gpus))


def _rows(arguments: argparse.Namespace) -> tuple[Lock | None, tuple[FormatRow, ...]]:
    from qresolve.errors import UsageError  # noqa: PLC0415
    from qresolve.lock.file import read_lock  # noqa: PLC0415
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

        return None, select_given(parse_formats(formats, read_formats()), archs)
    lock = read_lock(Path(arguments.lock or "pylock.toml"))
    return lock, select_locked(lock, only=only, archs=archs)


def run(arguments: argparse.Namespace) -> int:
    """Print the report; 6 if anything is refuted, 7 if anything is unproved, 0 if all holds."""
    if arguments.merge:
        return _merge(arguments)
    from qresolve.install.interpreter import find_interpreter  # noqa: PLC0415
    from qresolve.verify.check import Wish, run_verify  # noqa: PLC0415
    from qresolve.verify.evidence import exit_code  # noqa: PLC0415
    from qresolve.verify.report import to_mapping  # noqa: PLC0415
    from qresolve.verify.request import check_formats, split_list  # noqa: PLC0415

    lock, rows = _rows(arguments)
    python = find_interpreter(arguments.python)
    unbuilt = check_formats(split_list(arguments.allow_unbuilt), rows)
    with _progress() as progress:
        report = run_verify(
            lock,
            rows,
            python=python,
            wish=Wish(
                launching=not arguments.static,
                engine=arguments.engine,
                unbuilt=unbuilt,
                export=Path(arguments.export_probes).resolve() if arguments.export_probes else None,
                progress=progress,
            ),
        )
    text = json.dumps(to_mapping(report), indent=2)
    if arguments.report:
        _write(Path(arguments.report), text + "\n")
    if arguments.junit:
        from qresolve.verify.junit import to_junit  # noqa: PLC0415

        _write(Path(arguments.junit), to_junit(report))
    if arguments.json:
        print(text)
    else:
        _print(report)
    return exit_code(report.evidence, report.verdicts)


def _merge(arguments: argparse.Namespace) -> int:
    from qresolve.errors import UsageError  # noqa: PLC0415
    from qresolve.verify.merge import merge, merged_code, merged_document, merged_rows  # noqa: PLC0415

    named: list[tuple[str, object]] = []
    for file in arguments.merge:
        try:
            named.append((Path(file).stem, json.loads(Path(file).read_text(encoding="utf-8"))))
        except (OSError, ValueError) as error:
            raise UsageError(f"{file} cannot be read: {error}", hint="qresolve verify --report report.json") from error
    merged = merge(named)
    if arguments.json:
        print(json.dumps(merged_document(merged), indent=2))
    else:
        _print_table(f"formats, of {len(named)} reports", _MERGED_HEADER, merged_rows(merged))
    return merged_code(merged)


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    from qresolve.errors import UsageError  # noqa: PLC0415
    from qresolve.lock.file import write_atomically  # noqa: PLC0415

    try:
        write_atomically(path, text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """What is looked at, on stderr; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _said: None
        return
    from rich.console import Console  # noqa: PLC0415

    with Console(stderr=True).status("the installed packages") as status:
        yield lambda said: status.update(f"looking at {said}")
