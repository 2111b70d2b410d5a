"""Operating systems by name: the glibc that each ships, and what is assumed where nothing was said.

Wheels are chosen by the oldest glibc they run on, so the system matters to a lock only by its glibc (and by its
CPU machine where there is one alone, as for JetPack).
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qresolve.data import data_folder
from qresolve.errors import UsageError
from qresolve.strict import read_toml
from qresolve.target.names import MACHINES

if TYPE_CHECKING:
    from datetime import date
    from pathlib import Path

    from qresolve.strict import Table

_FILE = "platforms.toml"
_GLIBC = re.compile(r"(?:glibc[\s_-]*)?(?P<version>2\.\d{1,2})", re.ASCII)
_PYTHON = re.compile(r"3\.\d{1,2}", re.ASCII)
_MACHINE_NAMES = {"amd64": "x86_64", "x64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64", "sbsa": "aarch64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """One operating system release; ``machine`` where it exists for one only."""

    name: str
    also: tuple[str, ...]
    glibc: str
    machine: str | None
    source: str
    checked: date


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedPlatform:
    """A system that no engine supports, recognised by how its name starts."""

    name: str
    starts: tuple[str, ...]
    why: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Platforms:
    """All that ``platforms.toml`` says; the defaults hold where nothing was given."""

    platforms: tuple[Platform, ...]
    refused: tuple[RefusedPlatform, ...]
    default_os: str
    default_python: str
    default_machine: str

    @property
    def default(self) -> Platform:
        """The platform whose glibc is assumed."""
        return next(one for one in self.platforms if one.name == self.default_os)


def parse_platform(text: str, platforms: Platforms) -> Platform:
    """Read ``--os``: ``ubuntu22.04``, ``Ubuntu 22.04``, ``rocky9``, ``jetpack6``; a point release is ignored.

    Raises:
        UsageError: unknown, or refused by name.
    """
    wanted = _normalise(text)
    by_name = {_normalise(name): one for one in platforms.platforms for name in (one.name, *one.also)}
    if wanted in by_name:
        return by_name[wanted]
    for refused in platforms.refused:
        if wanted.startswith(refused.starts):
            raise UsageError(f"{refused.name} is not supported: {refused.why}", hint=refused.hint)
    shorter = wanted
    while "." in shorter:  # a point release: rocky9.4, ubuntu22.04.5, jetpack6.2
        shorter = shorter.rpartition(".")[0]
        if shorter in by_name:
            return by_name[shorter]
    near = [by_name[name].name for name in difflib.get_close_matches(wanted, by_name, n=3, cutoff=0.6)]
    shown = list(dict.fromkeys(near)) or [one.name for one in platforms.platforms]
    raise UsageError(
        f"unknown operating system `{text.strip()}`; the nearest names are {', '.join(shown)}; "
        "or give its glibc (`ldd --version` prints it)",
        hint=f"--os {shown[0]}" if near else "--glibc 2.35",
    )


def parse_glibc(text: str) -> str:
    """Read ``--glibc``: ``2.35``.

    Raises:
        UsageError: not a glibc version.
    """
    found = _GLIBC.fullmatch(text.strip().casefold())
    if found is None:
        raise UsageError(f"`{text.strip()}` is no glibc version (expected for example 2.35)", hint="ldd --version")
    return found["version"]


def parse_machine(text: str) -> str:
    """Read ``--machine``: ``x86_64`` or ``aarch64``, also ``amd64`` and ``arm64``.

    Raises:
        UsageError: another machine.
    """
    lowered = text.strip().casefold()
    machine = _MACHINE_NAMES.get(lowered, lowered)
    if machine not in MACHINES:
        raise UsageError(
            f"unknown CPU machine `{text.strip()}`; the engines have wheels for {' and '.join(MACHINES)}",
            hint="uname -m",
        )
    return machine


def parse_python(text: str) -> str:
    """Read the Python version to lock for: ``3.12``.

    Raises:
        UsageError: not of the form 3.Y.
    """
    version = text.strip().removeprefix("python")
    if _PYTHON.fullmatch(version) is None:
        short = re.match(r"3\.\d{1,2}(?=\.)", version)
        suggestion = short.group() if short is not None else "3.12"
        raise UsageError(
            f"`{text.strip()}` is not a Python version to lock for: give major and minor",
            hint=f"--python {suggestion}",
        )
    return version


def _normalise(name: str) -> str:
    joined = re.sub(r"[^a-z0-9.]", "", name.casefold())
    return re.sub(r"linux(?=\d)|leap(?=\d)", "", joined).replace("redhatenterprise", "rhel")


def parse_platforms(table: Table) -> Platforms:
    """Check ``platforms.toml``.

    Raises:
        DataInvalid: a key is missing or unknown, a name stands twice, a default has no record.
    """
    defaults = table.table("defaults")
    found = []
    for row in table.tables("platform"):
        platform = Platform(
            name=row.text("name"),
            also=row.texts("also", ()),
            glibc=row.text("glibc"),
            machine=row.choice("machine", MACHINES) if "machine" in row else None,
            source=row.text("source"),
            checked=row.day("checked"),
        )
        if _GLIBC.fullmatch(platform.glibc) is None:
            raise row.fail("glibc", f"must be 2.Y, not {platform.glibc!r}")
        row.done()
        found.append(platform)
    refused = []
    for row in table.tables("refused"):
        refused.append(
            RefusedPlatform(
                name=row.text("name"), starts=row.texts("starts"), why=row.text("why"), hint=row.text("hint")
            )
        )
        row.done()
    platforms = Platforms(
        platforms=tuple(found),
        refused=tuple(refused),
        default_os=defaults.text("os"),
        default_python=defaults.text("python"),
        default_machine=defaults.choice("machine", MACHINES),
    )
    defaults.done()
    table.done()
    names = [_normalise(name) for one in found for name in (one.name, *one.also)]
    for name in names:
        if names.count(name) > 1:
            raise table.fail("platform", f"{name!r} stands twice")
    if platforms.default_os not in {one.name for one in found}:
        raise defaults.fail("os", f"{platforms.default_os!r} has no record")
    return platforms


def read_platforms(folder: Path | None = None) -> Platforms:
    """Read ``platforms.toml`` of ``folder``, by default of the shipped constraints.

    Raises:
        DataInvalid: the file is missing or wrong.
    """
    where = folder if folder is not None else data_folder("constraints")
    return parse_platforms(read_toml(where / _FILE, name=f"constraints/{_FILE}"))
