"""The rules that every module keeps: what it may import, how long it is, how its records are made."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

import qresolve

PACKAGE = Path(qresolve.__file__).parent
FILES = {
    path.relative_to(PACKAGE.parent).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if "_data" not in path.parts
}
MOST_LINES = 420

# Modules at the edge: they read files, start processes, reach the network or ask the clock. All others are pure.
EDGE = (
    "qresolve.__main__",
    "qresolve.audit.ask_selectors",
    "qresolve.audit.progress",
    "qresolve.audit.release_files",
    "qresolve.audit.run_inside",
    "qresolve.cli",
    "qresolve.closure",
    "qresolve.data",
    "qresolve.engine_run",
    "qresolve.http",
    "qresolve.inside",
    "qresolve.inspect.subject",
    "qresolve.install",
    "qresolve.lock.file",
    "qresolve.locking_edges",
    "qresolve.target.detect",
    "qresolve.verify",
    "qresolve.wheelhouse",
    "qresolve.wheels",
)
IMPURE = {
    "asyncio", "filelock", "getpass", "glob", "httpx", "io", "multiprocessing", "os", "platform", "requests", "select",
    "shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading", "time", "urllib", "uv", "pip",
}  # fmt: skip
ENGINES = {
    "torch",
    "triton",
    "vllm",
    "sglang",
    "flashinfer",
    "humming",
    "transformers",
    "tensorrt_llm",
    "pynvml",
    "cuda",
}
MAY_ASK_THE_DRIVER = {"qresolve.target.detect": {"pynvml"}}

# Records that hold a cache, a resource or a state, and say so. Everything else is frozen.
NOT_FROZEN = {
    "qresolve.facts.FactTable": "derived facts are remembered",
    "qresolve.question.Question": "engines and benches are laid out on demand",
    "qresolve.ledger.Ledger": "decisions are added",
    "qresolve.resolution.Core": "contexts are added",
    "qresolve.resolution._Ways": "ways are found on demand",
}
# Small tree nodes and pairs that are written in one place and read best by position.
BY_POSITION = {
    "qresolve.completions.Completion",
    "qresolve.gates.All",
    "qresolve.gates.AnyOf",
    "qresolve.gates.Compare",
    "qresolve.gates.Named",
    "qresolve.gates.Not",
    "qresolve.resolution._Candidate",
    "qresolve.resolution._Requirement",
    "qresolve.resolution._Ways",
    "qresolve.resolution.Core",
    "qresolve.ledger.Ledger",
    "qresolve.facts.FactTable",
    "qresolve.question.Question",
    "qresolve.ways.Bench",
}

# Quoted numbers that no vendor can change: examples in hints and help, and words of standards.
VERSION = re.compile(r"(?<![\w.])\d+\.\d+(?:\.\d+)?(?![\w.])")
VERSIONS_ALLOWED = {
    "qresolve": {"0.1.0"},  # our own
    "qresolve.lock.document": {"1.0"},  # lock-version of PEP 751
    "qresolve.closure.failure": {"2.0"},  # a glibc older than any wheel asks for, to see whether glibc is to blame
    "qresolve.closure.request": {"3.12", "2.35"},  # what a caller that names no target gets
    "qresolve.target.platforms": {"3.12"},  # an example in a hint
}
WITHOUT_POSTPONED_ANNOTATIONS = {"qresolve"}


def tree(name: str) -> ast.Module:
    return ast.parse(FILES[name].read_text(encoding="utf-8"))


def imported(name: str) -> set[str]:
    """Top names of all that a module imports, inside functions too; what is only for type checking does not count."""
    found: set[str] = set()

    def walk(node: ast.AST) -> None:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
        for child in ast.iter_child_nodes(node):
            walk(child)

    walk(tree(name))
    return found


def runs_inside(name: str) -> bool:
    """Whether the file is a script that runs in the target's interpreter, and that nothing here imports."""
    return ".inside.scripts." in name or name == "qresolve.install.describe_interpreter"


def is_edge(name: str) -> bool:
    return any(name == edge or name.startswith(f"{edge}.") for edge in EDGE)


@pytest.mark.parametrize("name", FILES)
def test_no_module_is_long(name: str) -> None:
    assert len(FILES[name].read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("name", [name for name in FILES if not is_edge(name) and not runs_inside(name)])
def test_pure_modules_reach_nothing(name: str) -> None:
    assert not imported(name) & IMPURE


@pytest.mark.parametrize("name", [name for name in FILES if not runs_inside(name)])
def test_no_module_imports_an_engine(name: str) -> None:
    assert not imported(name) & ENGINES - MAY_ASK_THE_DRIVER.get(name, set())


@pytest.mark.parametrize("name", FILES)
def test_what_imports_torch_or_triton_stands_in_kernels(name: str) -> None:
    assert not imported(name) & {"torch", "triton"}


@pytest.mark.parametrize("name", FILES)
def test_every_module_has_a_docstring_and_postponed_annotations(name: str) -> None:
    module = tree(name)
    assert ast.get_docstring(module)
    body = [node for node in module.body if not isinstance(node, ast.Expr)]
    if body and name not in WITHOUT_POSTPONED_ANNOTATIONS and not runs_inside(name):
        first = body[0]
        assert isinstance(first, ast.ImportFrom)
        assert first.module == "__future__"


def test_the_lists_of_exceptions_name_what_there_is() -> None:
    classes = {
        f"{name}.{node.name}" for name in FILES for node in ast.walk(tree(name)) if isinstance(node, ast.ClassDef)
    }
    assert set(NOT_FROZEN) | BY_POSITION <= classes
    assert set(VERSIONS_ALLOWED) | WITHOUT_POSTPONED_ANNOTATIONS <= set(FILES)
    assert all(any(name == edge or name.startswith(f"{edge}.") for name in FILES) for edge in EDGE)


def dataclasses_of(name: str) -> list[tuple[str, set[str]]]:
    """Every dataclass with the flags that its decorator sets."""
    found = []
    for node in ast.walk(tree(name)):
        if not isinstance(node, ast.ClassDef):
            continue
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if (isinstance(called, ast.Name) and called.id == "dataclass") or (
                isinstance(called, ast.Attribute) and called.attr == "dataclass"
            ):
                keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
                flags = {
                    keyword.arg
                    for keyword in keywords
                    if keyword.arg and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
                }
                found.append((f"{name}.{node.name}", flags))
    return found


@pytest.mark.parametrize("name", [name for name in FILES if dataclasses_of(name)])
def test_records_are_frozen_slotted_and_made_by_keyword(name: str) -> None:
    for record, flags in dataclasses_of(name):
        wanted = {"slots"}
        if record not in NOT_FROZEN:
            wanted.add("frozen")
        if record not in BY_POSITION:
            wanted.add("kw_only")
        assert wanted <= flags, record


def docstrings(module: ast.Module) -> set[tuple[int, int]]:
    return {
        (line, 0)
        for node in ast.walk(module)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def version_literals(text: str) -> list[str]:
    """Version numbers that are the whole of a string, or a number with a point: values, not prose."""
    prose = {line for line, _ in docstrings(ast.parse(text))}
    found = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.STRING and token.start[0] not in prose:
            value = token.string.lstrip("rbfuRBFU").strip("'\"")
            if VERSION.fullmatch(value.lstrip("<>=~!^ ")):
                found.append(value)
    return found


@pytest.mark.parametrize("name", FILES)
def test_no_version_of_a_vendor_stands_in_code(name: str) -> None:
    found = version_literals(FILES[name].read_text(encoding="utf-8"))
    assert not set(found) - VERSIONS_ALLOWED.get(name, set())


def test_the_check_of_versions_can_fail() -> None:
    assert version_literals('"""12.8"""\nFLOOR = ">=12.8"  # 12.9\nOTHER = "13.0.1"\nWORD = "sm_120 12.8 x"\n') == [
        ">=12.8",
        "13.0.1",
    ]


@pytest.mark.parametrize("name", FILES)
def test_no_vague_names(name: str) -> None:
    assert not re.search(r"(^|[._])(utils?|helpers?|misc|common|base)([._]|$)", name)
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.ClassDef):
            assert not re.search(r"(Manager|Helper|Util|Handler)$", node.name), node.name


def loaded_by(code: str) -> set[str]:
    """Top names of the modules that are loaded once ``code`` ran in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint('\\n' + ' '.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=PACKAGE.parent,
    )
    return {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}


def test_scripts_that_run_inside_another_interpreter_are_imported_by_nothing() -> None:
    for name in FILES:
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.ImportFrom) and node.module:
                assert not any(runs_inside(f"{node.module}.{alias.name}") for alias in node.names) or runs_inside(name)
                assert not runs_inside(node.module) or runs_inside(name)


def test_importing_everything_imports_no_engine() -> None:
    names = [name for name in FILES if not name.endswith("__main__") and not runs_inside(name)]
    loaded = loaded_by("\n".join(f"import {name}" for name in names))
    assert "qresolve" in loaded
    assert not loaded & ENGINES


def test_the_version_is_told_without_the_heavy_ones() -> None:
    loaded = loaded_by("from qresolve.cli.main import main\nassert main(['--version']) == 0")
    assert "qresolve" in loaded
    assert not loaded & {"rich", "httpx", "resolvelib", "packaging", "elftools", "tomli", "pip", "jsonschema"}


def test_explaining_does_not_load_what_reaches_the_network() -> None:
    loaded = loaded_by(
        "from qresolve.cli.main import main\nassert main(['explain', '--gpu', 'sm120', '--formats', 'nvfp4']) == 0"
    )
    assert not loaded & {"httpx", "pip", "uv", "elftools", "ssl"}
