"""``qresolve inspect`` over real machine code: a small library that nvcc made, in every place it can be in."""

from __future__ import annotations

import json
import random
import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

import qresolve
from qresolve.cli.main import main
from qresolve.inspect.subject import choose_wheel
from qresolve.wheels.pip_index import IndexFile
from tests.index_server import IndexServer, make_wheel

if TYPE_CHECKING:
    from tests.index_server import MadeWheel

NATIVE = Path(__file__).resolve().parents[2] / "data" / "fatbins" / "native" / "_C_stable_libtorch.abi3.so"
SCHEMA = json.loads((Path(qresolve.__file__).parent / "schemas" / "inspect.json").read_text(encoding="utf-8"))


def engine_wheel(more: dict[str, bytes] | None = None, *, machine: str = "x86_64") -> MadeWheel:
    files: dict[str, str | bytes] = {"vllm/_C_stable_libtorch.abi3.so": NATIVE.read_bytes(), **(more or {})}
    return make_wheel("vllm", "0.33.0", tag=f"cp38-abi3-manylinux_2_28_{machine}", files=files)


def answers(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[tuple[str, str], str], Any]:
    code = main(["inspect", *arguments, "--json"])
    report = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, SCHEMA)
    found = {(one["format"], one["arch"]): one["outcome"] for one in report["answers"]}
    return code, found, report


@pytest.mark.parametrize(
    ("gpu", "formats", "expected", "code"),
    [
        ("sm120,sm121", "nvfp4", {"sm120": "proved", "sm121": "proved"}, 0),
        ("sm100", "nvfp4", {"sm100": "refuted"}, 6),
        ("sm80", "nvfp4", {"sm80": "refuted"}, 6),  # an image loads, and is a shell
        ("sm89", "fp8", {"sm89": "proved"}, 0),
        ("sm90", "fp8", {"sm90": "refuted"}, 6),  # mma.sync on e4m3 becomes 16-bit instructions there
        ("sm100", "fp8", {"sm100": "unproved"}, 7),  # PTX for sm_89: the driver would choose
        ("sm75", "fp8", {"sm75": "refuted"}, 6),
        ("sm121", "mxfp4", {"sm121": "refuted"}, 6),  # OMMA is there, of the other 4-bit format
    ],
)
def test_a_library_answers_by_its_instructions(
    gpu: str, formats: str, expected: dict[str, str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    got, found, _ = answers(capsys, str(NATIVE), "--gpu", gpu, "--formats", formats)
    assert {arch: outcome for (_, arch), outcome in found.items()} == expected
    assert got == code


def test_refuted_wins_over_unproved(capsys: pytest.CaptureFixture[str]) -> None:
    code, found, _ = answers(capsys, str(NATIVE), "--gpu", "sm100", "--formats", "fp8,nvfp4")
    assert set(found.values()) == {"refuted", "unproved"}
    assert code == 6


def test_every_image_is_listed_with_suffix_and_instructions(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, report = answers(capsys, str(NATIVE))
    assert code == 0
    (binary,) = report["binaries"]
    units = {unit["name"]: {image["arch"]: image for image in unit["images"]} for unit in binary["units"]}
    fp4 = units["nvfp4_scaled_mm_sm120_kernels"]
    assert set(fp4) == {"sm_80", "sm_120f"}
    assert fp4["sm_80"]["instructions"] == {}
    (held,) = fp4["sm_120f"]["instructions"]
    assert held.startswith("OMMA.SF")
    assert fp4["sm_120f"]["kernels"] == ["nvfp4_gemm"]
    fp8 = units["scaled_mm_c2x"]
    assert {image["compression"] for image in (*fp4.values(), *fp8.values())} == {"raw", "lz4", "zstd"}
    assert fp8["compute_89"]["instructions"] is None
    assert all(name.startswith("HMMA") for name in fp8["sm_90"]["instructions"])


def test_headers_alone_decompress_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, report = answers(capsys, str(NATIVE), "--headers")
    assert code == 0
    (binary,) = report["binaries"]
    assert all(image["instructions"] is None for unit in binary["units"] for image in unit["images"])
    assert {load["arch"]: load["specific"] for load in binary["loads"]}["sm121"] == 2


def test_wheels_and_folders_are_the_same_subject(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = engine_wheel()
    (tmp_path / wheel.filename).write_bytes(wheel.content)
    unpacked = tmp_path / "site-packages"
    with zipfile.ZipFile(tmp_path / wheel.filename) as archive:
        archive.extractall(unpacked)
    for subject in (tmp_path / wheel.filename, unpacked):
        code, found, report = answers(capsys, str(subject), "--gpu", "sm121", "--formats", "nvfp4")
        assert code == 0
        assert found == {("nvfp4", "sm121"): "proved"}
        assert report["binaries"][0]["path"] == "vllm/_C_stable_libtorch.abi3.so"


def test_a_release_is_read_by_ranges_and_only_as_far_as_needed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    filler = random.Random(1).randbytes(2_000_000)
    wheel = engine_wheel({"vllm/_attention.abi3.so": filler})
    with IndexServer() as server:
        server.add(wheel)
        server.add(engine_wheel(machine="aarch64"))
        monkeypatch.setenv("PIP_INDEX_URL", server.url)
        code, found, report = answers(capsys, "vllm==0.33.0", "--gpu", "rtx5090", "--formats", "nvfp4")
    assert (code, found) == (0, {("nvfp4", "sm120"): "proved"})
    assert report["subject"]["name"] == wheel.filename
    assert report["subject"]["read"] < 100_000
    assert [one["path"] for one in report["not_read"]] == ["vllm/_attention.abi3.so"]


def test_the_machine_is_that_of_the_gpu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with IndexServer() as server:
        server.add(engine_wheel())
        arm = engine_wheel(machine="aarch64")
        server.add(arm)
        monkeypatch.setenv("PIP_INDEX_URL", server.url)
        _, _, report = answers(capsys, "vllm==0.33.0", "--gpu", "gb10", "--formats", "nvfp4")
    assert report["subject"]["name"] == arm.filename


def test_a_broken_library_in_a_wheel_is_named_with_its_offset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = NATIVE.read_bytes()[:9000]
    wheel = engine_wheel({"vllm/broken.abi3.so": cut})
    (tmp_path / wheel.filename).write_bytes(wheel.content)
    code, _, report = answers(capsys, str(tmp_path / wheel.filename))
    assert code == 7
    (one,) = report["not_read"]
    assert one["broken"]
    assert "offset" in one["why"]
    code, found, _ = answers(capsys, str(tmp_path / wheel.filename), "--gpu", "sm100", "--formats", "nvfp4")
    assert (code, found) == (7, {("nvfp4", "sm100"): "unproved"}), "what could not be read may hold it"


@pytest.mark.parametrize(("length", "code"), [(0, 7), (10, 7), (5000, 7)])
def test_a_file_that_is_no_binary_is_an_error(
    length: int, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cut.so"
    path.write_bytes(NATIVE.read_bytes()[:length])
    assert main(["inspect", str(path)]) == code
    assert "error:" in capsys.readouterr().err


def test_a_server_without_ranges_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with IndexServer() as server:
        server.add(engine_wheel(), ranges=False)
        monkeypatch.setenv("PIP_INDEX_URL", server.url)
        code = main(["inspect", "vllm==0.33.0", "--gpu", "sm121", "--machine", "x86_64", "--formats", "nvfp4"])
    said = capsys.readouterr().err
    assert code == 7
    assert "ranges" in said
    assert "hint: pip download" in said


def test_unknown_subjects_and_combinations_are_usage_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "no-such-thing"]) == 2
    assert "hint: qresolve inspect" in capsys.readouterr().err
    assert main(["inspect", str(NATIVE), "--formats", "nvfp4"]) == 2
    assert "--gpu" in capsys.readouterr().err
    assert main(["inspect", str(NATIVE), "--gpu", "sm121", "--formats", "nvfp4", "--headers"]) == 2


def test_the_text_is_readable_and_fits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    shutil.copy(NATIVE, tmp_path)
    assert main(["inspect", str(tmp_path), "--gpu", "sm100,sm121", "--formats", "nvfp4", "-v"]) == 6
    text = capsys.readouterr().out
    assert all(len(line) <= 100 for line in text.splitlines()[1:]), "all but the name, which is one word"
    assert "sm_120f (2)" in text
    assert "OMMA.SF" in text
    assert "refuted" in text
    assert "proved" in text


def _file(name: str) -> IndexFile:
    return IndexFile(filename=name, url="", sha256="", requires_python=None, upload_time=None)


def test_the_wheel_of_a_release_is_the_one_that_an_installer_takes() -> None:
    files = tuple(
        map(
            _file,
            (
                "torch-2.14.0-cp312-cp312-manylinux_2_28_x86_64.whl",
                "torch-2.14.0-cp313-cp313-manylinux_2_28_x86_64.whl",
                "torch-2.14.0-cp312-cp312-manylinux_2_28_aarch64.whl",
                "torch-2.14.0-cp312-none-macosx_14_0_arm64.whl",
                "torch-2.14.1-cp312-cp312-manylinux_2_28_x86_64.whl",
                "torch-2.13.0+cu129-cp312-cp312-manylinux_2_28_x86_64.whl",
            ),
        )
    )
    chosen = choose_wheel(files, "2.14.0", machine="x86_64", python="3.12")
    assert chosen == files[0]
    assert choose_wheel(files, "2.14.0", machine="aarch64", python="3.13") is None
    assert choose_wheel(files, "2.13.0", machine="x86_64", python="3.12") == files[5], "a local version counts"
    abi3 = (_file("vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl"), _file("vllm-0.33.0-cp314-abi3-linux_x86_64.whl"))
    assert choose_wheel(abi3, "0.33.0", machine="x86_64", python="3.12") == abi3[0]
