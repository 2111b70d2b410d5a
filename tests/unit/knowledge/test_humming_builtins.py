"""Humming's compiler needs a file that NVRTC opens by name: without it the picked kernel fails at its first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from qresolve.setting import Setting
from qresolve.situation import Host
from qresolve.ways import ways
from tests.knowledge_support import release_bench

if TYPE_CHECKING:
    from qresolve.facts import Value

BARE = Host.without_toolkit()
FIXED = "{site_packages}/nvidia/cu13/lib:{LD_LIBRARY_PATH}"
NAMED = {"config.kernel_config.linear_backend_per_quant.mxfp4": "humming"}


@pytest.mark.parametrize(
    ("builtins", "variable", "verdict"),
    [(False, "<host>", "broken"), (True, "<host>", "native"), (False, FIXED, "native")],
)
def test_it_compiles_where_nvrtc_finds_its_builtins(*, builtins: bool, variable: str, verdict: str) -> None:
    assumed: dict[str, Value] = {**NAMED, "host.loads-nvrtc-builtins": builtins, "env.LD_LIBRARY_PATH": variable}
    bench = release_bench("0.33.0", "mxfp4@w4a4:dense", 120, host=BARE, machine="x86_64", assumed=assumed)
    assert {one.outcome.verdict for one in bench.outcomes()} == {verdict}


def test_a_lock_points_the_loader_at_the_wheels() -> None:
    assumed: dict[str, Value] = {"host.loads-nvrtc-builtins": False}
    bench = release_bench("0.33.0", "mxfp4@w4a4:dense", 120, host=Host(), machine="x86_64", assumed=assumed)
    native = next(way for way in ways(bench) if way.outcome.verdict == "native")
    assert Setting(env="LD_LIBRARY_PATH", value=FIXED) in native.settings
