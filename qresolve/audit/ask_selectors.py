"""Running the script that asks an installed engine's selectors: throwaway processes, a stub driver, a faked host."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qresolve.audit.behaviour import parse_answer_lines, request_document
from qresolve.audit.points import parse_questionnaire
from qresolve.audit.stub_driver import SONAME, build_stub_driver
from qresolve.data import data_folder
from qresolve.errors import Unproved, UsageError
from qresolve.strict import read_toml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from qresolve.audit.behaviour import Answers
    from qresolve.audit.points import Presence, Questionnaire
    from qresolve.knowledge.records import Engine

_INSIDE = Path(__file__).with_name("inside")
_JOB_LIMIT = 600  # seconds for one GPU and presence: an import of the engine and some hundred questions
_KEPT_LINES = 12


def read_questionnaire(engine: str) -> Questionnaire:
    """How ``engine`` is asked.

    Raises:
        UsageError: its selectors cannot be asked. DataInvalid: the file is wrong.
    """
    path = data_folder("constraints") / "audited" / f"{engine}.toml"
    if not path.is_file():
        raise UsageError(f"the behaviour of {engine} cannot be audited: nothing says how its selectors are asked")
    return parse_questionnaire(read_toml(path, name=f"constraints/audited/{path.name}"))


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


@contextlib.contextmanager
def _faked_host(cuda: str) -> Iterator[tuple[Path, Path]]:
    """A folder with a stub driver, and one with a toolkit whose programs only tell a version."""
    with tempfile.TemporaryDirectory(prefix="qresolve-audit-") as made:
        folder = Path(made)
        major, minor = (int(part) for part in cuda.split(".")[:2])
        machine = platform.machine()
        driver = folder / SONAME
        try:
            driver.write_bytes(build_stub_driver(machine, cuda=1000 * major + 10 * minor))
        except ValueError as error:
            raise UsageError(f"selectors cannot be asked on this machine: {error}") from error
        (folder / "nothing").mkdir()
        programs = folder / "toolkit" / "bin"
        programs.mkdir(parents=True)
        _program(programs / "nvcc", f"echo 'Cuda compilation tools, release {cuda}, V{cuda}.0'")
        _program(programs / "ninja", "echo 1")
        yield folder, driver


def _variables(folder: Path) -> dict[str, str]:
    """The environment of the process: nothing of this host's toolkit, caches in the throwaway folder."""
    return {
        "PATH": str(folder / "nothing"),
        "CUDA_HOME": str(folder / "nothing"),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }


def run_selectors(engine: Engine, questionnaire: Questionnaire, *, python: Path, log: Path | None = None) -> Answers:
    """Ask every question inside the environment of ``python``; progress goes to stderr, the engine's words to ``log``.

    What the process did not come to before it ended is unasked, with the reason.

    Raises:
        Unproved: nothing was answered. UsageError: it cannot be started here.
    """
    with _faked_host(engine.release.cuda) as (folder, driver):

        def environ(presence: Presence) -> Mapping[str, str]:
            if not presence.toolkit:
                return {}
            toolkit = folder / "toolkit"
            return {"CUDA_HOME": str(toolkit), "PATH": str(toolkit / "bin")}

        request = request_document(engine, questionnaire, environ=environ, driver=str(driver), limit=_JOB_LIMIT)
        lines, words, status = _run_script(python, questionnaire.script, request, folder)
        if log is not None:
            log.write_text(words, encoding="utf-8")
    last = "\n".join(words.strip().splitlines()[-_KEPT_LINES:])
    if not lines:
        raise Unproved(f"{python} ended with status {status} and answered nothing:\n{last}")
    return parse_answer_lines((*lines, *_unanswered(lines, request, status)), request)


def _unanswered(lines: tuple[str, ...], request: Mapping[str, Any], status: int) -> tuple[str, ...]:
    """A line for each job that the process did not come to: an early end does not undo what was answered."""
    answered = {json.loads(line).get("job") for line in lines}
    failed = f"the process ended early with status {status}"
    return tuple(
        json.dumps({"job": job["id"], "failed": failed}) for job in request["jobs"] if job["id"] not in answered
    )


def _run_script(
    python: Path, script: str, request: Mapping[str, Any], folder: Path
) -> tuple[tuple[str, ...], str, int]:
    """Lines of the answer, what was said on stderr, and the exit status."""
    total = len(request["jobs"])
    questions, said = folder / "questions.json", folder / "stderr.txt"
    questions.write_text(json.dumps(request), encoding="utf-8")
    lines: list[str] = []
    with questions.open("rb") as given, said.open("wb") as words:
        try:
            child = subprocess.Popen(
                [str(python), "-I", "-B", str(_INSIDE / script)],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=words,
                cwd=folder / "nothing",
                env=_variables(folder),
                process_group=0,
            )
        except OSError as error:
            raise UsageError(f"{python} cannot be run: {error}") from error
        with child:
            try:
                assert child.stdout is not None  # noqa: S101 - for the type checker: a pipe was asked for
                for line in child.stdout:
                    if not line.startswith(b"{") or not line.endswith(b"}\n"):
                        continue  # cut off
                    lines.append(line.decode("utf-8", "replace"))
                    print(f"asked {len(lines)} of {total}", file=sys.stderr, flush=True)
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)  # it, and the process of the job
                raise
            status = child.wait()
    return tuple(lines), said.read_text(encoding="utf-8", errors="replace"), status
