"""Running the resolver: both outputs kept apart, a time limit, and no orphan after Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_PATIENCE = 3.0  # seconds an interrupted resolver gets to end by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a child ended; ``status`` is negative for a signal, None where the time limit ended it."""

    status: int | None
    stdout: str
    stderr: str


def _stop(child: subprocess.Popen[bytes]) -> None:
    """End the child's process group and wait for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGINT)
    try:
        child.communicate(timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def run_captured(command: Sequence[str], *, variables: Mapping[str, str], folder: Path, timeout: float) -> Finished:
    """Run ``command`` in ``folder`` with exactly ``variables``, for at most ``timeout`` seconds.

    The child is its own process group, so that what it starts ends with it.

    Raises:
        KeyboardInterrupt: interrupted; the child has ended by then.
        OSError: it cannot be started.
    """
    child = subprocess.Popen(
        list(command),
        cwd=folder,
        env=dict(variables),
        process_group=0,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        stdout, stderr = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as expired:
        _stop(child)
        return Finished(status=None, stdout="", stderr=(expired.stderr or b"").decode("utf-8", "replace"))
    except BaseException:
        _stop(child)
        raise
    return Finished(
        status=child.returncode, stdout=stdout.decode("utf-8", "replace"), stderr=stderr.decode("utf-8", "replace")
    )
