from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qresolve.errors import InstallFailed, UsageError
from qresolve.install.perform import perform_install
from qresolve.install.unfinished import MARKER, read_marker, write_marker
from tests.unit.install.environments import (
    OTHER_PYTHON,
    build_wheel,
    imports,
    locked,
    make_lock,
    module_of,
    write_pylock,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qresolve.lock.model import Lock

ROOT = Path(__file__).resolve().parents[3]


def variables(tmp_path: Path, **more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_PYTHON_DOWNLOADS": "never", **more}


@pytest.fixture
def two(tmp_path: Path) -> tuple[Lock, Path]:
    first = build_wheel(tmp_path / "wheels", "first", "1.0")
    second = build_wheel(tmp_path / "wheels", "second", "2.0")
    lock = make_lock((locked(first), locked(second, gated=False)))
    return lock, write_pylock(tmp_path / "pylock.toml", lock)


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_creates_the_environment_and_installs_what_is_locked(
    installer: str, two: tuple[Lock, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lock, file = two
    environment = tmp_path / "env"
    report = perform_install(
        lock, file, environment=str(environment), installer=installer, variables=variables(tmp_path)
    )
    assert report.created
    assert imports(environment, "first")
    assert imports(environment, "second")
    assert read_marker(environment) is None
    out, err = capfd.readouterr()
    assert out == ""
    assert "first" in err


def test_a_lock_of_any_file_name_is_taken(two: tuple[Lock, Path], tmp_path: Path) -> None:
    lock, file = two
    other = file.rename(tmp_path / "gpu.lock")
    perform_install(lock, other, environment=str(tmp_path / "env"), variables=variables(tmp_path))
    assert imports(tmp_path / "env", "first")


def test_user_options_of_uv_and_pip_change_nothing(two: tuple[Lock, Path], tmp_path: Path) -> None:
    lock, file = two
    for installer in ("uv", "pip"):
        hostile = variables(
            tmp_path,
            UV_TARGET=str(tmp_path / "elsewhere"),
            UV_CONSTRAINT=str(tmp_path / "missing.txt"),
            UV_PYTHON="3.1",
            PIP_TARGET=str(tmp_path / "elsewhere"),
            PIP_CONSTRAINT=str(tmp_path / "missing.txt"),
            PYTHONPATH=str(tmp_path),
        )
        environment = tmp_path / f"env-{installer}"
        perform_install(lock, file, environment=str(environment), installer=installer, variables=hostile)
        assert imports(environment, "first")
    assert not (tmp_path / "elsewhere").exists()


def test_dry_run_says_what_would_change_and_changes_nothing(two: tuple[Lock, Path], tmp_path: Path) -> None:
    lock, file = two
    environment = tmp_path / "env"
    report = perform_install(lock, file, environment=str(environment), dry_run=True, variables=variables(tmp_path))
    assert report.changes.add == ("first==1.0", "second==2.0")
    assert len(report.commands) == 2
    assert not environment.exists()


def test_an_existing_environment_is_brought_to_the_lock(two: tuple[Lock, Path], tmp_path: Path) -> None:
    lock, file = two
    old = build_wheel(tmp_path / "old", "first", "0.9")
    extra = build_wheel(tmp_path / "old", "extra", "1.0")
    before = make_lock((locked(old), locked(extra)))
    environment = tmp_path / "env"
    perform_install(
        before,
        write_pylock(tmp_path / "pylock.old.toml", before),
        environment=str(environment),
        variables=variables(tmp_path),
    )
    report = perform_install(lock, file, python=str(environment / "bin" / "python"), variables=variables(tmp_path))
    assert report.changes.remove == ("extra==1.0", "first==0.9")
    assert not report.created
    assert imports(environment, "second")
    assert not imports(environment, "extra")


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"machine": "aarch64" if os.uname().machine != "aarch64" else "x86_64"}, "CPU machine"),
        ({"glibc": "99.0"}, "glibc"),
    ],
)
def test_another_host_is_refused_before_anything_is_written(
    changes: dict[str, str], fact: str, two: tuple[Lock, Path], tmp_path: Path
) -> None:
    lock, file = two
    other = make_lock(lock.packages, **changes)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=fact):
        perform_install(other, file, environment=str(tmp_path / "env"), variables=variables(tmp_path))
    assert not (tmp_path / "env").exists()


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_another_python_is_refused_and_the_environment_left_alone(
    installer: str, two: tuple[Lock, Path], tmp_path: Path
) -> None:
    lock, file = two
    environment = tmp_path / "env"
    perform_install(lock, file, environment=str(environment), variables=variables(tmp_path))
    other = make_lock((), python=OTHER_PYTHON)
    with pytest.raises(UsageError, match="Python"):
        perform_install(other, file, environment=str(environment), installer=installer, variables=variables(tmp_path))
    assert imports(environment, "first")


def test_a_python_that_is_not_found_is_an_install_failure(two: tuple[Lock, Path], tmp_path: Path) -> None:
    lock, file = two
    other = make_lock(lock.packages, python=OTHER_PYTHON)
    with pytest.raises(InstallFailed, match=OTHER_PYTHON) as caught:
        perform_install(other, file, environment=str(tmp_path / "env"), variables=variables(tmp_path))
    assert caught.value.exit_code == 5


def test_an_older_driver_is_refused_and_an_unknown_one_is_not(two: tuple[Lock, Path], tmp_path: Path) -> None:
    lock, file = two
    floored = make_lock(lock.packages, driver_floor="580.65.06")
    with pytest.raises(UsageError, match=r"550\.144\.03"):
        perform_install(
            floored, file, environment=str(tmp_path / "a"), driver="550.144.03", variables=variables(tmp_path)
        )
    report = perform_install(floored, file, environment=str(tmp_path / "b"), driver=None, variables=variables(tmp_path))
    assert report.created


def test_the_environment_of_qresolve_itself_is_refused(two: tuple[Lock, Path], tmp_path: Path) -> None:
    if sys.prefix == sys.base_prefix:
        pytest.skip("the tests do not run in a virtual environment")
    lock, file = two
    with pytest.raises(UsageError, match="qresolve itself"):
        perform_install(lock, file, python=sys.executable, variables=variables(tmp_path))


def test_a_folder_with_other_files_is_refused(two: tuple[Lock, Path], tmp_path: Path) -> None:
    lock, file = two
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="not a virtual environment"):
        perform_install(lock, file, environment=str(folder), variables=variables(tmp_path))


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_another_file_than_the_locked_one_is_named(installer: str, tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path / "wheels", "first", "1.0")
    lock = make_lock((locked(wheel, sha256="1" * 64),))
    file = write_pylock(tmp_path / "pylock.toml", lock)
    with pytest.raises(InstallFailed, match=r"first==1\.0.*is not the locked one, sha256 1111") as caught:
        perform_install(
            lock, file, environment=str(tmp_path / "env"), installer=installer, variables=variables(tmp_path)
        )
    assert "0 of 1 locked packages" in caught.value.message
    assert (tmp_path / "env" / MARKER).exists()


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_an_index_that_is_down_fails_without_showing_credentials(
    installer: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    wheel = build_wheel(tmp_path / "wheels", "first", "1.0")
    url = f"http://user:geheim@127.0.0.1:{port}/{wheel.file.name}"
    lock = make_lock((locked(wheel, url=url),))
    file = write_pylock(tmp_path / "pylock.toml", lock)
    quick = variables(tmp_path, UV_HTTP_RETRIES="0", PIP_RETRIES="0")
    with pytest.raises(InstallFailed, match=f"127.0.0.1.*{port}") as caught:
        perform_install(lock, file, environment=str(tmp_path / "env"), installer=installer, variables=quick)
    assert "geheim" not in caught.value.message
    assert "geheim" not in "".join(capfd.readouterr())


class _Hanging(http.server.BaseHTTPRequestHandler):
    asked = threading.Event()
    release = threading.Event()

    def do_GET(self) -> None:
        self.asked.set()
        self.release.wait(60)

    do_HEAD = do_GET  # noqa: N815 - the name http.server looks for

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def hanging_index() -> Iterator[int]:
    """A server that takes requests and never answers."""
    _Hanging.asked.clear()
    _Hanging.release.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hanging)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    _Hanging.release.set()
    server.shutdown()
    server.server_close()
    thread.join()


_CHILD = """
import json, sys
from qresolve.errors import InstallFailed
from pathlib import Path
from qresolve.install.perform import perform_install
from tests.unit.install.environments import build_wheel, locked, make_lock
folder, url, env, installer, variables = json.loads(sys.argv[1])
lock = make_lock((locked(build_wheel(Path(folder) / "w", "first", "1.0"), url=url),))
try:
    perform_install(lock, Path(folder) / "pylock.toml", environment=env, installer=installer,
                    variables=variables, say=lambda words: print(words, file=sys.stderr, flush=True))
except KeyboardInterrupt:
    sys.exit(130)
except InstallFailed as error:
    print(error.message, file=sys.stderr)
    sys.exit(error.exit_code)
"""


@pytest.mark.parametrize("installer", ["uv", "pip"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_install_says_what_it_left_and_is_repeated_whole(
    number: signal.Signals, installer: str, hanging_index: int, tmp_path: Path
) -> None:
    wheel = build_wheel(tmp_path / "wheels", "first", "1.0")
    url = f"http://127.0.0.1:{hanging_index}/{wheel.file.name}"
    lock = make_lock((locked(wheel, url=url),))
    write_pylock(tmp_path / "pylock.toml", lock)
    environment = tmp_path / "env"
    told = json.dumps([str(tmp_path), url, str(environment), installer, variables(tmp_path)])
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, told], cwd=ROOT, stderr=subprocess.PIPE, text=True, process_group=0
    )
    assert _Hanging.asked.wait(60)
    child.send_signal(number)
    _out, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert f"interrupted: 0 of 1 locked packages are in {environment}" in err
    assert read_marker(environment) is not None

    here = make_lock((locked(wheel),))
    report = perform_install(
        here,
        write_pylock(tmp_path / "pylock.toml", here),
        environment=str(environment),
        installer=installer,
        variables=variables(tmp_path),
    )
    assert report.resumed
    assert read_marker(environment) is None
    assert imports(environment, "first")


def test_a_killed_installer_is_an_install_failure_that_says_what_it_left(hanging_index: int, tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path / "wheels", "first", "1.0")
    url = f"http://127.0.0.1:{hanging_index}/{wheel.file.name}"
    write_pylock(tmp_path / "pylock.toml", make_lock((locked(wheel, url=url),)))
    environment = tmp_path / "env"
    told = json.dumps([str(tmp_path), url, str(environment), "uv", variables(tmp_path)])
    child = subprocess.Popen([sys.executable, "-c", _CHILD, told], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert _Hanging.asked.wait(60)
    installer = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    os.kill(int(installer[0]), signal.SIGKILL)
    _out, err = child.communicate(timeout=60)
    assert child.returncode == 5
    assert "killed by signal 9" in err
    assert "0 of 1 locked packages" in err
    assert read_marker(environment) is not None


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_another_build_of_the_same_version_is_replaced(installer: str, tmp_path: Path) -> None:
    other = build_wheel(tmp_path / "other", "first", "1.0", content="built = 2\n")
    wheel = build_wheel(tmp_path / "wheels", "first", "1.0")
    environment = tmp_path / "env"
    for one in (other, wheel):
        lock = make_lock((locked(one),))
        perform_install(
            lock,
            write_pylock(tmp_path / "pylock.toml", lock),
            environment=str(environment),
            installer=installer,
            variables=variables(tmp_path),
        )
    assert module_of(environment, wheel).read_text() == "built = 1\n"


def test_an_install_after_an_unfinished_one_repairs_half_laid_packages(two: tuple[Lock, Path], tmp_path: Path) -> None:
    lock, file = two
    environment = tmp_path / "env"
    perform_install(lock, file, environment=str(environment), variables=variables(tmp_path))
    wheel = build_wheel(tmp_path / "wheels", "first", "1.0")
    module_of(environment, wheel).unlink()
    write_marker(environment, lock=file, installer="uv")
    said: list[str] = []
    perform_install(lock, file, environment=str(environment), variables=variables(tmp_path), say=said.append)
    assert module_of(environment, wheel).read_text() == "built = 1\n"
    assert any("not finished" in words for words in said)
