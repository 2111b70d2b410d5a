"""``qresolve lock`` with a wheel that someone built: what its machine code holds decides, not its name."""

from __future__ import annotations

import email
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tomli

from qresolve.cli.main import main
from tests.fake_stack import X86, isolate_user, stack
from tests.index_server import IndexServer, make_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator

FATBINS = Path(__file__).resolve().parents[2] / "data" / "fatbins"
LIBRARY = "vllm/_C_stable_libtorch.abi3.so"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IndexServer]:
    isolate_user(tmp_path, monkeypatch)
    with IndexServer() as server:
        for wheel in stack():
            server.add(wheel)
        monkeypatch.setenv("UV_DEFAULT_INDEX", server.url)
        yield server


def built(folder: Path, library: Path, version: str = "0.33.0+mine") -> Path:
    """A wheel of vLLM whose one library is ``library``."""
    own = next(wheel for wheel in stack() if wheel.name == "vllm")
    requires = email.message_from_bytes(own.metadata).get_all("Requires-Dist") or []
    wheel = make_wheel(
        "vllm", version, requires=requires, tag=f"cp38-abi3-{X86}", files={LIBRARY: library.read_bytes()}
    )
    folder.mkdir(exist_ok=True)
    (folder / wheel.filename).write_bytes(wheel.content)
    return folder / wheel.filename


def locked() -> tuple[str, dict[str, Any]]:
    document = tomli.loads(Path("pylock.toml").read_text(encoding="utf-8"))
    (row,) = document["tool"]["qresolve"]["formats"]
    package = next(one for one in document["packages"] if one["name"] == "vllm")
    return row["route"], package


def test_a_kernel_that_was_built_in_is_found_and_used(index: IndexServer, tmp_path: Path) -> None:
    wheel = built(tmp_path / "dist", FATBINS / "native" / "_C_stable_libtorch.abi3.so")
    assert main(["lock", "--gpu", "sm120", "--formats", "nvfp4", "--wheel", str(wheel)]) == 0
    route, package = locked()
    assert "cutlass" in route.lower()
    assert package["version"] == "0.33.0+mine"
    (file,) = package["wheels"]
    assert file["name"] == wheel.name
    assert not any("vllm" in request and ".whl" in request for request in index.requests)


def test_a_build_without_the_kernel_is_not_taken_at_its_name(index: IndexServer, tmp_path: Path) -> None:
    wheel = built(tmp_path / "dist", FATBINS / "two_units.so")
    assert main(["lock", "--gpu", "sm120", "--formats", "nvfp4", "--wheel", str(wheel)]) == 0
    route, _ = locked()
    assert "cutlass" not in route.lower(), "the wheel has no such kernel; another route is native"


def test_find_links_is_the_only_source_of_what_it_has(index: IndexServer, tmp_path: Path) -> None:
    wheel = built(tmp_path / "dist", FATBINS / "native" / "_C_stable_libtorch.abi3.so")
    index.add(make_wheel("vllm", "99.0", tag=f"cp38-abi3-{X86}"))
    assert main(["lock", "--gpu", "sm120", "--formats", "nvfp4", "--find-links", str(wheel.parent)]) == 0
    assert locked()[1]["version"] == "0.33.0+mine"


def test_what_was_read_is_kept_for_an_offline_lock(index: IndexServer, tmp_path: Path) -> None:
    wheel = built(tmp_path / "dist", FATBINS / "native" / "_C_stable_libtorch.abi3.so")
    asked = ["lock", "--gpu", "sm120", "--formats", "nvfp4", "--wheel", str(wheel)]
    assert main(asked) == 0
    first = Path("pylock.toml").read_bytes()
    kept = list((tmp_path / "own-cache" / "qresolve" / "wheels").glob("*.json"))
    assert len(kept) == 1
    assert main([*asked, "--offline", "--force"]) == 0
    assert Path("pylock.toml").read_bytes() == first
    kept[0].write_text("{}", encoding="utf-8")  # a broken entry counts as none
    assert main([*asked, "--force"]) == 0
    assert Path("pylock.toml").read_bytes() == first


def test_another_build_under_the_same_name_is_another_lock(index: IndexServer, tmp_path: Path) -> None:
    native = FATBINS / "native" / "_C_stable_libtorch.abi3.so"
    wheel = built(tmp_path / "dist", native)
    asked = ["lock", "--gpu", "sm120", "--formats", "nvfp4", "--wheel", str(wheel), "--force"]
    assert main(asked) == 0
    with_kernel = locked()
    shutil.rmtree(wheel.parent)
    shutil.rmtree(tmp_path / "cache")
    assert built(tmp_path / "dist", FATBINS / "two_units.so") == wheel
    assert main(asked) == 0
    assert locked()[0] != with_kernel[0]
