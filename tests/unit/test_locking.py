"""From a question to a lock, on the real records, with a made-up closure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from qresolve.closure.failure import ClosureFailure, parse_failure
from qresolve.closure.request import Closure, ClosureRequest
from qresolve.edges import Edges
from qresolve.errors import LowerClass, NoResolution, QResolveError
from qresolve.knowledge.engine import load_engine, read_releases
from qresolve.lock.model import LockedPackage, LockedWheel
from qresolve.locking import LockRequest, make_lock
from qresolve.measured import row_for
from qresolve.question import Question, ask_question
from qresolve.setting import Setting
from qresolve.target.drivers import read_cuda_releases
from qresolve.target.target import build_target, read_target_data

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NEWEST = read_releases("vllm")[0].version
REFUSED = """error: Failed to fetch: `https://index.example/simple/vllm/`
  Caused by: error sending request for url (https://index.example/simple/vllm/)
  Caused by: tcp connect error: Connection refused (os error 111)
"""


def _package(name: str, version: str) -> LockedPackage:
    filename = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    row = row_for(name, version, "x86_64")
    wheel = LockedWheel(
        filename=filename,
        url=f"https://files.invalid/{filename}",
        sha256=row.sha256 if row is not None else "0" * 64,
        size=1,
    )
    return LockedPackage(name=name, version=version, wheel=wheel)


def _closed(request: ClosureRequest, changes: Mapping[str, str | None] | None = None) -> Closure:
    """The engine's own pins as a closed set, with some packages changed or (None) left out."""
    version = request.requirements[0].partition("==")[2]
    versions: dict[str, str | None] = {
        **{pin.package: pin.version for pin in load_engine("vllm", version).release.pins},
        "vllm": version,
        **(changes or {}),
    }
    return Closure(packages=tuple(_package(name, found) for name, found in sorted(versions.items()) if found))


def _edges(close: Callable[[ClosureRequest], Closure] = _closed, *, newer: str | None = None) -> Edges:
    return Edges(
        close=close,
        record=lambda package: f"sha256:{package.name}",
        measure=lambda _: None,
        newer=lambda project, known: newer,
        say=lambda line: None,
    )


def _question(
    gpu: str, formats: str, *, engine: str | None = None, allow: str | None = None, **options: str
) -> Question:
    data = read_target_data()
    return ask_question(
        formats=[formats],
        target=build_target(gpu=[gpu], data=data, **options),  # type: ignore[arg-type]
        architectures=data.architectures,
        engine=engine,
        allow=[allow] if allow else [],
    )


def _lock(question: Question, edges: Edges | None = None) -> object:
    return make_lock(question, LockRequest(requested=()), edges or _edges(), read_cuda_releases()).lock


def test_sm120_holds_both_fp4_formats_by_settings_of_their_own() -> None:
    locked = make_lock(_question("sm120", "mxfp4,nvfp4"), LockRequest(requested=()), _edges(), read_cuda_releases())
    assert {(row.format, row.verdict) for row in locked.lock.formats} == {("mxfp4", "native"), ("nvfp4", "native")}
    paths = {setting.path for setting in locked.lock.settings}
    assert "kernel_config.linear_backend_per_quant.mxfp4" in paths
    # One backend for every linear layer would make fp8 layers weight-only.
    assert "kernel_config.linear_backend" not in paths


def test_a_gated_package_says_why_it_is_there() -> None:
    locked = make_lock(_question("sm120", "mxfp4"), LockRequest(requested=()), _edges(), read_cuda_releases())
    reasons = {package.name: package.because for package in locked.lock.packages}
    humming = reasons["humming-kernels"]
    assert humming is not None
    assert humming.record == "sha256:humming-kernels"
    assert any("humming" in route for route in humming.routes)
    assert any(gate.endswith("/humming") for gate in humming.gates)


def test_the_order_of_formats_changes_nothing() -> None:
    assert _lock(_question("sm120", "mxfp4,nvfp4,fp8")) == _lock(_question("sm120", "fp8,nvfp4,mxfp4"))


def test_a_lower_class_is_refused_and_names_how_to_accept_it() -> None:
    with pytest.raises(LowerClass) as caught:
        _lock(_question("sm90", "mxfp4"))
    assert "mixed" in caught.value.message
    assert "HummingMxFp4LinearKernel" in caught.value.message
    assert caught.value.hint is not None
    assert "--allow" in caught.value.hint


def test_an_allowed_lower_class_is_locked_and_recorded() -> None:
    lock = make_lock(
        _question("sm90", "mxfp4", allow="mxfp4=mixed"), LockRequest(requested=()), _edges(), read_cuda_releases()
    ).lock
    assert lock.allowed == ("mxfp4=mixed",)
    assert [row.verdict for row in lock.formats] == ["mixed"]


def test_what_the_closure_lacks_is_judged() -> None:
    """Without Humming the core asks for b12x as well; a closure that does not bring it either is no environment."""
    with pytest.raises(NoResolution, match="b12x"):
        _lock(
            _question("sm120", "mxfp4", engine=f"vllm=={NEWEST}"),
            _edges(lambda request: _closed(request, {"humming-kernels": None, "b12x": None})),
        )


def test_a_pinned_release_whose_closure_fails_is_an_error() -> None:
    def close(request: ClosureRequest) -> Closure:
        raise NoResolution("llguidance needs glibc >= 2.31", hint="--glibc 2.31")

    with pytest.raises(NoResolution, match=r"glibc >= 2\.31"):
        _lock(_question("sm120", "nvfp4", engine=f"vllm=={NEWEST}"), _edges(close))


def test_an_unpinned_release_whose_closure_fails_makes_room_for_an_older_one() -> None:
    def close(request: ClosureRequest) -> Closure:
        if request.requirements[0] == f"vllm=={NEWEST}":
            raise NoResolution("llguidance needs glibc >= 2.31", hint="--glibc 2.31")
        return _closed(request)

    locked = make_lock(_question("sm120", "nvfp4"), LockRequest(requested=()), _edges(close), read_cuda_releases())
    assert locked.lock.engine_version != NEWEST
    assert [row.verdict for row in locked.lock.formats] == ["native"]
    assert any(NEWEST in note and "llguidance" in note for note in locked.notes)


def test_an_index_that_cannot_be_reached_is_asked_once() -> None:
    """Every further release would wait for the same index again, and the last word would be the same."""
    asked: list[str] = []

    def close(request: ClosureRequest) -> Closure:
        asked.append(request.requirements[0])
        raise ClosureFailure(parse_failure(REFUSED))

    with pytest.raises(NoResolution, match=r"index\.example.* cannot be reached \(Connection refused\)"):
        _lock(_question("sm120", "nvfp4"), _edges(close))
    assert asked == [f"vllm=={NEWEST}"]


def test_when_every_release_fails_the_newest_ones_reason_is_given() -> None:
    def close(request: ClosureRequest) -> Closure:
        raise NoResolution(f"nothing fits {request.requirements[0]}")

    with pytest.raises(NoResolution, match=NEWEST.replace(".", r"\.")):
        _lock(_question("sm120", "nvfp4"), _edges(close))


def test_a_release_newer_than_the_records_is_named_and_not_locked() -> None:
    locked = make_lock(
        _question("sm120", "nvfp4"), LockRequest(requested=()), _edges(newer="99.0.0"), read_cuda_releases()
    )
    assert locked.lock.engine_version == NEWEST
    assert any("99.0.0" in note for note in locked.notes)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"python": "3.10"}, "Python"),
        ({"cuda": "12.9"}, "CUDA 12.9"),
        ({"driver": "550.54.14"}, "driver 550.54.14"),
    ],
)
def test_what_a_release_cannot_do_for_the_target_is_said(options: dict[str, str], words: str) -> None:
    with pytest.raises(NoResolution, match=words):
        _lock(_question("sm120", "nvfp4", engine=f"vllm=={NEWEST}", **options))


def test_an_unknown_driver_blocks_nothing_and_the_floor_is_locked() -> None:
    lock = make_lock(_question("sm120", "nvfp4"), LockRequest(requested=()), _edges(), read_cuda_releases()).lock
    assert lock.target.driver is None
    assert lock.driver_floor is not None
    assert lock.driver_floor.startswith("580.")


def test_settings_hold_for_every_gpu_of_a_fleet() -> None:
    lock = make_lock(_question("sm120,sm100", "nvfp4"), LockRequest(requested=()), _edges(), read_cuda_releases()).lock
    assert {row.arch for row in lock.formats} == {"sm100", "sm120"}
    assert Setting(path="kernel_config.linear_backend_per_quant.nvfp4_w4a4", value="cutlass") in lock.settings


def test_the_records_that_held_the_cuda_parts_together_are_in_the_digest() -> None:
    def close(request: ClosureRequest) -> Closure:
        return Closure(packages=_closed(request).packages, toolkit="13.0.3")

    held = make_lock(_question("sm120", "nvfp4"), LockRequest(requested=()), _edges(close), read_cuda_releases()).lock
    free = make_lock(_question("sm120", "nvfp4"), LockRequest(requested=()), _edges(), read_cuda_releases()).lock
    assert {"lockstep:rules", "toolkit:13.0.3"} == {key for key, _ in held.data} - {key for key, _ in free.data}
    assert held.data_digest != free.data_digest


def test_an_accepted_lower_class_is_no_reason_for_a_newer_release() -> None:
    """Block FP8 on sm89 is native in the newest release by a setting; accepting less must not change the lock."""
    strict = make_lock(_question("sm89", "fp8-block"), LockRequest(requested=()), _edges(), read_cuda_releases()).lock
    lax = make_lock(
        _question("sm89", "fp8-block", allow="fp8-block=weight-only"),
        LockRequest(requested=()),
        _edges(),
        read_cuda_releases(),
    ).lock
    assert [row.verdict for row in strict.formats] == ["native"]
    assert lax.formats[0].verdict == "native"
    assert (lax.engine_version, lax.settings) == (strict.engine_version, strict.settings)


def test_a_wheel_of_the_same_name_that_was_not_measured_is_not_native_by_its_own_kernels() -> None:
    """On sm100 NVFP4 is native by a kernel of the wheel itself; of another build nobody knows that."""

    def rebuilt(request: ClosureRequest) -> Closure:
        closed = _closed(request)
        return replace(
            closed,
            packages=tuple(
                replace(package, wheel=replace(package.wheel, sha256="f" * 64)) if package.name == "vllm" else package
                for package in closed.packages
            ),
        )

    question = _question("sm100", "nvfp4", engine=f"vllm=={NEWEST}", nvcc="none")
    with pytest.raises(QResolveError, match="not a file that was measured") as caught:
        _lock(question, _edges(rebuilt))
    assert caught.value.exit_code in {4, 7}
    assert make_lock(_question("sm100", "nvfp4"), LockRequest(requested=()), _edges(), read_cuda_releases()).lock


CUBIN = "package.flashinfer-cubin"


def test_a_package_that_is_assumed_is_asked_for_and_one_that_is_assumed_away_is_left_out() -> None:
    asked: list[ClosureRequest] = []

    def close(request: ClosureRequest) -> Closure:
        asked.append(request)
        return _closed(request, {"flashinfer-cubin": "0.7.2.post1", "ninja": None})

    question = _assuming(f"{CUBIN}=0.7.2.post1", "package.ninja=absent")
    make_lock(question, LockRequest(requested=()), _edges(close), read_cuda_releases())
    assert "flashinfer-cubin==0.7.2.post1" in asked[0].requirements
    assert asked[0].excludes == ("ninja",)
    bound = {package: index.url for index in asked[0].indexes for package in index.packages}
    assert bound["flashinfer-cubin"] == "https://flashinfer.ai/whl"


@pytest.mark.parametrize("found", [None, "0.7.1"])
def test_a_lock_never_holds_by_a_package_that_is_only_assumed(found: str | None) -> None:
    question = _assuming(f"{CUBIN}=0.7.2.post1")
    edges = _edges(lambda request: _closed(request, {"flashinfer-cubin": found}))
    with pytest.raises(NoResolution, match=r"0\.7\.2\.post1 was assumed, and in the closed set it is (absent|0\.7\.1)"):
        make_lock(question, LockRequest(requested=()), edges, read_cuda_releases())


def _assuming(*facts: str) -> Question:
    data = read_target_data()
    target = build_target(gpu=["sm120"], data=data)
    return ask_question(
        formats=["nvfp4"],
        target=target,
        architectures=data.architectures,
        engine=f"vllm=={NEWEST}",
        assume=facts,
    )
