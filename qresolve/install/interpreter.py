"""What a Python interpreter here is and what is installed for it, asked from that interpreter itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qresolve.errors import UsageError
from qresolve.settings_text import EnvironmentPaths

_SCRIPT = Path(__file__).with_name("describe_interpreter.py")
_TIME_LIMIT = 60.0  # seconds
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")
DEFAULT_ENVIRONMENT = ".venv"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledDistribution:
    """One installed distribution. ``path`` is its ``.dist-info`` folder; ``problem`` says why it has no name."""

    name: str | None
    version: str | None
    path: Path
    problem: str | None = None

    @property
    def normalized_name(self) -> str | None:
        """The name as indexes compare it (PEP 503), or None."""
        return normalize_name(self.name) if self.name is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A Python interpreter of this host. ``libc`` is the raw text of the C library, None where it isn't glibc."""

    executable: Path
    version: str
    prefix: Path
    base_prefix: Path
    platform: str
    machine: str
    libc: str | None
    site_packages: Path
    programs: Path
    distributions: tuple[InstalledDistribution, ...]

    @property
    def python(self) -> str:
        """``X.Y``."""
        return ".".join(self.version.split(".")[:2])

    @property
    def is_virtual(self) -> bool:
        """Whether it belongs to a virtual environment."""
        return self.prefix != self.base_prefix

    @property
    def paths(self) -> EnvironmentPaths:
        """What placeholders in settings stand for."""
        return EnvironmentPaths(
            environment=str(self.prefix), programs=str(self.programs), site_packages=str(self.site_packages)
        )


def normalize_name(name: str) -> str:
    """A project's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def same_version(locked: str, installed: str | None) -> bool:
    """Whether two versions are the same release of the same build: ``1.0`` is ``1.0.0``, not ``1.0+cu130``."""
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415

    if installed is None:
        return False
    try:
        return Version(locked) == Version(installed)
    except InvalidVersion:
        return locked == installed


def parse_interpreter(values: dict[str, Any], executable: Path) -> Interpreter:
    """The interpreter that :mod:`describe_interpreter` described; ``executable`` is the path as given."""
    return Interpreter(
        executable=executable,
        version=values["version"],
        prefix=Path(values["prefix"]),
        base_prefix=Path(values["base_prefix"]),
        platform=values["platform"],
        machine=values["machine"],
        libc=values["libc"],
        site_packages=Path(values["site_packages"]),
        programs=Path(values["programs"]),
        distributions=tuple(
            InstalledDistribution(
                name=entry["name"],
                version=entry["version"],
                path=Path(entry["path"]),
                problem=entry["problem"],
            )
            for entry in values["distributions"]
        ),
    )


def find_interpreter(given: str | None, *, variables: dict[str, str] | None = None) -> Path:
    """The interpreter of the environment to look at.

    ``given`` (``--python``) wins; else ``.venv`` in the working directory, where ``install`` puts it; else the
    active virtual environment.

    Raises:
        UsageError: there is none.
    """
    if given is not None:
        path = Path(given)
        if path.is_dir():
            path = path / "bin" / "python"
        if not path.is_file():
            raise UsageError(
                f"no Python interpreter at {given}",
                hint=f"qresolve install --env {path.parent.parent}" if path.parent.name == "bin" else None,
            )
        return Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would leave the environment's own link
    environment = os.environ if variables is None else variables
    places = [Path(DEFAULT_ENVIRONMENT)]
    if environment.get("VIRTUAL_ENV"):
        places.append(Path(environment["VIRTUAL_ENV"]))
    for place in places:
        python = place / "bin" / "python"
        if python.is_file():
            return Path(os.path.abspath(python))  # noqa: PTH100
    raise UsageError(
        "no environment: neither ./.venv nor an active virtual environment is there",
        hint="qresolve install --env .venv",
    )


def read_interpreter(executable: Path) -> Interpreter:
    """Ask ``executable`` what it is and what is installed for it.

    Raises:
        UsageError: it does not run, does not answer in time, or answers something else.
    """
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    with tempfile.TemporaryDirectory(prefix="qresolve-") as neutral:
        try:
            answer = subprocess.run(
                [str(executable), "-I", "-B", str(_SCRIPT)],
                capture_output=True,
                check=False,
                cwd=neutral,
                env=kept,
                text=True,
                timeout=_TIME_LIMIT,
            )
        except OSError as error:
            raise UsageError(f"{executable} cannot be run: {error}") from error
        except subprocess.TimeoutExpired as error:
            raise UsageError(f"{executable} did not answer within {_TIME_LIMIT:.0f} s") from error
    if answer.returncode != 0:
        last = answer.stderr.strip().splitlines()[-1:] or ["no message"]
        raise UsageError(f"{executable} ended with status {answer.returncode}: {last[0]}")
    try:
        # A site-packages that prints when Python starts must not break the answer.
        return parse_interpreter(json.loads(answer.stdout[answer.stdout.index("{") :]), executable)
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{executable} is not a Python 3.10 or newer: {answer.stdout[:200]!r}") from error
