"""Bringing an environment to what a lock says, and saying what state it is in where that did not work."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qresolve.errors import InstallFailed, Unproved, UsageError
from qresolve.install.child import ChildEnd, run_child
from qresolve.install.fit import check_driver, check_host, check_python, read_driver, refuse
from qresolve.install.installed_files import read_comparisons
from qresolve.install.installers import find_uv, install_command, open_workplace, venv_command
from qresolve.install.interpreter import Interpreter, find_interpreter, normalize_name, read_interpreter, same_version
from qresolve.install.unfinished import MARKER, read_marker, remove_marker, write_marker
from qresolve.target.detect import read_glibc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from qresolve.install.installers import Workplace
    from qresolve.lock.model import Lock

_SHOWN_LINES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What an environment lacks and has too much of, each as ``name==version``, against a lock."""

    add: tuple[str, ...]
    remove: tuple[str, ...]
    keep: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallReport:
    """What was done, or under ``--dry-run`` would be. ``commands`` are the installer's, for a shell."""

    environment: Path
    installer: str
    commands: tuple[tuple[str, ...], ...]
    changes: Changes
    created: bool
    resumed: bool
    dry_run: bool


def compare_installed(lock: Lock, interpreter: Interpreter | None) -> Changes:
    """The changes that bring an environment (None: not there yet) to what ``lock`` lists."""
    locked = {normalize_name(package.name): package.version for package in lock.packages}
    installed: dict[str, str | None] = {}
    if interpreter is not None:
        for distribution in interpreter.distributions:
            name = distribution.normalized_name
            if name is not None:
                installed.setdefault(name, distribution.version)
    kept = [name for name in sorted(locked) if same_version(locked[name], installed.get(name))]
    return Changes(
        add=tuple(f"{name}=={locked[name]}" for name in sorted(locked) if name not in kept),
        remove=tuple(f"{name}=={installed[name]}" for name in sorted(installed) if name not in kept),
        keep=tuple(f"{name}=={locked[name]}" for name in kept),
    )


def _differing(lock: Lock, interpreter: Interpreter) -> tuple[str, ...]:
    """Gated packages whose installed files are not the locked wheel's: an installer would see the version only."""
    comparisons = read_comparisons(lock.packages, interpreter.distributions)
    return tuple(
        name
        for name, comparison in sorted(comparisons.items())
        if isinstance(comparison, Unproved) or not comparison.same
    )


def _environment_to_use(environment: str | None, python: str | None) -> tuple[Path, Interpreter | None]:
    """The environment's folder, and its interpreter where the environment is there."""
    if python is not None:
        interpreter = read_interpreter(find_interpreter(python))
        if not interpreter.is_virtual:
            raise UsageError(
                f"{interpreter.executable} belongs to no virtual environment,"
                " and what isn't locked would be removed from it",
                hint="qresolve install --env .venv",
            )
        return interpreter.prefix, interpreter
    folder = Path(os.path.abspath(environment or ".venv"))  # noqa: PTH100 - a linked folder keeps its name
    executable = folder / "bin" / "python"
    if executable.is_file():
        interpreter = read_interpreter(executable)
        if not interpreter.is_virtual:
            raise UsageError(f"{folder} is not a virtual environment", hint="qresolve install --env .venv")
        return folder, interpreter
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder} is there and is not a virtual environment with a Python in it",
            hint=f"uv venv --clear {shlex.quote(str(folder))}",
        )
    return folder, None


def _state(lock: Lock, folder: Path) -> str:
    try:
        changes = compare_installed(lock, read_interpreter(folder / "bin" / "python"))
    except UsageError:
        return f"{folder} holds no working Python"
    return f"{len(changes.keep)} of {len(lock.packages)} locked packages are in {folder} ({MARKER} marks it unfinished)"


def _concerned(lock: Lock, end: ChildEnd) -> str | None:
    """The locked package whose expected hash the installer printed: it got other bytes.

    Looked for by the digest, which no release of an installer can word differently.
    """
    text = "\n".join(end.tail)
    for package in lock.packages:
        if package.wheel.sha256 in text:
            return (
                f"the file served for {package.name}=={package.version} ({package.wheel.filename})"
                f" is not the locked one, sha256 {package.wheel.sha256}"
            )
    return None


def _run(command: tuple[str, ...], work: Workplace, variables: Mapping[str, str]) -> ChildEnd:
    try:
        return run_child(command, variables=variables, folder=work.folder)
    except OSError as error:
        raise InstallFailed(f"{command[0]} cannot be started: {error}") from error


def _failure(command: tuple[str, ...], end: ChildEnd, *, what: str, state: str, hint: str) -> InstallFailed:
    how = f"was killed by signal {-end.status}" if end.status < 0 else f"ended with status {end.status}"
    said = "\n".join(f"  {line}" for line in end.tail[-_SHOWN_LINES:])
    message = f"{Path(command[0]).name} {how}: {what}" if what else f"{Path(command[0]).name} {how}"
    return InstallFailed(
        f"{message}; {state}" + (f"\n{said}" if said else ""),
        hint=hint,
    )


def perform_install(
    lock: Lock,
    lock_file: Path,
    *,
    environment: str | None = None,
    python: str | None = None,
    installer: str = "uv",
    dry_run: bool = False,
    variables: Mapping[str, str] | None = None,
    driver: str | None = None,
    offline: bool = False,
    say: Callable[[str], None] = lambda _words: None,
) -> InstallReport:
    """Bring ``environment`` (default ``.venv``), or the one that ``python`` belongs to, to what ``lock`` lists.

    Raises:
        UsageError: the lock was not made for this host or this Python, or the folder cannot be used.
        InstallFailed: the installer stopped, or left out a package.
        KeyboardInterrupt: interrupted; what state that leaves was said before.
    """
    environ = dict(os.environ if variables is None else variables)
    known_driver = driver or read_driver()
    refuse(
        check_host(lock.target, system=sys.platform, machine=platform.machine(), glibc=read_glibc())
        + check_driver(lock.driver_floor, known_driver)
    )
    if lock.driver_floor is not None and known_driver is None:
        say(f"the NVIDIA driver of this host is unknown; the lock needs {lock.driver_floor} or newer")
    folder, interpreter = _environment_to_use(environment, python)
    if interpreter is not None:
        refuse(check_python(lock.target, interpreter))
        if interpreter.prefix == Path(sys.prefix):
            raise UsageError(
                f"qresolve itself runs in {folder}, and what isn't locked would be removed from it",
                hint="qresolve install --env .venv-engine",
            )
    unfinished = interpreter is not None and read_marker(folder) is not None
    if unfinished:
        say(f"an earlier install into {folder} was not finished: every package is laid down again")
    again = shlex.join(["qresolve", "install", "--lock", str(lock_file), "--env", str(folder)])
    uv = find_uv()
    with open_workplace(lock_file, environ) as work:
        executable = interpreter.executable if interpreter is not None else folder / "bin" / "python"
        create = venv_command(uv, folder, ".".join(lock.target.python.split(".")[:2]))
        differing = () if interpreter is None else _differing(lock, interpreter)
        fill = install_command(
            installer,
            uv=uv,
            python=executable,
            lock=work.lock,
            reinstall=unfinished,
            differing=differing,
            offline=offline,
        )
        report = InstallReport(
            environment=folder,
            installer=installer,
            commands=(fill,) if interpreter is not None else (create, fill),
            changes=compare_installed(lock, interpreter),
            created=interpreter is None,
            resumed=unfinished,
            dry_run=dry_run,
        )
        if dry_run:
            return report
        if interpreter is None:
            say(f"creating {folder} with Python {lock.target.python}")
            end = _run(create, work, work.uv_variables)
            if end.status != 0:
                raise _failure(
                    create,
                    end,
                    what=f"Python {lock.target.python} for {folder}",
                    state="nothing was installed",
                    hint=f"uv python install {lock.target.python}",
                )
        say(f"installing {len(lock.packages)} packages into {folder} with {installer}")
        write_marker(folder, lock=lock_file.absolute(), installer=installer)
        try:
            end = _run(fill, work, work.uv_variables if installer == "uv" else work.pip_variables)
        except KeyboardInterrupt:
            say(f"interrupted: {_state(lock, folder)}")
            raise
    if end.status != 0:
        raise _failure(fill, end, what=_concerned(lock, end) or "", state=_state(lock, folder), hint=again)
    missing = compare_installed(lock, read_interpreter(folder / "bin" / "python")).add
    if missing:
        raise InstallFailed(
            f"{installer} ended well but left out {', '.join(missing)}; {_state(lock, folder)}",
            hint="qresolve install --installer pip" if installer == "uv" else "qresolve install --installer uv",
        )
    remove_marker(folder)
    return report
