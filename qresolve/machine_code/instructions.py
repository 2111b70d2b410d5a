"""What tensor-core instructions multiply: ``constraints/instructions.toml`` as records."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from qresolve.data import data_folder
from qresolve.knowledge.load import digest_of
from qresolve.strict import read_toml

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from qresolve.facts import Value
    from qresolve.strict import Table

_FILE = "instructions.toml"
_OPERANDS = ("weights", "activations", "weight-scale")


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A kind of tensor-core multiplication.

    ``computes``: each is a set of conditions on a scheme's facts, all of which hold (fact to allowed values).
    ``instructions``: patterns for whole names.
    """

    name: str
    meaning: str
    computes: tuple[tuple[tuple[str, tuple[str, ...]], ...], ...]
    instructions: tuple[re.Pattern[str], ...]

    @property
    def digest(self) -> str:
        """The digest of the record."""
        return digest_of([self.name, self.computes, [pattern.pattern for pattern in self.instructions]])

    def has(self, instruction: str) -> bool:
        """Whether an instruction of this name multiplies so."""
        return any(pattern.fullmatch(instruction) for pattern in self.instructions)

    def among(self, instructions: Iterable[str]) -> tuple[str, ...]:
        """Those that do, in their order."""
        return tuple(name for name in instructions if self.has(name))

    def serves(self, facts: Mapping[str, Value]) -> bool:
        """Whether it is native to a scheme with these ``scheme.*`` facts."""
        return any(all(facts.get(f"scheme.{key}") in values for key, values in one) for one in self.computes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """All products."""

    products: tuple[Product, ...]

    def product_of(self, facts: Mapping[str, Value]) -> Product | None:
        """The product that is native to a scheme, None where no record says which."""
        return next((one for one in self.products if one.serves(facts)), None)

    def named(self, name: str) -> Product | None:
        """The product of that name."""
        return next((one for one in self.products if one.name == name), None)


def parse_instructions(table: Table) -> Instructions:
    """Check the records of ``instructions.toml``.

    Raises:
        DataInvalid: a key is missing or unknown, a pattern is none, or a name stands twice.
    """
    table.check_schema(1)
    products: dict[str, Product] = {}
    for row in table.tables("product"):
        computes = []
        for one in row.tables("computes"):
            computes.append(tuple((key, one.texts(key)) for key in _OPERANDS if key in one))
            one.done()
        product = Product(
            name=row.text("name"),
            meaning=row.text("meaning"),
            computes=tuple(computes),
            instructions=row.patterns("instructions"),
        )
        if product.name in products:
            raise row.fail("name", "stands twice")
        row.done()
        products[product.name] = product
    table.done()
    return Instructions(products=tuple(products.values()))


@cache
def read_instructions(folder: Path | None = None) -> Instructions:
    """Read ``instructions.toml`` of ``folder``, by default of the shipped constraints.

    Raises:
        DataInvalid: the file is missing or wrong.
    """
    where = folder if folder is not None else data_folder("constraints")
    return parse_instructions(read_toml(where / _FILE, name=f"constraints/{_FILE}"))
