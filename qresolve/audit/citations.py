"""Reading ``where``: the files, lines and symbols that a record cites. Pure and tolerant: people write these texts.

The form is ``path:lines symbol, symbol; other/path symbol (a remark)``. A path may be short (``oracle/mxfp4.py``): it
is the file near the one cited before it. What names no file (a wheel's METADATA, a measurement) cannot be re-read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SUFFIXES = r"py|pyi|cu|cuh|h|hpp|hxx|c|cc|cpp|cmake|txt|toml|jinja|json|rs"
_PATH = re.compile(
    rf"(?<![\w./-])(?P<path>(?:[\w.+-]+/)*[\w.+-]+\.(?:{_SUFFIXES}))"
    r"(?::(?P<lines>\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)(?![\w-])|:(?P<symbol>[A-Za-z_][\w.]*))?(?![\w/])"
)
_WORD = re.compile(r"(?<![\w`'\"=<>!-])[A-Za-z_][\w]*(?:\.[A-Za-z_]\w*)*(?![\w'-])")
_REMARK = re.compile(r"(?<=\s)\([^()]*(?:\([^()]*\)[^()]*)*\)|`[^`]*`")
_CALLED = re.compile(r"(?<=\w)\([^()]*\)")
_ONLY_SYMBOLS = re.compile(r"\s*[A-Za-z_][\w.]*(?:\s*(?:,|\bx\b|\band\b)\s*[A-Za-z_][\w.]*)*\s*")
_JOINING = {"x", "and"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """One cited file. ``lines`` are (first, last) pairs; ``symbols`` as written, ``Class.method`` among them."""

    path: str
    lines: tuple[tuple[int, int], ...] = ()
    symbols: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """What a ``where`` text cites, and the parts of it that cite no file."""

    citations: tuple[Citation, ...]
    prose: tuple[str, ...]


def _is_symbol(word: str) -> bool:
    """Whether a word among others is a name of code: with an underscore, a capital inside, or all capitals and long."""
    bare = word.replace(".", "")
    return "_" in bare or bool(re.search(r"[a-z0-9][A-Z]", bare)) or (bare.isupper() and len(bare) > 3)


def _symbols(text: str) -> tuple[str, ...]:
    """The names of code in the text after a path: all words of a plain list, else those that look like one."""
    plain = _CALLED.sub("", text)
    words = [word for word in _WORD.findall(plain) if word not in _JOINING]
    if not _ONLY_SYMBOLS.fullmatch(plain):
        words = [word for word in words if _is_symbol(word)]
    return tuple(dict.fromkeys(words))


def _lines(text: str | None) -> tuple[tuple[int, int], ...]:
    pairs = []
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        if first:
            pairs.append((int(first), int(last or first)))
    return tuple(pairs)


def parse_where(text: str) -> Where:
    """The citations of one ``where`` text, in order."""
    citations: list[Citation] = []
    prose: list[str] = []
    for part in text.split(";"):
        segment = _REMARK.sub(" ", f" {part.strip()} ").strip()
        found = list(_PATH.finditer(segment))
        if not found:
            if part.strip():
                prose.append(part.strip())
            continue
        # `allow_vllm_cutlass in fp8.py:527`: a name before its files.
        before = _symbols(segment[: found[0].start()]) if segment[: found[0].start()].strip() else ()
        for number, match in enumerate(found):
            stop = found[number + 1].start() if number + 1 < len(found) else len(segment)
            named = (match["symbol"],) if match["symbol"] else ()
            symbols = (*named, *_symbols(segment[match.end() : stop].strip(" ,"))) or before
            citations.append(Citation(path=match["path"], lines=_lines(match["lines"]), symbols=symbols))
    return Where(citations=tuple(citations), prose=tuple(prose))


def resolve_path(path: str, *, near: str | None, files: frozenset[str] | set[str]) -> tuple[str, ...]:
    """The files that a cited path can mean: itself, or those that end in it, nearest to ``near`` first."""
    if path in files:
        return (path,)
    found = sorted(file for file in files if file.endswith(f"/{path}"))
    if near is None:
        return tuple(found)
    return tuple(sorted(found, key=lambda file: (-_shared_folders(file, near), file.count("/"), file)))


def _shared_folders(one: str, other: str) -> int:
    count = 0
    for left, right in zip(one.split("/")[:-1], other.split("/")[:-1], strict=False):
        if left != right:
            break
        count += 1
    return count
