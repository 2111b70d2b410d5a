"""The one exception tree. Each leaf has an exit code and, where there is one, a hint that can be pasted.

QResolveError
├── UsageError (2)          the command line, a name or a path is wrong
├── NoResolution (3)        no environment at all
├── LowerClass (4)          only a lower class that nobody allowed
├── InstallFailed (5)
├── Refuted (6)             refuted or broken
├── Unproved (7)            could not look, or not known
├── DataInvalid (8)         a bad data file
└── Stale (9)               a lock that no longer matches its request or records

They are caught in ``qresolve.cli`` alone. Source of the codes: docs/exit-codes.md.
"""

from __future__ import annotations

from typing import ClassVar


class QResolveError(Exception):
    """Something the person can be told in one message and one hint."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(QResolveError):
    """The command line, a name or a path is wrong."""

    exit_code = 2


class NoResolution(QResolveError):
    """No environment satisfies the request, whatever class is accepted."""

    exit_code = 3


class LowerClass(QResolveError):
    """An environment exists, but only in a class that nobody allowed."""

    exit_code = 4


class InstallFailed(QResolveError):
    """The installer stopped; the message says what state it left."""

    exit_code = 5


class Refuted(QResolveError):
    """Looked, and it is not so."""

    exit_code = 6


class Unproved(QResolveError):
    """Could not look, or the answer is not known."""

    exit_code = 7


class DataInvalid(QResolveError):
    """A data file is wrong; the message names the file and the dotted path."""

    exit_code = 8

    @classmethod
    def at(cls, file: str, path: str, problem: str, *, hint: str | None = None) -> DataInvalid:
        """Error for ``path`` (dotted, ``route[3].select[0].when``) in ``file``."""
        return cls(f"{file}: {path}: {problem}" if path else f"{file}: {problem}", hint=hint)


class Stale(QResolveError):
    """A lock that no longer matches its request or the records it used."""

    exit_code = 9
