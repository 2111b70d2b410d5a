"""``qresolve matrix``: formats against archs for one release, with runtime facts to switch."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from qresolve.matrix import Axis, Column, Matrix, Option
    from qresolve.target.target import TargetData

FORMS = ("text", "json", "markdown", "html")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = subparsers.add_parser("matrix", help="formats against archs for one release, with runtime facts to switch")
    parser.add_argument("--engine", metavar="NAME[==VERSION]", help="the engine (default: the first in the records)")
    parser.add_argument("--formats", action="append", metavar="FORMAT[@SCHEME][:ROLE]", help="default: all it serves")
    parser.add_argument("--gpu", action="append", metavar="GPU", help="default: every arch that there are records of")
    parser.add_argument(
        "--assume", action="append", default=[], metavar="FACT=VALUE", help="what if this fact had this value"
    )
    parser.add_argument(
        "--with", action="append", default=[], metavar="PACKAGE", dest="added", help="also with this package"
    )
    parser.add_argument("--without", action="append", default=[], metavar="PACKAGE", help="also without this package")
    parser.add_argument("--build-cuda", action="append", default=[], metavar="X.Y", help="also a build with that CUDA")
    parser.add_argument(
        "--locked", action="store_true", help="text and markdown: show what a lock's settings make of it"
    )
    parser.add_argument("--all", action="store_true", help="text and markdown: every position of the switches")
    parser.add_argument("--format", choices=FORMS, default="text", help="default: text")
    parser.add_argument("--json", action="store_true", help="the same as --format json")
    parser.add_argument("-o", "--output", default="-", metavar="FILE", help="default: stdout")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Judge every cell and print; exit 0, as nothing in particular was asked for."""
    form = "json" if arguments.json else arguments.format
    matrix, positions = build(arguments, every=form in {"json", "html"} or arguments.all)
    text = render(matrix, form, locked=arguments.locked, colour=_colour(arguments.output))
    if arguments.output == "-":
        print(text)
    else:
        write(arguments.output, text + "\n")
        print(f"{len(matrix.asks)} schemes, {len(matrix.columns)} archs, {positions} positions", file=sys.stderr)
    return 0


def build(arguments: argparse.Namespace, *, every: bool) -> tuple[Matrix, int]:
    """The matrix of the parsed options, and how many positions of the switches it has."""
    from qresolve.knowledge.engine import load_engine  # noqa: PLC0415
    from qresolve.knowledge.load import read_formats, read_workload  # noqa: PLC0415
    from qresolve.matrix import Grounds, axes_of, build_matrix  # noqa: PLC0415
    from qresolve.measured import images_for, toolchain_fact, versions_of  # noqa: PLC0415
    from qresolve.request import all_asks, parse_assumptions, parse_engine, parse_formats  # noqa: PLC0415
    from qresolve.target.target import read_target_data  # noqa: PLC0415

    name, version = parse_engine(arguments.engine)
    engine = load_engine(name or _first_engine(), version)
    book = read_formats()
    asks = parse_formats(arguments.formats, book) if arguments.formats else all_asks(book)
    data = read_target_data()
    columns = columns_of(arguments.gpu, data)
    grounds = Grounds(
        engine=engine,
        workload=read_workload()[0],
        architectures=data.architectures,
        images={
            machine: images_for(versions_of(engine), machine) for machine in {column.machine for column in columns}
        },
        toolchain=toolchain_fact,
        assumed=parse_assumptions(arguments.assume, engine.vocabulary),
    )
    axes = axes_of(engine, tuple(arguments.added) + tuple(arguments.without), tuple(arguments.build_cuda))
    chosen = _positions(axes, every=every)
    with _progress() as progress:
        return build_matrix(grounds, asks, columns, axes, chosen, progress=progress), len(chosen)


def _first_engine() -> str:
    from qresolve.knowledge.engine import engine_names  # noqa: PLC0415

    return engine_names()[0]


def _positions(axes: Sequence[Axis], *, every: bool) -> tuple[tuple[Option, ...], ...]:
    from qresolve.matrix import positions  # noqa: PLC0415

    found = positions(axes)
    return found if every else found[:1]


def columns_of(gpus: Sequence[str] | None, data: TargetData) -> tuple[Column, ...]:
    """A column for each arch, judged for the CPU machine that its boards usually have."""
    from qresolve.matrix import Column  # noqa: PLC0415
    from qresolve.target.names import gpu_of_sm, parse_gpus  # noqa: PLC0415

    if gpus:
        found = parse_gpus(gpus, data.names, data.architectures)
    else:
        named = [item.sm for item in data.architectures.known if data.names.of_sm(item.sm)]
        found = tuple(gpu_of_sm(sm, data.names, name=f"sm{sm}") for sm in named)
    by_sm = {gpu.sm: gpu for gpu in found}
    return tuple(Column(arch=f"sm{sm}", sm=sm, machine=by_sm[sm].machines[0]) for sm in sorted(by_sm))


def render(matrix: Matrix, form: str, *, locked: bool, colour: bool) -> str:
    """The matrix in one of the forms, without a closing newline."""
    if form == "json":
        from qresolve.report.matrix_text import matrix_mapping  # noqa: PLC0415

        return json.dumps(matrix_mapping(matrix), indent=1)
    if form == "html":
        from qresolve.report.matrix_html import matrix_page  # noqa: PLC0415

        return matrix_page(matrix)
    from qresolve.report.matrix_text import matrix_lines, matrix_markdown  # noqa: PLC0415

    parts = []
    for sheet in matrix.sheets:
        if form == "markdown":
            parts.append("\n".join(matrix_markdown(matrix, sheet, locked=locked)))
        else:
            parts.append("\n".join(matrix_lines(matrix, sheet, locked=locked, colour=colour)))
    return "\n\n".join(parts)


def write(output: str, text: str) -> None:
    """Write a file whole or not at all.

    Raises:
        UsageError: it cannot be written.
    """
    from qresolve.errors import UsageError  # noqa: PLC0415

    path = Path(output)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        missing = not path.parent.exists()
        hint = f"mkdir -p {shlex.quote(str(path.parent))}" if missing else "-o -"
        raise UsageError(f"{output} cannot be written: {error.strerror or error}", hint=hint) from error


def _colour(output: str) -> bool:
    return output == "-" and sys.stdout.isatty() and "NO_COLOR" not in os.environ


class _progress:  # noqa: N801 - reads as a function
    """A bar on stderr while cells are judged; nothing where stderr is no terminal."""

    def __enter__(self) -> Callable[[int, int], None]:
        self._bar: object | None = None
        if not sys.stderr.isatty():
            return lambda _done, _all: None
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import Progress  # noqa: PLC0415

        bar = Progress(console=Console(stderr=True), transient=True)
        bar.start()
        task = bar.add_task("judging", total=None)
        self._bar = bar
        return lambda done, total: bar.update(task, completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        stop = getattr(self._bar, "stop", None)
        if stop is not None:
            stop()
