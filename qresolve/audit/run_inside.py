"""Running a script of ``inside/scripts/`` in an engine's interpreter: throwaway processes, a stub driver, a faked host.

A script reads one JSON document with jobs on stdin and writes a JSON object a line and job. What a job answered is
put into a side file before the next one is waited for, so that an audit that was stopped goes on where it was.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qresolve.audit.progress import append_progress, job_keys, read_progress
from qresolve.errors import Unproved, UsageError
from qresolve.inside.process import SCRIPTS
from qresolve.inside.stub_driver import SONAME, build_stub_driver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from qresolve.knowledge.records import Engine

TOOLKIT = "{toolkit}"
"""Stands in a request for the folder of the faked toolkit, which is another one each time."""
_DRIVER = "{driver}"
_JOB_LIMIT = 600  # seconds for one job: an import of the engine and some hundred questions
_KEPT_LINES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Whom to ask, and where the engine's words and what was answered so far are kept (None: nowhere)."""

    python: Path
    log: Path | None = None
    progress: Path | None = None


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


def _variables(folder: Path, more: Mapping[str, str]) -> dict[str, str]:
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
        **more,
    }


def environment_variables(python: Path) -> dict[str, str]:
    """The programs of an environment, and the toolkit that its NVIDIA wheels make, where there is one."""
    found = {"PATH": str(python.parent)}
    toolkits = sorted(python.parent.parent.glob("lib/python*/site-packages/nvidia/cu[0-9]*"))
    if toolkits:
        found["CUDA_HOME"] = str(toolkits[-1])
    return found


def run_jobs(
    request: Mapping[str, Any],
    *,
    script: str,
    engine: Engine,
    asking: Asking,
    environ: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """A line for each job of ``request``; progress goes to stderr, the engine's words to the log.

    Jobs that the side file has answers to are not asked again. One that the process did not come to before it ended
    has failed, with the reason. ``environ`` are variables of the process beside the usual ones.

    Raises:
        Unproved: nothing was answered. UsageError: it cannot be started here, or another release answers.
    """
    jobs = request["jobs"]
    release = engine.release.version
    keys = job_keys(jobs, texts=_texts(script), python=str(asking.python), release=release)
    before = read_progress(asking.progress) if asking.progress is not None else {}
    lines = [json.dumps({**before[keys[job["id"]]], "job": job["id"]}) for job in jobs if keys[job["id"]] in before]
    pending = [job for job in jobs if keys[job["id"]] not in before]
    if lines:
        print(f"{len(lines)} of {len(jobs)} were answered before: {asking.progress}", file=sys.stderr, flush=True)
    if not pending:
        return tuple(lines)

    def keep(line: str) -> None:
        document = json.loads(line)
        if document.get("release", release) != release:
            raise UsageError(
                f"{asking.python} has {engine.name} {document['release']}, not {release}",
                hint=f"qresolve audit {engine.name}=={document['release']} --behaviour --python {asking.python}",
            )
        lines.append(line)
        if asking.progress is not None and "failed" not in document:
            append_progress(asking.progress, keys[document["job"]], document)
        print(f"asked {len(lines)} of {len(jobs)}", file=sys.stderr, flush=True)

    known = len(lines)
    with _faked_host(engine.release.cuda) as (folder, driver):
        whole = json.dumps({**request, "driver": _DRIVER, "limit": _JOB_LIMIT, "jobs": pending})
        text = whole.replace(_DRIVER, str(driver)).replace(TOOLKIT, str(folder / "toolkit"))
        (folder / "questions.json").write_text(text, encoding="utf-8")
        command = [str(asking.python), "-I", "-B", str(SCRIPTS / script)]
        words, status = _run_script(command, folder, _variables(folder, environ or {}), keep)
    if asking.log is not None:
        asking.log.write_text(words, encoding="utf-8")
    if len(lines) == known:
        last = "\n".join(words.strip().splitlines()[-_KEPT_LINES:])
        raise Unproved(f"{asking.python} ended with status {status} and answered nothing:\n{last}")
    answered = {json.loads(line).get("job") for line in lines}
    failed = f"the process ended early with status {status}"
    return (*lines, *(json.dumps({"job": job["id"], "failed": failed}) for job in jobs if job["id"] not in answered))


def _texts(script: str) -> tuple[bytes, ...]:
    """The texts that decide what is asked: of the script, and of the questions beside it."""
    family = script.partition("_")[0]
    return tuple(path.read_bytes() for path in sorted(SCRIPTS.glob(f"{family}_*.py")))


def _run_script(
    command: list[str],
    folder: Path,
    variables: Mapping[str, str],
    keep: Callable[[str], None],
) -> tuple[str, int]:
    """What was said on stderr, and the exit status; each line of the answer goes to ``keep`` as it comes."""
    said = folder / "stderr.txt"
    with (folder / "questions.json").open("rb") as given, said.open("wb") as words:
        try:
            child = subprocess.Popen(
                command,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=words,
                cwd=folder / "nothing",
                env=dict(variables),
                process_group=0,
            )
        except OSError as error:
            raise UsageError(f"{command[0]} cannot be run: {error}") from error
        with child:
            try:
                assert child.stdout is not None  # noqa: S101 - for the type checker: a pipe was asked for
                for line in child.stdout:
                    if not line.startswith(b"{") or not line.endswith(b"}\n"):
                        continue  # cut off
                    keep(line.decode("utf-8", "replace"))
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)  # it, and the process of the job
                raise
            status = child.wait()
    return said.read_text(encoding="utf-8", errors="replace"), status
