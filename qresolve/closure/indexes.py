"""The user's package indexes and how to reach them, from uv's and pip's configuration. Nothing else is taken over.

uv's own settings come first. pip's count where uv has no index at all: its ``index-url`` first, then its extra
indexes for what the first does not have, so that an extra index never shadows a package of the main one. What pip is
told of certificates, proxies and the like is put into uv's words (:mod:`qresolve.closure.pip_words`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from qresolve.closure.pip_words import PipOption, read_pip_set_up, uv_words
from qresolve.install.isolation import read_uv_configuration, select_variables

if TYPE_CHECKING:
    from collections.abc import Mapping

# Indexes go into one private configuration file, in one order, instead of into these.
_INDEX_VARIABLES = frozenset({"UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"})
_PATH_VARIABLES = frozenset(
    {"UV_CACHE_DIR", "UV_CREDENTIALS_DIR", "NETRC", "SSL_CERT_FILE", "SSL_CERT_DIR", "SSL_CLIENT_CERT"}
)
_YES = ("1", "true", "yes", "on", "y", "t")
_UV_FILE = "uv.toml"
_INDEX_KEYS = frozenset({"index", "index-url", "extra-index-url", "offline"})


@dataclass(frozen=True, slots=True, kw_only=True)
class UserIndex:
    """One index. ``url`` may hold credentials and is therefore not shown. ``options`` are uv's other keys.

    ``source`` is the variable or file that names it.
    """

    url: str = field(repr=False)
    name: str | None = None
    default: bool = False
    explicit: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserIndexes:
    """Indexes in order of priority, uv settings that go with them, and the variables a child may see.

    No index at all means the resolver's own default. ``variables`` and ``settings`` may hold secrets. ``offline``:
    the user forbids uv the network. ``borrowed`` says of variables that pip or requests are told under another name:
    the variable, what names it there, and the command that takes it back.
    """

    indexes: tuple[UserIndex, ...] = ()
    settings: tuple[tuple[str, Any], ...] = field(default=(), repr=False)
    variables: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    offline: bool = False
    borrowed: tuple[tuple[str, str, str], ...] = ()

    def origin_of(self, variable: str) -> tuple[str, str]:
        """What the user knows a variable by, and the command that takes it back."""
        known = {name: (origin, undo) for name, origin, undo in self.borrowed}
        return known.get(variable, (variable, f"unset {variable}"))


def redact_url(url: str) -> str:
    """``url`` without user name, password and query; what is no URL comes back as it is."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", parts.fragment))


def searched_urls(indexes: UserIndexes) -> tuple[str, ...]:
    """The addresses of the indexes that are searched for any package, the default one last; not those of folders."""
    found = [
        index.url for index in indexes.indexes if not index.explicit and index.url.startswith(("http://", "https://"))
    ]
    if not any(index.default for index in indexes.indexes):
        found.append(default_index_url())
    return tuple(dict.fromkeys(found))


def parse_uv_indexes(variables: Mapping[str, str], configuration: Mapping[str, Any]) -> tuple[UserIndex, ...]:
    """The indexes of uv in uv's order: variables before files, the first default only, and that one last."""
    found: list[UserIndex] = []
    for text in variables.get("UV_INDEX", "").split():
        name, equals, url = text.partition("=")
        named = bool(equals) and "/" not in name and ":" not in name
        found.append(UserIndex(name=name if named else None, url=url if named else text, source="UV_INDEX"))
    for key in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        if value := variables.get(key):
            name, equals, url = value.partition("=")
            named = bool(equals) and "/" not in name and ":" not in name
            found.append(UserIndex(name=name if named else None, url=url if named else value, default=True, source=key))
    extra = variables.get("UV_EXTRA_INDEX_URL", "").split()
    found += [UserIndex(url=url, source="UV_EXTRA_INDEX_URL") for url in extra]
    for table in configuration.get("index", ()):
        options = {key: value for key, value in table.items() if key not in ("name", "url", "default", "explicit")}
        found.append(
            UserIndex(
                name=table.get("name"),
                url=str(table.get("url", "")),
                default=table.get("default") is True,
                explicit=table.get("explicit") is True,
                options=tuple(sorted(options.items())),
                source=_UV_FILE,
            )
        )
    extra = configuration.get("extra-index-url", ())
    found += [UserIndex(url=url, source=_UV_FILE) for url in ([extra] if isinstance(extra, str) else extra)]
    if isinstance(main := configuration.get("index-url"), str):
        found.append(UserIndex(url=main, default=True, source=_UV_FILE))
    others = [index for index in found if index.url and not index.default]
    defaults = [index for index in found if index.url and index.default]
    return (*others, *defaults[:1])


def parse_pip_indexes(options: Mapping[str, PipOption]) -> tuple[UserIndex, ...]:
    """The indexes of pip, main one first; none where pip is not set up. The last is marked as uv's default.

    With extra indexes but no main one, the first has no address: the caller fills in the default index.
    """
    main, extra = options.get("index-url"), options.get("extra-index-url")
    if main is None and extra is None:
        return ()
    first = UserIndex(url="") if main is None else UserIndex(url=main.value, source=main.origin)
    others = [] if extra is None else [url for url in dict.fromkeys(extra.value.split()) if url != first.url]
    found = [first, *(UserIndex(url=url, source="" if extra is None else extra.origin) for url in others)]
    return (*found[:-1], replace(found[-1], default=True))


def default_index_url() -> str:
    """The index that pip and uv use where nothing is set up."""
    from pip._internal.models.index import PyPI  # noqa: PLC0415 - heavy, and rarely needed

    return str(PyPI.simple_url)


def read_user_indexes(environ: Mapping[str, str], home: Path) -> UserIndexes:
    """Read uv's and pip's configuration; files that are missing or unreadable count as absent."""
    configuration = read_uv_configuration({**environ, "HOME": str(home)})
    options = read_pip_set_up(environ, home)
    indexes = parse_uv_indexes(environ, configuration)
    if not indexes:
        indexes = parse_pip_indexes(options)
        if indexes and not indexes[0].url:
            indexes = (replace(indexes[0], url=default_index_url()), *indexes[1:])
    variables = select_variables(environ, installer="uv")
    borrowed = uv_words(options, variables, configuration, home)
    variables |= {name: value for name, value, _, _ in borrowed}
    kept = {
        # The resolver runs in a folder of its own.
        name: _absolute_paths(value) if name in _PATH_VARIABLES and value else value
        for name, value in variables.items()
        if name not in _INDEX_VARIABLES
    }
    forbidden = kept.pop("UV_OFFLINE", "").lower() in _YES or configuration.get("offline") is True
    return UserIndexes(
        offline=forbidden,
        indexes=tuple(replace(index, url=_absolute(index.url)) for index in indexes),
        settings=tuple(sorted((k, v) for k, v in configuration.items() if k not in _INDEX_KEYS)),
        variables=tuple(sorted(kept.items())),
        borrowed=tuple((name, origin, undo) for name, _, origin, undo in borrowed),
    )


def _absolute_paths(value: str) -> str:
    """A path, or several as PATH has them."""
    return os.pathsep.join(str(Path(text).absolute()) for text in value.split(os.pathsep) if text)


def _absolute(url: str) -> str:
    """The address of an index that is a folder, independent of where the resolver runs."""
    return url if "://" in url else Path(url).absolute().as_uri()
