"""How the user's machine reaches the network: certificates, proxy, time limits, logins, as uv and pip are set up.

Everything is in uv's words here: :mod:`qresolve.closure.indexes` has put pip's into them where uv says nothing, so that
uv, which resolves, and our own requests are set up alike.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qresolve.errors import UsageError
from qresolve.http.credentials import Credentials, IndexAddress
from qresolve.http.login_sources import Keyring, open_keyring, read_credentials
from qresolve.http.proxies import Proxies, parse_proxies
from qresolve.http.trust import Named, Trust

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qresolve.closure.indexes import UserIndexes


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """``connect`` and ``idle`` are time limits in seconds: to reach a host, and without a byte.

    ``attempts`` counts requests altogether, ``parallel`` how many run at once. ``offline``: the user forbids the
    network.
    """

    credentials: Credentials = field(default_factory=Credentials)
    keyring: Keyring | None = None
    trust: Trust = field(default_factory=Trust)
    proxies: Proxies = field(default_factory=Proxies)
    connect: float = 10.0
    idle: float = 30.0
    attempts: int = 5
    parallel: int = 8
    offline: bool = False


def read_http_settings(
    indexes: UserIndexes, *, offline: bool = False, more: Iterable[IndexAddress] = ()
) -> HttpSettings:
    """The settings of this user. ``more`` are further indexes that can hold a login.

    Raises:
        UsageError: a certificate file that is named is not there, or a number is none.
    """
    variables, settings = dict(indexes.variables), dict(indexes.settings)
    chosen: dict[str, Any] = {}
    if (idle := _number(indexes, "UV_HTTP_TIMEOUT")) is not None:
        chosen["idle"] = max(1.0, idle)
    if (retries := _number(indexes, "UV_HTTP_RETRIES")) is not None:
        chosen["attempts"] = 1 + int(retries)
    if (parallel := _number(indexes, "UV_CONCURRENT_DOWNLOADS")) is not None:
        chosen["parallel"] = max(1, int(parallel))
    return HttpSettings(
        credentials=read_credentials(indexes, more),
        keyring=open_keyring(indexes),
        trust=read_trust(indexes),
        proxies=parse_proxies(variables, settings),
        offline=offline or indexes.offline,
        **chosen,
    )


def read_trust(indexes: UserIndexes) -> Trust:
    """The certificates that are named.

    Raises:
        UsageError: one is not there.
    """
    variables, settings = dict(indexes.variables), dict(indexes.settings)
    file = _named(indexes, "SSL_CERT_FILE", variables.get("SSL_CERT_FILE"))
    # Several, as PATH has them; of these some may be missing.
    texts = [text for text in variables.get("SSL_CERT_DIR", "").split(os.pathsep) if text]
    there = [text for text in texts if Path(text).is_dir()] or texts[:1]
    folders = [_named(indexes, "SSL_CERT_DIR", text) for text in there]
    listed = settings.get("allow-insecure-host") or ()
    hosts = [listed] if isinstance(listed, str) else [str(text) for text in listed]
    return Trust(
        files=() if file is None else (file,),
        folders=tuple(folder for folder in folders if folder is not None),
        own=_named(indexes, "SSL_CLIENT_CERT", variables.get("SSL_CLIENT_CERT")),
        unchecked=tuple(dict.fromkeys([*variables.get("UV_INSECURE_HOST", "").split(), *hosts])),
    )


def _named(indexes: UserIndexes, variable: str, value: str | None) -> Named | None:
    if not value:
        return None
    origin, undo = indexes.origin_of(variable)
    if not Path(value).exists():
        raise UsageError(f"{origin} names {value}, which is not there", hint=undo)
    return Named(path=value, origin=origin, undo=undo)


def _number(indexes: UserIndexes, variable: str) -> float | None:
    value = dict(indexes.variables).get(variable)
    if not value:
        return None
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e6:  # false for NaN too
        origin, undo = indexes.origin_of(variable)
        raise UsageError(f"{origin} is {value!r}, which is no number", hint=undo)
    return number
