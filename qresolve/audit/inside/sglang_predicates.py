"""Asks SGLang's own predicates and selectors what they answer, for GPUs that are not there.

Runs in the interpreter of an environment with SGLang, by itself: it imports nothing of qresolve. What SGLang prints
goes to stderr, the answers go to standard output as one JSON document.

    PYTHON sglang_predicates.py [--driver LIBRARY] [--arch SM]... [--presence NAME]... [--cuda VERSION]...

Each GPU and presence has a process of its own: SGLang fixes many answers for the GPU that it sees when it is imported.
``--driver`` is a library that stands in for libcuda.so.1, which extensions want to find and never call here. An answer
is a name, ``refused: …`` where SGLang raises one of its own refusals, or ``error: …`` where it could not be asked.
"""

# ruff: noqa: BLE001, D103 - it stands in for SGLang's own objects, and whatever goes wrong is an answer
from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.metadata
import importlib.util
import json
import os
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ARCHS = (75, 80, 86, 89, 90, 100, 103, 110, 120, 121)
PRESENCES: dict[str, tuple[dict[str, str], tuple[int, ...]]] = {
    "stock": ({}, ARCHS),
    "no-flashinfer": ({"SGLANG_IS_FLASHINFER_AVAILABLE": "0"}, (90, 100, 110, 120)),
    "no-deepgemm": ({"SGLANG_ENABLE_JIT_DEEPGEMM": "0"}, (90, 100, 110, 120)),
    "neither": ({"SGLANG_IS_FLASHINFER_AVAILABLE": "0", "SGLANG_ENABLE_JIT_DEEPGEMM": "0"}, (90, 100, 120)),
    "forced": ({"SGLANG_FORCE_FP8_MARLIN": "1", "USE_TRITON_W8A8_FP8_KERNEL": "1"}, (80, 89, 90, 100)),
}
SECONDS = 600
# Packages that look at the GPU when they are imported.
OF_THE_GPU = frozenset(("sglang", "flashinfer", "deep_gemm", "sgl_kernel", "triton_kernels", "__main__"))
REFUSALS = (ValueError, RuntimeError, NotImplementedError, ImportError, AssertionError)


def module(name: str) -> Any:
    return importlib.import_module(name)


def questions() -> Any:
    """The questions, from the file beside this one: an isolated interpreter does not look there."""
    path = Path(__file__).resolve().with_name("sglang_questions.py")
    spec = importlib.util.spec_from_file_location("sglang_questions", path)
    loaded = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(loaded)  # type: ignore[union-attr]
    return loaded


# ---------------------------------------------------------------- a GPU


def put_gpu(sm: int) -> None:
    """Make torch say that there is one CUDA GPU of that capability."""
    torch = module("torch")
    cuda = torch.cuda
    cuda.is_available = lambda: True
    cuda.is_initialized = lambda: False
    cuda.device_count = lambda: 1
    cuda.current_device = lambda: 0
    cuda.get_device_capability = lambda *_, **__: (sm // 10, sm % 10)
    cuda.get_device_name = lambda *_, **__: f"no GPU, taken for sm{sm}"
    cuda.get_device_properties = lambda *_, **__: SimpleNamespace(
        name=f"no GPU, taken for sm{sm}", major=sm // 10, minor=sm % 10, multi_processor_count=132,
        total_memory=80 << 30, shared_memory_per_block_optin=101376, warp_size=32, L2_cache_size=50 << 20,
    )  # fmt: skip
    empty = torch.empty

    def empty_somewhere(*arguments: Any, **named: Any) -> Any:
        if str(named.get("device", "")).startswith("cuda"):
            named["device"] = "meta"  # a module that makes its workspace when it is imported
        return empty(*arguments, **named)

    torch.empty = empty_somewhere


def answer(ask: Callable[[], Any]) -> str:
    try:
        return str(ask())
    except REFUSALS as error:
        lines = str(error).strip().splitlines()
        return f"refused: {type(error).__name__}: {lines[0][:160] if lines else ''}"
    except Exception as error:
        traceback.print_exc()
        return f"error: {type(error).__name__}: {error}"


def predicates_by_cuda(asks: Any, sm: int, versions: list[str]) -> dict[str, dict[str, str]]:
    """The predicates that look at torch's CUDA, for other ones than this torch's."""
    torch = module("torch")
    own = torch.version.cuda
    asked = asks.predicates(sm)
    looking = [name for name in asks.OF_CUDA if name in asked]
    found: dict[str, dict[str, str]] = {}
    try:
        for cuda in versions:
            torch.version.cuda = cuda
            for name in looking:
                asked[name].cache_clear()
                found.setdefault(cuda, {})[name] = answer(asked[name])
    finally:
        torch.version.cuda = own
        for name in looking:
            asked[name].cache_clear()
    return found


def work(sm: int, presence: str, versions: list[str]) -> dict[str, Any]:
    """All answers for one GPU; runs in a process of its own."""
    os.environ.update(PRESENCES[presence][0])
    put_gpu(sm)
    asks = questions()
    asks.put_settings({})
    found: dict[str, Any] = {"predicates": {name: answer(ask) for name, ask in asks.predicates(sm).items()}}
    if presence == "stock" and versions:
        found["by-cuda"] = predicates_by_cuda(asks, sm, versions)
    picked = {}
    for text, (settings, ask) in asks.points(sm).items():

        def asked(settings: dict[str, str] = settings, ask: Callable[[], str] = ask) -> str:
            asks.put_settings(settings)
            return ask()

        picked[text] = answer(asked)
    found["points"] = picked
    return found


def in_a_process(sm: int, presence: str, versions: list[str]) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        signal.alarm(SECONDS)
        try:
            found = work(sm, presence, versions)
        except BaseException as error:
            traceback.print_exc()
            found = {"failed": f"{type(error).__name__}: {error}"}
        with os.fdopen(writing, "w") as pipe:
            json.dump(found, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return dict(json.loads(text or '{"failed": "the process ended"}'))


def leaves(keys: tuple[str, ...], found: dict[str, Any]) -> list[tuple[tuple[str, ...], str]]:
    """Each answer with the keys that lead to it."""
    flat: list[tuple[tuple[str, ...], str]] = []
    for key, value in found.items():
        flat += leaves((*keys, key), value) if isinstance(value, dict) else [((*keys, key), str(value))]
    return flat


def share_imports() -> None:
    """Load here what SGLang loads of other packages, so that each process need not: asked of one that loads SGLang."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with suppress(BaseException):
            put_gpu(80)
            questions().put_settings({})
        with os.fdopen(writing, "w") as pipe:
            json.dump([name for name in sys.modules if name.partition(".")[0] not in OF_THE_GPU], pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        names = json.load(pipe)
    os.waitpid(child, 0)
    for name in names:
        with suppress(BaseException):
            module(name)


def main() -> None:
    """Ask for every GPU and presence."""
    own = os.dup(1)
    os.dup2(2, 1)
    parser = argparse.ArgumentParser(description="What SGLang's predicates and selectors answer.")
    parser.add_argument("--driver")
    parser.add_argument("--arch", type=int, action="append")
    parser.add_argument("--presence", action="append", choices=list(PRESENCES))
    parser.add_argument("--cuda", action="append", default=[], help="ask predicates for this CUDA of torch too")
    options = parser.parse_args()
    if options.driver:
        ctypes.CDLL(options.driver, mode=ctypes.RTLD_GLOBAL)
    module("torch")
    share_imports()
    answers: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for presence in options.presence or PRESENCES:
        for sm in options.arch or PRESENCES[presence][1]:
            for keys, value in leaves((presence,), in_a_process(sm, presence, options.cuda)):
                answers.setdefault(keys, {}).setdefault(value, []).append(str(sm))
            print(f"asked {presence} sm{sm}", file=sys.stderr, flush=True)
    document: dict[str, Any] = {
        "schema": "qresolve.sglang-predicates/1",
        "engine": "sglang",
        "release": importlib.metadata.version("sglang"),
        "torch-cuda": module("torch").version.cuda,
        "command": " ".join(
            (
                "PYTHON -I qresolve/audit/inside/sglang_predicates.py --driver libcuda.so.1",
                *(f"--cuda {version}" for version in options.cuda),
            )
        ),
        "presences": {name: PRESENCES[name][0] for name in options.presence or PRESENCES},
    }
    for keys, values in answers.items():
        row = document.setdefault("answers", {})
        for key in keys:
            row = row.setdefault(key, {})
        row.update({" ".join(sms): value for value, sms in values.items()})
    with os.fdopen(own, "w") as out:
        json.dump(document, out, indent=1)
        out.write("\n")


if __name__ == "__main__":
    main()
