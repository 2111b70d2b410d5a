"""Command-line options of an engine that carry its configuration.

Which option carries which configuration root is data: ``constraints/engines/<engine>/settings.toml``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qresolve.data import data_folder
from qresolve.errors import DataInvalid
from qresolve.strict import read_toml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from qresolve.setting import Setting
    from qresolve.strict import Table

Path = tuple[str, ...]
Leaves = dict[Path, Any]


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
    selects_kernels: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Every spelling of the option."""
        return (self.flag, *self.aliases)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCall:
    """A value of the configuration that no option carries: ``say`` tells what the program itself must do.

    ``argv`` begins the command that does it; empty where it is a call in the user's own program.
    """

    root: Path
    value: str
    say: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFlags:
    """What is known of one engine's command line. ``commands`` are beginnings of commands that read the flags."""

    engine: str
    flags: tuple[EngineFlag, ...]
    commands: tuple[tuple[str, ...], ...]
    choice_prefixes: tuple[str, ...]
    config_file_flag: str | None
    calls: tuple[EngineCall, ...] = ()

    def carried(self, settings: Iterable[Setting]) -> tuple[Setting, ...]:
        """The settings without those that only the program itself can fulfil."""
        called = {call.root for call in self.calls}
        return tuple(setting for setting in settings if setting.path is None or _path(setting) not in called)

    def called(self, settings: Iterable[Setting]) -> tuple[EngineCall, ...]:
        """What the program itself must do for these settings.

        Raises:
            DataInvalid: a value of such a root that no record explains.
        """
        found = []
        roots = {call.root for call in self.calls}
        for setting in settings:
            if setting.path is None or _path(setting) not in roots:
                continue
            call = next(
                (item for item in self.calls if (item.root, item.value) == (_path(setting), setting.value)), None
            )
            if call is None:
                raise DataInvalid(
                    f"constraints/engines/{self.engine}/settings.toml: no call makes `{setting.path}` {setting.value!r}"
                )
            found.append(call)
        return tuple(found)

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
                selects_kernels=entry.flag("selects_kernels", default=False),
            )
        )
        entry.text("source")
        entry.done()
    commands = []
    for entry in table.tables("command"):
        commands.append(entry.texts("argv"))
        entry.text("source")
        entry.done()
    calls = []
    for entry in table.tables("call"):
        calls.append(
            EngineCall(
                root=tuple(entry.text("root").split(".")),
                value=entry.text("value"),
                say=entry.text("say"),
                argv=entry.texts("argv", ()),
            )
        )
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
        calls=tuple(calls),
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


def setting_leaves(settings: Iterable[Setting]) -> Leaves:
    """The settings that change the configuration, by path."""
    return {_path(setting): setting.value for setting in settings if setting.path is not None}


def _nest(leaves: Mapping[Path, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in leaves.items():
        place = nested
        for key in path[:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = value
    return nested


def plain_text(value: object) -> str:
    """A value as an option without JSON takes it."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def render_leaves(leaves: Mapping[Path, Any], flags: EngineFlags) -> tuple[str, ...]:
    """Options for ``leaves``, one for each carrier, in the order of the data file."""
    argv: list[str] = []
    carried = {path: flags.carrier(path) for path in leaves}
    for flag in flags.flags:
        below = {path[len(flag.root) :]: leaves[path] for path, carrier in carried.items() if carrier is flag}
        if not below:
            continue
        if not flag.is_json:
            if below[()] is not None:  # null in the user's JSON is the default
                argv += [flag.flag, plain_text(below[()])]
        elif () in below:
            if below != {(): {}}:
                raise DataInvalid(f"`{'.'.join(flag.root)}` is a table of settings, not one value")
            argv += [flag.flag, "{}"]
        else:
            argv += [flag.flag, json.dumps(_nest(below), separators=(",", ":"), sort_keys=True)]
    return tuple(argv)


def render_flags(settings: Iterable[Setting], flags: EngineFlags) -> tuple[str, ...]:
    """The engine's options for the settings that change its configuration; variables and calls are left out.

    Raises:
        DataInvalid: no option carries a setting.
    """
    return render_leaves(setting_leaves(flags.carried(settings)), flags)
