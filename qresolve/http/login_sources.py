"""Where logins stand: the user's indexes and variables, netrc, uv's store, and the command ``keyring``.

Nothing that is found here is shown or written.
"""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from qresolve.http.credentials import Credentials, IndexAddress, Login, policy_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from qresolve.closure.indexes import UserIndexes

_KEYRING_PATIENCE = 30.0  # seconds; a keyring can ask the person to unlock it


def read_credentials(indexes: UserIndexes, more: Iterable[IndexAddress] = ()) -> Credentials:
    """All logins of this user but the keyring's. ``more`` are indexes beside the user's own."""
    variables = dict(indexes.variables)
    hosts, default = read_netrc(netrc_file(variables))
    known = [
        IndexAddress(url=index.url, name=index.name, policy=policy_of(dict(index.options)), where=index.source)
        for index in indexes.indexes
    ]
    named = {name: value for name, value in variables.items() if name.startswith("UV_INDEX_")}
    return Credentials(
        hosts=hosts,
        default=default,
        stored=read_uv_store(store_file(variables)),
        variables=tuple(sorted(named.items())),
    ).with_indexes([*known, *more])


def netrc_file(variables: Mapping[str, str]) -> Path | None:
    """The file that ``NETRC`` names, else the one in the home folder, as uv, pip and curl have it."""
    if named := variables.get("NETRC"):
        return Path(named)
    home = variables.get("HOME")
    return Path(home) / ".netrc" if home else None


def read_netrc(file: Path | None) -> tuple[tuple[tuple[str, Login], ...], Login | None]:
    """The logins by host of a netrc file and its ``default``; none where it is not there or cannot be read."""
    import netrc  # noqa: PLC0415 - rarely needed

    if file is None:
        return (), None
    try:
        entries = netrc.netrc(str(file)).hosts
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        return (), None
    logins = {
        host.lower(): Login(user=entry[0] or "", password=entry[2] or "", source="netrc", where=str(file))
        for host, entry in entries.items()
    }
    default = logins.pop("default", None)
    return tuple(logins.items()), default


def store_file(variables: Mapping[str, str]) -> Path | None:
    """Where ``uv auth login`` keeps what it is told (uv's documentation, "HTTP credentials")."""
    if chosen := variables.get("UV_CREDENTIALS_DIR"):
        return Path(chosen) / "credentials.toml"
    shared, home = variables.get("XDG_DATA_HOME"), variables.get("HOME")
    if shared:
        return Path(shared) / "uv" / "credentials" / "credentials.toml"
    return Path(home) / ".local" / "share" / "uv" / "credentials" / "credentials.toml" if home else None


def read_uv_store(file: Path | None) -> tuple[tuple[str, Login], ...]:
    """The logins by address of uv's store; none where it is not there or cannot be read."""
    import tomli  # noqa: PLC0415

    if file is None:
        return ()
    try:
        tables = tomli.loads(file.read_text(encoding="utf-8")).get("credential", ())
    except (OSError, UnicodeDecodeError, tomli.TOMLDecodeError):
        return ()
    found = []
    for table in tables if isinstance(tables, list) else ():
        bearer = table.get("scheme") == "bearer"
        service, secret = table.get("service"), table.get("token" if bearer else "password")
        if isinstance(service, str):
            user = "" if bearer else str(table.get("username") or "")
            login = Login(user=user, password=str(secret or ""), bearer=bearer, source="store", where=str(file))
            found.append((service, login))
    return tuple(found)


def open_keyring(indexes: UserIndexes) -> Keyring | None:
    """The keyring, where the user's uv is to ask it: ``keyring-provider = "subprocess"``; None: it is not to.

    pip's word for it counts where uv has none (:mod:`qresolve.closure.pip_words`).
    """
    variables = dict(indexes.variables)
    provider = variables.get("UV_KEYRING_PROVIDER") or dict(indexes.settings).get("keyring-provider")
    return Keyring(variables) if provider == "subprocess" else None


class Keyring:
    """The command ``keyring``, asked once for the same. Safe to use from several threads."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = dict(variables)
        self._known: dict[tuple[tuple[str, ...], str], Login | None] = {}
        self._guard = threading.Lock()

    def find(self, services: tuple[str, ...], user: str) -> Login | None:
        """The login of the first of ``services`` that the keyring knows; of ``user`` where that is not empty."""
        with self._guard:  # one at a time: it may ask the person
            key = (services, user)
            if key not in self._known:
                found = (self._ask(service, user) for service in services)
                self._known[key] = next((login for login in found if login is not None), None)
            return self._known[key]

    def _ask(self, service: str, user: str) -> Login | None:
        # As uv does (uv-auth/src/keyring.rs), so that both get the same answer.
        command = ["keyring", "get", service, *([user] if user else ["--mode", "creds"])]
        try:
            ended = subprocess.run(
                command,
                env=self._variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_KEYRING_PATIENCE,
                check=False,
            )
        except (OSError, UnicodeDecodeError, subprocess.TimeoutExpired):
            return None
        lines = ended.stdout.splitlines()
        if ended.returncode != 0 or len(lines) < (1 if user else 2):
            return None
        name, password = (user, lines[0]) if user else (lines[0], lines[1])
        return Login(user=name, password=password, source="keyring", where="keyring")
