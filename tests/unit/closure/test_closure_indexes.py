from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from qresolve.closure.indexes import (
    UserIndex,
    UserIndexes,
    default_index_url,
    parse_pip_indexes,
    parse_uv_indexes,
    read_user_indexes,
    redact_url,
    searched_urls,
)
from qresolve.closure.pip_words import PipOption, parse_pip_configuration, read_pip_set_up
from qresolve.http.login_sources import read_credentials

if TYPE_CHECKING:
    from pathlib import Path


def _shape(indexes: tuple[UserIndex, ...]) -> list[tuple[str | None, str, bool]]:
    return [(index.name, index.url, index.default) for index in indexes]


def test_uv_variables_come_before_its_file_and_the_default_comes_last() -> None:
    found = parse_uv_indexes(
        {"UV_INDEX": "inner=http://a/simple http://b/simple", "UV_DEFAULT_INDEX": "http://d/simple"},
        {"index": [{"name": "file", "url": "http://c/simple"}, {"url": "http://late/simple", "default": True}]},
    )
    assert _shape(found) == [
        ("inner", "http://a/simple", False),
        (None, "http://b/simple", False),
        ("file", "http://c/simple", False),
        (None, "http://d/simple", True),
    ]


def test_an_equals_sign_in_an_address_is_no_name() -> None:
    assert _shape(parse_uv_indexes({"UV_INDEX": "http://a/simple?x=1"}, {})) == [(None, "http://a/simple?x=1", False)]


def test_the_older_uv_names_still_count() -> None:
    found = parse_uv_indexes({"UV_INDEX_URL": "http://d", "UV_EXTRA_INDEX_URL": "http://a http://b"}, {})
    assert [index.url for index in found] == ["http://a", "http://b", "http://d"]
    found = parse_uv_indexes({}, {"index-url": "http://d", "extra-index-url": ["http://a"]})
    assert _shape(found) == [(None, "http://a", False), (None, "http://d", True)]


def test_uv_keys_that_go_with_an_index_are_kept() -> None:
    (index,) = parse_uv_indexes({}, {"index": [{"url": "http://a", "authenticate": "always", "explicit": True}]})
    assert index.options == (("authenticate", "always"),)
    assert index.explicit


def test_an_extra_index_of_pip_never_shadows_the_main_one() -> None:
    text = "[global]\nindex_url = http://main\nextra-index-url =\n  http://x\n  http://y\n"
    options = {
        name: PipOption(value=value, origin="a file", undo="") for name, value in parse_pip_configuration(text).items()
    }
    assert _shape(parse_pip_indexes(options)) == [
        (None, "http://main", False),
        (None, "http://x", False),
        (None, "http://y", True),
    ]


def test_pip_variables_win_over_its_file(tmp_path: Path) -> None:
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nindex-url = http://f\n")
    environ = {"PIP_CONFIG_FILE": str(file)}
    assert _shape(parse_pip_indexes(read_pip_set_up(environ, tmp_path))) == [(None, "http://f", True)]
    found = parse_pip_indexes(read_pip_set_up({**environ, "PIP_INDEX_URL": "http://v"}, tmp_path))
    assert _shape(found) == [(None, "http://v", True)]
    assert [index.source for index in found] == ["PIP_INDEX_URL"]
    assert parse_pip_indexes({}) == ()


@pytest.mark.parametrize("text", ["", "no section", "[install]\nindex-url = http://a", "[global\n"])
def test_a_file_that_says_nothing_says_nothing(text: str) -> None:
    assert parse_pip_configuration(text) == {}


def test_the_files_of_both_tools_are_found(tmp_path: Path) -> None:
    pip = tmp_path / ".config" / "pip" / "pip.conf"
    pip.parent.mkdir(parents=True)
    pip.write_text("[global]\nextra-index-url = http://x/simple\n")
    environ = {"HOME": "/nowhere", "UV_EXCLUDE_NEWER": "2020-01-01", "UV_TORCH_BACKEND": "cpu", "PATH": "/bin"}
    found = read_user_indexes({**environ, "PIP_CONFIG_FILE": str(pip)}, tmp_path)
    assert [index.url for index in found.indexes] == [default_index_url(), "http://x/simple"]
    uv = tmp_path / ".config" / "uv" / "uv.toml"
    uv.parent.mkdir(parents=True)
    uv.write_text('exclude-newer = "2020-01-01"\nkeyring-provider = "subprocess"\n[[index]]\nurl = "http://u/simple"\n')
    found = read_user_indexes({**environ, "PIP_CONFIG_FILE": "/dev/null"}, tmp_path)
    assert [index.url for index in found.indexes] == ["http://u/simple"]
    assert dict(found.settings) == {"keyring-provider": "subprocess"}
    assert set(dict(found.variables)) == {"HOME", "PATH"}


def test_relative_places_are_those_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"UV_INDEX": "own=./simple", "UV_CACHE_DIR": "cache", "NETRC": "/abs", "PIP_CONFIG_FILE": "/dev/null"}
    found = read_user_indexes(environ, tmp_path)
    assert [index.url for index in found.indexes] == [(tmp_path / "simple").as_uri()]
    assert dict(found.variables) == {"UV_CACHE_DIR": str(tmp_path / "cache"), "NETRC": "/abs"}
    assert not found.offline
    assert read_user_indexes({**environ, "UV_OFFLINE": "true"}, tmp_path).offline


def test_credentials_are_used_but_never_shown() -> None:
    index = UserIndex(name="in-house", url="https://h/simple")
    other = UserIndex(url="https://anna:pw1@g/simple")
    user = UserIndexes(
        indexes=(index, other, UserIndex(url="http://e", explicit=True)),
        variables=(("UV_INDEX_IN_HOUSE_PASSWORD", "p/w2"), ("UV_INDEX_IN_HOUSE_USERNAME", "bo")),
    )
    credentials = read_credentials(user)
    assert [(realm.user, realm.password) for realm in credentials.realms[:2]] == [("bo", "p/w2"), ("anna", "pw1")]
    assert searched_urls(user)[:2] == ("https://h/simple", "https://anna:pw1@g/simple")
    assert "pw1" not in repr(user) + repr(credentials)
    assert "p/w2" not in repr(credentials)
    assert "p/w2" not in repr(user)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://a:b@h:8080/simple/?token=x", "https://h:8080/simple/"),
        ("https://token@h/x", "https://h/x"),
        ("https://h/x.whl", "https://h/x.whl"),
        ("file:///a/b", "file:///a/b"),
        ("", ""),
    ],
)
def test_an_address_is_shown_without_secrets(url: str, shown: str) -> None:
    assert redact_url(url) == shown
