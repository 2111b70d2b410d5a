"""Filling a wheelhouse: every wheel of a lock into one folder, in parallel, and the lock that installs from it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qresolve.errors import InstallFailed, UsageError
from qresolve.lock.file import write_lock
from qresolve.wheelhouse.fetch import fetch
from qresolve.wheelhouse.plan import plan_downloads, wheelhouse_lock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from qresolve.http.client import HttpClient
    from qresolve.lock.model import Lock
    from qresolve.wheelhouse.plan import Download


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What was done: files that came, files that were there, and all their bytes."""

    folder: Path
    lock: Path
    fetched: tuple[str, ...]
    kept: tuple[str, ...]
    size: int


def fill_wheelhouse(
    lock: Lock,
    folder: Path,
    *,
    name: str,
    client: HttpClient,
    progress: Callable[[Download, int], None] = lambda _download, _bytes: None,
) -> Filled:
    """Bring every wheel of ``lock`` into ``folder`` and write the lock ``name`` there.

    The lock is written last: where it lies, everything that it lists is there and was checked.

    Raises:
        UsageError: the folder cannot be made. InstallFailed: a file does not come, or the disk is too small.
        Refuted: a file is not the locked one.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror or error}") from error
    downloads = plan_downloads(lock)
    _check_room(folder, downloads)
    came = client.each(
        lambda download: fetch(client, folder, download, lambda count: progress(download, count)), downloads
    )
    place = folder / name
    write_lock(place, wheelhouse_lock(lock), force=True)
    names = [download.filename for download in downloads]
    return Filled(
        folder=folder,
        lock=place,
        fetched=tuple(sorted(one for one, new in zip(names, came, strict=True) if new)),
        kept=tuple(sorted(one for one, new in zip(names, came, strict=True) if not new)),
        size=sum((folder / one).stat().st_size for one in names),
    )


def _check_room(folder: Path, downloads: tuple[Download, ...]) -> None:
    missing = sum(one.size or 0 for one in downloads if not (folder / one.filename).is_file())
    free = shutil.disk_usage(folder).free
    if missing > free:
        raise InstallFailed(
            f"{missing / 1e9:.1f} GB are missing in {folder}, and its disk has {free / 1e9:.1f} GB left",
            hint=f"df -h {folder}",
        )
