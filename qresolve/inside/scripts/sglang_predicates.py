"""Asks SGLang's own predicates and selectors what they answer, for GPUs that are not there.

Runs in the interpreter of an environment with SGLang, by itself: it imports nothing of qresolve, reads one JSON
document on stdin and writes one JSON object a line on its standard output; what SGLang prints goes to stderr.

In:  ``{"driver": path | null, "limit": seconds, "jobs": [{"id", "sm", "environ": {name: value}, "cudas": [version],
     "schemes": [scheme key] | null}]}``
Out: ``{"job": id, "release": version, "torch-cuda": version, "files": {path: sha256}, "answers": {"predicates":
     {name: text}, "by-cuda": {version: {name: text}}, "points": {text: text}}}`` or ``{"job": id, "failed": text}``

Each job has a process of its own: SGLang fixes many answers for the GPU that it sees when it is imported. ``driver``
is a library that stands in for libcuda.so.1, which extensions want to find and never call here. An answer is a name,
``refused: …`` where SGLang raises one of its own refusals, or ``error: …`` where it could not be asked.
"""

# ruff: noqa: BLE001, D103 - it stands in for SGLang's own objects, and whatever goes wrong is an answer
from __future__ import annotations

import ctypes
import hashlib
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


def went_through() -> dict[str, str]:
    """The files of SGLang's layers that are loaded, and one digest over their names and contents."""
    said = hashlib.sha256()
    count = 0
    for name in sorted(sys.modules):
        path = getattr(sys.modules[name], "__file__", None)
        if not name.startswith("sglang.srt.layers") or not path:
            continue
        said.update(name.encode())
        said.update(Path(path).read_bytes())
        count += 1
    return {f"sglang/srt/layers ({count} files)": said.hexdigest()}


def work(job: dict[str, Any]) -> dict[str, Any]:
    """All answers for one GPU; runs in a process of its own."""
    os.environ.update(job["environ"])
    put_gpu(job["sm"])
    asks = questions()
    asks.put_settings({})
    found: dict[str, Any] = {
        "predicates": {name: answer(ask) for name, ask in asks.predicates(job["sm"]).items()},
    }
    if job["cudas"]:
        found["by-cuda"] = predicates_by_cuda(asks, job["sm"], job["cudas"])
    picked = {}
    for text, (settings, ask) in asks.points(job["sm"]).items():
        if job["schemes"] is not None and text.partition(" ")[0] not in job["schemes"]:
            continue

        def asked(settings: dict[str, str] = settings, ask: Callable[[], str] = ask) -> str:
            asks.put_settings(settings)
            return ask()

        picked[text] = answer(asked)
    found["points"] = picked
    return {
        "job": job["id"],
        "files": went_through(),
        "release": importlib.metadata.version("sglang"),
        "torch-cuda": module("torch").version.cuda,
        "answers": found,
    }


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
    """Load what all jobs share, then fork one process a job."""
    # A descriptor of its own where the caller made one; stdout may have been written to before this line.
    own = int(sys.argv[1]) if len(sys.argv) > 1 else os.dup(1)
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    if request["driver"]:
        ctypes.CDLL(request["driver"], mode=ctypes.RTLD_GLOBAL)
    module("torch")
    if len(request["jobs"]) > 1:  # one alone would load everything twice
        share_imports()
    for job in request["jobs"]:
        child = os.fork()
        if child == 0:
            signal.alarm(int(request["limit"]))
            try:
                line = json.dumps(work(job))
            except BaseException as error:
                traceback.print_exc()
                line = json.dumps({"job": job["id"], "failed": f"{type(error).__name__}: {error}"})
            data = (line + "\n").encode()
            while data:
                data = data[os.write(own, data) :]
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            line = json.dumps({"job": job["id"], "failed": f"the process ended with status {status}"})
            os.write(own, (line + "\n").encode())


if __name__ == "__main__":
    main()
