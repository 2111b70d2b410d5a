from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from qresolve.errors import UsageError
from qresolve.install.child import redact
from qresolve.install.fit import Misfit, check_driver, check_host, check_python, read_driver, refuse
from qresolve.install.interpreter import find_interpreter, parse_interpreter, read_interpreter
from qresolve.install.isolation import select_pip_options, select_uv_configuration, select_variables
from tests.unit.install.environments import make_lock

if TYPE_CHECKING:
    from pathlib import Path

    from qresolve.target.detect import Detection

TARGET = make_lock((), machine="aarch64", glibc="2.31", python="3.12").target


def no_gpu() -> Detection:
    raise UsageError("no GPU was detected")


@pytest.mark.parametrize(
    ("system", "machine", "glibc", "facts"),
    [
        ("linux", "aarch64", "2.31", []),
        ("linux", "aarch64", "2.100", []),
        ("linux", "aarch64", None, []),
        ("linux", "aarch64", "2.28", ["glibc"]),
        ("linux", "x86_64", "2.9", ["CPU machine", "glibc"]),
        ("darwin", "aarch64", None, ["system"]),
    ],
)
def test_each_fact_of_the_host_that_does_not_fit(
    system: str, machine: str, glibc: str | None, facts: list[str]
) -> None:
    misfits = check_host(TARGET, system=system, machine=machine, glibc=glibc)
    assert [misfit.fact for misfit in misfits] == facts


@pytest.mark.parametrize(
    ("floor", "driver", "refused"),
    [
        ("580.65.06", "550.144.03", True),
        ("580.65.06", "580.65.06", False),
        ("580.65.06", "580.105.08", False),
        ("580", "580.65.06", False),
        (None, "1.2.3", False),
        ("580.65.06", None, False),
    ],
)
def test_a_driver_below_the_floor(floor: str | None, driver: str | None, refused: bool) -> None:
    assert bool(check_driver(floor, driver)) is refused


def test_the_driver_is_read_from_the_kernel_module(tmp_path: Path) -> None:
    file = tmp_path / "version"
    file.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n")
    assert read_driver((tmp_path / "absent", file), no_gpu) == "580.65.06"
    assert read_driver((tmp_path / "absent",), no_gpu) is None


def test_all_misfits_are_said_at_once() -> None:
    misfits = (Misfit(fact="a", needs="1", have="2", hint="do"), Misfit(fact="b", needs="3", have="4"))
    with pytest.raises(UsageError, match="a: needs 1, have 2; b: needs 3, have 4") as caught:
        refuse(misfits)
    assert caught.value.hint == "do"


def test_only_the_python_minor_must_agree(tmp_path: Path) -> None:
    described: dict[str, Any] = {
        "version": "3.12.9", "prefix": "/e", "base_prefix": "/b", "platform": "linux", "machine": "aarch64",
        "libc": None, "site_packages": "/s", "programs": "/p", "distributions": [],
    }  # fmt: skip
    assert check_python(TARGET, parse_interpreter(described, tmp_path)) == ()
    (misfit,) = check_python(TARGET, parse_interpreter(described | {"version": "3.11.7"}, tmp_path))
    assert (misfit.needs, misfit.have) == ("3.12", f"3.11.7 ({tmp_path})")


def test_indexes_and_credentials_pass_and_the_rest_does_not() -> None:
    variables = {
        "UV_INDEX_PRIVATE_PASSWORD": "p", "UV_INDEX_URL": "u", "UV_EXCLUDE_NEWER": "2020-01-01", "UV_PYTHON": "3.8",
        "UV_TORCH_BACKEND": "cpu", "PIP_INDEX_URL": "i", "PIP_TARGET": "t", "PYTHONPATH": "x", "HOME": "/h",
        "VIRTUAL_ENV": "/v",
    }  # fmt: skip
    assert set(select_variables(variables, installer="uv")) == {"UV_INDEX_PRIVATE_PASSWORD", "UV_INDEX_URL", "HOME"}
    assert set(select_variables(variables, installer="pip")) == {"PIP_INDEX_URL", "HOME"}


def test_uv_configuration_keeps_indexes_only_and_later_files_win() -> None:
    system = {"index-url": "a", "exclude-newer": "2020-01-01", "pip": {"target": "/t", "extra-index-url": ["b"]}}
    assert select_uv_configuration((system, {"index-url": "c"})) == {"index-url": "c", "extra-index-url": ["b"]}


def test_pip_configuration_becomes_variables() -> None:
    options = {"global.extra-index-url": "\na\nb", "install.user": "yes", "install.index-url": "i", "list.cert": "c"}
    assert select_pip_options(options) == {"PIP_EXTRA_INDEX_URL": "a b", "PIP_INDEX_URL": "i"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://anna:geheim@host/x", "https://****@host/x"),
        ("at http://token@host:1/x and ftp://a:b@c", "at http://****@host:1/x and ftp://****@c"),
        ("https://host/a@b", "https://host/a@b"),
        ("mail anna@host", "mail anna@host"),
    ],
)
def test_credentials_are_not_shown(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_an_interpreter_is_found_in_the_folder_then_in_the_active_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no environment"):
        find_interpreter(None, variables={})
    for name in ("active", ".venv"):
        python = tmp_path / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text("")
        assert find_interpreter(None, variables={"VIRTUAL_ENV": str(tmp_path / "active")}) == python
    assert find_interpreter("active", variables={}) == tmp_path / "active" / "bin" / "python"
    with pytest.raises(UsageError, match="no Python interpreter"):
        find_interpreter("missing/bin/python", variables={})


def test_what_is_no_python_is_said(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)
    with pytest.raises(UsageError, match="hello"):
        read_interpreter(program)
    program.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    with pytest.raises(UsageError, match="status 3: broken"):
        read_interpreter(program)
