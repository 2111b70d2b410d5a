"""``qresolve lock --cuda``: builds for another CUDA than the default index's, from indexes on this machine.

The engine's wheels hold real kernels; what was read in them decides, not the local version in their name.
"""

from __future__ import annotations

import email
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tomli

from qresolve.cli.main import main
from tests.fake_stack import X86, isolate_user, stack
from tests.index_server import IndexServer, MadeWheel, labelled, make_variants, make_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FATBINS = Path(__file__).resolve().parents[2] / "data" / "fatbins"
LIBRARY = "vllm/_C_stable_libtorch.abi3.so"
OF_CUDA_12 = FATBINS / "native_cuda12" / "_C_stable_libtorch.abi3.so"
OF_CUDA_13 = FATBINS / "native" / "_C_stable_libtorch.abi3.so"
RUNTIME = "nvidia-cuda-runtime-cu12"
OLD = "0.21.0"
ASKED = ["lock", "--gpu", "sm120", "--formats", "nvfp4", "--cuda", "12.9"]


def version_of(name: str, release: str) -> str:
    return next(wheel.version for wheel in stack(release) if wheel.name == name)


def engine(library: Path, version: str, *, at: str = LIBRARY) -> MadeWheel:
    """A build of vLLM for CUDA 12: its one library, and the requirements of the release without CUDA 13's parts."""
    own = next(wheel for wheel in stack(version.partition("+")[0]) if wheel.name == "vllm")
    requires = email.message_from_bytes(own.metadata).get_all("Requires-Dist") or []
    kept = [one for one in requires if not one.startswith("nvidia-cuda-")]
    files = {at: library.read_bytes()}
    return make_wheel("vllm", version, requires=[*kept, RUNTIME], tag=f"cp38-abi3-{X86}", files=files)


def torch(version: str) -> MadeWheel:
    return make_wheel("torch", version, requires=(f"{RUNTIME}==12.9.79",))


class Place:
    """The default index, PyTorch's of the lane and vLLM's of the release."""

    def __init__(self, default: IndexServer, lane: IndexServer, own: IndexServer) -> None:
        self.default, self.lane, self.own = default, lane, own

    @property
    def indexes(self) -> list[str]:
        return ["--index", f"pytorch={self.lane.url}=torch", "--index", f"vllm={self.own.url}=vllm"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    isolate_user(tmp_path, monkeypatch)
    with IndexServer() as default, IndexServer(formats=("html",)) as lane, IndexServer() as own:
        for release in (None, OLD):
            default.add(*stack(release))
        default.add(make_wheel(RUNTIME, "12.9.79"))
        lane.add(torch(f"{version_of('torch', OLD)}+cu129"), upload_time=None)
        monkeypatch.setenv("UV_DEFAULT_INDEX", default.url)
        yield Place(default, lane, own)


def locked() -> Mapping[str, Any]:
    return tomli.loads(Path("pylock.toml").read_text(encoding="utf-8"))


def packages() -> dict[str, Any]:
    return {package["name"]: package for package in locked()["packages"]}


def test_the_build_of_a_lane_is_opened_and_locked_with_the_torch_of_the_lane(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.own.add(engine(OF_CUDA_12, f"{OLD}+cu129"))
    assert main([*ASKED, "--engine", f"vllm=={OLD}", *place.indexes]) == 0
    found, tool = packages(), locked()["tool"]["qresolve"]
    assert found["vllm"]["version"] == f"{OLD}+cu129"
    assert found["vllm"]["index"] == place.own.url
    assert found["vllm"]["tool"]["qresolve"]["cuda"] == "12.9"
    assert found["torch"]["version"] == f"{version_of('torch', OLD)}+cu129"
    assert found["torch"]["index"] == place.lane.url
    assert tool["target"]["cuda"] == "12.9"
    (row,) = tool["formats"]
    assert (row["verdict"], row["route"]) == ("native", "CutlassNvFp4LinearKernel")
    first = Path("pylock.toml").read_bytes()
    assert main([*ASKED, "--engine", f"vllm=={OLD}", *place.indexes, "--offline"]) == 0
    assert Path("pylock.toml").read_bytes() == first


def test_without_a_release_the_newest_of_the_lane_is_taken_and_the_newer_one_is_named(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.own.add(engine(OF_CUDA_12, f"{OLD}+cu129"))
    assert main([*ASKED, *place.indexes]) == 0
    assert packages()["vllm"]["version"] == f"{OLD}+cu129"
    said = capsys.readouterr().err
    assert "no build for CUDA 12.9: its wheels are built with 13.0" in said
    assert f"the last known release with one is {OLD}" in said


def test_a_build_of_the_lane_without_the_kernel_is_not_native(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """What the default index's build of that release has says nothing of another build."""
    place.own.add(engine(OF_CUDA_12, f"{OLD}+cu129", at="vllm/_other.abi3.so"))
    assert main([*ASKED, "--engine", f"vllm=={OLD}", *place.indexes]) == 4
    assert "native was wanted" in capsys.readouterr().err
    assert not Path("pylock.toml").exists()


def test_a_wheel_that_cannot_be_opened_is_not_native(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.own.add(engine(OF_CUDA_12, f"{OLD}+cu129"), ranges=False, truncate=100)
    assert main([*ASKED, "--engine", f"vllm=={OLD}", *place.indexes]) in {3, 4, 7}
    assert not Path("pylock.toml").exists()


def test_a_wheel_is_of_the_cuda_that_its_images_say_whatever_its_name(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.own.add(engine(OF_CUDA_13, f"{OLD}+cu129"))
    assert main([*ASKED, "--engine", f"vllm=={OLD}", *place.indexes]) == 3
    error = capsys.readouterr().err
    assert f"vllm-{OLD}+cu129-cp38-abi3-{X86}.whl is compiled with CUDA 13.0, as its images say" in error
    assert not Path("pylock.toml").exists()


def test_torch_of_another_lane_is_refused_beside_the_build(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.own.add(engine(OF_CUDA_12, f"{OLD}+cu129"))
    only_engine = ["--index", f"vllm={place.own.url}=vllm", "--index", f"pytorch={place.default.url}=torch"]
    place.default.add(torch(f"{version_of('torch', OLD)}+cu130"))
    assert main([*ASKED, "--engine", f"vllm=={OLD}", *only_engine]) == 3
    assert f"torch {version_of('torch', OLD)}+cu130 is of CUDA 13.0" in capsys.readouterr().err


def test_a_wheel_that_the_user_built_for_the_lane_is_locked_where_no_release_has_one(
    place: Place, tmp_path: Path
) -> None:
    newest = version_of("vllm", "0.33.0")
    made = engine(OF_CUDA_12, f"{newest}+mine")
    (tmp_path / made.filename).write_bytes(made.content)
    place.lane.add(torch(f"{version_of('torch', newest)}+cu129"), upload_time=None)
    lane = ["--index", f"pytorch={place.lane.url}=torch"]
    assert main([*ASKED, "--wheel", str(tmp_path / made.filename), *lane]) == 0
    assert packages()["vllm"]["version"] == f"{newest}+mine"
    assert packages()["torch"]["version"] == f"{version_of('torch', newest)}+cu129"
    assert locked()["tool"]["qresolve"]["target"]["cuda"] == "12.9"


def test_explain_does_not_say_native_of_a_build_that_nobody_opened(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["explain", "--gpu", "sm120", "--formats", "nvfp4", "--cuda", "12.9", "--engine", f"vllm=={OLD}"])
    said = capsys.readouterr()
    assert code in {4, 7}
    assert "another build than the one that was measured" in said.out
    assert "`lock` refuses" not in said.err
    assert main(["explain", "--gpu", "sm120", "--formats", "nvfp4", "--engine", f"vllm=={OLD}"]) == 0


def test_explain_of_a_lane_that_no_release_has_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--gpu", "sm120", "--formats", "nvfp4", "--cuda", "12.6"]) == 3
    assert "no known release has one" in capsys.readouterr().err


# ---------------------------------------------------------------- FlashInfer's packages


def jit_cache(place: Place, *locals_: str) -> list[str]:
    """vLLM 0.33.0 that wants FlashInfer's kernels, and an index of these builds of them; as options."""
    flashinfer = version_of("flashinfer-python", "0.33.0")
    own = next(wheel for wheel in stack("0.33.0") if wheel.name == "vllm")
    requires = [
        *(email.message_from_bytes(own.metadata).get_all("Requires-Dist") or []),
        f"flashinfer-cubin=={flashinfer}",
        f"flashinfer-jit-cache=={flashinfer}",
    ]
    files = {LIBRARY: OF_CUDA_13.read_bytes()}
    place.own.add(make_wheel("vllm", "0.33.0+mine", requires=requires, tag=f"cp38-abi3-{X86}", files=files))
    place.lane.add(make_wheel("flashinfer-cubin", flashinfer))
    place.lane.add(*(make_wheel("flashinfer-jit-cache", f"{flashinfer}+{local}") for local in locals_))
    for name in ("flashinfer-cubin", "flashinfer-jit-cache"):  # the public index has higher local versions of both
        place.default.add(make_wheel(name, f"{flashinfer}+cu139"))
    return [
        "--engine", "vllm==0.33.0", "--index", f"own={place.own.url}=vllm",
        "--index", f"fi={place.lane.url}=flashinfer-cubin,flashinfer-jit-cache",
    ]  # fmt: skip


def test_a_jit_cache_with_a_local_version_pairs_with_the_cubin_of_its_public_one(place: Place) -> None:
    options = jit_cache(place, "cu130")
    assert main(["lock", "--gpu", "sm120", "--formats", "nvfp4", *options]) == 0
    flashinfer = version_of("flashinfer-python", "0.33.0")
    found = packages()
    assert found["flashinfer-jit-cache"]["version"] == f"{flashinfer}+cu130"
    assert found["flashinfer-cubin"]["version"] == flashinfer
    assert found["flashinfer-cubin"]["index"] == place.lane.url


def test_a_jit_cache_of_another_lane_is_refused(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    options = jit_cache(place, "cu129")
    assert main(["lock", "--gpu", "sm120", "--formats", "nvfp4", *options]) == 3
    error = capsys.readouterr().err
    assert "mixed CUDA" in error
    assert "+cu129 is of CUDA 12.9 (its local version)" in error
    assert not Path("pylock.toml").exists()


def test_flashinfers_cubin_is_locked_from_its_index_where_it_is_asked_for(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """With it vLLM 0.30.0 finds FlashInfer, whose MXFP4 kernel for sm100 needs no nvcc."""
    release = "0.30.0"
    flashinfer = version_of("flashinfer-python", release)
    place.default.add(*stack(release), make_wheel("flashinfer-cubin", "99.0"))
    place.own.add(make_wheel("flashinfer-cubin", flashinfer), upload_time=None)
    asked = ["lock", "--gpu", "sm100", "--machine", "x86_64", "--formats", "mxfp4", "--engine", f"vllm=={release}"]
    assert main(asked) == 4
    index = ["--index", f"flashinfer={place.own.url}=flashinfer-cubin"]
    assert main([*asked, "--assume", f"package.flashinfer-cubin={flashinfer}", *index]) == 0
    assert packages()["flashinfer-cubin"]["version"] == flashinfer
    assert packages()["flashinfer-cubin"]["index"] == place.own.url
    (row,) = locked()["tool"]["qresolve"]["formats"]
    assert (row["verdict"], row["route"]) == ("native", "FlashInferMxFp4LinearKernel")


def test_a_package_that_is_assumed_away_is_not_in_the_lock(place: Place) -> None:
    asked = ["lock", "--gpu", "sm120", "--formats", "nvfp4"]
    assert main(asked) == 0
    assert "ninja" in packages()
    assert main([*asked, "--assume", "package.ninja=absent"]) == 0
    assert "ninja" not in packages()


# ---------------------------------------------------------------- variant wheels

OTHERS = {
    "cu13_90": {"nvidia": {"cuda_version_lower_bound": ["13.0"], "sm_arch": ["90a_real"]}},
    "exact_121": {"nvidia": {"sm_arch": ["121a_real"]}},
}
PLAIN = ["lock", "--gpu", "sm120", "--formats", "mxfp4,nvfp4"]


def ninja_variants(place: Place, labels: Mapping[str, Mapping[str, Mapping[str, list[str]]]]) -> dict[str, MadeWheel]:
    plain = make_wheel("ninja", "1.13.3", files={"ninja.py": "x = 'plain'\n"})
    made = {label: make_wheel("ninja", "1.13.3", files={"ninja.py": f"x = {label!r}\n"}) for label in labels}
    wheels = {label: labelled(wheel, label) for label, wheel in made.items()} | {"": plain}
    place.default.add(*wheels.values(), make_variants("ninja", "1.13.3", labels))
    return wheels


def test_where_no_variant_fits_the_plain_wheel_is_locked_and_that_is_said(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    wheels = ninja_variants(place, OTHERS)
    assert main(PLAIN) == 0
    (wheel,) = packages()["ninja"]["wheels"]
    assert wheel["hashes"]["sha256"] == wheels[""].sha256
    assert "variant" not in packages()["ninja"]["tool"]["qresolve"]
    said = capsys.readouterr().err
    assert "ninja 1.13.3: no variant fits, the plain wheel is taken" in said
    assert "121a_real does not load on sm120" in said


def test_the_null_variant_comes_before_the_plain_wheel_where_nothing_else_fits(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    wheels = ninja_variants(place, {**OTHERS, "null": {}})
    assert main(PLAIN) == 0
    (wheel,) = packages()["ninja"]["wheels"]
    assert wheel["hashes"]["sha256"] == wheels["null"].sha256
    assert wheel["url"].endswith("/ninja-1.13.3-py3-none-any-null.whl")
    assert packages()["ninja"]["tool"]["qresolve"]["variant"] == "null"
    assert "ninja 1.13.3: the variant without properties is taken" in capsys.readouterr().err


def test_on_the_gpu_it_is_made_for_the_same_release_gives_another_wheel(place: Place) -> None:
    wheels = ninja_variants(place, {**OTHERS, "null": {}})
    on_gb10 = ["lock", "--gpu", "sm121", "--machine", "x86_64", "--formats", "nvfp4"]
    assert main(on_gb10) == 0
    assert packages()["ninja"]["wheels"][0]["hashes"]["sha256"] == wheels["exact_121"].sha256
