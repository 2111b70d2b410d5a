"""``qresolve lock`` from an index that wants a login, by every way that uv and pip know one, and that none gets out."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import tomli

from qresolve.cli.main import main
from qresolve.install.installers import find_uv
from tests.fake_stack import isolate_user, stack
from tests.index_server import IndexServer, Seen

if TYPE_CHECKING:
    from collections.abc import Iterator

USER, PASSWORD = "anna", "open/sesame:2 %"
WRONG = "open/simsim:3 %"
ASKED = ["lock", "--gpu", "sm120", "--formats", "mxfp4,nvfp4", "--force"]
PAGES_OF = "qresolve/"


class Place:
    """A user of their own: home, configuration and what they can put there."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        isolate_user(folder, monkeypatch)
        self.folder, self._monkeypatch = folder, monkeypatch
        self.given = folder / "given"  # what holds the secret, and is the user's own
        self.given.mkdir()
        self.set(HOME=str(folder / "home"), NETRC=str(self.given / "netrc"), UV_HTTP_RETRIES="0")
        self.set(UV_CREDENTIALS_DIR=str(self.given / "store"))

    def set(self, **variables: str) -> None:
        for name, value in variables.items():
            self._monkeypatch.setenv(name, value)

    def unset(self, *names: str) -> None:
        for name in names:
            self._monkeypatch.delenv(name)

    def netrc(self, host: str, password: str) -> None:
        (self.given / "netrc").write_text(f'machine {host} login {USER} password "{password}"\n', encoding="utf-8")

    def keyring(self, server: IndexServer, password: str) -> None:
        """A command ``keyring`` that knows the user of this server's index."""
        folder = self.given / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "secret").write_text(f"{password}\n", encoding="utf-8")
        command = folder / "keyring"
        command.write_text(
            f'#!/bin/sh\n[ "$*" = "get {server.url} {USER}" ] && cat "{folder}/secret" && exit 0\nexit 1\n',
            encoding="utf-8",
        )
        command.chmod(0o755)
        self.set(PATH=f"{folder}:{os.environ['PATH']}", UV_KEYRING_PROVIDER="subprocess")

    def store(self, service: str, password: str) -> None:
        """What ``uv auth login`` does with what the person types."""
        command = [find_uv(), "auth", "login", service, "--username", USER, "--password", password]
        subprocess.run(command, check=True, capture_output=True)

    def leaks(self, *texts: str) -> list[str]:
        """Every file below the folder, and every text, in which the secret stands in any form."""
        forms = set()
        for password in (PASSWORD, WRONG):
            pair = f"{USER}:{password}".encode()
            forms |= {password.encode(), quote(password, safe="").encode(), quote(password).encode()}
            forms |= {base64.b64encode(pair), base64.urlsafe_b64encode(pair), base64.b64encode(password.encode())}
        found = [text for text in texts if any(form in text.encode() for form in forms)]
        for path in self.folder.rglob("*"):
            if path.is_file() and not path.is_relative_to(self.given):
                held = path.read_bytes() + str(path).encode()
                found += [str(path)] if any(form in held for form in forms) else []
        return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


@pytest.fixture
def private() -> Iterator[IndexServer]:
    """The whole stack behind a login."""
    with IndexServer(user=USER, password=PASSWORD) as server:
        server.add(*stack())
        yield server


def named(server: IndexServer, *, user: str = "", host: str = "127.0.0.1") -> str:
    """The address of the index, with a user name or under another name of this machine."""
    return server.url.replace("127.0.0.1", f"{user}@{host}" if user else host)


def give(place: Place, source: str, server: IndexServer, password: str = PASSWORD) -> list[str]:
    """Let the user have the index and its login in this way; further options of the command."""
    address = f"http://{USER}:{quote(password, safe='')}@127.0.0.1:{server.port}/simple"
    if source == "address":
        place.set(UV_DEFAULT_INDEX=address)
    elif source == "uv.toml":
        (place.given / "uv.toml").write_text(f'[[index]]\nurl = "{address}"\ndefault = true\n', encoding="utf-8")
        place.set(UV_CONFIG_FILE=str(place.given / "uv.toml"))
    elif source == "pip.conf":
        text = f"[global]\nindex-url = {address}\n"
        (place.given / "pip.conf").write_text(text, encoding="utf-8")
        place.set(PIP_CONFIG_FILE=str(place.given / "pip.conf"))
    elif source == "variables":
        place.set(UV_DEFAULT_INDEX=f"my-own={server.url}")
        given = {"UV_INDEX_MY_OWN_USERNAME": USER, "UV_INDEX_MY_OWN_PASSWORD": password}
        place.set(**given)
    elif source == "netrc":
        place.netrc("127.0.0.1", password)
        place.set(UV_DEFAULT_INDEX=server.url)
    elif source == "keyring":
        place.keyring(server, password)
        place.set(UV_DEFAULT_INDEX=named(server, user=USER))
    elif source == "store":
        place.store(f"http://127.0.0.1:{server.port}", password)
        place.set(UV_DEFAULT_INDEX=server.url)
    elif source == "option":
        return ["--index", f"own={address}=ninja"]
    elif source == "option's variables":
        given = {"UV_INDEX_OWN_USERNAME": USER, "UV_INDEX_OWN_PASSWORD": password}
        place.set(**given)
        return ["--index", f"own={server.url}=ninja"]
    return []


SOURCES = ["address", "uv.toml", "pip.conf", "variables", "netrc", "keyring", "store"]


def ours(server: IndexServer) -> list[Seen]:
    """The requests that are not uv's."""
    return [seen for seen in server.seen if seen.headers["user-agent"].startswith(PAGES_OF)]


def lock_text(server: IndexServer) -> str:
    """The lock, whatever the server's port was; without the digests over addresses."""
    text = Path("pylock.toml").read_text(encoding="utf-8").replace(f":{server.port}/", ":1/")
    return re.sub(r'"sha256:[0-9a-f]{64}"|(?<=^packages = )"[0-9a-f]{16}"', '"…"', text, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def public_lock(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The lock of the same stack where no login is wanted."""
    before = Path.cwd()
    with pytest.MonkeyPatch.context() as monkeypatch, IndexServer() as server:
        server.add(*stack())
        Place(tmp_path_factory.mktemp("public"), monkeypatch).set(UV_DEFAULT_INDEX=server.url)
        assert main(ASKED) == 0
        text = lock_text(server)
    os.chdir(before)
    return text


@pytest.mark.parametrize("source", SOURCES)
def test_the_lock_is_that_of_a_public_index_and_holds_no_secret(
    source: str, place: Place, private: IndexServer, public_lock: str, capfd: pytest.CaptureFixture[str]
) -> None:
    give(place, source, private)
    assert main(ASKED) == 0
    assert lock_text(private) == public_lock
    assert main(["wheelhouse", "pylock.toml", "-o", "house"]) == 0
    assert len(list(Path("house").glob("*.whl"))) == len(packages())
    out, err = capfd.readouterr()
    read = ours(private)
    assert {seen.line.split("/")[1] for seen in read} == {"simple", "files"}
    assert {seen.login for seen in read} <= {None, f"{USER}:{PASSWORD}"}
    assert place.leaks(out, err) == []
    assert place.leaks(PASSWORD) == [PASSWORD]  # it would be found
    (place.folder / "leak").write_bytes(base64.b64encode(f"{USER}:{PASSWORD}".encode()))
    assert place.leaks() == [str(place.folder / "leak")]


@pytest.mark.parametrize("source", ["option", "option's variables"])
def test_the_login_of_an_index_for_one_package(
    source: str, place: Place, private: IndexServer, capfd: pytest.CaptureFixture[str]
) -> None:
    with IndexServer() as public:
        public.add(*(wheel for wheel in stack() if wheel.name != "ninja"))
        place.set(UV_DEFAULT_INDEX=public.url)
        assert main([*ASKED, *give(place, source, private)]) == 0
        assert {seen.login for seen in public.seen} == {None}
    (ninja,) = [package for package in packages() if package["name"] == "ninja"]
    assert ninja["index"] == private.url
    assert ninja["tool"]["qresolve"]["record"]  # read in the wheel, with the login
    assert place.leaks(*capfd.readouterr()) == []


def packages() -> list[dict[str, Any]]:
    found = tomli.loads(Path("pylock.toml").read_text(encoding="utf-8"))["packages"]
    assert isinstance(found, list)
    return found


# ---------------------------------------------------------------- a wrong login


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("address", "the login in UV_DEFAULT_INDEX is refused"),
        ("uv.toml", "the login in uv.toml is refused"),
        ("variables", "the login of UV_INDEX_MY_OWN_PASSWORD is refused"),
        ("netrc", "the login in {given}/netrc is refused"),
        ("keyring", "the login of the keyring is refused"),
        ("store", "the login that `uv auth login` was told is refused"),
    ],
)
def test_a_wrong_password_ends_with_3_and_names_where_it_is_from(
    source: str, said: str, place: Place, private: IndexServer, capfd: pytest.CaptureFixture[str]
) -> None:
    give(place, source, private, WRONG)
    assert main(ASKED) == 3
    out, err = capfd.readouterr()
    message = err.partition("error: ")[2].partition("\n")[0]
    assert f"http://127.0.0.1:{private.port}/simple" in message
    assert "wants other credentials (HTTP 401)" in message
    assert said.format(given=place.given) in message
    assert "hint: " in err
    assert not Path("pylock.toml").exists()
    assert place.leaks(out, err) == []
    assert USER not in err  # a user name can be a token


@pytest.mark.parametrize("source", ["none", "variables", "store"])
def test_what_the_hint_says_helps(
    source: str, place: Place, private: IndexServer, capfd: pytest.CaptureFixture[str]
) -> None:
    place.set(UV_DEFAULT_INDEX=private.url)
    if source != "none":
        give(place, source, private, WRONG)
    assert main(ASKED) == 3
    hint = capfd.readouterr().err.partition("hint: ")[2].strip()
    unset, _, login = hint.rpartition(" && ")
    if unset:
        assert unset.startswith("unset ")
        place.unset(*unset.split()[1:])
    program, *words = login.split()
    assert program == "uv"
    # What the person would type at uv's questions.
    subprocess.run([find_uv(), *words, "--username", USER, "--password", PASSWORD], check=True, capture_output=True)
    assert main(ASKED) == 0


def test_without_any_login_nothing_is_sent_and_the_exit_code_is_3(
    place: Place, private: IndexServer, capfd: pytest.CaptureFixture[str]
) -> None:
    place.set(UV_DEFAULT_INDEX=private.url)
    place.netrc("elsewhere.invalid", PASSWORD)
    assert main(ASKED) == 3
    assert {seen.login for seen in private.seen} == {None}
    err = capfd.readouterr().err
    assert "wants other credentials (HTTP 401): none is known" in err
    assert f"hint: uv auth login http://127.0.0.1:{private.port}\n" in err


# ---------------------------------------------------------------- another host


@pytest.mark.parametrize("source", SOURCES)
def test_files_on_another_host_are_fetched_without_the_login(source: str, place: Place) -> None:
    with (
        IndexServer() as files,
        IndexServer(user=USER, password=PASSWORD, files_at=f"http://localhost:{files.port}/files") as index,
    ):
        for server in (files, index):
            server.add(*stack())
        give(place, source, index)
        assert main(ASKED) == 0
        assert {package["wheels"][0]["url"].split("/")[2] for package in packages()} == {f"localhost:{files.port}"}
        assert ours(files)
        assert {seen.login for seen in files.seen} == {None}


@pytest.mark.parametrize("source", SOURCES)
def test_a_page_that_is_led_to_another_host_is_fetched_without_the_login(source: str, place: Place) -> None:
    with IndexServer() as other, IndexServer(user=USER, password=PASSWORD) as index:
        for server in (other, index):
            server.add(*stack())
        index.redirect("ninja", f"{named(other, host='localhost')}/ninja/")
        give(place, source, index)
        assert main(ASKED) == 0
        assert {seen.line for seen in ours(other)} >= {"GET /simple/ninja/"}
        assert {seen.login for seen in other.seen} == {None}


@pytest.mark.parametrize("source", ["address", "netrc", "variables"])
def test_not_even_where_the_other_host_asks_for_one(source: str, place: Place) -> None:
    with IndexServer(user=USER, password=PASSWORD) as other, IndexServer(user=USER, password=PASSWORD) as index:
        for server in (other, index):
            server.add(*stack())
        index.redirect("ninja", f"{named(other, host='localhost')}/ninja/")
        give(place, source, index)
        assert main(ASKED) == 3
        assert other.seen
        assert {seen.login for seen in other.seen} == {None}
