"""What tests of vLLM 0.9.2 to 0.19.0 share: releases, hosts, checkpoints, and the outcome on measured images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve.situation import Host
from qresolve.ways import ways
from tests.knowledge_support import engine, release_bench

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qresolve.facts import Value
    from qresolve.selector import Outcome
    from qresolve.ways import Way

RELEASES = ("0.9.2", "0.11.2", "0.12.0", "0.14.1", "0.15.1", "0.16.0", "0.18.1", "0.19.0")
BARE = Host.without_toolkit()
TOOLKIT = Host(nvcc="12.9", ninja=True)
ANY_HOST = Host()
NOTHING: Mapping[str, Value] = {}
# A checkpoint of the fp8 quantization, as DeepSeek's and many of Qwen's are; the reference is of compressed-tensors.
FP8: Mapping[str, Value] = {"workload.quantizer": "fp8"}
MODELOPT: Mapping[str, Value] = {"workload.quantizer": "modelopt"}


def judged(release: str, key: str, sm: int, *, host: Host = BARE, assumed: Mapping[str, Value] = NOTHING) -> Outcome:
    """The one outcome on a host that is known; one with a toolkit shows its nvcc on PATH."""
    known = {**({"host.nvcc-on-path": True} if host.nvcc is not None else {}), **assumed}
    found = release_bench(release, key, sm, host=host, machine="x86_64", assumed=known).outcomes()
    assert len(found) == 1, [item.outcome for item in found]
    return found[0].outcome


def name_of(release: str, outcome: Outcome) -> str | None:
    return None if outcome.route is None else engine("vllm", release).routes[outcome.route].name


def first_native(release: str, key: str, sm: int) -> Way | None:
    """The way with the fewest settings that is native on every host."""
    laid_out = release_bench(release, key, sm, host=ANY_HOST, machine="x86_64", assumed=NOTHING)
    return next((way for way in ways(laid_out) if way.outcome.verdict == "native"), None)


def unless_torch_lacks_it(release: str, sm: int, verdict: str) -> str:
    """The verdict, but for 0.9.2 on Blackwell: its torch, as the default index has it, is built with CUDA 12.6."""
    return "unknown" if release == "0.9.2" and sm >= 100 else verdict
