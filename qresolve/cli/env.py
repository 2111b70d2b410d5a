"""``qresolve env``: the settings of a lock as shell lines, engine options, Dockerfile lines or JSON."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from qresolve.setting import Setting

FORMATS = ("shell", "flags", "dockerfile", "json")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = subparsers.add_parser("env", help="print the settings that a lock needs at run time")
    parser.add_argument("--lock", default="pylock.toml", metavar="FILE", help="the lock (default: pylock.toml)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--python", metavar="PYTHON", help="interpreter of the environment (default: .venv, or the active one)"
    )
    where.add_argument(
        "--env", metavar="DIR", help="folder that the environment will have elsewhere, for example in an image"
    )
    parser.add_argument("--format", choices=FORMATS, default="shell", help="default: shell")
    parser.add_argument("--json", action="store_true", help="the same as --format json")
    parser.set_defaults(run=run)


def filled_settings(
    settings: tuple[Setting, ...], *, python: str | None, elsewhere: str | None = None, version: str = ""
) -> tuple[Setting, ...]:
    """Settings with placeholders filled, asking an interpreter only where a value needs it.

    Raises:
        UsageError: a value needs an environment and there is none.
    """
    from qresolve.install.interpreter import find_interpreter, read_interpreter  # noqa: PLC0415
    from qresolve.settings_text import EnvironmentPaths, fill_placeholders, needs_paths  # noqa: PLC0415

    if elsewhere is not None:
        paths = EnvironmentPaths.of_venv(elsewhere.rstrip("/"), version)
    elif needs_paths(settings):
        paths = read_interpreter(find_interpreter(python)).paths
    else:
        return settings
    return fill_placeholders(settings, paths)


def run(arguments: argparse.Namespace) -> int:
    """Print the settings on stdout."""
    from qresolve.engine_flags import read_engine_flags, render_flags  # noqa: PLC0415
    from qresolve.lock.file import read_lock  # noqa: PLC0415
    from qresolve.settings_text import render_dockerfile, render_shell  # noqa: PLC0415

    lock = read_lock(Path(arguments.lock))
    settings = filled_settings(
        lock.settings,
        python=arguments.python,
        elsewhere=arguments.env,
        version=".".join(lock.target.python.split(".")[:2]),
    )
    configures = any(setting.path is not None for setting in settings)
    known = read_engine_flags(lock.engine) if configures else None
    flags = render_flags(settings, known) if known is not None else ()
    shown = "json" if arguments.json else arguments.format
    if shown == "json":
        answer = {
            "schema": "qresolve.env/1",
            "engine": {"name": lock.engine, "version": lock.engine_version},
            "settings": [setting.to_mapping() for setting in settings],
            "flags": list(flags),
        }
        print(json.dumps(answer, indent=2))
        return 0
    if shown == "flags":
        print(shlex.join(flags))
        return 0
    lines = render_shell(settings) if shown == "shell" else render_dockerfile(settings)
    for line in lines:
        print(line)
    if flags:
        print(f"# options for {lock.engine}: {shlex.join(flags)}")
    for call in known.called(settings) if known is not None else ():
        print(f"# {call.root[-1]} = {call.value}: {call.say}")
    return 0
