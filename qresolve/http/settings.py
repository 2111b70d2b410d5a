"""How the user's machine reaches the network: certificates, proxy, time limits, logins, as uv and pip are set up."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qresolve.errors import UsageError
from qresolve.http.credentials import Credentials, index_credentials, read_netrc

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Mapping

    from qresolve.closure.indexes import UserIndexes

# The first that is set counts: uv's, then pip's, then what curl and requests read.
_AUTHORITIES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_OWN_CERTIFICATES = ("SSL_CLIENT_CERT", "PIP_CLIENT_CERT")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """``authorities``: a file or folder of trusted certificates, None for the system's and httpx's own.

    ``own_certificate``: PEM file with a client certificate and its key. ``connect`` and ``idle`` are time limits in
    seconds: to reach a host, and without a byte. ``attempts`` counts requests altogether, ``parallel`` how many run
    at once. ``offline``: the user forbids the network.
    """

    credentials: Credentials = field(default_factory=Credentials)
    authorities: str | None = None
    own_certificate: str | None = None
    proxy: str | None = field(default=None, repr=False)
    connect: float = 10.0
    idle: float = 30.0
    attempts: int = 5
    parallel: int = 8
    offline: bool = False


def read_http_settings(
    environ: Mapping[str, str], home: Path, indexes: UserIndexes, *, offline: bool = False, more: Iterable[str] = ()
) -> HttpSettings:
    """The settings of this user. ``more`` are further index addresses that can hold a login.

    Raises:
        UsageError: a certificate file that is named is not there, or a number is none.
    """
    logins = read_netrc(environ.get("NETRC") or str(home / ".netrc"))
    known = index_credentials(indexes, more)
    chosen: dict[str, Any] = {}
    if (idle := _number(environ, ("UV_HTTP_TIMEOUT", "PIP_DEFAULT_TIMEOUT", "PIP_TIMEOUT"))) is not None:
        chosen["idle"] = max(1.0, idle)
    if (retries := _number(environ, ("UV_HTTP_RETRIES", "PIP_RETRIES"))) is not None:
        chosen["attempts"] = 1 + int(retries)
    if (parallel := _number(environ, ("UV_CONCURRENT_DOWNLOADS",))) is not None:
        chosen["parallel"] = max(1, int(parallel))
    return HttpSettings(
        credentials=Credentials(realms=known.realms, hosts=logins),
        authorities=_existing(environ, _AUTHORITIES),
        own_certificate=_existing(environ, _OWN_CERTIFICATES),
        proxy=environ.get("PIP_PROXY") or None,
        offline=offline or indexes.offline,
        **chosen,
    )


def _existing(environ: Mapping[str, str], names: Iterable[str]) -> str | None:
    for name in names:
        value = environ.get(name)
        if not value:
            continue
        if not Path(value).exists():
            raise UsageError(f"{name} names {value}, which is not there", hint=f"unset {name}")
        return value
    return None


def _number(environ: Mapping[str, str], names: Iterable[str]) -> float | None:
    for name in names:
        value = environ.get(name)
        if not value:
            continue
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0 <= number < 1e6:  # false for NaN too
            raise UsageError(f"{name} is {value!r}, which is no number", hint=f"unset {name}")
        return number
    return None


def open_trust(settings: HttpSettings) -> ssl.SSLContext:
    """The certificates to check servers by.

    Raises:
        UsageError: a file that holds none.
    """
    import ssl  # noqa: PLC0415

    import certifi  # noqa: PLC0415 - comes with httpx

    try:
        if settings.authorities is None:
            context = ssl.create_default_context()
            context.load_verify_locations(cafile=certifi.where())
            if folder := os.environ.get("SSL_CERT_DIR"):
                context.load_verify_locations(capath=folder)
        elif Path(settings.authorities).is_dir():
            context = ssl.create_default_context(capath=settings.authorities)
        else:
            context = ssl.create_default_context(cafile=settings.authorities)
        if settings.own_certificate is not None:
            context.load_cert_chain(settings.own_certificate)
    except (ssl.SSLError, OSError) as error:
        named = settings.own_certificate or settings.authorities
        raise UsageError(f"no usable certificate in {named}: {error}", hint="unset SSL_CERT_FILE") from error
    return context
