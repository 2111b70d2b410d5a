from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.arch import Architecture, read_architectures
from qresolve.errors import DataInvalid, UsageError
from qresolve.strict import Table
from qresolve.target.drivers import (
    BelowFloor,
    CudaUnknown,
    DriverSupport,
    DriverUnknown,
    ForwardPackage,
    OlderThanGpu,
    OlderThanRelease,
    PtxTooNew,
    describe_answer,
    driver_floor,
    driver_supports,
    highest_cuda,
    parse_cuda,
    parse_cuda_releases,
    parse_driver,
    read_cuda_releases,
)

RELEASES = read_cuda_releases()
ARCHITECTURES = read_architectures()
drivers = st.builds(
    lambda branch, minor, patch: parse_driver(f"{branch}.{minor:02}.{patch:02}"),
    st.integers(400, 650),
    st.integers(0, 199),
    st.integers(0, 99),
)
cudas = st.sampled_from([one.version for one in RELEASES.releases])


def architecture(sm: int) -> Architecture:
    found = ARCHITECTURES.find(sm)
    assert found is not None
    return found


def support(cuda: str, driver: str, kind: str | None = "geforce", *, uses_ptx: bool = False) -> DriverSupport:
    return driver_supports(cuda, parse_driver(driver), RELEASES, kind=kind, uses_ptx=uses_ptx).support


def test_the_text_of_a_driver_is_kept() -> None:
    driver = parse_driver(" 550.144.03 ")
    assert driver.raw == "550.144.03"
    assert driver.numbers == (550, 144, 3)
    assert driver.branch == 550


@pytest.mark.parametrize("text", ["", "12.8", "v580", "580.", "580.65.06.1", "1580.1", "R580"])
def test_other_text_is_no_driver(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_driver(text)
    assert (caught.value.hint or "").startswith("nvidia-smi ")


def test_a_cuda_version_given_as_a_driver_is_called_that() -> None:
    with pytest.raises(UsageError, match="a CUDA version"):
        parse_driver("12.8")


def test_a_branch_alone_stands_for_its_releases() -> None:
    assert parse_driver("580").reaches(parse_driver("580.65.06"))
    assert parse_driver("580.65.06").reaches(parse_driver("580"))
    assert not parse_driver("570").reaches(parse_driver("580.65.06"))
    assert not parse_driver("580.65.05").reaches(parse_driver("580.65.06"))


@pytest.mark.parametrize(
    ("text", "version"),
    [("12.8", "12.8"), ("12.8.1", "12.8"), ("cu128", "12.8"), ("CU130", "13.0"), ("cuda-13.0", "13.0")],
)
def test_cuda_is_read_in_every_spelling(text: str, version: str) -> None:
    assert parse_cuda(text, RELEASES) == version


@pytest.mark.parametrize("text", ["13", "cu13", "13.99", "rocm7.1", "cpu", ""])
def test_unknown_cuda_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_cuda(text, RELEASES)
    assert "12.8" in caught.value.message
    assert parse_cuda((caught.value.hint or "").removeprefix("--cuda "), RELEASES)


# The numbers are those of NVIDIA's tables: 525.60.13 is the floor of 12.x, 580.65.06 of 13.x.
@pytest.mark.parametrize(
    ("cuda", "driver", "expected"),
    [
        ("12.8", "570.26", DriverSupport.NATIVE),
        ("12.8", "570.25", DriverSupport.MINOR_VERSION),
        ("12.8", "525.60.13", DriverSupport.MINOR_VERSION),
        ("12.8", "525.60.12", DriverSupport.NO),
        ("12.9", "580.65.06", DriverSupport.NATIVE),
        ("11.8", "580.65.06", DriverSupport.NATIVE),
        ("13.0", "580.65.06", DriverSupport.NATIVE),
        ("13.0", "575.57.08", DriverSupport.NO),
        ("13.3", "580.65.06", DriverSupport.MINOR_VERSION),
        ("13.3", "610.43.02", DriverSupport.NATIVE),
        ("13.5", "580.65.06", DriverSupport.MINOR_VERSION),
    ],
)
def test_how_a_driver_runs_a_release(cuda: str, driver: str, expected: DriverSupport) -> None:
    assert support(cuda, driver) is expected


def test_an_unknown_driver_is_unknown_and_blocks_nothing() -> None:
    answer = driver_supports("13.0", None, RELEASES, kind="geforce", uses_ptx=True)
    assert answer.support is DriverSupport.UNKNOWN
    assert answer.reasons == (DriverUnknown(),)
    assert not answer.blocks


def test_an_unknown_major_is_unknown() -> None:
    answer = driver_supports("15.0", parse_driver("580.65.06"), RELEASES, kind=None, uses_ptx=False)
    assert answer.support is DriverSupport.UNKNOWN
    assert answer.reasons == (CudaUnknown(cuda="15.0"),)


@pytest.mark.parametrize(
    ("kind", "expected", "helps"),
    [
        ("datacenter", DriverSupport.FORWARD_PACKAGE, True),
        ("jetson", DriverSupport.FORWARD_PACKAGE, True),
        ("geforce", DriverSupport.NO, False),
        ("soc", DriverSupport.NO, False),
        ("professional", DriverSupport.UNKNOWN, None),
        (None, DriverSupport.UNKNOWN, None),
    ],
)
def test_who_may_use_the_forward_package(kind: str | None, expected: DriverSupport, helps: bool | None) -> None:
    answer = driver_supports("13.0", parse_driver("570.26"), RELEASES, kind=kind, uses_ptx=False)
    assert answer.support is expected
    assert answer.reasons == (
        BelowFloor(driver="570.26", cuda="13.0", floor="580.65.06"),
        ForwardPackage(kind=kind, helps=helps),
    )


def test_the_ptx_of_a_newer_toolkit_is_beyond_minor_version_compatibility() -> None:
    assert support("13.3", "580.65.06") is DriverSupport.MINOR_VERSION
    answer = driver_supports("13.3", parse_driver("580.65.06"), RELEASES, kind="geforce", uses_ptx=True)
    assert answer.blocks
    assert answer.reasons[:2] == (
        OlderThanRelease(driver="580.65.06", cuda="13.3", native="610.43.02"),
        PtxTooNew(driver="580.65.06", cuda="13.3"),
    )
    assert support("13.3", "610.43.02", uses_ptx=True) is DriverSupport.NATIVE
    assert support("13.3", "580.65.06", "datacenter", uses_ptx=True) is DriverSupport.FORWARD_PACKAGE


def test_ptx_of_a_release_whose_driver_is_not_known_is_unknown() -> None:
    assert RELEASES.releases[-1].driver is None
    assert support(RELEASES.releases[-1].version, "615.10", uses_ptx=True) is DriverSupport.UNKNOWN


def test_a_driver_older_than_the_gpu_runs_nothing_on_it() -> None:
    answer = driver_supports(
        "12.8",
        parse_driver("550.144.03"),
        RELEASES,
        kind="datacenter",
        uses_ptx=False,
        architecture=architecture(120),
    )
    assert answer.blocks
    assert answer.reasons == (OlderThanGpu(driver="550.144.03", arch="sm120", branch=570),)


def test_the_floor_is_that_of_the_major_or_of_the_gpu() -> None:
    assert driver_floor("12.8", RELEASES) == "525.60.13"
    assert driver_floor("12.8", RELEASES, [architecture(89), architecture(120)]) == "570"
    assert driver_floor("13.0", RELEASES, [architecture(120)]) == "580.65.06"
    assert driver_floor("15.0", RELEASES) is None


def test_the_newest_cuda_of_a_driver() -> None:
    newest = RELEASES.releases[-1].version
    assert highest_cuda(parse_driver("580.65.06"), RELEASES) == newest
    assert highest_cuda(parse_driver("580.65.06"), RELEASES, native=True) == "13.0"
    assert highest_cuda(parse_driver("575.57.08"), RELEASES) == "12.9"
    assert highest_cuda(parse_driver("550.144.03"), RELEASES, native=True) == "12.4"
    assert highest_cuda(parse_driver("390.157"), RELEASES) is None


RANK = {
    DriverSupport.NO: 0,
    DriverSupport.FORWARD_PACKAGE: 1,
    DriverSupport.UNKNOWN: 1,
    DriverSupport.MINOR_VERSION: 2,
    DriverSupport.NATIVE: 3,
}


@given(cudas, drivers, drivers, st.sampled_from(["geforce", "datacenter", None]), st.booleans())
def test_a_newer_driver_never_runs_less(cuda: str, one: Any, other: Any, kind: str | None, uses_ptx: bool) -> None:
    older, newer = sorted((one, other), key=lambda driver: driver.numbers)
    before = driver_supports(cuda, older, RELEASES, kind=kind, uses_ptx=uses_ptx)
    after = driver_supports(cuda, newer, RELEASES, kind=kind, uses_ptx=uses_ptx)
    assert RANK[after.support] >= RANK[before.support]


@given(cudas, drivers)
def test_the_floor_divides_the_drivers_of_a_major(cuda: str, driver: Any) -> None:
    floor = driver_floor(cuda, RELEASES)
    assert floor is not None
    blocked = driver_supports(cuda, driver, RELEASES, kind="geforce", uses_ptx=False).blocks
    assert blocked is not driver.reaches(parse_driver(floor))


def test_reasons_read_well() -> None:
    answer = driver_supports("13.0", parse_driver("570.26"), RELEASES, kind="geforce", uses_ptx=False)
    assert describe_answer(answer) == (
        "CUDA 13.0 needs driver 580.65.06 or newer, this is 570.26; "
        "the cuda-compat package does not work on geforce GPUs (error 804)"
    )
    assert describe_answer(driver_supports("12.8", parse_driver("570.26"), RELEASES, kind=None, uses_ptx=True)) == ""


def _data(**changes: Any) -> dict[str, Any]:
    day = date(2026, 12, 1)
    proof = {"source": "a test", "checked": day}
    return {
        "forward": {"always": ["datacenter"], "sometimes": [], **proof},
        "family": [{"major": 12, "floor": "525.60.13", **proof}],
        "release": [{"version": "12.8", "driver": "570.26", **proof}],
    } | changes


def test_good_data_is_read() -> None:
    assert parse_cuda_releases(Table(_data(), file="cuda.toml")).releases[0].version == "12.8"


@pytest.mark.parametrize(
    "changes",
    [
        {"release": [{"version": "13.0", "source": "a test", "checked": date(2026, 12, 1)}]},
        {"release": [{"version": "12.8.1", "source": "a test", "checked": date(2026, 12, 1)}]},
        {"release": [{"version": "12.8", "driver": "x", "source": "a", "checked": date(2026, 12, 1)}]},
        {"release": []},
        {"forward": {"always": ["tpu"], "sometimes": [], "source": "a", "checked": date(2026, 12, 1)}},
        {"extra": 1},
    ],
)
def test_wrong_data_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(DataInvalid, match=r"cuda\.toml"):
        parse_cuda_releases(Table(_data(**changes), file="cuda.toml"))
