"""A clock that does not wait, and a client with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qresolve.http.client import HttpClient
from qresolve.http.retries import Clock, RetryRules
from qresolve.http.settings import HttpSettings

if TYPE_CHECKING:
    import httpx

    from qresolve.http.cache import Cache


@dataclass(slots=True)
class FakeTime:
    """``waits`` are the seconds that somebody asked to sleep; time passes by that alone."""

    moment: float = 1_800_000_000.0
    waits: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.moment += seconds

    def clock(self) -> Clock:
        return Clock(now=lambda: self.moment, sleep=self.sleep, draw=lambda: 1.0)


def client(
    time: FakeTime | None = None,
    *,
    rules: RetryRules | None = None,
    transport: httpx.BaseTransport | None = None,
    cache: Cache | None = None,
    **settings: Any,
) -> HttpClient:
    return HttpClient(
        HttpSettings(**settings),
        clock=(time or FakeTime()).clock(),
        rules=rules,
        transport=transport,
        cache=cache,
    )
