"""Which compact probe multiplies as a scheme does: ``constraints/probes.toml`` as records."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from qresolve.data import data_folder
from qresolve.strict import read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qresolve.strict import Table

_FILE = "probes.toml"


def parse_probes(table: Table) -> Mapping[str, str]:
    """Check the records of ``probes.toml``; the probe's name by scheme key (``nvfp4@w4a4:dense``).

    Raises:
        DataInvalid: a key is missing or unknown, or a scheme has two probes.
    """
    table.check_schema(1)
    table.day("checked")
    found: dict[str, str] = {}
    for row in table.tables("probe"):
        name = row.text("name")
        for key in row.texts("serves"):
            if key in found:
                raise row.fail("serves", f"`{key}` has the probe {found[key]} already")
            found[key] = name
        row.done()
    table.done()
    return found


@cache
def read_probes() -> Mapping[str, str]:
    """The probes that are shipped, by scheme key.

    Raises:
        DataInvalid: the file is missing or wrong.
    """
    return parse_probes(read_toml(data_folder("constraints") / _FILE, name=f"constraints/{_FILE}"))
