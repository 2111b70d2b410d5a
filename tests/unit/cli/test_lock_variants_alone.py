"""``qresolve lock`` of packages that an index has as variant wheels alone, which uv resolves and locks nowhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tomli

from qresolve.cli.main import main
from tests.fake_stack import isolate_user, stack
from tests.index_server import IndexServer, MadeWheel, labelled, make_variants, make_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Labels = Mapping[str, Mapping[str, Mapping[str, list[str]]]]

ASKED = ["lock", "--gpu", "sm120", "--formats", "mxfp4,nvfp4"]
LABELS: Labels = {
    "for_120": {"nvidia": {"cuda_version_lower_bound": ["13.0"], "sm_arch": ["120f_real"]}},
    "for_90": {"nvidia": {"cuda_version_lower_bound": ["13.0"], "sm_arch": ["90a_real"]}},
}


def alone(name: str, version: str, labels: Labels = LABELS, **requires: tuple[str, ...]) -> dict[str, MadeWheel]:
    """The variant wheels of a release by label, and its ``*-variants.json`` as ``""``."""
    made = {
        label: labelled(
            make_wheel(name, version, requires=requires.get(label, ()), files={f"{name}.txt": label}), label
        )
        for label in labels
    }
    return {**made, "": make_variants(name, version, labels, namespaces=("nvidia", "abi_dependency"))}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate_user(tmp_path, monkeypatch)
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")


@pytest.fixture
def public(monkeypatch: pytest.MonkeyPatch) -> Iterator[IndexServer]:
    """The default index with the stack, without ninja and llguidance: a test adds these as it wants them."""
    with IndexServer() as server:
        server.add(*(wheel for wheel in stack() if wheel.name not in {"ninja", "llguidance"}))
        server.add(make_wheel("llguidance", "1.7.6"))
        monkeypatch.setenv("UV_DEFAULT_INDEX", server.url)
        yield server


def locked() -> dict[str, dict[str, Any]]:
    text = Path("pylock.toml").read_text(encoding="utf-8")
    assert "/tmp" not in text  # noqa: S108 - no stand-in of this run is left in the lock
    assert "file:" not in text
    return {package["name"]: package for package in tomli.loads(text)["packages"]}


def test_the_variant_for_the_target_is_locked_with_what_it_requires(public: IndexServer) -> None:
    wheels = alone("ninja", "1.13.3", for_120=("only-of-120",), for_90=("only-of-90",))
    public.add(*wheels.values(), make_wheel("only-of-120", "1.0"), make_wheel("only-of-90", "1.0"))
    assert main(ASKED) == 0
    package = locked()["ninja"]
    (wheel,) = package["wheels"]
    assert package["version"] == "1.13.3"
    assert wheel["url"] == f"{public.url.removesuffix('simple')}files/ninja-1.13.3-py3-none-any-for_120.whl"
    assert wheel["hashes"]["sha256"] == wheels["for_120"].sha256
    assert wheel["size"] == len(wheels["for_120"].content)
    assert wheel["name"] == "ninja-1.13.3-py3-none-any.whl"
    assert package["tool"]["qresolve"]["variant"] == "for_120"
    assert package["tool"]["qresolve"]["index"] == "default"
    assert "only-of-120" in locked()
    assert "only-of-90" not in locked()


def test_the_same_lock_comes_out_again_and_without_the_network(public: IndexServer) -> None:
    public.add(*alone("ninja", "1.13.3").values())
    assert main(ASKED) == 0
    first = Path("pylock.toml").read_bytes()
    assert main(ASKED) == 0
    assert Path("pylock.toml").read_bytes() == first
    public.requests.clear()
    assert main([*ASKED, "--offline"]) == 0
    assert Path("pylock.toml").read_bytes() == first
    assert public.requests == []


def test_the_newest_release_that_fits_is_taken(public: IndexServer, capsys: pytest.CaptureFixture[str]) -> None:
    public.add(*alone("ninja", "1.13.3").values(), *alone("ninja", "1.14.0", {"for_90": LABELS["for_90"]}).values())
    assert main(ASKED) == 0
    assert locked()["ninja"]["version"] == "1.13.3"


def test_where_none_fits_the_package_and_what_its_variants_want_are_named(
    public: IndexServer, capsys: pytest.CaptureFixture[str]
) -> None:
    public.add(*alone("ninja", "1.13.3", {"for_90": LABELS["for_90"]}).values())
    assert main([*ASKED, "--engine", "vllm==0.33.0"]) == 3
    error = capsys.readouterr().err
    assert "ninja 1.13.3 is there as variant wheels alone, and none fits the target" in error
    assert "90a_real does not load on sm120" in error
    assert not Path("pylock.toml").exists()


def test_variants_without_their_metadata_are_said_to_be_there(
    public: IndexServer, capsys: pytest.CaptureFixture[str]
) -> None:
    public.add(alone("ninja", "1.13.3")["for_120"])
    assert main([*ASKED, "--engine", "vllm==0.33.0"]) == 3
    assert "ninja==1.13.3 is there as variant wheels alone, and what the index says of them" in capsys.readouterr().err


def test_a_plain_wheel_of_another_release_stays_a_choice(public: IndexServer) -> None:
    public.add(*alone("ninja", "1.13.3").values(), make_wheel("ninja", "1.12.0"))
    assert main(ASKED) == 0
    assert locked()["ninja"]["version"] == "1.12.0"  # what uv itself finds, without a look at the variants


def test_a_pinned_release_is_found_behind_newer_ones(public: IndexServer) -> None:
    for minor in range(30):
        public.add(*alone("kernels-of-it", f"1.{minor}").values())
    public.add(make_wheel("ninja", "1.13.3", requires=("kernels-of-it==1.2",)))
    assert main(ASKED) == 0
    assert locked()["kernels-of-it"]["version"] == "1.2"
    asked = [line for line in public.requests if line.endswith("-variants.json")]
    assert asked == ["GET /files/kernels_of_it-1.2-variants.json"]


def test_a_variant_of_a_dependency_s_release_is_chosen_once_that_is_known(public: IndexServer) -> None:
    """Which torch there is, is known after the resolution; the variant that was shown to uv may be another one."""
    torch = next(wheel.version for wheel in stack() if wheel.name == "torch")
    minor = ".".join(torch.split(".")[:2])
    labels: Labels = {
        "other": {"abi_dependency": {"torch": ["1.13.1.0"]}},
        "mine": {"abi_dependency": {"torch": [minor]}},
    }
    wheels = alone("ninja", "1.13.3", labels, other=("of-other",), mine=("of-mine",))
    public.add(*wheels.values(), make_wheel("of-other", "1.0"), make_wheel("of-mine", "1.0"))
    assert main(ASKED) == 0
    assert locked()["ninja"]["wheels"][0]["hashes"]["sha256"] == wheels["mine"].sha256
    assert "of-mine" in locked()
    assert "of-other" not in locked()


# ---------------------------------------------------------------- one package, one index


@pytest.mark.parametrize("version", ["99.0", "1.13.3+cu139"])
def test_a_bound_package_comes_from_its_index_though_the_public_one_has_a_higher_plain_wheel(
    public: IndexServer, version: str
) -> None:
    public.add(make_wheel("ninja", version))
    wheels = alone("ninja", "1.13.3")
    with IndexServer(formats=("html",)) as own:
        own.add(*wheels.values(), upload_time=None)
        assert main([*ASKED, "--index", f"own={own.url}=ninja"]) == 0
        package = locked()["ninja"]
        assert package["wheels"][0]["hashes"]["sha256"] == wheels["for_120"].sha256
        assert package["index"] == own.url
        assert package["tool"]["qresolve"]["index"] == "own"


def test_a_bound_package_without_a_fitting_variant_is_not_sought_elsewhere(
    public: IndexServer, capsys: pytest.CaptureFixture[str]
) -> None:
    public.add(*alone("ninja", "1.13.3").values())
    with IndexServer() as own:
        own.add(*alone("ninja", "1.13.2", {"for_90": LABELS["for_90"]}).values())
        assert main([*ASKED, "--engine", "vllm==0.33.0", "--index", f"own={own.url}=ninja"]) == 3
    assert "ninja 1.13.2 is there as variant wheels alone" in capsys.readouterr().err


def test_one_variant_file_with_two_hashes_is_refused(public: IndexServer, capsys: pytest.CaptureFixture[str]) -> None:
    wheels = alone("ninja", "1.13.3")
    public.add(*wheels.values())
    with IndexServer() as own:
        other = replace(wheels["for_120"], content=wheels["for_90"].content)
        own.add(other, wheels[""])
        assert main([*ASKED, "--index", f"own={own.url}=ninja"]) == 3
    assert "ninja-1.13.3-py3-none-any-for_120.whl is two files" in capsys.readouterr().err


# ---------------------------------------------------------------- the cutoff


def test_what_came_after_the_cutoff_is_not_there(public: IndexServer) -> None:
    public.add(*alone("ninja", "1.13.3").values(), upload_time="2026-01-01T00:00:00Z")
    public.add(*alone("ninja", "1.14.0").values(), upload_time="2026-05-01T00:00:00Z")
    assert main([*ASKED, "--exclude-newer", "2026-02-01"]) == 0
    assert locked()["ninja"]["version"] == "1.13.3"
    assert main([*ASKED, "--exclude-newer", "2026-06-01", "-o", "pylock.late.toml"]) == 0
    late = tomli.loads(Path("pylock.late.toml").read_text(encoding="utf-8"))["packages"]
    assert {package["name"]: package["version"] for package in late}["ninja"] == "1.14.0"


def test_a_yanked_variant_is_not_taken(public: IndexServer) -> None:
    public.add(*alone("ninja", "1.13.3").values())
    public.add(*alone("ninja", "1.14.0").values(), yanked="broken")
    assert main(ASKED) == 0
    assert locked()["ninja"]["version"] == "1.13.3"


def test_behind_a_login_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, public: IndexServer) -> None:
    wheels = alone("ninja", "1.13.3")
    with IndexServer(user="anna", password="s3cret") as own:  # noqa: S106
        own.add(*wheels.values())
        monkeypatch.setenv("UV_INDEX_OWN_USERNAME", "anna")
        monkeypatch.setenv("UV_INDEX_OWN_PASSWORD", "s3cret")
        assert main([*ASKED, "--index", f"own={own.url}=ninja"]) == 0
    assert locked()["ninja"]["wheels"][0]["hashes"]["sha256"] == wheels["for_120"].sha256
    assert "s3cret" not in Path("pylock.toml").read_text(encoding="utf-8")
