"""Settings as text: shell lines, Dockerfile lines, and values filled for one environment.

Placeholders in a variable's value:

``{env}``            the environment's folder
``{env_bin}``        its folder of programs
``{site_packages}``  where its packages are
``{inherited}``      the variable's own earlier value, for lists such as PATH: ``{env_bin}:{inherited}`` puts a
                     folder in front. Without an earlier value the colon beside it goes too, since an empty
                     entry would mean the working directory.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qresolve.errors import DataInvalid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qresolve.setting import Setting, Value

INHERITED = "{inherited}"
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_SPECIAL_TO_DOCKER = re.compile(r"[\\\"$]")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentPaths:
    """Where one environment keeps what placeholders name; absolute paths."""

    environment: str
    programs: str
    site_packages: str

    @classmethod
    def of_venv(cls, environment: str, python: str) -> EnvironmentPaths:
        """The layout of a virtual environment on Linux that need not exist yet; ``python`` is ``X.Y``."""
        return cls(
            environment=environment,
            programs=f"{environment}/bin",
            site_packages=f"{environment}/lib/python{python}/site-packages",
        )


def needs_paths(settings: Iterable[Setting]) -> bool:
    """Whether a value holds a placeholder that only an environment can fill."""
    return any(name != "inherited" for setting in settings for name in _PLACEHOLDER.findall(str(setting.value)))


def fill_placeholders(settings: Iterable[Setting], paths: EnvironmentPaths) -> tuple[Setting, ...]:
    """Settings with every placeholder but ``{inherited}`` filled.

    Raises:
        DataInvalid: an unknown placeholder.
    """
    known = {
        "env": paths.environment,
        "env_bin": paths.programs,
        "site_packages": paths.site_packages,
        "inherited": INHERITED,
    }

    def filled(setting: Setting, value: Value) -> Value:
        if not isinstance(value, str):
            return value

        def put(match: re.Match[str]) -> str:
            if match[1] not in known:
                raise DataInvalid(f"setting `{setting.key}`: unknown placeholder {match[0]}")
            return known[match[1]]

        return _PLACEHOLDER.sub(put, value)

    return tuple(replace(setting, value=filled(setting, setting.value)) for setting in settings)


def variable_text(value: Value) -> str:
    """A variable's value as the engine reads it; true and false are 1 and 0."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def inherit(value: str, earlier: str | None) -> str:
    """``value`` with ``{inherited}`` replaced by the earlier value of the same variable."""
    if INHERITED not in value:
        return value
    if earlier:
        return value.replace(INHERITED, earlier)
    return value.replace(f":{INHERITED}", "").replace(f"{INHERITED}:", "").replace(INHERITED, "")


def _inherited_expression(name: str, value: str) -> tuple[str, str, str]:
    """Text before, the parameter expansion, and text after; the colon is inside the expansion."""
    before, after = value.split(INHERITED, 1)
    if before.endswith(":"):
        return before[:-1], f"${{{name}:+:${name}}}", after
    if after.startswith(":"):
        return before, f"${{{name}:+${name}:}}", after[1:]
    return before, f"${{{name}}}", after


def render_shell(settings: Iterable[Setting]) -> tuple[str, ...]:
    """POSIX shell lines for the variables among ``settings``: ``export X=…`` and ``unset X``."""
    lines = []
    for setting in settings:
        if setting.env is None:
            continue
        if setting.value is None:
            lines.append(f"unset {setting.env}")
            continue
        value = variable_text(setting.value)
        if INHERITED in value:
            before, expression, after = _inherited_expression(setting.env, value)
            quoted = "".join(
                (
                    shlex.quote(before) if before else "",
                    f'"{expression}"',
                    shlex.quote(after) if after else "",
                )
            )
        else:
            quoted = shlex.quote(value)
        lines.append(f"export {setting.env}={quoted}")
    return tuple(lines)


def render_dockerfile(settings: Iterable[Setting]) -> tuple[str, ...]:
    """Dockerfile lines for the variables among ``settings``.

    A Dockerfile can empty a variable but not remove it, so for a variable that must not be set there is a
    comment, not an ``ENV`` line: an empty value means something else to an engine.

    Raises:
        DataInvalid: a value with a line break, which ``ENV`` cannot hold.
    """
    lines = []
    for setting in settings:
        if setting.env is None:
            continue
        if setting.value is None:
            lines.append(
                f"# {setting.env} must not be set, and ENV cannot remove a variable:"
                f" start the engine with `qresolve run` or `env -u {setting.env}`"
            )
            continue
        value = variable_text(setting.value)
        if "\n" in value:
            raise DataInvalid(f"setting `{setting.key}`: a Dockerfile's ENV cannot hold a line break")
        if INHERITED in value:
            before, expression, after = _inherited_expression(setting.env, value)
            text = f"{_docker_text(before)}{expression}{_docker_text(after)}"
        else:
            text = _docker_text(value)
        lines.append(f'ENV {setting.env}="{text}"')
    return tuple(lines)


def _docker_text(text: str) -> str:
    return _SPECIAL_TO_DOCKER.sub(lambda match: f"\\{match[0]}", text)
