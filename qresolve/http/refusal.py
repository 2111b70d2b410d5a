"""What is said of a server that wants another login: which one it was given, and what to type."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from qresolve.http.logins import Logins

_LOCAL = ("localhost", "127.0.0.1")  # the hosts that uv keeps logins for without https (uv-auth/src/service.rs)


def refused_login(url: str, logins: Logins) -> tuple[str, str]:
    """Where the login for ``url`` is from, and a command that gives another one. Neither names user or password."""
    login = logins.before(url) or logins.after_refusal(url)
    fresh = _fresh_login(url)
    if login is None:
        return "none is known", fresh
    if login.source == "variables":
        stem = login.where.rpartition("_")[0]
        return f"the login of {login.where} is refused", f"unset {stem}_USERNAME {stem}_PASSWORD && {fresh}"
    if login.source == "netrc":
        # uv looks into netrc before its own store, so another login there would not be seen.
        return f"the login in {login.where} is refused", f"${{EDITOR:-vi}} {shlex.quote(login.where)}"
    if login.source == "keyring":
        return "the login of the keyring is refused", f"keyring set {shlex.quote(logins.index_of(url))} USER"
    if login.source == "store":
        return "the login that `uv auth login` was told is refused", fresh
    place = login.where or "the address"
    return f"the login in {place} is refused", f"leave the login out of {place}, then: {fresh}"


def _fresh_login(url: str) -> str:
    """The command by which uv, and so this program, learns a login for the host of ``url``."""
    parts = urlsplit(url)
    if parts.scheme == "https" or parts.hostname in _LOCAL:
        return f"uv auth login {parts.scheme}://{parts.netloc}"
    return f'echo "machine {parts.hostname} login USER password PASSWORD" >> "${{NETRC:-$HOME/.netrc}}"'
