"""The closure on the real index, as the user's uv and pip are set up."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from qresolve.closure.failure import ClosureFailure
from qresolve.closure.indexes import UserIndexes, read_user_indexes, searched_urls
from qresolve.closure.lockstep import check_lockstep, read_lockstep_rules
from qresolve.closure.request import ClosureRequest
from qresolve.closure.simple import read_project_files
from qresolve.closure.solve import run_closure
from qresolve.closure.tags import select_wheel, target_tags
from qresolve.closure.uv import run_uv_compile
from qresolve.http.client import open_http_client
from qresolve.wheels.index import cuda_toolkit_pins

pytestmark = [pytest.mark.network, pytest.mark.timeout(600)]

_ENGINE = "vllm==0.33.0"
# Read by a person from METADATA of the wheels: torch 2.14.0, which this engine pins, pins cuda-toolkit 13.0.3.
_TOOLKIT = "13.0.3"


@pytest.fixture(scope="module")
def indexes() -> UserIndexes:
    found = read_user_indexes(os.environ, Path.home())
    with open_http_client(found) as client:
        if read_project_files("vllm", searched_urls(found), client) is None:
            pytest.skip("no package index that is set up answers for vllm")
    return found


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_cuda_part_comes_from_the_toolkit_that_torch_pins(indexes: UserIndexes, machine: str) -> None:
    closure = run_closure(ClosureRequest(requirements=(_ENGINE,), machine=machine), indexes)
    pins = cuda_toolkit_pins(_TOOLKIT)
    assert pins is not None
    assert closure.toolkit is not None
    assert closure.toolkit.startswith(_TOOLKIT)
    assert check_lockstep(closure, _TOOLKIT, pins, read_lockstep_rules()) == ()
    parts = {package.name: package.version for package in closure.packages if package.name in pins}
    assert {"nvidia-cuda-nvcc", "nvidia-cuda-runtime", "nvidia-nvvm", "nvidia-nvjitlink"} <= set(parts)
    assert closure.version_of("cuda-python") == closure.version_of("cuda-bindings")
    ranks = target_tags("3.12", machine, "2.35")
    assert all(select_wheel([package.wheel.filename], ranks) for package in closure.packages)
    assert all(
        re.fullmatch("[0-9a-f]{64}", package.wheel.sha256) and package.wheel.size for package in closure.packages
    )


def test_uv_alone_does_mix_toolkits(indexes: UserIndexes) -> None:
    """If this fails, uv or the packages hold the parts together themselves, and lockstep may be retired."""
    closure = run_uv_compile(ClosureRequest(requirements=(_ENGINE,)), indexes)
    pins = cuda_toolkit_pins(_TOOLKIT)
    assert pins is not None
    assert check_lockstep(closure, _TOOLKIT, pins, read_lockstep_rules())


@pytest.mark.parametrize("offline", [False, True])
def test_the_package_that_needs_a_newer_glibc_is_named(indexes: UserIndexes, offline: bool) -> None:
    run_closure(ClosureRequest(requirements=(_ENGINE,)), indexes)
    with pytest.raises(ClosureFailure) as caught:
        run_closure(ClosureRequest(requirements=(_ENGINE,), glibc="2.28", offline=offline), indexes)
    assert caught.value.reason == "glibc"
    assert caught.value.message.startswith("llguidance needs glibc >= 2.31")
    assert caught.value.hint == "--glibc 2.31"


def test_the_same_cutoff_gives_the_same_closure_online_and_offline(indexes: UserIndexes) -> None:
    request = ClosureRequest(requirements=(_ENGINE,), cutoff="2026-11-28")
    offline = ClosureRequest(requirements=(_ENGINE,), cutoff="2026-11-28", offline=True)
    first = run_closure(request, indexes)
    assert run_closure(offline, indexes) == first
    assert all((package.wheel.upload_time or "") < "2026-11-29" for package in first.packages)
