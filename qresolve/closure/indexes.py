"""The user's package indexes and how to reach them, from uv's and pip's configuration. Nothing else is taken over.

uv's own settings come first. pip's count where uv has no index at all: its ``index-url`` first, then its extra
indexes for what the first does not have, so that an extra index never shadows a package of the main one.
"""

from __future__ import annotations

import configparser
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit, urlunsplit

from qresolve.install.isolation import read_uv_configuration, select_variables

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Indexes go into one private configuration file, in one order, instead of into these.
_INDEX_VARIABLES = frozenset({"UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"})
_PATH_VARIABLES = frozenset({"UV_CACHE_DIR", "UV_CREDENTIALS_DIR", "NETRC", "SSL_CERT_FILE", "SSL_CLIENT_CERT"})
_YES = ("1", "true", "yes", "on", "y", "t")
_INDEX_KEYS = frozenset({"index", "index-url", "extra-index-url", "offline"})


@dataclass(frozen=True, slots=True, kw_only=True)
class UserIndex:
    """One index. ``url`` may hold credentials and is therefore not shown. ``options`` are uv's other keys."""

    url: str = field(repr=False)
    name: str | None = None
    default: bool = False
    explicit: bool = False
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UserIndexes:
    """Indexes in order of priority, uv settings that go with them, and the variables a child may see.

    No index at all means the resolver's own default. ``variables`` and ``settings`` may hold secrets. ``offline``:
    the user forbids uv the network.
    """

    indexes: tuple[UserIndex, ...] = ()
    settings: tuple[tuple[str, Any], ...] = field(default=(), repr=False)
    variables: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    offline: bool = False


def redact_url(url: str) -> str:
    """``url`` without user name, password and query; what is no URL comes back as it is."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", parts.fragment))


def credential_urls(indexes: UserIndexes) -> tuple[str, ...]:
    """The addresses of the indexes that are searched for any package, with what is known of their credentials.

    A named index takes ``UV_INDEX_<NAME>_USERNAME`` and ``_PASSWORD`` where its address has none.
    """
    variables = dict(indexes.variables)
    found = []
    for index in indexes.indexes:
        if index.explicit:
            continue
        parts = urlsplit(index.url)
        stem = "UV_INDEX_" + "".join(c if c.isalnum() else "_" for c in (index.name or "")).upper()
        user, secret = variables.get(f"{stem}_USERNAME"), variables.get(f"{stem}_PASSWORD")
        if index.name and "@" not in parts.netloc and (user or secret):
            netloc = f"{quote(user or '', safe='')}:{quote(secret or '', safe='')}@{parts.netloc}"
            found.append(urlunsplit((parts.scheme, netloc, parts.path, parts.query, "")))
        else:
            found.append(index.url)
    return tuple(found)


def parse_uv_indexes(variables: Mapping[str, str], configuration: Mapping[str, Any]) -> tuple[UserIndex, ...]:
    """The indexes of uv in uv's order: variables before files, the first default only, and that one last."""
    found: list[UserIndex] = []
    for text in variables.get("UV_INDEX", "").split():
        name, equals, url = text.partition("=")
        named = bool(equals) and "/" not in name and ":" not in name
        found.append(UserIndex(name=name, url=url) if named else UserIndex(url=text))
    for key in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        if value := variables.get(key):
            name, equals, url = value.partition("=")
            named = bool(equals) and "/" not in name and ":" not in name
            found.append(UserIndex(name=name if named else None, url=url if named else value, default=True))
    found += [UserIndex(url=url) for url in variables.get("UV_EXTRA_INDEX_URL", "").split()]
    for table in configuration.get("index", ()):
        options = {key: value for key, value in table.items() if key not in ("name", "url", "default", "explicit")}
        found.append(
            UserIndex(
                name=table.get("name"),
                url=str(table.get("url", "")),
                default=table.get("default") is True,
                explicit=table.get("explicit") is True,
                options=tuple(sorted(options.items())),
            )
        )
    extra = configuration.get("extra-index-url", ())
    found += [UserIndex(url=url) for url in ([extra] if isinstance(extra, str) else extra)]
    if isinstance(main := configuration.get("index-url"), str):
        found.append(UserIndex(url=main, default=True))
    others = [index for index in found if index.url and not index.default]
    defaults = [index for index in found if index.url and index.default]
    return (*others, *defaults[:1])


def parse_pip_configuration(text: str) -> dict[str, str]:
    """The options of pip's ``[global]`` section; none where the text is no configuration."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text)
    except configparser.Error:
        return {}
    return dict(parser.items("global")) if parser.has_section("global") else {}


def parse_pip_indexes(variables: Mapping[str, str], options: Mapping[str, str]) -> tuple[UserIndex, ...]:
    """The indexes of pip, main one first; none where pip is not set up. The last is marked as uv's default.

    With extra indexes but no main one, the first has no address: the caller fills in the default index.
    """
    main = variables.get("PIP_INDEX_URL") or options.get("index-url", "").strip()
    extra = (variables.get("PIP_EXTRA_INDEX_URL") or options.get("extra-index-url", "")).split()
    if not main and not extra:
        return ()
    urls = [main, *(url for url in dict.fromkeys(extra) if url != main)]
    return tuple(UserIndex(url=url, default=number == len(urls)) for number, url in enumerate(urls, start=1))


def default_index_url() -> str:
    """The index that pip and uv use where nothing is set up."""
    from pip._internal.models.index import PyPI  # noqa: PLC0415 - heavy, and rarely needed

    return str(PyPI.simple_url)


def read_user_indexes(environ: Mapping[str, str], home: Path) -> UserIndexes:
    """Read uv's and pip's configuration; files that are missing or unreadable count as absent."""
    configuration = read_uv_configuration({**environ, "HOME": str(home)})
    indexes = parse_uv_indexes(environ, configuration)
    if not indexes:
        options: dict[str, str] = {}
        for file in _pip_files(environ, home):
            try:
                options |= parse_pip_configuration(file.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError):
                continue
        indexes = parse_pip_indexes(environ, options)
        if indexes and not indexes[0].url:
            indexes = (UserIndex(url=default_index_url()), *indexes[1:])
    variables = select_variables(environ, installer="uv")
    kept = {
        # The resolver runs in a folder of its own.
        name: str(Path(value).absolute()) if name in _PATH_VARIABLES and value else value
        for name, value in variables.items()
        if name not in _INDEX_VARIABLES
    }
    forbidden = kept.pop("UV_OFFLINE", "").lower() in _YES or configuration.get("offline") is True
    return UserIndexes(
        offline=forbidden,
        indexes=tuple(replace(index, url=_absolute(index.url)) for index in indexes),
        settings=tuple(sorted((k, v) for k, v in configuration.items() if k not in _INDEX_KEYS)),
        variables=tuple(sorted(kept.items())),
    )


def _absolute(url: str) -> str:
    """The address of an index that is a folder, independent of where the resolver runs."""
    return url if "://" in url else Path(url).absolute().as_uri()


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
