"""The entry point: parses arguments, runs one command, turns the exception tree into messages and exit codes."""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from qresolve import __version__
from qresolve.errors import QResolveError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS: tuple[str, ...] = (
    "lock",
    "explain",
    "install",
    "verify",
    "env",
    "run",
    "matrix",
    "audit",
    "inspect",
    "wheelhouse",
)
"""In the order of ``--help``. Each is ``qresolve.cli.<name>``."""

INTERRUPTED = 130
OUR_BUG = 1


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are usage errors of the exception tree, so that they read like all others."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        # An abbreviation that works today would mean another option tomorrow.
        super().__init__(*arguments, **{"allow_abbrev": False, **named})

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=f"{self.prog} --help")


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The whole parser, or one with the single command ``only``, which saves importing the others."""
    parser = _Parser(
        prog="qresolve",
        description="Lock, install and prove environments in which quantized formats run on their native kernels.",
        epilog="exit codes: 0 all holds, 2 usage, 3 no resolution, 4 only a lower class, 5 install failed, "
        "6 refuted or broken, 7 unproved or unknown, 8 bad data, 9 stale, 130 interrupted, 1 our bug",
    )
    parser.add_argument("--version", action="version", version=f"qresolve {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for name in COMMANDS if only is None else (only,):
        importlib.import_module(f"qresolve.cli.{name}").add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal whose encoding lacks a character of a message gets a ? for it, not a traceback.
        sys.stdout.reconfigure(errors="replace")
    if arguments == ["--version"]:
        print(f"qresolve {__version__}")
        return 0
    try:
        chosen = next((word for word in arguments if not word.startswith("-")), None)
        parsed = build_parser(chosen if chosen in COMMANDS else None).parse_args(arguments)
        code = int(parsed.run(parsed))
        sys.stdout.flush()
    except QResolveError as error:
        _say(error)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`| head`). Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return _our_bug(error)
        # What is still buffered cannot be written either, and Python would try again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _say(UsageError(f"the output cannot be written: {error.strerror}", hint="df -h"))
        return UsageError.exit_code
    except Exception as error:  # noqa: BLE001 - the last resort: a bug of ours, said as such
        return _our_bug(error)
    return code


def _say(error: QResolveError) -> None:
    print(f"error: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)


def _our_bug(error: Exception) -> int:
    import traceback  # noqa: PLC0415 - only when something went wrong

    traceback.print_exception(error)
    print(f"error: this is a bug in qresolve: {type(error).__name__}: {error}", file=sys.stderr)
    print("hint: please report it with the lines above", file=sys.stderr)
    return OUR_BUG
