"""Tests talk to this machine only, unless they are marked ``network``, and leave the user's caches and logins alone."""

from __future__ import annotations

import ipaddress
import itertools
import os
import socket
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_NUMBERS = itertools.count()
# Certificates of the machine's own, which may not even be there.
_TRUST = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSL_CLIENT_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@pytest.fixture(scope="session", autouse=True)
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for what would else be the user's; what sessions and modules set up has its cache there too."""
    folder = tmp_path_factory.mktemp("places")
    (folder / "netrc").touch(mode=0o600)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QRESOLVE_CACHE_DIR", str(folder / "cache"))
        yield folder


@pytest.fixture(autouse=True)
def _no_place_of_the_users(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, places: Path) -> None:
    """A cache of the test's own, and no login or certificate of the user's; children inherit it.

    A test of the real network needs the last two.
    """
    monkeypatch.setenv("QRESOLVE_CACHE_DIR", str(places / f"cache-{next(_NUMBERS)}"))
    if request.node.get_closest_marker("network") is not None:
        return
    monkeypatch.setenv("NETRC", str(places / "netrc"))
    monkeypatch.setenv("UV_CREDENTIALS_DIR", str(places / "credentials"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in (*_TRUST, "PIP_CERT", "PIP_CLIENT_CERT", "PIP_TRUSTED_HOST", "UV_INSECURE_HOST"):
        monkeypatch.delenv(name, raising=False)


def _is_here(address: Any) -> bool:
    if not isinstance(address, tuple):  # a Unix socket's path
        return True
    host = address[0]
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@pytest.fixture(autouse=True)
def _loopback_only(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a connection that leaves this machine, in this process and (by a dead proxy) in its children."""
    if request.node.get_closest_marker("network") is not None:
        return

    def guarded(connect: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: socket.socket, address: Any) -> Any:
            if not _is_here(address):
                pytest.fail(f"a test without the mark `network` connects to {address!r}")
            return connect(self, address)

        return call

    monkeypatch.setattr(socket.socket, "connect", guarded(socket.socket.connect))
    monkeypatch.setattr(socket.socket, "connect_ex", guarded(socket.socket.connect_ex))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1,localhost")
