"""Command-line options of an engine that carry its configuration, and merging them into a given command.

Which option carries which configuration root is data: ``constraints/engines/<engine>/settings.toml``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qresolve.data import data_folder
from qresolve.errors import DataInvalid, UsageError
from qresolve.strict import read_toml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from qresolve.setting import Setting
    from qresolve.strict import Table

Path = tuple[str, ...]
Leaves = dict[Path, Any]

_SHORTEST_ABBREVIATION = 5  # "--ker": shorter ones are ambiguous to every engine's own parser
_SUFFIXED_NUMBER = re.compile(r"\d+(\.\d+)?[kKmMgGtT]")
_PYTHON_NAME = re.compile(r"python(\d+(\.\d+)?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFlag:
    """One option: the configuration ``root`` it carries and whether as JSON below it or as a plain value."""

    root: Path
    flag: str
    aliases: tuple[str, ...]
    is_json: bool
    neutral: str | None
    dashes_are_underscores: bool
    not_abbreviated_by: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every spelling of the option."""
        return (self.flag, *self.aliases)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFlags:
    """What is known of one engine's command line. ``commands`` are beginnings of commands that read the flags."""

    engine: str
    flags: tuple[EngineFlag, ...]
    commands: tuple[tuple[str, ...], ...]
    choice_prefixes: tuple[str, ...]
    config_file_flag: str | None

    def carrier(self, path: Path) -> EngineFlag:
        """The most specific option that carries ``path``.

        Raises:
            DataInvalid: none does.
        """
        fitting = [
            flag for flag in self.flags if path == flag.root or (flag.is_json and path[: len(flag.root)] == flag.root)
        ]
        if not fitting:
            raise DataInvalid(f"constraints/engines/{self.engine}/settings.toml: no option carries `{'.'.join(path)}`")
        return max(fitting, key=lambda flag: len(flag.root))


def parse_engine_flags(table: Table) -> EngineFlags:
    """Parse ``settings.toml`` of one engine.

    Raises:
        DataInvalid: a missing or unknown key, or a value of another type.
    """
    flags = []
    for entry in table.tables("flag"):
        flags.append(
            EngineFlag(
                root=tuple(entry.text("root").split(".")),
                flag=entry.text("flag"),
                aliases=entry.texts("aliases", ()),
                is_json=entry.choice("form", ("json", "plain")) == "json",
                neutral=entry.optional_text("neutral"),
                dashes_are_underscores=entry.flag("dashes_are_underscores", default=False),
                not_abbreviated_by=entry.texts("not_abbreviated_by", ()),
            )
        )
        entry.text("source")
        entry.done()
    commands = []
    for entry in table.tables("command"):
        commands.append(entry.texts("argv"))
        entry.text("source")
        entry.done()
    environment = table.table("environment")
    prefixes = environment.texts("choice_prefixes")
    environment.text("source")
    environment.done()
    config_file = table.optional_table("config_file")
    config_file_flag = None
    if config_file is not None:
        config_file_flag = config_file.text("flag")
        config_file.text("source")
        config_file.done()
    parsed = EngineFlags(
        engine=table.text("engine"),
        flags=tuple(flags),
        commands=tuple(commands),
        choice_prefixes=prefixes,
        config_file_flag=config_file_flag,
    )
    table.text("release")
    table.day("checked")
    table.done()
    return parsed


def read_engine_flags(engine: str) -> EngineFlags:
    """Read ``constraints/engines/<engine>/settings.toml``.

    Raises:
        DataInvalid: there is none, or it is wrong.
    """
    name = f"engines/{engine}/settings.toml"
    return parse_engine_flags(read_toml(data_folder("constraints") / "engines" / engine / "settings.toml", name=name))


def _path(setting: Setting) -> Path:
    return tuple((setting.path or "").split("."))


def _setting_leaves(settings: Iterable[Setting]) -> Leaves:
    return {_path(setting): setting.value for setting in settings if setting.path is not None}


def _nest(leaves: Mapping[Path, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in leaves.items():
        place = nested
        for key in path[:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = value
    return nested


def _flatten(value: object, root: Path) -> Leaves:
    if not isinstance(value, dict) or not value:
        return {root: value}
    leaves: Leaves = {}
    for key, inner in value.items():
        leaves |= _flatten(inner, (*root, key))
    return leaves


def _plain_text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _render(leaves: Mapping[Path, Any], flags: EngineFlags) -> tuple[str, ...]:
    """Options for ``leaves``, one for each carrier, in the order of the data file."""
    argv: list[str] = []
    carried = {path: flags.carrier(path) for path in leaves}
    for flag in flags.flags:
        below = {path[len(flag.root) :]: leaves[path] for path, carrier in carried.items() if carrier is flag}
        if not below:
            continue
        if not flag.is_json:
            if below[()] is not None:  # null in the user's JSON is the default
                argv += [flag.flag, _plain_text(below[()])]
        elif () in below:
            if below != {(): {}}:
                raise DataInvalid(f"`{'.'.join(flag.root)}` is a table of settings, not one value")
            argv += [flag.flag, "{}"]
        else:
            argv += [flag.flag, json.dumps(_nest(below), separators=(",", ":"), sort_keys=True)]
    return tuple(argv)


def render_flags(settings: Iterable[Setting], flags: EngineFlags) -> tuple[str, ...]:
    """The engine's options for the settings that change its configuration; variables are left out.

    Raises:
        DataInvalid: no option carries a setting.
    """
    return _render(_setting_leaves(settings), flags)


def takes_flags(argv: Sequence[str], flags: EngineFlags) -> bool:
    """Whether the command ``argv`` is one that reads the engine's options."""
    if not argv:
        return False
    program = argv[0].rsplit("/", 1)[-1]
    if _PYTHON_NAME.fullmatch(program):
        program = "{python}"
    seen = (program, *argv[1:])
    return any(seen[: len(command)] == command for command in flags.commands)


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
        locked, asked = _plain_text(locked), _plain_text(asked)
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
    locked = _setting_leaves(settings)
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
    return (*kept, *_render(merged, flags), *after)


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


def check_config_file(text: str, file: str, settings: Iterable[Setting], flags: EngineFlags) -> None:
    """Refuse a configuration file that names an option which the lock sets.

    It is searched as text, not parsed: an option on the command line would silently replace the file's whole
    table, or be overridden by it, and both are worse than a refusal.

    Raises:
        UsageError: an option of the same root is mentioned outside a comment.
    """
    locked = _setting_leaves(settings)
    roots = {flags.carrier(path).root[:1] for path in locked}
    for flag in flags.flags:
        name = re.escape(flag.flag.lstrip("-")).replace(r"\-", "[-_]")
        mentioned = re.search(rf"(?m)^[^#\n]*\b{name}\b", text)
        if flag.root[:1] in roots and mentioned:
            raise UsageError(
                f"{file} sets `{flag.flag.lstrip('-')}`, which cannot be merged with the lock's settings",
                hint=f"give it as {flag.flag} on the command line instead",
            )
