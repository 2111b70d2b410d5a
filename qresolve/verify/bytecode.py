"""Where interpreters that verify starts keep compiled modules: in the user's cache, never beside the sources.

Importing an engine for the first time compiles thousands of files, which takes longer than everything else here. Python
trusts a compiled module whose source has the same size and time, and an edit can keep both; so the folder is named by
the change times of the engine's files as the file system keeps them, which an edit cannot set.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from typing import TYPE_CHECKING

from qresolve.http.cache import kept_folder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from qresolve.install.interpreter import Interpreter

_KIND = "bytecode"
_KEPT = 4  # folders; one is about 130 MB for vLLM


def bytecode_folder(interpreter: Interpreter, names: Iterable[str], *, otherwise: Path) -> Path:
    """The folder for an environment as it is now; ``otherwise`` where the cache cannot be written.

    ``names`` are the distributions whose files must not have changed since.
    """
    folder = kept_folder(_KIND)
    mine = folder / _state(interpreter, frozenset(names))
    try:
        mine.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.utime(mine)
    except OSError:
        return otherwise
    _clear(folder)
    return mine


def _state(interpreter: Interpreter, names: frozenset[str]) -> str:
    said = hashlib.sha256(f"{interpreter.executable} {interpreter.version}".encode())
    for one in interpreter.distributions:
        said.update(f"{one.normalized_name} {one.version} {one.path}".encode())
        if one.normalized_name in names:
            said.update(str(_newest_change(one.path)).encode())
    return said.hexdigest()[:32]


def _newest_change(dist_info: Path) -> int:
    """The latest change time of any Python file that a distribution installed, in nanoseconds."""
    newest = 0
    for root in _roots(dist_info):
        for folder, _, files in os.walk(root):
            for name in files:
                if name.endswith(".py"):
                    with contextlib.suppress(OSError):
                        newest = max(newest, os.stat(os.path.join(folder, name)).st_ctime_ns)  # noqa: PTH116, PTH118
    return newest


def _roots(dist_info: Path) -> set[Path]:
    """The folders of its packages."""
    try:
        lines = (dist_info / "RECORD").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return set()
    tops = {line.partition("/")[0] for line in lines if "/" in line and line.partition(",")[0].endswith(".py")}
    return {dist_info.parent / top for top in tops if top not in ("", "..", dist_info.name)}


def _clear(folder: Path) -> None:
    """Drop the folders that were used longest ago."""
    with contextlib.suppress(OSError):
        known = sorted((one for one in folder.iterdir() if one.is_dir()), key=lambda one: one.stat().st_mtime)
        for old in known[:-_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
