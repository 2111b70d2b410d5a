"""``constraints/indexes.toml``: how versions name a CUDA release, who may serve what, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import tomli

from qresolve.data import data_folder
from qresolve.errors import DataInvalid
from qresolve.knowledge.indexes import lane_word, parse_indexes, read_indexes
from qresolve.strict import Table

BOOK = read_indexes()
TEXT = (data_folder("constraints") / "indexes.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("version", "cuda"),
    [
        ("2.14.0+cu130", "13.0"),
        ("2.11.0+cu129", "12.9"),
        ("0.7.2.post1+cu134", "13.4"),
        ("0.4.1.post1+cu129.g123abc", "12.9"),
        ("2.8.3+cu.12.8.torch.2.11", "12.8"),
        ("2.8.3+cu.13.0.torch.2.14.0", "13.0"),
        ("2.14.0", None),
        ("2.14.0+cpu", None),
        ("2.14.0+rocm7.2", None),
        ("1.0+cu1304", None),  # not how any index writes it
        ("1.0+cu.12.8", None),
        ("1.0+mine.cu130", None),
    ],
)
def test_the_cuda_that_a_local_version_names(version: str, cuda: str | None) -> None:
    assert BOOK.cuda_of_local(version) == cuda


def test_a_lane_is_written_as_indexes_write_it() -> None:
    assert [lane_word(cuda) for cuda in ("12.9", "13.0", "13.0.3")] == ["cu129", "cu130", "cu130"]


def test_no_package_may_come_by_itself_from_two_indexes() -> None:
    taken = [package for index in BOOK.indexes if index.need not in {"none", "engine"} for package in index.packages]
    assert len(taken) == len(set(taken))


def test_the_partners_of_a_pair_and_what_the_default_index_lacks() -> None:
    assert set(BOOK.partners("flashinfer-python")) == {"flashinfer-cubin", "flashinfer-jit-cache"}
    assert BOOK.partners("torch") == ()
    assert BOOK.is_missing("flashinfer-cubin", "0.7.2")
    assert not BOOK.is_missing("flashinfer-cubin", "0.6.13")
    assert BOOK.is_missing("flashinfer-jit-cache", "0.7.2+cu130")
    assert not BOOK.is_missing("torch", "2.14.0")


def spoiled(change: Any) -> None:
    document = copy.deepcopy(tomli.loads(TEXT))
    change(document)
    parse_indexes(Table(document, file="indexes.toml"))


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found["index"][0].update(url="http://download.pytorch.org/whl/{lane}"),
        lambda found: found["index"][0].update(url="https://download.pytorch.org/whl/{lane}/"),
        lambda found: found["index"][0].update(lanes=[]),
        lambda found: found["index"][1].update(lanes=["13.0"]),
        lambda found: found["index"][0].update(lanes=["13"]),
        lambda found: found["index"][0].update(packages=["Torch_Vision"]),
        lambda found: found["index"][0].update(packages=[]),
        lambda found: found["index"][0].update(need="always"),
        lambda found: found["index"][0].update(layout="gopher"),
        lambda found: found["index"][0].update(name="flashinfer"),
        lambda found: found["index"][0].update(mirror="x"),
        lambda found: found["build"][0].update(index="elsewhere"),
        lambda found: found["build"][0].update(cuda="12.4"),
        lambda found: found["local"][0].update(form="cu{major}"),
        lambda found: found["missing"][0].update(versions="newest"),
        lambda found: found["default-build"][0].pop("where"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(change: Any) -> None:
    spoiled(lambda _: None)
    with pytest.raises(DataInvalid):
        spoiled(change)
