"""Times our closure and lock against uv alone: the same engine, warm cache, offline. Not a test; run it by hand.

    python -m tests.benchmarks.lock_vs_uv [--engine vllm==0.33.0] [--runs 7]

Prints the medians, and in which packages the two differ. The aim: the whole lock within uv's own time and 0.35 s.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from qresolve.closure.indexes import read_user_indexes
from qresolve.closure.request import ClosureRequest
from qresolve.closure.solve import run_closure
from qresolve.closure.uv import run_uv_compile
from qresolve.lock.file import write_lock
from qresolve.lock.model import Lock, LockedTarget

if TYPE_CHECKING:
    from collections.abc import Callable


def median_seconds(action: Callable[[], object], runs: int) -> float:
    """The median wall time of ``action`` over ``runs``."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="vllm==0.33.0")
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    indexes = read_user_indexes(os.environ, Path.home())
    request = ClosureRequest(requirements=(arguments.engine,))
    ours, alone = run_closure(request, indexes), run_uv_compile(request, indexes)
    offline = ClosureRequest(requirements=(arguments.engine,), offline=True)
    target = LockedTarget(gpus=(("sm120", "sm120"),), machine="x86_64", glibc="2.35", python="3.12")

    def lock(folder: Path) -> None:
        write_lock(
            folder / "pylock.toml",
            Lock(
                target=target,
                engine="vllm",
                engine_version=arguments.engine.rpartition("=")[2],
                packages=run_closure(offline, indexes).packages,
                formats=(),
                settings=(),
                data_digest="",
            ),
        )

    with tempfile.TemporaryDirectory() as name:
        rows = {
            "one run of uv": lambda: run_uv_compile(offline, indexes),
            "closure with lockstep": lambda: run_closure(offline, indexes),
            "closure and lock file": lambda: lock(Path(name)),
        }
        for title, action in rows.items():
            print(f"{title:24} {median_seconds(action, arguments.runs):.3f} s")
    versions = {package.name: package.version for package in alone.packages}
    for package in ours.packages:
        before = versions.pop(package.name, "absent")
        if before != package.version:
            print(f"{package.name}: uv {before}, ours {package.version}")
    for name, version in versions.items():
        print(f"{name}: uv {version}, ours absent")
    print(f"{len(ours.packages)} packages, CUDA toolkit {ours.toolkit}, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
