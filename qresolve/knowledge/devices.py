"""One device of each architecture, for compilers that read numbers of a card: ``constraints/devices.toml``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from qresolve.data import data_folder
from qresolve.strict import read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qresolve.strict import Table

_FILE = "devices.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A product of an architecture: SMs, bytes of shared memory a block may have, threads of an SM, bytes of L2."""

    sm: int
    product: str
    multiprocessors: int
    shared_memory: int
    threads: int
    l2: int


def parse_devices(table: Table) -> Mapping[int, Device]:
    """Check the records of ``devices.toml``; by sm.

    Raises:
        DataInvalid: a key is missing or unknown, or an sm stands twice.
    """
    table.check_schema(1)
    table.day("checked")
    table.text("source")
    found: dict[int, Device] = {}
    for row in table.tables("device"):
        one = Device(
            sm=row.whole("sm"),
            product=row.text("product"),
            multiprocessors=row.whole("multiprocessors"),
            shared_memory=row.whole("shared_memory"),
            threads=row.whole("threads"),
            l2=row.whole("l2"),
        )
        if one.sm in found:
            raise row.fail("sm", "stands twice")
        row.done()
        found[one.sm] = one
    table.done()
    return found


@cache
def read_devices() -> Mapping[int, Device]:
    """The devices that are shipped.

    Raises:
        DataInvalid: the file is missing or wrong.
    """
    return parse_devices(read_toml(data_folder("constraints") / _FILE, name=f"constraints/{_FILE}"))
