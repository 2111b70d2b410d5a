"""Which servers are believed: the certificates that count, and hosts whose certificates are not looked at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from qresolve.errors import UsageError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

_HTTPS_PORT = 443


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A file or folder, the variable or setting that names it, and what takes that back."""

    path: str
    origin: str
    undo: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """``files`` and ``folders`` of certificates take the place of the system's and certifi's where there are any.

    So it is in uv with ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` together (its documentation, "TLS certificates"), and in
    pip with ``--cert``. ``own``: PEM file with a client certificate and its key. ``unchecked``: hosts, as
    ``UV_INSECURE_HOST`` and pip's ``trusted-host`` write them.
    """

    files: tuple[Named, ...] = ()
    folders: tuple[Named, ...] = ()
    own: Named | None = None
    unchecked: tuple[str, ...] = ()

    def checks(self, url: str) -> bool:
        """Whether the certificate of ``url``'s server must be a good one."""
        return not any(_is_host(url, text) for text in self.unchecked)


def _is_host(url: str, text: str) -> bool:
    """Whether ``text`` means the host of ``url``: ``*``, or a host, with a port and a scheme where that matters."""
    if text == "*":
        return True
    parts = urlsplit(url)
    scheme, mark, rest = text.rpartition("://")
    wanted = urlsplit(f"//{rest}")
    try:
        port, asked = wanted.port, parts.port or _HTTPS_PORT
    except ValueError:
        return False
    same = (parts.hostname or "").lower() == (wanted.hostname or "").lower() != ""
    return same and (not mark or scheme == parts.scheme) and port in (None, asked)


def open_trust(trust: Trust, *, checked: bool = True) -> ssl.SSLContext:
    """The context for connections; not ``checked``: to a host whose certificate is not looked at.

    Raises:
        UsageError: a named file or folder that holds no certificate.
    """
    import ssl  # noqa: PLC0415

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not checked:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif trust.files or trust.folders:
        _load_authorities(context, trust)
    else:
        import certifi  # noqa: PLC0415 - comes with httpx

        context.load_default_certs()
        context.load_verify_locations(cafile=certifi.where())
    if trust.own is not None:
        try:
            context.load_cert_chain(trust.own.path)
        except (ssl.SSLError, OSError) as error:
            raise _unusable(trust.own, str(error)) from error
    return context


def _load_authorities(context: ssl.SSLContext, trust: Trust) -> None:
    import ssl  # noqa: PLC0415

    for file in trust.files:
        try:
            context.load_verify_locations(cafile=file.path)
        except (ssl.SSLError, OSError) as error:
            raise _unusable(file, str(error)) from error
    for folder in trust.folders:
        # uv reads every file there; OpenSSL by itself would only find those that are named by their hash.
        for path in _files_in(folder):
            try:
                context.load_verify_locations(cafile=str(path))
            except (ssl.SSLError, OSError):
                continue
    if not context.cert_store_stats()["x509"]:
        raise _unusable((*trust.files, *trust.folders)[0], "it holds none")


def _files_in(folder: Named) -> Iterable[Path]:
    try:
        return sorted(path for path in Path(folder.path).iterdir() if path.is_file())
    except OSError as error:
        raise _unusable(folder, error.strerror or str(error)) from error


def _unusable(named: Named, why: str) -> UsageError:
    return UsageError(f"{named.origin} names {named.path}, no usable certificate: {why}", hint=named.undo)
