"""The commands env, run, install and verify from their command lines; the lock is given as read."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

import qresolve
from qresolve.cli.main import main
from qresolve.install.perform import perform_install
from qresolve.setting import Setting
from tests.unit.install.environments import build_wheel, imports, locked, make_lock, module_of, write_pylock

if TYPE_CHECKING:
    from qresolve.lock.model import Lock

SETTINGS = (
    Setting(path="kernel_config.linear_backend_per_quant.mxfp4", value="humming"),
    Setting(env="CUDA_HOME", value="{site_packages}/nvidia/cu13"),
    Setting(env="PATH", value="{env_bin}:{PATH}"),
    Setting(env="VLLM_DISABLED_KERNELS", value=None),
)
JSON_OPTION = '{"linear_backend_per_quant":{"mxfp4":"humming"}}'


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Lock]:
    folder = tmp_path_factory.mktemp("prepared")
    lock = make_lock((locked(build_wheel(folder / "wheels", "gated", "1.0")),), settings=SETTINGS)
    perform_install(lock, write_pylock(folder / "pylock.toml", lock), environment=str(folder / ".venv"))
    return folder, lock


@pytest.fixture
def place(prepared: tuple[Path, Lock], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a lock and its environment in .venv; any variable of the engine is unset."""
    folder = Path(shutil.copytree(prepared[0], tmp_path / "place", symlinks=True))
    monkeypatch.chdir(folder)
    for name in ("VIRTUAL_ENV", "CUDA_HOME", "VLLM_DISABLED_KERNELS"):
        monkeypatch.delenv(name, raising=False)
    give(monkeypatch, prepared[1])
    return folder


def give(monkeypatch: pytest.MonkeyPatch, lock: Lock) -> None:
    monkeypatch.setitem(sys.modules, "qresolve.lock.file", SimpleNamespace(read_lock=lambda _path: lock))


def site_packages(place: Path) -> Path:
    return module_of(place / ".venv", build_wheel(place / "again", "gated", "1.0")).parents[1]


def valid(name: str, text: str) -> Any:
    """The document, which is what the published schema says and would not be with another key."""
    document = json.loads(text)
    schema = json.loads((Path(qresolve.__file__).parent / "schemas" / f"{name}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(document)
    assert not validator.is_valid({**document, "another": 1})
    assert not any(validator.is_valid({key: document[key] for key in document if key != left}) for left in document)
    return document


def test_env_as_json_is_what_its_schema_says(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--json"]) == 0
    document = valid("env", capsys.readouterr().out)
    assert {"env": "VLLM_DISABLED_KERNELS", "unset": True} in document["settings"]


def test_env_prints_lines_that_a_shell_takes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env"]) == 0
    script = capsys.readouterr().out + '\nprintf "%s\\n" "$CUDA_HOME" "$PATH" "${VLLM_DISABLED_KERNELS-unset}"'
    seen = subprocess.run(
        ["/bin/sh", "-c", script],
        env={"PATH": "/usr/bin", "VLLM_DISABLED_KERNELS": "x"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert seen == [f"{site_packages(place)}/nvidia/cu13", f"{place}/.venv/bin:/usr/bin", "unset"]


def test_env_prints_options(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--format", "flags"]) == 0
    assert shlex.split(capsys.readouterr().out) == ["--kernel-config", JSON_OPTION]


def test_env_prints_dockerfile_lines_for_another_place(
    tmp_path: Path, prepared: tuple[Path, Lock], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    give(monkeypatch, prepared[1])
    assert main(["env", "--format", "dockerfile", "--env", "/opt/venv"]) == 0
    out = capsys.readouterr().out
    python = prepared[1].target.python
    assert f'ENV CUDA_HOME="/opt/venv/lib/python{python}/site-packages/nvidia/cu13"' in out
    assert 'ENV PATH="/opt/venv/bin${PATH:+:$PATH}"' in out


def test_env_prints_json(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["flags"] == ["--kernel-config", JSON_OPTION]
    assert {"env": "VLLM_DISABLED_KERNELS", "unset": True} in printed["settings"]


def test_env_needs_an_environment_only_for_placeholders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    give(monkeypatch, make_lock((), settings=SETTINGS))
    assert main(["env"]) == 2
    assert "hint: qresolve install" in capsys.readouterr().err
    give(monkeypatch, make_lock((), settings=(Setting(env="A", value="1"),)))
    assert main(["env"]) == 0
    assert capsys.readouterr().out == "export A=1\n"


def engine_in(place: Path) -> Path:
    engine = place / ".venv" / "bin" / "vllm"
    engine.write_text("#!/bin/sh\nexit 0\n")
    engine.chmod(0o755)
    return engine


def test_run_shows_the_merged_command(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = engine_in(place)
    assert main(["run", "--dry-run", "--", "vllm", "serve", "m", "--kernel-config.moe_backend", "triton"]) == 0
    words = shlex.split(capsys.readouterr().out)
    assert words[:3] == ["env", "-u", "VLLM_DISABLED_KERNELS"]
    assert words[words.index(str(engine)) :] == [
        str(engine), "serve", "m", "--kernel-config", JSON_OPTION, "--moe-backend", "triton",
    ]  # fmt: skip


def test_run_warns_of_a_choice_that_the_lock_does_not_know(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine_in(place)
    assert main(["run", "--dry-run", "--", "vllm", "serve", "m", "--linear-backend", "marlin"]) == 0
    assert "warning: the lock's verdicts were made without: --linear-backend marlin" in capsys.readouterr().err


def test_a_dry_run_needs_no_engine_and_no_environment(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["--", "qresolve-test-engine", "serve"]
    monkeypatch.setattr("qresolve.engine_run.takes_flags", lambda *_: False)
    settings = (Setting(env="PATH", value="{env_bin}:{PATH}"), Setting(env="VLLM_DISABLED_KERNELS", value=None))
    give(monkeypatch, make_lock((), settings=settings))
    assert main(["run", *command]) == 2
    assert main(["run", "--dry-run", *command]) == 0
    assert shlex.split(capsys.readouterr().out)[-2:] == command[1:]
    give(monkeypatch, make_lock((), settings=settings[1:]))
    shutil.rmtree(place / ".venv")
    assert main(["run", "--dry-run", *command]) == 0
    printed = shlex.split(capsys.readouterr().out)
    assert printed == ["env", "-u", "VLLM_DISABLED_KERNELS", *command[1:]]
    # Where a value is a path in the environment, it has to be there.
    give(monkeypatch, make_lock((), settings=settings))
    assert main(["run", "--dry-run", *command]) == 2


def test_run_as_json(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_in(place)
    monkeypatch.setenv("CUDA_HOME", "/usr/local/cuda")
    assert main(["run", "--dry-run", "--json", "--", "vllm", "serve", "m"]) == 0
    out, err = capsys.readouterr()
    printed = valid("run", out)
    assert printed["program"] == str(engine)
    assert printed["environment"]["VLLM_DISABLED_KERNELS"] is None
    assert printed["environment"]["CUDA_HOME"] == f"{site_packages(place)}/nvidia/cu13"
    assert "CUDA_HOME was /usr/local/cuda" in err


def test_run_refuses_a_conflict(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine_in(place)
    marlin = "--kernel-config.linear_backend_per_quant.mxfp4=marlin"
    assert main(["run", "--", "vllm", "serve", "m", marlin]) == 2
    err = capsys.readouterr().err
    assert "marlin" in err
    assert "humming" in err
    monkeypatch.setenv("VLLM_DISABLED_KERNELS", "X")
    assert main(["run", "--", "vllm", "serve", "m"]) == 2
    assert "hint: unset VLLM_DISABLED_KERNELS" in capsys.readouterr().err
    assert main(["run", "--json", "--", "vllm", "serve", "m"]) == 2


def test_install_prints_one_json_document(
    prepared: tuple[Path, Lock], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(prepared[0])
    give(monkeypatch, prepared[1])
    environment = tmp_path / "env"
    assert main(["install", "--env", str(environment), "--dry-run", "--json"]) == 0
    planned = valid("install", capfd.readouterr().out)
    assert (planned["created"], planned["add"], planned["dry_run"]) == (True, ["gated==1.0"], True)
    assert not environment.exists()
    assert main(["install", "--env", str(environment), "--json"]) == 0
    done = valid("install", capfd.readouterr().out)
    assert done["environment"] == str(environment)
    assert imports(environment, "gated")


def test_install_fails_with_5_and_refuses_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = build_wheel(tmp_path / "wheels", "gated", "1.0")
    wrong = make_lock((locked(wheel, sha256="2" * 64),))
    write_pylock(tmp_path / "pylock.toml", wrong)
    monkeypatch.chdir(tmp_path)
    give(monkeypatch, wrong)
    assert main(["install"]) == 5
    assert "hint: qresolve install --lock pylock.toml --env" in capsys.readouterr().err
    give(monkeypatch, make_lock((locked(wheel),), glibc="99.0"))
    assert main(["install"]) == 2
    assert "hint: qresolve lock --glibc" in capsys.readouterr().err


def test_verify_says_unproved_with_7_and_refuted_with_6(
    place: Path, prepared: tuple[Path, Lock], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "--static"]) == 7
    out = capsys.readouterr().out
    assert "installed packages: 1 proved" in out
    assert "nvfp4@w4a4:dense" in out
    (site_packages(place) / "gated" / "__init__.py").write_text("built = 3\n")
    assert main(["verify", "--static", "--python", ".venv/bin/python"]) == 6
    assert "refuted" in capsys.readouterr().out
    assert main(["verify", "--json", "--only", "nvfp4", "--gpu", "rtx5090"]) == 6
    printed = json.loads(capsys.readouterr().out)
    assert printed["schema"] == "qresolve.verify/1"
    assert [row["subject"] for row in printed["evidence"] if row["outcome"] == "refuted"] == ["gated==1.0"]


def test_verify_refuses_what_the_lock_does_not_have(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--only", "fp8"]) == 2
    assert main(["verify", "--gpu", "h100"]) == 2
    assert main(["verify", "--lock", "pylock.toml", "--formats", "fp8"]) == 2
    assert main(["verify", "--formats", "fp8"]) == 2


def test_verify_without_a_lock_looks_at_given_formats(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = str(place / ".venv" / "bin" / "python")
    assert main(["verify", "--static", "--python", python, "--gpu", "sm121", "--formats", "fp8", "--json"]) == 7
    printed = json.loads(capsys.readouterr().out)
    assert printed["target"] is None
    assert [(row["format"], row["role"], row["arch"]) for row in printed["verdicts"]] == [("fp8", "dense", "sm121")]


def test_run_starts_the_engine_and_returns_its_code(place: Path) -> None:
    engine = place / ".venv" / "bin" / "vllm"
    engine.write_text('#!/bin/sh\nprintf "%s|" "$CUDA_HOME" "$@"\nexit 37\n')
    engine.chmod(0o755)
    code = (
        "import sys, types, json\n"
        "from qresolve.setting import Setting\n"
        "from tests.unit.install.environments import make_lock\n"
        "settings = tuple(Setting.from_mapping(one) for one in json.loads(sys.argv[1]))\n"
        "fake = types.SimpleNamespace(read_lock=lambda _path: make_lock((), settings=settings))\n"
        "sys.modules['qresolve.lock.file'] = fake\n"
        "from qresolve.cli.main import main\n"
        "sys.exit(main(['run', '--', 'vllm', 'serve', 'm']))\n"
    )
    told = json.dumps([setting.to_mapping() for setting in SETTINGS])
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code, told],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 37, done.stderr
    assert done.stdout == f"{site_packages(place)}/nvidia/cu13|serve|m|--kernel-config|{JSON_OPTION}|"
