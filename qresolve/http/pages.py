"""A page of an index, kept from the last time and asked for again with its tag each time.

What is kept saves bytes and never decides anything: the server says whether it still holds (RFC 9110, 13.1.2), so an
answer does not depend on what was there before. Entries are found by a digest of the address, without a login in it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from qresolve.http.client import Answer
from qresolve.http.credentials import without_login

if TYPE_CHECKING:
    from qresolve.http.client import HttpClient

_KIND = "pages"
_OK, _NOT_MODIFIED = 200, 304


def read_page(client: HttpClient, url: str, *, accept: str = "*/*", most: int) -> Answer:
    """The answer to a GET of ``url``, whatever its status; 200 where what was kept still holds.

    Raises:
        HttpFailed: no answer, or a body of more than ``most`` bytes.
    """
    cache, asked = client.cache, {"Accept": accept}
    key = _digest(f"{without_login(url)}\n{accept}")
    entry = None if cache is None or client.settings.offline else cache.read(_KIND, key)
    tagged = asked if entry is None else {**asked, "If-None-Match": entry.notes.get("tag", "")}
    answer = client.read(url, tagged, most=most)
    if answer.status == _NOT_MODIFIED and entry is not None:
        # A tag speaks of one address; a redirect that leads elsewhere today says nothing of yesterday's page.
        if entry.notes.get("from") == _digest(answer.url):
            kept = {"content-type": entry.notes.get("type", "")}
            return Answer(status=_OK, headers={**answer.headers, **kept}, body=entry.body, url=answer.url)
        answer = client.read(url, asked, most=most)
    tag = answer.headers.get("etag")
    if cache is not None and answer.status == _OK and tag and "no-store" not in answer.headers.get("cache-control", ""):
        notes = {"tag": tag, "from": _digest(answer.url), "type": answer.headers.get("content-type", "")}
        if entry is None or entry.body != answer.body or dict(entry.notes) != notes:
            cache.write(_KIND, key, answer.body, notes)
    return answer


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
