from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from qresolve.engine_flags import read_engine_flags
from qresolve.engine_run import find_program, merge_variables, plan_start
from qresolve.errors import UsageError
from qresolve.setting import Setting

FLAGS = read_engine_flags("vllm")
ROOT = Path(__file__).resolve().parents[2]
SETTINGS = (
    Setting(env="CUDA_HOME", value="/env/cu13"),
    Setting(env="PATH", value="/env/bin:{PATH}"),
    Setting(env="VLLM_DISABLED_KERNELS", value=None),
    Setting(env="VLLM_USE_DEEP_GEMM", value=True),
    Setting(path="kernel_config.linear_backend_per_quant.mxfp4", value="humming"),
)


def merged(variables: dict[str, str], *settings: Setting) -> dict[str, str]:
    return merge_variables(variables, settings or SETTINGS, choice_prefixes=("VLLM_",))[0]


def test_locked_variables_are_put_in_and_others_left() -> None:
    assert merged({"PATH": "/usr/bin", "HOME": "/h"}) == {
        "PATH": "/env/bin:/usr/bin",
        "HOME": "/h",
        "CUDA_HOME": "/env/cu13",
        "VLLM_USE_DEEP_GEMM": "1",
    }


def test_a_host_fact_is_replaced_and_told() -> None:
    variables, replaced = merge_variables({"CUDA_HOME": "/usr/local/cuda"}, SETTINGS, choice_prefixes=("VLLM_",))
    assert variables["CUDA_HOME"] == "/env/cu13"
    assert [(change.name, change.before, change.now) for change in replaced] == [
        ("CUDA_HOME", "/usr/local/cuda", "/env/cu13")
    ]


@pytest.mark.parametrize(
    ("name", "value"), [("VLLM_USE_DEEP_GEMM", "0"), ("VLLM_DISABLED_KERNELS", "MarlinMxFp4LinearKernel")]
)
def test_another_choice_of_the_user_is_refused(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"{name}='{value}'.*lock fixes {name}") as caught:
        merged({name: value})
    assert caught.value.hint == f"unset {name}"


def test_an_equal_choice_is_no_conflict() -> None:
    assert merged({"VLLM_USE_DEEP_GEMM": "1"})["VLLM_USE_DEEP_GEMM"] == "1"


def test_the_environments_own_program_comes_first(tmp_path: Path) -> None:
    for folder in ("env", "path"):
        (tmp_path / folder).mkdir()
        program = tmp_path / folder / "vllm"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    path = str(tmp_path / "path")
    assert find_program("vllm", str(tmp_path / "env"), path) == str(tmp_path / "env" / "vllm")
    assert find_program("vllm", None, path) == str(tmp_path / "path" / "vllm")
    with pytest.raises(UsageError, match="sglang"):
        find_program("sglang", str(tmp_path / "env"), path)


def test_a_command_that_takes_no_options_is_refused_only_when_some_are_needed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="takes no options"):
        plan_start((sys.executable, "mine.py"), SETTINGS, FLAGS, variables={}, programs=None)
    start = plan_start((sys.executable, "mine.py"), SETTINGS[:1], FLAGS, variables={}, programs=None)
    assert start.argv == (sys.executable, "mine.py")


def test_no_command_is_refused() -> None:
    with pytest.raises(UsageError, match="no command"):
        plan_start((), SETTINGS, FLAGS, variables={}, programs=None)


def test_a_configuration_file_of_the_command_is_checked() -> None:
    command = ("vllm", "serve", "--config", "c.yaml")
    with pytest.raises(UsageError, match=r"c\.yaml"):
        plan_start(command, SETTINGS, FLAGS, variables={}, programs=None, config_text="linear-backend: marlin\n")


_ENGINE = f"""#!{sys.executable}
import json, os, signal, sys
print(json.dumps([sys.argv[1:], os.environ.get("CUDA_HOME"), os.environ.get("VLLM_USE_DEEP_GEMM"), os.getpid()]),
      flush=True)
if "--wait" in sys.argv:
    signal.pause()
sys.exit(37)
"""
_START = """
import json, os, sys
from qresolve.engine_flags import read_engine_flags
from qresolve.engine_run import plan_start, run_engine
from qresolve.setting import Setting
settings = tuple(Setting.from_mapping(entry) for entry in json.loads(sys.argv[1]))
run_engine(plan_start(sys.argv[3:], settings, read_engine_flags("vllm"), variables=os.environ, programs=sys.argv[2]))
"""


def start_engine(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    engine = tmp_path / "vllm"
    engine.write_text(_ENGINE)
    engine.chmod(engine.stat().st_mode | stat.S_IXUSR)
    told = json.dumps([setting.to_mapping() for setting in SETTINGS])
    return subprocess.Popen(
        [sys.executable, "-c", _START, told, str(tmp_path), "vllm", "serve", "m", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("VLLM_")},
    )


def test_the_engine_gets_options_and_variables_and_its_exit_code_is_ours(tmp_path: Path) -> None:
    child = start_engine(tmp_path, "--port", "1")
    out, _err = child.communicate(timeout=60)
    argv, cuda_home, deep_gemm, pid = json.loads(out)
    assert argv[:4] == ["serve", "m", "--port", "1"]
    assert json.loads(argv[argv.index("--kernel-config") + 1]) == {"linear_backend_per_quant": {"mxfp4": "humming"}}
    assert (cuda_home, deep_gemm) == ("/env/cu13", "1")
    assert pid == child.pid
    assert child.returncode == 37


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_reaches_the_engine_and_ends_as_it_would_alone(number: signal.Signals, tmp_path: Path) -> None:
    child = start_engine(tmp_path, "--wait")
    assert child.stdout is not None
    child.stdout.readline()
    child.send_signal(number)
    child.communicate(timeout=60)
    assert child.returncode == -number
