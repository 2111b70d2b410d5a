"""A server on this machine that answers by a script, for tests of HTTP itself.

    replies = [Reply(body=content, ranges=True, most=100), Reply(body=content, ranges=True)]
    with ScriptedServer({"/a.whl": replies}) as server:
        server.url("/a.whl")

``answers[path]`` is a list of :class:`Reply`; each request takes the next one, and the last one stays.
``server.seen`` lists the requests with their headers.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

_RANGE = re.compile(r"bytes=(\d*)-(\d*)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer. ``ranges``: Range is served; ``most``: the connection closes after so many bytes of the body."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    ranges: bool = False
    most: int | None = None
    drop: bool = False  # closes the connection without an answer
    hold: threading.Event | None = None  # sends ``most`` bytes, then waits for this


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request, header names in lower case."""

    path: str
    headers: Mapping[str, str]


class ScriptedServer:
    """See the module's docstring. Started by ``with``."""

    def __init__(self, answers: Mapping[str, list[Reply]]) -> None:
        self.answers = {path: list(replies) for path, replies in answers.items()}
        self.seen: list[Seen] = []
        self._guard = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Answering,), {"script": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def url(self, path: str, *, login: str = "") -> str:
        return f"http://{login}127.0.0.1:{self.port}{path}"

    def take(self, path: str, headers: Mapping[str, str]) -> Reply:
        with self._guard:
            self.seen.append(Seen(path=path, headers=headers))
            replies = self.answers.get(path.partition("?")[0], [])
            if not replies:
                return Reply(status=404)
            return replies.pop(0) if len(replies) > 1 else replies[0]


class _Answering(BaseHTTPRequestHandler):
    script: ScriptedServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that the base class has
        """Tests look at ``seen``."""

    def do_GET(self) -> None:
        reply = self.script.take(self.path, {name.lower(): value for name, value in self.headers.items()})
        if reply.drop:
            self.close_connection = True
            return
        status, body, headers = reply.status, reply.body, dict(reply.headers)
        match = _RANGE.match(self.headers.get("Range", "")) if reply.ranges else None
        unchanged = self.headers.get("If-Range") in (None, headers.get("ETag"))
        if match is not None and status == 200 and unchanged:
            size = len(body)
            start = int(match[1]) if match[1] else max(0, size - int(match[2]))
            stop = min(int(match[2]) + 1, size) if match[1] and match[2] else size
            if start >= size:
                status, body = 416, b""
                headers["Content-Range"] = f"bytes */{size}"
            else:
                status, body = 206, body[start:stop]
                headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if reply.most is None else body[: reply.most])
        if reply.hold is not None:
            self.wfile.flush()
            reply.hold.wait(30)
        if reply.most is not None:
            self.close_connection = True
