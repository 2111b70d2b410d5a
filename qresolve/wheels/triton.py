"""What Triton releases were seen to compile for each arch: ``constraints/measured/triton.json`` as records.

The request beside it (``triton.toml``) says what is compiled and which instructions count as native; the file is
written by :mod:`qresolve.wheels.measure_triton`. A release, arch or product that has no row was not measured.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from qresolve.data import data_folder
from qresolve.errors import DataInvalid
from qresolve.strict import Table, read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = "qresolve.triton_measured/1"

Result = Literal["native", "decomposed", "mixed", "none", "crashed", "timed out"]
RESULTS: tuple[Result, ...] = ("native", "decomposed", "mixed", "none", "crashed", "timed out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A product that is compiled: which kernel of the script, and the tile ``(rows, columns, K)``.

    ``native`` are regular expressions over the full names of the tensor-core instructions that do it at the operands'
    own precision.
    """

    name: str
    kernel: str
    tile: tuple[int, ...]
    native: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonRequest:
    """``triton.toml``; ``seconds`` is processor time a product."""

    python: str
    beside: tuple[str, ...]
    disassembler: str
    seconds: int
    versions: tuple[str, ...]
    archs: tuple[int, ...]
    products: tuple[Product, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembler:
    """A ptxas that a Triton release brings: its CUDA release, the newest GPU it knows, the archs it is used for."""

    file: str
    release: str
    newest: str
    archs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonRow:
    """What one product came to on one arch.

    ``native``: every tensor-core instruction does it at the operands' precision; ``decomposed``: none does, the
    operands are converted first (``FFMA``: no tensor core at all); ``mixed``: some do; ``none``: the compiler refuses.
    ``crashed`` and ``timed out`` say nothing about what a longer wait or another tile would give.
    """

    arch: int
    product: str
    result: Result
    opcodes: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonRelease:
    """All that was measured of one release."""

    version: str
    assemblers: tuple[Assembler, ...]
    rows: tuple[TritonRow, ...]

    def row(self, arch: int, product: str) -> TritonRow | None:
        """The row of an arch and product; None where it was not measured."""
        return next((row for row in self.rows if row.arch == arch and row.product == product), None)

    @property
    def digest(self) -> str:
        """The digest of what was measured of this release."""
        return f"sha256:{hashlib.sha256(_line(_release_values(self)).encode()).hexdigest()}"


def parse_request(table: Table) -> TritonRequest:
    """Read ``triton.toml``.

    Raises:
        DataInvalid: unknown or missing keys, or a pattern that is none.
    """
    table.check_schema(1)
    products = []
    for entry in table.tables("product"):
        product = Product(
            name=entry.text("name"),
            kernel=entry.text("kernel"),
            tile=entry.wholes("tile"),
            native=tuple(pattern.pattern for pattern in entry.patterns("native")),
        )
        if len(product.tile) != 3:
            raise entry.fail("tile", "is [rows, columns, K]")
        entry.done()
        products.append(product)
    request = TritonRequest(
        python=table.text("python"),
        beside=table.texts("beside"),
        disassembler=table.text("disassembler"),
        seconds=table.whole("seconds"),
        versions=table.texts("versions"),
        archs=table.wholes("archs"),
        products=tuple(products),
    )
    table.done()
    return request


def read_request() -> TritonRequest:
    """The request that is shipped."""
    return parse_request(
        read_toml(data_folder("constraints") / "measured" / "triton.toml", name="constraints/measured/triton.toml")
    )


def parse_answer(request: TritonRequest, answer: Mapping[str, Any]) -> TritonRelease:
    """What ``kernels/compile_triton.py`` saw of one release, judged by the request's patterns."""
    rows = []
    for cell in answer["cells"]:
        tile, kernel = tuple(cell["tile"]), cell["format"]
        product = next(item for item in request.products if item.kernel == kernel and item.tile == tile)
        opcodes = tuple(cell.get("opcodes", ()))
        result: Result
        match cell["end"]:
            case "compiled":
                result = judge(product, opcodes)
            case "error":
                result = "none"
            case "crashed":
                result = "crashed"
            case _:
                result = "timed out"
        rows.append(
            TritonRow(arch=cell["arch"], product=product.name, result=result, opcodes=opcodes, why=cell.get("why", ""))
        )
    grouped: dict[tuple[str, str, str], list[int]] = {}
    for arch, tool in answer["assemblers"].items():
        grouped.setdefault((tool["file"], tool["release"], tool["newest"]), []).append(int(arch))
    return TritonRelease(
        version=answer["triton"],
        assemblers=tuple(
            Assembler(file=file, release=release, newest=newest, archs=tuple(sorted(archs)))
            for (file, release, newest), archs in sorted(grouped.items())
        ),
        rows=tuple(sorted(rows, key=lambda row: (row.arch, row.product))),
    )


def judge(product: Product, opcodes: tuple[str, ...]) -> Result:
    """Whether instructions do a product at its operands' precision."""
    native = [any(re.fullmatch(pattern, opcode) for pattern in product.native) for opcode in opcodes]
    if native and all(native):
        return "native"
    return "mixed" if any(native) else "decomposed"


def dump_measured(command: str, disassembler: str, releases: tuple[TritonRelease, ...]) -> str:
    """The text of ``triton.json``, one row a line; :func:`parse_measured` gives the same releases again."""
    lines = [
        "{",
        f' "schema": {_line(SCHEMA)},',
        f' "command": {_line(command)},',
        f' "disassembler": {_line(disassembler)},',
        ' "releases": [',
    ]
    for position, release in enumerate(releases):
        values = _release_values(release)
        lines += ["  {", f'   "version": {_line(values["version"])},', '   "assemblers": [']
        lines += _items(values["assemblers"])
        lines += ["   ],", '   "rows": [']
        lines += _items(values["rows"])
        lines += ["   ]", "  }" if position == len(releases) - 1 else "  },"]
    lines += [" ]", "}"]
    return "\n".join(lines) + "\n"


def _items(values: list[dict[str, Any]]) -> list[str]:
    return [f"    {_line(value)}{'' if position == len(values) - 1 else ','}" for position, value in enumerate(values)]


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True)


def _release_values(release: TritonRelease) -> dict[str, Any]:
    return {
        "version": release.version,
        "assemblers": [
            {"file": tool.file, "release": tool.release, "newest": tool.newest, "archs": list(tool.archs)}
            for tool in release.assemblers
        ],
        "rows": [
            {"arch": row.arch, "product": row.product, "result": row.result}
            | ({"opcodes": list(row.opcodes)} if row.opcodes else {})
            | ({"why": row.why} if row.why else {})
            for row in release.rows
        ],
    }


def parse_measured(text: str, *, file: str) -> tuple[TritonRelease, ...]:
    """Read the text of ``triton.json``.

    Raises:
        DataInvalid: it is not JSON, or has unknown or missing keys, or a row stands twice.
    """
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataInvalid(f"{file}: not valid JSON: {error}") from error
    document = Table(values if isinstance(values, dict) else {}, file=file)
    document.choice("schema", (SCHEMA,))
    document.text("command")
    document.text("disassembler")
    releases = []
    for table in document.tables("releases"):
        assemblers = []
        for entry in table.tables("assemblers"):
            assemblers.append(
                Assembler(
                    file=entry.text("file"),
                    release=entry.text("release"),
                    newest=entry.text("newest"),
                    archs=entry.wholes("archs"),
                )
            )
            entry.done()
        rows: dict[tuple[int, str], TritonRow] = {}
        for entry in table.tables("rows"):
            row = _parse_row(entry)
            if (row.arch, row.product) in rows:
                raise entry.fail("product", f"`{row.product}` on sm{row.arch} stands twice")
            rows[row.arch, row.product] = row
        releases.append(
            TritonRelease(version=table.text("version"), assemblers=tuple(assemblers), rows=tuple(rows.values()))
        )
        table.done()
    document.done()
    return tuple(releases)


def _parse_row(entry: Table) -> TritonRow:
    row = TritonRow(
        arch=entry.whole("arch"),
        product=entry.text("product"),
        result=entry.choice("result", RESULTS),  # type: ignore[arg-type]
        opcodes=entry.texts("opcodes", ()),
        why=entry.text("why", ""),
    )
    entry.done()
    return row


@cache
def read_measured() -> Mapping[str, TritonRelease]:
    """What is shipped, by version.

    Raises:
        DataInvalid: the file is wrong or missing.
    """
    path = data_folder("constraints") / "measured" / "triton.json"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataInvalid(f"{path.name}: cannot be read: {error}") from error
    return {release.version: release for release in parse_measured(text, file=f"constraints/measured/{path.name}")}
