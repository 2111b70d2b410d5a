"""How long reading machine code takes: ``python -m tests.benchmarks.inspect LIBRARY [CUOBJDUMP]``.

Headers (by sections), a search of the whole file for containers, and the full scan with decompression, each the median
of several runs in one process; with ``cuobjdump`` also its list of images, once, as a ratio to the headers.
"""

from __future__ import annotations

import mmap
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from qresolve.machine_code.elf import parse_library
from qresolve.machine_code.fatbin import search_containers
from qresolve.machine_code.scan import scan_binary

if TYPE_CHECKING:
    from collections.abc import Callable

_RUNS = 5


def median(work: Callable[[], object]) -> float:
    """Seconds, the first run left out: it brings the file from the disk."""
    work()
    taken = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def anonymous_memory() -> str:
    """What the process holds that is no part of the file, and its peak with it."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return ", ".join(" ".join(line.split()) for line in lines if line.startswith(("RssAnon", "VmHWM")))


def main(arguments: list[str]) -> None:
    """Measure and print."""
    path = Path(arguments[0])
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    headers = median(lambda: parse_library(data, path=path.name))
    print(f"{path.name}: {len(data) / 1e6:.0f} MB")
    print(f"headers: {headers * 1e3:.0f} ms; {anonymous_memory()}")
    print(f"whole file by magic: {median(lambda: list(search_containers(data))) * 1e3:.0f} ms")
    start = time.perf_counter()
    scan = scan_binary(data, path=path.name, wanted=lambda images: images)
    images = sum(len(unit.images) for unit in scan.units)
    print(f"every instruction of {images} images: {time.perf_counter() - start:.2f} s; {anonymous_memory()}")
    if len(arguments) > 1:
        start = time.perf_counter()
        subprocess.run([arguments[1], "--list-elf", str(path)], stdout=subprocess.DEVNULL, check=True)
        taken = time.perf_counter() - start
        print(f"cuobjdump --list-elf: {taken:.1f} s, {taken / headers:.0f} times the headers")


if __name__ == "__main__":
    main(sys.argv[1:])
