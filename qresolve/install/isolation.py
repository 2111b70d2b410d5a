"""The environment that an installer runs in: the user's indexes, credentials, caches and network settings, no more.

The files have absolute addresses in the lock, so an index matters here only for the credentials that go with its
host. Everything else that a user can configure (targets, constraints, build options, another interpreter) would
change what is installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_ALWAYS = (
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TERM", "COLUMNS", "NO_COLOR", "LD_LIBRARY_PATH",
    "NETRC", "SSL_CERT_FILE", "SSL_CERT_DIR", "SSL_CLIENT_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "DBUS_SESSION_BUS_ADDRESS",
)  # fmt: skip
_UV = (
    "UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_KEYRING_PROVIDER",
    "UV_CREDENTIALS_DIR", "UV_CACHE_DIR", "UV_NO_CACHE", "UV_LINK_MODE", "UV_OFFLINE", "UV_INSECURE_HOST",
    "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES", "UV_CONCURRENT_DOWNLOADS",
    "UV_PYTHON_INSTALL_DIR", "UV_PYTHON_INSTALL_MIRROR", "UV_PYTHON_DOWNLOADS", "UV_NO_PROGRESS",
)  # fmt: skip
_PIP = (
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_KEYRING_PROVIDER", "PIP_CERT", "PIP_CLIENT_CERT",
    "PIP_TRUSTED_HOST", "PIP_PROXY", "PIP_CACHE_DIR", "PIP_NO_CACHE_DIR", "PIP_DEFAULT_TIMEOUT", "PIP_TIMEOUT",
    "PIP_RETRIES", "PIP_NO_INPUT",
)  # fmt: skip
_UV_FILE_KEYS = (
    "index", "index-url", "extra-index-url", "keyring-provider", "cache-dir", "no-cache", "offline",
    "native-tls", "system-certs", "allow-insecure-host", "link-mode", "concurrent-downloads",
    "http-proxy", "https-proxy", "no-proxy",
)  # fmt: skip


def _is_index_credential(name: str) -> bool:
    return name.startswith("UV_INDEX_") and name.endswith(("_USERNAME", "_PASSWORD"))


def select_variables(variables: Mapping[str, str], *, installer: str) -> dict[str, str]:
    """The part of ``variables`` that ``installer`` (``uv`` or ``pip``) is to see."""
    names = {*_ALWAYS, *(_UV if installer == "uv" else _PIP)}
    return {
        name: value
        for name, value in variables.items()
        if name in names or (installer == "uv" and _is_index_credential(name))
    }


def select_uv_configuration(tables: tuple[Mapping[str, Any], ...]) -> dict[str, Any]:
    """What is kept of ``uv.toml`` files, later ones winning."""
    kept: dict[str, Any] = {}
    for table in tables:
        kept |= {name: value for name, value in table.items() if name in _UV_FILE_KEYS}
        within = table.get("pip", {})
        kept |= {name: value for name, value in within.items() if name in _UV_FILE_KEYS}
    return kept


def read_uv_configuration(variables: Mapping[str, str]) -> dict[str, Any]:
    """What is kept of the system's and the user's ``uv.toml``; one that cannot be read counts as absent."""
    import tomli  # noqa: PLC0415

    home = Path(variables.get("HOME", "/"))
    user = Path(variables.get("XDG_CONFIG_HOME") or home / ".config")
    files = [Path("/etc/uv/uv.toml"), user / "uv" / "uv.toml"]
    if variables.get("UV_CONFIG_FILE"):
        files = [Path(variables["UV_CONFIG_FILE"])]
    tables = []
    for file in files:
        try:
            tables.append(tomli.loads(file.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, tomli.TOMLDecodeError):
            continue
    return select_uv_configuration(tuple(tables))


def select_pip_options(options: Mapping[str, Any]) -> dict[str, str]:
    """The part of pip's configuration (``global.index-url`` and so on) that is kept, as variables."""
    kept = {}
    for section in ("global", "install"):
        for key, value in options.items():
            where, _, option = key.partition(".")
            name = "PIP_" + option.upper().replace("-", "_")
            if where == section and name in _PIP:
                kept[name] = " ".join(str(value).split())
    return kept


def read_pip_options() -> dict[str, str]:
    """What is kept of pip's configuration files, as variables; none where pip cannot read them."""
    from pip._internal.configuration import Configuration  # noqa: PLC0415
    from pip._internal.exceptions import ConfigurationError  # noqa: PLC0415

    configuration = Configuration(isolated=False)
    try:
        configuration.load()
    except ConfigurationError:
        return {}
    options: dict[str, Any] = {}
    for key, value in configuration.items():
        # Newer pip groups the items by file, in rising precedence.
        options |= value if isinstance(value, dict) else {key: value}
    return select_pip_options(options)
