"""Running an installer: its progress is passed on as it comes, its last lines are kept, and it is never orphaned."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from types import FrameType

_CREDENTIALS = re.compile(r"(\b[a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s@]+@")
_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PIECE = re.compile(rb"[^\r\n]*[\r\n]+")
_KEPT_LINES = 15
_LOOK_EVERY = 0.5  # seconds
_PATIENCE = 10.0  # seconds an interrupted installer gets to end by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnd:
    """How a child ended: its exit status (negative: the signal that killed it) and its last lines."""

    status: int
    tail: tuple[str, ...]


def redact(text: str) -> str:
    """``text`` without user names, passwords and tokens in addresses."""
    return _CREDENTIALS.sub(r"\1****@", text)


class _Pump:
    """Passes a child's output on, piece by piece, and remembers its last lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rest = b""
        self.tail: deque[str] = deque(maxlen=_KEPT_LINES)

    def take(self, chunk: bytes) -> None:
        self._rest += chunk
        end = 0
        for match in _PIECE.finditer(self._rest):
            self._pass_on(match[0])
            end = match.end()
        self._rest = self._rest[end:]

    def close(self) -> None:
        if self._rest:
            self._pass_on(self._rest)
            self._rest = b""

    def _pass_on(self, piece: bytes) -> None:
        text = redact(piece.decode("utf-8", errors="replace"))
        with contextlib.suppress(OSError, ValueError):  # a closed terminal must not stop an install half way
            self._stream.write(text)
            self._stream.flush()
        line = _TERMINAL_CODES.sub("", text).strip()
        if line:
            self.tail.append(line)


@contextlib.contextmanager
def _termination_interrupts() -> Iterator[None]:
    """SIGTERM and SIGHUP act like Ctrl-C, so that the child is stopped and the state is told."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(child: subprocess.Popen[bytes]) -> None:
    """End the child and what it started; they are a process group, since pip runs itself once more."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGINT)
    try:
        child.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def run_child(
    command: Sequence[str], *, variables: Mapping[str, str], folder: Path, stream: TextIO | None = None
) -> ChildEnd:
    """Run ``command`` in ``folder`` with exactly ``variables``; both of its outputs go to ``stream`` (stderr).

    On a terminal the child gets one too, so that its progress bars work.

    Raises:
        KeyboardInterrupt: interrupted or terminated; the child has ended by then.
        OSError: it cannot be started.
    """
    shown = sys.stderr if stream is None else stream
    pump = _Pump(shown)
    terminal = shown.isatty()
    reading, writing = pty.openpty() if terminal else os.pipe()
    with _termination_interrupts():
        try:
            child = subprocess.Popen(
                list(command),
                cwd=folder,
                env=dict(variables),
                process_group=0,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
            )
        except OSError:
            os.close(reading)
            os.close(writing)
            raise
        os.close(writing)
        try:
            while True:
                ready, _writable, _failed = select.select([reading], [], [], _LOOK_EVERY)
                if not ready:
                    if child.poll() is None:
                        continue
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(child.pid, signal.SIGKILL)  # it is gone, and what it started still works on
                    break
                try:
                    chunk = os.read(reading, 65536)
                except OSError:  # a pseudo-terminal ends with EIO
                    break
                if not chunk:
                    break
                pump.take(chunk)
            status = child.wait()
        except BaseException:
            _stop(child)
            raise
        finally:
            pump.close()
            os.close(reading)
    return ChildEnd(status=status, tail=tuple(pump.tail))
