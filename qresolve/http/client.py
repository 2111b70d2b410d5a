"""The one HTTP client of a command.

Connections are used again; what is retriable is tried again, with waits that grow; a body that broke off goes on
where it stopped; redirects never lead from https to http and never carry a login to another host. Messages show
addresses without login and query.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urljoin, urlsplit

from qresolve.closure.indexes import redact_url
from qresolve.errors import UsageError
from qresolve.http.body import ResumedBody, lowered
from qresolve.http.credentials import origin_of, without_login
from qresolve.http.failures import (
    DowngradeRefused,
    HttpFailed,
    OfflineRefused,
    RedirectRefused,
    is_retriable,
    reason_words,
)
from qresolve.http.logins import REFUSALS, Logins
from qresolve.http.retries import Budget, Clock, RetryRules, is_retriable_status, parse_retry_after
from qresolve.http.settings import HttpSettings, read_http_settings
from qresolve.http.trust import open_trust
from qresolve.wheels.ranges import RangeResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType

    import httpx

    from qresolve.closure.indexes import UserIndexes
    from qresolve.http.cache import Cache
    from qresolve.http.credentials import IndexAddress, Login

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 10
_SHORT = 64 * 1024  # bytes

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer: status, headers by lower-case name, the decoded body, and where it came from in the end."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    url: str = field(repr=False)


class HttpClient:
    """Sends GETs; safe to use from several threads. Close it, or use it in ``with``.

    ``requests`` and ``received`` count what was sent and the bytes of bodies that came. ``cache`` is where pages are
    kept (:mod:`qresolve.http.pages`), None: nowhere. It is a :class:`~qresolve.wheels.ranges.Transport`:
    ``HttpRanges(client, url)`` reads parts of a file.
    """

    def __init__(
        self,
        settings: HttpSettings | None = None,
        *,
        clock: Clock | None = None,
        rules: RetryRules | None = None,
        transport: httpx.BaseTransport | None = None,
        cache: Cache | None = None,
    ) -> None:
        self.settings = settings or HttpSettings()
        self.cache = cache
        self.logins = Logins(self.settings.credentials, self.settings.keyring)
        self.clock = clock or Clock()
        self.requests = 0
        self.received = 0
        self._rules = rules or RetryRules(attempts=self.settings.attempts)
        self._transport = transport
        self._clients: dict[tuple[bool, str | None], httpx.Client] = {}
        self._guard = threading.Lock()
        self._stopped = threading.Event()
        self._running: list[httpx.Response] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        with self._guard:
            for client in self._clients.values():
                client.close()
            self._clients.clear()

    def stop(self) -> None:
        """End what runs in other threads: a body at once, a wait at once, a request before its answer at its limit."""
        import contextlib  # noqa: PLC0415
        import socket  # noqa: PLC0415

        self._stopped.set()
        with self._guard:
            running = list(self._running)
        for answer in running:
            stream = answer.extensions.get("network_stream")
            link = None if stream is None else stream.get_extra_info("socket")
            if link is not None:
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for the next piece

    def read(self, url: str, headers: Mapping[str, str] | None = None, *, most: int) -> Answer:
        """The whole answer to a GET, whatever its status; a body that breaks off is asked for again.

        Raises:
            HttpFailed: no answer, or a body of more than ``most`` bytes (decoded).
        """
        import httpx  # noqa: PLC0415 - commands without the network never need it

        budget = Budget(self._rules)
        while True:
            answer = self._open(url, headers or {}, budget)
            try:
                body = bytearray()
                for chunk in answer.iter_bytes():
                    body += chunk
                    if len(body) > most:
                        raise HttpFailed(f"{redact_url(url)}: the answer has more than {most} bytes")
            except (httpx.TransportError, httpx.DecodingError) as error:
                self._pause(url, budget, reason=error)
                continue
            finally:
                self._close(answer)
            return Answer(
                status=answer.status_code, headers=lowered(answer.headers), body=bytes(body), url=str(answer.url)
            )

    @contextmanager
    def get(self, url: str, headers: Mapping[str, str]) -> Iterator[RangeResponse]:
        """Send a GET; the body comes undecoded in pieces while the context is open, resumed where it breaks off.

        Raises:
            HttpFailed: no answer; from the pieces: the rest of the body cannot be had.
        """
        budget = Budget(self._rules)
        body = ResumedBody(
            url,
            {"Accept-Encoding": "identity", **headers},
            send=lambda asked: self._open(url, asked, budget),
            close=self._close,
            pause=lambda reason, moved: self._pause(url, budget, reason=reason, moved=moved),
        )
        try:
            yield RangeResponse(status=body.answer.status_code, headers=body.headers, chunks=body.pieces())
        finally:
            body.close()

    def each(self, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """``work`` for every item, at most ``settings.parallel`` at once; results in the order of the items.

        The first failure is raised once those that run have ended; no further one is started. An interruption is
        raised at once: the threads are daemons, so a server that does not answer keeps nobody waiting.
        """
        waiting = list(enumerate(items))
        waiting.reverse()
        results: dict[int, Result] = {}
        failures: list[BaseException] = []
        guard = threading.Lock()

        def run() -> None:
            while True:
                with guard:
                    if not waiting or failures:
                        return
                    position, item = waiting.pop()
                try:
                    result = work(item)
                except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
                    with guard:
                        failures.append(error)
                    return
                with guard:
                    results[position] = result

        count = min(self.settings.parallel, len(waiting))
        threads = [threading.Thread(target=run, name=f"http-{number}", daemon=True) for number in range(count)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException:
            with guard:
                waiting.clear()
            self.stop()
            raise
        if failures:
            raise failures[0]
        return [results[position] for position in sorted(results)]

    def _open(self, url: str, headers: Mapping[str, str], budget: Budget) -> httpx.Response:
        """The answer to a GET, its body not yet read, after redirects and retries."""
        import httpx  # noqa: PLC0415

        try:
            scheme = urlsplit(url).scheme.lower()
        except ValueError as error:
            raise HttpFailed("an address that cannot be read") from error
        if scheme not in ("http", "https"):
            raise HttpFailed(f"{redact_url(url)}: not an http address")
        if self.settings.offline:
            raise OfflineRefused(f"{redact_url(url)} is not in the cache, and the network is off")
        while True:
            try:
                answer = self._follow(url, headers)
            except httpx.InvalidURL as error:
                raise HttpFailed(f"{redact_url(url)}: not a usable address") from error
            except httpx.TransportError as error:
                self._pause(url, budget, reason=error)
                continue
            if not is_retriable_status(answer.status_code) or budget.is_spent:
                return answer
            asked = parse_retry_after(answer.headers.get("retry-after"), now=self.clock.now())
            self._discard(answer)
            self._wait(budget, asked)

    def _pause(self, url: str, budget: Budget, *, reason: Exception, moved: bool = False) -> None:
        """Wait before the next attempt; ``moved``: this failure counts as the first in a row.

        Raises:
            HttpFailed: the attempts are spent, or another one would end the same.
        """
        if moved:
            budget.failures = 0
        if self._stopped.is_set() or not is_retriable(reason):
            raise HttpFailed(f"{redact_url(url)}: {reason_words(reason)}") from reason
        if budget.is_spent:
            tries = f" (tried {budget.failures + 1} times)" if budget.failures else ""
            raise HttpFailed(f"{redact_url(url)}: {reason_words(reason)}{tries}") from reason
        self._wait(budget, None)

    def _wait(self, budget: Budget, asked: float | None) -> None:
        budget.failures += 1
        sleep = self.clock.sleep or self._stopped.wait
        sleep(self._rules.wait(budget.failures, draw=self.clock.draw(), asked=asked))

    def _follow(self, url: str, headers: Mapping[str, str]) -> httpx.Response:
        # What stands in the address is the user's word for its host, wherever on it the request is led.
        given, host, current = self.logins.of_address(url), origin_of(url), without_login(url)
        for _ in range(_MOST_REDIRECTS + 1):
            own = given if origin_of(current) == host else None
            login = own or self.logins.before(current)
            answer = self._send(current, headers, login)
            if login is None and answer.status_code in REFUSALS:
                login = self.logins.after_refusal(current)
                if login is not None:
                    self._discard(answer)
                    answer = self._send(current, headers, login)
            if login is not None and own is None and not answer.is_error:
                self.logins.worked(current, login)
            location = answer.headers.get("location")
            if answer.status_code not in _REDIRECTS or location is None:
                return answer
            self._discard(answer)
            # The login in the new address, if any, would be the server's word, not the user's.
            current = without_login(_checked_redirect(current, location))
        raise RedirectRefused(f"{redact_url(url)}: more than {_MOST_REDIRECTS} redirects")

    def _send(self, url: str, headers: Mapping[str, str], login: Login | None) -> httpx.Response:
        """The answer to one GET, its body not yet read."""
        if self._stopped.is_set():
            raise HttpFailed(f"{redact_url(url)}: stopped")
        client = self._opened(url)
        request = client.build_request("GET", url, headers=dict(headers))
        if login is not None:
            request.headers["Authorization"] = login.header()
        with self._guard:
            self.requests += 1
        answer = client.send(request, stream=True, follow_redirects=False, auth=None)
        with self._guard:
            self._running.append(answer)
        return answer

    def _opened(self, url: str) -> httpx.Client:
        """The connections for ``url``: by whether its certificate counts, and by the proxy it goes through."""
        import httpx  # noqa: PLC0415

        settings = self.settings
        checked, proxy = settings.trust.checks(url), settings.proxies.select(url)
        with self._guard:
            client = self._clients.get((checked, proxy))
            if client is None:
                more: dict[str, Any] = {"transport": self._transport}
                if self._transport is None:
                    more = {"verify": open_trust(settings.trust, checked=checked), "proxy": proxy}
                try:
                    client = httpx.Client(
                        # Proxies, certificates and logins are read by us, and for the user, who may not be the process.
                        trust_env=False,
                        timeout=httpx.Timeout(settings.idle, connect=settings.connect, pool=None),
                        # One thread may hold two bodies open, a second one while it reads the first.
                        limits=httpx.Limits(
                            max_connections=4 * settings.parallel, max_keepalive_connections=settings.parallel
                        ),
                        headers={"User-Agent": _user_agent()},
                        **more,
                    )
                except ImportError as error:  # a socks proxy
                    raise UsageError(
                        f"the proxy {redact_url(proxy or '')} needs a further package: {error}",
                        hint="pip install socksio",
                    ) from error
                except ValueError as error:
                    raise UsageError(f"{redact_url(proxy or '')} is no proxy", hint="env | grep -i proxy") from error
                self._clients[checked, proxy] = client
            return client

    def _discard(self, answer: httpx.Response) -> None:
        """End an answer whose body is of no use; a short one is read, so that the connection can be used again."""
        import contextlib  # noqa: PLC0415

        import httpx  # noqa: PLC0415

        length = answer.headers.get("content-length", "")
        if length.isascii() and length.isdigit() and int(length) <= _SHORT:
            with contextlib.suppress(httpx.HTTPError):
                answer.read()
        self._close(answer)

    def _close(self, answer: httpx.Response) -> None:
        """Give the connection back, or close it where the body was not read to its end."""
        with self._guard:
            if answer in self._running:
                self._running.remove(answer)
                self.received += answer.num_bytes_downloaded
        answer.close()


def _checked_redirect(current: str, location: str) -> str:
    """The address that ``location`` means.

    Raises:
        DowngradeRefused: from https to plain http.
        RedirectRefused: to what is no http address.
    """
    target = urljoin(current, location)
    scheme = urlsplit(target).scheme.lower()
    if scheme not in ("http", "https"):
        raise RedirectRefused(f"{redact_url(current)} redirects to an address that is not http")
    if urlsplit(current).scheme.lower() == "https" and scheme != "https":
        raise DowngradeRefused(
            f"{redact_url(current)} leads to {redact_url(target)}, which is not encrypted",
            hint=f"curl --head {redact_url(current)}",
        )
    return target


def _user_agent() -> str:
    from qresolve import __version__  # noqa: PLC0415

    return f"qresolve/{__version__}"


def open_http_client(
    indexes: UserIndexes | None = None,
    *,
    offline: bool = False,
    more: Iterable[IndexAddress] = (),
    cache: Cache | None = None,
) -> HttpClient:
    """The client of this user: certificates, proxies, time limits and logins as uv and pip are set up.

    ``more`` are further indexes that can hold a login.

    Raises:
        UsageError: the set-up names a certificate that is not there, or a number that is none.
    """
    from qresolve.closure.indexes import read_user_indexes  # noqa: PLC0415

    known = read_user_indexes(os.environ, Path.home()) if indexes is None else indexes
    return HttpClient(read_http_settings(known, offline=offline, more=more), cache=cache)
