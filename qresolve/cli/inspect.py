"""``qresolve inspect``: what a wheel or a library holds for the GPU, read from its machine code."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from qresolve.inspect.subject import Binary


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "inspect", help="what a wheel or library holds for the GPU: images by arch, kernels, tensor-core instructions"
    )
    parser.add_argument(
        "subject",
        metavar="SUBJECT",
        help="NAME==VERSION on the index, a wheel's address, or a path: wheel, library, cubin, fatbin, folder",
    )
    question = parser.add_argument_group("question")
    question.add_argument(
        "--gpu", action="append", metavar="GPU", help="sm121, rtx5090, auto, …: what loads there (default: every arch)"
    )
    question.add_argument(
        "--formats",
        action="append",
        default=[],
        metavar="FORMAT[@SCHEME][:ROLE]",
        help="with --gpu: is a native kernel in it? exit 0: yes, 6: no, 7: that cannot be told",
    )
    choice = parser.add_argument_group("which wheel of NAME==VERSION")
    choice.add_argument("--machine", metavar="MACHINE", help="x86_64 or aarch64 (default: the GPU's)")
    choice.add_argument("--python", metavar="X.Y", help="default: 3.12")
    output = parser.add_argument_group("output")
    output.add_argument("--headers", action="store_true", help="archs alone, nothing is decompressed: fast")
    output.add_argument("-v", "--verbose", action="store_true", help="every translation unit")
    output.add_argument("--json", action="store_true", help="as JSON (schema qresolve.inspect/1)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Inspect, print, and answer by the exit code."""
    from qresolve.errors import UsageError  # noqa: PLC0415
    from qresolve.inspect.answer import InspectData  # noqa: PLC0415
    from qresolve.inspect.perform import inspection_exit_code, run_inspection  # noqa: PLC0415
    from qresolve.inspect.subject import is_release, open_subject  # noqa: PLC0415
    from qresolve.knowledge.load import read_formats  # noqa: PLC0415
    from qresolve.machine_code.families import read_families  # noqa: PLC0415
    from qresolve.machine_code.instructions import read_instructions  # noqa: PLC0415
    from qresolve.request import parse_formats  # noqa: PLC0415
    from qresolve.target.names import split_names  # noqa: PLC0415
    from qresolve.target.target import build_target, read_target_data  # noqa: PLC0415

    if arguments.formats and not arguments.gpu:
        raise UsageError("--formats asks about a GPU; say which", hint="--gpu sm121")
    if arguments.formats and arguments.headers:
        raise UsageError("--headers reads no instructions, and --formats asks for them", hint="leave out --headers")
    target_data = read_target_data()
    # One wheel is for one CPU machine; a file that is there already may be asked about any GPU.
    names = [arguments.gpu or ["none"]] if is_release(arguments.subject) else split_names(arguments.gpu or ["none"])
    targets = [
        build_target(
            gpu=[name] if isinstance(name, str) else name,
            data=target_data,
            machine=arguments.machine,
            python=arguments.python,
        )
        for name in names
    ]
    sms = tuple(sorted({sm for target in targets for sm in target.sms}))
    asks = parse_formats(arguments.formats, read_formats()) if arguments.formats else ()
    data = InspectData(
        architectures=target_data.architectures, instructions=read_instructions(), families=read_families()
    )
    with (
        open_subject(arguments.subject, machine=targets[0].machine, python=targets[0].python) as subject,
        _progress() as progress,
    ):
        inspection = run_inspection(
            subject, asks=asks, sms=sms, data=data, headers_only=arguments.headers, progress=progress
        )
    if arguments.json:
        from qresolve.report.inspect_json import inspect_mapping  # noqa: PLC0415

        print(json.dumps(inspect_mapping(inspection, data), indent=1))
    else:
        from qresolve.report.inspect_text import inspect_lines  # noqa: PLC0415

        width = shutil.get_terminal_size((100, 24)).columns
        for line in inspect_lines(inspection, data, width=width, verbose=arguments.verbose):
            print(line)
    return inspection_exit_code(inspection)


@contextmanager
def _progress() -> Iterator[Callable[[Binary], None]]:
    """What is being read, on stderr; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _binary: None
        return
    from rich.console import Console  # noqa: PLC0415

    with Console(stderr=True).status("reading the table of members") as status:
        yield lambda binary: status.update(f"reading {binary.path} ({binary.cost / 1e6:.1f} MB)")
