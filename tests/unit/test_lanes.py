"""Which known index a package comes from by the CUDA lane, and what goes together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from qresolve.closure.agreement import check_pairs
from qresolve.closure.failure import ClosureFailure
from qresolve.closure.request import Closure
from qresolve.knowledge.engine import load_engine
from qresolve.knowledge.indexes import read_indexes
from qresolve.lanes import build_for, indexes_of, pair_constraints, same_lane
from qresolve.lock.model import LockedPackage, LockedWheel

if TYPE_CHECKING:
    from qresolve.closure.request import NamedIndex

BOOK = read_indexes()
VLLM = load_engine("vllm", "0.33.0")


def chosen(cuda: str | None, version: str = "0.33.0") -> dict[str, NamedIndex]:
    return {
        index.name: index for index in indexes_of((), None, engine=load_engine("vllm", version), cuda=cuda, book=BOOK)
    }


def test_the_default_build_needs_no_other_index_for_torch() -> None:
    assert "pytorch" not in chosen(None)
    assert "pytorch" not in chosen(VLLM.release.cuda)


@pytest.mark.parametrize(("cuda", "word"), [("12.9", "cu129"), ("12.9.1", "cu129"), ("13.2", "cu132")])
def test_another_lane_takes_torch_from_its_own_index(cuda: str, word: str) -> None:
    index = chosen(cuda)["pytorch"]
    assert index.url == f"https://download.pytorch.org/whl/{word}"
    assert "torch" in index.packages
    assert index.explicit


def test_a_lane_without_an_index_is_taken_from_none() -> None:
    assert "pytorch" not in chosen("13.4")


def test_the_engines_own_build_of_a_lane_is_found() -> None:
    index = chosen("12.9", "0.21.0")["vllm"]
    assert index.url == "https://wheels.vllm.ai/0.21.0/cu129"
    assert index.packages == ("vllm",)
    assert "vllm" not in chosen("12.9")
    build = build_for(BOOK.builds, "vllm", "0.21.0", "12.9")
    assert build is not None
    assert same_lane(build.cuda, "12.9")


def test_a_users_index_comes_before_a_known_one() -> None:
    mine = replace(chosen("12.9")["pytorch"], name="mine", url="https://mirror.example/simple", packages=("torch",))
    found = {
        package: index.name
        for index in indexes_of((mine,), None, engine=VLLM, cuda="12.9", book=BOOK)
        for package in index.packages
    }
    assert found["torch"] == "mine"
    assert found["torchvision"] == "pytorch"


def package(name: str, version: str) -> LockedPackage:
    wheel = LockedWheel(filename="x.whl", url="https://example.org/x.whl", sha256="0" * 64)
    return LockedPackage(name=name, version=version, wheel=wheel)


@pytest.mark.parametrize("cache", ["0.7.2", "0.7.2+cu130", "0.7.2+cu129"])
def test_a_local_version_pairs_with_the_public_one(cache: str) -> None:
    check_pairs(Closure(packages=(package("flashinfer-cubin", "0.7.2"), package("flashinfer-jit-cache", cache))), BOOK)


@pytest.mark.parametrize("cache", ["0.7.1+cu130", "0.7.2.post1", "0.7.3"])
def test_another_version_is_no_pair(cache: str) -> None:
    packages = (package("flashinfer-cubin", "0.7.2"), package("flashinfer-jit-cache", cache))
    with pytest.raises(ClosureFailure, match="must have one version"):
        check_pairs(Closure(packages=packages), BOOK)


def test_what_goes_with_a_pinned_release_is_asked_for_at_its_version() -> None:
    pinned = next(pin.version for pin in VLLM.release.pins if pin.package == "flashinfer-python")
    found = pair_constraints(VLLM, ["flashinfer-cubin", "flashinfer-jit-cache", "torch"], BOOK)
    assert set(found) == {f"flashinfer-cubin=={pinned}", f"flashinfer-jit-cache=={pinned}"}
