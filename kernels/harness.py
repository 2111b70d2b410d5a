"""Compiles and launches the probes, in the target's interpreter (Python 3.10 or newer) and by itself.

    python -I harness.py DESCRIPTOR < REQUEST       one JSON document comes back on that descriptor
    python -I harness.py compile sm90 FOLDER        by hand: compile every probe into a folder
    python -I harness.py launch FOLDER              by hand: launch what is in it, with the driver alone

REQUEST is ``{"do": "compile", "sm": 120, "formats": [name], "folder": path, "limit": seconds}`` or ``{"do": "launch",
"folder": path, "formats": [name], "timing": bool, "limit": seconds}``. Each probe runs in a process of its own: a
compiler that aborts and a kernel that faults are answers too. Nothing of the working directory, of PYTHONPATH, of the
variables that change what Triton does, or of its shared cache takes part.

A folder of compiled probes holds ``FORMAT.cubin`` and ``manifest.json``, which names each with its sha256. A card
without compiler or Triton is checked with these and this file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from qresolve_probes.probe import FORMATS, load_probe  # noqa: E402 - an isolated interpreter does not look here

SCHEMA = "qresolve.probes/1"
MOST_CUBIN = 16 * 1024 * 1024  # bytes; these are some ten kilobytes
AT_ONCE = 2
_NAME = re.compile(r"[a-z0-9_]+\.cubin")
_KEPT = 8


class BadManifest(Exception):
    """A folder of probes that is not what it says."""


# ---------------------------------------------------------------- one probe, in a child


def compile_one(request: dict[str, Any]) -> dict[str, Any]:
    """Compile one format; the cubin is written, and its facts come back."""
    from qresolve_probes.compiling import compile_probe  # noqa: PLC0415 - needs Triton

    code, facts = compile_probe(load_probe(request["format"]), request["sm"])
    path = Path(request["folder"]) / f"{request['format']}.cubin"
    path.write_bytes(code)
    return {"end": "compiled", "file": path.name, "sha256": hashlib.sha256(code).hexdigest(), **facts}


def launch_one(request: dict[str, Any]) -> dict[str, Any]:
    """Launch one format on one device."""
    sys.modules["triton"] = None  # type: ignore[assignment] # launching needs none, and importing it takes its time
    from qresolve_probes.driver import Driver, DriverError  # noqa: PLC0415
    from qresolve_probes.launching import launch_probe  # noqa: PLC0415

    facts = request["facts"]
    code = (Path(request["folder"]) / facts["file"]).read_bytes()
    if hashlib.sha256(code).hexdigest() != facts["sha256"]:
        return {"end": "refused", "why": f"{facts['file']} is not the file that the manifest names"}
    try:
        driver = Driver()
        with driver.context(request["device"]):
            return launch_probe(driver, load_probe(request["format"]), code, facts, timing=request["timing"])
    except DriverError as error:
        return {"end": "refused" if error.code == 209 else "failed", "why": str(error)}


def list_devices(_: dict[str, Any]) -> dict[str, Any]:
    """The devices of this host and the driver's file."""
    from qresolve_probes.driver import Driver, DriverError  # noqa: PLC0415

    try:
        driver = Driver()
        return {"devices": driver.devices(), "driver": {"path": driver.path, "cuda": driver.version()}}
    except DriverError as error:
        return {"devices": [], "why": str(error)}


CHILDREN = {"compile": compile_one, "launch": launch_one, "devices": list_devices}


def add_packages() -> None:
    """Make the environment's packages importable without running its sitecustomize or the code in its .pth files.

    A child runs without ``site``, which before Python 3.14 is also what finds a virtual environment. Lines of .pth
    files that name folders are followed, as ``site`` does.
    """
    import site  # noqa: PLC0415 - importing it runs nothing of it where -S is given

    here = Path(sys.executable).absolute().parent.parent
    settings = here / "pyvenv.cfg"
    folders = site.getsitepackages()  # the base's: without ``site`` the prefix is still its own
    if settings.is_file():
        text = settings.read_text(encoding="utf-8", errors="replace")
        if not re.search(r"(?im)^include-system-site-packages\s*=\s*true\s*$", text):
            folders = []
        # Debian's Python tells by these two whether it is asked for an environment's folders.
        sys.prefix = sys.exec_prefix = str(here)
        folders = site.getsitepackages([sys.prefix]) + folders
    for folder in map(Path, folders):
        if not folder.is_dir():
            continue
        sys.path.append(str(folder))
        for file in sorted(folder.glob("*.pth")):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                named = folder / line.strip()
                if line.strip() and not line.startswith(("#", "import ", "import\t")) and named.is_dir():
                    sys.path.append(str(named))


def end_with_parent() -> None:
    """Be killed when the harness ends, however it does: a child is a session of its own."""
    import ctypes  # noqa: PLC0415

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, linux/prctl.h


def be_child(kind: str, descriptor: int) -> None:
    """Answer one request; an exception is an answer."""
    end_with_parent()
    add_packages()
    request = json.load(sys.stdin)
    try:
        answer = CHILDREN[kind](request)
    except BaseException as error:  # noqa: BLE001 - whatever a compiler raises is the answer
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        telling = next((line for line in lines if re.search(r"\berror\b|not supported|fail", line, re.IGNORECASE)), "")
        why = telling or (lines[0] if lines else "")
        answer = {"end": "error", "why": f"{type(error).__name__}: {why[:300]}"}
    data = (json.dumps(answer) + "\n").encode()
    while data:
        data = data[os.write(descriptor, data) :]


# ---------------------------------------------------------------- the children


class Child:
    """A process of one request, its answer, and what it said."""

    def __init__(self, kind: str, request: dict[str, Any], limit: float) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="qresolve-probe-")
        folder = self._folder.name
        self._words = tempfile.TemporaryFile()
        self._reading, writing = os.pipe()
        with tempfile.TemporaryFile() as given:
            given.write(json.dumps(request).encode())
            given.seek(0)
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", str(HERE / "harness.py"), "--child", kind, str(writing)],
                stdin=given, stdout=self._words, stderr=self._words, cwd=folder, env=clean_variables(folder),
                pass_fds=(writing,), start_new_session=True,
            )  # fmt: skip
        os.close(writing)
        os.set_blocking(self._reading, False)
        self._end = time.monotonic() + limit
        self._data = b""
        self.answer: dict[str, Any] | None = None

    def poll(self) -> bool:
        """Whether it has ended; then ``answer`` is there."""
        late = time.monotonic() > self._end
        while True:
            try:
                part = os.read(self._reading, 65536)
            except BlockingIOError:
                part = None
            if not part:
                break
            self._data += part
        if part is None and not late:
            return False
        self._kill()
        self.answer = self._judged(late=late and part is None)
        os.close(self._reading)
        self._folder.cleanup()
        return True

    def _kill(self) -> None:
        """It, and whatever it started: they are a session of their own."""
        try:
            self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()

    def stop(self) -> None:
        """End it now."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()

    def _judged(self, *, late: bool) -> dict[str, Any]:
        try:
            answer = dict(json.loads(self._data))
        except (ValueError, TypeError):
            answer = {}
        said = self._said()
        if late and not answer:
            return {"end": "timed out", "why": "it did not answer in time", "said": said}
        if not answer:
            status = self._process.returncode
            name = signal.Signals(-status).name if status and status < 0 else f"status {status}"
            return {"end": "crashed", "why": name, "said": said}
        if answer.get("end") in ("error", "failed"):
            answer["said"] = said
        return answer

    def _said(self) -> str:
        self._words.seek(0)
        text = self._words.read(1 << 20).decode("utf-8", "replace")
        self._words.close()
        return "\n".join(text.strip().splitlines()[-_KEPT:])


def clean_variables(folder: str) -> dict[str, str]:
    """The variables of a child: what the loader and the driver need, nothing that changes what Triton does."""
    kept = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "HOME": folder,
        "TMPDIR": folder,
        "TRITON_CACHE_DIR": f"{folder}/triton",
        "TRITON_HOME": folder,
    }


def run_children(kind: str, requests: list[dict[str, Any]], limit: float, at_once: int) -> list[dict[str, Any]]:
    """The answers to requests of one kind, in their order."""
    waiting = list(enumerate(requests))
    running: list[tuple[int, Child]] = []
    answers: dict[int, dict[str, Any]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                number, request = waiting.pop(0)
                running.append((number, Child(kind, request, limit)))
            for number, child in list(running):
                if child.poll():
                    answers[number] = child.answer or {}
                    running.remove((number, child))
            time.sleep(0.02)
    finally:
        for _, child in running:
            child.stop()
    return [answers[number] for number in range(len(requests))]


# ---------------------------------------------------------------- the two jobs


def compile_all(request: dict[str, Any]) -> dict[str, Any]:
    """Compile formats for an arch into a folder with a manifest."""
    folder = Path(request["folder"]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    formats = list(request.get("formats") or FORMATS)
    jobs = [{"format": name, "sm": int(request["sm"]), "folder": str(folder)} for name in formats]
    answers = run_children("compile", jobs, float(request.get("limit", 20)), AT_ONCE)
    probes = dict(zip(formats, answers))
    document = {"schema": SCHEMA, "sm": int(request["sm"]), "probes": probes}
    beside = folder / ".manifest.json.new"
    beside.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    beside.replace(folder / "manifest.json")
    return document


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder; every cubin that it names is there and is the one it names.

    Raises:
        BadManifest: it is not.
    """
    try:
        document = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadManifest(f"{folder / 'manifest.json'} cannot be read: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA or not isinstance(document.get("sm"), int):
        raise BadManifest(f"{folder / 'manifest.json'} is no manifest of {SCHEMA}")
    probes = document.get("probes")
    if not isinstance(probes, dict) or not set(probes) <= set(FORMATS):
        raise BadManifest(f"{folder / 'manifest.json'} names probes that there are none of")
    for name, facts in probes.items():
        if not isinstance(facts, dict):
            raise BadManifest(f"{name}: no facts")
        if facts.get("end") == "compiled":
            _check_cubin(folder, name, facts)
    return document


def _check_cubin(folder: Path, name: str, facts: dict[str, Any]) -> None:
    wanted: dict[str, type] = {
        "file": str, "sha256": str, "kernel": str, "shared": int, "threads": int, "parameters": list, "hidden": int,
        "scratch": int, "tile": list,
    }  # fmt: skip
    for key, kind in wanted.items():
        if not isinstance(facts.get(key), kind) or isinstance(facts.get(key), bool):
            raise BadManifest(f"{name}: `{key}` is missing or no {kind.__name__}")
    if not _NAME.fullmatch(facts["file"]):
        raise BadManifest(f"{name}: `{facts['file']}` is no name of a cubin in the folder")
    if not (0 <= facts["hidden"] <= 8 and 0 <= facts["scratch"] <= 1 << 28 and 0 < facts["threads"] <= 1024):
        raise BadManifest(f"{name}: numbers that no kernel has")
    known = {*dict(load_probe(name).parameters), "M", "N", "K"}
    if set(facts["parameters"]) != known:
        raise BadManifest(f"{name}: parameters that its probe has not")
    path = folder / facts["file"]
    try:
        size = path.stat().st_size
        code = path.read_bytes() if size <= MOST_CUBIN else b""
    except OSError as error:
        raise BadManifest(f"{path} cannot be read: {error}") from error
    if hashlib.sha256(code).hexdigest() != facts["sha256"]:
        raise BadManifest(f"{path} is not the file that the manifest names")


def launch_all(request: dict[str, Any]) -> dict[str, Any]:
    """Launch the probes of a folder on every device of this host; those for another arch are refused by the driver."""
    folder = Path(request["folder"]).resolve()
    try:
        manifest = read_manifest(folder)
    except BadManifest as error:
        return {"schema": SCHEMA, "why": str(error), "devices": []}
    limit = float(request.get("limit", 60))
    (found,) = run_children("devices", [{}], limit, 1)
    devices = found.get("devices", [])
    formats = [
        name for name in request.get("formats") or FORMATS if manifest["probes"].get(name, {}).get("end") == "compiled"
    ]
    rows = []
    for device in devices:
        jobs = [
            {
                "format": name,
                "facts": manifest["probes"][name],
                "folder": str(folder),
                "device": device["index"],
                "timing": bool(request.get("timing", True)),
            }
            for name in formats
        ]
        # One at a time: a time is a time only where nothing else runs.
        answers = dict(zip(formats, run_children("launch", jobs, limit, 1)))
        control = answers.get("bf16", {}).get("milliseconds")
        for name, answer in answers.items():
            if control and answer.get("milliseconds"):
                answer["ratio"] = control / answer["milliseconds"]
            answers[name] = answer
        rows.append({**device, "probes": answers})
    document = {"schema": SCHEMA, "sm": manifest["sm"], "devices": rows, "driver": found.get("driver")}
    if not devices:
        document["why"] = found.get("why") or found.get("end") or "the driver shows no device"
    return document


JOBS = {"compile": compile_all, "launch": launch_all}


def show(document: dict[str, Any]) -> None:
    """A few lines for a person."""
    if "probes" in document:
        for name, facts in document["probes"].items():
            print(f"{name:12} {facts['end']:10} {facts.get('why', facts.get('sha256', ''))[:90]}")
        return
    if document.get("why"):
        print(document["why"])
    for device in document["devices"]:
        print(f"{device['name']} (sm{device['sm']})")
        for name, facts in device["probes"].items():
            ratio = f"{facts['ratio']:.2f} times as fast as bf16" if "ratio" in facts else ""
            words = (
                f"numbers {facts['numbers']} ({facts['worst']:.2g} of the bound), spoiled {facts['spoiled']}"
                if "numbers" in facts
                else facts.get("why", "")
            )
            print(f"  {name:12} {facts.get('end', ''):10} {words:56} {ratio}")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Answer a request, or work by hand."""
    arguments = sys.argv[1:]
    if arguments[:1] != ["--child"]:
        signal.signal(signal.SIGTERM, _interrupt)  # children and what they started are then ended on the way out
    if arguments[:1] == ["--child"]:
        be_child(arguments[1], int(arguments[2]))
        return 0
    if len(arguments) == 1 and arguments[0].isdigit():
        request = json.load(sys.stdin)
        data = (json.dumps(JOBS[request["do"]](request)) + "\n").encode()
        while data:
            data = data[os.write(int(arguments[0]), data) :]
        return 0
    if len(arguments) == 3 and arguments[0] == "compile" and re.fullmatch(r"sm\d{2,3}", arguments[1]):
        document = compile_all({"sm": int(arguments[1][2:]), "folder": arguments[2], "limit": 60})
        show(document)
        return 0
    if len(arguments) == 2 and arguments[0] == "launch":
        document = launch_all({"folder": arguments[1]})
        show(document)
        good = [facts for device in document["devices"] for facts in device["probes"].values()]
        return 0 if good and all(one.get("numbers") == "agree" for one in good) else 1
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main())
