"""A script in another interpreter, in a throwaway process: JSON in, JSON lines out, a time limit, stderr kept.

The answer comes on a descriptor of its own, so nothing that an engine, a compiler or a ``.pth`` file prints is taken
for it. The process starts in an empty folder with exactly the variables given, under ``-I``: neither the working
directory nor ``PYTHONPATH`` nor the user's own packages add anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SCRIPTS = Path(__file__).with_name("scripts")
_KEPT_LINES = 12
_MOST_ANSWER = 64 * 1024 * 1024  # bytes; an answer is some kilobytes
_MOST_SAID = 256 * 1024  # bytes of stderr that are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptEnd:
    """How a script ended. ``lines`` are its answers, each a JSON object; ``said`` the last lines of stderr.

    ``status`` is the exit status, negative for a signal; ``timed_out``: it was stopped at its limit.
    """

    lines: tuple[Mapping[str, Any], ...]
    status: int
    said: str
    timed_out: bool

    @property
    def how(self) -> str:
        """How it ended, in words, for a person who wonders why there is no answer."""
        if self.timed_out:
            return "it did not answer in time"
        if self.status < 0:
            return f"it was ended by {_signal_name(-self.status)}"
        return f"it ended with status {self.status}"

    @property
    def last(self) -> str:
        """The last line that it said, or an empty text."""
        return self.said.splitlines()[-1].strip() if self.said.strip() else ""

    @property
    def reason(self) -> str:
        """Why there is no answer: how it ended, with its last line."""
        return f"{self.how}{f': {self.last}' if self.last else ''}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def run_script(
    python: Path,
    script: Path,
    request: object,
    *,
    variables: Mapping[str, str],
    limit: float,
    arguments: Sequence[str] = (),
    bytecode: Path | None = None,
    site: bool = True,
    on_line: Callable[[Mapping[str, Any]], None] | None = None,
) -> ScriptEnd:
    """Run ``script`` with ``request`` as JSON on stdin; ``limit`` is in seconds of the clock.

    The script gets the number of the descriptor for its answers as its first argument. At the limit, and when this
    process is interrupted, it and every process of its group are killed. Compiled modules are kept in ``bytecode``,
    never beside the sources: the environment stays as it is. Without ``site`` the environment's own packages are not
    found, and what it runs at every start (sitecustomize, ``.pth`` files) is not run.

    Raises:
        OSError: the interpreter cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix="qresolve-inside-") as made, tempfile.TemporaryFile() as words:
        reading, writing = os.pipe()
        try:
            given = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
            given.write(json.dumps(request).encode())
            given.seek(0)
            keep = ["-X", f"pycache_prefix={bytecode}"] if bytecode is not None else ["-B"]
            keep += [] if site else ["-S"]
            child = subprocess.Popen(
                [str(python), "-I", *keep, str(script), str(writing), *arguments],
                stdin=given,
                stdout=words,
                stderr=words,
                cwd=made,
                env={"HOME": made, "TMPDIR": made, "XDG_CACHE_HOME": f"{made}/cache", **variables},
                process_group=0,
                pass_fds=(writing,),
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
            given.close()
        try:
            lines, timed_out = _read_lines(reading, limit, on_line)
            if not timed_out:
                # The answer has ended; what the process still does on its way out is not waited for long.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(5.0)
        finally:
            os.close(reading)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            status = child.wait()
        return ScriptEnd(lines=lines, status=status, said=_tail(words.fileno()), timed_out=timed_out)


def _read_lines(
    descriptor: int, limit: float, on_line: Callable[[Mapping[str, Any]], None] | None
) -> tuple[tuple[Mapping[str, Any], ...], bool]:
    """The JSON objects that came, and whether the time ran out. What is no object is dropped."""
    end = time.monotonic() + limit
    rest = b""
    taken = 0
    lines: list[Mapping[str, Any]] = []
    while (left := end - time.monotonic()) > 0:
        if not select.select([descriptor], [], [], left)[0]:
            continue
        chunk = os.read(descriptor, 65536)
        if not chunk:
            return tuple(lines), False
        taken += len(chunk)
        if taken > _MOST_ANSWER:
            return tuple(lines), False
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                lines.append(found)
                if on_line is not None:
                    on_line(found)
    return tuple(lines), True


def _tail(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    start = max(0, size - _MOST_SAID)
    text = os.pread(descriptor, _MOST_SAID, start).decode("utf-8", "replace")
    return "\n".join(text.strip().splitlines()[-_KEPT_LINES:])
