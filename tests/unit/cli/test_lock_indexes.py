"""``qresolve lock`` with several indexes on this machine: what comes from where, and what is refused."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tomli

from qresolve.cli.main import main
from tests.fake_stack import stack
from tests.index_server import IndexServer, MadeWheel, labelled, make_variants, make_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator

ASKED = ["lock", "--gpu", "sm120", "--formats", "mxfp4,nvfp4"]


def of_stack(name: str) -> MadeWheel:
    return next(wheel for wheel in stack() if wheel.name == name)


TORCH = of_stack("torch").version


def torch(version: str, **options: Any) -> MadeWheel:
    return make_wheel("torch", version, requires=("cuda-toolkit==13.0.3",), **options)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("UV_", "PIP_"))]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    (tmp_path / "work").mkdir()
    home.mkdir()
    for name, value in {
        "PIP_CONFIG_FILE": os.devnull,
        "UV_CACHE_DIR": tmp_path / "cache",
        "HOME": home,
        "XDG_CACHE_HOME": home / "cache",
        "XDG_CONFIG_HOME": home / "config",
        "XDG_CONFIG_DIRS": tmp_path / "nowhere",
    }.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.delenv("NETRC", raising=False)
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture
def public(monkeypatch: pytest.MonkeyPatch) -> Iterator[IndexServer]:
    """The default index with the whole stack."""
    with IndexServer() as server:
        server.add(*stack())
        monkeypatch.setenv("UV_DEFAULT_INDEX", server.url)
        yield server


def locked() -> dict[str, dict[str, Any]]:
    text = Path("pylock.toml").read_text(encoding="utf-8")
    return {package["name"]: package for package in tomli.loads(text)["packages"]}


def came_from(package: dict[str, Any], server: IndexServer) -> bool:
    return str(package["wheels"][0]["url"]).startswith(server.url.removesuffix("simple"))


def test_torch_from_one_index_and_the_engine_from_another(public: IndexServer) -> None:
    public.add(torch(f"{TORCH}+cu139"), make_wheel("vllm", f"{of_stack('vllm').version}+cu139"))
    with IndexServer(formats=("html",)) as lane, IndexServer() as vendor:
        lane.add(torch(f"{TORCH}+cu130"), upload_time=None)
        vendor.add(of_stack("vllm"))
        indexes = ["--index", f"lane={lane.url}=torch", "--index", f"vendor={vendor.url}=vllm"]
        assert main([*ASKED, *indexes]) == 0
        found = locked()
        assert found["torch"]["version"] == f"{TORCH}+cu130"  # what `==` of the engine's metadata matches (PEP 440)
        assert found["torch"]["index"] == lane.url
        assert found["torch"]["tool"]["qresolve"]["index"] == "lane"
        assert came_from(found["torch"], lane)
        assert came_from(found["vllm"], vendor)
        assert found["vllm"]["tool"]["qresolve"]["index"] == "vendor"
        rest = [package for name, package in found.items() if name not in ("torch", "vllm")]
        assert rest
        assert all(came_from(package, public) for package in rest)
        asked = {line for server in (lane, vendor) for line in server.requests if line.startswith("GET /simple/")}
        assert asked == {"GET /simple/torch/", "GET /simple/vllm/"}  # no other package's name goes there


@pytest.mark.parametrize("version", ["99.0", "99.0+cu130", "1.13.2+cu139"])
def test_a_higher_version_on_the_public_index_loses(public: IndexServer, version: str) -> None:
    public.add(make_wheel("ninja", version))
    with IndexServer() as own:
        own.add(make_wheel("ninja", "1.13.1"))
        assert main([*ASKED, "--index", f"own={own.url}=ninja"]) == 0
        assert locked()["ninja"]["version"] == "1.13.1"
        assert came_from(locked()["ninja"], own)


def test_a_package_missing_from_its_index_comes_from_nowhere_else(
    public: IndexServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with IndexServer() as own:
        assert main([*ASKED, "--engine", "vllm==0.33.0", "--index", f"own={own.url}=ninja"]) == 3
    assert "ninja" in capsys.readouterr().err
    assert not Path("pylock.toml").exists()


def test_one_file_name_with_two_hashes_is_refused(public: IndexServer, capsys: pytest.CaptureFixture[str]) -> None:
    with IndexServer() as own:
        own.add(make_wheel("humming-kernels", "0.1.19", files={"humming.py": "x = 'another'\n"}))
        assert main([*ASKED, "--index", f"own={own.url}=humming-kernels"]) == 3
    error = capsys.readouterr().err
    assert "humming_kernels-0.1.19-py3-none-any.whl is two files" in error
    assert not Path("pylock.toml").exists()


def test_two_general_indexes_with_two_hashes_are_refused_too(
    public: IndexServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with IndexServer() as mirror:
        mirror.add(torch(TORCH, files={"torch.py": "x = 'another'\n"}))
        monkeypatch.setenv("UV_INDEX", mirror.url)
        assert main(ASKED) == 3
    assert "is two files" in capsys.readouterr().err


def test_a_file_that_changed_since_the_last_lock_is_refused(
    public: IndexServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(ASKED) == 0
    before = Path("pylock.toml").read_text(encoding="utf-8")
    with IndexServer() as other:
        other.add(*(wheel for wheel in stack() if wheel.name != "ninja"))
        other.add(make_wheel("ninja", "1.13.2", files={"ninja.py": "x = 'another'\n"}))
        monkeypatch.setenv("UV_DEFAULT_INDEX", other.url)
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache2"))
        assert main(ASKED) == 3
        assert "ninja-1.13.2-py3-none-any.whl" in capsys.readouterr().err
        assert Path("pylock.toml").read_text(encoding="utf-8") == before
        assert main([*ASKED, "-o", "pylock.new.toml"]) == 0  # it is the lock in place that is held against it


# ---------------------------------------------------------------- CUDA lanes


def test_a_mixed_set_is_refused_in_one_line(public: IndexServer, capsys: pytest.CaptureFixture[str]) -> None:
    with IndexServer() as lane:
        lane.add(make_wheel("torch", f"{TORCH}+cu129"))
        assert main([*ASKED, "--engine", "vllm==0.33.0", "--index", f"lane={lane.url}=torch"]) == 3
    error = capsys.readouterr().err.partition("error: ")[2]
    assert "mixed CUDA" in error.partition("\n")[0]
    assert f"torch {TORCH}+cu129 is of CUDA 12.9 (its local version)" in error
    assert "13.0" in error


def test_a_lane_that_an_engine_has_no_build_for_names_the_last_release_that_had_one(
    public: IndexServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*ASKED, "--engine", "vllm==0.33.0", "--cuda", "12.9"]) == 3
    error = capsys.readouterr().err
    assert "no build for CUDA 12.9: its wheels are built with 13.0" in error
    assert "the last known release with one is 0.21.0, at https://wheels.vllm.ai/0.21.0/cu129" in error
    assert "--cuda 12.9 --engine vllm==0.21.0" in error.partition("hint:")[2]
    assert public.requests == []
    assert main([*ASKED, "--cuda", "12.6"]) == 3
    assert "no known release has one" in capsys.readouterr().err


# ---------------------------------------------------------------- variant wheels

VARIANTS = {
    "cu13_f": {"nvidia": {"cuda_version_lower_bound": ["13.0"], "sm_arch": ["120f_real"]}},
    "cu13_90": {"nvidia": {"cuda_version_lower_bound": ["13.0"], "sm_arch": ["90a_real"]}},
}


def variants_of(name: str, version: str, *, requires: tuple[str, ...] = ()) -> list[MadeWheel]:
    plain = make_wheel(name, version, files={f"{name}.py": "x = 'plain'\n"})
    made = [
        replace(
            make_wheel(name, version, requires=requires, files={f"{name}.py": f"x = {label!r}\n"}),
            filename=labelled(plain, label).filename,
        )
        for label in VARIANTS
    ]
    return [plain, *made, make_variants(name, version, VARIANTS)]


def test_the_variant_for_the_target_is_locked_by_address_and_hash(public: IndexServer) -> None:
    made = variants_of("ninja", "1.13.3", requires=("llguidance", "extra-of-the-variant"))
    public.add(*made, make_wheel("extra-of-the-variant", "1.0"))
    assert main(ASKED) == 0
    package = locked()["ninja"]
    (wheel,) = package["wheels"]
    taken = next(one for one in made if one.filename.endswith("-cu13_f.whl"))
    assert wheel["url"].endswith("/ninja-1.13.3-py3-none-any-cu13_f.whl")
    assert wheel["name"] == "ninja-1.13.3-py3-none-any.whl"  # what uv takes from a lock
    assert wheel["hashes"]["sha256"] == taken.sha256
    assert package["tool"]["qresolve"]["variant"] == "cu13_f"
    assert "extra-of-the-variant" in locked()  # its own requirements, not the plain wheel's
    first = Path("pylock.toml").read_bytes()
    assert main([*ASKED, "--offline"]) == 0
    assert Path("pylock.toml").read_bytes() == first
