"""Reading data tables: each value by name and type, errors with file and dotted path, nothing left unread."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from qresolve.errors import DataInvalid
from qresolve.strict import Table, read_toml

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def table(values: dict[str, Any]) -> Table:
    return Table(values, file="records.toml", path="route[3]")


@pytest.mark.parametrize(
    ("values", "read", "expected"),
    [
        ({"a": "x"}, lambda at: at.text("a"), "x"),
        ({}, lambda at: at.text("a", "y"), "y"),
        ({}, lambda at: at.text("a", ""), ""),
        ({}, lambda at: at.optional_text("a"), None),
        ({"a": 0}, lambda at: at.whole("a"), 0),
        ({}, lambda at: at.whole("a", 0), 0),
        ({"a": False}, lambda at: at.flag("a"), False),
        ({}, lambda at: at.flag("a", default=False), False),
        ({"a": date(2026, 1, 2)}, lambda at: at.day("a"), date(2026, 1, 2)),
        ({"a": "x"}, lambda at: at.choice("a", ("x", "y")), "x"),
        ({"a": ["x", "y"]}, lambda at: at.texts("a"), ("x", "y")),
        ({}, lambda at: at.texts("a", ()), ()),
        ({"a": [1, 2]}, lambda at: at.wholes("a"), (1, 2)),
        ({}, lambda at: at.wholes("a", (3,)), (3,)),
        ({}, lambda at: tuple(at.tables("a")), ()),
        ({}, lambda at: at.optional_table("a"), None),
        ({"a": {"b": {"c": 1}}}, lambda at: at.table("a").table("b").whole("c"), 1),
    ],
)
def test_a_value_of_its_type(values: dict[str, Any], read: Callable[[Table], Any], expected: Any) -> None:
    at = table(values)
    assert read(at) == expected
    at.done()


@pytest.mark.parametrize(
    ("values", "read", "message"),
    [
        ({}, lambda at: at.text("a"), "route[3].a: is missing"),
        ({"a": ""}, lambda at: at.text("a"), "route[3].a: must not be empty"),
        ({"a": 1}, lambda at: at.text("a"), "route[3].a: must be str, not int: 1"),
        ({"a": True}, lambda at: at.whole("a"), "route[3].a: must be int, not bool"),
        ({"a": "1"}, lambda at: at.whole("a"), "route[3].a: must be int"),
        ({"a": 1}, lambda at: at.flag("a"), "route[3].a: must be true or false"),
        ({}, lambda at: at.flag("a"), "route[3].a: is missing"),
        ({"a": "2026-01-02"}, lambda at: at.day("a"), "route[3].a: must be date"),
        ({"a": "z"}, lambda at: at.choice("a", ("x", "y")), "route[3].a: must be one of x, y, not 'z'"),
        ({"a": "x"}, lambda at: at.texts("a"), "route[3].a: must be list"),
        ({"a": ["x", 1]}, lambda at: at.texts("a"), "route[3].a[1]: must be a string"),
        ({"a": [1, True]}, lambda at: at.wholes("a"), "route[3].a[1]: must be an integer"),
        ({"a": [{}, 1]}, lambda at: list(at.tables("a")), "route[3].a[1]: must be a table"),
        ({"a": {}}, lambda at: list(at.tables("a")), "route[3].a: must be an array of tables"),
        ({"a": []}, lambda at: at.table("a"), "route[3].a: must be dict"),
        ({"a": [{"b": 1}]}, lambda at: next(at.tables("a")).text("b"), "route[3].a[0].b: must be str"),
        ({"a": {"b": 1}}, lambda at: at.table("a").text("b"), "route[3].a.b: must be str"),
    ],
)
def test_anything_else_is_refused_by_file_and_path(
    values: dict[str, Any], read: Callable[[Table], Any], message: str
) -> None:
    with pytest.raises(DataInvalid) as raised:
        read(table(values))
    assert raised.value.message.startswith(f"records.toml: {message}")
    assert raised.value.exit_code == 8


def test_a_key_that_nothing_reads_is_refused() -> None:
    at = table({"a": "x", "aa": "y"})
    at.text("a")
    at.optional_text("b")
    with pytest.raises(DataInvalid, match=r"route\[3\]\.aa: unknown key \(known here: a, b\)") as raised:
        at.done()
    assert raised.value.message.startswith("records.toml: ")


def test_looking_whether_a_key_is_there_does_not_read_it() -> None:
    at = table({"a": "x"})
    assert "a" in at
    assert list(at) == ["a"]
    assert at.keys() == ("a",)
    with pytest.raises(DataInvalid):
        at.done()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a = ", "not valid TOML"),
        (b"a = 1\na = 2", "not valid TOML"),
        (b"a = '\xff'", "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "records.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataInvalid) as raised:
        read_toml(path, name="constraints/records.toml")
    assert raised.value.message.startswith(f"constraints/records.toml: {message}")


def test_a_file_is_a_table(tmp_path: Path) -> None:
    path = tmp_path / "records.toml"
    path.write_text('day = 2026-12-01\n[[route]]\nid = "a"\n', encoding="utf-8")
    at = read_toml(path)
    assert at.day("day") == date(2026, 12, 1)
    assert [route.text("id") for route in at.tables("route")] == ["a"]
    at.done()
