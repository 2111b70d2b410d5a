"""The list of a project's files on an index (Simple API, JSON or HTML), read to explain a failure."""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable

_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_MOST = 64 * 1024 * 1024  # bytes of one page; the largest known are below 20 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectFile:
    """One file. ``upload_time`` is RFC 3339 text, None where the index does not say. ``yanked`` is its reason."""

    filename: str
    requires_python: str | None = None
    upload_time: str | None = None
    yanked: str | None = None


def parse_simple_json(text: str) -> tuple[ProjectFile, ...]:
    """The files of a JSON page; what is no such page has none."""
    try:
        document = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return ()
    rows = document.get("files", ()) if isinstance(document, dict) else ()
    return tuple(_parse_row(row) for row in rows if isinstance(row, dict) and isinstance(row.get("filename"), str))


def _parse_row(row: dict[str, Any]) -> ProjectFile:
    yanked = row.get("yanked", False)
    return ProjectFile(
        filename=row["filename"],
        requires_python=row.get("requires-python") or None,
        upload_time=row.get("upload-time") or None,
        yanked=None if yanked is False else ("" if yanked is True else str(yanked)),
    )


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.files: list[ProjectFile] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        href = values.get("href")
        if tag != "a" or not href:
            return
        requires = values.get("data-requires-python")
        self.files.append(
            ProjectFile(
                filename=unquote(urlsplit(href).path.rsplit("/", 1)[-1]),
                requires_python=html.unescape(requires) if requires else None,
                yanked=(values["data-yanked"] or "") if "data-yanked" in values else None,
            )
        )


def parse_simple_html(text: str) -> tuple[ProjectFile, ...]:
    """The files of an HTML page."""
    parser = _Anchors()
    parser.feed(text)
    return tuple(parser.files)


def read_project_files(project: str, urls: Iterable[str], *, timeout: float = 15.0) -> tuple[ProjectFile, ...] | None:
    """The files of ``project`` on the first of ``urls`` that has it; None where none could be asked.

    Credentials in an address, netrc, proxies and certificates of the environment are used. Only http(s) is.
    """
    import httpx  # noqa: PLC0415 - only a failure needs it

    if not re.fullmatch(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?", project):
        return None
    with httpx.Client(timeout=timeout, follow_redirects=True, headers={"Accept": _ACCEPT}) as client:
        for url in urls:
            if urlsplit(url).scheme not in ("http", "https"):
                continue
            try:
                with client.stream("GET", f"{url.rstrip('/')}/{project}/") as answer:
                    if answer.status_code != httpx.codes.OK:
                        continue
                    body = bytearray()
                    for chunk in answer.iter_bytes():
                        body += chunk
                        if len(body) > _MOST:
                            return None
                    kind = answer.headers.get("content-type", "")
            except (httpx.HTTPError, httpx.InvalidURL):
                continue
            text = body.decode("utf-8", "replace")
            return parse_simple_json(text) if "json" in kind else parse_simple_html(text)
    return None
