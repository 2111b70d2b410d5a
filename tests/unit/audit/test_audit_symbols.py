"""Finding symbols in sources, and what a digest of one is sensitive to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.audit.symbols import defines, digest_text, find_digest, find_lines, find_symbol

PYTHON = '''"""A module."""
LIMIT: int = 3
_ORDER = {
    "cuda": [1, 2],
}


@decorated
class Kernel:
    name = "kernel"

    @classmethod
    def is_supported(cls):
        # a remark
        return True


def choose(config):
    def inner():
        return 1

    return inner()
'''

CUDA = """// choose(int) is declared elsewhere
bool choose(int arch);

bool supports(int arch) {
  if (arch >= 90) {
    return choose(arch);
  }
  return false;
}
"""

CMAKE = """cuda_archs(ARCHS "12.0f" "${CUDA_ARCHS}")
if(${CMAKE_CUDA_COMPILER_VERSION} VERSION_GREATER_EQUAL 12.8)
  list(APPEND FLAGS "-DENABLE_IT=1")
  message(STATUS "building")
endif()
"""


@pytest.mark.parametrize(
    ("symbol", "lines"),
    [
        ("LIMIT", "2-2"),
        ("_ORDER", "3-5"),
        ("Kernel", "8-15"),
        ("Kernel.is_supported", "12-15"),
        ("is_supported", "12-15"),
        ("choose", "18-22"),
        ("inner", "19-20"),
    ],
)
def test_a_python_symbol(symbol: str, lines: str) -> None:
    found = find_symbol("a.py", PYTHON, symbol)
    assert found is not None
    assert found.text == lines


@pytest.mark.parametrize(("symbol", "lines"), [("supports", "4-9"), ("choose", "1-6")])
def test_a_function_of_cuda_or_where_it_is_mentioned(symbol: str, lines: str) -> None:
    found = find_symbol("a.cu", CUDA, symbol)
    assert found is not None
    assert found.text == lines


def test_a_macro_of_cmake_with_the_condition_above_it() -> None:
    found = find_symbol("CMakeLists.txt", CMAKE, "ENABLE_IT")
    assert found is not None
    assert found.text == "3-3"
    other = find_symbol("CMakeLists.txt", CMAKE.replace("12.8", "12.9"), "ENABLE_IT")
    assert other is not None
    assert other.digest != found.digest


@pytest.mark.parametrize("path", ["a.py", "a.cu", "CMakeLists.txt"])
def test_a_symbol_that_is_not_there(path: str) -> None:
    for text in (PYTHON, CUDA, CMAKE):
        assert find_symbol(path, text, "ENABLE") is None
        assert find_symbol(path, text, "nowhere") is None


def test_a_file_that_is_no_python_any_more_is_searched() -> None:
    assert find_symbol("a.py", "def broken(:\n    other\n", "other") is not None


def digest_of(text: str, symbol: str = "Kernel") -> str:
    found = find_symbol("a.py", text, symbol)
    assert found is not None
    return found.digest


def test_a_digest_changes_with_the_code_and_with_nothing_else() -> None:
    plain = digest_of(PYTHON)
    assert digest_of("import os\n\n" + PYTHON) == plain
    assert digest_of(PYTHON.replace("# a remark", "# another")) == plain
    assert digest_of(PYTHON.replace("return True", "return False")) != plain
    assert digest_of(PYTHON.replace("@decorated\n", "")) != plain


def test_lines_are_found_again_where_they_went() -> None:
    here = find_lines(CUDA, 4, 9)
    assert here is not None
    moved = find_digest("// one\n// two\n" + CUDA, here.digest, 6)
    assert moved is not None
    assert moved.first >= 4
    assert find_digest(CUDA.replace("90", "89"), here.digest, 6) is None


def test_lines_behind_the_end_are_not_there() -> None:
    assert find_lines(CUDA, 4, 900) is None


@pytest.mark.parametrize(
    ("symbol", "there"), [("LIMIT", True), ("Kernel", True), ("choose", True), ("inner", False), ("Kern", False)]
)
def test_what_a_file_binds_at_its_top(symbol: str, there: bool) -> None:
    assert defines(PYTHON, symbol) is there


@given(st.lists(st.sampled_from(["x = 1", "", "   ", "# word", "  y = 2"]), max_size=12), st.integers(0, 8))
def test_indentation_and_blank_lines_never_change_a_digest(lines: list[str], depth: int) -> None:
    assert digest_text([" " * depth + line for line in lines]) == digest_text([line for line in lines if line.strip()])
