"""Launching one exported probe on one device, with the driver alone: numbers, the spoiled control, and a time."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from qresolve_probes.layouts import unpack_float32
from qresolve_probes.probe import TIMED, Inputs, judge, reference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qresolve_probes.driver import Driver
    from qresolve_probes.probe import Probe, Shape

_GUARD = 1 << 16  # bytes behind C that must stay as they are
_REPEATS = 10
_WARM = 3
_ROUNDS = 5


class WroteOutside(Exception):
    """A kernel wrote where it must not."""


def launch_probe(
    driver: Driver, probe: Probe, cubin: bytes, facts: Mapping[str, Any], *, timing: bool
) -> dict[str, Any]:
    """Run a probe in the current context.

    Raises:
        DriverError: a call of the driver failed.
    """
    function = driver.load(cubin, facts["kernel"], facts["shared"])
    inputs = probe.inputs()
    expected = reference(probe, inputs)
    found = judge(probe, expected, _run(driver, function, inputs, facts))
    control = judge(probe, expected, _run(driver, function, probe.spoil(inputs), facts))
    answer: dict[str, Any] = {
        "end": "launched",
        "numbers": "agree" if found.agree else "differ",
        "spoiled": "not refuted" if control.agree else "refuted",
        "error": found.error,
        "bound": found.bound,
        "worst": found.worst,
        "outside": found.outside,
        "spoiled_outside": control.outside,
    }
    if timing:
        answer["milliseconds"] = _time(driver, function, probe, facts)
        answer["timed"] = [TIMED.m, TIMED.n, TIMED.k]
    return answer


def _grid(shape: Shape, facts: Mapping[str, Any]) -> tuple[int, int]:
    rows, columns, _ = facts["tile"]
    return -(-shape.m // rows), -(-shape.n // columns)


def _values(pointers: Mapping[str, Any], shape: Shape, facts: Mapping[str, Any], scratch: Any) -> list[Any]:
    numbers = {"M": shape.m, "N": shape.n, "K": shape.k}
    values = [ctypes.c_int(numbers[name]) if name in numbers else pointers[name] for name in facts["parameters"]]
    return values + [scratch] * facts["hidden"]


def _run(driver: Driver, function: Any, inputs: Inputs, facts: Mapping[str, Any]) -> list[float]:
    size = 4 * inputs.shape.m * inputs.shape.n
    pointers = {name: driver.put(data) for name, data in inputs.buffers.items()}
    pointers["c"] = driver.room(size + _GUARD)
    scratch = driver.room(facts["scratch"]) if facts["scratch"] else ctypes.c_uint64(0)
    try:
        driver.clear(pointers["c"], size + _GUARD)
        grid = _grid(inputs.shape, facts)
        driver.launch(
            function, grid, facts["threads"], facts["shared"], _values(pointers, inputs.shape, facts, scratch)
        )
        driver.wait()
        data = driver.get(pointers["c"], size + _GUARD)
        if data[size:] != b"\xff" * _GUARD:
            raise WroteOutside(f"the kernel wrote behind its {size} bytes of C")
        return unpack_float32(data[:size])
    finally:
        for pointer in pointers.values():
            driver.free(pointer)


def _time(driver: Driver, function: Any, probe: Probe, facts: Mapping[str, Any]) -> float:
    """Milliseconds of one product of the larger shape: the fastest of some rounds."""
    small = probe.inputs()
    pointers: dict[str, Any] = {}
    for name, data in small.buffers.items():
        count = _scaled(name, len(data), small.shape, TIMED)
        pointers[name] = driver.put((data * (count // len(data) + 1))[:count])
    pointers["c"] = driver.room(4 * TIMED.m * TIMED.n)
    scratch = driver.room(facts["scratch"]) if facts["scratch"] else ctypes.c_uint64(0)
    values = _values(pointers, TIMED, facts, scratch)
    grid = _grid(TIMED, facts)

    def start() -> None:
        driver.launch(function, grid, facts["threads"], facts["shared"], values)

    try:
        for _ in range(_WARM):
            start()
        driver.wait()
        return min(driver.milliseconds(start, _REPEATS) for _ in range(_ROUNDS))
    finally:
        for pointer in pointers.values():
            driver.free(pointer)


def _scaled(name: str, length: int, small: Shape, large: Shape) -> int:
    """The length of a buffer of another shape: at most what A or B, or scales of them, grow by."""
    rows = -(-large.m // small.m) if name in ("a", "scale_a") else -(-large.n // small.n)
    return length * (rows + 1) * (-(-large.k // small.k) + 1)
