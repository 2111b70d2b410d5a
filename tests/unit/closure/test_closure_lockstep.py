"""One CUDA toolkit release for all its parts, against a little index that offers a newer one of each."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pytest

from qresolve.closure.failure import ClosureFailure
from qresolve.closure.lockstep import (
    check_lockstep,
    lockstep_constraints,
    parse_lockstep_rules,
    parse_toolkit_parts,
    predict_toolkit,
    read_lockstep_rules,
)
from qresolve.closure.request import Closure, ClosureRequest
from qresolve.closure.solve import marker_environment
from qresolve.errors import DataInvalid
from qresolve.lock.model import LockedPackage, LockedWheel
from qresolve.strict import Table
from tests.index_server import IndexServer, make_wheel
from tests.unit.closure.closure_support import RULES, close, user, versions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

_PINS = {"nv-runtime": "==13.0.96.*", "nv-nvcc": "==13.0.88.*", "nv-jitlink": "<14,>=13.0.88"}
_ENVIRONMENT = marker_environment(ClosureRequest(requirements=()))


def _toolkit(release: str, runtime: str, nvcc: str) -> tuple[Any, ...]:
    requires = (
        f'nv-runtime=={runtime}.*; extra == "cudart"',
        f'nv-nvcc=={nvcc}.*; extra == "nvcc"',
        f'nv-jitlink>={nvcc},<14; extra == "cudart"',
    )
    return (
        make_wheel("cuda-toolkit", release, requires=requires, extras=("cudart", "nvcc")),
        make_wheel("nv-runtime", runtime),
        make_wheel("nv-nvcc", nvcc, requires=("nv-runtime",)),
        make_wheel("nv-jitlink", nvcc),
        make_wheel("cuda-bindings", f"{release.rsplit('.', 1)[0]}.7"),
        make_wheel("cuda-python", f"{release.rsplit('.', 1)[0]}.7", requires=("cuda-bindings",)),
    )


@pytest.fixture
def server() -> Iterator[IndexServer]:
    with IndexServer() as server:
        server.add(*_toolkit("13.0.3", "13.0.96", "13.0.88"), *_toolkit("13.5.0", "13.5.1", "13.5.37"))
        server.add(make_wheel("cuda-python", "12.6.2"))
        server.add(make_wheel("torch", "2.14.0", requires=("cuda-toolkit[cudart]==13.0.3", "cuda-bindings<14")))
        server.add(make_wheel("engine", "1.0", requires=("torch==2.14.0", "nv-nvcc", "cuda-python", "nv-jitlink")))
        yield server


def _recorded(name: str, version: str) -> tuple[str, ...] | None:
    return {
        ("engine", "1.0"): ("torch==2.14.0", 'other==1; extra == "x"'),
        ("torch", "2.14.0"): ('cuda-toolkit[cudart]==13.0.3; platform_system == "Linux"',),
    }.get((name, version))


def _lines_up(closure: Closure) -> bool:
    parts = versions(closure)
    return all(parts[name].startswith("13.0.") for name in parts if name.startswith(("nv-", "cuda-")))


def test_parts_of_a_recorded_toolkit_come_from_that_release(server: IndexServer, tmp_path: Path) -> None:
    closure = close(
        user(server.url, tmp_path), "engine==1.0", requirements_of=_recorded, pins_of=lambda _release: _PINS
    )
    assert closure.toolkit == "13.0.3"
    assert _lines_up(closure)
    # One run was enough: nothing of another release was even looked at.
    assert not [line for line in server.requests if "13.5" in line]


def test_a_toolkit_that_is_not_recorded_is_read_from_the_index(server: IndexServer, tmp_path: Path) -> None:
    closure = close(user(server.url, tmp_path), "engine==1.0")
    assert closure.toolkit == "13.0.3"
    assert _lines_up(closure)


def test_uv_alone_mixes_them_so_the_tests_above_can_fail(server: IndexServer, tmp_path: Path) -> None:
    closure = close(user(server.url, tmp_path), "engine==1.0", lockstep_exceptions=tuple(_PINS), pins_of=lambda _: {})
    assert versions(closure)["nv-nvcc"] == "13.5.37"
    assert versions(closure)["nv-runtime"] == "13.0.96"


def test_a_wrong_prediction_is_corrected_by_what_torch_pins(server: IndexServer, tmp_path: Path) -> None:
    pins = {"13.0.3": _PINS, "13.5.0": {"nv-nvcc": "==13.5.37.*"}}
    closure = close(
        user(server.url, tmp_path),
        "engine==1.0",
        requirements_of=lambda name, _version: ("cuda-toolkit==13.5.0",) if name == "engine" else None,
        pins_of=pins.get,
    )
    assert closure.toolkit == "13.0.3"
    assert _lines_up(closure)


def test_a_prediction_that_rules_out_the_real_release_does_not_fail(server: IndexServer, tmp_path: Path) -> None:
    pins = {"13.0.3": _PINS, "13.5.0": {"nv-runtime": "==13.5.1.*"}}
    closure = close(
        user(server.url, tmp_path),
        "engine==1.0",
        requirements_of=lambda name, _version: ("cuda-toolkit==13.5.0",) if name == "engine" else None,
        pins_of=pins.get,
    )
    assert closure.toolkit == "13.0.3"
    assert _lines_up(closure)


def test_a_part_that_cannot_come_from_the_release_is_a_cuda_failure(server: IndexServer, tmp_path: Path) -> None:
    with pytest.raises(ClosureFailure) as caught:
        close(
            user(server.url, tmp_path),
            "engine==1.0",
            "nv-nvcc==13.5.37",
            requirements_of=_recorded,
            pins_of=lambda _release: _PINS,
        )
    assert (caught.value.reason, caught.value.package) == ("cuda", "nv-nvcc")
    assert caught.value.exit_code == 3


def test_the_user_may_free_a_part(server: IndexServer, tmp_path: Path) -> None:
    closure = close(
        user(server.url, tmp_path),
        "engine==1.0",
        "nv-nvcc==13.5.37",
        requirements_of=_recorded,
        pins_of=lambda _release: _PINS,
        lockstep_exceptions=("nv-nvcc",),
    )
    assert versions(closure)["nv-nvcc"] == "13.5.37"
    assert versions(closure)["nv-jitlink"] == "13.0.88"


def test_a_closure_without_a_toolkit_has_none(tmp_path: Path) -> None:
    with IndexServer() as server:
        server.add(make_wheel("plain", "1.0"))
        assert close(user(server.url, tmp_path), "plain").toolkit is None


def _closure(**packages: str) -> Closure:
    wheel = LockedWheel(filename="x-1-py3-none-any.whl", url="http://h/x-1-py3-none-any.whl", sha256="0" * 64)
    return Closure(
        packages=tuple(
            LockedPackage(name=name.replace("_", "-"), version=version, wheel=wheel)
            for name, version in packages.items()
        )
    )


def test_each_part_of_another_release_is_named() -> None:
    closure = _closure(nv_runtime="13.0.96", nv_nvcc="13.5.37", cuda_python="12.6.2", dsl_libs_cu12="4.8.0")
    found = check_lockstep(closure, "13.0.3", _PINS, RULES)
    assert [(one.package, one.version) for one in found] == [("nv-nvcc", "13.5.37"), ("cuda-python", "12.6.2")]
    assert "13.0.88" in str(found[0])


def test_a_package_named_for_another_major_is_a_violation_unless_it_is_an_exception() -> None:
    found = check_lockstep(_closure(cudnn_cu12="9.1", cudnn_cu13="9.1", dsl_libs_cu12="4.8.0"), "13.0.3", _PINS, RULES)
    assert [one.package for one in found] == ["cudnn-cu12"]


def test_an_exception_is_neither_held_nor_checked() -> None:
    rules = RULES.without(("nv-nvcc",))
    assert not [text for text in lockstep_constraints("13.0.3", _PINS, rules) if text.startswith("nv-nvcc")]
    assert check_lockstep(_closure(nv_nvcc="13.5.37"), "13.0.3", _PINS, rules) == ()


def test_members_are_held_at_major_and_minor_beside_what_the_metapackage_says() -> None:
    assert "cuda-python==13.0.*" in lockstep_constraints("13.0.3", _PINS, RULES)
    both = lockstep_constraints("13.0.3", {"cuda-bindings": ">=13.0.1"}, RULES)
    assert "cuda-bindings>=13.0.1,==13.0.*" in both


def test_prediction_follows_pins_only() -> None:
    def predict(text: str, **declared: tuple[str, ...]) -> str | None:
        return predict_toolkit(
            (text,),
            lambda name, _version: declared.get(name),
            environment=_ENVIRONMENT,
            metapackage="cuda-toolkit",
        )

    assert predict("engine==1", engine=("torch==2",), torch=("cuda-toolkit[a]==13.0.3",)) == "13.0.3"
    assert predict("engine==1", engine=("torch>=2",), torch=("cuda-toolkit==13.0.3",)) is None
    assert predict("engine==1", engine=('cuda-toolkit==13.0.3; sys_platform == "win32"',)) is None
    assert predict("engine==1", engine=('cuda-toolkit==13.0.3; extra == "gpu"',)) is None
    assert predict("engine[gpu]==1", engine=('cuda-toolkit==13.0.3; extra == "gpu"',)) == "13.0.3"
    assert predict("engine==1", engine=("engine==1",)) is None


def test_the_parts_of_a_toolkit_are_read_from_its_requirements() -> None:
    parts = parse_toolkit_parts(('Nv_Runtime==13.0.96.*; extra == "a"', 'nv-runtime<14; extra == "b"', "nv-free", "??"))
    assert parts == {"nv-runtime": "<14,==13.0.96.*"}


def test_the_shipped_rules_hold_what_uv_is_known_to_mix() -> None:
    rules = read_lockstep_rules()
    assert {"cuda-python", "cuda-bindings", "nvidia-nvjitlink"} <= set(rules.members)
    assert "nvidia-cutlass-dsl-libs-cu12" in rules.exceptions


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"schema": 2}, "schema"),
        ({"other": 1}, "other"),
        ({"member": [{"name": "a", "source": "s"}]}, "member[0].date"),
        ({"exception": [{"name": "cuda-python", "why": "w", "source": "s", "date": None}]}, "exception[0].name"),
    ],
)
def test_a_wrong_rules_file_is_refused_with_its_place(change: dict[str, Any], where: str) -> None:
    values = {
        "schema": 1,
        "metapackage": "cuda-toolkit",
        "major_suffix": "-cu",
        "member": [{"name": "cuda-python", "source": "s", "date": date(2026, 1, 1)}],
    }
    with pytest.raises(DataInvalid, match=r"lockstep\.toml") as caught:
        parse_lockstep_rules(Table({**values, **change}, file="lockstep.toml"))
    assert where in caught.value.message
