"""Pages that are kept: they save bytes, and no answer hangs on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from qresolve.http.cache import Cache
from qresolve.http.failures import HttpFailed, OfflineRefused
from qresolve.http.pages import read_page
from tests.scripted_server import Reply, ScriptedServer
from tests.unit.http.http_support import client

if TYPE_CHECKING:
    from pathlib import Path


def _page(body: bytes, tag: str = '"one"', **headers: str) -> Reply:
    return Reply(body=body, headers={"ETag": tag, "Content-Type": "text/html", **headers})


HOLDS = Reply(status=304, headers={"ETag": '"one"'})


def test_a_page_that_still_holds_does_not_come_again(tmp_path: Path) -> None:
    with ScriptedServer({"/x": [_page(b"page"), HOLDS]}) as server:
        with client(cache=Cache(tmp_path)) as http:
            first = read_page(http, server.url("/x"), most=100)
        with client(cache=Cache(tmp_path)) as http:
            second = read_page(http, server.url("/x"), most=100)
            assert http.received == 0
    assert (
        (second.status, second.body, second.url)
        == (first.status, first.body, first.url)
        == (
            200,
            b"page",
            server.url("/x"),
        )
    )
    assert second.headers["content-type"] == "text/html"
    assert [seen.headers.get("if-none-match") for seen in server.seen] == [None, '"one"']


def test_a_page_that_changed_comes_and_is_kept(tmp_path: Path) -> None:
    replies = [_page(b"old"), _page(b"new", '"two"'), HOLDS]
    with ScriptedServer({"/x": replies}) as server, client(cache=Cache(tmp_path)) as http:
        bodies = [read_page(http, server.url("/x"), most=100).body for _ in range(3)]
    assert bodies == [b"old", b"new", b"new"]
    assert [seen.headers.get("if-none-match") for seen in server.seen] == [None, '"one"', '"two"']


@pytest.mark.parametrize("reply", [Reply(body=b"x"), _page(b"x", **{"Cache-Control": "private, no-store"})])
def test_what_has_no_tag_or_must_not_be_kept_is_not(reply: Reply, tmp_path: Path) -> None:
    with ScriptedServer({"/x": [reply]}) as server, client(cache=Cache(tmp_path)) as http:
        for _ in range(2):
            read_page(http, server.url("/x"), most=100)
    assert all("if-none-match" not in seen.headers for seen in server.seen)
    assert not list(tmp_path.rglob("entries/*/*/*"))


@pytest.mark.parametrize("status", [404, 401, 503])
def test_a_failure_is_never_answered_from_what_was_kept(status: int, tmp_path: Path) -> None:
    replies = [_page(b"page"), Reply(status=status)]
    with ScriptedServer({"/x": replies}) as server, client(cache=Cache(tmp_path)) as http:
        assert read_page(http, server.url("/x"), most=100).status == 200
        assert read_page(http, server.url("/x"), most=100).status == status


def test_a_page_that_is_led_elsewhere_is_asked_for_anew(tmp_path: Path) -> None:
    answers = {
        "/x": [_page(b"here"), Reply(status=302, headers={"Location": "/y"})],
        "/y": [HOLDS, Reply(body=b"there")],
    }
    with ScriptedServer(answers) as server, client(cache=Cache(tmp_path)) as http:
        assert read_page(http, server.url("/x"), most=100).body == b"here"
        assert read_page(http, server.url("/x"), most=100).body == b"there"


def test_a_damaged_entry_is_asked_for_without_its_tag(tmp_path: Path) -> None:
    with ScriptedServer({"/x": [_page(b"page")]}) as server, client(cache=Cache(tmp_path)) as http:
        read_page(http, server.url("/x"), most=100)
        (entry,) = tmp_path.rglob("entries/*/*/*")
        entry.write_bytes(entry.read_bytes()[:-1])
        assert read_page(http, server.url("/x"), most=100).body == b"page"
    assert [seen.headers.get("if-none-match") for seen in server.seen] == [None, None]


def test_the_kind_of_page_that_is_asked_for_is_part_of_the_key(tmp_path: Path) -> None:
    with ScriptedServer({"/x": [_page(b"page")]}) as server, client(cache=Cache(tmp_path)) as http:
        read_page(http, server.url("/x"), accept="text/html", most=100)
        read_page(http, server.url("/x"), accept="application/json", most=100)
    assert [seen.headers.get("if-none-match") for seen in server.seen] == [None, None]


def test_no_login_is_kept(tmp_path: Path) -> None:
    with ScriptedServer({"/x": [_page(b"page"), HOLDS]}) as server, client(cache=Cache(tmp_path)) as http:
        read_page(http, server.url("/x?token=t-secret", login="anna:p-secret@"), most=100)
        # Another login for the same page finds what was kept, and the server says whether it may have it.
        assert read_page(http, server.url("/x?token=t-secret", login="bob:b@"), most=100).body == b"page"
    for path in tmp_path.rglob("*"):
        held = path.read_bytes() if path.is_file() else b""
        assert not any(word in held + str(path).encode() for word in (b"secret", b"anna", b"token"))


def test_offline_nothing_is_answered_from_it(tmp_path: Path) -> None:
    with ScriptedServer({"/x": [_page(b"page")]}) as server:
        with client(cache=Cache(tmp_path)) as http:
            read_page(http, server.url("/x"), most=100)
        with client(cache=Cache(tmp_path), offline=True) as http, pytest.raises(OfflineRefused):
            read_page(http, server.url("/x"), most=100)


def test_a_page_that_is_too_long_is_not_kept(tmp_path: Path) -> None:
    with (
        ScriptedServer({"/x": [_page(b"x" * 100)]}) as server,
        client(cache=Cache(tmp_path)) as http,
        pytest.raises(HttpFailed, match="more than 10 bytes"),
    ):
        read_page(http, server.url("/x"), most=10)
    assert not list(tmp_path.rglob("entries/*/*/*"))
