"""The two installers as commands: uv, and pip for those who want it. Both check the lock's hashes themselves."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qresolve.errors import InstallFailed
from qresolve.install.isolation import (
    read_pip_options,
    read_uv_configuration,
    select_variables,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

INSTALLERS = ("uv", "pip")
_LOCK_NAME = re.compile(r"pylock(\.[^.]+)?\.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """A private folder that installers run in, and the variables they get."""

    folder: Path
    uv_variables: dict[str, str]
    pip_variables: dict[str, str]
    lock: Path


@contextlib.contextmanager
def open_workplace(lock: Path, variables: Mapping[str, str]) -> Iterator[Workplace]:
    """A private folder with the kept part of the user's configuration; removed at the end.

    uv refuses a lock with another name than ``pylock.toml`` or ``pylock.NAME.toml``, so such a lock is copied.
    """
    import tomli_w  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="qresolve-") as name:
        folder = Path(name)  # private to the user (mode 0700): the configuration can hold credentials
        configuration = folder / "uv.toml"
        configuration.write_text(tomli_w.dumps(read_uv_configuration(variables)), encoding="utf-8")
        named = lock.absolute()
        if not _LOCK_NAME.fullmatch(named.name):
            named = folder / "pylock.toml"
            shutil.copyfile(lock, named)
        uv_variables = select_variables(variables, installer="uv") | {"UV_CONFIG_FILE": str(configuration)}
        pip_variables = {
            **read_pip_options(),
            **select_variables(variables, installer="pip"),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        yield Workplace(folder=folder, uv_variables=uv_variables, pip_variables=pip_variables, lock=named)


def find_uv() -> str:
    """The uv program that came with qresolve, or the one on PATH.

    Raises:
        InstallFailed: there is none.
    """
    import uv  # noqa: PLC0415

    try:
        return uv.find_uv_bin()
    except FileNotFoundError as error:
        found = shutil.which("uv")
        if found is None:
            raise InstallFailed("uv is not installed", hint="pip install uv") from error
        return found


def venv_command(uv: str, environment: Path, python: str) -> tuple[str, ...]:
    """Create ``environment`` with Python ``python`` (``X.Y``)."""
    return (uv, "venv", "--python", python, str(environment))


def install_command(
    installer: str,
    *,
    uv: str,
    python: Path,
    lock: Path,
    reinstall: bool,
    differing: tuple[str, ...] = (),
    offline: bool = False,
) -> tuple[str, ...]:
    """Install what ``lock`` lists for ``python``.

    ``reinstall`` lays down again all that is already there; ``differing`` names packages whose files are not the
    locked ones though the version is. pip can only lay down all. uv also removes what is not locked; pip leaves
    it. ``offline``: every file is here, and neither may ask an index.
    """
    if installer == "uv":
        some = [word for name in differing for word in ("--reinstall-package", name)]
        again = ["--reinstall"] if reinstall else some
        alone = ["--offline"] if offline else []
        return (
            uv, "pip", "sync", "--preview-features", "pylock", "--no-build", *alone, *again,
            "--python", str(python), str(lock),
        )  # fmt: skip
    again = ["--force-reinstall"] if reinstall or differing else []
    alone = ["--no-index"] if offline else []
    return (
        sys.executable, "-I", "-m", "pip", "--python", str(python), "install", "--no-input", *alone, *again,
        "-r", str(lock),
    )  # fmt: skip
