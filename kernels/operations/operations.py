"""Launches operations of an engine or library on the GPUs of this host and holds them against a reference.

Runs in the interpreter of the environment, by itself, in a throwaway process. It reads one JSON document on stdin and
writes one JSON object a line on the descriptor that its first argument names. The operations of a library stand in a
file of their own beside this one.

In:  ``{"file": "vllm_operations.py", "arguments": {...}, "operations": [name]}``
Out: ``{"device": {"index", "name", "sm"}, "operation": name, "end": "launched", "numbers": "agree" | "differ",
     "spoiled": "refuted" | "not refuted", "error", "bound", "outside", "kernels": [name]}``, the same with ``"end":
     "refused" | "error", "why"`` where nothing was launched, or ``{"problem": text}``

The reference is float64, made from the bits by tables of this file. The spoiled control has one scale twice as large.
"""

# ruff: noqa: BLE001 - torch's objects have no types here, and whatever goes wrong is an answer
from __future__ import annotations

import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

FLOAT32 = 2.0**-23
BF16 = 2.0**-8
HOPPER_FP8 = 2.0**-13 / 32  # a share of each term of sm90's FP8 sums, 32 at a time with 14 bits


class Case(NamedTuple):
    """One operation: how it is run, rightly and spoiled, what it should give, and where it may round.

    ``left`` (M x K) and ``right`` (N x K) are float64 on the CPU. The bound of an element is
    ``(2 x operand + K x sum) x sum|a b| + result x |c|``.
    """

    run: Any
    spoiled: Any
    left: Any
    right: Any
    operand: float = 0.0
    sum: float = FLOAT32
    result: float = BF16


def decode_e4m3(torch: Any, codes: Any) -> Any:
    """float64 values of bytes, by a table made from the layout: s eeee fff, bias 7."""
    table = []
    for code in range(256):
        sign = -1.0 if code & 0x80 else 1.0
        exponent, fraction = (code >> 3) & 15, code & 7
        value = fraction * 2.0**-9 if exponent == 0 else (1 + fraction / 8) * 2.0 ** (exponent - 7)
        table.append(float("nan") if code & 0x7F == 0x7F else sign * value)
    return torch.tensor(table, dtype=torch.float64)[codes.long()]


def decode_e2m1(torch: Any, codes: Any) -> Any:
    """float64 values of four-bit codes: s ee f, bias 1."""
    table = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    return torch.tensor([*table, *(-value for value in table)], dtype=torch.float64)[codes.long()]


def nf4_levels() -> list[float]:
    """The sixteen levels by their definition: quantiles of the normal distribution (QLoRA, 2023, appendix E)."""
    quantile = NormalDist().inv_cdf
    offset = 0.5 * ((1 - 1 / 30) + (1 - 1 / 32))

    def side(count: int) -> list[float]:
        return [quantile(offset + (0.5 - offset) * step / count) for step in range(count)]

    values = sorted([*side(8), 0.0, *(-value for value in side(7))])
    return [value / values[-1] for value in values]


def e4m3_codes(torch: Any, rows: int, columns: int, *, seed: int) -> Any:
    """Random e4m3 codes between 1/8 and 7.5, both signs, with zeros, subnormals and the largest among them."""
    maker = torch.Generator().manual_seed(seed)
    codes = torch.randint(4 << 3, 10 << 3, (rows, columns), generator=maker, dtype=torch.int32)
    codes |= torch.randint(0, 2, (rows, columns), generator=maker, dtype=torch.int32) << 7
    codes.view(-1)[:8] = torch.tensor([0, 0x80, 1, 0x81, 7, 8, 0x7E, 0xFE], dtype=torch.int32)
    return codes.to(torch.uint8)


def judge(torch: Any, case: Case, result: Any) -> dict[str, Any]:
    """A result beside the reference."""
    wanted = case.left @ case.right.T
    magnitude = case.left.abs() @ case.right.abs().T
    bound = (2 * case.operand + case.left.shape[1] * case.sum) * magnitude + case.result * wanted.abs()
    found = result.detach().to("cpu", torch.float64)
    if found.shape != wanted.shape:
        return {"agree": False, "error": None, "bound": None, "outside": wanted.numel()}
    off = (found - wanted).abs()
    wrong = ~(off <= bound)
    place = int(torch.where(torch.isnan(off), torch.inf, off / bound.clamp_min(1e-300)).argmax())
    return {
        "agree": not bool(wrong.any()),
        "error": float(off.view(-1)[place]),
        "bound": float(bound.view(-1)[place]),
        "outside": int(wrong.sum()),
    }


def kernels_of(torch: Any, run: Any) -> list[str]:
    """The names of the kernels that a run started, in order."""
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        run()
        torch.cuda.synchronize()
    kind = torch.autograd.DeviceType.CUDA
    return list(dict.fromkeys(one.name for one in profile.events() if one.device_type == kind))


def launch(torch: Any, make: Any, device: Any) -> dict[str, Any]:
    case = make(torch, device)
    found = judge(torch, case, case.run())
    control = judge(torch, case, case.spoiled())
    return {
        "end": "launched",
        "numbers": "agree" if found["agree"] else "differ",
        "spoiled": "not refuted" if control["agree"] else "refuted",
        **{key: found[key] for key in ("error", "bound", "outside")},
        "kernels": kernels_of(torch, case.run),
    }


def load(name: str) -> Any:
    """A file beside this one: an isolated interpreter does not look here."""
    sys.modules["operations"] = sys.modules[__name__]
    path = Path(__file__).resolve().with_name(name)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Answer the request."""
    own = int(sys.argv[1])
    request = json.load(sys.stdin)

    def say(**values: Any) -> None:
        data = (json.dumps(values) + "\n").encode()
        while data:
            data = data[os.write(own, data) :]

    try:
        import torch  # type: ignore[import-not-found]  # noqa: PLC0415 - in the target's interpreter alone

        if not torch.cuda.is_available():
            say(problem="torch finds no GPU")
            return
        library = load(request["file"])
        library.prepare(torch, request.get("arguments", {}))
    except BaseException as error:
        traceback.print_exc()
        say(problem=first_line(error))
        return
    for index in range(torch.cuda.device_count()):
        major, minor = torch.cuda.get_device_capability(index)
        device = {"index": index, "name": torch.cuda.get_device_name(index), "sm": major * 10 + minor}
        with torch.cuda.device(index):
            for name in request["operations"]:
                make = library.OPERATIONS.get(name)
                if make is None:
                    say(device=device, operation=name, end="error", why="nobody knows how it is called")
                    continue
                try:
                    say(device=device, operation=name, **launch(torch, make, torch.device("cuda", index)))
                except BaseException as error:
                    traceback.print_exc()
                    # An extension's own refusal comes through torch as a RuntimeError that names it.
                    refused = isinstance(error, NotImplementedError) or "NotImplementedError" in str(error)
                    say(device=device, operation=name, end="refused" if refused else "error", why=first_line(error))


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300] if lines else ''}"


if __name__ == "__main__":
    main()
