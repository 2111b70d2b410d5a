"""Running a script in another interpreter: what it is told, what is kept of its answers, and how it may end."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qresolve.audit import run_inside
from qresolve.audit.ask_selectors import read_predicates, read_questionnaire, run_predicates, run_selectors
from qresolve.audit.predicate_questions import narrowed_predicates
from qresolve.audit.progress import append_progress
from qresolve.audit.run_inside import Asking
from qresolve.cli.main import main
from qresolve.errors import Unproved, UsageError
from qresolve.knowledge.engine import load_engine

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from qresolve.audit.points import Questionnaire

PYTHON = Path(sys.executable)
ENGINE = load_engine("vllm", "0.33.0")
HEAD = """
import json, os, shutil, subprocess, sys
request = json.load(sys.stdin)
def answer(job, picked):
    answers = [[{"picked": picked(phase)} for _ in phase["points"]] for phase in job["phases"]]
    print(json.dumps({"job": job["id"], "release": "0.33.0", "answers": answers}), flush=True)
"""
ALL = 'for job in request["jobs"]:\n    answer(job, lambda phase: phase["id"])\n'
# Answers the job that it is given first, and says which it was given.
FIRST = """
print(json.dumps([job["sm"] for job in request["jobs"]]), file=sys.stderr)
answer(request["jobs"][0], lambda phase: "first")
"""


def questionnaire() -> Questionnaire:
    """Two GPUs, and two presences in one process."""
    whole = read_questionnaire("vllm", "0.33.0")
    return replace(whole, archs=(90, 120), presences=tuple(one for one in whole.presences if not one.alone)[:2])


def write_script(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str, *, head: str = HEAD) -> None:
    (folder / "vllm_selectors.py").write_text(head + text, encoding="utf-8")
    monkeypatch.setattr(run_inside, "SCRIPTS", folder)


def test_every_job_is_answered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_script(monkeypatch, tmp_path, ALL)
    found, whole = run_selectors(ENGINE, questionnaire(), Asking(python=PYTHON))
    assert whole
    assert found.release == "0.33.0"
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
    found, _ = run_selectors(ENGINE, questionnaire(), Asking(python=PYTHON))
    seen = {key[0]: value for key, value in found.picked.items()}
    assert seen == {"stock": "False|False|False|True|False|[]", "flashinfer": "True|True|True|True|False|[]"}


def test_what_was_answered_before_an_early_end_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = (
        'answer(request["jobs"][0], lambda phase: "A")\nprint("{cut", end="")\nsys.stderr.write("why")\nsys.exit(3)\n'
    )
    write_script(monkeypatch, tmp_path, text)
    log = tmp_path / "log"
    found, whole = run_selectors(ENGINE, questionnaire(), Asking(python=PYTHON, log=log))
    assert not whole
    assert {key[2] for key in found.picked} == {90}
    assert {key[2] for key in found.unasked} == {120}
    assert set(found.unasked.values()) == {"the process ended early with status 3"}
    assert log.read_text(encoding="utf-8") == "why"


def test_a_process_that_answers_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_script(monkeypatch, tmp_path, 'sys.exit("no module named vllm")\n')
    with pytest.raises(Unproved, match="no module named vllm"):
        run_selectors(ENGINE, questionnaire(), Asking(python=PYTHON))


def test_another_release_is_refused_at_its_first_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    endless = ALL + "while True:\n    pass\n"
    write_script(monkeypatch, tmp_path, endless, head=HEAD.replace("0.33.0", "0.9.9"))
    progress = tmp_path / "r.part"
    with pytest.raises(UsageError, match=r"has vllm 0\.9\.9, not 0\.33\.0") as refused:
        run_selectors(ENGINE, questionnaire(), Asking(python=PYTHON, progress=progress))
    assert "vllm==0.9.9 --behaviour" in str(refused.value.hint)
    assert not progress.exists()


def test_a_program_that_is_none(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_bytes(b"\0")
    program.chmod(0o700)
    with pytest.raises(UsageError, match="cannot be run"):
        run_selectors(ENGINE, questionnaire(), Asking(python=program))


# ---------------------------------------------------------------- going on


def test_an_audit_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_script(monkeypatch, tmp_path, FIRST)
    asking = Asking(python=PYTHON, progress=tmp_path / "r.part", log=tmp_path / "log")
    one, whole = run_selectors(ENGINE, questionnaire(), asking)
    assert not whole
    assert {key[2] for key in one.picked} == {90}
    two, whole = run_selectors(ENGINE, questionnaire(), asking)
    assert whole
    assert (tmp_path / "log").read_text(encoding="utf-8").strip() == "[120]"
    assert not two.unasked
    assert {key: value for key, value in two.picked.items() if key[2] == 90} == one.picked
    monkeypatch.setattr(run_inside, "_run_script", None)  # a third time there is nothing to ask
    assert run_selectors(ENGINE, questionnaire(), asking) == (two, True)


@pytest.mark.parametrize("what", ["script", "release", "question"])
def test_answers_to_something_else_are_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str) -> None:
    write_script(monkeypatch, tmp_path, ALL)
    asking = Asking(python=PYTHON, progress=tmp_path / "r.part", log=tmp_path / "log")
    asked, engine = questionnaire(), ENGINE
    run_selectors(engine, asked, asking)
    head = HEAD
    if what == "release":
        engine = load_engine("vllm", "0.32.0")
        asked = replace(asked, only=("int8@w8a8:dense",))
        run_selectors(ENGINE, asked, asking)
        head = HEAD.replace("0.33.0", "0.32.0")
    if what == "question":
        asked = replace(asked, quantizers={**asked.quantizers, "moe": "another"})
    text = 'print(len(request["jobs"]), file=sys.stderr)\n' + ALL
    if what == "question":
        # The same script: what was asked is counted by the answers that the side file gains.
        lines = asking.progress.read_text(encoding="utf-8").count("\n") if asking.progress else 0
        run_selectors(engine, asked, asking)
        assert asking.progress is not None
        assert asking.progress.read_text(encoding="utf-8").count("\n") == lines + 2
        return
    write_script(monkeypatch, tmp_path, text, head=head)
    run_selectors(engine, asked, asking)
    assert (tmp_path / "log").read_text(encoding="utf-8").strip() == "2"


def test_the_choice_of_gpus_does_not_undo_what_was_answered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_script(monkeypatch, tmp_path, FIRST)
    asking = Asking(python=PYTHON, progress=tmp_path / "r.part", log=tmp_path / "log")
    run_selectors(ENGINE, replace(questionnaire(), archs=(120,)), asking)
    run_selectors(ENGINE, questionnaire(), asking)
    assert (tmp_path / "log").read_text(encoding="utf-8").strip() == "[90]"


@pytest.mark.parametrize("cut", [1, 40])
def test_a_line_that_was_cut_off_is_asked_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cut: int) -> None:
    write_script(monkeypatch, tmp_path, ALL)
    progress = tmp_path / "r.part"
    asking = Asking(python=PYTHON, progress=progress)
    whole = run_selectors(ENGINE, questionnaire(), asking)
    progress.write_bytes(progress.read_bytes()[:-cut])
    assert run_selectors(ENGINE, questionnaire(), asking) == whole
    monkeypatch.setattr(run_inside, "_run_script", None)
    assert run_selectors(ENGINE, questionnaire(), asking) == whole


def test_an_interrupted_audit_leaves_no_half_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_script(monkeypatch, tmp_path, ALL)
    record = tmp_path / "vllm.json"
    command = ["audit", "vllm==0.33.0", "--behaviour", "--python", sys.executable, "--record", str(record)]
    command += ["--gpu", "sm90,sm120", "--formats", "int8"]
    told: list[str] = []

    def interrupted(path: Path, key: str, answer: Mapping[str, Any]) -> None:
        if told:
            raise KeyboardInterrupt
        told.append(key)
        append_progress(path, key, answer)

    monkeypatch.setattr(run_inside, "append_progress", interrupted)
    assert main(command) == 130
    assert not record.exists()
    assert (tmp_path / "vllm.json.part").read_text(encoding="utf-8").count("\n") == 1
    monkeypatch.setattr(run_inside, "append_progress", append_progress)
    capsys.readouterr()
    main(command)  # what it picks is not right, and nobody asks that here
    assert "1 of 6 were answered before" in capsys.readouterr().err
    assert not (tmp_path / "vllm.json.part").exists()
    first = json.loads(record.read_text(encoding="utf-8"))
    assert set(first["answers"]["stock"]["int8@w8a8:dense"]) == {"90 120"}

    write_script(monkeypatch, tmp_path, ALL.replace('phase["id"]', '"later"'))
    main([*command[:-4], "--gpu", "sm100", "--formats", "int8"])
    assert json.loads(record.read_text(encoding="utf-8"))["answers"]["stock"]["int8@w8a8:dense"] == {
        "100": "later",
        "90 120": "stock",
    }


def test_restart_asks_everything_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_script(monkeypatch, tmp_path, FIRST)
    record, log = tmp_path / "vllm.json", tmp_path / "log"
    command = ["audit", "vllm==0.33.0", "--behaviour", "--python", sys.executable, "--record", str(record)]
    command += ["--gpu", "sm90,sm120", "--formats", "int8", "--log", str(log)]
    assert main(command) in {7, 9}
    assert (tmp_path / "vllm.json.part").exists()
    main([*command, "--restart"])
    assert json.loads(log.read_text(encoding="utf-8").splitlines()[0]) == [90, 120] * 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpu", "sm90"], "only with --behaviour"),
        (["--behaviour", "--python", sys.executable, "--restart"], "--restart goes with --record"),
        (["--behaviour", "--python", sys.executable, "--gpu", "none"], "nothing to ask"),
        (["--behaviour", "--python", sys.executable, "--formats", "nothing"], "no format is called"),
        (["--behaviour"], "say which interpreter"),
    ],
)
def test_what_does_not_go_together(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "vllm==0.33.0", *words]) == 2
    assert said in capsys.readouterr().err


# ---------------------------------------------------------------- predicates

PREDICATES = """
import json, os, sys
request = json.load(sys.stdin)
for job in request["jobs"]:
    seen = " ".join([os.environ["PATH"], os.environ["CUDA_HOME"]])
    found = {"predicates": {"is_sm90_supported": str(job["sm"] == 90)}, "points": {"int8@w8a8:dense x": seen}}
    if job["cudas"]:
        found["by-cuda"] = {cuda: {"is_sm90_supported": "False"} for cuda in job["cudas"]}
    line = {"job": job["id"], "release": "0.5.23", "torch-cuda": "13.0", "answers": found}
    print(json.dumps(line if job["sm"] != 120 else {"job": job["id"], "failed": "no such GPU"}), flush=True)
"""


def test_predicates_are_asked_with_the_programs_of_their_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sglang_predicates.py").write_text(PREDICATES, encoding="utf-8")
    monkeypatch.setattr(run_inside, "SCRIPTS", tmp_path)
    environment = tmp_path / "env"
    toolkit = environment / "lib" / "python3.12" / "site-packages" / "nvidia" / "cu13"
    toolkit.mkdir(parents=True)
    python = environment / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    engine = load_engine("sglang", "0.5.23")
    questions = narrowed_predicates(read_predicates("sglang", "0.5.23"), archs=(90, 120), schemes=())
    found, whole = run_predicates(engine, questions, Asking(python=python))
    assert not whole
    assert (found.release, found.torch_cuda) == ("0.5.23", "13.0")
    assert found.answers["stock", ("predicates", "is_sm90_supported"), 90] == "True"
    assert found.answers["stock", ("by-cuda", questions.cudas[0], "is_sm90_supported"), 90] == "False"
    assert found.answers["forced", ("points", "int8@w8a8:dense x"), 90] == f"{python.parent} {toolkit}"
    assert found.answers["stock", ("failed",), 120] == "no such GPU"
    assert ("forced", ("failed",), 120) not in found.answers  # that presence is not asked for this GPU
