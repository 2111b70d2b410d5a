"""Which user name and password go with an address. Looked up for each host that is asked, never carried over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from qresolve.closure.indexes import UserIndexes

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A user name and a password."""

    user: str = field(repr=False)
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """``realms``: origin, path below which a login holds best, and the login; ``hosts``: those of netrc, by host."""

    realms: tuple[tuple[str, str, Login], ...] = ()
    hosts: tuple[tuple[str, Login], ...] = ()

    def select(self, url: str) -> Login | None:
        """The login for ``url``: of its origin the one with the longest matching path, else netrc's for the host.

        Where no path matches, any login of the origin is taken: an index's files often lie beside its pages.
        """
        origin = origin_of(url)
        parts = urlsplit(url)
        of_origin = [(path, login) for known, path, login in self.realms if known == origin]
        below = [(path, login) for path, login in of_origin if _is_below(parts.path, path)]
        if below:
            return max(below, key=lambda pair: len(pair[0]))[1]
        if of_origin:
            return of_origin[0][1]
        host = (parts.hostname or "").lower()
        return next((login for known, login in self.hosts if known == host), None)

    def with_url(self, url: str) -> Credentials:
        """These, and before them the login that stands in ``url`` itself."""
        login = login_in(url)
        if login is None:
            return self
        path = urlsplit(url).path
        others = tuple(realm for realm in self.realms if (realm[0], realm[1]) != (origin_of(url), path))
        return Credentials(realms=((origin_of(url), path, login), *others), hosts=self.hosts)


def origin_of(url: str) -> str:
    """Scheme, host and port of ``url``, the port always given; what cannot be read has an origin of its own."""
    parts = urlsplit(url)
    try:
        port = parts.port or _PORTS.get(parts.scheme.lower())
    except ValueError:
        port = None
    return f"{parts.scheme.lower()}://{(parts.hostname or '').lower()}:{port}"


def login_in(url: str) -> Login | None:
    """The user name and password that stand in ``url``."""
    user_info, at, _ = urlsplit(url).netloc.rpartition("@")
    if not at or not user_info:
        return None
    user, _, password = user_info.partition(":")
    return Login(user=unquote(user), password=unquote(password))


def without_login(url: str) -> str:
    """``url`` without user name and password; the query stays (it can be a signature that the server wants)."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query, ""))


def index_credentials(indexes: UserIndexes, more: Iterable[str] = ()) -> Credentials:
    """The logins of the user's indexes, explicit ones too: those in an address, or uv's variables for a named index."""
    variables = dict(indexes.variables)
    realms = []
    for name, url in [*((index.name, index.url) for index in indexes.indexes), *((None, url) for url in more)]:
        login = login_in(url) or _named_login(name, variables)
        if login is not None:
            realms.append((origin_of(url), urlsplit(url).path.rstrip("/"), login))
    return Credentials(realms=tuple(realms))


def _named_login(name: str | None, variables: Mapping[str, str]) -> Login | None:
    if name is None:
        return None
    stem = "UV_INDEX_" + "".join(c if c.isalnum() else "_" for c in name).upper()
    user, password = variables.get(f"{stem}_USERNAME"), variables.get(f"{stem}_PASSWORD")
    return Login(user=user or "", password=password or "") if user or password else None


def _is_below(path: str, above: str) -> bool:
    return path == above or path.startswith(above.rstrip("/") + "/")


def read_netrc(file: str) -> tuple[tuple[str, Login], ...]:
    """The logins by host of a netrc file; none where it is not there or cannot be read.

    Its ``default`` entry is left out: it would go to every host that anything is redirected to.
    """
    import netrc  # noqa: PLC0415

    try:
        entries = netrc.netrc(file).hosts
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        return ()
    return tuple(
        (host.lower(), Login(user=entry[0] or "", password=entry[2] or ""))
        for host, entry in entries.items()
        if host != "default"
    )
