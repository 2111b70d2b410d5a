"""Which login is sent with a request, and which is tried after a refusal. It never follows to another host."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from qresolve.http.credentials import (
    Credentials,
    IndexAddress,
    Login,
    Realm,
    origin_of,
    parse_login,
    without_login,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qresolve.http.login_sources import Keyring

REFUSALS = frozenset({401, 403, 404})
"""After these a login is looked for; some indexes hide what they have behind the last (as uv does)."""


class Logins:
    """The logins of one client; remembers which one worked where. Safe to use from several threads."""

    def __init__(self, credentials: Credentials, keyring: Keyring | None = None) -> None:
        self._credentials = credentials
        self._keyring = keyring
        self._worked: dict[str, Login] = {}
        self._guard = threading.Lock()

    def add(self, indexes: Iterable[IndexAddress]) -> None:
        """Indexes that have become known."""
        with self._guard:
            self._credentials = self._credentials.with_indexes(indexes)

    def of_address(self, url: str) -> Login | None:
        """The login that stands in ``url`` itself; a password that is missing there is looked up."""
        user, password = parse_login(url)
        if password is not None:
            return Login(user=user, password=password)
        if not user:
            return None
        bare = without_login(url)
        realm = self._credentials.realm(bare)
        if realm is not None and realm.login is not None and realm.user == user:
            return realm.login
        return self._look_up(bare, Realm(url=bare if realm is None else realm.url, user=user))

    def before(self, url: str) -> Login | None:
        """What is sent with the first request for ``url`` (without a login in it)."""
        realm = self._credentials.realm(url)
        if realm is None:
            return self._credentials.neighbour(url) or self._worked.get(origin_of(url))
        if realm.policy == "never":
            return None
        if realm.login is not None:
            return realm.login
        if (worked := self._worked.get(realm.url)) is not None:
            return worked
        return self._look_up(url, realm) if realm.user or realm.policy == "always" else None

    def after_refusal(self, url: str) -> Login | None:
        """What is tried where the request for ``url`` was refused without a login."""
        realm = self._credentials.realm(url)
        if realm is not None and realm.policy == "never":
            return None
        neighbour = self._credentials.neighbour(url) or self._worked.get(origin_of(url))
        return neighbour or self._look_up(url, realm)

    def index_of(self, url: str) -> str:
        """The address of the index that ``url`` belongs to, without a login; ``url`` where that is not known."""
        realm = self._credentials.realm(url)
        return without_login(url) if realm is None else realm.url

    def worked(self, url: str, login: Login) -> None:
        """That ``login`` was accepted: the next request sends it at once."""
        realm = self._credentials.realm(url)
        with self._guard:
            self._worked.setdefault(origin_of(url), login)
            if realm is not None:
                self._worked.setdefault(realm.url, login)

    def _look_up(self, url: str, realm: Realm | None) -> Login | None:
        user = "" if realm is None else realm.user
        found = self._credentials.written(url, user)
        if found is None and realm is not None and self._keyring is not None and (user or realm.policy == "always"):
            # The keyring is slow and may ask the person, so uv asks it only here, and for the index's address.
            found = self._keyring.find((realm.url, urlsplit(realm.url).netloc), user)
        if found is None and realm is not None and user:
            # A user name alone can be a token, which some indexes take in the place of the name.
            return Login(user=user, password="", source=realm.source, where=realm.where)
        return found
