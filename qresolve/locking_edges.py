"""The edges of ``lock``: uv, the index's list of releases, and a wheel's RECORD read by ranges."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from qresolve.edges import Edges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from qresolve.closure.indexes import UserIndexes
    from qresolve.http.client import HttpClient
    from qresolve.lock.model import LockedPackage
    from qresolve.wheels.index_rows import WheelRow


@contextmanager
def open_edges(*, offline: bool, cutoff: str | None = None) -> Iterator[Edges]:
    """The real edges with the user's own indexes and one HTTP client; progress shows on a terminal alone.

    With a ``cutoff`` that has passed, what was found before is not asked for again.

    Raises:
        UsageError: the set-up names a certificate that is not there, or a number that is none.
    """
    from qresolve.closure.closing import run_checked_closure  # noqa: PLC0415
    from qresolve.closure.indexes import read_user_indexes  # noqa: PLC0415
    from qresolve.closure.kept import keep_closures, keep_newer  # noqa: PLC0415
    from qresolve.http.cache import open_cache  # noqa: PLC0415
    from qresolve.http.client import open_http_client  # noqa: PLC0415

    indexes = read_user_indexes(os.environ, Path.home())
    cache = open_cache()
    with _progress() as say, open_http_client(indexes, offline=offline, cache=cache) as client:
        yield Edges(
            close=keep_closures(
                lambda request: run_checked_closure(request, indexes, client=client, progress=say),
                indexes=indexes,
                cache=cache,
                versions=(version("qresolve"), version("uv")),
                now=time.time,
            ),
            record=lambda package: read_record_digest(package, client),
            measure=lambda package: read_measured_wheel(package, client),
            newer=keep_newer(
                lambda project, known: read_newer_release(project, known, indexes, client, cutoff=cutoff),
                cutoff=cutoff,
                cache=cache,
                now=time.time,
            ),
            say=say,
        )


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - only for a terminal

    with Console(stderr=True).status("resolving") as status:
        yield status.update


def read_record_digest(package: LockedPackage, client: HttpClient) -> str | None:
    """The digest over the files that a wheel's RECORD lists: from the wheel index, else from the wheel by ranges.

    None where it is not recorded and cannot be read; then only the version is checked after installation.

    Raises:
        InsecureRedirect: the server leads from https to plain http.
    """
    from qresolve.closure.redirects import no_downgrade  # noqa: PLC0415
    from qresolve.http.cache import kept_folder, write_kept  # noqa: PLC0415
    from qresolve.wheels.index import read_row_of_wheel  # noqa: PLC0415

    row = read_row_of_wheel(package.name, package.wheel.sha256)
    if row is not None and row.measured is not None:
        return row.measured.record
    # By the wheel's sha256, so that an offline lock has the same bytes.
    kept = kept_folder("records") / package.wheel.sha256
    try:
        return kept.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        pass
    if client.settings.offline or not package.wheel.url.startswith(("http://", "https://")):
        return None
    with no_downgrade():
        found = _fetch_record_digest(package, client)
    if found is not None:
        write_kept(kept, found)
    return found


def read_measured_wheel(package: LockedPackage, client: HttpClient) -> WheelRow | None:
    """What is inside a wheel that the wheel index does not know; None where it cannot be opened.

    Raises:
        InsecureRedirect: the server leads from https to plain http.
    """
    from qresolve.closure.lockstep import read_lockstep_rules  # noqa: PLC0415 - only for wheels that are not recorded
    from qresolve.closure.redirects import no_downgrade  # noqa: PLC0415 - as above
    from qresolve.http.cache import kept_folder  # noqa: PLC0415 - as above
    from qresolve.wheels.opened import read_opened_row  # noqa: PLC0415 - as above
    from qresolve.wheels.ranges import HttpRanges  # noqa: PLC0415 - as above
    from qresolve.wheels.remote import ZipWheel  # noqa: PLC0415 - as above

    with no_downgrade():
        return read_opened_row(
            package,
            toolkit=read_lockstep_rules().metapackage,
            open_remote=None if client.settings.offline else lambda url: ZipWheel(HttpRanges(client, url)),
            cache=kept_folder("wheels"),
        )


def _fetch_record_digest(package: LockedPackage, client: HttpClient) -> str | None:
    from qresolve.errors import Unproved  # noqa: PLC0415
    from qresolve.http.failures import DowngradeRefused  # noqa: PLC0415
    from qresolve.wheels.ranges import HttpRanges  # noqa: PLC0415
    from qresolve.wheels.record import parse_record, record_digest  # noqa: PLC0415
    from qresolve.wheels.remote import ZipWheel  # noqa: PLC0415

    try:
        wheel = ZipWheel(HttpRanges(client, package.wheel.url))
        names = [name for name in wheel.member_names() if name.endswith(".dist-info/RECORD")]
        if len(names) != 1:
            return None
        return record_digest(parse_record(wheel.read_member(names[0]).decode("utf-8", "replace")))
    except DowngradeRefused:
        raise
    except Unproved:
        return None


def read_newer_release(
    project: str, known: str, indexes: UserIndexes, client: HttpClient, *, cutoff: str | None = None
) -> str | None:
    """The newest release on the user's index that is newer than ``known``; None where there is none or no answer.

    What came after the ``cutoff`` is not there; a file without a time is.
    """
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename  # noqa: PLC0415
    from packaging.version import Version  # noqa: PLC0415

    from qresolve.closure.indexes import searched_urls  # noqa: PLC0415
    from qresolve.closure.kept import cutoff_moment  # noqa: PLC0415
    from qresolve.closure.simple import read_project_files  # noqa: PLC0415

    files = read_project_files(project, searched_urls(indexes), client)
    last = None if cutoff is None else cutoff_moment(cutoff)
    newest = Version(known)
    for file in files or ():
        try:
            found = parse_wheel_filename(file.filename)[1]
        except InvalidWheelFilename:
            continue
        late = last is not None and file.upload_time is not None and _moment(file.upload_time) >= last
        if file.yanked is None and not found.is_prerelease and not late and found > newest:
            newest = found
    return None if newest == Version(known) else str(newest)


def _moment(upload_time: str) -> float:
    from datetime import datetime  # noqa: PLC0415

    try:
        return datetime.fromisoformat(upload_time).timestamp()
    except ValueError:
        return 0.0
