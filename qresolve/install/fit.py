"""Whether a lock fits this host and an interpreter: refusals that no installer would word as well."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qresolve.errors import UsageError
from qresolve.target.detect import read_host
from qresolve.target.drivers import parse_driver

if TYPE_CHECKING:
    from collections.abc import Callable

    from qresolve.install.interpreter import Interpreter
    from qresolve.lock.model import LockedTarget
    from qresolve.target.detect import Detection

_DRIVER_FILES = (Path("/sys/module/nvidia/version"), Path("/proc/driver/nvidia/version"))
_DRIVER_VERSION = re.compile(r"\b\d{3,}(?:\.\d+)+\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """One fact of the host that the lock was not made for; ``hint`` is a command or None."""

    fact: str
    needs: str
    have: str
    hint: str | None = None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def read_driver(files: tuple[Path, ...] = _DRIVER_FILES, ask: Callable[[], Detection] = read_host) -> str | None:
    """The NVIDIA driver's version on this host, raw, or None where it isn't known.

    The kernel module says it even where no GPU is visible; elsewhere (WSL) the driver's library is asked.
    """
    for file in files:
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        match = _DRIVER_VERSION.search(text)
        if match:
            return match[0]
    try:
        return ask().driver
    except UsageError:
        return None


def check_driver(floor: str | None, driver: str | None) -> tuple[Misfit, ...]:
    """A driver older than the lock's floor. An unknown one, or no floor, blocks nothing.

    Raises:
        UsageError: one of them is no driver version.
    """
    if floor is None or driver is None or parse_driver(driver).reaches(parse_driver(floor)):
        return ()
    return (Misfit(fact="driver", needs=f"{floor} or newer", have=driver, hint="nvidia-smi"),)


def check_host(target: LockedTarget, *, system: str, machine: str, glibc: str | None) -> tuple[Misfit, ...]:
    """Where a host is not what ``target`` says; ``glibc`` None (another C library, not known) blocks nothing."""
    misfits = []
    if system != "linux":
        misfits.append(Misfit(fact="system", needs="linux", have=system))
    if machine != target.machine:
        misfits.append(
            Misfit(
                fact="CPU machine",
                needs=target.machine,
                have=machine,
                hint=f"qresolve lock --machine {machine}",
            )
        )
    if glibc is not None and _numbers(glibc) < _numbers(target.glibc):
        misfits.append(
            Misfit(
                fact="glibc",
                needs=f"{target.glibc} or newer",
                have=glibc,
                hint=f"qresolve lock --glibc {glibc}",
            )
        )
    return tuple(misfits)


def check_python(target: LockedTarget, interpreter: Interpreter) -> tuple[Misfit, ...]:
    """Another Python than the locked one: its wheels would not load."""
    if interpreter.python == ".".join(target.python.split(".")[:2]):
        return ()
    return (
        Misfit(
            fact="Python",
            needs=target.python,
            have=f"{interpreter.version} ({interpreter.executable})",
            hint=f"qresolve lock --python {interpreter.python}",
        ),
    )


def refuse(misfits: tuple[Misfit, ...]) -> None:
    """Raise for the misfits, all in one message.

    Raises:
        UsageError: there is one.
    """
    if misfits:
        said = "; ".join(f"{misfit.fact}: needs {misfit.needs}, have {misfit.have}" for misfit in misfits)
        raise UsageError(f"the lock was not made for this host: {said}", hint=misfits[0].hint)
