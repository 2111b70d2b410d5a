"""A wheelhouse before it is installed from: its lock, and that every file is there as locked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve.errors import Refuted, UsageError
from qresolve.wheelhouse.plan import plan_downloads, same_files
from qresolve.wheels.record import read_sha256

if TYPE_CHECKING:
    from pathlib import Path


def read_wheelhouse(folder: Path, lock_file: Path) -> Path:
    """The lock in ``folder`` that belongs to ``lock_file``, after every file of it was checked.

    ``lock_file`` need not exist; where it does, both must list the same files.

    Raises:
        UsageError: no wheelhouse, or one of another lock. Refuted: a file is missing or not the locked one.
    """
    from qresolve.lock.file import read_lock  # noqa: PLC0415 - heavy, and only for a wheelhouse

    place = folder / lock_file.name
    if not place.is_file():
        raise UsageError(
            f"{folder} holds no {lock_file.name}: it is no wheelhouse, or was not finished",
            hint=f"qresolve wheelhouse {lock_file} -o {folder}",
        )
    lock = read_lock(place)
    if lock_file.is_file() and lock_file.resolve() != place.resolve() and not same_files(lock, read_lock(lock_file)):
        raise UsageError(
            f"{folder} was filled from another lock than {lock_file}",
            hint=f"qresolve wheelhouse {lock_file} -o {folder}",
        )
    for download in plan_downloads(lock):
        file = folder / download.filename
        if not file.is_file():
            raise Refuted(f"{file} is missing", hint=f"qresolve wheelhouse {lock_file} -o {folder}")
        if read_sha256(file) != download.sha256:
            raise Refuted(f"{file} is not the locked file", hint=f"qresolve wheelhouse {lock_file} -o {folder}")
    return place
