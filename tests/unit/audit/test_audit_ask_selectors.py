"""Running a script in another interpreter: what it is told, what is kept of its answers, and how it may end."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qresolve.audit import ask_selectors
from qresolve.audit.ask_selectors import read_questionnaire, run_selectors
from qresolve.errors import Unproved, UsageError
from qresolve.knowledge.engine import load_engine

if TYPE_CHECKING:
    from qresolve.audit.points import Questionnaire

PYTHON = Path(sys.executable)
HEAD = """
import json, os, shutil, subprocess, sys
request = json.load(sys.stdin)
def answer(job, picked):
    answers = [[{"picked": picked(phase)} for _ in phase["points"]] for phase in job["phases"]]
    print(json.dumps({"job": job["id"], "release": "1.0", "answers": answers}), flush=True)
"""


def questionnaire() -> Questionnaire:
    """Two GPUs, and two presences in one process."""
    whole = read_questionnaire("vllm")
    return replace(whole, archs=(90, 120), presences=tuple(one for one in whole.presences if not one.alone)[:2])


def write_script(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
    (folder / "vllm_selectors.py").write_text(HEAD + text, encoding="utf-8")
    monkeypatch.setattr(ask_selectors, "_INSIDE", folder)


def test_every_job_is_answered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_script(monkeypatch, tmp_path, 'for job in request["jobs"]:\n    answer(job, lambda phase: phase["id"])\n')
    found = run_selectors(load_engine("vllm"), questionnaire(), python=PYTHON)
    assert found.release == "1.0"
    assert not found.unasked
    assert {(key[0], key[2], value) for key, value in found.picked.items()} == {
        (presence, sm, presence) for presence in ("stock", "flashinfer") for sm in (90, 120)
    }


def test_the_process_sees_a_faked_host_and_none_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VLLM_SECRET", "seen")
    text = """
def host(phase):
    path = phase["environ"].get("PATH", os.environ["PATH"])
    nvcc, ninja = shutil.which("nvcc", path=path), shutil.which("ninja", path=path)
    told = subprocess.run([nvcc], capture_output=True, text=True).stdout if nvcc else ""
    home = phase["environ"].get("CUDA_HOME", os.environ["CUDA_HOME"])
    return "|".join([str("release 13.0" in told), str(bool(ninja)), str(os.path.exists(home + "/bin/nvcc")),
                     str(os.path.exists(request["driver"])), str("VLLM_SECRET" in os.environ), str(os.listdir("."))])
for job in request["jobs"]:
    answer(job, host)
"""
    write_script(monkeypatch, tmp_path, text)
    found = run_selectors(load_engine("vllm", "0.33.0"), questionnaire(), python=PYTHON)
    seen = {key[0]: value for key, value in found.picked.items()}
    assert seen == {"stock": "False|False|False|True|False|[]", "flashinfer": "True|True|True|True|False|[]"}


def test_what_was_answered_before_an_early_end_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (
        'answer(request["jobs"][0], lambda phase: "A")\nprint("{cut", end="")\nsys.stderr.write("why")\nsys.exit(3)\n'
    )
    write_script(monkeypatch, tmp_path, text)
    log = tmp_path / "log"
    found = run_selectors(load_engine("vllm"), questionnaire(), python=PYTHON, log=log)
    assert {key[2] for key in found.picked} == {90}
    assert {key[2] for key in found.unasked} == {120}
    assert set(found.unasked.values()) == {"the process ended early with status 3"}
    assert log.read_text(encoding="utf-8") == "why"


def test_a_process_that_answers_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_script(monkeypatch, tmp_path, 'sys.exit("no module named vllm")\n')
    with pytest.raises(Unproved, match="no module named vllm"):
        run_selectors(load_engine("vllm"), questionnaire(), python=PYTHON)


def test_a_program_that_is_none(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_bytes(b"\0")
    program.chmod(0o700)
    with pytest.raises(UsageError, match="cannot be run"):
        run_selectors(load_engine("vllm"), questionnaire(), python=program)
