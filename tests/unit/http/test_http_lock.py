"""``qresolve lock`` over a network that is slow, breaks off, leads elsewhere or is off; all on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tomli

from qresolve.cli.main import main
from tests.fake_stack import isolate_user, stack
from tests.index_server import Certificate, IndexServer, MadeWheel, labelled, make_variants, make_wheel, self_signed

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]
ASKED = ["lock", "--gpu", "sm120", "--formats", "mxfp4,nvfp4", "--force"]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IndexServer]:
    isolate_user(tmp_path, monkeypatch)
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with IndexServer(etags=True) as server:
        server.add(*stack())
        monkeypatch.setenv("UV_DEFAULT_INDEX", server.url)
        yield server


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    made = self_signed(tmp_path_factory.mktemp("certificates"))
    if made is None:
        pytest.skip("there is no openssl command")
    return made


def lock_bytes() -> bytes:
    return Path("pylock.toml").read_bytes()


def packages() -> dict[str, dict[str, Any]]:
    return {package["name"]: package for package in tomli.loads(lock_bytes().decode())["packages"]}


def pages(server: IndexServer, project: str) -> list[int]:
    """The statuses that our own requests for a project's page got, uv's left out."""
    asked = [seen for seen in server.seen if seen.headers["user-agent"].startswith("qresolve/")]
    assert asked
    return [
        status
        for seen, (line, status) in zip(server.seen, server.answers, strict=True)
        if seen in asked and line == f"GET /simple/{project}/"
    ]


def own_cache(tmp_path: Path) -> Path:
    return tmp_path / "own-cache" / "qresolve"


# ---------------------------------------------------------------- what the server may do, and the lock is the same


def test_a_page_that_still_holds_does_not_come_again(index: IndexServer) -> None:
    assert main(ASKED) == 0
    first = lock_bytes()
    index.seen.clear()
    index.answers.clear()
    assert main(ASKED) == 0
    assert pages(index, "ninja") == [304]
    assert pages(index, "torch") == [304]
    assert lock_bytes() == first


def test_a_page_that_changed_is_seen(index: IndexServer) -> None:
    assert main(ASKED) == 0
    version = packages()["ninja"]["version"]
    plain = next(wheel for wheel in stack() if wheel.name == "ninja")
    label = {"v1": {"nvidia": {"sm_arch": ["120f_real"]}}}
    index.add(labelled(plain, "v1"), make_variants("ninja", version, label))
    assert main(ASKED) == 0
    assert packages()["ninja"]["tool"]["qresolve"]["variant"] == "v1"


@pytest.mark.parametrize("damage", ["cut", "emptied", "another page", "gone"])
def test_no_state_of_the_cache_changes_the_lock(damage: str, index: IndexServer, tmp_path: Path) -> None:
    assert main(ASKED) == 0
    first, entries = lock_bytes(), sorted(own_cache(tmp_path).rglob("entries/pages/*/*"))
    assert len(entries) > 3
    contents = [entry.read_bytes() for entry in entries]
    for entry, content, other in zip(entries, contents, [*contents[1:], contents[0]], strict=True):
        if damage == "gone":
            entry.unlink()
        else:
            entry.write_bytes({"cut": content[:-1], "emptied": b"", "another page": other}[damage])
    assert main(ASKED) == 0
    assert lock_bytes() == first


@pytest.mark.parametrize("trouble", ["503", "500", "cut"])
def test_a_passing_trouble_is_asked_through(trouble: str, index: IndexServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(ASKED) == 0
    first = lock_bytes()
    monkeypatch.setenv("UV_HTTP_RETRIES", "2")
    shutil.rmtree(os.environ["XDG_CACHE_HOME"])
    if trouble == "cut":
        index.cut("ninja", times=1, of="qresolve")
    else:
        index.fail("ninja", int(trouble), times=1, of="qresolve")
    index.seen.clear()
    index.answers.clear()
    assert main(ASKED) == 0
    assert pages(index, "ninja") == [200 if trouble == "cut" else int(trouble), 200]
    assert lock_bytes() == first


@pytest.mark.parametrize("trouble", ["503", "cut", "stall"])
def test_a_trouble_that_stays_ends_with_3_and_names_the_page(
    trouble: str, index: IndexServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the index has of a gated package is then not known, and a lock without its variants would be a guess."""
    monkeypatch.setenv("UV_HTTP_TIMEOUT", "1")
    if trouble == "cut":
        index.cut("ninja", times=99, of="qresolve")
    elif trouble == "stall":
        index.stall("ninja", of="qresolve")
    else:
        index.fail("ninja", 503, of="qresolve")
    assert main(ASKED) == 3
    error = capsys.readouterr().err.partition("error: ")[2]
    said = {"503": "HTTP 503", "cut": "broke off", "stall": "no answer in time"}[trouble]
    assert f"what the index has of ninja could not be read: {index.url}/ninja/: {said}" in error
    assert not Path("pylock.toml").exists()


def test_uv_itself_is_kept_waiting_no_longer(
    index: IndexServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UV_HTTP_TIMEOUT", "1")
    index.stall("ninja")
    assert main(ASKED) == 3
    assert f"{index.url}/ninja/ cannot be reached (timed out)" in capsys.readouterr().err


def test_another_index_that_does_not_answer_is_told_and_stops_nothing(
    index: IndexServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with IndexServer() as gone:
        pass
    monkeypatch.setenv("UV_INDEX", index.url)
    monkeypatch.setenv("UV_DEFAULT_INDEX", gone.url)  # uv has found everything before it gets there
    assert main([*ASKED, "--engine", "vllm==0.33.0"]) == 0
    said = capsys.readouterr().err
    assert said.count(f"the files of {gone.url} were not compared with the locked ones: {gone.url}/") == 1
    assert "cannot be reached" in said


# ---------------------------------------------------------------- https


def test_https_with_an_authority_of_the_users(
    certificate: Certificate, index: IndexServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with IndexServer(certificate=certificate) as secure:
        secure.add(*stack())
        monkeypatch.setenv("UV_DEFAULT_INDEX", secure.url)
        assert main(ASKED) == 3  # nobody knows it
        conf = tmp_path / "pip.conf"
        for text in (f"cert = {certificate.certificate}", f"trusted-host = 127.0.0.1:{secure.port}"):
            conf.write_text(f"[global]\n{text}\n", encoding="utf-8")
            with monkeypatch.context() as patch:
                patch.setenv("PIP_CONFIG_FILE", str(conf))
                assert main(ASKED) == 0
        for name, value in {
            "SSL_CERT_FILE": str(certificate.certificate),
            "SSL_CERT_DIR": str(certificate.certificate.parent),
            "REQUESTS_CA_BUNDLE": str(certificate.certificate),
            "UV_INSECURE_HOST": "127.0.0.1",
            "PIP_TRUSTED_HOST": "127.0.0.1",
        }.items():
            with monkeypatch.context() as patch:
                patch.setenv(name, value)
                assert main(ASKED) == 0
        assert all(package["wheels"][0]["url"].startswith("https://") for package in packages().values())
        read = [seen for seen in secure.seen if seen.headers["user-agent"].startswith("qresolve/")]
        assert {seen.line.split("/")[1] for seen in read} == {"simple", "files"}


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("what", ["page of a gated package", "page of another package", "file"])
def test_a_redirect_from_https_to_http_is_refused(
    what: str,
    certificate: Certificate,
    index: IndexServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    trusted: bool,
) -> None:
    """A host that is trusted without a good certificate is still not one without encryption."""
    with IndexServer(certificate=certificate) as secure:
        secure.add(*stack())
        if what == "file":
            wheel = next(wheel for wheel in stack() if wheel.name == "ninja")
            secure.redirect(wheel.filename, f"{index.url.removesuffix('simple')}files/{wheel.filename}")
        else:
            project = "ninja" if "gated" in what else "llguidance"
            secure.redirect(project, f"{index.url}/{project}/")
        monkeypatch.setenv("UV_DEFAULT_INDEX", secure.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.certificate))
        if trusted:
            monkeypatch.setenv("UV_INSECURE_HOST", "127.0.0.1")
        assert main(ASKED) == 3
    error = capsys.readouterr().err.partition("error: ")[2]
    assert "which is not encrypted" in error.partition("\n")[0]
    assert index.url.removesuffix("simple") in error
    assert "hint: curl --head https://127.0.0.1" in error
    assert not Path("pylock.toml").exists()
    assert not [seen for seen in index.seen if seen.headers["user-agent"].startswith("qresolve/")]


def test_a_certificate_that_is_not_there_is_named_before_anything_is_asked(
    index: IndexServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such.pem")
    assert main(ASKED) == 2
    error = capsys.readouterr().err
    assert "REQUESTS_CA_BUNDLE names /no/such.pem, which is not there" in error
    assert "hint: unset REQUESTS_CA_BUNDLE" in error
    assert index.requests == []


@pytest.mark.parametrize("how", ["HTTP_PROXY", "PIP_PROXY", "pip.conf", "uv.toml"])
def test_uv_and_we_go_through_the_same_proxy(
    how: str, index: IndexServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    conf = tmp_path / "conf"
    with IndexServer(files_at="http://index.invalid/files") as proxy:
        proxy.add(*stack())
        address = f"http://127.0.0.1:{proxy.port}"
        if how == "pip.conf":
            conf.write_text(f"[global]\nproxy = {address}\n", encoding="utf-8")
            monkeypatch.setenv("PIP_CONFIG_FILE", str(conf))
        elif how == "uv.toml":
            conf.write_text(f'http-proxy = "{address}"\n', encoding="utf-8")
            monkeypatch.setenv("UV_CONFIG_FILE", str(conf))
            monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        else:
            monkeypatch.setenv(how, address)
        monkeypatch.setenv("UV_DEFAULT_INDEX", "http://index.invalid/simple")
        assert main(ASKED) == 0
        programs = {seen.headers["user-agent"].partition("/")[0] for seen in proxy.seen}
        assert programs == {"uv", "qresolve"}
        assert {seen.headers["host"] for seen in proxy.seen} == {"index.invalid"}


# ---------------------------------------------------------------- offline


def variant_stack(index: IndexServer) -> MadeWheel:
    """A release of ninja with a variant for the target, that asks for one more package."""
    plain = make_wheel("ninja", "1.13.3", files={"ninja.py": "x = 'plain'\n"})
    other = make_wheel("ninja", "1.13.3", requires=("only-of-the-variant",), files={"ninja.py": "x = 'own'\n"})
    variant = labelled(other, "cu13")
    description = {"cu13": {"nvidia": {"cuda_version_lower_bound": ["13.0"], "sm_arch": ["120f_real"]}}}
    index.add(plain, variant, make_variants("ninja", "1.13.3", description), make_wheel("only-of-the-variant", "1.0"))
    return variant


@pytest.mark.parametrize("core_metadata", [True, False])
@pytest.mark.parametrize("how", ["option", "variable"])
def test_offline_with_a_variant_sends_no_request_and_has_the_same_bytes(
    how: str, index: IndexServer, monkeypatch: pytest.MonkeyPatch, *, core_metadata: bool
) -> None:
    variant = variant_stack(index)
    if not core_metadata:  # then it is read in the wheel, by ranges
        index.projects["ninja"] = [
            type(served)(**{**_fields(served), "core_metadata": False}) for served in index.projects["ninja"]
        ]
    assert main(ASKED) == 0
    first, asked = lock_bytes(), len(index.requests)
    assert packages()["ninja"]["wheels"][0]["hashes"]["sha256"] == variant.sha256
    assert "only-of-the-variant" in packages()
    if how == "variable":
        monkeypatch.setenv("UV_OFFLINE", "1")
    assert main([*ASKED, *(["--offline"] if how == "option" else [])]) == 0
    assert index.requests[asked:] == []
    assert lock_bytes() == first


def _fields(served: Any) -> dict[str, Any]:
    return {name: getattr(served, name) for name in served.__slots__}


def test_offline_without_what_was_kept_says_so(
    index: IndexServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    variant_stack(index)
    assert main(ASKED) == 0
    asked = len(index.requests)
    shutil.rmtree(own_cache(tmp_path) / "metadata")
    assert main([*ASKED, "--offline"]) == 3
    error = capsys.readouterr().err
    assert "METADATA of http" in error
    assert "is not in the cache, and the network is off" in error
    assert index.requests[asked:] == []


# ---------------------------------------------------------------- two at once, and one that is killed


def _start(folder: Path) -> subprocess.Popen[str]:
    folder.mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "qresolve", *ASKED],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_processes_that_share_a_cache_write_the_same_lock(index: IndexServer, tmp_path: Path) -> None:
    variant_stack(index)
    assert main(ASKED) == 0
    alone = lock_bytes()
    for name in ("own-cache", "cache"):
        shutil.rmtree(tmp_path / name)
    both = [_start(tmp_path / name) for name in ("left", "right")]
    for process in both:
        _, err = process.communicate(timeout=200)
        assert process.returncode == 0, err
    assert {(tmp_path / name / "pylock.toml").read_bytes() for name in ("left", "right")} == {alone}
    assert not [path for path in own_cache(tmp_path).rglob(".*") if path.is_file()]  # nothing half written


def test_a_lock_that_is_killed_leaves_a_cache_that_can_be_used(index: IndexServer, tmp_path: Path) -> None:
    variant_stack(index)
    index.stall("torch", of="qresolve")  # the other pages come, and are kept
    killed = _start(tmp_path / "killed")
    assert index.reached.wait(100)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    index.stalled.clear()
    assert not (tmp_path / "killed" / "pylock.toml").exists()
    assert main(ASKED) == 0
    first = lock_bytes()
    shutil.rmtree(own_cache(tmp_path))
    assert main(ASKED) == 0
    assert lock_bytes() == first
