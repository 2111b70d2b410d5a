"""Merging a lock's settings into the command that a user gave for an engine."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qresolve.engine_flags import plain_text, render_leaves, setting_leaves
from qresolve.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from qresolve.engine_flags import EngineFlag, EngineFlags, Leaves, Path
    from qresolve.setting import Setting

_SHORTEST_ABBREVIATION = 5  # "--ker": shorter ones are ambiguous to every engine's own parser
_SUFFIXED_NUMBER = re.compile(r"\d+(\.\d+)?[kKmMgGtT]")
_PYTHON_NAME = re.compile(r"python(\d+(\.\d+)?)?")


def _flatten(value: object, root: Path) -> Leaves:
    if not isinstance(value, dict) or not value:
        return {root: value}
    leaves: Leaves = {}
    for key, inner in value.items():
        leaves |= _flatten(inner, (*root, key))
    return leaves


def takes_flags(argv: Sequence[str], flags: EngineFlags) -> bool:
    """Whether the command ``argv`` is one that reads the engine's options."""
    return any(begins_with(argv, command) for command in flags.commands)


def begins_with(argv: Sequence[str], command: tuple[str, ...]) -> bool:
    """Whether ``argv`` begins as ``command`` does, in which ``{python}`` stands for any Python interpreter."""
    if not argv:
        return False
    program = argv[0].rsplit("/", 1)[-1]
    if _PYTHON_NAME.fullmatch(program):
        program = "{python}"
    return (program, *argv[1:])[: len(command)] == command


def check_calls(argv: Sequence[str], settings: Iterable[Setting], flags: EngineFlags) -> tuple[str, ...]:
    """What the command must do of itself for the settings, where it cannot be told from ``argv`` that it does.

    Raises:
        UsageError: it is another command of the engine, which does something else.
    """
    owed = []
    for call in flags.called(settings):
        if call.argv and begins_with(argv, call.argv):
            continue
        other = next((item for item in flags.calls if item.argv and begins_with(argv, item.argv)), None)
        if other is not None and other.root == call.root:
            raise UsageError(
                f"`{' '.join(argv[: len(other.argv)])}` is {'.'.join(call.root)} = {other.value}, and the lock fixes "
                f"{call.value}: {call.say}",
                hint=f"qresolve run -- {' '.join(call.argv).replace('{python}', 'python')}" if call.argv else None,
            )
        owed.append(call.say)
    return tuple(owed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """One occurrence of an option in the user's command."""

    flag: EngineFlag
    shown: str
    keys: Path | None  # the dotted part; None where the option stands alone
    value: str
    appended: bool  # `--option.list+ a,b`


def _split_option(token: str, family: Sequence[EngineFlag]) -> tuple[EngineFlag, Path | None, bool] | None:
    """The option of ``family`` that ``token`` (without its ``=value``) spells, and its dotted keys."""
    head, *keys = token.split(".")
    if head.startswith("--"):
        head = "--" + head[2:].replace("_", "-")
    for flag in family:
        if head in flag.names:
            appended = bool(keys) and keys[-1].endswith("+")
            if appended:
                keys[-1] = keys[-1][:-1]
            return flag, tuple(keys) if keys else None, appended
        shortened = len(head) >= _SHORTEST_ABBREVIATION and flag.flag.startswith(head)
        if shortened and head not in flag.not_abbreviated_by:
            raise UsageError(
                f"`{head}` abbreviates `{flag.flag}`, which the lock sets too",
                hint=f"write {flag.flag} out in full",
            )
    return None


def _take_given(
    argv: Sequence[str], family: Sequence[EngineFlag]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[_Given, ...]]:
    """Split a command into what stays, what stands after a bare ``--``, and the options of ``family``."""
    end = argv.index("--") if "--" in argv else len(argv)
    kept: list[str] = []
    given: list[_Given] = []
    tokens = iter(argv[:end])
    for token in tokens:
        head, equals, value = token.partition("=")
        found = _split_option(head, family) if token.startswith("-") else None
        if found is None:
            kept.append(token)
            continue
        if not equals:
            following = next(tokens, None)
            if following is None:
                raise UsageError(f"the option `{token}` needs a value")
            value = following
        flag, keys, appended = found
        given.append(_Given(flag=flag, shown=head, keys=keys, value=value, appended=appended))
    return tuple(kept), tuple(argv[end:]), tuple(given)


def _dotted_value(option: _Given) -> object:
    if option.appended:
        return option.value.split(",")
    if _SUFFIXED_NUMBER.fullmatch(option.value):
        raise UsageError(
            f"`{option.shown} {option.value}` cannot be merged with the lock's settings",
            hint=f"write the number out in full instead of {option.value}",
        )
    try:
        return json.loads(option.value)
    except json.JSONDecodeError:
        return option.value


def _json_leaves(options: Sequence[_Given], flag: EngineFlag) -> Leaves:
    whole = [option for option in options if option.keys is None]
    dotted = [option for option in options if option.keys is not None]
    if len(whole) > 1 or (whole and dotted):
        raise UsageError(
            f"`{flag.flag}` is given more than once, and the engine keeps only one of them",
            hint=f"give all of it in one {flag.flag}",
        )
    if whole:
        try:
            value = json.loads(whole[0].value)
        except json.JSONDecodeError as error:
            raise UsageError(
                f"`{whole[0].shown}` is not JSON, so the lock's settings cannot be merged into it: {error}"
            ) from error
        if not isinstance(value, dict):
            raise UsageError(f"`{whole[0].shown}` is not a JSON object: {whole[0].value}")
        return _flatten(value, flag.root)
    leaves: Leaves = {}
    for option in dotted:
        for path, value in _flatten(_dotted_value(option), flag.root + (option.keys or ())).items():
            earlier = leaves.get(path)
            leaves[path] = earlier + value if isinstance(earlier, list) and isinstance(value, list) else value
    return leaves


def _user_leaves(given: Sequence[_Given], family: Sequence[EngineFlag]) -> tuple[Leaves, dict[Path, str]]:
    """The configuration that the user's options ask for, and which option asked for each value."""
    leaves: Leaves = {}
    asked_by: dict[Path, str] = {}
    for flag in sorted(family, key=lambda flag: not flag.is_json):  # a plain option overrides the JSON object
        options = [option for option in given if option.flag is flag]
        if flag.is_json:
            found = _json_leaves(options, flag)
        elif options:
            if any(option.keys is not None for option in options):
                raise UsageError(f"`{options[0].shown}`: {flag.flag} takes one plain value")
            found = {flag.root: options[-1].value}
            if options[-1].value == flag.neutral and flag.root in leaves:
                continue
        else:
            continue
        leaves |= found
        for path in found:
            below = ".".join(path[len(flag.root) :])
            asked_by[path] = flag.flag if not below else f"{flag.flag} {below}"
    return leaves, asked_by


def _equal(flag: EngineFlag, locked: object, asked: object) -> bool:
    if not flag.is_json:
        locked, asked = plain_text(locked), plain_text(asked)
        if flag.dashes_are_underscores:
            locked, asked = locked.lower().replace("-", "_"), asked.lower().replace("-", "_")
    return type(locked) is type(asked) and locked == asked


def merge_flags(argv: Sequence[str], settings: Iterable[Setting], flags: EngineFlags) -> tuple[str, ...]:
    """``argv`` with the locked settings merged into the options that it already has.

    Options that no setting touches stay where they are, byte for byte. Touched ones are put together at the end
    (before a bare ``--``), one for each root, because the engine itself keeps only the last.

    Raises:
        UsageError: the command asks for another value of a key that the lock fixes, or cannot be merged.
        DataInvalid: no option carries a setting.
    """
    locked = setting_leaves(settings)
    if not locked:
        return tuple(argv)
    # The whole JSON root is touched, so an option for a field beside the locked one is read as well.
    roots = {flags.carrier(path).root[:1] for path in locked}
    family = tuple(flag for flag in flags.flags if flag.root[:1] in roots)
    kept, after, given = _take_given(argv, family)
    asked, asked_by = _user_leaves(given, family)
    merged = dict(asked)
    for path, value in locked.items():
        flag = flags.carrier(path)
        for other, wanted in asked.items():
            shared = min(len(path), len(other))
            if path[:shared] != other[:shared] or (wanted == {} and len(other) <= len(path)):
                continue
            if other != path or not _equal(flag, value, wanted):
                raise UsageError(
                    f"`{asked_by[other]}` asks for {wanted!r}, but the lock fixes `{'.'.join(path)}` to {value!r}",
                    hint="leave that option out, or lock again for what you want to run",
                )
        merged[path] = value
    merged = {path: value for path, value in merged.items() if value != {} or not _has_child(path, merged)}
    return (*kept, *render_leaves(merged, flags), *after)


def unlocked_choices(argv: Sequence[str], settings: Iterable[Setting], flags: EngineFlags) -> tuple[str, ...]:
    """Options of the command that can change which kernel is picked and that no setting fixes, as typed.

    The verdicts of a lock were made without them. Options that cannot be read are named too.
    """
    locked = setting_leaves(settings)
    selecting = tuple(flag for flag in flags.flags if flag.selects_kernels)
    try:
        _kept, _after, given = _take_given(argv, selecting)
        asked, asked_by = _user_leaves(given, selecting)
    except UsageError as error:
        return (error.message,)
    chosen = []
    for path, value in asked.items():
        carrier = flags.carrier(path)
        if path not in locked and value not in ({}, carrier.neutral):
            chosen.append(f"{asked_by[path]} {plain_text(value)}")
    return tuple(chosen)


def _has_child(path: Path, leaves: Mapping[Path, Any]) -> bool:
    return any(len(other) > len(path) and other[: len(path)] == path for other in leaves)


def config_file_of(argv: Sequence[str], flags: EngineFlags) -> str | None:
    """The configuration file that the command names, or None."""
    if flags.config_file_flag is None:
        return None
    for position, token in enumerate(argv):
        if token == flags.config_file_flag and position + 1 < len(argv):
            return argv[position + 1]
        if token.startswith(f"{flags.config_file_flag}="):
            return token.partition("=")[2]
    return None


def _mentioned(text: str, flags: Iterable[EngineFlag]) -> tuple[EngineFlag, ...]:
    """The options that a configuration file names outside comments; searched as text, not parsed."""
    found = []
    for flag in flags:
        name = re.escape(flag.flag.lstrip("-")).replace(r"\-", "[-_]")
        if re.search(rf"(?m)^[^#\n]*\b{name}\b", text):
            found.append(flag)
    return tuple(found)


def check_config_file(text: str, file: str, settings: Iterable[Setting], flags: EngineFlags) -> tuple[str, ...]:
    """Refuse a configuration file that names an option of a root which the lock sets.

    An option on the command line would silently replace the file's whole table, or be overridden by it, and both
    are worse than a refusal. Returned are, as :func:`unlocked_choices` does, options that select kernels and that
    the lock says nothing of.

    Raises:
        UsageError: an option of such a root is mentioned outside a comment.
    """
    roots = {flags.carrier(path).root[:1] for path in setting_leaves(settings)}
    mentioned = _mentioned(text, flags.flags)
    for flag in mentioned:
        if flag.root[:1] in roots:
            raise UsageError(
                f"{file} sets `{flag.flag.lstrip('-')}`, which cannot be merged with the lock's settings",
                hint=f"give it as {flag.flag} on the command line instead",
            )
    return tuple(f"{flag.flag.lstrip('-')} in {file}" for flag in mentioned if flag.selects_kernels)
