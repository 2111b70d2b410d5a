"""The HTTP client against servers that are busy, break off, redirect and lie. Nothing sleeps."""

from __future__ import annotations

import threading
from email.utils import formatdate

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qresolve.http.failures import DowngradeRefused, HttpFailed, OfflineRefused, RedirectRefused
from qresolve.http.retries import RetryRules, parse_retry_after
from qresolve.wheels.ranges import HttpRanges
from tests.scripted_server import Reply, ScriptedServer
from tests.unit.http.http_support import FakeTime, client

CONTENT = bytes(range(251)) * 1000


@given(
    failures=st.integers(1, 2000),
    draw=st.floats(0, 1, exclude_max=True),
    asked=st.none() | st.floats(0, 1e9),
    longest=st.floats(0.001, 1e4),
)
def test_a_wait_is_bounded_and_not_below_what_the_server_asks(
    failures: int, draw: float, asked: float | None, longest: float
) -> None:
    rules = RetryRules(longest=longest)
    wait = rules.wait(failures, draw=draw, asked=asked)
    assert 0 < wait <= longest
    if asked is not None:
        assert wait >= min(asked, longest)


@given(failures=st.integers(1, 50), draw=st.floats(0, 1, exclude_max=True))
def test_waits_do_not_shrink_with_failures(failures: int, draw: float) -> None:
    rules = RetryRules()
    assert rules.wait(failures, draw=draw) <= rules.wait(failures + 1, draw=draw)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7", 7.0), (" 0 ", 0.0), ("-1", None), ("soon", None), ("", None), (None, None), ("²", None)],
)
def test_retry_after_is_a_number(text: str | None, seconds: float | None) -> None:
    assert parse_retry_after(text, now=0.0) == seconds


def test_retry_after_is_a_date_and_one_that_has_passed_asks_nothing() -> None:
    assert parse_retry_after(formatdate(1_000_090, usegmt=True), now=1_000_000.0) == 90.0
    assert parse_retry_after(formatdate(999_000, usegmt=True), now=1_000_000.0) == 0.0


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_busy_server_is_asked_again_after_what_it_says(status: int) -> None:
    busy = Reply(status=status, headers={"Retry-After": "3"})
    time = FakeTime()
    with ScriptedServer({"/x": [busy, busy, Reply(body=b"ok")]}) as server, client(time) as http:
        assert http.read(server.url("/x"), most=100).body == b"ok"
    assert len(server.seen) == 3
    assert time.waits == [3.0, 3.0]


def test_a_server_cannot_make_us_wait_for_a_day() -> None:
    time = FakeTime()
    busy = Reply(status=503, headers={"Retry-After": "86400"})
    with ScriptedServer({"/x": [busy, Reply()]}) as server, client(time) as http:
        assert http.read(server.url("/x"), most=100).status == 200
    assert time.waits == [RetryRules().longest]


@pytest.mark.parametrize("reply", [Reply(status=503), Reply(drop=True), Reply(body=CONTENT, most=5)])
def test_the_number_of_attempts_is_bounded(reply: Reply) -> None:
    time = FakeTime()
    with ScriptedServer({"/x": [reply]}) as server, client(time, rules=RetryRules(attempts=3)) as http:
        if reply.status == 503:
            assert http.read(server.url("/x"), most=10**6).status == 503
        else:
            with pytest.raises(HttpFailed, match="tried 3 times"):
                http.read(server.url("/x"), most=10**6)
    assert len(server.seen) == 3
    assert len(time.waits) == 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_what_another_attempt_cannot_change_is_asked_once(status: int) -> None:
    time = FakeTime()
    with ScriptedServer({"/x": [Reply(status=status)]}) as server, client(time) as http:
        assert http.read(server.url("/x"), most=100).status == status
    assert len(server.seen) == 1
    assert time.waits == []


def test_a_body_above_the_limit_is_refused_before_it_is_all_there() -> None:
    with (
        ScriptedServer({"/x": [Reply(body=CONTENT)]}) as server,
        client() as http,
        pytest.raises(HttpFailed, match="more than 1000 bytes"),
    ):
        http.read(server.url("/x"), most=1000)


def _pieces(http: object, url: str, headers: dict[str, str] | None = None) -> bytes:
    with http.get(url, headers or {}) as answer:  # type: ignore[attr-defined]
        return b"".join(answer.chunks)


@settings(deadline=None)  # each example starts a server, which on a busy machine takes its time
@given(cuts=st.lists(st.integers(1, 60_000), max_size=4))
def test_a_body_that_breaks_off_goes_on_where_it_stopped(cuts: list[int]) -> None:
    replies = [Reply(body=CONTENT, ranges=True, most=cut, headers={"ETag": '"one"'}) for cut in cuts]
    replies.append(Reply(body=CONTENT, ranges=True, headers={"ETag": '"one"'}))
    with ScriptedServer({"/w.whl": replies}) as server, client() as http:
        assert _pieces(http, server.url("/w.whl")) == CONTENT
        assert http.received == len(CONTENT)  # nothing came twice
    starts = [int(seen.headers["range"][6:].partition("-")[0]) for seen in server.seen[1:]]
    assert starts == [sum(cuts[: number + 1]) for number in range(len(cuts))]
    assert {seen.headers["if-range"] for seen in server.seen[1:]} <= {'"one"'}


@pytest.mark.parametrize(("first", "last"), [(0, 99), (1000, 99_999), (250_000, 250_999)])
def test_a_range_that_breaks_off_asks_for_its_rest_only(first: int, last: int) -> None:
    replies = [Reply(body=CONTENT, ranges=True, most=40), Reply(body=CONTENT, ranges=True)]
    with ScriptedServer({"/w.whl": replies}) as server, client() as http:
        got = _pieces(http, server.url("/w.whl"), {"Range": f"bytes={first}-{last}"})
    assert got == CONTENT[first : last + 1]
    assert server.seen[1].headers["range"] == f"bytes={first + 40}-{last}"


@pytest.mark.parametrize(
    "second",
    [
        Reply(body=CONTENT, ranges=True, headers={"ETag": '"two"'}),  # another file: the whole comes
        Reply(body=CONTENT + b"x", ranges=True, headers={"ETag": '"one"'}),  # another size
        Reply(body=CONTENT, headers={"ETag": '"one"'}),  # no ranges
        Reply(status=404),
    ],
)
def test_the_rest_of_another_file_is_not_appended(second: Reply) -> None:
    first = Reply(body=CONTENT, ranges=True, most=1000, headers={"ETag": '"one"'})
    with (
        ScriptedServer({"/w.whl": [first, second]}) as server,
        client() as http,
        pytest.raises(HttpFailed, match="broke off after 1000 bytes"),
    ):
        _pieces(http, server.url("/w.whl"))


def test_a_line_that_breaks_often_but_moves_on_gets_there() -> None:
    content = bytes(10) * 1024 * 1024
    replies = [Reply(body=content, ranges=True, most=1024 * 1024) for _ in range(9)]
    replies.append(Reply(body=content, ranges=True))
    with (
        ScriptedServer({"/w.whl": replies}) as server,
        client(rules=RetryRules(attempts=2)) as http,
    ):
        assert _pieces(http, server.url("/w.whl")) == content


def test_wheels_are_read_by_ranges_over_one_connection() -> None:
    with ScriptedServer({"/w.whl": [Reply(body=CONTENT, ranges=True)]}) as server, client() as http:
        ranges = HttpRanges(http, server.url("/w.whl"))
        assert b"".join(ranges.stream(10, 20)) == CONTENT[10:20]
        assert http.requests == 2
        assert http.received < len(CONTENT)


def test_connections_are_used_again() -> None:
    with ScriptedServer({"/x": [Reply(body=b"x")]}) as server:
        transport = httpx.HTTPTransport()
        with client(transport=transport) as http:
            for _ in range(5):
                http.read(server.url("/x"), most=10)
            made = list(transport._pool.connections)
    assert len(made) == 1
    assert len(server.seen) == 5


def _mock(answers: dict[str, httpx.Response], seen: list[httpx.Request]) -> httpx.MockTransport:
    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        found = answers[str(request.url)]
        return httpx.Response(found.status_code, headers=found.headers, content=found.content)

    return httpx.MockTransport(answer)


def _to(location: str) -> httpx.Response:
    return httpx.Response(302, headers={"Location": location})


def test_a_redirect_from_https_to_http_is_refused_and_not_followed() -> None:
    seen: list[httpx.Request] = []
    transport = _mock({"https://index.invalid/a?sig=1": _to("http://files.invalid/a?sig=2")}, seen)
    with client(transport=transport) as http, pytest.raises(DowngradeRefused, match="not encrypted") as refused:
        http.read("https://anna:secret@index.invalid/a?sig=1", most=10)
    assert [str(request.url) for request in seen] == ["https://index.invalid/a?sig=1"]
    said = refused.value.message + (refused.value.hint or "")
    assert not any(word in said for word in ("secret", "anna", "sig"))


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://files.invalid/a", "http:///x"])
def test_a_redirect_to_something_else_is_refused(location: str) -> None:
    with (
        client(transport=_mock({"https://index.invalid/a": _to(location)}, [])) as http,
        pytest.raises(RedirectRefused),
    ):
        http.read("https://index.invalid/a", most=10)


def test_redirects_in_a_circle_end() -> None:
    seen: list[httpx.Request] = []
    with (
        client(transport=_mock({"https://index.invalid/a": _to("/a")}, seen)) as http,
        pytest.raises(RedirectRefused, match="redirects"),
    ):
        http.read("https://index.invalid/a", most=10)
    assert len(seen) == 11


def test_a_login_does_not_go_to_the_host_that_is_redirected_to() -> None:
    seen: list[httpx.Request] = []
    answers = {
        "https://index.invalid/a": _to("https://files.invalid/b"),
        "https://files.invalid/b": _to("https://eve:own@index.invalid:8443/c"),
        "https://index.invalid:8443/c": _to("https://index.invalid/d"),
        "https://index.invalid/d": httpx.Response(200, content=b"ok"),
    }
    with client(transport=_mock(answers, seen)) as http:
        assert http.read("https://anna:secret@index.invalid/a", most=10).body == b"ok"
    sent = [request.headers.get("authorization") for request in seen]
    assert sent[0] is not None
    assert sent == [sent[0], None, None, sent[0]]


def test_offline_sends_nothing() -> None:
    with (
        ScriptedServer({"/x": [Reply()]}) as server,
        client(offline=True) as http,
        pytest.raises(OfflineRefused, match="network is off"),
    ):
        http.read(server.url("/x", login="anna:secret@"), most=10)
    assert server.seen == []


def test_a_host_that_cannot_be_reached_is_named_without_its_login() -> None:
    with ScriptedServer({}) as server:
        pass  # its port is free again
    time = FakeTime()
    with (
        client(time, rules=RetryRules(attempts=2)) as http,
        pytest.raises(HttpFailed, match="cannot be reached") as failed,
    ):
        http.read(server.url("/x?token=secret", login="anna:secret@"), most=10)
    assert "secret" not in failed.value.message
    assert len(time.waits) == 1


def test_what_is_no_http_address_is_refused() -> None:
    with client() as http:
        for url in ("file:///etc/passwd", "not an address", "http://[broken"):
            with pytest.raises(HttpFailed):
                http.read(url, most=10)


def test_no_more_run_at_once_than_allowed_and_results_keep_their_order() -> None:
    running, most, guard = 0, 0, threading.Lock()
    together = threading.Barrier(3, timeout=20)

    def work(number: int) -> int:
        nonlocal running, most
        with guard:
            running += 1
            most = max(most, running)
        together.wait()
        with guard:
            running -= 1
        return number * 2

    with client(parallel=3) as http:
        assert http.each(work, range(12)) == [number * 2 for number in range(12)]
    assert most == 3


def test_the_first_failure_stops_what_has_not_begun() -> None:
    begun = []

    def work(number: int) -> None:
        begun.append(number)
        raise HttpFailed(f"number {number}")

    with client(parallel=1) as http, pytest.raises(HttpFailed, match="number 0"):
        http.each(work, range(50))
    assert len(begun) < 50


def test_stopping_ends_a_body_that_hangs() -> None:
    hold = threading.Event()
    reply = Reply(body=CONTENT, ranges=True, most=1000, hold=hold)
    with ScriptedServer({"/w.whl": [reply]}) as server, client() as http:
        failed: list[BaseException] = []
        begun = threading.Event()

        def read() -> None:
            try:
                with http.get(server.url("/w.whl"), {}) as answer:
                    for _ in answer.chunks:
                        begun.set()
            except HttpFailed as error:
                failed.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        assert begun.wait(20)
        http.stop()
        thread.join(20)
        assert not thread.is_alive()
        hold.set()
    assert len(failed) == 1
    assert len(server.seen) == 1
