"""Reading ``where``: the forms that people write, and that no existing record is lost."""

from __future__ import annotations

import pytest

from qresolve.audit.citations import Citation, parse_where, resolve_path
from qresolve.audit.sources import read_records
from qresolve.knowledge.engine import engine_names, read_releases


def cited(text: str) -> list[tuple[str, tuple[tuple[int, int], ...], tuple[str, ...]]]:
    return [(item.path, item.lines, item.symbols) for item in parse_where(text).citations]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/b.py", [("a/b.py", (), ())]),
        ("a/b.py Kernel", [("a/b.py", (), ("Kernel",))]),
        ("a/b.py dot", [("a/b.py", (), ("dot",))]),
        ("a/b.py:12", [("a/b.py", ((12, 12),), ())]),
        ("a/b.py:12-30,44 one, Two.three", [("a/b.py", ((12, 30), (44, 44)), ("one", "Two.three"))]),
        ("a/b.py:_private, other", [("a/b.py", (), ("_private", "other"))]),
        ("a/b.py select(use_a16=True)", [("a/b.py", (), ("select",))]),
        ("a/b.py kWeight x kActivation", [("a/b.py", (), ("kWeight", "kActivation"))]),
        ("a/b.py some_name (a remark of a_word)", [("a/b.py", (), ("some_name",))]),
        ("a/b.py some_name, not overridden", [("a/b.py", (), ("some_name",))]),
        ("a/b.py FlashBackend, Vendor-LLM's generated kernels", [("a/b.py", (), ("FlashBackend",))]),
        ("a/b.py in the wheel of 0.7.2.post1", [("a/b.py", (), ())]),
        ("a/b.cu:3-9; c.hpp one_two", [("a/b.cu", ((3, 9),), ()), ("c.hpp", (), ("one_two",))]),
        ("a/b.py, c/d.py (A_VARIABLE)", [("a/b.py", (), ()), ("c/d.py", (), ())]),
        (
            "some_flag in a.py:1 and b/c.py:2; False in d.py:3",
            [
                ("a.py", ((1, 1),), ("some_flag",)),
                ("b/c.py", ((2, 2),), ("some_flag",)),
                ("d.py", ((3, 3),), ()),
            ],
        ),
        ("CMakeLists.txt:1-2 A_MACRO", [("CMakeLists.txt", ((1, 2),), ("A_MACRO",))]),
        ("engine-1.2.3 a/b.py Kernel", [("a/b.py", (), ("Kernel",))]),
    ],
)
def test_a_citation(text: str, expected: list[tuple[str, tuple[tuple[int, int], ...], tuple[str, ...]]]) -> None:
    found = parse_where(text)
    assert cited(text) == expected
    assert not found.prose


@pytest.mark.parametrize(
    "text", ["METADATA of engine-1.0-py3-none-any.whl", "Compiler 3.8.0 cross-compiled", "torch.ops.aten.mm: a rule"]
)
def test_prose_cites_no_file(text: str) -> None:
    assert parse_where(text).citations == ()
    assert parse_where(text).prose == (text,)


def test_a_text_with_both_keeps_both() -> None:
    found = parse_where("a/b.py one; file list of some_wheel-1.0")
    assert found.citations == (Citation(path="a/b.py", symbols=("one",)),)
    assert found.prose == ("file list of some_wheel-1.0",)


@pytest.mark.parametrize("engine", engine_names())
def test_every_record_of_every_release_cites_a_file_or_is_listed_as_prose(engine: str) -> None:
    for release in read_releases(engine):
        records = read_records(engine, release.version)
        assert records
        for record in records:
            assert record.citations or record.prose, record.id
            for citation in record.citations:
                assert all(0 < first <= last for first, last in citation.lines), record.where


def test_most_of_vllms_records_can_be_re_read() -> None:
    records = read_records("vllm", "0.33.0")
    prose = [record.id for record in records if not record.citations]
    assert len(prose) < len(records) / 10


def test_records_of_another_range_are_left_out() -> None:
    newest = {record.id for record in read_records("vllm", "0.33.0")}
    assert any(name.startswith("route:") for name in newest)
    assert "release:0.33.0" in newest
    assert "release:0.21.0" not in newest


FILES = {"x/oracle/fp8.py", "x/quantization/fp8.py", "x/quantization/online/fp8.py", "top.txt"}


@pytest.mark.parametrize(
    ("path", "near", "first"),
    [
        ("x/oracle/fp8.py", None, "x/oracle/fp8.py"),
        ("online/fp8.py", None, "x/quantization/online/fp8.py"),
        ("fp8.py", "x/oracle/nvfp4.py", "x/oracle/fp8.py"),
        ("fp8.py", "x/quantization/modelopt.py", "x/quantization/fp8.py"),
        ("top.txt", "x/oracle/fp8.py", "top.txt"),
    ],
)
def test_a_short_path_is_the_file_nearest_to_the_one_before(path: str, near: str | None, first: str) -> None:
    assert resolve_path(path, near=near, files=FILES)[0] == first


def test_a_path_that_is_nowhere() -> None:
    assert resolve_path("gone.py", near=None, files=FILES) == ()
