"""Asks vLLM's own selectors which kernel they pick, for GPUs that are not there.

Runs in the interpreter of an environment with vLLM, by itself: it imports nothing of qresolve, reads one JSON document
on stdin and writes one JSON object a line on its standard output; what vLLM prints goes to stderr.

In:  ``{"driver": path | null, "limit": seconds, "jobs": [{"id", "sm", "phases": [{"hide": [module], "stub": [module],
     "environ": {name: value}, "points": [{"scheme", "quantizer", "settings": {fact: value}}]}]}]}``
Out: ``{"job": id, "release": version, "answers": [[{"picked": text, "by": {"class": name, "files": {path: sha256}}} |
     {"refused": text} | {"error": text}]]}``; the files are those of vLLM that the answer went through, the class's
     own among them, below the folder of its packages

Each job has a process of its own, forked once torch is loaded: vLLM fixes some answers for the capability that it
sees when it is imported (``CUTLASS_BLOCK_FP8_SUPPORTED``, the b12x modules). The phases of a job follow each other in
it, with the caches of vLLM emptied. ``driver`` is a library that stands in for libcuda.so.1, which vLLM's extensions
want to find and never call here.
"""

# ruff: noqa: ARG003, BLE001, D102, D103, PTH100, PTH118, PTH120, PTH123, SLF001 - it stands in for vLLM's own classes, and
# whatever goes wrong is an answer
from __future__ import annotations

import ctypes
import hashlib
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import os
import signal
import sys
import traceback
import types
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

LINEAR = "vllm.model_executor.kernels.linear"
CACHED = (
    "vllm.utils.flashinfer",
    "vllm.utils.import_utils",
    "vllm.utils.deep_gemm",
    "vllm.platforms.cuda",
    "vllm._custom_ops",
)


def module(name: str) -> Any:
    return importlib.import_module(name)


# ---------------------------------------------------------------- a GPU, packages, the cache of answers


def put_gpu(sm: int) -> None:
    """Make vLLM's platform a CUDA GPU of that capability."""
    platforms = module("vllm.platforms")
    cuda = module("vllm.platforms.cuda")
    capability = module("vllm.platforms.interface").DeviceCapability(sm // 10, sm % 10)

    class Gpu(cuda.NonNvmlCudaPlatform):  # type: ignore[misc, name-defined]
        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> Any:
            return capability

        @classmethod
        def has_device_capability(cls, wanted: Any, device_id: int = 0) -> bool:
            return bool(sm >= (wanted if isinstance(wanted, int) else wanted[0] * 10 + wanted[1]))

        @classmethod
        def num_compute_units(cls, device_id: int = 0) -> int:
            return 1

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return f"no GPU, taken for sm{sm}"

    platforms._current_platform = Gpu()
    torch = module("torch")
    torch.cuda.get_device_capability = lambda *_: (sm // 10, sm % 10)
    empty = torch.empty

    def empty_somewhere(*arguments: Any, **named: Any) -> Any:
        if str(named.get("device", "")).startswith("cuda"):
            named["device"] = "meta"  # a module that makes its workspace when it is imported
        return empty(*arguments, **named)

    torch.empty = empty_somewhere


FINDERS = list(sys.meta_path)
AWAY: dict[str, Any] = {}
STUBS: list[str] = []


def put_packages(hide: list[str], stub: list[str], sm: int) -> None:
    """Make modules unfindable, as if they were not installed, and put empty ones where packages would be.

    ``is_supported`` of the empty ones holds on sm12x, which is what b12x says of itself. What an earlier phase did is
    undone first.
    """

    class Without:
        def __init__(self, finder: Any) -> None:
            self._finder = finder

        def __getattr__(self, name: str) -> Any:
            return getattr(self._finder, name)

        def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
            return None if name.partition(".")[0] in hide else self._finder.find_spec(name, path, target)

    for name in STUBS:
        sys.modules.pop(name, None)
    STUBS.clear()
    sys.modules.update(AWAY)
    AWAY.clear()
    AWAY.update({name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in hide})
    sys.meta_path[:] = [Without(finder) for finder in FINDERS] if hide else FINDERS
    for name in stub:
        made = types.ModuleType(name)
        made.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        made.__path__ = []
        made.is_supported = lambda *_, **__: sm // 10 == 12  # type: ignore[attr-defined]
        sys.modules[name] = made
        STUBS.append(name)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, made)


def clear_caches() -> None:
    """Forget what vLLM remembers of packages, variables and the GPU."""
    for name in CACHED:
        for value in list(vars(sys.modules[name]).values()) if name in sys.modules else ():
            clear = getattr(value, "cache_clear", None)
            if callable(clear):
                clear()
    flashinfer: Any = sys.modules.get("vllm.utils.flashinfer")
    if flashinfer is not None and hasattr(flashinfer, "has_nvidia_artifactory"):
        # A request to a server: taken to be reachable, whatever this machine reaches.
        flashinfer.has_nvidia_artifactory = lambda: True
    environment = sys.modules.get("vllm.envs")
    for name in ("disable_envs_cache",):
        if environment is not None and hasattr(environment, name):
            getattr(environment, name)()


class Model:
    """A model's configuration of which nothing is known but that it is an ordinary one."""

    model_type = "generic"

    @property
    def hf_text_config(self) -> Any:
        return self

    @property
    def hf_config(self) -> Any:
        return self

    @property
    def dtype(self) -> Any:
        return module("torch").bfloat16

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


CONFIGS: dict[tuple[tuple[str, str], ...], Any] = {}


def configuration(variables: dict[str, str]) -> Any:
    """VLLM's configuration under those variables, made once: it takes its time."""
    known = tuple(sorted(variables.items()))
    if known not in CONFIGS:
        CONFIGS[known] = module("vllm.config").VllmConfig()
        object.__setattr__(CONFIGS[known], "model_config", Model())
    return CONFIGS[known]


@contextmanager
def configured(settings: dict[str, Any]) -> Iterator[None]:
    """VLLM's configuration and variables with the settings of one point, and a model that says nothing special."""
    variables = {name[4:]: str(value) for name, value in settings.items() if name.startswith("env.")}
    kept = dict(os.environ)
    os.environ.update(variables)
    clear_caches()
    config = configuration(variables)
    kernels = config.kernel_config
    before: dict[str, Any] = {}
    try:
        for name, value in settings.items():
            if not name.startswith("config.kernel_config."):
                continue
            field, _, quantization = name[len("config.kernel_config.") :].partition(".")
            if not hasattr(kernels, field):
                raise AttributeError(f"this release has no {name}")
            before.setdefault(field, getattr(kernels, field))
            # As the command line gives it: checked, and with the spellings that vLLM takes for the same.
            whole = {**(getattr(kernels, field) or {}), quantization: value} if quantization else value
            wanted = type(kernels)(**{field: whole})
            setattr(kernels, field, getattr(wanted, field))
        with module("vllm.config").set_current_vllm_config(config):
            yield
    finally:
        for field, value in before.items():
            setattr(kernels, field, value)
        os.environ.clear()
        os.environ.update(kept)


REFUSALS = (ValueError, NotImplementedError)


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"


def questions() -> Any:
    """The questions, from the file beside this one: an isolated interpreter does not look there."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vllm_questions.py")
    spec = importlib.util.spec_from_file_location("vllm_questions", path)
    loaded = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(loaded)  # type: ignore[union-attr]
    return loaded


DIGESTS: dict[str, str] = {}


def digest(path: str) -> str:
    if path not in DIGESTS:
        with open(path, "rb") as file:
            DIGESTS[path] = hashlib.sha256(file.read()).hexdigest()
    return DIGESTS[path]


def went_through(asked: Any) -> dict[str, Any]:
    """The class that was picked, and the files that decided, with their digests."""
    kind = asked.ANSWERED[-1] if asked.ANSWERED else None
    modules = [*asked.CONSULTED, *([sys.modules[kind.__module__]] if kind is not None else [])]
    root = os.path.dirname(os.path.dirname(os.path.abspath(module("vllm").__file__)))
    found = {}
    for one in modules:
        path = getattr(one, "__file__", None)
        if path and one.__name__.partition(".")[0] == "vllm":
            found[os.path.relpath(path, root)] = digest(path)
    return {
        "class": "" if kind is None else f"{kind.__module__}.{kind.__qualname__}",
        "files": dict(sorted(found.items())),
    }


def answer(point: dict[str, Any], asked: Any) -> dict[str, Any]:
    """What vLLM picks for one point, what it says when it refuses, or why it could not be asked."""
    ask = asked.ASKS.get(f"{point['scheme']} {point['quantizer']}") or asked.ASKS.get(point["scheme"])
    if ask is None:
        return {"error": "this script does not know how to ask for the scheme"}
    asked.CONSULTED.clear()
    asked.ANSWERED.clear()
    try:
        with configured(point["settings"]):
            picked = ask(point["settings"])
        return {"picked": picked, "by": went_through(asked)}
    except REFUSALS as error:
        return {"refused": first_line(error)}
    except Exception as error:
        traceback.print_exc()
        return {"error": first_line(error)}


def put_variables(values: dict[str, str], but: dict[str, str]) -> None:
    """The environment that this process was given, with ``values``."""
    os.environ.clear()
    os.environ.update(but)
    os.environ.update(values)


def work(job: dict[str, Any]) -> dict[str, Any]:
    """Answer all points of one job; runs in a process of its own."""
    given = dict(os.environ)
    answers = []
    asked = questions()
    for number, phase in enumerate(job["phases"]):
        put_variables(phase["environ"], given)
        put_packages(phase["hide"], phase["stub"], job["sm"])
        if number == 0:
            put_gpu(job["sm"])
            module(LINEAR)
        CONFIGS.clear()
        answers.append([answer(point, asked) for point in phase["points"]])
    return {"job": job["id"], "release": importlib.metadata.version("vllm"), "answers": answers}


def share_imports(but: set[str]) -> None:
    """Load here what vLLM loads of other packages, so that the jobs need not: asked of a process that loads vLLM."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            put_gpu(80)
            module(LINEAR)
            names = [name for name in list(sys.modules) if name.partition(".")[0] not in but]
            with os.fdopen(writing, "w") as pipe:
                json.dump(names, pipe)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    for name in json.loads(text or "[]"):
        with suppress(Exception):
            module(name)


def main() -> None:
    """Load what all jobs share, then fork one process a job."""
    # A descriptor of its own where the caller made one; stdout may have been written to before this line.
    own = int(sys.argv[1]) if len(sys.argv) > 1 else os.dup(1)
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    # Else vLLM takes Triton for absent, because no driver is active.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if request["driver"]:
        ctypes.CDLL(request["driver"], mode=ctypes.RTLD_GLOBAL)
    phases = [phase for job in request["jobs"] for phase in job["phases"]]
    hidden = {name.partition(".")[0] for phase in phases for name in (*phase["hide"], *phase["stub"])}
    # One job alone would load everything twice.
    if len(request["jobs"]) > 1:
        share_imports(hidden | {"vllm", "flashinfer"})
    for job in request["jobs"]:
        child = os.fork()
        if child == 0:
            signal.alarm(int(request["limit"]))
            try:
                line = json.dumps(work(job))
            except BaseException as error:
                line = json.dumps({"job": job["id"], "failed": first_line(error)})
            data = (line + "\n").encode()
            while data:
                data = data[os.write(own, data) :]
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            ended = os.waitstatus_to_exitcode(status)
            how = f"was ended by {signal.Signals(-ended).name}" if ended < 0 else f"ended with status {ended}"
            line = json.dumps({"job": job["id"], "failed": f"the process {how}"})
            os.write(own, (line + "\n").encode())


if __name__ == "__main__":
    main()
