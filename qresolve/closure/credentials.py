"""The credentials of an address, found where uv finds them, so that our own requests reach what uv reaches.

In this order: the address itself, ``UV_INDEX_<NAME>_USERNAME`` and ``_PASSWORD`` of the index it belongs to, an index
of the same host, netrc, and the command ``keyring`` where the user's uv asks for it
(``keyring-provider = "subprocess"``).
Nothing found here is shown or written.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from qresolve.closure.indexes import UserIndexes
    from qresolve.closure.request import NamedIndex

_KEYRING_PATIENCE = 30.0  # seconds; a keyring can ask the person to unlock it


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A user name and a secret; neither is shown."""

    user: str = field(repr=False)
    secret: str = field(repr=False)


def variable_stem(name: str) -> str:
    """``UV_INDEX_MY_MIRROR`` of an index called ``my-mirror``."""
    return "UV_INDEX_" + "".join(c if c.isalnum() else "_" for c in name).upper()


def parse_credentials(url: str) -> tuple[str, str | None]:
    """The user name (empty: none) and secret that an address holds."""
    user, _, _ = urlsplit(url).netloc.rpartition("@")
    name, colon, secret = user.partition(":")
    return unquote(name), unquote(secret) if colon else None


def with_credentials(url: str, found: Credentials | None) -> str:
    """``url`` with these credentials instead of its own; without any where there are none."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    if found is not None:
        host = f"{quote(found.user, safe='')}:{quote(found.secret, safe='')}@{host}"
    return urlunsplit((parts.scheme, host, parts.path, parts.query, parts.fragment))


def read_credentials(url: str, indexes: UserIndexes, named: Iterable[NamedIndex] = ()) -> Credentials | None:
    """The credentials of ``url``; None where there are none. ``named`` are indexes beside the user's own."""
    user, secret = parse_credentials(url)
    if secret is not None:
        return Credentials(user=user, secret=secret)
    variables = dict(indexes.variables)
    known: list[tuple[str | None, str]] = [(index.name, index.url) for index in indexes.indexes]
    known += [(index.name, index.url) for index in named]
    for name, address in sorted(known, key=lambda index: not _within(url, index[1])):
        if not _same_host(url, address):
            continue
        found = _of_index(name, address, variables)
        if found is not None and user in ("", found.user):
            return found
        user = user or parse_credentials(address)[0]
    return _of_netrc(url, user, variables) or _of_keyring(url, user, indexes, variables)


def authenticated_url(url: str, indexes: UserIndexes, named: Iterable[NamedIndex] = ()) -> str:
    """``url`` with its credentials, as far as there are any."""
    if urlsplit(url).scheme not in ("http", "https"):
        return url
    found = read_credentials(url, indexes, named)
    return url if found is None else with_credentials(url, found)


def _same_host(left: str, right: str) -> bool:
    one, other = urlsplit(left), urlsplit(right)
    return (one.scheme, one.netloc.rpartition("@")[2]) == (other.scheme, other.netloc.rpartition("@")[2])


def _within(url: str, index: str) -> bool:
    return _same_host(url, index) and urlsplit(url).path.startswith(urlsplit(index).path.rstrip("/"))


def _of_index(name: str | None, address: str, variables: Mapping[str, str]) -> Credentials | None:
    user, secret = parse_credentials(address)
    if secret is not None:
        return Credentials(user=user, secret=secret)
    if name is None:
        return None
    stem = variable_stem(name)
    user = variables.get(f"{stem}_USERNAME", user)
    secret = variables.get(f"{stem}_PASSWORD")
    # A user name alone is a token, which some indexes take in the place of the name.
    return (
        Credentials(user=user, secret=secret or "") if secret is not None or f"{stem}_USERNAME" in variables else None
    )


def _of_netrc(url: str, user: str, variables: Mapping[str, str]) -> Credentials | None:
    """The entry of the host in the file that NETRC names, else in the home folder's; none where it cannot be read."""
    import netrc  # noqa: PLC0415 - rarely needed

    named = variables.get("NETRC")
    file = Path(named) if named else Path(variables.get("HOME", "/")) / ".netrc"
    try:
        entry = netrc.netrc(str(file)).authenticators(urlsplit(url).hostname or "")
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        return None
    if entry is None or (user and entry[0] != user):
        return None
    return Credentials(user=entry[0], secret=entry[2] or "")


def _of_keyring(url: str, user: str, indexes: UserIndexes, variables: Mapping[str, str]) -> Credentials | None:
    """What the command ``keyring`` knows of the address, else of its host; only where the user's uv asks for it."""
    provider = variables.get("UV_KEYRING_PROVIDER") or dict(indexes.settings).get("keyring-provider")
    if provider != "subprocess":
        return None
    bare = with_credentials(url, None)
    for service in (bare, urlsplit(bare).netloc):
        command = ["keyring", "get", service, user] if user else ["keyring", "--mode", "creds", "get", service]
        try:
            ended = subprocess.run(
                command,
                env=dict(variables),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_KEYRING_PATIENCE,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        lines = ended.stdout.splitlines()
        if ended.returncode == 0 and len(lines) >= (1 if user else 2):
            return Credentials(user=user or lines[0], secret=lines[0] if user else lines[1])
    return None
