"""Certificates, proxies and limits: from uv's words, from pip's, and which of them count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from qresolve.closure.indexes import UserIndexes, read_user_indexes
from qresolve.errors import UsageError
from qresolve.http.failures import HttpFailed
from qresolve.http.proxies import Proxies, parse_proxies
from qresolve.http.settings import HttpSettings, read_http_settings
from qresolve.http.trust import Named, Trust
from tests.index_server import Certificate, IndexServer, make_wheel, self_signed
from tests.scripted_server import Reply, ScriptedServer
from tests.unit.http.http_support import client

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def settings(variables: dict[str, str], home: Path) -> HttpSettings:
    return read_http_settings(read_user_indexes({"PIP_CONFIG_FILE": "/dev/null", **variables}, home))


def pip_conf(home: Path, text: str) -> Path:
    path = home / "pip.conf"
    path.write_text(f"[global]\n{text}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("variables", "check"),
    [
        ({"UV_HTTP_TIMEOUT": "7", "PIP_DEFAULT_TIMEOUT": "9"}, lambda found: found.idle == 7.0),
        ({"PIP_DEFAULT_TIMEOUT": "9.5"}, lambda found: found.idle == 9.0),
        ({"PIP_TIMEOUT": "0.1"}, lambda found: found.idle == 1.0),
        ({"PIP_RETRIES": "0"}, lambda found: found.attempts == 1),
        ({"UV_HTTP_RETRIES": "2", "PIP_RETRIES": "0"}, lambda found: found.attempts == 3),
        ({"UV_CONCURRENT_DOWNLOADS": "2"}, lambda found: found.parallel == 2),
        ({"UV_OFFLINE": "1"}, lambda found: found.offline),
        ({}, lambda found: not found.offline and found.trust == Trust() and found.proxies == Proxies()),
        ({"PIP_TRUSTED_HOST": "a:1 b"}, lambda found: found.trust.unchecked == ("a:1", "b")),
        ({"UV_INSECURE_HOST": "a c", "PIP_TRUSTED_HOST": "b"}, lambda found: found.trust.unchecked == ("a", "c", "b")),
        ({"PIP_PROXY": "p:3128"}, lambda found: found.proxies.https == "http://p:3128"),
        ({"PIP_PROXY": "p:3128", "HTTPS_PROXY": "http://q"}, lambda found: found.proxies.https == "http://q"),
    ],
)
def test_settings_are_those_of_uv_and_where_it_says_nothing_of_pip(
    variables: dict[str, str], check: Callable[[HttpSettings], bool], tmp_path: Path
) -> None:
    assert check(settings(variables, tmp_path))


@pytest.mark.parametrize(
    ("variables", "files", "folders"),
    [
        ({"SSL_CERT_FILE": "a"}, ["a"], []),
        ({"SSL_CERT_FILE": "a", "SSL_CERT_DIR": "d:none:e"}, ["a"], ["d", "e"]),
        ({"SSL_CERT_DIR": "d", "PIP_CERT": "b"}, [], ["d"]),
        ({"PIP_CERT": "b", "REQUESTS_CA_BUNDLE": "c"}, ["b"], []),
        ({"REQUESTS_CA_BUNDLE": "c", "CURL_CA_BUNDLE": "a"}, ["c"], []),
        ({"CURL_CA_BUNDLE": "a"}, ["a"], []),
        ({"REQUESTS_CA_BUNDLE": "d"}, [], ["d"]),
        ({"REQUESTS_CA_BUNDLE": "c", "UV_SYSTEM_CERTS": "1"}, [], []),
        ({"PIP_CERT": "~/b"}, ["b"], []),
    ],
)
def test_which_certificates_count(
    variables: dict[str, str], files: list[str], folders: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in "abc":
        (tmp_path / name).touch()
    for name in "de":
        (tmp_path / name).mkdir()
    trust = settings(variables, tmp_path).trust
    assert [named.path for named in trust.files] == [str(tmp_path / name) for name in files]
    assert [named.path for named in trust.folders] == [str(tmp_path / name) for name in folders]


def test_pips_file_counts_and_uv_is_told_too(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    conf = pip_conf(
        tmp_path,
        f"cert = {tmp_path}/ca.pem\ntrusted_host = a\n  b:8443\nproxy = http://p:1\nretries = 7\n"
        "timeout = 60\nkeyring-provider = subprocess",
    )
    found = read_user_indexes({"PIP_CONFIG_FILE": str(conf)}, tmp_path)
    assert dict(found.variables) == {
        "SSL_CERT_FILE": f"{tmp_path}/ca.pem",
        "UV_INSECURE_HOST": "a b:8443",
        "ALL_PROXY": "http://p:1",
        "UV_HTTP_RETRIES": "7",
        "UV_HTTP_TIMEOUT": "60",
        "UV_KEYRING_PROVIDER": "subprocess",
    }


@pytest.mark.parametrize(
    ("variables", "said", "undo"),
    [
        ({"SSL_CERT_FILE": "/no/such.pem"}, "SSL_CERT_FILE names /no/such.pem", "unset SSL_CERT_FILE"),
        ({"PIP_CERT": "/no/such.pem"}, "PIP_CERT names /no/such.pem", "unset PIP_CERT"),
        ({"REQUESTS_CA_BUNDLE": "/no/such"}, "REQUESTS_CA_BUNDLE names /no/such", "unset REQUESTS_CA_BUNDLE"),
        ({"SSL_CERT_DIR": "/no/such:/nor/this"}, "SSL_CERT_DIR names /no/such", "unset SSL_CERT_DIR"),
        ({"UV_HTTP_TIMEOUT": "soon"}, "UV_HTTP_TIMEOUT is 'soon'", "unset UV_HTTP_TIMEOUT"),
        ({"PIP_RETRIES": "nan"}, "PIP_RETRIES is 'nan'", "unset PIP_RETRIES"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_as_the_user_knows_it(
    variables: dict[str, str], said: str, undo: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as refused:
        settings(variables, tmp_path)
    assert said in refused.value.message
    assert refused.value.hint == undo


def test_a_setting_of_pips_file_is_named_with_the_file(tmp_path: Path) -> None:
    conf = pip_conf(tmp_path, "cert = /no/such.pem")
    with pytest.raises(UsageError, match=f"cert of {conf} names /no/such.pem") as refused:
        settings({"PIP_CONFIG_FILE": str(conf)}, tmp_path)
    assert refused.value.hint == "pip config unset global.cert"


# ---------------------------------------------------------------- trust


@pytest.mark.parametrize(
    ("unchecked", "url", "checked"),
    [
        ("h.invalid", "https://h.invalid/x", False),
        ("h.invalid", "https://H.invalid:8443/x", False),
        ("h.invalid:8443", "https://h.invalid:8443/x", False),
        ("h.invalid:8443", "https://h.invalid/x", True),
        ("h.invalid:443", "https://h.invalid/x", False),
        ("https://h.invalid", "https://h.invalid/x", False),
        ("http://h.invalid", "https://h.invalid/x", True),
        ("*", "https://anything.invalid/x", False),
        ("h.invalid", "https://a.h.invalid/x", True),
        ("h.invalid", "https://h.invalid.example/x", True),
        ("h.invalid:x", "https://h.invalid/x", True),
        ("", "https://h.invalid/x", True),
        ("[::1]:8443", "https://[::1]:8443/x", False),
    ],
)
def test_a_host_that_is_trusted_is_that_host(unchecked: str, url: str, *, checked: bool) -> None:
    assert Trust(unchecked=(unchecked,)).checks(url) is checked


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    made = self_signed(tmp_path_factory.mktemp("certificates"))
    if made is None:
        pytest.skip("there is no openssl command")
    return made


def named(path: Path) -> Named:
    return Named(path=str(path), origin="SSL_CERT_FILE", undo="unset SSL_CERT_FILE")


def test_a_server_is_believed_by_its_authority_or_by_name(certificate: Certificate, tmp_path: Path) -> None:
    (tmp_path / "authority.pem").write_bytes(certificate.certificate.read_bytes())
    (tmp_path / "readme").write_text("none")
    with IndexServer(certificate=certificate) as server:
        server.add(make_wheel("x", "1.0"))
        page = f"{server.url}/x/"
        believed: list[dict[str, Any]] = [
            {"files": (named(certificate.certificate),)},
            {"folders": (named(tmp_path),)},
            {"unchecked": (f"127.0.0.1:{server.port}",)},
        ]
        for trust in believed:
            with client(trust=Trust(**trust)) as http:
                assert http.read(page, most=10_000).status == 200
        for doubt in (Trust(), Trust(files=(named(certificate.server),), unchecked=("127.0.0.1:1",))):
            with client(trust=doubt) as http, pytest.raises(HttpFailed, match=r"(?i)certificate"):
                http.read(page.replace("127.0.0.1", "localhost"), most=10_000)


def test_only_the_trusted_host_is_not_checked(certificate: Certificate) -> None:
    with IndexServer(certificate=certificate) as server:
        server.redirect("x", f"https://localhost:{server.port}/simple/y/")
        with client(trust=Trust(unchecked=("127.0.0.1",))) as http, pytest.raises(HttpFailed, match=r"(?i)certificate"):
            http.read(f"{server.url}/x/", most=10)
    assert [seen.line for seen in server.seen] == ["GET /simple/x/"]


@pytest.mark.parametrize("text", ["none", ""])
def test_certificates_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    broken = tmp_path / "authorities.pem"
    broken.write_text(text)
    with client(trust=Trust(files=(named(broken),))) as http, pytest.raises(UsageError, match="certificate") as refused:
        http.read("https://127.0.0.1:9/", most=1)
    assert refused.value.hint == "unset SSL_CERT_FILE"
    empty = tmp_path / "empty"
    empty.mkdir()
    with client(trust=Trust(folders=(named(empty),))) as http, pytest.raises(UsageError, match="certificate"):
        http.read("https://127.0.0.1:9/", most=1)


# ---------------------------------------------------------------- proxies


@pytest.mark.parametrize(
    ("variables", "http", "https"),
    [
        ({}, None, None),
        ({"HTTPS_PROXY": "http://p"}, None, "http://p"),
        ({"ALL_PROXY": "p:1"}, "http://p:1", "http://p:1"),
        ({"ALL_PROXY": "http://a", "HTTP_PROXY": "http://h"}, "http://h", "http://a"),
        ({"https_proxy": "http://small", "HTTPS_PROXY": "http://large"}, None, "http://small"),
        ({"HTTP_PROXY": "http://h", "REQUEST_METHOD": "GET"}, None, None),
        ({"http_proxy": "http://h", "REQUEST_METHOD": "GET"}, "http://h", None),
        ({"HTTPS_PROXY": ""}, None, None),
    ],
)
def test_proxies_of_the_environment(variables: dict[str, str], http: str | None, https: str | None) -> None:
    found = parse_proxies(variables, {})
    assert (found.http, found.https) == (http, https)


def test_uvs_own_proxies_take_the_place_of_the_environments() -> None:
    own = {"https-proxy": "http://own", "no-proxy": ["h.invalid"]}
    found = parse_proxies({"HTTP_PROXY": "http://p", "HTTPS_PROXY": "http://p", "NO_PROXY": "*"}, own)
    assert found.select("https://x.invalid/") == "http://own"
    assert found.select("https://h.invalid/") is None
    assert found.select("http://x.invalid/") is None


@pytest.mark.parametrize(
    ("exempt", "url", "direct"),
    [
        ("h.invalid", "https://h.invalid/", True),
        ("h.invalid", "https://a.h.invalid/", True),
        (".h.invalid", "https://a.h.invalid/", True),
        ("*.h.invalid", "https://a.h.invalid/", True),
        ("h.invalid", "https://xh.invalid/", False),
        ("h.invalid:8443", "https://h.invalid:8443/", True),
        ("h.invalid:8443", "https://h.invalid/", False),
        ("10.0.0.0/8", "https://10.1.2.3/", True),
        ("10.0.0.0/8", "https://11.1.2.3/", False),
        ("127.0.0.1", "http://127.0.0.1:8080/", True),
        ("::1", "http://[::1]:8080/", True),
        ("a, h.invalid", "https://h.invalid/", True),
        ("*", "https://h.invalid/", True),
        ("", "https://h.invalid/", False),
        (",", "https://h.invalid/", False),
    ],
)
def test_hosts_without_a_proxy(exempt: str, url: str, *, direct: bool) -> None:
    found = parse_proxies({"ALL_PROXY": "http://p", "no_proxy": exempt}, {})
    assert (found.select(url) is None) is direct


def test_requests_go_through_the_proxy_and_it_alone_gets_its_login() -> None:
    with (
        ScriptedServer({"http://h.invalid/x": [Reply(body=b"x")]}) as proxy,
        client(proxies=Proxies(http=f"http://anna:a@127.0.0.1:{proxy.port}")) as http,
    ):
        assert http.read("http://h.invalid/x", most=10).body == b"x"
    (seen,) = proxy.seen
    assert seen.headers["proxy-authorization"].startswith("Basic ")
    assert "authorization" not in seen.headers


def test_the_environments_proxy_is_not_taken_for_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the client does hangs on the settings it was given, not on the process."""
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.delenv("no_proxy")
    with ScriptedServer({"/x": [Reply(body=b"x")]}) as server, client() as http:
        assert http.read(server.url("/x"), most=10).body == b"x"


@pytest.mark.parametrize("proxy", ["ftp://anna:open-sesame@p.invalid", "socks5://anna:open-sesame@p.invalid"])
def test_a_proxy_that_cannot_be_used_is_named_without_its_login(proxy: str) -> None:
    with client(proxies=Proxies(https=proxy)) as http, pytest.raises(UsageError, match=r"p\.invalid") as refused:
        http.read("https://h.invalid/x", most=1)
    assert refused.value.hint
    assert "open-sesame" not in refused.value.message


def test_reading_settings_twice_is_the_same(tmp_path: Path) -> None:
    assert settings({}, tmp_path) == settings({}, tmp_path)
    assert read_http_settings(UserIndexes()) == HttpSettings()
