"""Classes of a route and verdicts, with their order. The words are those of docs/architecture.md."""

from __future__ import annotations

CLASSES: tuple[str, ...] = ("native", "mixed", "storage-only", "weight-only", "emulated")
"""Best first."""

VERDICTS: tuple[str, ...] = (*CLASSES, "broken", "unsupported", "unknown")

LEVELS: tuple[str, ...] = ("data", "static", "launched")
"""What a verdict was established with: records alone, rungs 0 to 6, a launch."""


def at_least_as_good(found: str, wanted: str) -> bool:
    """Whether the verdict ``found`` is the class ``wanted`` or better; broken and unknown never are."""
    return found in CLASSES and CLASSES.index(found) <= CLASSES.index(wanted)


def rank(verdict: str) -> int:
    """Position from best (0) to worst, for sorting."""
    return VERDICTS.index(verdict)
