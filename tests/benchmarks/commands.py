"""Times whole commands: `lock` against `uv pip compile` of the same requirements in turn, and what must start fast.

    python -m tests.benchmarks.commands [--pairs 7] [--cold]

Run it by hand, with a warm cache (`--cold` gives each run an empty one and needs the index). It prints medians, the
ratio pair by pair, and the peak memory of the largest single process. The aims: cold at most 1.3 of uv's time; warm
and offline at most uv's time and 0.35 s; the core at most 150 ms of CPU; `--version` 100 ms, `explain` 300 ms.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from uv import find_uv_bin

from qresolve.question import ask_question
from qresolve.resolution import solve
from qresolve.target.target import build_target, read_target_data

PROGRAM = (sys.executable, "-m", "qresolve")
ASKED = ("--gpu", "sm120", "--formats", "mxfp4,nvfp4", "--engine", "vllm==0.33.0")


def timed(command: tuple[str, ...], *, cold: bool) -> tuple[float, float]:
    """Wall seconds and peak MiB of one run."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, **({"UV_CACHE_DIR": folder} if cold else {})}
        start = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        if status:
            raise SystemExit(f"{' '.join(command)} ended with status {os.waitstatus_to_exitcode(status)}")
        return seconds, usage.ru_maxrss / 1024


def alone(title: str, command: tuple[str, ...], runs: int) -> None:
    """Print the medians of one command."""
    found = [timed(command, cold=False) for _ in range(runs)]
    seconds, memory = (statistics.median(values) for values in zip(*found, strict=True))
    print(f"{title:34} {seconds:7.3f} s   {memory:6.1f} MiB")


def core_cpu(runs: int) -> float:
    """Median CPU seconds of the core resolution, records loaded."""
    data = read_target_data()
    found = []
    for _ in range(runs):
        question = ask_question(
            formats=["mxfp4,nvfp4"],
            target=build_target(gpu=["sm120"], data=data),
            architectures=data.architectures,
            engine="vllm==0.33.0",
        )
        start = time.process_time()
        solve(question.core())
        found.append(time.process_time() - start)
    return statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--cold", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder) / "requirements.in"
        requirements.write_text("vllm==0.33.0\n", encoding="utf-8")
        offline = () if arguments.cold else ("--offline",)
        ours = (*PROGRAM, "lock", *ASKED, "-o", "-", *offline)
        theirs = (
            find_uv_bin(), "pip", "compile", str(requirements), "--python-version", "3.12", "--python-platform",
            "x86_64-manylinux_2_35", "--only-binary", ":all:", "--format", "pylock.toml", "-q", *offline,
        )  # fmt: skip
        for command in (ours, theirs):
            timed(command, cold=arguments.cold)
        pairs = [(timed(ours, cold=arguments.cold), timed(theirs, cold=arguments.cold)) for _ in range(arguments.pairs)]
    for title, side in (("lock", 0), ("uv pip compile", 1)):
        seconds = statistics.median(pair[side][0] for pair in pairs)
        memory = max(pair[side][1] for pair in pairs)
        print(f"{title:34} {seconds:7.3f} s   {memory:6.1f} MiB")
    ratio = statistics.median(pair[0][0] / pair[1][0] for pair in pairs)
    more = statistics.median(pair[0][0] - pair[1][0] for pair in pairs)
    print(f"{'lock / uv, pair by pair':34} {ratio:7.2f}     difference {more:+.3f} s")
    print(f"{'core resolution, CPU':34} {core_cpu(arguments.pairs):7.3f} s")
    alone("qresolve --version", (*PROGRAM, "--version"), arguments.pairs)
    alone("qresolve explain", (*PROGRAM, "explain", *ASKED), arguments.pairs)


if __name__ == "__main__":
    main()
