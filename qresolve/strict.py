"""Reading tables of data files: every key is asked for by name and type, and unknown keys are refused.

A :class:`Table` knows its file and its dotted path, so each error names both.
"""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING, Any, TypeVar

from qresolve.errors import DataInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_T = TypeVar("_T")


class Table:
    """One TOML table being read; call :meth:`done` when every expected key was asked for."""

    def __init__(self, values: Mapping[str, Any], *, file: str, path: str = "") -> None:
        self._values = values
        self._asked: set[str] = set()
        self.file = file
        self.path = path

    def at(self, key: str) -> str:
        """The dotted path of ``key`` in this table."""
        return f"{self.path}.{key}" if self.path else key

    def fail(self, key: str, problem: str) -> DataInvalid:
        """The error to raise about ``key``."""
        return DataInvalid.at(self.file, self.at(key) if key else self.path, problem)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def keys(self) -> tuple[str, ...]:
        """All keys, asked for or not, in file order."""
        return tuple(self._values)

    @property
    def values(self) -> Mapping[str, Any]:
        """The table as it was read, for a digest or for reading it again as another table; asks for no key."""
        return self._values

    def raw(self, key: str) -> Any:
        """The untyped value of ``key``, or None."""
        self._asked.add(key)
        return self._values.get(key)

    def _typed(self, key: str, kind: type[_T], default: _T | None) -> _T:
        self._asked.add(key)
        if key not in self._values:
            if default is None:
                raise self.fail(key, "is missing")
            return default
        value = self._values[key]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.fail(key, f"must be {kind.__name__}, not {type(value).__name__}: {value!r}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A string; an empty one is refused where no default is given."""
        value = self._typed(key, str, default)
        if not value and default is None:
            raise self.fail(key, "must not be empty")
        return value

    def optional_text(self, key: str) -> str | None:
        """A string, or None where the key is absent."""
        self._asked.add(key)
        return self.text(key) if key in self._values else None

    def whole(self, key: str, default: int | None = None) -> int:
        """An integer."""
        return self._typed(key, int, default)

    def check_schema(self, version: int) -> None:
        """Refuse a document of another form than ``version``.

        Raises:
            DataInvalid: it is one, or does not say.
        """
        if self.whole("schema") != version:
            raise self.fail("schema", f"must be {version}")

    def flag(self, key: str, *, default: bool | None = None) -> bool:
        """A boolean."""
        self._asked.add(key)
        if key not in self._values:
            if default is None:
                raise self.fail(key, "is missing")
            return default
        value = self._values[key]
        if not isinstance(value, bool):
            raise self.fail(key, f"must be true or false, not {value!r}")
        return value

    def day(self, key: str) -> date:
        """A TOML local date."""
        return self._typed(key, date, None)

    def choice(self, key: str, allowed: tuple[str, ...], default: str | None = None) -> str:
        """One of ``allowed``."""
        value = self.text(key, default)
        if value not in allowed:
            raise self.fail(key, f"must be one of {', '.join(allowed)}, not {value!r}")
        return value

    def texts(self, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """A list of strings."""
        value = self._typed(key, list, None if default is None else list(default))
        for position, item in enumerate(value):
            if not isinstance(item, str):
                raise self.fail(f"{key}[{position}]", f"must be a string, not {item!r}")
        return tuple(value)

    def wholes(self, key: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """A list of integers."""
        value = self._typed(key, list, None if default is None else list(default))
        for position, item in enumerate(value):
            if not isinstance(item, int) or isinstance(item, bool):
                raise self.fail(f"{key}[{position}]", f"must be an integer, not {item!r}")
        return tuple(value)

    def table(self, key: str) -> Table:
        """A sub-table that must be there."""
        return Table(self._typed(key, dict, None), file=self.file, path=self.at(key))

    def optional_table(self, key: str) -> Table | None:
        """A sub-table, or None where the key is absent."""
        self._asked.add(key)
        return self.table(key) if key in self._values else None

    def pattern(self, key: str) -> re.Pattern[str]:
        """A regular expression."""
        text = self.text(key)
        try:
            return re.compile(text)
        except re.error as error:
            raise self.fail(key, f"no regular expression: {error}") from error

    def patterns(self, key: str, default: tuple[str, ...] | None = None) -> tuple[re.Pattern[str], ...]:
        """An array of regular expressions."""
        found = []
        for position, text in enumerate(self.texts(key) if default is None else self.texts(key, default)):
            try:
                found.append(re.compile(text))
            except re.error as error:
                raise self.fail(f"{key}[{position}]", f"no regular expression: {error}") from error
        return tuple(found)

    def is_null(self, key: str) -> bool:
        """Whether the key is there and JSON's ``null``."""
        self._asked.add(key)
        return key in self._values and self._values[key] is None

    def tables(self, key: str) -> Iterator[Table]:
        """An array of tables; none where the key is absent."""
        self._asked.add(key)
        value = self._values.get(key, [])
        if not isinstance(value, list):
            raise self.fail(key, "must be an array of tables")
        for position, item in enumerate(value):
            if not isinstance(item, dict):
                raise self.fail(f"{key}[{position}]", "must be a table")
            yield Table(item, file=self.file, path=self.at(f"{key}[{position}]"))

    def done(self) -> None:
        """Refuse what was not asked for.

        Raises:
            DataInvalid: a key that nothing reads.

        """
        for key in self._values:
            if key not in self._asked:
                known = ", ".join(sorted(self._asked))
                raise self.fail(key, f"unknown key (known here: {known})")


def read_toml(path: Path, *, name: str | None = None) -> Table:
    """Read a TOML file as a :class:`Table`; ``name`` is how errors call it.

    Raises:
        DataInvalid: it cannot be read or is not TOML.

    """
    import tomli  # noqa: PLC0415 - keeps `--version` fast

    shown = name or path.name
    try:
        return Table(tomli.loads(path.read_text(encoding="utf-8")), file=shown)
    except (OSError, UnicodeDecodeError) as error:
        raise DataInvalid(f"{shown}: cannot be read: {error}") from error
    except tomli.TOMLDecodeError as error:
        raise DataInvalid(f"{shown}: not valid TOML: {error}") from error
