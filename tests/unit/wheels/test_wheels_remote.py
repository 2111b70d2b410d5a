"""Members of a wheel, from a file and over loopback HTTP, and wheels that lie."""

from __future__ import annotations

import http.server
import io
import re
import struct
import threading
import zipfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.http.failures import HttpFailed
from qresolve.wheels.ranges import HttpRanges, RangesInvalid, RangesUnsupported
from qresolve.wheels.remote import ReadLimits, WheelInvalid, ZipWheel, check_member_name, open_local_wheel
from tests.unit.http.http_support import client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LARGE = bytes(range(256)) * 4000
MEMBERS = {"pkg/__init__.py": b"x = 1\n", "pkg/large.bin": LARGE, "pkg-1.dist-info/RECORD": b"", "pkg/empty": b""}


def _zip(members: dict[str, bytes], *, method: int = zipfile.ZIP_DEFLATED, extra: bytes = b"") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type, info.extra = method, extra
            archive.writestr(info, data)
    return out.getvalue()


class _Server(http.server.ThreadingHTTPServer):
    data = b""
    ranges = True
    shift = 0  # answers with a range that starts this much later than asked
    tag = "one"
    requests: list[str]


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range", "")
        self.server.requests.append(asked)
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", asked)
        data = self.server.data
        if match is None or not self.server.ranges:
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            return
        if match[1]:
            start, stop = int(match[1]) + self.server.shift, int(match[2]) + 1
        else:
            start, stop = max(0, len(data) - int(match[2])), len(data)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
        self.send_header("Content-Length", str(stop - start))
        self.send_header("ETag", self.server.tag)
        self.end_headers()
        self.wfile.write(data[start:stop])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@contextmanager
def _serve(data: bytes) -> Iterator[tuple[_Server, str]]:
    server = _Server(("127.0.0.1", 0), _Handler)
    server.data, server.requests = data, []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server, f"http://127.0.0.1:{server.server_address[1]}/pkg-1-py3-none-any.whl?token=secret"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def _remote(data: bytes) -> Iterator[tuple[_Server, HttpRanges]]:
    with _serve(data) as (server, url), client() as http:
        yield server, HttpRanges(http, url)


class _Bytes:
    """A source in memory, in small pieces."""

    def __init__(self, data: bytes, *, piece: int = 1000) -> None:
        self._data, self._piece, self.size = data, piece, len(data)

    def stream(self, start: int, stop: int) -> Iterator[bytes]:
        for position in range(start, stop, self._piece):
            yield self._data[position : min(position + self._piece, stop)]


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_members_over_http_are_those_of_the_file(method: int) -> None:
    data = _zip(MEMBERS, method=method)
    with _remote(data) as (_, source):
        wheel = ZipWheel(source)
        assert wheel.size == len(data)
        assert wheel.member_names() == tuple(MEMBERS)
        assert {name: wheel.read_member(name) for name in MEMBERS} == MEMBERS
        assert wheel.member_size("pkg/large.bin") == len(LARGE)


def test_members_of_a_local_file(tmp_path: Path) -> None:
    path = tmp_path / "w.whl"
    path.write_bytes(_zip(MEMBERS))
    wheel = open_local_wheel(path)
    assert {name: wheel.read_member(name) for name in wheel.member_names()} == MEMBERS


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(WheelInvalid, match=r"gone\.whl"):
        open_local_wheel(tmp_path / "gone.whl")


def test_a_large_wheel_costs_one_request_and_one_more_for_each_distant_member() -> None:
    members = {"pkg/first.bin": b"first" * 10, "pkg/filler.bin": LARGE, "pkg-1.dist-info/METADATA": b"Name: pkg\n"}
    with _remote(_zip(members, method=zipfile.ZIP_STORED)) as (server, source):
        wheel = ZipWheel(source)
        assert wheel.read_member("pkg-1.dist-info/METADATA") == b"Name: pkg\n"
        assert len(server.requests) == 1
        assert wheel.read_member("pkg/first.bin") == b"first" * 10
        assert len(server.requests) == 2


def test_no_ranges_is_an_error_of_its_own_and_names_no_secret() -> None:
    with _serve(_zip(MEMBERS)) as (server, url), client() as http:
        server.ranges = False
        with pytest.raises(RangesUnsupported) as caught:
            HttpRanges(http, url)
    assert "pkg-1-py3-none-any.whl" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "127.0.0.1" not in str(caught.value)


def test_another_range_than_asked_for_is_refused() -> None:
    with _remote(_zip(MEMBERS, method=zipfile.ZIP_STORED)) as (server, source):
        wheel = ZipWheel(source)
        server.shift = 1
        with pytest.raises(RangesInvalid, match="instead of"):
            wheel.read_member("pkg/large.bin")


@pytest.mark.parametrize("change", ["tag", "size"])
def test_a_file_that_changes_while_it_is_read_is_refused(change: str) -> None:
    with _remote(_zip(MEMBERS, method=zipfile.ZIP_STORED)) as (server, source):
        wheel = ZipWheel(source)
        if change == "tag":
            server.tag = "two"
        else:
            server.data += b"more"
        with pytest.raises(RangesInvalid, match="changed"):
            wheel.read_member("pkg/large.bin")


def test_a_server_that_is_gone_is_a_typed_error() -> None:
    with _serve(b"") as (_, url):
        pass
    with client() as http, pytest.raises(HttpFailed):
        HttpRanges(http, url)


def test_zip64_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    data = _zip(MEMBERS, method=zipfile.ZIP_STORED)
    monkeypatch.undo()
    assert b"PK\x06\x06" in data  # the zip64 end record
    wheel = ZipWheel(_Bytes(data))
    assert {name: wheel.read_member(name) for name in MEMBERS} == MEMBERS


def test_a_local_header_with_a_long_extra_field_is_read() -> None:
    extra = struct.pack("<HH", 0xCAFE, 9000) + b"\0" * 9000
    wheel = ZipWheel(_Bytes(_zip({"a": LARGE, "b": b"last"}, extra=extra)))
    assert wheel.read_member("a") == LARGE
    assert wheel.read_member("b") == b"last"


@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.binary(max_size=3000), max_size=5), st.booleans()
)
def test_what_was_written_is_read(members: dict[str, bytes], stored: bool) -> None:
    method = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    wheel = ZipWheel(_Bytes(_zip(members, method=method), piece=7))
    assert {name: wheel.read_member(name) for name in wheel.member_names()} == members


@pytest.mark.parametrize(
    "name", ["../x", "a/../../x", "/etc/x", "a//b", "./a", "C:/x", "a\\..\\x", "a\nb", "", "..", "a/.."]
)
def test_names_that_may_leave_the_folder_are_refused(name: str) -> None:
    with pytest.raises(WheelInvalid, match="leave"):
        check_member_name(name)


@pytest.mark.parametrize("name", ["a", "a/b.so", "a/", "a.dist-info/RECORD", "..a/b..", "ä/b"])
def test_usual_names_are_taken(name: str) -> None:
    check_member_name(name)


def test_an_escaping_member_makes_the_wheel_unreadable() -> None:
    with pytest.raises(WheelInvalid, match="leave"):
        ZipWheel(_Bytes(_zip({"../outside": b"x"})))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_stands_twice_is_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a", b"1")
        archive.writestr("a", b"2")
    with pytest.raises(WheelInvalid, match="twice"):
        ZipWheel(_Bytes(out.getvalue()))


def _with_table_field(data: bytes, offset: int, value: int) -> bytes:
    """``data`` with a 32-bit field of its first table entry changed."""
    at = data.index(b"PK\x01\x02") + offset
    return data[:at] + struct.pack("<I", value) + data[at + 4 :]


@pytest.mark.parametrize(
    ("offset", "value", "problem"),
    [
        (24, 10, "longer than"),
        (24, len(LARGE) + 1, "instead of"),
        (16, 1, "checksum"),
        (42, 5, "no member starts"),
        (20, 2**31, "run into the table"),
        (20, 20, "cut off|instead of"),
    ],
)
def test_a_lying_table_is_refused(offset: int, value: int, problem: str) -> None:
    wheel = ZipWheel(_Bytes(_with_table_field(_zip({"a": LARGE}), offset, value)))
    with pytest.raises(WheelInvalid, match=problem):
        wheel.read_member("a")


def test_a_bomb_is_refused_before_it_is_read() -> None:
    data = _zip({"bomb": b"\0" * 3_000_000})
    wheel = ZipWheel(_Bytes(data), limits=ReadLimits(ratio=400, ratio_from=1_000_000))
    with pytest.raises(WheelInvalid, match="would grow"):
        wheel.read_member("bomb")


def test_a_bomb_that_declares_little_is_stopped_at_what_it_declares() -> None:
    wheel = ZipWheel(_Bytes(_with_table_field(_zip({"bomb": b"\0" * 30_000_000}), 24, 1000)))
    with pytest.raises(WheelInvalid, match="longer than the 1000"):
        wheel.read_member("bomb")


def test_the_absolute_limit_holds() -> None:
    wheel = ZipWheel(_Bytes(_zip({"a": LARGE})), limits=ReadLimits(member=len(LARGE) - 1))
    with pytest.raises(WheelInvalid, match="limit"):
        wheel.read_member("a")


def test_a_table_that_claims_to_be_huge_is_refused() -> None:
    data = _zip({f"member{number}": b"" for number in range(200)})
    with pytest.raises(WheelInvalid, match="table"):
        ZipWheel(_Bytes(data), limits=ReadLimits(table=1000))


@pytest.mark.parametrize("data", [b"", b"PK", b"not a zip" * 100])
def test_what_is_no_zip_is_refused(data: bytes) -> None:
    with pytest.raises(WheelInvalid, match="zip"):
        ZipWheel(_Bytes(data))


def test_an_unknown_member_is_named() -> None:
    with pytest.raises(WheelInvalid, match="no member 'nothing"):
        ZipWheel(_Bytes(_zip(MEMBERS))).read_member("nothing.so")


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=6))
def test_a_damaged_zip_is_read_or_refused_but_nothing_else(changes: list[tuple[int, int]]) -> None:
    data = bytearray(_zip({"a": b"hello" * 50, "b/c": b"x"}))
    for position, value in changes:
        data[position % len(data)] = value
    try:
        wheel = ZipWheel(_Bytes(bytes(data)))
        for name in wheel.member_names():
            assert len(wheel.read_member(name)) == wheel.member_size(name)
    except (WheelInvalid, RangesInvalid):
        return
