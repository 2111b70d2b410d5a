"""Which formats are asked about: those of a lock, or those of the command line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from qresolve.errors import UsageError
from qresolve.verify.evidence import FormatRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qresolve.lock.model import Lock
    from qresolve.request import Ask

_FORMAT = re.compile(r"(?P<format>[a-z0-9-]+)(?:@(?P<scheme>[a-z0-9-]+))?(?::(?P<role>[a-z]+))?")


def split_list(given: Sequence[str] | None) -> tuple[str, ...]:
    """The items of an option that may be repeated and may hold commas."""
    return tuple(item.strip() for text in given or () for item in text.split(",") if item.strip())


def parse_format(text: str) -> tuple[str, str | None, str | None]:
    """Format, scheme and role of ``FORMAT[@SCHEME][:ROLE]``, None where not given.

    Raises:
        UsageError: it is not of that form.
    """
    match = _FORMAT.fullmatch(text)
    if match is None:
        raise UsageError(f"`{text}` is not FORMAT[@SCHEME][:ROLE]", hint="qresolve verify --only nvfp4")
    return match["format"], match["scheme"], match["role"]


def select_locked(lock: Lock, *, only: Sequence[str], archs: Sequence[str]) -> tuple[FormatRow, ...]:
    """The lock's rows, or those of the formats ``only`` and of ``archs``.

    Raises:
        UsageError: the lock has no such format or arch.
    """
    known = tuple(dict.fromkeys(arch for _name, arch in lock.target.gpus))
    for arch in archs:
        if arch not in known:
            raise UsageError(f"the lock is not for {arch}", hint=f"qresolve verify --gpu {','.join(known)}")
    rows = tuple(
        FormatRow(format=row.format, scheme=row.scheme, role=row.role, arch=row.arch, wanted=row.wanted)
        for row in lock.formats
        if not archs or row.arch in archs
    )
    if not only:
        return rows
    kept: list[FormatRow] = []
    for text in only:
        name, scheme, role = parse_format(text)
        fitting = [
            row for row in rows if row.format == name and scheme in (None, row.scheme) and role in (None, row.role)
        ]
        if not fitting:
            have = ",".join(dict.fromkeys(row.format for row in rows))
            raise UsageError(f"`{text}` is not in the lock", hint=f"qresolve verify --only {have}")
        kept += [row for row in fitting if row not in kept]
    return tuple(kept)


def select_given(asks: Sequence[Ask], archs: Sequence[str]) -> tuple[FormatRow, ...]:
    """Rows for asked formats on archs, without a lock.

    Raises:
        UsageError: no arch.
    """
    if not archs:
        raise UsageError(
            "without a lock, verify needs both --gpu and --formats",
            hint="qresolve verify --gpu sm120 --formats nvfp4",
        )
    return tuple(
        FormatRow(format=ask.scheme.format, scheme=ask.scheme.name, role=ask.role, arch=arch, wanted=ask.scheme.wants)
        for arch in archs
        for ask in asks
    )


def check_formats(names: Sequence[str], rows: Sequence[FormatRow]) -> frozenset[str]:
    """The formats of an option, each of which some row has.

    Raises:
        UsageError: none has it.
    """
    known = tuple(dict.fromkeys(row.format for row in rows))
    for name in names:
        if name not in known:
            raise UsageError(
                f"`{name}` is not among the formats that are looked at", hint=f"known here: {','.join(known)}"
            )
    return frozenset(names)
