"""The marker of an install that has not ended: a small file in the environment while an installer works on it.

It stays where the installer or qresolve is killed, so that ``install`` and ``verify`` know.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MARKER = ".qresolve-installing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """What the marker says; both are None where it was cut off while being written."""

    lock: str | None
    installer: str | None


def write_marker(environment: Path, *, lock: Path, installer: str) -> None:
    """Say that an install begins."""
    text = json.dumps({"lock": str(lock), "installer": installer})
    (environment / MARKER).write_text(f"{text}\n", encoding="utf-8")


def remove_marker(environment: Path) -> None:
    """Say that it has ended well."""
    (environment / MARKER).unlink(missing_ok=True)


def read_marker(environment: Path) -> Unfinished | None:
    """The install that has not ended in ``environment``, or None."""
    try:
        text = (environment / MARKER).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        values = json.loads(text)
        return Unfinished(lock=values["lock"], installer=values["installer"])
    except (ValueError, KeyError, TypeError):
        return Unfinished(lock=None, installer=None)
