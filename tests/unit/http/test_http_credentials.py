"""Which login goes where: each source, their order, and that none leaves the host it is for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qresolve.closure.indexes import UserIndex, UserIndexes
from qresolve.http.credentials import Credentials, IndexAddress, Login
from qresolve.http.login_sources import Keyring, open_keyring, read_credentials, read_netrc, read_uv_store
from qresolve.http.logins import Logins
from qresolve.http.refusal import refused_login
from tests.scripted_server import Reply, ScriptedServer
from tests.unit.http.http_support import client

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KEYRING = """#!/bin/sh
echo "$@" >> {log}
case "$*" in
{cases}
esac
exit 1
"""


def login(user: str, password: str) -> Login:
    return Login(user=user, password=password)


def a_user(*indexes: UserIndex, given: Mapping[str, str] | None = None, **variables: str) -> UserIndexes:
    known = {**variables, **(given or {})}
    return UserIndexes(indexes=indexes, variables=tuple(sorted(known.items())))


def sent(user: UserIndexes, url: str) -> Login | None:
    return Logins(read_credentials(user)).before(url)


def tried(user: UserIndexes, url: str) -> Login | None:
    return Logins(read_credentials(user)).after_refusal(url)


def a_file(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def a_keyring(folder: Path, answers: dict[str, str]) -> tuple[str, Callable[[], list[str]]]:
    """A command ``keyring`` on a PATH, and what it was asked."""
    log = folder / "asked"
    lines = [f'"{words}") printf "%s\\n" {answer}; exit 0;;' for words, answer in answers.items()]
    command = folder / "bin" / "keyring"
    a_file(command, KEYRING.format(log=log, cases="\n".join(lines)))
    command.chmod(0o755)
    return f"{command.parent}:/usr/bin:/bin", lambda: log.read_text().splitlines() if log.exists() else []


# ---------------------------------------------------------------- one source at a time


def test_a_login_in_an_indexs_address_goes_to_its_pages_and_to_what_lies_beside_them() -> None:
    user = a_user(
        UserIndex(url="https://carl:c%40@two.invalid/a/simple"), UserIndex(url="https://dora:d@two.invalid/b")
    )
    assert sent(user, "https://two.invalid/a/simple/x/") == login("carl", "c@")
    assert sent(user, "https://two.invalid/a/files/x.whl") == login("carl", "c@")
    assert sent(user, "https://two.invalid:443/b/simple/x/") == login("dora", "d")
    assert sent(user, "https://two.invalid/elsewhere/x.whl") == login("carl", "c@")
    assert sent(user, "https://two.invalid/bees/x.whl") == login("carl", "c@")  # /b is no part of it


@pytest.mark.parametrize(
    "other", ["http://two.invalid/x", "https://two.invalid:8443/x", "https://elsewhere.invalid/x", "https://o.invalid/"]
)
def test_a_login_goes_to_no_other_scheme_port_or_host(other: str, tmp_path: Path) -> None:
    netrc = a_file(tmp_path / "netrc", "machine one.invalid login bob password b\ndefault login all password every\n")
    user = a_user(
        UserIndex(url="https://carl:c@two.invalid/simple"), UserIndex(url="https://three.invalid/simple"), NETRC=netrc
    )
    assert sent(user, other) is None
    assert tried(user, other) is None


def test_an_index_without_a_login_is_asked_without_its_neighbours_first() -> None:
    user = a_user(UserIndex(url="https://carl:c@two.invalid/a/simple"), UserIndex(url="https://two.invalid/b/simple"))
    assert sent(user, "https://two.invalid/b/simple/x/") is None
    assert tried(user, "https://two.invalid/b/simple/x/") == login("carl", "c")


def test_the_variables_of_a_named_index() -> None:
    index = UserIndex(url="https://one.invalid/simple", name="my.own-1", explicit=True)
    assert sent(
        a_user(index, given={"UV_INDEX_MY_OWN_1_USERNAME": "anna", "UV_INDEX_MY_OWN_1_PASSWORD": "a"}),
        "https://one.invalid/x",
    ) == login("anna", "a")
    assert sent(a_user(index, given={"UV_INDEX_OTHER_PASSWORD": "a"}), "https://one.invalid/x") is None
    token = a_user(index, UV_INDEX_MY_OWN_1_USERNAME="token")
    assert sent(token, "https://one.invalid/x") == login("token", "")


def test_what_stands_in_the_address_goes_before_the_variables() -> None:
    index = UserIndex(url="https://anna:address@one.invalid/simple", name="own")
    user = a_user(index, given={"UV_INDEX_OWN_USERNAME": "anna", "UV_INDEX_OWN_PASSWORD": "variable"})
    assert sent(user, "https://one.invalid/simple/x/") == login("anna", "address")


def test_netrc_is_asked_after_a_refusal_or_where_a_user_name_is_known(tmp_path: Path) -> None:
    netrc = a_file(tmp_path / "netrc", "machine one.invalid login bob password b\n")
    plain = a_user(UserIndex(url="https://one.invalid/simple"), NETRC=netrc)
    assert sent(plain, "https://one.invalid/simple/x/") is None
    assert tried(plain, "https://one.invalid/simple/x/") == login("bob", "b")
    named = a_user(UserIndex(url="https://bob@one.invalid/simple"), NETRC=netrc)
    assert sent(named, "https://one.invalid/simple/x/") == login("bob", "b")
    other = a_user(UserIndex(url="https://anna@one.invalid/simple"), NETRC=netrc)
    assert sent(other, "https://one.invalid/simple/x/") == login("anna", "")


def test_netrc_lies_in_the_home_folder_where_nothing_else_is_said(tmp_path: Path) -> None:
    a_file(tmp_path / ".netrc", "machine one.invalid login bob password b\n")
    assert tried(a_user(HOME=str(tmp_path)), "https://one.invalid/x") == login("bob", "b")
    assert tried(a_user(HOME=str(tmp_path), NETRC=str(tmp_path / "none")), "https://one.invalid/x") is None
    assert tried(a_user(), "https://one.invalid/x") is None


def test_the_default_of_netrc_is_for_indexes_alone(tmp_path: Path) -> None:
    netrc = a_file(tmp_path / "netrc", "default login all password every\n")
    user = a_user(UserIndex(url="https://one.invalid/simple"), NETRC=netrc)
    assert tried(user, "https://one.invalid/files/x.whl") == login("all", "every")
    assert tried(user, "https://files.invalid/x.whl") is None


@pytest.mark.parametrize("text", ["machine x login a password b\nfoo bar", "machine", "\udcff"])
def test_a_netrc_that_cannot_be_read_has_no_logins(tmp_path: Path, text: str) -> None:
    file = tmp_path / "netrc"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert read_netrc(file) == ((), None)
    assert read_netrc(tmp_path / "none") == ((), None)
    assert read_netrc(None) == ((), None)


STORE = """
[[credential]]
service = "https://one.invalid/"
username = "eve"
scheme = "basic"
password = "e"

[[credential]]
service = "https://one.invalid/team"
username = "fay"
scheme = "basic"
password = "f"

[[credential]]
service = "https://token.invalid/"
scheme = "bearer"
token = "t0ken"
"""


def test_the_store_of_uv(tmp_path: Path) -> None:
    a_file(tmp_path / ".local" / "share" / "uv" / "credentials" / "credentials.toml", STORE)
    user = a_user(HOME=str(tmp_path))
    assert sent(user, "https://one.invalid/simple/x/") is None
    assert tried(user, "https://one.invalid/simple/x/") == login("eve", "e")
    assert tried(user, "https://one.invalid/team/simple/x/") == login("fay", "f")
    assert tried(user, "https://one.invalid/teams/x") == login("eve", "e")
    bearer = tried(user, "https://token.invalid/x")
    assert bearer is not None
    assert bearer.header() == "Bearer t0ken"
    other = a_user(UserIndex(url="https://eve@one.invalid/team/simple"), HOME=str(tmp_path))
    assert sent(other, "https://one.invalid/team/simple/x/") == login("eve", "e")  # the one of that name
    elsewhere = a_file(tmp_path / "own" / "credentials.toml", STORE.replace('"e"', '"own"'))
    user = a_user(HOME=str(tmp_path), UV_CREDENTIALS_DIR=str(Path(elsewhere).parent))
    assert tried(user, "https://one.invalid/x") == login("eve", "own")


@pytest.mark.parametrize(
    "text", ["", "credential = 1", "[[credential]]\nusername = 1", "[", "[[credential]]\nservice = 1"]
)
def test_a_store_that_cannot_be_read_has_no_logins(tmp_path: Path, text: str) -> None:
    assert read_uv_store(Path(a_file(tmp_path / "credentials.toml", text))) == ()


def test_netrc_goes_before_the_store(tmp_path: Path) -> None:
    store = a_file(tmp_path / "own" / "credentials.toml", STORE)
    netrc = a_file(tmp_path / "netrc", "machine one.invalid login bob password b\n")
    user = a_user(NETRC=netrc, UV_CREDENTIALS_DIR=str(Path(store).parent))
    assert tried(user, "https://one.invalid/x") == login("bob", "b")


# ---------------------------------------------------------------- the keyring


@pytest.mark.parametrize(
    ("index", "answers", "found", "asked"),
    [
        (
            UserIndex(url="https://anna@one.invalid/simple"),
            {"get https://one.invalid/simple anna": "k"},
            login("anna", "k"),
            ["get https://one.invalid/simple anna"],
        ),
        (
            UserIndex(url="https://anna@one.invalid:8443/simple"),
            {"get one.invalid:8443 anna": "k"},
            login("anna", "k"),
            ["get https://one.invalid:8443/simple anna", "get one.invalid:8443 anna"],
        ),
        (
            UserIndex(url="https://one.invalid/simple", options=(("authenticate", "always"),)),
            {"get https://one.invalid/simple --mode creds": "anna k"},
            login("anna", "k"),
            ["get https://one.invalid/simple --mode creds"],
        ),
        (UserIndex(url="https://one.invalid/simple"), {"get https://one.invalid/simple --mode creds": "a k"}, None, []),
        (
            UserIndex(url="https://anna@one.invalid/simple"),
            {},
            login("anna", ""),
            ["get https://one.invalid/simple anna", "get one.invalid anna"],
        ),
    ],
)
def test_the_keyring_is_asked_as_uv_asks_it(
    tmp_path: Path, index: UserIndex, answers: dict[str, str], found: Login | None, asked: list[str]
) -> None:
    path, log = a_keyring(tmp_path, answers)
    user = a_user(index, PATH=path, UV_KEYRING_PROVIDER="subprocess")
    logins = Logins(read_credentials(user), open_keyring(user))
    page = index.url.replace("anna@", "") + "/x/"
    for _ in range(3):
        assert (logins.before(page) or logins.after_refusal(page)) == found
    assert log() == asked  # once


def test_no_keyring_without_its_provider(tmp_path: Path) -> None:
    path, log = a_keyring(tmp_path, {"get https://one.invalid/simple anna": "k"})
    index = UserIndex(url="https://anna@one.invalid/simple")
    for user in (a_user(index, PATH=path), a_user(index, PATH=path, UV_KEYRING_PROVIDER="disabled")):
        assert open_keyring(user) is None
        assert sent(user, "https://one.invalid/simple/x/") == login("anna", "")
    assert log() == []
    asked = UserIndexes(settings=(("keyring-provider", "subprocess"),))
    assert open_keyring(asked) is not None


@pytest.mark.parametrize(
    "script", [None, "#!/bin/sh\nexit 3\n", "#!/bin/sh\n", "#!/bin/sh\nprintf '\\377\\n'\n", "no script"]
)
def test_a_keyring_that_fails_knows_nothing(tmp_path: Path, script: str | None) -> None:
    if script is not None:
        command = Path(a_file(tmp_path / "keyring", script))
        command.chmod(0o755)
    keyring = Keyring({"PATH": str(tmp_path)})
    assert keyring.find(("https://one.invalid/simple", "one.invalid"), "anna") is None


# ---------------------------------------------------------------- policies and later indexes


def test_an_index_that_wants_no_login_gets_none(tmp_path: Path) -> None:
    netrc = a_file(tmp_path / "netrc", "machine one.invalid login bob password b\n")
    index = UserIndex(url="https://anna:a@one.invalid/simple", options=(("authenticate", "never"),))
    user = a_user(index, NETRC=netrc)
    assert sent(user, "https://one.invalid/simple/x/") is None
    assert tried(user, "https://one.invalid/simple/x/") is None


def test_an_index_of_one_request_has_its_variables_too() -> None:
    logins = Logins(read_credentials(a_user(given={"UV_INDEX_LANE_USERNAME": "anna", "UV_INDEX_LANE_PASSWORD": "a"})))
    assert logins.before("https://lane.invalid/whl/torch/") is None
    logins.add([IndexAddress(url="https://lane.invalid/whl", name="lane")])
    assert logins.before("https://lane.invalid/whl/torch/") == login("anna", "a")
    assert logins.before("https://elsewhere.invalid/whl/torch/") is None


def test_nothing_secret_is_shown() -> None:
    user = a_user(
        UserIndex(url="https://carl:c-secret@two.invalid/simple", name="own"),
        given={"UV_INDEX_OWN_PASSWORD": "v-secret", "UV_INDEX_OTHER_PASSWORD": "o-secret"},
    )
    credentials = read_credentials(user)
    shown = repr((user, credentials, Logins(credentials).before("https://two.invalid/simple")))
    assert "secret" not in shown
    assert "carl" not in shown
    assert Credentials() == read_credentials(UserIndexes())


# ---------------------------------------------------------------- what the client sends


def _logins_of(server: ScriptedServer) -> list[str | None]:
    return [seen.headers.get("authorization") for seen in server.seen]


def test_a_login_is_looked_for_after_a_refusal_and_then_sent_at_once(tmp_path: Path) -> None:
    netrc = a_file(tmp_path / "netrc", "machine 127.0.0.1 login bob password b\n")
    refused = Reply(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})
    with ScriptedServer({"/a": [refused, Reply(body=b"a")], "/b": [Reply(body=b"b")]}) as server:
        credentials = read_credentials(a_user(NETRC=netrc))
        with client(credentials=credentials) as http:
            assert http.read(server.url("/a"), most=10).body == b"a"
            assert http.read(server.url("/b"), most=10).body == b"b"
    assert _logins_of(server) == [None, login("bob", "b").header(), login("bob", "b").header()]


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_without_any_login_is_the_answer(status: int) -> None:
    with ScriptedServer({"/a": [Reply(status=status)]}) as server, client() as http:
        assert http.read(server.url("/a"), most=10).status == status
    assert len(server.seen) == 1


def test_a_wrong_login_is_tried_once(tmp_path: Path) -> None:
    netrc = a_file(tmp_path / "netrc", "machine 127.0.0.1 login bob password b\n")
    credentials = read_credentials(a_user(NETRC=netrc))
    with ScriptedServer({"/a": [Reply(status=401)]}) as server, client(credentials=credentials) as http:
        assert http.read(server.url("/a"), most=10).status == 401
    assert len(server.seen) == 2


def test_a_user_name_in_an_address_finds_its_password(tmp_path: Path) -> None:
    netrc = a_file(tmp_path / "netrc", "machine 127.0.0.1 login bob password b\n")
    credentials = read_credentials(a_user(NETRC=netrc))
    with ScriptedServer({"/a": [Reply(body=b"a")]}) as server, client(credentials=credentials) as http:
        for given in ("bob@", "anna@", "anna:@"):
            http.read(server.url("/a", login=given), most=10)
    anna = login("anna", "").header()
    assert _logins_of(server) == [login("bob", "b").header(), anna, anna]


def test_a_redirect_to_another_host_takes_no_login_along(tmp_path: Path) -> None:
    with ScriptedServer({"/b": [Reply(status=403), Reply(body=b"b")]}) as other:
        place = f"http://mallory:m@localhost:{other.port}/b"
        with ScriptedServer({"/a": [Reply(status=302, headers={"Location": place})]}) as server:
            index = UserIndex(url=server.url("/simple", login="anna:a@"))
            with client(credentials=read_credentials(a_user(index))) as http:
                assert http.read(server.url("/a"), most=10).status == 403
    assert _logins_of(server) == [login("anna", "a").header()]
    assert _logins_of(other) == [None]


# ---------------------------------------------------------------- what is said of a refused login


@pytest.mark.parametrize(
    ("index", "variables", "said", "hint"),
    [
        ("https://h.invalid/simple", {}, "none is known", "uv auth login https://h.invalid"),
        ("http://127.0.0.1:8080/simple", {}, "none is known", "uv auth login http://127.0.0.1:8080"),
        (
            "http://h.invalid/simple",
            {},
            "none is known",
            'echo "machine h.invalid login USER password PASSWORD" >> "${NETRC:-$HOME/.netrc}"',
        ),
        (
            "https://h.invalid/simple",
            {"UV_INDEX_OWN_USERNAME": "anna", "UV_INDEX_OWN_PASSWORD": "open-sesame"},
            "the login of UV_INDEX_OWN_PASSWORD is refused",
            "unset UV_INDEX_OWN_USERNAME UV_INDEX_OWN_PASSWORD && uv auth login https://h.invalid",
        ),
        (
            "https://anna:open-sesame@h.invalid/simple",
            {},
            "the login in UV_DEFAULT_INDEX is refused",
            "leave the login out of UV_DEFAULT_INDEX, then: uv auth login https://h.invalid",
        ),
    ],
)
def test_a_refused_login_is_named_by_where_it_is_from(
    index: str, variables: dict[str, str], said: str, hint: str
) -> None:
    user = a_user(UserIndex(url=index, name="own", source="UV_DEFAULT_INDEX"), given=variables)
    page = index.replace("anna:open-sesame@", "") + "/torch/"
    assert refused_login(page, Logins(read_credentials(user))) == (said, hint)


def test_a_refused_login_of_netrc_is_edited_there(tmp_path: Path) -> None:
    netrc = a_file(tmp_path / "my netrc", "machine h.invalid login anna password open-sesame\n")
    said, hint = refused_login("https://h.invalid/simple/x/", Logins(read_credentials(a_user(NETRC=netrc))))
    assert said == f"the login in {netrc} is refused"
    assert hint == f"${{EDITOR:-vi}} '{netrc}'"
