"""The list of a project's files on an index (Simple API, JSON or HTML): to explain a failure, to check hashes."""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from qresolve.closure.indexes import redact_url, searched_urls
from qresolve.http.credentials import without_login

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qresolve.closure.indexes import UserIndexes
    from qresolve.closure.request import NamedIndex
    from qresolve.http.client import HttpClient
    from qresolve.lock.model import LockedWheel

_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_SHA256 = re.compile(r"(?:^|&)sha256=([0-9a-fA-F]{64})(?:&|$)")
_OK = 200
_MOST = 64 * 1024 * 1024  # bytes of one page; the largest known are below 20 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectFile:
    """One file. ``upload_time`` is RFC 3339 text, None where the index does not say. ``yanked`` is its reason.

    ``url`` is the address as the page gives it, relative or not; ``sha256`` is None where the index gives none.
    """

    filename: str
    requires_python: str | None = None
    upload_time: str | None = None
    yanked: str | None = None
    url: str | None = None
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What an index says of a project: the answer's status (None: not asked), its files where it was 200."""

    status: int | None
    files: tuple[ProjectFile, ...] | None = None


def parse_simple_json(text: str) -> tuple[ProjectFile, ...]:
    """The files of a JSON page; what is no such page has none."""
    try:
        document = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return ()
    rows = document.get("files", ()) if isinstance(document, dict) else ()
    named = (row for row in rows if isinstance(row, dict) and isinstance(row.get("filename"), str))
    return tuple(_parse_row(row) for row in named if _is_file_name(row["filename"]))


def _is_file_name(text: str) -> bool:
    """Whether it names a file and no way to another folder: an index is not trusted."""
    return text not in ("", ".", "..") and not any(letter in text for letter in "/\\\0")


def _parse_row(row: dict[str, Any]) -> ProjectFile:
    yanked = row.get("yanked", False)
    hashes, size = row.get("hashes"), row.get("size")
    sha256 = hashes.get("sha256") if isinstance(hashes, dict) else None
    return ProjectFile(
        filename=row["filename"],
        requires_python=row.get("requires-python") or None,
        upload_time=row.get("upload-time") or None,
        yanked=None if yanked is False else ("" if yanked is True else str(yanked)),
        url=row["url"] if isinstance(row.get("url"), str) else None,
        sha256=sha256.lower() if isinstance(sha256, str) else None,
        size=size if isinstance(size, int) else None,
    )


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.files: list[ProjectFile] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        href = values.get("href")
        filename = unquote(urlsplit(href or "").path.rsplit("/", 1)[-1])
        if tag != "a" or not href or not _is_file_name(filename):
            return
        requires = values.get("data-requires-python")
        self.files.append(
            ProjectFile(
                filename=filename,
                requires_python=html.unescape(requires) if requires else None,
                yanked=(values["data-yanked"] or "") if "data-yanked" in values else None,
                url=href.partition("#")[0],
                sha256=(match[1].lower() if (match := _SHA256.search(urlsplit(href).fragment)) else None),
            )
        )


def parse_simple_html(text: str) -> tuple[ProjectFile, ...]:
    """The files of an HTML page."""
    parser = _Anchors()
    parser.feed(text)
    return tuple(parser.files)


def read_project_files(project: str, urls: Iterable[str], client: HttpClient) -> tuple[ProjectFile, ...] | None:
    """The files of ``project`` on the first of ``urls`` that has it; None where none could be asked.

    Raises:
        InsecureRedirect: an index leads from https to plain http.
    """
    from qresolve.http.failures import HttpFailed  # noqa: PLC0415

    for url in urls:
        try:
            listing = read_listing(project, url, client)
        except HttpFailed:
            continue
        if listing.files is not None:
            return listing.files
    return None


def read_listing(project: str, url: str, client: HttpClient) -> Listing:
    """What one index lists of ``project``. Addresses are made absolute, and hold no login.

    Raises:
        HttpFailed: it does not answer, after all attempts.
        InsecureRedirect: it leads from https to plain http.
    """
    from qresolve.closure.redirects import no_downgrade  # noqa: PLC0415
    from qresolve.http.failures import HttpFailed  # noqa: PLC0415
    from qresolve.http.pages import read_page  # noqa: PLC0415
    from qresolve.http.retries import is_retriable_status  # noqa: PLC0415

    if not re.fullmatch(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?", project) or urlsplit(url).scheme not in ("http", "https"):
        return Listing(status=None)
    address = project_url(url, project)
    with no_downgrade():
        answer = read_page(client, address, accept=_ACCEPT, most=_MOST)
    if is_retriable_status(answer.status):
        raise HttpFailed(f"{redact_url(address)}: HTTP {answer.status}")
    if answer.status != _OK:
        return Listing(status=answer.status)
    text, base = answer.body.decode("utf-8", "replace"), without_login(answer.url)
    files = parse_simple_json(text) if "json" in answer.headers.get("content-type", "") else parse_simple_html(text)
    absolute = tuple(replace(file, url=without_login(urljoin(base, file.url))) if file.url else file for file in files)
    return Listing(status=answer.status, files=absolute)


def addresses_of(project: str, named: Iterable[NamedIndex], indexes: UserIndexes) -> tuple[str, ...]:
    """The indexes that may list the project, without logins: its own first, and of those no page of links."""
    own = [index.url for index in named if project in index.packages and not index.flat]
    return tuple(dict.fromkeys(without_login(url) for url in (*own, *searched_urls(indexes))))


def lists_wheel(files: Iterable[ProjectFile], wheel: LockedWheel) -> bool:
    """Whether the locked wheel is among the files of an index."""
    return any(file.filename == wheel.file and file.sha256 in (None, wheel.sha256) for file in files)


def project_url(index: str, project: str) -> str:
    """The address of a project's page; a query of the index's address stays where it is."""
    parts = urlsplit(index)
    return urlunsplit((parts.scheme, parts.netloc, f"{parts.path.rstrip('/')}/{project}/", parts.query, ""))
