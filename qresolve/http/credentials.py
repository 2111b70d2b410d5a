"""Which user name and password go with an address. Pure; :mod:`qresolve.http.login_sources` reads where they stand.

The order is uv's (its documentation, "HTTP credentials", and its source, uv-auth/src/middleware.rs): the address
itself, ``UV_INDEX_<NAME>_USERNAME`` and ``_PASSWORD`` of the index, netrc, uv's store (``uv auth login``), the command
``keyring``. pip's is the same without the second and the fourth (pip/_internal/network/auth.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote, urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PORTS = {"http": 80, "https": 443}
_ENDPOINTS = ("simple", "+simple")  # of PEP 503 servers; an index's files lie beside these (uv, index_url.rs)

Policy = Literal["auto", "always", "never"]
Source = Literal["address", "variables", "netrc", "store", "keyring"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A user name and a password, or a token (``bearer``). ``where`` names the variable or file that it is from."""

    user: str = field(repr=False)
    password: str = field(repr=False)
    bearer: bool = False
    source: Source = field(default="address", compare=False)
    where: str = field(default="", compare=False)

    def header(self) -> str:
        """The value of ``Authorization``."""
        import base64  # noqa: PLC0415

        if self.bearer:
            return f"Bearer {self.password}"
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode("ascii")


@dataclass(frozen=True, slots=True, kw_only=True)
class Realm:
    """What an index says of logins: its ``url`` without one, a user name, a password (None: to be looked up).

    ``policy`` is uv's ``authenticate``: ``always`` looks a login up before the first request, ``never`` sends none.
    """

    url: str
    user: str = field(default="", repr=False)
    password: str | None = field(default=None, repr=False)
    policy: Policy = "auto"
    source: Source = "address"
    where: str = ""

    @property
    def login(self) -> Login | None:
        """The login, where it is complete."""
        if self.password is None or self.policy == "never":
            return None
        return Login(user=self.user, password=self.password, source=self.source, where=self.where)

    @property
    def root(self) -> str:
        """The path below which the index's pages and files lie."""
        path = urlsplit(self.url).path.rstrip("/")
        above, _, last = path.rpartition("/")
        return above if last.lower() in _ENDPOINTS else path


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexAddress:
    """An index as far as logins go: its address with whatever stands in it, its name, and who names it."""

    url: str = field(repr=False)
    name: str | None = None
    policy: Policy = "auto"
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """``realms``: of indexes; ``hosts`` and ``default``: of netrc; ``stored``: uv's store, by address.

    ``variables`` are the ``UV_INDEX_<NAME>_…`` ones, for indexes that become known later.
    """

    realms: tuple[Realm, ...] = ()
    hosts: tuple[tuple[str, Login], ...] = ()
    default: Login | None = None
    stored: tuple[tuple[str, Login], ...] = ()
    variables: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def with_indexes(self, indexes: Iterable[IndexAddress]) -> Credentials:
        """These, and behind them what further indexes say."""
        variables = dict(self.variables)
        realms = dict.fromkeys(self.realms)
        realms |= dict.fromkeys(realm for index in indexes if (realm := realm_of(index, variables)) is not None)
        return replace(self, realms=tuple(realms))

    def realm(self, url: str) -> Realm | None:
        """The index that ``url`` is a page or file of: of its origin the one with the longest matching path."""
        origin, path = origin_of(url), urlsplit(url).path
        found = [one for one in self.realms if origin_of(one.url) == origin and is_below(path, one.root)]
        # Of two that are the same place, the one that knows more.
        return max(found, key=lambda one: (len(one.root), one.password is not None, bool(one.user)), default=None)

    def neighbour(self, url: str) -> Login | None:
        """The login of another index of the same origin: an index's files often lie beside its pages."""
        origin = origin_of(url)
        logins = (one.login for one in self.realms if origin_of(one.url) == origin)
        return next((login for login in logins if login is not None), None)

    def written(self, url: str, user: str = "") -> Login | None:
        """The login in netrc or in uv's store, for ``user`` where one is known.

        netrc's ``default`` counts for hosts of indexes alone: it would else go to whoever anything is led to.
        """
        parts, origin = urlsplit(url), origin_of(url)
        host = (parts.hostname or "").lower()
        entry = next((login for known, login in self.hosts if known == host), None)
        if entry is None and any(origin_of(one.url) == origin for one in self.realms):
            entry = self.default
        if entry is not None and user in ("", entry.user):
            return entry
        fitting = [
            (len(urlsplit(service).path), login)
            for service, login in self.stored
            if origin_of(service) == origin
            and is_below(parts.path, urlsplit(service).path)
            and user in ("", login.user)
        ]
        best = [login for length, login in fitting if length == max(fitting, key=lambda pair: pair[0])[0]]
        return best[0] if len(best) == 1 else None  # uv takes none of several either


def variable_stem(name: str) -> str:
    """``UV_INDEX_MY_MIRROR`` of an index called ``my-mirror``."""
    return "UV_INDEX_" + "".join(c if c.isalnum() else "_" for c in name).upper()


def parse_login(url: str) -> tuple[str, str | None]:
    """The user name (empty: none) and the password (None: none) that stand in ``url``."""
    name, colon, password = urlsplit(url).netloc.rpartition("@")[0].partition(":")
    return unquote(name), unquote(password) if colon else None


def realm_of(index: IndexAddress, variables: Mapping[str, str]) -> Realm | None:
    """What an index says of logins; None for one that is no http address.

    What stands in the address goes before the variables, as in the requests that uv sends for an index's pages.
    """
    if urlsplit(index.url).scheme.lower() not in _PORTS:
        return None
    user, password = parse_login(index.url)
    plain = Realm(url=without_login(index.url), policy=index.policy, where=index.where)
    if password is not None or index.name is None:
        return replace(plain, user=user, password=password)
    stem = variable_stem(index.name)
    given = variables.get(f"{stem}_USERNAME"), variables.get(f"{stem}_PASSWORD")
    if given == (None, None):
        return replace(plain, user=user, password=None)
    named = f"{stem}_USERNAME" if given[1] is None else f"{stem}_PASSWORD"
    return replace(plain, user=given[0] or user, password=given[1], source="variables", where=named)


def policy_of(options: Mapping[str, object]) -> Policy:
    """What uv's ``authenticate`` says among the options of an index."""
    found = options.get("authenticate")
    return "always" if found == "always" else "never" if found == "never" else "auto"


def origin_of(url: str) -> str:
    """Scheme, host and port of ``url``, the port always given; what cannot be read has an origin of its own."""
    parts = urlsplit(url)
    try:
        port = parts.port or _PORTS.get(parts.scheme.lower())
    except ValueError:
        port = None
    return f"{parts.scheme.lower()}://{(parts.hostname or '').lower()}:{port}"


def without_login(url: str) -> str:
    """``url`` without user name and password; the query stays (it can be a signature that the server wants)."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query, ""))


def is_below(path: str, above: str) -> bool:
    """Whether ``path`` is ``above`` or below it, by whole segments."""
    return path == above or path.startswith(above.rstrip("/") + "/")
