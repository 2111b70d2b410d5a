"""Starting an engine with the settings of a lock: merged options, merged variables, and then ``exec``.

The engine replaces this process, so signals reach it and its exit code is the command's own.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from qresolve.engine_command import (
    check_calls,
    check_config_file,
    config_file_of,
    merge_flags,
    takes_flags,
    unlocked_choices,
)
from qresolve.errors import UsageError
from qresolve.settings_text import inherit, inherits, variable_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from qresolve.engine_flags import EngineFlags
    from qresolve.setting import Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """A variable of the host to which the lock gives another value, or which it removes (``now`` is None)."""

    name: str
    before: str
    now: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStart:
    """A command that is ready to run: program, arguments (the first is the program's name), all variables.

    ``unlocked`` are options that can change which kernel is picked, though the lock says nothing of them. ``owed`` is
    what the program must do of itself for the lock's verdicts.
    """

    program: str
    argv: tuple[str, ...]
    variables: dict[str, str]
    replaced: tuple[Replaced, ...]
    unlocked: tuple[str, ...]
    owed: tuple[str, ...] = ()


def merge_variables(
    variables: Mapping[str, str], settings: Iterable[Setting], *, choice_prefixes: tuple[str, ...]
) -> tuple[dict[str, str], tuple[Replaced, ...]]:
    """``variables`` with the locked ones put in, and which of the host's values that replaced.

    Raises:
        UsageError: a variable that is the user's own choice (by prefix) has another value than the locked one.
    """
    merged = dict(variables)
    replaced = []
    for setting in settings:
        name = setting.env
        if name is None:
            continue
        before = variables.get(name)
        wanted = None if setting.value is None else variable_text(setting.value)
        now = None if wanted is None else inherit(name, wanted, before)
        if before is not None and before != now and not inherits(name, wanted or ""):
            if name.startswith(choice_prefixes):
                fixed = "to be unset" if now is None else f"to {now!r}"
                raise UsageError(
                    f"the environment has {name}={before!r}, but the lock fixes {name} {fixed}",
                    hint=f"unset {name}",
                )
            replaced.append(Replaced(name=name, before=before, now=now))
        if now is None:
            merged.pop(name, None)
        else:
            merged[name] = now
    return merged, tuple(replaced)


def find_program(name: str, programs: str | None, path: str | None) -> str:
    """The file that ``name`` starts: in the environment's folder of programs first, then on ``path``.

    Raises:
        UsageError: there is none.
    """
    if "/" in name:
        return name
    if programs is not None:
        candidate = Path(programs) / name
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
    found = shutil.which(name, path=path or os.defpath)
    if found is None:
        where = f"neither in {programs} nor on PATH" if programs is not None else "not on PATH"
        raise UsageError(f"`{name}` is {where}", hint="qresolve install")
    return found


def plan_start(
    command: Sequence[str],
    settings: Sequence[Setting],
    flags: EngineFlags,
    *,
    variables: Mapping[str, str],
    programs: str | None,
    config_text: str | None = None,
    installed: bool = True,
) -> EngineStart:
    """The command with the settings (placeholders filled) merged in.

    ``config_text`` is the text of the configuration file that the command names, None where it names none. Where the
    program need not be ``installed`` it is named as typed if it is not there.

    Raises:
        UsageError: no command, a conflict, a program that isn't there, or settings the command cannot take.
    """
    if not command:
        raise UsageError("no command to run", hint="qresolve run -- vllm serve MODEL")
    owed = check_calls(command, settings, flags)
    settings = flags.carried(settings)
    configures = any(setting.path is not None for setting in settings)
    if configures and not takes_flags(command, flags):
        known = ", ".join(f"`{' '.join(known)}`" for known in flags.commands)
        raise UsageError(
            f"the lock changes the engine's configuration, and `{command[0]}` with these arguments"
            f" takes no options for that (known to take them: {known})",
            hint="qresolve env --format json",
        )
    file = config_file_of(command, flags)
    unlocked: tuple[str, ...] = ()
    if takes_flags(command, flags):
        unlocked = unlocked_choices(command, settings, flags)
        if file is not None and config_text is not None:
            unlocked += check_config_file(config_text, file, settings, flags)
    merged, replaced = merge_variables(variables, settings, choice_prefixes=flags.choice_prefixes)
    argv = merge_flags(command, settings, flags)
    try:
        program = find_program(argv[0], programs, merged.get("PATH"))
    except UsageError:
        if installed:
            raise
        program = argv[0]
    return EngineStart(
        program=program,
        argv=argv,
        variables=merged,
        replaced=replaced,
        unlocked=unlocked,
        owed=owed,
    )


def read_config_text(command: Sequence[str], flags: EngineFlags) -> str | None:
    """The text of the configuration file that ``command`` names, or None.

    Raises:
        UsageError: it cannot be read, so nobody can tell whether it contradicts the lock.
    """
    file = config_file_of(command, flags)
    if file is None:
        return None
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the configuration file {file} cannot be read: {error}") from error


def run_engine(start: EngineStart) -> NoReturn:
    """Replace this process by the engine.

    Raises:
        UsageError: the program cannot be started.
    """
    try:
        os.execve(start.program, start.argv, start.variables)  # noqa: S606 - no shell is wanted
    except OSError as error:
        raise UsageError(f"{start.program} cannot be started: {error}") from error
