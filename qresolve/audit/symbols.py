"""Finding a cited symbol in a source file, and a digest of its text that only changes when it does. Pure.

Python files are parsed; others (C++, CUDA, CMake) are searched, since no parser of them is at hand: a definition is
the text from the line that opens it to the matching bracket, else the lines that mention the name.
"""

from __future__ import annotations

import ast
import hashlib
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_LINES = 400  # of one C++ definition
_COMMENT = re.compile(r"\s*(#(?!\s*(?:if|ifdef|ifndef|else|elif|endif|define|include)\b)|//).*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a symbol or a range of lines is in a file (first and last line, from 1), and the digest of its text."""

    first: int
    last: int
    digest: str

    @property
    def text(self) -> str:
        """``12-80``."""
        return f"{self.first}-{self.last}"


def digest_text(lines: list[str]) -> str:
    """The digest of source lines: blank ones, comments on lines of their own and indentation do not count."""
    kept = [line.strip() for line in lines if line.strip() and not _COMMENT.fullmatch(line)]
    return f"sha256:{hashlib.sha256(chr(10).join(kept).encode()).hexdigest()}"


def _place(lines: list[str], first: int, last: int) -> Place:
    return Place(first=first, last=last, digest=digest_text(lines[first - 1 : last]))


def _bound_names(node: ast.AST) -> Iterator[str]:
    """Names that a statement binds."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            yield from (item.id for item in ast.walk(target) if isinstance(item, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


def _python_statements(tree: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    """Every binding statement with its dotted path, outer ones first."""
    waiting: list[tuple[str, ast.AST]] = [("", tree)]
    while waiting:
        prefix, node = waiting.pop(0)
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, ast.stmt):
                for name in _bound_names(child):
                    yield prefix + name, child
                    if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                        inner = f"{prefix}{name}."
            waiting.append((inner, child))


def _find_in_python(text: str, symbol: str, near: int | None) -> Place | None:
    """The binding of the name; of several the one at or nearest to line ``near``, else the outermost first one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape in somebody's string is not ours to report
            tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    lines = text.splitlines()
    found = []
    for path, node in _python_statements(tree):
        if path == symbol or path.endswith(f".{symbol}"):
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(item.lineno for item in decorators)])
            found.append((first, node.end_lineno or node.lineno))
    if not found:
        return None
    if near is None:
        return _place(lines, *found[0])
    return _place(lines, *min(found, key=lambda span: max(span[0] - near, near - span[1], 0)))


def _find_definition(lines: list[str], symbol: str) -> Place | None:
    """A C++ function: its name before a parenthesis, then a body in braces before any semicolon."""
    opens = re.compile(rf"(?<![\w.>]){re.escape(symbol)}\s*\(")
    for number, line in enumerate(lines):
        if not opens.search(line) or line.lstrip().startswith(("//", "return", "if", "TORCH_CHECK", "*")):
            continue
        depth, started = 0, False
        for offset, later in enumerate(lines[number : number + _MOST_LINES]):
            code = later.split("//", 1)[0]
            if not started and ";" in code.split("{", 1)[0]:
                break
            depth += code.count("{") - code.count("}")
            started = started or "{" in code
            if started and depth <= 0:
                return _place(lines, number + 1, number + offset + 1)
    return None


def _find_mentions(lines: list[str], symbol: str) -> Place | None:
    """All lines that mention the name, each with the two before it (in CMake: what it is compared with)."""
    # A build macro is written -DNAME where it is set.
    word = re.compile(rf"(?:(?<!\w)|(?<=-D)){re.escape(symbol)}(?!\w)")
    found = [number for number, line in enumerate(lines) if word.search(line)]
    if not found:
        return None
    near = sorted({at for number in found for at in range(max(0, number - 2), number + 1)})
    return Place(first=found[0] + 1, last=found[-1] + 1, digest=digest_text([lines[at] for at in near]))


def find_symbol(path: str, text: str, symbol: str, *, near: int | None = None) -> Place | None:
    """Where ``symbol`` is in the file, or None where it is not; ``near`` is the line that is cited with it."""
    if path.endswith((".py", ".pyi")):
        found = _find_in_python(text, symbol, near)
        if found is not None:
            return found
        return _find_mentions(text.splitlines(), symbol)
    lines = text.splitlines()
    return _find_definition(lines, symbol) or _find_mentions(lines, symbol)


def find_lines(text: str, first: int, last: int) -> Place | None:
    """The range of lines, or None where the file is shorter."""
    lines = text.splitlines()
    return _place(lines, first, last) if 1 <= first <= last <= len(lines) else None


def find_digest(text: str, digest: str, length: int) -> Place | None:
    """The first run of ``length`` lines with that digest."""
    lines = text.splitlines()
    for first in range(1, len(lines) - length + 2):
        if digest_text(lines[first - 1 : first - 1 + length]) == digest:
            return _place(lines, first, first - 1 + length)
    return None


def find_whole(text: str) -> Place:
    """The whole file."""
    lines = text.splitlines()
    return _place(lines, 1, max(1, len(lines)))


def defines(text: str, symbol: str) -> bool:
    """Whether a Python file binds the name at its top; a quick search, to tell where a symbol went."""
    word = re.escape(symbol.split(".", maxsplit=1)[0])
    return re.search(rf"(?m)^(?:(?:async )?def |class )?{word}\b(?=\s*[(:=])", text) is not None
