"""``qresolve wheelhouse``: every wheel of a lock into one folder, for an installation without the network."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from qresolve.lock.model import Lock
    from qresolve.wheelhouse.plan import Download


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "wheelhouse", help="download every wheel of a lock into one folder, to install without the network"
    )
    parser.add_argument("lock", nargs="?", default="pylock.toml", metavar="LOCK", help="default: pylock.toml")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="the folder; what is there is kept")
    parser.add_argument("--json", action="store_true", help="the report as JSON (schema qresolve.wheelhouse/1)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Download, check and write the lock."""
    from qresolve.http.client import open_http_client  # noqa: PLC0415
    from qresolve.http.credentials import IndexAddress  # noqa: PLC0415
    from qresolve.lock.file import read_lock  # noqa: PLC0415
    from qresolve.wheelhouse.perform import fill_wheelhouse  # noqa: PLC0415

    lock_file, folder = Path(arguments.lock), Path(arguments.output)
    lock = read_lock(lock_file)
    indexes = {(package.index, package.index_url) for package in lock.packages if package.index_url is not None}
    more = [IndexAddress(name=name, url=url) for name, url in sorted(indexes)]
    with open_http_client(more=more) as client, _progress(lock) as progress:
        filled = fill_wheelhouse(lock, folder, name=lock_file.name, client=client, progress=progress)
    if arguments.json:
        answer = {
            "schema": "qresolve.wheelhouse/1",
            "folder": str(filled.folder),
            "lock": str(filled.lock),
            "fetched": list(filled.fetched),
            "kept": list(filled.kept),
            "size": filled.size,
        }
        print(json.dumps(answer, indent=2))
    else:
        print(filled.lock)
    print(
        f"{len(filled.fetched)} wheels fetched, {len(filled.kept)} were there, {filled.size / 1e6:.1f} MB in all; "
        f"`qresolve install --wheelhouse {filled.folder}` installs them",
        file=sys.stderr,
    )
    return 0


@contextmanager
def _progress(lock: Lock) -> Iterator[Callable[[Download, int], None]]:
    """One bar over all bytes, on stderr; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _download, _bytes: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("wheels", total=sum(package.wheel.size or 0 for package in lock.packages))

        def came(download: Download, count: int) -> None:
            bar.update(task, advance=count, description=download.filename.partition("-")[0])

        yield came
