"""uv against an index on this machine: what it sees, what comes out, and that the same goes in and out again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qresolve.closure.failure import ClosureFailure
from qresolve.closure.indexes import UserIndex, read_user_indexes
from qresolve.closure.process import run_captured
from qresolve.closure.request import ClosureRequest, NamedIndex
from qresolve.closure.uv import (
    compile_command,
    configuration_text,
    known_glibcs,
    nearest_platform,
    parse_cutoff,
    project_text,
    run_uv_compile,
)
from qresolve.errors import UsageError
from tests.index_server import IndexServer, folder_of, make_wheel
from tests.unit.closure.closure_support import close, user, versions

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def server() -> Iterator[IndexServer]:
    with IndexServer() as server:
        server.add(
            make_wheel(
                "engine",
                "1.0",
                requires=("kernel", 'old; python_version < "3.11"', 'arm; platform_machine == "aarch64"'),
            ),
            make_wheel("kernel", "1.0", tag="cp312-cp312-manylinux_2_17_x86_64"),
            make_wheel("kernel", "1.0", tag="cp312-cp312-manylinux_2_28_x86_64"),
            make_wheel("kernel", "1.0", tag="cp312-cp312-manylinux_2_38_x86_64"),
            make_wheel("kernel", "1.0", tag="cp312-cp312-manylinux_2_28_aarch64"),
            make_wheel("kernel", "1.0", tag="cp313-cp313-manylinux_2_28_x86_64"),
            make_wheel("arm", "1.0"),
        )
        yield server


def test_one_wheel_a_package_with_its_hash_and_size(server: IndexServer, tmp_path: Path) -> None:
    closure = close(user(server.url, tmp_path), "engine")
    assert versions(closure) == {"engine": "1.0", "kernel": "1.0"}
    kernel = closure.packages[1]
    made = make_wheel("kernel", "1.0", tag="cp312-cp312-manylinux_2_28_x86_64")
    assert kernel.wheel.filename == made.filename
    assert (kernel.wheel.sha256, kernel.wheel.size) == (made.sha256, len(made.content))
    assert kernel.wheel.upload_time == "2026-01-01T00:00:00Z"
    assert kernel.wheel.url.endswith(f"/files/{made.filename}")


@pytest.mark.parametrize(
    ("options", "filename"),
    [
        ({"glibc": "2.39"}, "kernel-1.0-cp312-cp312-manylinux_2_38_x86_64.whl"),
        ({"glibc": "2.30"}, "kernel-1.0-cp312-cp312-manylinux_2_28_x86_64.whl"),
        ({"glibc": "2.27"}, "kernel-1.0-cp312-cp312-manylinux_2_17_x86_64.whl"),
        ({"glibc": "2.99"}, "kernel-1.0-cp312-cp312-manylinux_2_38_x86_64.whl"),
        ({"machine": "aarch64"}, "kernel-1.0-cp312-cp312-manylinux_2_28_aarch64.whl"),
        ({"python": "3.13"}, "kernel-1.0-cp313-cp313-manylinux_2_28_x86_64.whl"),
    ],
)
def test_wheels_and_markers_are_those_of_the_target(
    server: IndexServer, tmp_path: Path, options: dict[str, str], filename: str
) -> None:
    closure = close(user(server.url, tmp_path), "engine", **options)
    assert [p.wheel.filename for p in closure.packages if p.name == "kernel"] == [filename]
    assert ("arm" in versions(closure)) == (options.get("machine") == "aarch64")


def test_a_gated_package_comes_from_its_index_though_another_has_a_newer_one(tmp_path: Path) -> None:
    with IndexServer() as main, IndexServer() as gated:
        main.add(make_wheel("engine", "1.0", requires=("torch",)), make_wheel("torch", "9.0"))
        gated.add(make_wheel("torch", "2.0+cu130"), make_wheel("engine", "8.0"))
        index = NamedIndex(name="cu130", url=gated.url, packages=("torch",))
        for requirements in (("engine",), ("engine", "torch")):
            closure = close(user(main.url, tmp_path), *requirements, indexes=(index,))
            assert versions(closure) == {"engine": "1.0", "torch": "2.0+cu130"}
            assert [(p.index, p.index_url) for p in closure.packages] == [("default", None), ("cu130", gated.url)]


def test_a_named_index_installs_nothing_that_nobody_asks_for(server: IndexServer, tmp_path: Path) -> None:
    index = NamedIndex(name="other", url="http://127.0.0.1:9/simple", packages=("unwanted",))
    assert "unwanted" not in versions(close(user(server.url, tmp_path), "engine", indexes=(index,)))


def test_an_extra_index_does_not_replace_what_the_main_one_has(tmp_path: Path) -> None:
    with IndexServer() as main, IndexServer() as extra:
        main.add(make_wheel("torch", "1.0"))
        extra.add(make_wheel("torch", "2.0"), make_wheel("inner", "1.0"))
        found = read_user_indexes(
            {
                "PATH": os.environ["PATH"],
                "PIP_CONFIG_FILE": os.devnull,
                "PIP_INDEX_URL": main.url,
                "PIP_EXTRA_INDEX_URL": extra.url,
                "UV_CACHE_DIR": str(tmp_path / "cache"),
            },
            tmp_path,
        )
        assert versions(close(found, "torch", "inner")) == {"torch": "1.0", "inner": "1.0"}


def test_what_the_user_tells_uv_changes_nothing_but_indexes(server: IndexServer, tmp_path: Path) -> None:
    server.add(make_wheel("late", "1.0"), upload_time="2026-05-01T00:00:00Z")
    server.add(make_wheel("late", "2.0rc1"), upload_time="2026-06-01T00:00:00Z")
    wrong = folder_of([make_wheel("late", "9.0")], tmp_path / "wrong")
    plain = {"PATH": os.environ["PATH"], "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_DEFAULT_INDEX": server.url}
    loud = {
        "UV_EXCLUDE_NEWER": "2026-02-01",
        "UV_PRERELEASE": "allow",
        "UV_FIND_LINKS": str(wrong),
        "UV_CONSTRAINT": str(tmp_path / "none.txt"),
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_RESOLUTION": "lowest",
        "UV_PYTHON": "3.8",
        "UV_TORCH_BACKEND": "cpu",
        "UV_NO_BINARY": "1",
    }
    home = tmp_path / "home"
    (home / ".config" / "uv").mkdir(parents=True)
    (home / ".config" / "uv" / "uv.toml").write_text('exclude-newer = "2026-02-01"\n[pip]\nprerelease = "allow"\n')
    first = close(read_user_indexes(plain, tmp_path), "engine", "late")
    second = close(read_user_indexes({**plain, **loud}, home), "engine", "late")
    assert first.packages == second.packages
    assert versions(first)["late"] == "1.0"


def test_a_project_above_the_temporary_folder_changes_nothing(
    server: IndexServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    above = tmp_path / "above"
    above.mkdir()
    (above / "pyproject.toml").write_text(
        '[project]\nname = "root"\nversion = "0"\n[tool.uv]\nexclude-newer = "2001-01-01"\n'
        'override-dependencies = ["kernel==7"]\nconstraint-dependencies = ["kernel==7"]\n'
        '[tool.uv.workspace]\nmembers = ["*"]\n[tool.uv.sources]\nengine = { path = "./nothing" }\n'
    )
    (above / "uv.toml").write_text('exclude-newer = "2001-01-01"\n')
    monkeypatch.setattr(tempfile, "tempdir", str(above))
    assert versions(close(user(server.url, tmp_path), "engine")) == {"engine": "1.0", "kernel": "1.0"}


def test_a_wheel_file_is_locked_by_its_address(server: IndexServer, tmp_path: Path) -> None:
    made = make_wheel("own", "1.0+local", requires=("engine",))
    file = folder_of([made], tmp_path / "wheels") / made.filename
    closure = close(user(server.url, tmp_path), f"own @ {file.as_uri()}")
    own = closure.packages[-1]
    assert (own.name, own.version, own.index) == ("own", "1.0+local", "direct")
    assert (own.wheel.filename, own.wheel.sha256) == (made.filename, made.sha256)
    assert own.wheel.url == file.as_uri()


def test_a_user_who_forbids_the_network_is_obeyed(server: IndexServer, tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_DEFAULT_INDEX": server.url}
    with pytest.raises(ClosureFailure) as caught:
        close(read_user_indexes({**environ, "UV_OFFLINE": "1"}, tmp_path), "engine")
    assert caught.value.reason == "offline"
    assert server.requests == []


def test_credentials_reach_the_index_and_nothing_else(tmp_path: Path) -> None:
    with IndexServer(user="anna", password="s3cret") as server:  # noqa: S106
        server.add(make_wheel("engine", "1.0"))
        closure = close(user(server.url_with_credentials, tmp_path), "engine")
        assert "s3cret" not in repr(closure)
        named = UserIndex(name="in-house", url=server.url)
        variables = {"UV_INDEX_IN_HOUSE_USERNAME": "anna", "UV_INDEX_IN_HOUSE_PASSWORD": "s3cret"}
        closure = close(user("", tmp_path, named, **variables), "engine")
        assert closure.version_of("engine") == "1.0"


def test_excluded_and_overridden_packages(server: IndexServer, tmp_path: Path) -> None:
    server.add(make_wheel("kernel", "2.0"), make_wheel("strict", "1.0", requires=("kernel<2",)))
    who = user(server.url, tmp_path)
    assert "kernel" not in versions(close(who, "engine", excludes=("kernel",)))
    assert versions(close(who, "engine", constraints=("kernel<2",)))["kernel"] == "1.0"
    assert versions(close(who, "strict", overrides=("kernel==2.0",)))["kernel"] == "2.0"


def test_a_cutoff_holds_and_none_is_never_now(server: IndexServer, tmp_path: Path) -> None:
    server.add(make_wheel("dated", "1.0"), upload_time="2026-03-01T12:00:00Z")
    server.add(make_wheel("dated", "2.0"), upload_time="2099-01-01T00:00:00Z")
    who = user(server.url, tmp_path)
    assert versions(close(who, "dated"))["dated"] == "2.0"
    assert versions(close(who, "dated", cutoff="2026-03-01"))["dated"] == "1.0"
    assert versions(close(who, "dated", cutoff="2026-03-01T12:00:01Z"))["dated"] == "1.0"
    with pytest.raises(ClosureFailure):
        close(who, "dated", cutoff="2026-03-01T11:00:00Z")


def test_an_index_without_upload_times_may_be_freed_from_the_cutoff(server: IndexServer, tmp_path: Path) -> None:
    with IndexServer() as gated:
        gated.add(make_wheel("torch", "2.0+cu130"), upload_time=None)
        index = NamedIndex(name="cu130", url=gated.url, packages=("torch",), upload_times=False)
        closure = close(user(server.url, tmp_path), "torch", "engine", indexes=(index,), cutoff="2026-03-01")
        assert versions(closure)["torch"] == "2.0+cu130"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-30", "2026-12-01T00:00:00Z"),
        ("2026-11-30T10:00:00Z", "2026-11-30T10:00:00Z"),
        ("2026-11-30T10:00:00+02:00", "2026-11-30T08:00:00Z"),
    ],
)
def test_a_date_is_a_whole_day_in_utc(text: str, moment: str) -> None:
    assert parse_cutoff(text) == moment


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "2026-11-30T10:00:00", ""])
def test_a_cutoff_that_depends_on_the_host_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_cutoff(text)


def test_a_yanked_release_that_was_pinned_is_noted(server: IndexServer, tmp_path: Path) -> None:
    server.add(make_wheel("yanked", "1.0"), yanked="broken")
    closure = close(user(server.url, tmp_path), "yanked==1.0")
    assert any("yanked" in note for note in closure.notes)


def test_uv_asks_for_the_metadata_once_and_then_works_offline(server: IndexServer, tmp_path: Path) -> None:
    who = user(server.url, tmp_path)
    first = close(who, "engine")
    server.requests.clear()
    assert close(who, "engine", offline=True) == first
    assert server.requests == []


_SCRIPT = """
import json, os, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from qresolve.closure.indexes import read_user_indexes
from qresolve.closure.request import ClosureRequest
from qresolve.closure.solve import run_closure
closure = run_closure(
    ClosureRequest(requirements=tuple(sys.argv[1:])), read_user_indexes(os.environ, Path(os.environ["HOME"]))
)
print(repr(closure))
"""


def test_the_same_answer_from_anywhere(server: IndexServer, tmp_path: Path) -> None:
    """Folder, hash seed, order of requirements, cold and warm cache."""
    server.add(make_wheel("other", "1.0"), make_wheel("third", "1.0"))
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "uv.toml").write_text('exclude-newer = "2001-01-01"\n')
    (other / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1"\n[tool.uv]\nprerelease = "allow"\n')
    script = _SCRIPT.format(root=str(_ROOT))
    answers = set()
    for seed, folder, cache, order in (
        ("0", tmp_path, "one", ("engine", "other", "third")),
        ("1", other, "one", ("third", "engine", "other")),
        ("2", other, "two", ("other", "third", "engine")),
    ):
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "PYTHONHASHSEED": seed,
            "UV_CACHE_DIR": str(tmp_path / cache),
            "UV_DEFAULT_INDEX": server.url,
        }
        ended = subprocess.run(
            [sys.executable, "-c", script, *order], cwd=folder, env=environ, capture_output=True, text=True, check=True
        )
        answers.add(ended.stdout)
    assert len(answers) == 1
    assert "kernel" in answers.pop()


def test_texts_for_uv_do_not_depend_on_order() -> None:
    one = NamedIndex(name="a", url="http://a", packages=("x",))
    two = NamedIndex(name="b", url="http://b", packages=("y", "unused"))
    left = ClosureRequest(requirements=("x==1", "y"), indexes=(one, two))
    right = ClosureRequest(requirements=("y", "x==1"), indexes=(two, one))
    assert project_text(left) == project_text(right)
    assert "unused" not in project_text(left)


def test_no_secret_stands_in_the_command(tmp_path: Path) -> None:
    who = user("http://u:s3cret@h/simple", tmp_path)
    command = compile_command("uv", ClosureRequest(requirements=("x",)), interpreter="python", platform="p")
    assert not any("s3cret" in word for word in command)
    assert "s3cret" in configuration_text(who)


def test_a_requirement_that_is_none_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a requirement"):
        run_uv_compile(ClosureRequest(requirements=("not a requirement!",)), user("http://127.0.0.1:9", tmp_path))


def test_the_next_older_platform_that_uv_knows_is_taken() -> None:
    refusal = (
        "error: invalid value 'x86_64-manylinux_2_30' [possible values: linux, x86_64-manylinux_2_28, "
        "x86_64-manylinux_2_31, aarch64-manylinux_2_29]"
    )
    assert known_glibcs(refusal, "x86_64") == ("2.28", "2.31")
    assert nearest_platform(refusal, "x86_64", "2.30") == "x86_64-manylinux_2_28"
    assert nearest_platform(refusal, "x86_64", "2.12") is None


def _has_ended(pid: int) -> bool:
    """Gone, or dead and only not yet collected by whoever inherited it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state in "ZX"


_CHILD = "sh -c 'echo $$ > pid; echo words >&2; exec sleep 60' | cat"


def test_a_child_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    ended = run_captured(["sh", "-c", _CHILD], variables={"PATH": os.environ["PATH"]}, folder=tmp_path, timeout=0.5)
    assert ended.status is None
    assert ended.stderr == "words\n"
    assert _has_ended(int((tmp_path / "pid").read_text()))


def test_an_interrupted_child_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(subprocess.Popen[bytes]):
        interrupts = 1

        def communicate(self, *arguments: Any, **options: Any) -> tuple[bytes, bytes]:
            if self.interrupts:
                self.interrupts = 0
                while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text()):
                    pass
                os.kill(os.getpid(), signal.SIGINT)
            return super().communicate(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_captured(["sh", "-c", _CHILD], variables={"PATH": os.environ["PATH"]}, folder=tmp_path, timeout=30)
    assert _has_ended(int((tmp_path / "pid").read_text()))
