"""Operations that are launched on a card, and the kernels that must run: ``constraints/operations.toml`` as records."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from qresolve.data import data_folder
from qresolve.strict import read_toml

if TYPE_CHECKING:
    import re

    from qresolve.strict import Table

_FILE = "operations.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of an engine (``name`` is then the class that it stands for) or of a ``library``.

    ``file`` is the script that knows how it is called; ``serves`` are scheme keys; ``kernel`` is searched in the names
    of the kernels that ran.
    """

    name: str
    engine: str | None
    library: str | None
    file: str
    serves: tuple[str, ...]
    kernel: re.Pattern[str]
    where: str


def parse_operations(table: Table) -> tuple[Operation, ...]:
    """Check the records of ``operations.toml``.

    Raises:
        DataInvalid: a key is missing or unknown, both or neither of engine and library, or a name stands twice.
    """
    table.check_schema(1)
    table.day("checked")
    found: dict[tuple[str | None, str | None, str], Operation] = {}
    for row in table.tables("operation"):
        one = Operation(
            name=row.text("name"),
            engine=row.optional_text("engine"),
            library=row.optional_text("library"),
            file=row.text("file"),
            serves=row.texts("serves"),
            kernel=row.pattern("kernel"),
            where=row.text("where"),
        )
        if (one.engine is None) == (one.library is None):
            raise row.fail("engine", "an operation has exactly one of `engine` and `library`")
        if (one.engine, one.library, one.name) in found:
            raise row.fail("name", "stands twice")
        row.done()
        found[one.engine, one.library, one.name] = one
    table.done()
    return tuple(found.values())


@cache
def read_operations() -> tuple[Operation, ...]:
    """The operations that are shipped.

    Raises:
        DataInvalid: the file is missing or wrong.
    """
    return parse_operations(read_toml(data_folder("constraints") / _FILE, name=f"constraints/{_FILE}"))
