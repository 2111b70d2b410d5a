"""The wheel index: strict reading, unknown against empty, and facts of the shipped files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.arch import ImageArch
from qresolve.data import data_folder
from qresolve.errors import DataInvalid
from qresolve.strict import read_toml
from qresolve.wheels.generate import parse_manifest
from qresolve.wheels.index import cuda_toolkit_pins, images_of, read_cuda_toolkits, read_wheel_index, units
from qresolve.wheels.index_rows import Declared, Measured, MeasuredLibrary, ToolkitRelease, UnitGroup, WheelRow
from qresolve.wheels.index_text import dump_cuda_toolkits, dump_wheel_index, parse_cuda_toolkits, parse_wheel_index

if TYPE_CHECKING:
    from collections.abc import Callable

SM80, SM120F, PTX80 = ImageArch(sm=80), ImageArch(sm=120, suffix="f"), ImageArch(sm=80, kind="ptx")
C_LIBRARY = "vllm/_C_stable_libtorch.abi3.so"


def _row(*, measured: Measured | None, sha256: str = "a" * 64) -> WheelRow:
    return WheelRow(
        filename="pkg-1.0-py3-none-any.whl",
        name="pkg",
        version="1.0",
        size=12,
        sha256=sha256,
        index="default",
        declared=Declared(requires_python=">=3.10", requires_dist=("b>=1",), upload_time=None, cuda=None),
        measured=measured,
    )


def _library(*groups: UnitGroup, path: str = "pkg/a.so") -> Measured:
    library = MeasuredLibrary(path=path, needed=("libc.so.6",), glibc="2.17", groups=groups)
    return Measured(record="sha256:" + "0" * 64, libraries=(library,))


NAMED = _library(
    UnitGroup(images=(SM120F,), names=("fp4",)),
    UnitGroup(images=(SM80, SM120F, PTX80), names=("shared", "twice")),
    UnitGroup(images=(SM80,), names=("twice",)),
    UnitGroup(images=(), names=("hollow",)),
)


def test_images_of_a_unit() -> None:
    row = _row(measured=NAMED)
    assert images_of(row, "pkg/a.so", "fp4") == (SM120F,)
    assert images_of(row, "pkg/a.so", "shared") == (SM80, SM120F, PTX80)
    assert units(row, "pkg/a.so") == ("fp4", "hollow", "shared", "twice")


def test_two_units_of_one_name_have_what_both_have() -> None:
    assert images_of(_row(measured=NAMED), "pkg/a.so", "twice") == (SM80,)


def test_measured_and_nothing_there_is_empty() -> None:
    assert images_of(_row(measured=NAMED), "pkg/a.so", "hollow") == ()
    assert images_of(_row(measured=NAMED), "pkg/a.so", "no_such_unit") == ()


@pytest.mark.parametrize(
    "measured",
    [
        None,
        Measured(record="sha256:" + "0" * 64, libraries=None),
        _library(UnitGroup(images=(SM120F,), names=("fp4",)), path="pkg/other.so"),
        _library(UnitGroup(images=(SM120F,), unnamed=2)),
    ],
    ids=["wheel not opened", "no library looked at", "another library", "a stripped library"],
)
def test_not_measured_is_unknown_and_never_empty(measured: Measured | None) -> None:
    assert images_of(_row(measured=measured), "pkg/a.so", "fp4") is None


def test_units_of_a_library_that_was_not_measured_are_unknown() -> None:
    assert units(_row(measured=None), "pkg/a.so") is None


IMAGES = st.builds(
    ImageArch,
    sm=st.integers(10, 999),
    suffix=st.sampled_from(["", "a", "f"]),
    kind=st.sampled_from(["sass", "ptx"]),
)
NAMES = st.from_regex(r"[a-z_0-9]{1,12}", fullmatch=True)
GROUPS = st.builds(
    UnitGroup,
    # Machine code first, as the generator sorts it.
    images=st.lists(IMAGES, max_size=4, unique=True).map(
        lambda images: tuple(sorted(images, key=lambda image: image.kind == "ptx"))
    ),
    names=st.lists(NAMES, max_size=3).map(tuple),
    unnamed=st.integers(0, 3),
)
LIBRARIES = st.builds(
    MeasuredLibrary,
    path=NAMES,
    needed=st.lists(NAMES, max_size=2).map(tuple),
    glibc=st.none() | st.just("2.17"),
    groups=st.lists(GROUPS, max_size=3).map(tuple),
)
MEASURED = st.builds(
    Measured,
    record=st.just("sha256:" + "1" * 64),
    libraries=st.none() | st.lists(LIBRARIES, max_size=2).map(tuple),
)


@given(st.none() | MEASURED)
def test_what_is_dumped_is_read(measured: Measured | None) -> None:
    rows = (_row(measured=measured), _row(measured=None, sha256="b" * 64))
    text = dump_wheel_index("pkg", rows)
    assert parse_wheel_index(text, file="pkg.json") == rows


def _changed(change: Callable[[dict[str, Any]], object]) -> str:
    values = json.loads(dump_wheel_index("pkg", [_row(measured=NAMED)]))
    change(values)
    return json.dumps(values)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda d: d.update(extra=1), "pkg.json: extra"),
        (lambda d: d.update(schema="qresolve.wheel_index/9"), "pkg.json: schema"),
        (lambda d: d["rows"][0].update(archs=[]), r"rows\[0\]\.archs"),
        (lambda d: d["rows"][0]["declared"].update(images=[]), r"rows\[0\]\.declared\.images"),
        (lambda d: d["rows"][0]["measured"].update(cuda="13.0"), r"rows\[0\]\.measured\.cuda"),
        (lambda d: d["rows"][0]["measured"].update(record="md5:1"), r"measured\.record"),
        (lambda d: d["rows"][0].update(sha256="A" * 64), r"rows\[0\]\.sha256"),
        (lambda d: d["rows"][0].update(size="12"), r"rows\[0\]\.size"),
        (lambda d: d["rows"][0].update(name="other"), r"rows\[0\]\.name"),
        (lambda d: d["rows"].append(d["rows"][0]), r"rows\[1\]\.sha256"),
        (
            lambda d: d["rows"][0]["measured"]["libraries"][0]["groups"][1].update(images=["compute_80"]),
            r"groups\[1\]\.images",
        ),
        (
            lambda d: d["rows"][0]["measured"]["libraries"][0]["groups"][1].update(images=["sm_x"]),
            r"groups\[1\]\.images",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_file_and_path(change: Callable[[dict[str, Any]], object], path: str) -> None:
    with pytest.raises(DataInvalid, match=path) as caught:
        parse_wheel_index(_changed(change), file="pkg.json")
    assert caught.value.message.startswith("pkg.json: ")


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_what_is_no_index_is_refused(text: str) -> None:
    with pytest.raises(DataInvalid, match=r"pkg\.json"):
        parse_wheel_index(text, file="pkg.json")


def test_a_project_without_a_file_has_no_rows() -> None:
    assert read_wheel_index("no-such-project") == ()


def test_toolkit_releases_are_read_as_dumped() -> None:
    release = ToolkitRelease(
        version="13.0.3",
        filename="t.whl",
        sha256="c" * 64,
        parts=(("cudart", "nvidia-cuda-runtime", "==13.0.96.*"),),
    )
    assert parse_cuda_toolkits(dump_cuda_toolkits([release]), file="t.json") == (release,)


# --- the shipped files -------------------------------------------------------------------------------


def _manifest() -> dict[str, tuple[int, str]]:
    manifest = parse_manifest(read_toml(data_folder("wheel_index") / "MANIFEST.toml"))
    return {file.name: (file.rows, file.sha256) for file in manifest}


def test_the_manifest_describes_every_shipped_file() -> None:
    found = {}
    for path in data_folder("wheel_index").glob("*.json"):
        values = json.loads(path.read_text())
        rows = values["releases"] if path.stem == "cuda-toolkit" else values["rows"]
        found[path.name] = (len(rows), hashlib.sha256(path.read_bytes()).hexdigest())
    assert found
    assert _manifest() == found


@pytest.mark.parametrize("name", sorted(name for name in _manifest() if name != "cuda-toolkit.json"))
def test_shipped_rows_are_dumped_as_they_are(name: str) -> None:
    path = data_folder("wheel_index") / name
    assert dump_wheel_index(path.stem, read_wheel_index(path.stem)) == path.read_text()


def test_the_shipped_toolkits_are_dumped_as_they_are() -> None:
    path = data_folder("wheel_index") / "cuda-toolkit.json"
    assert dump_cuda_toolkits(read_cuda_toolkits()) == path.read_text()


def _vllm(machine: str) -> WheelRow:
    (row,) = [
        row for row in read_wheel_index("vllm") if row.version == "0.33.0" and row.filename.endswith(f"_{machine}.whl")
    ]
    return row


# From the release's own build files: which sources each macro compiles for which targets (CMakeLists.txt),
# and which targets the release pipeline asks for on each machine.
SM100_BY_MACHINE = {"x86_64": {"sm_100f"}, "aarch64": {"sm_100f", "sm_110f"}}


@pytest.mark.parametrize("machine", sorted(SM100_BY_MACHINE))
def test_shipped_kernel_families_are_those_of_the_build_files(machine: str) -> None:
    row = _vllm(machine)

    def held(unit: str, library: str = C_LIBRARY) -> set[str]:
        images = images_of(row, library, unit)
        assert images is not None
        return {str(image) for image in images}

    assert held("nvfp4_scaled_mm_sm120_kernels") == {"sm_120f"}
    assert held("nvfp4_scaled_mm_kernels") == SM100_BY_MACHINE[machine]
    assert held("nvfp4_blockwise_moe_kernel") == SM100_BY_MACHINE[machine] | {"sm_120f"}
    assert held("mxfp4_blockwise_moe_kernel") == SM100_BY_MACHINE[machine]
    assert held("scaled_mm_sm90_fp8") == {"sm_90a"}
    assert held("scaled_mm_sm120_int8") == set()  # there is no int8 kernel for Blackwell
    assert held("fused_quantize_mx", "vllm/_qutlass_C.abi3.so") == {"sm_100f"}


@pytest.mark.parametrize(("machine", "present", "absent"), [("x86_64", 75, 110), ("aarch64", 110, 75)])
def test_each_machine_has_the_targets_of_its_pipeline(machine: str, present: int, absent: int) -> None:
    measured = _vllm(machine).measured
    assert measured is not None
    libraries = {library.path: library for library in measured.libraries or ()}
    sms = {image.sm for group in libraries[C_LIBRARY].groups for image in group.images}
    assert present in sms
    assert absent not in sms
    assert "libcudart.so.13" in libraries[C_LIBRARY].needed


def test_a_wheel_whose_libraries_were_not_opened_is_unknown() -> None:
    (row, *_) = [row for row in read_wheel_index("vllm") if row.version == "0.33.0"]
    assert row.measured is not None
    unread = replace(row, measured=replace(row.measured, libraries=None))
    assert images_of(unread, C_LIBRARY, "nvfp4_scaled_mm_sm120_kernels") is None


def test_torch_claims_the_toolkit_it_pins() -> None:
    assert {row.declared.cuda for row in read_wheel_index("torch") if row.version == "2.14.0"} == {"13.0.3"}


def test_toolkit_pins() -> None:
    pins = cuda_toolkit_pins("13.0.3")
    assert pins is not None
    assert pins["nvidia-cuda-runtime"] == "==13.0.96.*"
    assert pins["nvidia-cuda-nvcc"] == "==13.0.88.*"
    assert cuda_toolkit_pins("13.0.3.0") == pins
    assert cuda_toolkit_pins("1.0") is None


def test_the_runtime_of_each_known_toolkit_is_of_its_minor_release() -> None:
    for release in read_cuda_toolkits():
        pins = cuda_toolkit_pins(release.version)
        assert pins is not None
        minor = ".".join(release.version.split(".")[:2])
        runtime = pins.get("nvidia-cuda-runtime") or pins["nvidia-cuda-runtime-cu12"]
        assert runtime.startswith(f"=={minor}.")
