"""A setting: one typed change to the engine's configuration or to its environment.

``{"path": "kernel_config.linear_backend_per_quant.mxfp4", "value": "humming"}`` changes the engine's
configuration, ``{"env": "CUDA_HOME", "value": "{site_packages}/nvidia/cu13"}`` its environment. An ``env``
setting whose value is None removes the variable. Placeholders are filled for one environment at the edge.
Flags, shell lines and Dockerfile lines are made from settings in :mod:`qresolve.settings_text`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qresolve.errors import DataInvalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Value = str | int | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Exactly one of ``path`` (dotted, in the engine's configuration) and ``env`` (a variable's name)."""

    path: str | None = None
    env: str | None = None
    value: Value = None

    def __post_init__(self) -> None:
        if (self.path is None) == (self.env is None):
            raise DataInvalid("a setting has exactly one of `path` and `env`")
        if self.path is not None and self.value is None:
            raise DataInvalid(f"the setting `{self.path}` has no value")

    @property
    def key(self) -> str:
        """What the setting changes: ``config.<path>`` or ``env.<NAME>``, the name of the fact it fixes."""
        return f"config.{self.path}" if self.path is not None else f"env.{self.env}"

    @property
    def sort_key(self) -> tuple[str, str]:
        """Order of settings in every output."""
        return (self.key, str(self.value))

    def to_mapping(self) -> dict[str, Any]:
        """The form that locks and JSON hold. TOML has no null, so a removed variable is ``unset = true``."""
        if self.path is not None:
            return {"path": self.path, "value": self.value}
        if self.value is None:
            return {"env": self.env, "unset": True}
        return {"env": self.env, "value": self.value}

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Setting:
        """The reverse of :meth:`to_mapping`.

        Raises:
            DataInvalid: unknown keys or a value of another type.

        """
        if set(values) not in ({"path", "value"}, {"env", "value"}, {"env", "unset"}):
            raise DataInvalid(f"not a setting: {dict(values)!r}")
        path, env, value = values.get("path"), values.get("env"), values.get("value")
        # A variable is only removed where that is said: a value that went missing must not unset it.
        if values.get("unset", True) is not True or not isinstance(path if env is None else env, str):
            raise DataInvalid(f"not a setting: {dict(values)!r}")
        if "value" in values and not isinstance(value, str | int | bool):
            raise DataInvalid(f"a setting's value is text, a number or true/false, not {value!r}")
        return cls(path=path, env=env, value=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingConflict:
    """Two values for one key; ``wanted_by`` names who asked for which."""

    key: str
    values: tuple[Value, ...]


def merge_settings(
    groups: Iterable[Iterable[Setting]],
) -> tuple[tuple[Setting, ...], tuple[SettingConflict, ...]]:
    """All settings of all groups, sorted, each once; and the keys for which two values were asked."""
    by_key: dict[str, dict[tuple[type, Value], Setting]] = {}
    for group in groups:
        for setting in group:
            by_key.setdefault(setting.key, {})[type(setting.value), setting.value] = setting  # True is not 1
    merged = [next(iter(found.values())) for found in by_key.values() if len(found) == 1]
    conflicts = [
        SettingConflict(key=key, values=tuple(sorted((value for _, value in found), key=str)))
        for key, found in sorted(by_key.items())
        if len(found) > 1
    ]
    return tuple(sorted(merged, key=lambda setting: setting.sort_key)), tuple(conflicts)
