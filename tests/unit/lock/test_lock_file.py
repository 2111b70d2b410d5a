"""Lock files: the same bytes, valid for every installer, whole or not at all, and edits are noticed."""

from __future__ import annotations

import errno
import multiprocessing
import os
import re
import shutil
import stat
import string
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tomli
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.pylock import Pylock

from qresolve.cli.main import build_parser
from qresolve.errors import DataInvalid, QResolveError, Refuted, UsageError
from qresolve.install.installers import find_uv
from qresolve.lock.document import seal_of
from qresolve.lock.file import check_output, dump_lock, parse_lock, read_lock, write_lock
from qresolve.lock.model import GatedBecause, Lock, LockedFormat, LockedPackage, LockedTarget, LockedWheel
from qresolve.setting import Setting
from tests.index_server import IndexServer, MadeWheel, make_wheel

if TYPE_CHECKING:
    from collections.abc import Callable


def _package(name: str = "engine", **changes: Any) -> LockedPackage:
    filename = f"{name.replace('-', '_')}-1.0+cu130-py3-none-any.whl"
    package = LockedPackage(
        name=name,
        version="1.0+cu130",
        wheel=LockedWheel(
            filename=filename,
            url=f"https://h.example/files/{filename.replace('+', '%2B')}",
            sha256="ab" * 32,
            size=12,
            upload_time="2026-11-02T10:00:00Z",
        ),
        because=GatedBecause(routes=("Kernel",), gates=("kernel/arch",), cuda="13.0", record="sha256:" + "cd" * 32),
    )
    return replace(package, **changes)


def make_lock(**changes: Any) -> Lock:
    lock = Lock(
        target=LockedTarget(gpus=(("rtx5090", "sm120"),), machine="x86_64", glibc="2.35", python="3.12"),
        engine="engine",
        engine_version="1.0",
        packages=(_package(), _package("kernel", index="cu130", index_url="https://h.example/cu130", because=None)),
        formats=(
            LockedFormat(
                format="mxfp4", scheme="w4a4", role="dense", arch="sm120", wanted="native", verdict="native",
                level="data", route="Kernel",
            ),
        ),
        settings=(
            Setting(path="kernel_config.backend", value="humming"),
            Setting(env="CUDA_HOME", value="{site_packages}/nvidia/cu13"),
            Setting(env="ENGINE_OFF"),
        ),
        data_digest="sha256:" + "ef" * 32,
        requested=("mxfp4:dense",),
        assumed=(("host.nvcc", "absent"),),
        allowed=("fp8=weight-only",),
        driver_floor="580.65.06",
        cutoff="2026-11-30",
        data=(("engines/engine.toml", "sha256:" + "01" * 32),),
    )  # fmt: skip
    return replace(lock, **changes)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "pylock.toml"
    write_lock(path, make_lock())
    assert read_lock(path) == make_lock()
    assert stat.S_IMODE(path.stat().st_mode) & 0o400
    assert [entry.name for entry in tmp_path.iterdir()] == ["pylock.toml"]


_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)
_NAME = st.text(string.ascii_lowercase, min_size=1, max_size=8)
_HEX = st.integers(0, 16**64 - 1).map("{:064x}".format)
_TEXTS = st.lists(_TEXT, max_size=3).map(tuple)
_PAIRS = st.dictionaries(_TEXT, _TEXT, max_size=3).map(lambda found: tuple(found.items()))
_PACKAGES = st.builds(
    lambda name, digest, size, seconds, because, index_url: LockedPackage(
        name=name,
        version="1.0",
        wheel=LockedWheel(
            filename=f"{name}-1.0-py3-none-any.whl",
            url=f"https://h.example/{name}-1.0-py3-none-any.whl",
            sha256=digest,
            size=size,
            upload_time=None if seconds is None else f"2026-01-01T00:00:{seconds:02}Z",
        ),
        index_url=index_url,
        because=because,
    ),
    _NAME,
    _HEX,
    st.none() | st.integers(0, 2**40),
    st.none() | st.integers(0, 59),
    st.none() | st.builds(GatedBecause, routes=_TEXTS, gates=_TEXTS, cuda=st.none() | _TEXT, record=st.none() | _TEXT),
    st.none() | st.just("https://h.example/simple"),
)
_SETTINGS = st.builds(Setting, path=_TEXT, value=_TEXT | st.booleans() | st.integers(0, 9)) | st.builds(
    Setting, env=_TEXT, value=st.none() | _TEXT
)
_FORMATS = st.builds(
    LockedFormat,
    format=_TEXT, scheme=_TEXT, role=_TEXT, arch=_TEXT, wanted=_TEXT, verdict=_TEXT, level=_TEXT,
    route=_TEXT | st.just(""),
)  # fmt: skip
_LOCKS = st.builds(
    Lock,
    target=st.builds(
        LockedTarget,
        gpus=st.lists(st.tuples(_TEXT, _TEXT), max_size=2).map(tuple),
        machine=st.sampled_from(("x86_64", "aarch64")),
        glibc=st.just("2.35"),
        python=st.sampled_from(("3.11", "3.12", "3.13.2")),
        driver=st.none() | _TEXT,
        cuda=st.none() | _TEXT,
    ),
    engine=_TEXT,
    engine_version=_TEXT,
    packages=st.lists(_PACKAGES, max_size=3).map(tuple),
    formats=st.lists(_FORMATS, max_size=2).map(tuple),
    settings=st.lists(_SETTINGS, max_size=3).map(tuple),
    data_digest=_TEXT,
    requested=_TEXTS,
    assumed=_PAIRS,
    allowed=_TEXTS,
    driver_floor=st.none() | _TEXT,
    cutoff=st.none() | _TEXT,
    workload=st.none() | _TEXT,
    data=_PAIRS,
)


@settings(deadline=None)
@given(_LOCKS)
def test_every_lock_comes_back_as_it_was(lock: Lock) -> None:
    text = dump_lock(lock)
    assert parse_lock(text, name="pylock.toml") == lock
    assert dump_lock(lock) == text
    Pylock.from_dict(tomli.loads(text)).validate()


def test_the_same_lock_gives_the_same_bytes_under_another_hash_seed() -> None:
    script = "from tests.unit.lock.test_lock_file import *; print(dump_lock(make_lock()), end='')"
    root = Path(__file__).resolve().parents[3]
    texts = {
        subprocess.run(
            [sys.executable, "-c", script], cwd=root, env={"PYTHONHASHSEED": seed, "PATH": os.environ["PATH"]},
            capture_output=True, check=True,
        ).stdout
        for seed in ("0", "1")
    }  # fmt: skip
    assert texts == {dump_lock(make_lock()).encode()}


def test_no_credentials_are_written() -> None:
    package = _package(index_url="https://u:s3cret@h.example/simple")
    package = replace(package, wheel=replace(package.wheel, url=package.wheel.url.replace("//", "//t0ken@")))
    text = dump_lock(make_lock(packages=(package,)))
    assert "s3cret" not in text
    assert "t0ken" not in text
    assert "https://h.example/simple" in text


def _tool(document: dict[str, Any]) -> dict[str, Any]:
    tool: dict[str, Any] = document["tool"]["qresolve"]
    return tool


def _wheel(document: dict[str, Any]) -> dict[str, Any]:
    wheel: dict[str, Any] = document["packages"][0]["wheels"][0]
    return wheel


@pytest.mark.parametrize(
    ("edit", "part"),
    [
        (lambda d: _tool(d)["formats"][0].update(verdict="weight-only"), "formats"),
        (lambda d: _tool(d)["settings"].pop(), "settings"),
        (lambda d: _tool(d).pop("settings"), "settings"),
        (lambda d: _wheel(d).update(url="https://evil.example/engine-1.0-py3-none-any.whl"), "packages"),
        (lambda d: _wheel(d)["hashes"].update(sha256="00" * 32), "packages"),
        (lambda d: d["packages"].pop(), "packages"),
        (lambda d: d["packages"][0]["tool"]["qresolve"].update(record="sha256:00"), "packages"),
        (lambda d: _tool(d)["target"].update(glibc="2.17"), "target"),
        (lambda d: _tool(d)["data"].clear(), "data"),
        (lambda d: d.update(environments=["sys_platform == 'win32'"]), "something"),
        (lambda d: _tool(d).update({"driver-floor": "1.0"}), "something"),
        (lambda d: _tool(d).pop("parts"), "packages"),
        (lambda d: _tool(d).pop("seal"), "seal"),
        (lambda d: _tool(d).update(seal="sha256:" + "0" * 64), "something"),
    ],
)  # fmt: skip
def test_an_edit_is_noticed_and_named(edit: Callable[[dict[str, Any]], object], part: str) -> None:
    document = tomli.loads(dump_lock(make_lock()))
    edit(document)
    with pytest.raises(Refuted, match="trusted") as caught:
        parse_lock(tomli_w.dumps(document), name="pylock.toml")
    assert part in caught.value.message
    assert caught.value.exit_code == 6
    assert caught.value.hint == "qresolve lock --gpu rtx5090 --formats mxfp4:dense"


def test_reordered_keys_and_comments_are_no_edit() -> None:
    document = tomli.loads(dump_lock(make_lock()))
    other = {key: document[key] for key in reversed(document)}
    assert parse_lock("# a comment\n" + tomli_w.dumps(other), name="x") == make_lock()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("not = [toml", DataInvalid),
        ("", DataInvalid),
        ('lock-version = "9.0"\ncreated-by = "x"\npackages = []\n', DataInvalid),
        ('lock-version = "1.0"\ncreated-by = "uv"\npackages = []\n', UsageError),
    ],
)
def test_what_is_no_lock_of_ours_is_told_apart(text: str, kind: type[QResolveError]) -> None:
    with pytest.raises(kind, match=r"pylock\.toml"):
        parse_lock(text, name="pylock.toml")


@pytest.mark.parametrize("change", [{"schema": 2}, {"unknown": 1}])
def test_a_sealed_file_of_another_version_is_refused(change: dict[str, Any]) -> None:
    document = tomli.loads(dump_lock(make_lock()))
    _tool(document).update(change)
    _tool(document)["seal"] = seal_of(document)
    with pytest.raises(DataInvalid):
        parse_lock(tomli_w.dumps(document), name="pylock.toml")


def test_a_lock_that_is_not_there_or_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no lock"):
        read_lock(tmp_path / "pylock.toml")
    with pytest.raises(UsageError, match="cannot be read"):
        read_lock(tmp_path)
    (tmp_path / "pylock.toml").write_bytes(b"\xff")
    with pytest.raises(DataInvalid, match="UTF-8"):
        read_lock(tmp_path / "pylock.toml")


@pytest.mark.parametrize("name", ["lock.toml", "pylock.a.b.toml", "pylock", "requirements.txt"])
def test_names_that_installers_refuse_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        write_lock(tmp_path / name, make_lock())
    assert caught.value.hint == f"-o {tmp_path / 'pylock.toml'}"
    assert list(tmp_path.iterdir()) == []


def test_a_named_lock_and_a_rewrite_of_ours_need_no_force(tmp_path: Path) -> None:
    path = tmp_path / "pylock.gb10.toml"
    write_lock(path, make_lock(engine="old"))
    path.chmod(0o640)
    write_lock(str(path), make_lock())
    assert read_lock(path) == make_lock()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("content", ['lock-version = "1.0"\ncreated-by = "uv"\npackages = []\n', "precious words"])
def test_a_file_that_is_not_ours_is_kept_without_force(tmp_path: Path, content: str) -> None:
    path = tmp_path / "pylock.toml"
    path.write_text(content)
    with pytest.raises(UsageError, match="did not write it"):
        check_output(path)
    with pytest.raises(UsageError, match="did not write it") as caught:
        write_lock(path, make_lock())
    assert caught.value.hint == f"-o {path} --force"
    assert path.read_text() == content
    write_lock(path, make_lock(), force=True)
    assert read_lock(path) == make_lock()


def test_a_lock_of_ours_that_was_edited_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pylock.toml"
    path.write_text(dump_lock(make_lock()).replace("native", "emulated"))
    write_lock(path, make_lock())
    assert read_lock(path) == make_lock()


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    link = tmp_path / "pylock.toml"
    link.symlink_to(real / "pylock.toml")
    write_lock(link, make_lock())
    assert link.is_symlink()
    assert read_lock(real / "pylock.toml") == make_lock()


def test_a_folder_is_answered_with_a_name_in_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder") as caught:
        check_output(tmp_path)
    assert caught.value.hint == f"-o {tmp_path / 'pylock.toml'}"


@pytest.mark.parametrize("broken", [b"[[[", b"\xff\xfe"])
def test_the_hint_of_a_broken_lock_is_a_whole_command(broken: bytes, tmp_path: Path) -> None:
    (tmp_path / "pylock.toml").write_bytes(broken)
    with pytest.raises(DataInvalid) as caught:
        read_lock(tmp_path / "pylock.toml")
    words = (caught.value.hint or "").split()
    assert words[0] == "qresolve"
    parsed = build_parser().parse_args(words[1:])
    assert (parsed.command, parsed.force) == ("lock", True)


def test_folders_that_do_not_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no folder"):
        check_output(tmp_path / "none" / "pylock.toml")
    (tmp_path / "pylock.toml").mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        check_output(tmp_path / "pylock.toml")
    monkeypatch.setattr(os, "access", lambda *_: False)  # tests may run as root, whom no mode stops
    with pytest.raises(UsageError, match="cannot be written to"):
        check_output(tmp_path / "pylock.x.toml")


@pytest.mark.parametrize("step", ["fsync", "open"])
def test_a_full_disk_leaves_the_old_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    path = tmp_path / "pylock.toml"
    write_lock(path, make_lock(engine="old"))

    def fail(*arguments: Any, **_options: Any) -> Any:
        if step == "open" and not str(arguments[0]).startswith(str(tmp_path)):
            return real(*arguments, **_options)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    real = getattr(os, step)
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(UsageError, match=re.escape(str(path))) as caught:
        write_lock(path, make_lock())
    monkeypatch.undo()
    assert "No space left" in caught.value.message
    assert read_lock(path).engine == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["pylock.toml"]


def test_a_home_that_cannot_be_written_to_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "cache"))
    write_lock(tmp_path / "pylock.toml", make_lock())
    assert read_lock(tmp_path / "pylock.toml") == make_lock()


def test_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    check_output("-")
    write_lock("-", make_lock())
    assert parse_lock(capsys.readouterr().out, name="-") == make_lock()


def _write_often(path: str, engine: str) -> None:
    for _ in range(10):
        write_lock(path, make_lock(engine=engine))


def test_two_writers_leave_one_whole_lock(tmp_path: Path) -> None:
    path = tmp_path / "pylock.toml"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_often, args=(str(path), engine)) for engine in ("one", "two")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert read_lock(path).engine in {"one", "two"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["pylock.toml"]


def _locked(wheel: MadeWheel, server: IndexServer, **changes: Any) -> LockedPackage:
    locked = LockedWheel(
        filename=wheel.filename,
        url=f"http://127.0.0.1:{server.port}/files/{wheel.filename.replace('+', '%2B')}",
        sha256=wheel.sha256,
        size=len(wheel.content),
        upload_time="2026-01-01T00:00:00Z",
    )
    return LockedPackage(name=wheel.name, version=wheel.version, wheel=replace(locked, **changes))


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _install(path: Path, installer: str, *, dry: bool = True) -> subprocess.CompletedProcess[str]:
    folder = path.parent
    commands = {
        "uv": [
            find_uv(), "pip", "sync", "--no-config", "--preview-features", "pylock", "--target", str(folder / "there"),
            "--python", sys.executable, "--cache-dir", str(folder / "cache"), str(path),
        ],
        "pip": [
            sys.executable, "-m", "pip", "--isolated", "install", "--target", str(folder / "there"), "--no-cache-dir",
            "--disable-pip-version-check", "-r", str(path),
        ],
    }  # fmt: skip
    command = [*commands[installer], *(["--dry-run"] if dry else [])]
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "UV_HTTP_RETRIES": "0"}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)


def _host_lock(*packages: LockedPackage, **target: str) -> Lock:
    machine = os.uname().machine
    values = {"machine": machine, "glibc": "2.17", "python": _python(), **target}
    return make_lock(target=LockedTarget(gpus=(("rtx5090", "sm120"),), **values), packages=packages)


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_installers_accept_it(tmp_path: Path, installer: str) -> None:
    with IndexServer() as server:
        wheels = (make_wheel("engine", "1.0+cu130", requires=("kernel",)), make_wheel("kernel", "2.0"))
        server.add(*wheels)
        path = tmp_path / "pylock.toml"
        write_lock(path, _host_lock(*(_locked(wheel, server) for wheel in wheels)))
        ended = _install(path, installer)
        assert ended.returncode == 0, ended.stderr
        assert "engine" in ended.stdout + ended.stderr


@pytest.mark.parametrize("installer", ["uv", "pip"])
@pytest.mark.parametrize("target", [{"machine": "riscv64"}, {"python": "3.99"}])
def test_installers_refuse_it_elsewhere(tmp_path: Path, installer: str, target: dict[str, str]) -> None:
    with IndexServer() as server:
        wheel = make_wheel("kernel", "2.0")
        server.add(wheel)
        path = tmp_path / "pylock.toml"
        write_lock(path, _host_lock(_locked(wheel, server), **target))
        assert _install(path, installer).returncode != 0


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_installers_refuse_other_bytes(tmp_path: Path, installer: str) -> None:
    with IndexServer() as server:
        wheel = make_wheel("kernel", "2.0")
        server.add(wheel)
        path = tmp_path / "pylock.toml"
        write_lock(path, _host_lock(_locked(wheel, server)))
        assert _install(path, installer, dry=False).returncode == 0
        write_lock(path, _host_lock(_locked(wheel, server, sha256="00" * 32)))
        shutil.rmtree(tmp_path / "there")
        ended = _install(path, installer, dry=False)
        assert ended.returncode != 0
        assert "hash" in ended.stderr.lower()
