from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from qresolve.errors import DataInvalid, UsageError
from qresolve.strict import Table
from qresolve.target.platforms import (
    parse_glibc,
    parse_machine,
    parse_platform,
    parse_platforms,
    parse_python,
    read_platforms,
)

PLATFORMS = read_platforms()


@pytest.mark.parametrize(
    ("text", "glibc"),
    [
        ("ubuntu20.04", "2.31"),
        ("ubuntu22.04", "2.35"),
        ("Ubuntu 24.04.3", "2.39"),
        ("noble", "2.39"),
        ("debian11", "2.31"),
        ("debian12.5", "2.36"),
        ("debian13", "2.41"),
        ("rhel8", "2.28"),
        ("Rocky Linux 9.4", "2.34"),
        ("almalinux9", "2.34"),
        ("rhel-10", "2.39"),
        ("amazonlinux2023", "2.34"),
        ("Amazon Linux 2023", "2.34"),
        ("al2023", "2.34"),
        ("sles15.5", "2.31"),
        ("sles15sp6", "2.38"),
        ("jetpack6.2", "2.35"),
        ("jetpack7", "2.39"),
        ("DGX OS 7", "2.39"),
    ],
)
def test_the_glibc_of_a_system(text: str, glibc: str) -> None:
    assert parse_platform(text, PLATFORMS).glibc == glibc


def test_jetpack_is_for_arm_alone() -> None:
    assert parse_platform("jetpack6", PLATFORMS).machine == "aarch64"
    assert parse_platform("dgxos7", PLATFORMS).machine is None


def test_every_recorded_name_is_read() -> None:
    for platform in PLATFORMS.platforms:
        for name in (platform.name, *platform.also):
            assert parse_platform(name, PLATFORMS) is platform
            assert parse_platform(name.upper(), PLATFORMS) is platform


@pytest.mark.parametrize(
    ("text", "says"), [("windows", "Windows"), ("Windows 11", "Windows"), ("macOS", "macOS"), ("alpine3.20", "musl")]
)
def test_systems_without_support_are_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        parse_platform(text, PLATFORMS)
    assert caught.value.hint


def test_an_unknown_system_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="nearest names are") as caught:
        parse_platform("ubuntu24.4", PLATFORMS)
    assert caught.value.hint == "--os ubuntu24.04"
    with pytest.raises(UsageError, match="ldd --version"):
        parse_platform("plan9", PLATFORMS)


def test_glibc_versions() -> None:
    assert parse_glibc("2.35") == "2.35"
    assert parse_glibc("glibc 2.28") == "2.28"
    for wrong in ("", "2", "3.1", "2.35.1", "musl"):
        with pytest.raises(UsageError, match="no glibc version"):
            parse_glibc(wrong)


def test_machines() -> None:
    assert parse_machine("AMD64") == "x86_64"
    assert parse_machine("arm64") == "aarch64"
    with pytest.raises(UsageError, match="ppc64le"):
        parse_machine("ppc64le")


def test_python_versions() -> None:
    assert parse_python("3.12") == "3.12"
    for wrong, hint in (("3.12.1", "--python 3.12"), ("3", "--python 3.12"), ("py312", "--python 3.12")):
        with pytest.raises(UsageError, match="not a Python version to lock for") as caught:
            parse_python(wrong)
        assert caught.value.hint == hint


def test_the_default_is_a_recorded_system() -> None:
    assert PLATFORMS.default in PLATFORMS.platforms
    assert parse_python(PLATFORMS.default_python)


def _data(**changes: Any) -> dict[str, Any]:
    row = {"name": "os1", "glibc": "2.35", "source": "a test", "checked": date(2026, 12, 1)}
    return {
        "defaults": {"os": "os1", "python": "3.12", "machine": "x86_64"},
        "platform": [row | changes.pop("row", {})],
    } | changes


@pytest.mark.parametrize(
    "changes",
    [
        {"row": {"glibc": "2"}},
        {"row": {"kernel": "6"}},
        {"row": {"machine": "riscv64"}},
        {"row": {"also": ["OS 1"]}},
        {"defaults": {"os": "os2", "python": "3.12", "machine": "x86_64"}},
    ],
)
def test_wrong_data_is_refused(changes: dict[str, Any]) -> None:
    assert parse_platforms(Table(_data(), file="platforms.toml")).default.glibc == "2.35"
    with pytest.raises(DataInvalid, match=r"platforms\.toml"):
        parse_platforms(Table(_data(**changes), file="platforms.toml"))
