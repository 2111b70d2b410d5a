"""``qresolve lock``: writes a pylock.toml in which every asked format runs as wanted."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from qresolve.cli.options import add_request_options, add_target_options, read_question

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from qresolve.closure.request import NamedIndex


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = subparsers.add_parser("lock", help="write a pylock.toml in which every asked format runs as wanted")
    add_target_options(parser)
    add_request_options(parser)
    group = parser.add_argument_group("resolution")
    group.add_argument("--exclude-newer", metavar="DATE", help="no file that came to the index after this date")
    group.add_argument("--offline", action="store_true", help="use what is cached, ask nothing")
    group.add_argument(
        "--index",
        action="append",
        default=[],
        metavar="NAME=URL=PACKAGE[,PACKAGE]",
        help="an index that these packages must come from, and that no other package may",
    )
    group.add_argument(
        "--wheel",
        action="append",
        default=[],
        metavar="FILE",
        help="take this package from this wheel, for example one that you built; its kernels are read in it",
    )
    group.add_argument(
        "--find-links",
        action="append",
        default=[],
        metavar="FOLDER",
        help="take the packages that have wheels in this folder from there, and from nowhere else",
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "-o", "--output", default="pylock.toml", metavar="FILE", help="default: pylock.toml; - for stdout"
    )
    output.add_argument(
        "--force", action="store_true", help="overwrite a file that is not a lock of ours, or whose hashes differ"
    )
    output.add_argument("--json", action="store_true", help="also print the answer as JSON (schema qresolve.explain/1)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Resolve and write; nothing is written unless every asked format holds."""
    from qresolve.closure.local import join_indexes, pin_local_engine, read_local_indexes  # noqa: PLC0415
    from qresolve.errors import UsageError  # noqa: PLC0415
    from qresolve.lock.file import check_output, check_same_files, write_lock  # noqa: PLC0415
    from qresolve.locking import LockRequest, make_lock  # noqa: PLC0415
    from qresolve.locking_edges import open_edges  # noqa: PLC0415
    from qresolve.report.lock_text import lock_lines, reservation_lines  # noqa: PLC0415
    from qresolve.target.drivers import read_cuda_releases  # noqa: PLC0415

    if arguments.json and arguments.output == "-":
        raise UsageError("--json and -o - both want stdout", hint="--json -o pylock.toml")
    check_output(arguments.output, force=arguments.force)
    local = read_local_indexes(arguments.wheel, arguments.find_links)
    question = read_question(arguments)
    pin_local_engine(question, local)
    request = LockRequest(
        requested=tuple(ask.key for ask in question.asks),
        cutoff=arguments.exclude_newer,
        indexes=join_indexes(parse_indexes(arguments.index), tuple(item.index for item in local)),
        wheels=tuple(item.pin for item in local if item.pin is not None),
        offline=arguments.offline,
    )
    with open_edges(offline=arguments.offline, cutoff=arguments.exclude_newer) as edges:
        locked = make_lock(question, request, edges, read_cuda_releases())
    check_same_files(arguments.output, locked.lock, force=arguments.force)
    write_lock(arguments.output, locked.lock, force=arguments.force)
    for line in (*locked.notes, *lock_lines(locked.lock, arguments.output), *reservation_lines(locked.answer)):
        print(line, file=sys.stderr)
    if arguments.json:
        from qresolve.report.explain_json import explain_mapping  # noqa: PLC0415

        print(json.dumps(explain_mapping(question, locked.answer), indent=2))
    return 0


def parse_indexes(texts: Sequence[str]) -> tuple[NamedIndex, ...]:
    """``--index NAME=URL=PACKAGE[,PACKAGE]``.

    Raises:
        UsageError: not of that form, or two indexes for one package.
    """
    from packaging.utils import canonicalize_name  # noqa: PLC0415

    from qresolve.closure.request import NamedIndex  # noqa: PLC0415
    from qresolve.errors import UsageError  # noqa: PLC0415

    found: list[NamedIndex] = []
    bound: dict[str, str] = {}
    for text in texts:
        name, _, rest = text.partition("=")
        url, _, names = rest.rpartition("=")
        packages = tuple(sorted({canonicalize_name(word.strip()) for word in names.split(",") if word.strip()}))
        if not (name and url and packages):
            raise UsageError(
                "`--index` is NAME=URL=PACKAGE[,PACKAGE]",
                hint="--index flashinfer=https://flashinfer.ai/whl/=flashinfer-cubin",
            )
        for package in packages:
            if bound.setdefault(package, name) != name:
                raise UsageError(f"`{package}` is bound to two indexes: {bound[package]} and {name}")
        found.append(NamedIndex(name=name, url=url, packages=packages))
    return tuple(sorted(found, key=lambda index: index.name))
