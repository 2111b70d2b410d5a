"""CUDA lanes: which index torch, FlashInfer and the engine come from, and what is said where there is no build."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from qresolve.builds import build_for, same_lane, with_cuda
from qresolve.cli.lock import parse_indexes
from qresolve.errors import NoResolution
from qresolve.knowledge.engine import load_engine, read_releases
from qresolve.knowledge.indexes import read_indexes
from qresolve.knowledge.records import Pin
from qresolve.lanes import (
    indexes_of,
    no_build,
    pair_constraints,
    releases_of_lane,
    take_lane,
)
from qresolve.question import ask_question
from qresolve.release_fit import driver_runs
from qresolve.target.drivers import read_cuda_releases
from qresolve.target.target import build_target, read_target_data

if TYPE_CHECKING:
    from collections.abc import Callable

    from qresolve.closure.request import NamedIndex
    from qresolve.knowledge.records import Engine
    from qresolve.question import Question

BOOK = read_indexes()


def pinning(engine: Engine, **pins: str) -> Engine:
    """The engine with these pins (``_`` for ``-``) in place of its own."""
    made = tuple(
        Pin(package=name.replace("_", "-"), requirement=f"{name}=={version}", version=version)
        for name, version in pins.items()
    )
    return replace(engine, release=replace(engine.release, pins=made))


def chosen(engine: Engine, cuda: str | None, *mine: NamedIndex) -> dict[str, tuple[str, tuple[str, ...]]]:
    found = indexes_of(mine, None, engine=engine, cuda=cuda, book=BOOK)
    return {index.name: (index.url, index.packages) for index in found}


def question(engine: str | None = None, cuda: str | None = "12.9") -> Question:
    data = read_target_data()
    return ask_question(
        formats=["nvfp4"],
        target=build_target(gpu=["sm120"], data=data, cuda=cuda),
        architectures=data.architectures,
        engine=engine,
    )


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [("12.9", "12.9.1", True), ("13.0", "13.0", True), ("12.9", "12.8", False), ("13.0", "12.9", False)],
)
def test_a_lane_is_a_cuda_release_up_to_its_minor_number(left: str, right: str, same: bool) -> None:
    assert same_lane(left, right) == same


# ---------------------------------------------------------------- torch


@pytest.mark.parametrize(
    ("torch", "cuda", "lane"),
    [
        ("2.7.1", "12.6", None),  # what the default index has of it
        ("2.9.1", "12.8", None),
        ("2.14.0", "13.0", None),
        ("2.15.0", "13.2", None),
        ("2.14.0", None, None),  # no lane was asked for: the engine's own build goes with what the default index has
        ("2.14.0", "12.9", "cu129"),
        ("2.14.0", "12.9.1", "cu129"),
        ("2.14.0", "13.2", "cu132"),
        ("2.15.0", "13.0", "cu130"),
        ("2.9.1", "13.0", "cu130"),
        ("2.14.0+cu129", "12.9", "cu129"),
        ("99.0", "13.0", "cu130"),  # which build the default index has of it is not known
    ],
)
def test_torch_comes_from_the_index_of_the_lane_where_the_default_has_another(
    torch: str, cuda: str | None, lane: str | None
) -> None:
    found = chosen(pinning(load_engine("vllm"), torch=torch), cuda)
    if lane is None:
        assert "pytorch" not in found
        return
    url, packages = found["pytorch"]
    assert url == f"https://download.pytorch.org/whl/{lane}"
    assert "torch" in packages
    assert not set(packages) & {"vllm", "flashinfer-cubin", "triton"}


def test_no_index_is_made_up_for_a_lane_that_pytorch_does_not_have() -> None:
    assert "pytorch" not in chosen(pinning(load_engine("vllm"), torch="2.14.0"), "12.5")


def test_the_users_index_for_torch_is_kept_and_the_rest_of_the_lane_stays() -> None:
    (mine,) = parse_indexes(["mirror=https://mirror.example/cu129=torch"])
    found = chosen(pinning(load_engine("vllm"), torch="2.14.0"), "12.9", mine)
    assert found["mirror"] == ("https://mirror.example/cu129", ("torch",))
    assert "torch" not in found["pytorch"][1]
    assert "torchvision" in found["pytorch"][1]


# ---------------------------------------------------------------- FlashInfer


def test_what_the_default_index_lacks_of_flashinfer_comes_from_its_own_index_in_the_engines_lane() -> None:
    engine = pinning(load_engine("vllm"), torch="2.14.0", flashinfer_python="0.7.2.post1")
    found = chosen(engine, None)
    assert found["flashinfer"] == ("https://flashinfer.ai/whl", ("flashinfer-cubin",))
    assert found["flashinfer-jit-cache"][0] == "https://flashinfer.ai/whl/cu130"
    build = build_for(BOOK.builds, "vllm", "0.21.0", "12.9")
    assert build is not None
    old = with_cuda(load_engine("vllm", "0.21.0"), build.cuda)
    assert chosen(old, "12.9")["flashinfer-jit-cache"][0] == "https://flashinfer.ai/whl/cu129"


def test_a_cubin_that_the_default_index_has_comes_from_there() -> None:
    engine = load_engine("vllm", "0.21.0")
    assert {pin.package: pin.version for pin in engine.release.pins}["flashinfer-cubin"] == "0.6.8.post1"
    assert "flashinfer" not in chosen(engine, None)


def test_the_packages_of_a_pair_are_held_at_the_pinned_version() -> None:
    engine = pinning(load_engine("vllm"), flashinfer_python="0.7.2.post1")
    asked = ("vllm==0.33.0", "flashinfer-jit-cache", "FlashInfer_cubin")
    assert pair_constraints(engine, asked, BOOK) == (
        "flashinfer-cubin==0.7.2.post1",
        "flashinfer-jit-cache==0.7.2.post1",
    )
    assert pair_constraints(engine, ("vllm==0.33.0",), BOOK) == ()


# ---------------------------------------------------------------- the engine


def test_a_build_of_the_engine_comes_from_its_own_index() -> None:
    build = build_for(BOOK.builds, "vllm", "0.21.0", "12.9")
    assert build is not None
    engine = with_cuda(load_engine("vllm", "0.21.0"), build.cuda)
    assert (engine.release.cuda, engine.release.toolkit) == ("12.9", None)
    assert chosen(engine, "12.9")["vllm"] == ("https://wheels.vllm.ai/0.21.0/cu129", ("vllm",))
    assert "vllm" not in chosen(load_engine("vllm", "0.21.0"), "13.0")


def test_the_releases_of_a_lane_are_those_built_with_it_and_those_with_a_build_for_it() -> None:
    known = read_releases("vllm")
    found = releases_of_lane("vllm", known, "12.9", BOOK)
    assert found[0] == "0.21.0"
    assert set(found) - {"0.21.0"} == {one.version for one in known if same_lane(one.cuda, "12.9")}


def test_of_a_release_without_the_build_the_last_one_that_had_it_is_named() -> None:
    message, hint = no_build(load_engine("vllm"), "12.9", BOOK)
    assert "the last known release with one is 0.21.0, at https://wheels.vllm.ai/0.21.0/cu129" in message
    assert hint == "--cuda 12.9 --engine vllm==0.21.0"


def test_a_lane_leaves_only_releases_that_have_it_and_says_why_the_newest_is_not_one() -> None:
    asked = question()
    (said,) = take_lane(asked, BOOK)
    assert "no build for CUDA 12.9" in said
    assert asked.releases()[0] == "0.21.0"
    assert all(same_lane(asked.engine(release).release.cuda, "12.9") for release in asked.releases())
    with pytest.raises(NoResolution, match="no known release has one"):
        take_lane(question(cuda="12.4"), BOOK)


def test_without_a_lane_nothing_changes() -> None:
    asked = question(cuda=None)
    assert take_lane(asked, BOOK) == ()
    assert asked.releases()[0] == read_releases("vllm")[0].version


def test_a_build_that_was_not_measured_has_unknown_images_until_it_is_opened() -> None:
    asked = question("vllm==0.21.0")
    take_lane(asked, BOOK)
    (row,) = asked.rows()
    bench = asked.bench("0.21.0", row)
    assert bench is not None
    image = "image.vllm:_C_stable_libtorch/nvfp4_scaled_mm_sm120_kernels"
    assert bench.table.get("build.cuda").value == "12.9"
    assert bench.table.get(image).value is None
    predicted = question("vllm==0.21.0")
    predicted.opens = True  # a lock opens the wheel, and needs to know what to resolve before
    take_lane(predicted, BOOK)
    bench = predicted.bench("0.21.0", row)
    assert bench is not None
    assert bench.table.get(image).value == "sass"


def test_a_wheel_that_the_user_gives_is_of_the_lane_he_asks_for() -> None:
    asked = question("vllm==0.33.0")
    asked.supplied = frozenset({"vllm"})
    asked.opens = True
    take_lane(asked, BOOK)
    assert asked.engine("0.33.0").release.cuda == "12.9"
    other = question("vllm==0.33.0")
    take_lane(other, BOOK)
    assert other.engine("0.33.0").release.cuda == "13.0"


# ---------------------------------------------------------------- by the driver


def only(*cudas: str) -> Callable[[str], bool]:
    return lambda cuda: cuda in cudas


def test_a_driver_that_does_not_run_the_default_build_takes_the_build_that_it_runs() -> None:
    asked = question(cuda=None)
    assert take_lane(asked, BOOK, runs=only("12.8", "12.9")) == ()
    assert asked.lane("0.21.0") == "12.9"
    assert asked.engine("0.21.0").release.cuda == "12.9"
    assert asked.lane("0.33.0") is None, "there is no other build of it"
    assert asked.lane("0.19.0") is None, "its own build runs"
    assert (
        chosen(asked.engine("0.21.0"), asked.lane("0.21.0"))["pytorch"][0] == "https://download.pytorch.org/whl/cu129"
    )


@pytest.mark.parametrize("cudas", [("12.9", "13.0"), (), ("13.0",)])
def test_a_driver_that_runs_the_default_build_or_none_changes_nothing(cudas: tuple[str, ...]) -> None:
    asked = question(cuda=None)
    take_lane(asked, BOOK, runs=only(*cudas))
    assert asked.lanes == {}
    assert asked.engine("0.21.0").release.cuda == "13.0"


def test_a_lane_that_is_asked_for_comes_before_that_of_the_driver() -> None:
    asked = question("vllm==0.21.0", cuda="13.0")
    take_lane(asked, BOOK, runs=only("12.9"))
    assert asked.lane("0.21.0") == "13.0"


@pytest.mark.parametrize(
    ("gpu", "driver", "thirteen"),
    [
        ("rtx5090", "575.57.08", False),
        ("rtx5090", "580.95.05", True),
        ("rtx5090", None, True),  # an unknown driver blocks nothing
        ("h200", "575.57.08", True),  # with the forward compatibility package of data-centre GPUs
        ("h200,rtx5090", "575.57.08", False),
    ],
)
def test_which_cuda_a_driver_runs(gpu: str, driver: str | None, thirteen: bool) -> None:
    data = read_target_data()
    asked = ask_question(
        formats=["nvfp4"],
        target=build_target(gpu=[gpu], data=data, driver=driver),
        architectures=data.architectures,
    )
    runs = driver_runs(asked, read_cuda_releases())
    assert (runs("12.9"), runs("13.0")) == (True, thirteen)
