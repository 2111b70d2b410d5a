"""The index as pip is set up: over loopback, with an index and credentials that only pip's environment names."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import json
import os
import threading
import zipfile
from typing import TYPE_CHECKING

import pytest

from qresolve.wheels.pip_index import IndexUnreachable, open_pip_index
from qresolve.wheels.ranges import RangesUnsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

FILENAME = "pkg-1.0-py3-none-any.whl"
CREDENTIALS = "Basic " + base64.b64encode(b"name:word").decode()


def _wheel() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("pkg/first.bin", b"first")
        archive.writestr("pkg/filler.bin", os.urandom(300_000))
    return out.getvalue()


class _Server(http.server.ThreadingHTTPServer):
    wheel = b""
    sha256: str | None = None
    ranges = True


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        if self.headers.get("Authorization") != CREDENTIALS:
            self._answer(401, b"", {"WWW-Authenticate": "Basic"})
        elif self.path == "/simple/pkg/":
            hashes = {} if self.server.sha256 is None else {"sha256": self.server.sha256}
            file = {"filename": FILENAME, "url": f"../../files/{FILENAME}", "hashes": hashes}
            file |= {"requires-python": ">=3.10", "upload-time": "2026-01-02T03:04:05Z"}
            source = {"filename": "pkg-1.0.tar.gz", "url": "pkg-1.0.tar.gz", "hashes": {}}
            page = {"meta": {"api-version": "1.0"}, "name": "pkg", "files": [source, file]}
            kind = {"Content-Type": "application/vnd.pypi.simple.v1+json"}
            self._answer(200, json.dumps(page).encode(), kind)
        elif self.path == f"/files/{FILENAME}":
            data, asked = self.server.wheel, self.headers.get("Range", "")
            if not self.server.ranges:
                self._answer(200, data, {})
                return
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, stop = (int(first), int(last) + 1) if first else (max(0, len(data) - int(last)), len(data))
            self._answer(206, data[start:stop], {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"})
        else:
            self._answer(404, b"", {})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Server]:
    started = _Server(("127.0.0.1", 0), _Handler)
    started.wheel = _wheel()
    started.sha256 = hashlib.sha256(started.wheel).hexdigest()
    for name in [name for name in os.environ if name.startswith("PIP_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://name:word@127.0.0.1:{started.server_address[1]}/simple")
    thread = threading.Thread(target=started.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield started
    started.shutdown()
    thread.join()
    started.server_close()


def test_files_and_members_come_from_the_index_that_pip_is_set_up_with(server: _Server) -> None:
    with open_pip_index() as index:
        (file,) = index.wheels("pkg")
        assert file.filename == FILENAME
        assert file.sha256 == server.sha256
        assert file.requires_python == ">=3.10"
        assert file.upload_time == "2026-01-02T03:04:05Z"
        wheel = index.open_wheel(file)
        assert wheel.size == len(server.wheel)
        assert wheel.read_member("pkg/first.bin") == b"first"


def test_an_unknown_project_is_a_typed_error_with_a_hint(server: _Server) -> None:
    with open_pip_index() as index, pytest.raises(IndexUnreachable) as caught:
        index.wheels("other")
    assert caught.value.hint == "pip index versions other"
    assert "word" not in caught.value.message


def test_a_file_without_sha256_is_refused(server: _Server) -> None:
    server.sha256 = None
    with open_pip_index() as index, pytest.raises(IndexUnreachable, match="sha256"):
        index.wheels("pkg")


def test_a_server_without_ranges_is_a_typed_error(server: _Server) -> None:
    server.ranges = False
    with open_pip_index() as index:
        (file,) = index.wheels("pkg")
        with pytest.raises(RangesUnsupported, match=FILENAME):
            index.open_wheel(file)
