"""The harness: isolation, ends of every kind, a manifest that cannot be tampered with."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.kernels.probes_support import HARNESS

TRITON = """
import os, sys
print("noise on stdout")
os.write(1, b'{{"end": "compiled", "file": "forged.cubin"}}\\n')
{body}
def jit(function):
    function.arg_names = list(function.__code__.co_varnames[: function.__code__.co_argcount])
    return function
__version__ = "0.fake"
class _Language:
    def __getattr__(self, name):
        return None
class _Built:
    def __init__(self, code):
        kinds = [".param .u64 x"] * 6 + [".param .u32 y"] * 3
        self.asm = {{"cubin": code, "ptx": ".entry kernel(" + ", ".join(kinds) + "\\n) {{"}}
        self.metadata = type("M", (), {{"name": "kernel", "shared": 0, "num_warps": 4, "global_scratch_size": 0}})()
def compile(source, target, options):
    {compile}
"""
COMPILER = """
class GPUTarget:
    def __init__(self, *values):
        self.values = values
class ASTSource:
    def __init__(self, **named):
        self.named = named
"""
NVIDIA = """
import sys
def get_ptxas(arch):
    class Found:
        path = sys.executable
    return Found()
"""


def fake_python(folder: Path, *, body: str = "", compile_: str = 'return _Built(b"cubin")') -> Path:
    """An environment whose Triton is a few lines."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next(folder.glob("lib/python3*/site-packages"))
    files = {
        "triton/__init__.py": TRITON.format(body=body, compile=compile_),
        "triton/language.py": "constexpr = None\nfloat32 = None\n",
        "triton/compiler.py": COMPILER,
        "triton/backends/__init__.py": "",
        "triton/backends/compiler.py": COMPILER,
        "triton/backends/nvidia/__init__.py": "",
        "triton/backends/nvidia/compiler.py": NVIDIA,
    }
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    return folder / "bin" / "python"


def ask(python: Path, request: dict[str, Any], *, cwd: Path | None = None, **variables: str) -> dict[str, Any]:
    reading, writing = os.pipe()
    done = subprocess.run(
        [str(python), "-I", str(HARNESS), str(writing)],
        input=json.dumps(request), text=True, pass_fds=(writing,), cwd=cwd, check=False, capture_output=True,
        env={**os.environ, **variables}, timeout=120,
    )  # fmt: skip
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    assert text, done.stderr
    return dict(json.loads(text))


def compiled(python: Path, folder: Path, *, limit: float = 20, **named: Any) -> dict[str, Any]:
    request = {"do": "compile", "sm": 120, "formats": ["fp8"], "folder": str(folder), "limit": limit}
    return dict(ask(python, request, **named)["probes"]["fp8"])


def test_what_a_compiler_prints_is_not_taken_for_an_answer(tmp_path: Path) -> None:
    found = compiled(fake_python(tmp_path / "env"), tmp_path / "out")
    assert found["end"] == "compiled"
    assert found["file"] == "fp8.cubin"
    assert (tmp_path / "out" / "fp8.cubin").read_bytes() == b"cubin"
    assert found["triton"] == "0.fake"
    assert found["parameters"] == ["a", "b", "scale_a", "scale_b", "c", "M", "N", "K"]
    assert found["hidden"] == 1


def test_neither_folder_nor_variables_take_part(tmp_path: Path) -> None:
    seen = "open(os.path.join(os.path.dirname(os.path.dirname(__file__)), 'seen'), 'w').write(repr(sorted(os.environ)))"
    python = fake_python(tmp_path / "env", body=f"import os\n{seen}")
    here = tmp_path / "here"
    (here / "triton").mkdir(parents=True)
    (here / "triton" / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    (here / "sitecustomize.py").write_text("raise SystemExit('customized')\n")
    packages = next((tmp_path / "env").glob("lib/python3*/site-packages"))
    (packages / "sitecustomize.py").write_text(
        f"import os\nif '--child' in __import__('sys').argv: open({str(tmp_path / 'customized')!r}, 'w').close()\n"
    )
    record = f"import os, sys; open({str(tmp_path / 'pth')!r}, 'a').write(' '.join(sys.orig_argv))"
    (packages / "more.pth").write_text(f"{record}\n")
    (here / "qresolve_probes.py").write_text("raise SystemExit('shadowed')\n")
    found = compiled(
        python, tmp_path / "out", cwd=here, PYTHONPATH=str(here), TRITON_INTERPRET="1", TRITON_PTXAS_PATH="/nowhere",
        TRITON_CACHE_DIR=str(tmp_path / "cache"), PYTHONSTARTUP=str(here / "sitecustomize.py"),
    )  # fmt: skip
    assert found["end"] == "compiled"
    site = next((tmp_path / "env").glob("lib/python3*/site-packages"))
    names = (site / "seen").read_text()
    assert "TRITON_INTERPRET" not in names
    assert "TRITON_PTXAS_PATH" not in names
    assert "PYTHONPATH" not in names
    assert not (tmp_path / "cache").exists()
    assert not (tmp_path / "customized").exists()
    assert "--child" not in (tmp_path / "pth").read_text()


@pytest.mark.parametrize("shared", [False, True])
def test_packages_are_found_where_the_base_python_is_debians(shared: bool, tmp_path: Path) -> None:
    """Debian's site names dist-packages unless the interpreter's prefix says that this is an environment."""
    for folder in ("env/bin", "env/lib/site-packages", "env/lib/dist-packages", "base/lib/dist-packages"):
        (tmp_path / folder).mkdir(parents=True)
    python = tmp_path / "env" / "bin" / "python"
    python.symlink_to(getattr(sys, "_base_executable", sys.executable))
    (tmp_path / "env" / "pyvenv.cfg").write_text(
        f"home = {python.parent}\ninclude-system-site-packages = {str(shared).lower()}\n"
    )
    code = f"""
import os, site, sys
def getsitepackages(prefixes=None):
    kind = "dist-packages" if sys.prefix == sys.base_prefix else "site-packages"
    return [os.path.join(prefix, "lib", kind) for prefix in prefixes or [{str(tmp_path / "base")!r}]]
site.getsitepackages = getsitepackages
sys.path.insert(0, {str(HARNESS.parent)!r})
import harness
sys.executable, sys.prefix, before = {str(python)!r}, sys.base_prefix, len(sys.path)
harness.add_packages()
print(*sys.path[before:], sep="\\n")
"""
    found = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    expected = [str(tmp_path / "env" / "lib" / "site-packages")]
    assert found.stdout.split() == expected + [str(tmp_path / "base" / "lib" / "dist-packages")] * shared


@pytest.mark.parametrize(
    ("compile_", "end", "why"),
    [
        ("os.abort()", "crashed", "SIGABRT"),
        ("raise RuntimeError('PassManager::run failed')", "error", "PassManager::run failed"),
        ("os._exit(7)", "crashed", "status 7"),
        ("return None", "error", "NoneType"),
    ],
)
def test_a_compiler_that_ends_badly(tmp_path: Path, compile_: str, end: str, why: str) -> None:
    found = compiled(fake_python(tmp_path / "env", compile_=compile_), tmp_path / "out")
    assert found["end"] == end
    assert why in found["why"]
    assert not (tmp_path / "out" / "fp8.cubin").exists()


def test_a_compiler_that_never_ends_is_ended_with_what_it_started(tmp_path: Path) -> None:
    started = tmp_path / "started"
    body = f"import subprocess; open({str(started)!r}, 'w').write(str(subprocess.Popen(['sleep', '600']).pid))"
    begun = time.monotonic()
    found = compiled(fake_python(tmp_path / "env", compile_=f"{body}\n    while True: pass"), tmp_path / "out", limit=3)
    assert found["end"] == "timed out"
    assert time.monotonic() - begun < 60
    assert not is_alive(int(started.read_text()))


def is_alive(process: int) -> bool:
    """Whether a process runs; one that ended and that nobody asked about yet does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_environment_without_triton_says_so(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    found = compiled(tmp_path / "env" / "bin" / "python", tmp_path / "out")
    assert found["end"] == "error"
    assert "triton" in found["why"]


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    compiled(fake_python(tmp_path / "env"), tmp_path / "out")
    return tmp_path / "out"


def launch(folder: Path) -> dict[str, Any]:
    return ask(Path(sys.executable), {"do": "launch", "folder": str(folder), "timing": False, "limit": 20})


def test_without_a_driver_nothing_is_launched(exported: Path) -> None:
    found = launch(exported)
    if found["devices"]:
        pytest.skip("this host has a GPU")
    assert "libcuda.so.1" in found["why"]


def edit(folder: Path, **changes: Any) -> None:
    document = json.loads((folder / "manifest.json").read_text())
    document["probes"]["fp8"] |= changes
    (folder / "manifest.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sha256": "0" * 64}, "not the file"),
        ({"file": "../fp8.cubin"}, "no name of a cubin"),
        ({"file": "/etc/passwd"}, "no name of a cubin"),
        ({"threads": 0}, "no kernel has"),
        ({"hidden": 10**6}, "no kernel has"),
        ({"shared": "many"}, "shared"),
        ({"parameters": ["a"]}, "parameters"),
        ({"kernel": None}, "kernel"),
    ],
)
def test_a_tampered_manifest_is_refused(exported: Path, changes: dict[str, Any], said: str) -> None:
    edit(exported, **changes)
    found = launch(exported)
    assert found["devices"] == []
    assert said in found["why"]


def test_another_cubin_under_the_same_name_is_refused(exported: Path) -> None:
    (exported / "fp8.cubin").write_bytes(b"other")
    assert "not the file" in launch(exported)["why"]
    digest = hashlib.sha256(b"other").hexdigest()
    edit(exported, sha256=digest)
    assert "not the file" not in launch(exported)["why"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "qresolve.probes/1", "sm": 120, "probes": {"x": {}}}'])
def test_a_manifest_that_is_none_is_refused(exported: Path, text: str) -> None:
    (exported / "manifest.json").write_text(text)
    assert "manifest" in launch(exported)["why"]


def test_by_hand_it_shows_lines_and_says_how_to_use_it(tmp_path: Path) -> None:
    python = fake_python(tmp_path / "env")
    done = subprocess.run(
        [str(python), "-I", str(HARNESS), "compile", "sm120", str(tmp_path / "out")],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert sum("compiled" in line for line in done.stdout.splitlines()) >= 9
    usage = subprocess.run([str(python), "-I", str(HARNESS)], capture_output=True, text=True, check=False, timeout=60)
    assert usage.returncode == 2
    assert "harness.py launch FOLDER" in usage.stdout


def test_half_an_answer_does_not_save_a_child_from_its_limit(tmp_path: Path) -> None:
    started = tmp_path / "started"
    half = "os.write(int(sys.argv[3]), b'{half')"
    body = f"{half}\n    open({str(started)!r}, 'w').write(str(os.getpid()))\n    while True: pass"
    found = compiled(fake_python(tmp_path / "env", compile_=body), tmp_path / "out", limit=3)
    assert found["end"] == "timed out"
    assert not is_alive(int(started.read_text()))


def test_children_end_with_the_harness(tmp_path: Path) -> None:
    started = tmp_path / "started"
    body = f"open({str(started)!r}, 'w').write(str(os.getpid()))\n    while True: pass"
    python = fake_python(tmp_path / "env", compile_=body)
    reading, writing = os.pipe()
    request = {"do": "compile", "sm": 120, "formats": ["fp8"], "folder": str(tmp_path / "out"), "limit": 120}
    harness = subprocess.Popen(
        [str(python), "-I", str(HARNESS), str(writing)], stdin=subprocess.PIPE, pass_fds=(writing,),
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(writing)
    assert harness.stdin is not None
    harness.stdin.write(json.dumps(request).encode())
    harness.stdin.close()
    end = time.monotonic() + 60
    while not (started.exists() and started.read_text()) and time.monotonic() < end:
        pass
    harness.kill()
    harness.wait()
    os.close(reading)
    end = time.monotonic() + 20
    while is_alive(int(started.read_text())) and time.monotonic() < end:
        pass
    assert not is_alive(int(started.read_text()))
