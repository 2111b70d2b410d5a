"""A package index on this machine for tests: little wheels made on the fly, and every way an index goes wrong.

    wheel = make_wheel("torch", "2.14.0", requires=("cuda-toolkit==13.0.3",), tag="cp312-cp312-manylinux_2_28_x86_64")
    with IndexServer() as server:
        server.add(wheel)
        server.add(make_wheel("torch", "2.15.0"), yanked="broken", upload_time="2026-11-30T10:00:00Z")
        uv pip compile --default-index {server.url} ...

* ``server.url`` is the Simple API's root (PEP 503 HTML and PEP 691 JSON by the Accept header; ``formats`` limits
  it to one of them). Files give size, sha256, upload-time (None: the index does not say), requires-python, yanked
  and, with ``core_metadata=True``, the METADATA beside the wheel. Range requests work unless ``ranges=False``.
* ``IndexServer(user="anna", password="secret")`` answers 401 without that basic authentication;
  ``server.url_with_credentials`` holds them.
* ``server.fail("torch", 503)`` answers that status for a project's page; ``add(..., status=404)`` for one file;
  ``truncate=10`` sends only that many bytes, ``sha256="0"*64`` a wrong hash, ``broken=True`` closes the connection.
* ``server.fail("torch", 500, times=1)`` fails once and then answers; ``server.cut("torch", times=1)`` breaks a page off
  in the middle; ``server.stall("torch")`` answers a page only when the server ends; ``server.redirect("torch", url)``
  and ``server.redirect(wheel.filename, url)`` lead elsewhere.
* ``IndexServer(etags=True)`` gives pages an ETag, wants them asked for again each time, and answers 304 where it holds.
* ``IndexServer(certificate=self_signed(folder))`` speaks https; clients need ``SSL_CERT_FILE``.
* ``fail``, ``cut`` and ``stall`` with ``of="qresolve"`` (or ``of="uv"``) misbehave towards that program alone.
* ``IndexServer(files_at="http://localhost:9/files")`` names another place for the files that its pages list.
* It answers as a proxy too: whatever host is asked for, it is the index.
* ``labelled(wheel, "cu13")`` is a variant wheel, ``make_variants(...)`` the ``*-variants.json`` beside it.
* ``server.requests`` lists what was asked for, as ``"GET /simple/torch/"``; ``server.answers`` has the status too, and
  ``server.seen`` the headers (names in lower case).
* ``folder_of(wheels, path)`` writes them as files, for ``--find-links`` or a ``file:`` index.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import re
import shutil
import ssl
import subprocess
import threading
import zipfile
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

_JSON = "application/vnd.pypi.simple.v1+json"
_HTML = "application/vnd.pypi.simple.v1+html"
_RANGE = re.compile(r"bytes=(\d*)-(\d*)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeWheel:
    """A wheel in memory."""

    name: str
    version: str
    filename: str
    content: bytes
    metadata: bytes
    requires_python: str | None

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def make_wheel(
    name: str,
    version: str,
    requires: Iterable[str] = (),
    tag: str = "py3-none-any",
    files: Mapping[str, str | bytes] | None = None,
    *,
    requires_python: str | None = None,
    extras: Iterable[str] = (),
    build: str | None = None,
) -> MadeWheel:
    """A wheel that can be installed; the same arguments give the same bytes."""
    stem = f"{normalize(name).replace('-', '_')}-{version}"
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}"]
    if requires_python is not None:
        lines.append(f"Requires-Python: {requires_python}")
    lines += [f"Provides-Extra: {extra}" for extra in extras]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    metadata = ("\n".join(lines) + "\n").encode()
    python, abi, platforms = tag.split("-")
    tags = "".join(f"Tag: {python}-{abi}-{platform}\n" for platform in platforms.split("."))
    pure = "true" if platforms == "any" else "false"
    members = {
        path: content if isinstance(content, bytes) else content.encode() for path, content in (files or {}).items()
    }
    members[f"{stem}.dist-info/METADATA"] = metadata
    members[f"{stem}.dist-info/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: {pure}\n{tags}".encode()
    )
    rows = []
    for path, content in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(content)}")
    record = f"{stem}.dist-info/RECORD"
    members[record] = ("\n".join([*rows, f"{record},,"]) + "\n").encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in members.items():
            archive.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), content)
    middle = f"-{build}" if build else ""
    return MadeWheel(
        name=normalize(name),
        version=version,
        filename=f"{stem}{middle}-{tag}.whl",
        content=buffer.getvalue(),
        metadata=metadata,
        requires_python=requires_python,
    )


def labelled(wheel: MadeWheel, label: str) -> MadeWheel:
    """The wheel as a variant wheel: with a label behind its tags."""
    return replace(wheel, filename=f"{wheel.filename.removesuffix('.whl')}-{label}.whl")


def make_variants(
    name: str,
    version: str,
    variants: Mapping[str, Mapping[str, Mapping[str, Iterable[str]]]],
    *,
    namespaces: Iterable[str] = ("nvidia",),
    providers: Mapping[str, object] | None = None,
) -> MadeWheel:
    """The ``*-variants.json`` of a release, as a file to add to the index."""
    document = {
        "$schema": "https://variants-schema.wheelnext.dev/v0.2.0.json",
        "default-priorities": {"namespace": list(namespaces)},
        "providers": dict(providers or {}),
        "variants": {
            label: {
                space: {key: list(values) for key, values in features.items()} for space, features in spaces.items()
            }
            for label, spaces in variants.items()
        },
    }
    return MadeWheel(
        name=normalize(name),
        version=version,
        filename=f"{normalize(name).replace('-', '_')}-{version}-variants.json",
        content=json.dumps(document).encode(),
        metadata=b"",
        requires_python=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A server's certificate and key, and the ``certificate`` of the authority that signed it, for clients."""

    certificate: Path
    server: Path
    key: Path


def self_signed(folder: Path) -> Certificate | None:
    """Fresh ones for 127.0.0.1 and localhost, by the openssl command; None where there is none.

    An authority and a server that it signed: uv refuses a server that is its own authority.
    """
    openssl = shutil.which("openssl")
    if openssl is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    made = Certificate(certificate=folder / "certificate.pem", server=folder / "server.pem", key=folder / "key.pem")
    new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    authority_key = folder / "authority-key.pem"
    authority = ["-subj", "/CN=qresolve tests", "-addext", "basicConstraints=critical,CA:TRUE"]
    authority += ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    server = ["-subj", "/CN=localhost", "-addext", "basicConstraints=critical,CA:FALSE"]
    server += ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-addext", "extendedKeyUsage=serverAuth"]
    for words in (
        [*new, *authority, "-keyout", str(authority_key), "-out", str(made.certificate)],
        [*new, *server, "-CA", str(made.certificate), "-CAkey", str(authority_key),
         "-keyout", str(made.key), "-out", str(made.server)],
    ):  # fmt: skip
        subprocess.run([openssl, *words], check=True, capture_output=True)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request, header names in lower case."""

    line: str
    headers: Mapping[str, str]

    @property
    def login(self) -> str | None:
        """The ``user:password`` that came with it."""
        found = self.headers.get("authorization")
        return None if found is None else base64.b64decode(found.removeprefix("Basic ")).decode()


def folder_of(wheels: Iterable[MadeWheel], folder: Path) -> Path:
    """Write the wheels into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for wheel in wheels:
        (folder / wheel.filename).write_bytes(wheel.content)
    return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFile:
    """One file on the index and how it misbehaves."""

    wheel: MadeWheel
    upload_time: str | None
    yanked: bool | str
    core_metadata: bool
    sha256: str
    truncate: int | None
    status: int
    broken: bool
    ranges: bool


class IndexServer:
    """See the module's docstring. Started by ``with``."""

    def __init__(
        self,
        *,
        user: str | None = None,
        password: str | None = None,
        formats: tuple[str, ...] = ("json", "html"),
        etags: bool = False,
        certificate: Certificate | None = None,
        files_at: str | None = None,
    ) -> None:
        self.user, self.password, self.formats, self.etags = user, password, formats, etags
        self.scheme = "http" if certificate is None else "https"
        self.files_at = files_at
        self.requests: list[str] = []
        self.seen: list[Seen] = []
        self.answers: list[tuple[str, int]] = []
        self.redirects: dict[str, str] = {}
        self.cuts: dict[tuple[str, str], int] = {}
        self.stalled: set[str | tuple[str, str]] = set()
        self.replaced: dict[str, bytes | None] = {}
        self.reached = threading.Event()  # a page that is stalled was asked for
        self.ending = threading.Event()
        self.projects: dict[str, list[ServedFile]] = {}
        self.failures: dict[tuple[str, str], tuple[int, int | None]] = {}
        handler = type("Handler", (_Handler,), {"index": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate.server, certificate.key)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ending.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/simple"

    @property
    def url_with_credentials(self) -> str:
        user, password = quote(self.user or "", safe=""), quote(self.password or "", safe="")
        return f"{self.scheme}://{user}:{password}@127.0.0.1:{self.port}/simple"

    def add(
        self,
        *wheels: MadeWheel,
        upload_time: str | None = "2026-01-01T00:00:00Z",
        yanked: bool | str = False,
        core_metadata: bool = True,
        sha256: str | None = None,
        truncate: int | None = None,
        status: int = 200,
        broken: bool = False,
        ranges: bool = True,
    ) -> Self:
        for wheel in wheels:
            served = ServedFile(
                wheel=wheel,
                upload_time=upload_time,
                yanked=yanked,
                core_metadata=core_metadata,
                sha256=sha256 or wheel.sha256,
                truncate=truncate,
                status=status,
                broken=broken,
                ranges=ranges,
            )
            self.projects.setdefault(wheel.name, []).append(served)
        return self

    def fail(self, project: str, status: int, *, times: int | None = None, of: str = "") -> None:
        """Answer ``status`` for the page of ``project``, the next ``times`` times or always.

        ``of`` is how the name of the program begins that meets it (``User-Agent``); empty: all.
        """
        self.failures[normalize(project), of] = (status, times)

    def cut(self, project: str, *, times: int, of: str = "") -> None:
        """Break the page of ``project`` off in the middle, the next ``times`` times."""
        self.cuts[normalize(project), of] = times

    def replace(self, filename: str, content: bytes | None) -> None:
        """From now on serve other bytes under a file's name; None: it is gone."""
        self.replaced[filename] = content

    def stall(self, project: str, *, of: str = "") -> None:
        """Do not answer for the page of ``project`` before the server ends."""
        self.stalled.add((normalize(project), of))

    def redirect(self, what: str, url: str) -> None:
        """Lead from the page of a project, or from a file by its name, to ``url``."""
        self.redirects[what if "." in what else normalize(what)] = url


class _Handler(BaseHTTPRequestHandler):
    index: IndexServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that the base class has
        """Tests look at ``server.requests`` instead."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)  # a proxy is asked with the whole address
        self.index.requests.append(f"{self.command} {path}")
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.index.seen.append(Seen(line=f"{self.command} {path}", headers=headers))
        if self.index.user is not None:
            expected = base64.b64encode(f"{self.index.user}:{self.index.password}".encode()).decode()
            if self.headers.get("Authorization") != f"Basic {expected}":
                self._send(401, b"", {"WWW-Authenticate": 'Basic realm="tests"'})
                return
        parts = path.strip("/").split("/")
        if parts[0] == "simple" and len(parts) == 2:
            self._page(normalize(parts[1]))
        elif parts[0] == "files" and len(parts) == 2:
            self._file(parts[1])
        else:
            self._send(404, b"")

    def _page(self, project: str) -> None:
        if any((project, of) in self.index.stalled for of in self._programs()):
            self.index.reached.set()
            self.index.ending.wait()
            self.close_connection = True
            return
        if project in self.index.redirects:
            self._send(302, b"", {"Location": self.index.redirects[project]})
            return
        met = next(((project, of) for of in self._programs() if (project, of) in self.index.failures), (project, ""))
        status, times = self.index.failures.get(met, (None, None))
        if times is not None and status is not None:
            if times > 0:
                self.index.failures[met] = (status, times - 1)
            else:
                status = None
        served = self.index.projects.get(project)
        if status is not None or served is None:
            self._send(status or 404, b"")
            return
        accept = self.headers.get("Accept", "")
        if "json" in self.index.formats and ("json" in accept or self.index.formats == ("json",)):
            self._text(project, self._json(project, served), {"Content-Type": _JSON})
        else:
            self._text(project, self._html(project, served), {"Content-Type": _HTML})

    def _programs(self) -> tuple[str, ...]:
        """What ``of`` may be for this request."""
        return ("", self.headers.get("User-Agent", "").partition("/")[0].lower())

    def _text(self, project: str, body: bytes, headers: dict[str, str]) -> None:
        """A page, whole or cut, or that the client's copy still holds."""
        if self.index.etags:
            headers |= {"ETag": f'"{hashlib.sha256(body).hexdigest()}"', "Cache-Control": "max-age=0"}
            if self.headers.get("If-None-Match") == headers["ETag"]:
                self._send(304, b"", headers)
                return
        cut = next(((project, of) for of in self._programs() if self.index.cuts.get((project, of), 0) > 0), None)
        if cut is not None:
            self.index.cuts[cut] -= 1
            self._send(200, body[: len(body) // 2], headers, length=len(body))
            self.close_connection = True
            return
        self._send(200, body, headers)

    def _url(self, served: ServedFile) -> str:
        place = self.index.files_at or f"{self.index.scheme}://127.0.0.1:{self.index.port}/files"
        return f"{place}/{quote(served.wheel.filename)}"

    def _json(self, project: str, files: list[ServedFile]) -> bytes:
        rows = []
        for served in files:
            row: dict[str, object] = {
                "filename": served.wheel.filename,
                "url": self._url(served),
                "hashes": {"sha256": served.sha256},
                "size": len(served.wheel.content),
                "yanked": served.yanked,
            }
            if served.wheel.requires_python is not None:
                row["requires-python"] = served.wheel.requires_python
            if served.upload_time is not None:
                row["upload-time"] = served.upload_time
            if served.core_metadata:
                row["core-metadata"] = {"sha256": hashlib.sha256(served.wheel.metadata).hexdigest()}
            rows.append(row)
        versions = sorted({served.wheel.version for served in files})
        document = {"meta": {"api-version": "1.1"}, "name": project, "versions": versions, "files": rows}
        return json.dumps(document).encode()

    def _html(self, project: str, files: list[ServedFile]) -> bytes:
        lines = ["<!DOCTYPE html><html><head><meta name='pypi:repository-version' content='1.0'></head><body>"]
        for served in files:
            attributes = ""
            if served.wheel.requires_python is not None:
                attributes += f' data-requires-python="{html.escape(served.wheel.requires_python)}"'
            if served.yanked is not False:
                attributes += f' data-yanked="{html.escape(str(served.yanked))}"'
            if served.core_metadata:
                attributes += f' data-core-metadata="sha256={hashlib.sha256(served.wheel.metadata).hexdigest()}"'
            url = f"{self._url(served)}#sha256={served.sha256}"
            lines.append(f'<a href="{url}"{attributes}>{served.wheel.filename}</a>')
        return "\n".join([*lines, "</body></html>"]).encode()

    def _file(self, name: str) -> None:
        plain = name.removesuffix(".metadata")
        served = next((s for files in self.index.projects.values() for s in files if s.wheel.filename == plain), None)
        if served is None or (name != plain and not served.core_metadata):
            self._send(404, b"")
            return
        if name in self.index.redirects:
            self._send(302, b"", {"Location": self.index.redirects[name]})
            return
        if name != plain:
            self._send(200, served.wheel.metadata)
            return
        if served.broken:
            self.close_connection = True
            return
        if served.status != 200:
            self._send(served.status, b"")
            return
        if name in self.index.stalled:
            self.index.ending.wait()
            return
        content = self.index.replaced.get(name, served.wheel.content)
        if content is None:
            self._send(404, b"")
            return
        self._content(served, content)

    def _content(self, served: ServedFile, content: bytes) -> None:
        headers = {"Accept-Ranges": "bytes"} if served.ranges else {}
        match = _RANGE.match(self.headers.get("Range", "")) if served.ranges else None
        status, body = 200, content
        if match is not None and (match[1] or match[2]):
            if match[1]:
                start, stop = int(match[1]), min(int(match[2] or len(content) - 1) + 1, len(content))
            else:
                start, stop = max(0, len(content) - int(match[2])), len(content)
            if start >= len(content):
                self._send(416, b"", {"Content-Range": f"bytes */{len(content)}"})
                return
            status, body = 206, content[start:stop]
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(content)}"
        if served.truncate is not None:
            # Promises the whole and sends less: what a broken proxy does.
            self._send(status, body[: served.truncate], headers, length=len(body))
            self.close_connection = True
            return
        self._send(status, body, headers)

    def _send(
        self, status: int, body: bytes, headers: Mapping[str, str] | None = None, *, length: int | None = None
    ) -> None:
        self.index.answers.append((f"{self.command} {unquote(self.path)}", status))
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
