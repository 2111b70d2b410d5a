"""Verifying an environment: looks, and puts together what was seen. Never reads a verdict or a route of a lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve.install.installed_files import read_comparisons
from qresolve.install.interpreter import read_interpreter
from qresolve.install.unfinished import read_marker
from qresolve.verify.evidence import Binds, Evidence, Outcome, VerifiedEnvironment, VerifyReport
from qresolve.verify.installed import check_installed
from qresolve.verify.rungs import check_unlooked, judge

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from qresolve.lock.model import Lock
    from qresolve.verify.evidence import FormatRow

NO_LOCK = Evidence(
    rung=0,
    binds=Binds.PACKAGE,
    subject="environment",
    outcome=Outcome.SKIPPED,
    why="there is no lock to compare the installed packages with",
)


def run_verify(lock: Lock | None, rows: Sequence[FormatRow], *, python: Path, static: bool) -> VerifyReport:
    """Look at the environment of the interpreter ``python``; without a lock rung 0 does not apply.

    Raises:
        UsageError: the interpreter does not answer.
    """
    interpreter = read_interpreter(python)
    unfinished = read_marker(interpreter.prefix)
    evidence: tuple[Evidence, ...] = (NO_LOCK,)
    if lock is not None:
        evidence = check_installed(
            lock.packages,
            interpreter.distributions,
            read_comparisons(lock.packages, interpreter.distributions),
            unfinished,
        )
    return VerifyReport(
        target=lock.target if lock is not None else None,
        environment=VerifiedEnvironment(
            python=str(interpreter.executable),
            version=interpreter.version,
            prefix=str(interpreter.prefix),
            distributions=len(interpreter.distributions),
            unfinished_install=unfinished is not None,
        ),
        evidence=evidence + check_unlooked(rows, static=static),
        verdicts=judge(rows),
    )
