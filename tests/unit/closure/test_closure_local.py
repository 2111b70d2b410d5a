"""Wheels that the user has as files: where they come from, and what they ask of the request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from qresolve.closure.local import join_indexes, pin_local_engine, read_local_indexes
from qresolve.closure.request import NamedIndex
from qresolve.errors import NoResolution, UsageError
from qresolve.question import ask_question
from qresolve.target.target import build_target, read_target_data
from tests.index_server import make_wheel

if TYPE_CHECKING:
    from pathlib import Path

    from qresolve.question import Question

TAG = "cp38-abi3-manylinux_2_28_x86_64"


def write(folder: Path, name: str, version: str) -> Path:
    wheel = make_wheel(name, version, tag=TAG)
    folder.mkdir(exist_ok=True)
    path = folder / wheel.filename
    path.write_bytes(wheel.content)
    return path


def question(engine: str | None = None) -> Question:
    data = read_target_data()
    return ask_question(
        formats=["nvfp4"],
        target=build_target(gpu=["sm120"], data=data),
        architectures=data.architectures,
        engine=engine,
    )


def test_a_wheel_is_the_only_source_of_its_package(tmp_path: Path) -> None:
    path = write(tmp_path / "built", "vllm", "0.33.0+mine")
    write(tmp_path / "built", "torch", "2.14.0")
    (local,) = read_local_indexes([str(path)], [])
    assert local.index.packages == ("vllm",), "what lies beside it does not count"
    assert local.index.explicit
    assert local.index.flat
    assert local.index.url == path.parent.resolve().as_uri()
    assert local.pin == "vllm==0.33.0+mine"


def test_a_folder_is_the_only_source_of_all_its_packages(tmp_path: Path) -> None:
    write(tmp_path / "links", "vllm", "0.33.0+mine")
    write(tmp_path / "links", "torch", "2.14.0+cu130")
    (local,) = read_local_indexes([], [str(tmp_path / "links")])
    assert local.index.packages == ("torch", "vllm")
    assert local.pin is None


def test_the_release_of_a_built_engine_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "built", "vllm", "0.32.0+mine")
    asked = question()
    pin_local_engine(asked, read_local_indexes([str(path)], []))
    assert asked.releases() == ("0.32.0",)


def test_a_release_without_records_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "built", "vllm", "0.99.0")
    with pytest.raises(NoResolution, match=r"no records of vllm 0\.99\.0"):
        pin_local_engine(question(), read_local_indexes([str(path)], []))


def test_another_release_than_the_wheel_is_a_contradiction(tmp_path: Path) -> None:
    path = write(tmp_path / "built", "vllm", "0.32.0+mine")
    with pytest.raises(UsageError, match=r"0\.33\.0 is asked for, and the wheel is 0\.32\.0\+mine"):
        pin_local_engine(question("vllm==0.33.0"), read_local_indexes([str(path)], []))


def test_a_package_comes_from_one_place(tmp_path: Path) -> None:
    first, second = write(tmp_path / "one", "vllm", "0.33.0+a"), write(tmp_path / "two", "vllm", "0.33.0+b")
    with pytest.raises(UsageError, match="given twice"):
        read_local_indexes([str(first), str(second)], [])
    with pytest.raises(UsageError, match="given twice"):
        read_local_indexes([str(first)], [str(second.parent)])
    local = tuple(item.index for item in read_local_indexes([str(first)], []))
    with pytest.raises(UsageError, match="bound to the index own"):
        join_indexes((NamedIndex(name="own", url="https://example.org/simple", packages=("vllm",)),), local)


def test_what_is_no_wheel_is_said(tmp_path: Path) -> None:
    (tmp_path / "vllm.whl").write_bytes(b"")
    with pytest.raises(UsageError, match="no such file"):
        read_local_indexes([str(tmp_path / "none.whl")], [])
    with pytest.raises(UsageError):
        read_local_indexes([str(tmp_path / "vllm.whl")], [])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no wheel in it"):
        read_local_indexes([], [str(tmp_path / "empty")])
    with pytest.raises(UsageError, match="no such folder"):
        read_local_indexes([], [str(tmp_path / "missing")])
