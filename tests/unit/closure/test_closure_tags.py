from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.closure.tags import glibc_pair, linux_platforms, select_wheel, target_tags

_MACHINES = st.sampled_from(("x86_64", "aarch64"))
_PLATFORMS = (
    "any",
    "manylinux_2_17_x86_64",
    "manylinux_2_28_x86_64",
    "manylinux_2_38_x86_64",
    "manylinux_2_28_aarch64",
)
_TAGS = ("py3-none", "cp312-cp312", "cp39-abi3", "cp313-cp313", "cp313-abi3")


def _wheel(tag: str, platform: str, build: str = "") -> str:
    return f"x-1.0-{build}{tag}-{platform}.whl"


def test_the_newest_glibc_that_the_target_has_wins() -> None:
    ranks = target_tags("3.12", "x86_64", "2.35")
    wheels = [_wheel("cp312-cp312", platform) for platform in _PLATFORMS[1:]]
    assert select_wheel(wheels, ranks) == _wheel("cp312-cp312", "manylinux_2_28_x86_64")


def test_an_exact_abi_beats_the_stable_abi_and_that_beats_a_pure_wheel() -> None:
    ranks = target_tags("3.12", "x86_64", "2.28")
    pure, stable = _wheel("py3-none", "any"), _wheel("cp39-abi3", "manylinux_2_17_x86_64")
    exact = _wheel("cp312-cp312", "manylinux_2_17_x86_64")
    assert select_wheel([pure, stable, exact], ranks) == exact
    assert select_wheel([pure, stable], ranks) == stable


@pytest.mark.parametrize(
    "wheel",
    [
        _wheel("cp312-cp312", "manylinux_2_36_x86_64"),
        _wheel("cp312-cp312", "manylinux_2_28_aarch64"),
        _wheel("cp313-cp313", "manylinux_2_28_x86_64"),
        _wheel("cp313-abi3", "manylinux_2_28_x86_64"),
        _wheel("cp312-cp312", "musllinux_1_2_x86_64"),
        _wheel("cp312-cp312", "win_amd64"),
        "x-1.0.tar.gz",
        "not a wheel",
    ],
)
def test_what_does_not_fit_is_never_taken(wheel: str) -> None:
    assert select_wheel([wheel], target_tags("3.12", "x86_64", "2.35")) is None


def test_of_two_builds_the_higher_number_wins() -> None:
    ranks = target_tags("3.12", "x86_64", "2.35")
    assert select_wheel([_wheel("py3-none", "any", f"{build}-") for build in ("2", "10", "9")], ranks) == _wheel(
        "py3-none", "any", "10-"
    )


def test_older_names_of_glibc_floors_are_known() -> None:
    ranks = target_tags("3.12", "x86_64", "2.17")
    assert select_wheel([_wheel("cp312-cp312", "manylinux2014_x86_64")], ranks) is not None
    assert select_wheel([_wheel("cp312-cp312", "manylinux1_x86_64")], ranks) is not None
    assert select_wheel([_wheel("cp312-cp312", "manylinux1_aarch64")], target_tags("3.12", "aarch64", "2.35")) is None


@given(st.lists(st.tuples(st.sampled_from(_TAGS), st.sampled_from(_PLATFORMS)), max_size=8), st.randoms())
def test_the_order_of_files_does_not_matter(parts: list[tuple[str, str]], shuffle: object) -> None:
    ranks = target_tags("3.12", "x86_64", "2.35")
    wheels = [_wheel(*part) for part in parts]
    other = list(wheels)
    shuffle.shuffle(other)  # type: ignore[attr-defined]
    assert select_wheel(wheels, ranks) == select_wheel(other, ranks)


@given(_MACHINES, st.integers(17, 40), st.integers(17, 40))
def test_a_newer_glibc_takes_all_that_an_older_one_takes(machine: str, left: int, right: int) -> None:
    older, newer = sorted((left, right))
    assert set(linux_platforms(machine, f"2.{older}")) <= set(linux_platforms(machine, f"2.{newer}"))


def test_glibc_is_compared_as_numbers() -> None:
    assert glibc_pair("2.9") < glibc_pair("2.31")
