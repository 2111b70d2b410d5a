"""Which kernels serve which format: ``constraints/kernel_families.toml`` as records.

A family is recognised by names alone: of translation units where the library keeps them, else of kernels. Names lie
about archs (``sm120a`` over an sm_120f image) and are therefore never read for one.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING

from qresolve.data import data_folder
from qresolve.knowledge.load import digest_of
from qresolve.strict import read_toml

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable
    from datetime import date
    from pathlib import Path

    from qresolve.strict import Table

_FILE = "kernel_families.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Kernels that belong together.

    ``libraries`` are shell patterns for the file's path, ``units`` patterns for whole names of translation units,
    ``kernels`` patterns that stand somewhere in a mangled kernel name. ``serves`` are keys as ladders write them
    (``nvfp4@w4a4:dense``); empty: known, and for none of them.
    """

    id: str
    libraries: tuple[str, ...]
    units: tuple[re.Pattern[str], ...]
    kernels: tuple[re.Pattern[str], ...]
    serves: tuple[str, ...]
    note: str
    where: str
    checked: date

    @property
    def digest(self) -> str:
        """The digest of the record."""
        patterns = [[pattern.pattern for pattern in one] for one in (self.units, self.kernels)]
        return digest_of([self.id, self.libraries, patterns, self.serves])

    def holds(self, *, path: str, unit: str | None, kernels: Iterable[str] = ()) -> bool:
        """Whether a unit of the library at ``path`` is one of this family."""
        if not any(fnmatchcase(f"/{path}", f"*/{pattern}") for pattern in self.libraries):
            return False
        if unit is not None:
            return any(pattern.fullmatch(unit) for pattern in self.units)
        names = tuple(kernels)
        return any(pattern.search(name) for pattern in self.kernels for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Families:
    """All families, in the order of the data."""

    known: tuple[Family, ...]

    def of(self, *, path: str, unit: str | None, kernels: Iterable[str] = ()) -> tuple[Family, ...]:
        """Every family that a unit belongs to; one unit may serve several formats."""
        names = tuple(kernels)
        return tuple(one for one in self.known if one.holds(path=path, unit=unit, kernels=names))

    def serving(self, key: str) -> tuple[Family, ...]:
        """The families that serve ``nvfp4@w4a4:dense``."""
        return tuple(one for one in self.known if key in one.serves)


def parse_families(table: Table) -> Families:
    """Check the records of ``kernel_families.toml``.

    Raises:
        DataInvalid: a key is missing or unknown, a pattern is none, an id stands twice, or nothing recognises a family.
    """
    table.check_schema(1)
    checked = table.day("checked")
    families: dict[str, Family] = {}
    for row in table.tables("family"):
        family = Family(
            id=row.text("id"),
            libraries=row.texts("libraries"),
            units=row.patterns("units", ()),
            kernels=row.patterns("kernels", ()),
            serves=row.texts("serves"),
            note=row.text("note", ""),
            where=row.text("where"),
            checked=checked,
        )
        if family.id in families:
            raise row.fail("id", "stands twice")
        if not family.units and not family.kernels:
            raise row.fail("units", "nothing recognises this family: it has neither units nor kernels")
        row.done()
        families[family.id] = family
    table.done()
    return Families(known=tuple(families.values()))


@cache
def read_families(folder: Path | None = None) -> Families:
    """Read ``kernel_families.toml`` of ``folder``, by default of the shipped constraints.

    Raises:
        DataInvalid: the file is missing or wrong.
    """
    where = folder if folder is not None else data_folder("constraints")
    return parse_families(read_toml(where / _FILE, name=f"constraints/{_FILE}"))
