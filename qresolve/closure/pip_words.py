"""pip's set-up, and what it comes to in uv's words. Only what has to do with reaching an index.

pip reads ``[global]`` of its configuration files, and ``PIP_<OPTION>`` before those (its documentation,
"Configuration"). ``REQUESTS_CA_BUNDLE`` and ``CURL_CA_BUNDLE`` count for pip behind its own ``cert`` ("HTTPS
Certificates"). uv reads none of it.
"""

from __future__ import annotations

import configparser
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_OPTIONS = (
    "index-url", "extra-index-url", "cert", "client-cert", "proxy", "trusted-host", "timeout", "retries",
    "keyring-provider",
)  # fmt: skip
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_OTHER_NAMES = {"default-timeout": "timeout"}
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_SYSTEM_CERTIFICATES = ("native-tls", "system-certs")
_YES = ("1", "true", "yes", "on", "y", "t")

Borrowed = tuple[str, str, str, str]
"""A variable of uv, its value, what names it for pip, and the command that takes it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipOption:
    """An option's value, the variable or file that it is from, and the command that takes it back."""

    value: str = field(repr=False)
    origin: str
    undo: str


def parse_pip_configuration(text: str) -> dict[str, str]:
    """The options of pip's ``[global]`` section; none where the text is no configuration."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text)
    except configparser.Error:
        return {}
    rows = parser.items("global") if parser.has_section("global") else ()
    return {name.removeprefix("--").replace("_", "-"): value.strip() for name, value in rows}


def read_pip_set_up(environ: Mapping[str, str], home: Path) -> dict[str, PipOption]:
    """What pip is told by this user; files that are missing or unreadable count as absent, and so do empty values."""
    found: dict[str, PipOption] = {}
    for file in _pip_files(environ, home):
        try:
            options = parse_pip_configuration(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            continue
        for name, value in options.items():
            option = _OTHER_NAMES.get(name, name)
            if option in _OPTIONS and value:
                found[option] = PipOption(
                    value=value, origin=f"{name} of {file}", undo=f"pip config unset global.{name}"
                )
    for option in (*_OTHER_NAMES, *_OPTIONS):
        variable = "PIP_" + option.upper().replace("-", "_")
        if value := environ.get(variable, "").strip():
            known = _OTHER_NAMES.get(option, option)
            found[known] = PipOption(value=value, origin=variable, undo=f"unset {variable}")
    return found


def uv_words(
    options: Mapping[str, PipOption], variables: Mapping[str, str], configuration: Mapping[str, Any], home: Path
) -> tuple[Borrowed, ...]:
    """The variables that tell uv what pip is told, where ``variables`` and uv's ``configuration`` say nothing of it."""
    found: list[Borrowed] = []

    def borrow(variable: str, option: PipOption, value: str | None = None) -> None:
        found.append((variable, option.value if value is None else value, option.origin, option.undo))

    def of_bundle(variable: str) -> PipOption | None:
        value = variables.get(variable)
        return PipOption(value=value, origin=variable, undo=f"unset {variable}") if value else None

    bundles = [options.get("cert"), *(of_bundle(variable) for variable in _BUNDLES)]
    bundle = next((option for option in bundles if option is not None), None)
    if bundle is not None and not _says_certificates(variables, configuration):
        path = _path(bundle.value, home)
        borrow("SSL_CERT_DIR" if path.is_dir() else "SSL_CERT_FILE", bundle, str(path))
    if (option := options.get("client-cert")) and not variables.get("SSL_CLIENT_CERT"):
        borrow("SSL_CLIENT_CERT", option, str(_path(option.value, home)))
    if (option := options.get("proxy")) and not _says_proxy(variables, configuration):
        borrow("ALL_PROXY", option)
    if option := options.get("trusted-host"):
        # Those of uv stay: each is a host that the user trusts.
        borrow(
            "UV_INSECURE_HOST",
            option,
            " ".join([*variables.get("UV_INSECURE_HOST", "").split(), *option.value.split()]),
        )
    if (option := options.get("timeout")) and not variables.get("UV_HTTP_TIMEOUT"):
        borrow("UV_HTTP_TIMEOUT", option, _whole(option.value))
    if (option := options.get("retries")) and not variables.get("UV_HTTP_RETRIES"):
        borrow("UV_HTTP_RETRIES", option)
    asked = variables.get("UV_KEYRING_PROVIDER") or configuration.get("keyring-provider")
    if (option := options.get("keyring-provider")) and option.value == "subprocess" and not asked:
        borrow("UV_KEYRING_PROVIDER", option)
    return tuple(found)


def _says_certificates(variables: Mapping[str, str], configuration: Mapping[str, Any]) -> bool:
    if variables.get("SSL_CERT_FILE") or variables.get("SSL_CERT_DIR"):
        return True
    stated = [configuration.get(key) is True for key in _SYSTEM_CERTIFICATES]
    stated += [variables.get(name, "").lower() in _YES for name in ("UV_NATIVE_TLS", "UV_SYSTEM_CERTS")]
    return any(stated)


def _says_proxy(variables: Mapping[str, str], configuration: Mapping[str, Any]) -> bool:
    stated = [configuration.get(key) for key in ("http-proxy", "https-proxy")]
    return any(stated) or any(variables.get(name) or variables.get(name.lower()) for name in _PROXY_VARIABLES)


def _path(text: str, home: Path) -> Path:
    """As pip reads a path: ``~`` is the home folder, and what is relative is so to the working directory."""
    if text == "~" or text.startswith("~/"):
        return home / text[2:]
    return Path(text).absolute()


def _whole(seconds: str) -> str:
    """A time limit as uv takes it: whole seconds, at least one. What is no number stays, to be refused by name."""
    try:
        return str(max(1, int(float(seconds))))
    except (ValueError, OverflowError):
        return seconds


def _pip_files(environ: Mapping[str, str], home: Path) -> Iterable[Path]:
    """The files of pip, weaker ones first (pip's documentation, "Configuration", Location)."""
    if chosen := environ.get("PIP_CONFIG_FILE"):
        return (Path(chosen),)
    shared = environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    user = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    files = [
        *(Path(folder) / "pip" / "pip.conf" for folder in reversed(shared.split(":")) if folder),
        Path("/etc/pip.conf"),
        home / ".pip" / "pip.conf",
        user / "pip" / "pip.conf",
    ]
    if inside := environ.get("VIRTUAL_ENV"):
        files.append(Path(inside) / "pip.conf")
    return tuple(files)
