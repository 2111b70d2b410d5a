"""A checkpoint's lists of modules: which module an entry means, as each method reads its own list. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from qresolve.errors import UsageError
from qresolve.model.patterns import PatternUnknown, Step, compile_regex, compile_wildcard, matches

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_ENTRIES = 50_000
MOST_PATTERNS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The entries of one list, sorted by how they are compared."""

    exact: frozenset[str]
    patterns: tuple[tuple[Step, ...], ...]
    inside: tuple[str, ...]
    experts: tuple[str, ...]

    def match(self, name: str) -> bool:
        """Whether an entry means the module of that name."""
        if name in self.exact or any(entry in name for entry in self.inside):
            return True
        parent, found, _ = name.partition(".experts")
        if found and any(f"{parent}.experts" in entry for entry in self.experts):
            return True
        return any(matches(steps, name) for steps in self.patterns)

    def match_any(self, names: Iterable[str]) -> bool:
        """Whether an entry means a module that has one of these names."""
        return any(self.match(name) for name in names)


def names_of(entries: tuple[str, ...], mode: str, *, at: str) -> Names:
    """The entries of a list that is read in a mode of :data:`qresolve.model.records.MATCHES`.

    Raises:
        UsageError: an entry is a pattern that is not understood; ``at`` says where it stands.
    """
    if len(entries) > MOST_ENTRIES:
        raise UsageError(f"{at} has more than {MOST_ENTRIES} entries")
    exact: list[str] = []
    patterns: list[tuple[Step, ...]] = []
    inside: list[str] = []
    for entry in dict.fromkeys(entries):
        try:
            if mode.startswith("regex") and entry.startswith("re:"):
                patterns += compile_regex(entry.removeprefix("re:"))
            elif "wildcard" in mode and "*" in entry:
                patterns.append(compile_wildcard(entry))
            elif mode in {"inside", "wildcard-or-inside"}:
                if entry:
                    inside.append(entry)
            else:
                exact.append(entry)
        except PatternUnknown as error:
            raise UsageError(
                f"{at}: the pattern `{entry}` is not understood: {error}",
                hint="say the formats with --formats and the shapes with --assume, without --model",
            ) from error
    if len(patterns) > MOST_PATTERNS:
        raise UsageError(f"{at} has more than {MOST_PATTERNS} patterns")
    experts = tuple(entry for entry in exact if ".experts" in entry) if mode in {"exact", "regex-or-wildcard"} else ()
    return Names(exact=frozenset(exact), patterns=tuple(patterns), inside=tuple(inside), experts=experts)
