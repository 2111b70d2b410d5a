"""Which proxy a request goes through. Pure.

uv's own settings (``http-proxy``, ``https-proxy``, ``no-proxy``) take the place of the variables, as in uv; else
``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` count, in small letters first, as for pip and curl.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxies:
    """``http`` and ``https``: the proxy for addresses of that scheme, which may hold a login; None: none.

    ``exempt`` are hosts without one: names (their subdomains too), addresses, networks, ``*``; each may have a port.
    """

    http: str | None = field(default=None, repr=False)
    https: str | None = field(default=None, repr=False)
    exempt: tuple[str, ...] = ()

    def select(self, url: str) -> str | None:
        """The proxy for ``url``; None: the host is asked directly."""
        parts = urlsplit(url)
        proxy = self.https if parts.scheme.lower() == "https" else self.http
        if proxy is None:
            return None
        host, port = (parts.hostname or "").lower(), parts.port or {"http": 80, "https": 443}.get(parts.scheme.lower())
        return None if any(_is_exempt(host, port, text) for text in self.exempt) else proxy


def parse_proxies(variables: Mapping[str, str], settings: Mapping[str, Any]) -> Proxies:
    """The proxies of the user's uv and environment."""

    def variable(name: str) -> str | None:
        return variables.get(name.lower()) or variables.get(name) or None

    own = {name: text for name in ("http-proxy", "https-proxy") if isinstance(text := settings.get(name), str) and text}
    if own:
        listed = settings.get("no-proxy") or ()
        exempt = listed.split(",") if isinstance(listed, str) else [str(text) for text in listed]
        http, https = own.get("http-proxy"), own.get("https-proxy")
    else:
        every = variable("ALL_PROXY")
        # A CGI program is given HTTP_PROXY by whoever asks it ("httpoxy"); REQUEST_METHOD says that it is one.
        plain = None if "REQUEST_METHOD" in variables else variables.get("HTTP_PROXY")
        http, https = variables.get("http_proxy") or plain or every, variable("HTTPS_PROXY") or every
        exempt = (variable("NO_PROXY") or "").split(",")
    return Proxies(
        http=_with_scheme(http),
        https=_with_scheme(https),
        exempt=tuple(text.strip().lower() for text in exempt if text.strip()),
    )


def _with_scheme(proxy: str | None) -> str | None:
    """``proxy:3128`` is an http proxy, for curl, pip and uv alike."""
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


def _is_exempt(host: str, port: int | None, text: str) -> bool:
    if text == "*":
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(text.strip("[]"), strict=False)
    except ValueError:  # one of the two is a name, or has a port
        pass
    name, colon, number = text.rpartition(":")
    if colon and number.isascii() and number.isdigit():
        if int(number) != port:
            return False
        text = name
    text = text.strip("[]").removeprefix("*").lstrip(".")
    return bool(text) and (host == text or host.endswith(f".{text}"))
