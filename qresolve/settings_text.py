"""Settings as text: shell lines, Dockerfile lines, and values filled for one environment.

Placeholders in a variable's value:

``{env}``            the environment's folder
``{env_bin}``        its folder of programs
``{site_packages}``  where its packages are
``{PATH}``           in the variable PATH (and so on, each in its own): the earlier value, so ``{env_bin}:{PATH}``
                     puts a folder in front. Without an earlier value the colon beside it goes too, since an
                     empty entry would mean the working directory.
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

_PLACEHOLDER = re.compile(r"\{([A-Za-z_]+)\}")
_SPECIAL_TO_DOCKER = re.compile(r"[\\\"$]")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentPaths:
    """Where one environment keeps what placeholders name; absolute paths."""

    environment: str
    programs: str
    site_packages: str

    @property
    def placeholders(self) -> dict[str, str]:
        """The names of placeholders with what they stand for."""
        return {"env": self.environment, "env_bin": self.programs, "site_packages": self.site_packages}

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
    return any(name != setting.env for setting in settings for name in _PLACEHOLDER.findall(str(setting.value)))


def fill_placeholders(settings: Iterable[Setting], paths: EnvironmentPaths) -> tuple[Setting, ...]:
    """Settings with every placeholder filled but that of a variable's own earlier value.

    Raises:
        DataInvalid: an unknown placeholder.
    """
    known = paths.placeholders

    def filled(setting: Setting, value: Value) -> Value:
        if not isinstance(value, str):
            return value

        def put(match: re.Match[str]) -> str:
            if match[1] == setting.env:
                return match[0]
            if match[1] not in known:
                raise DataInvalid(f"setting `{setting.key}`: unknown placeholder {match[0]}")
            return known[match[1]]

        return _PLACEHOLDER.sub(put, value)

    return tuple(replace(setting, value=filled(setting, setting.value)) for setting in settings)


def variable_text(value: Value) -> str:
    """A variable's value as the engine reads it; true and false are 1 and 0."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def inherits(name: str, value: str) -> bool:
    """Whether ``value`` holds the earlier value of the variable ``name``."""
    return f"{{{name}}}" in value


def inherit(name: str, value: str, earlier: str | None) -> str:
    """``value`` with the placeholder of the variable's own earlier value replaced by that value."""
    own = f"{{{name}}}"
    if earlier:
        return value.replace(own, earlier)
    return value.replace(f":{own}", "").replace(f"{own}:", "").replace(own, "")


def _inherited_expression(name: str, value: str) -> tuple[str, str, str]:
    """Text before, the parameter expansion, and text after; the colon is inside the expansion."""
    before, after = value.split(f"{{{name}}}", 1)
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
        if inherits(setting.env, value):
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
        if inherits(setting.env, value):
            before, expression, after = _inherited_expression(setting.env, value)
            text = f"{_docker_text(before)}{expression}{_docker_text(after)}"
        else:
            text = _docker_text(value)
        lines.append(f'ENV {setting.env}="{text}"')
    return tuple(lines)


def _docker_text(text: str) -> str:
    return _SPECIAL_TO_DOCKER.sub(lambda match: f"\\{match[0]}", text)
