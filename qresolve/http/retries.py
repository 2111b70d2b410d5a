"""When a request is sent again, and how long to wait before. Pure but for :class:`Clock`, which is a port."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LATER = frozenset({408, 429})


def is_retriable_status(status: int) -> bool:
    """Whether the same request can be answered otherwise a moment later.

    408, 429 and the server's own failures, as for uv (uv-client/src/retry.rs) and pip (network/session.py), which
    both know 500 as a passing failure of storage behind an index.
    """
    return status in _LATER or 500 <= status < 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The time in seconds since the epoch, waiting, and a draw from [0, 1) for the jitter.

    ``sleep`` None: the client waits in a way that it can end.
    """

    now: Callable[[], float] = time.time
    sleep: Callable[[float], object] | None = None
    draw: Callable[[], float] = field(default=random.random)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """``attempts`` counts requests altogether; waits are in seconds.

    ``longest`` bounds a single wait, the one that a server asks for by ``Retry-After`` too.
    """

    attempts: int = 5
    first: float = 0.5
    longest: float = 30.0

    def wait(self, failures: int, *, draw: float, asked: float | None = None) -> float:
        """Seconds to wait after ``failures`` (at least 1) in a row.

        Doubled each time, of which the upper half is drawn, so that many clients do not come back at once. What the
        server asked for is not undercut unless it passes ``longest``.
        """
        # Beyond 2**32 the bound has long been reached; a larger exponent would overflow.
        full = min(self.longest, self.first * 2.0 ** min(failures - 1, 32))
        wait = full / 2 + full / 2 * draw
        return wait if asked is None else min(self.longest, max(wait, asked))


def parse_retry_after(text: str | None, *, now: float) -> float | None:
    """Seconds that ``Retry-After`` asks for (RFC 9110, 10.2.3), a number or a date; None where it is neither."""
    from email.utils import parsedate_to_datetime  # noqa: PLC0415

    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        moment = parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, moment - now)


class Budget:
    """How many attempts in a row failed, and whether one more is left."""

    def __init__(self, rules: RetryRules) -> None:
        self._most = rules.attempts
        self.failures = 0

    @property
    def is_spent(self) -> bool:
        """Whether no attempt is left after the one that runs."""
        return self.failures + 1 >= self._most
