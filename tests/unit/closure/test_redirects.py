"""No request of ours goes from https to plain http."""

from __future__ import annotations

import httpx
import pytest

from qresolve.closure.redirects import InsecureRedirect, check_downgrade, no_downgrade
from tests.unit.http.http_support import client


@pytest.mark.parametrize("leads_to", ["http://a.example/x", "HTTP://a.example/x"])
def test_a_step_from_https_to_http_is_refused(leads_to: str) -> None:
    with pytest.raises(InsecureRedirect) as caught:
        check_downgrade("https://user:open-sesame@a.example/simple/", leads_to)
    assert "open-sesame" not in caught.value.message + (caught.value.hint or "")


@pytest.mark.parametrize(
    ("came_from", "leads_to"),
    [("https://a.example/x", "/y"), ("https://a.example/x", "https://b.example/y"), ("http://a/x", "http://b/y")],
)
def test_other_steps_are_taken(came_from: str, leads_to: str) -> None:
    check_downgrade(came_from, leads_to)


def test_a_client_does_not_follow_such_a_redirect() -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(302, headers={"location": "http://a.example/other"})

    with (
        client(transport=httpx.MockTransport(answer)) as http,
        pytest.raises(InsecureRedirect, match="which is not encrypted"),
        no_downgrade(),
    ):
        http.read("https://a.example/one", most=10)
    assert asked == ["https://a.example/one"]
