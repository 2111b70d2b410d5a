"""One CUDA lane, packages that go in pairs: what of a closed set is refused, and what PEP 440 lets through."""

from __future__ import annotations

import pytest

from qresolve.closure.agreement import check_lane, check_pairs, cuda_shown
from qresolve.closure.failure import ClosureFailure
from qresolve.closure.request import Closure, ClosureRequest
from qresolve.knowledge.indexes import read_indexes
from qresolve.lock.model import LockedPackage, LockedWheel

BOOK = read_indexes()


def package(name: str, version: str, index: str = "default") -> LockedPackage:
    filename = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    wheel = LockedWheel(filename=filename, url=f"https://files.invalid/{filename}", sha256="0" * 64)
    return LockedPackage(name=name, version=version, wheel=wheel, index=index)


def closure(**versions: str) -> Closure:
    return Closure(packages=tuple(package(name.replace("_", "-"), version) for name, version in versions.items()))


@pytest.mark.parametrize(
    "versions",
    [
        {"flashinfer_cubin": "0.7.2", "flashinfer_jit_cache": "0.7.2+cu130"},
        {"flashinfer_python": "0.7.2", "flashinfer_cubin": "0.7.2", "flashinfer_jit_cache": "0.7.2+cu130"},
        {"flashinfer_python": "0.7.2.post1", "flashinfer_cubin": "0.7.2.post1"},
        {"flashinfer_python": "0.7.2", "torch": "2.14.0"},
        {"torch": "2.14.0"},
    ],
)
def test_packages_of_a_pair_share_their_public_version(versions: dict[str, str]) -> None:
    check_pairs(closure(**versions), BOOK)


@pytest.mark.parametrize(
    "versions",
    [
        {"flashinfer_cubin": "0.7.2.post1", "flashinfer_jit_cache": "0.7.2+cu130"},
        {"flashinfer_python": "0.7.2.post1", "flashinfer_cubin": "0.7.2"},
        {"flashinfer_python": "0.7.2", "flashinfer_cubin": "0.7.2", "flashinfer_jit_cache": "0.7.1+cu130"},
    ],
)
def test_packages_of_a_pair_that_differ_are_refused_and_named(versions: dict[str, str]) -> None:
    with pytest.raises(ClosureFailure, match="must have one version") as caught:
        check_pairs(closure(**versions), BOOK)
    for name, version in versions.items():
        assert f"{name.replace('_', '-')} {version}" in caught.value.message


LANE_13 = ClosureRequest(requirements=("vllm==0.33.0",), cuda="13.0")
LANE_12 = ClosureRequest(requirements=("vllm==0.21.0",), cuda="12.9")


@pytest.mark.parametrize(
    ("asked", "name", "version", "passes"),
    [
        (LANE_13, "flashinfer-jit-cache", "0.7.2+cu130", True),
        (LANE_13, "flashinfer-jit-cache", "0.7.2+cu134", True),  # one major is one lane: minor releases run each other
        (LANE_13, "flashinfer-jit-cache", "0.7.2+cu129", False),
        (LANE_12, "flashinfer-jit-cache", "0.6.8.post1+cu128", True),
        (LANE_12, "flashinfer-jit-cache", "0.6.8.post1+cu130", False),
        (LANE_13, "torch", "2.14.0", True),  # the default index's build of it is 13.0
        (LANE_13, "torch", "2.10.0", False),  # and of this one 12.8
        (LANE_12, "torch", "2.11.0", False),
        (LANE_12, "torch", "2.11.0+cu129", True),
        (LANE_13, "flash-attn", "2.8+cu.12.8.torch.2.11", False),
        (LANE_12, "flash-attn", "2.8+cu.12.8.torch.2.11", True),
        (LANE_13, "nvidia-cuda-runtime-cu12", "12.9.79", False),
        (LANE_12, "nvidia-cuda-runtime", "13.0.96", False),
        (LANE_13, "torch", "2.14.0+rocm7.2", True),  # says nothing of CUDA
    ],
)
def test_every_part_is_of_the_lanes_major(asked: ClosureRequest, name: str, version: str, passes: bool) -> None:
    found = Closure(packages=(package(name, version),))
    if passes:
        check_lane(asked, found, BOOK)
        return
    with pytest.raises(ClosureFailure) as caught:
        check_lane(asked, found, BOOK)
    assert caught.value.reason == "cuda"
    assert f"{name} {version} is of CUDA" in caught.value.message
    assert asked.requirements[0] in caught.value.message


def test_a_package_that_records_free_may_be_of_another_major() -> None:
    found = closure(nvidia_cuda_runtime_cu12="12.9.79")
    check_lane(LANE_13, found, BOOK, free=("nvidia-cuda-runtime-cu12",))


def test_the_build_of_another_index_is_not_taken_for_the_default_ones() -> None:
    assert cuda_shown(package("torch", "2.14.0"), BOOK) == ("13.0", "the default index's build")
    assert cuda_shown(package("torch", "2.14.0", index="mirror"), BOOK) is None
