"""Where the shipped data folders are: inside the installed wheel, or beside the package in a checkout."""

from __future__ import annotations

from pathlib import Path

from qresolve.errors import DataInvalid

_PACKAGE = Path(__file__).resolve().parent


def data_folder(name: str) -> Path:
    """The folder ``constraints``, ``wheel_index`` or ``kernels``.

    Raises:
        DataInvalid: neither the installed copy nor a checkout has it.

    """
    for base in (_PACKAGE / "_data", _PACKAGE.parent):
        folder = base / name
        if folder.is_dir():
            return folder
    raise DataInvalid(
        f"the data folder `{name}` is neither in the installed package nor beside it",
        hint="pip install --force-reinstall qresolve",
    )
