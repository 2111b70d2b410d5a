from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.arch import read_architectures
from qresolve.errors import DataInvalid, UsageError
from qresolve.strict import Table
from qresolve.target.names import (
    Gpu,
    normalise,
    parse_gpu,
    parse_gpu_names,
    parse_gpus,
    read_gpu_names,
    shorten,
)

ARCHITECTURES = read_architectures()
NAMES = read_gpu_names(ARCHITECTURES)
PRODUCTS = [(name, record) for record in NAMES.records for name in record.names]
ALL = [name for name, _ in PRODUCTS]


def read(text: str) -> Gpu:
    return parse_gpu(text, NAMES, ARCHITECTURES)


def refusal(*texts: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse_gpus(texts, NAMES, ARCHITECTURES)
    return caught.value


@pytest.mark.parametrize("text", ["sm120", "sm_120", "SM120", "SM_120", "12.0", "120", " sm120 ", "sm-120", "cc12.0"])
def test_an_architecture_is_read_in_every_spelling(text: str) -> None:
    gpu = read(text)
    assert (gpu.name, gpu.arch, gpu.sm) == ("sm120", "sm120", 120)


@pytest.mark.parametrize(
    ("text", "arch", "kind", "machine"),
    [
        ("rtx5090", "sm120", "geforce", "x86_64"),
        ("RTX 5090", "sm120", "geforce", "x86_64"),
        ("rtx-5090-laptop", "sm120", "geforce", "x86_64"),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", "sm120", "geforce", "x86_64"),
        ("rtx 5070 ti", "sm120", "geforce", "x86_64"),
        ("rtx 4080 SUPER", "sm89", "geforce", "x86_64"),
        ("rtx3090ti", "sm86", "geforce", "x86_64"),
        ("NVIDIA GeForce RTX 2080 Ti", "sm75", "geforce", "x86_64"),
        ("gtx1660", "sm75", "geforce", "x86_64"),
        ("NVIDIA GeForce GTX 1660 Ti with Max-Q Design", "sm75", "geforce", "x86_64"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "sm120", "professional", "x86_64"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "sm120", "datacenter", "x86_64"),
        ("NVIDIA RTX 6000 Ada Generation", "sm89", "professional", "x86_64"),
        ("NVIDIA RTX A2000 12GB", "sm86", "professional", "x86_64"),
        ("Quadro RTX 6000", "sm75", "professional", "x86_64"),
        ("Tesla T4", "sm75", "datacenter", "x86_64"),
        ("NVIDIA A10G", "sm86", "datacenter", "x86_64"),
        ("NVIDIA A100-SXM4-80GB", "sm80", "datacenter", "x86_64"),
        ("a800", "sm80", "datacenter", "x86_64"),
        ("l40s", "sm89", "datacenter", "x86_64"),
        ("h20", "sm90", "datacenter", "x86_64"),
        ("NVIDIA H100 80GB HBM3", "sm90", "datacenter", "x86_64"),
        ("NVIDIA H100 PCIe", "sm90", "datacenter", "x86_64"),
        ("NVIDIA GH200 480GB", "sm90", "datacenter", "aarch64"),
        ("b200", "sm100", "datacenter", "x86_64"),
        ("gb200", "sm100", "datacenter", "aarch64"),
        ("b300", "sm103", "datacenter", "x86_64"),
        ("gb300", "sm103", "datacenter", "aarch64"),
        ("gb10", "sm121", "soc", "aarch64"),
        ("DGX Spark", "sm121", "soc", "aarch64"),
        ("Orin (nvgpu)", "sm87", "jetson", "aarch64"),
        ("jetson-orin-nano", "sm87", "jetson", "aarch64"),
        ("AGX Thor", "sm110", "jetson", "aarch64"),
        ("T5000", "sm110", "jetson", "aarch64"),
    ],
)
def test_a_product_is_read_as_people_and_drivers_write_it(text: str, arch: str, kind: str, machine: str) -> None:
    gpu = read(text)
    assert (gpu.arch, gpu.kind, gpu.machines[0]) == (arch, kind, machine)
    assert gpu.name == text


@pytest.mark.parametrize("product", PRODUCTS, ids=[name for name, _ in PRODUCTS])
def test_every_recorded_name_is_read(product: tuple[str, object]) -> None:
    name, record = product
    gpu = read(name)
    assert NAMES.find(name) is record
    assert gpu.sm == NAMES.find(shorten(name)).sm  # type: ignore[union-attr]
    assert read(f"NVIDIA {name.upper()} GPU").sm == gpu.sm


@given(st.sampled_from(ALL), st.randoms(use_true_random=False))
def test_case_spaces_and_dashes_do_not_matter(name: str, random: object) -> None:
    choose = random.choice  # type: ignore[attr-defined]
    mangled = "".join(choose((letter.lower(), letter.upper())) for letter in name)
    mangled = re.sub(r"[ -]", lambda _: choose((" ", "-", "  ", "_", "")), mangled)
    assert read(mangled).sm == read(name).sm


def test_normalising_twice_changes_nothing() -> None:
    for name in ALL:
        assert normalise(normalise(name)) == normalise(name)


def test_an_architecture_knows_what_all_its_products_share() -> None:
    assert read("sm121").machines == ("aarch64",)
    assert read("sm110").kind == "jetson"
    assert read("sm90").machines == ("x86_64", "aarch64")
    assert read("sm120").kind is None  # GeForce, professional and data center


def test_several_gpus_are_read_from_commas_and_repetition_each_once_and_sorted() -> None:
    gpus = parse_gpus(["sm121,rtx5090", "RTX-5090", "sm89"], NAMES, ARCHITECTURES)
    assert [gpu.arch for gpu in gpus] == ["sm89", "sm120", "sm121"]


def test_none_is_no_gpu_and_stands_alone() -> None:
    assert parse_gpus(["none"], NAMES, ARCHITECTURES) == ()
    assert "none" in refusal("none", "sm120").message


def test_no_name_at_all_is_refused() -> None:
    assert refusal("", " , ").hint is not None


@pytest.mark.parametrize(
    ("text", "archs"),
    [
        ("rtx6000", ["sm75", "sm89", "sm120"]),
        ("RTX 6000", ["sm75", "sm89", "sm120"]),
        ("rtx 5000", ["sm75", "sm89", "sm120"]),
        ("NVIDIA RTX 4000", ["sm75", "sm89", "sm120"]),
    ],
)
def test_a_name_of_several_products_is_refused_with_the_choices(text: str, archs: list[str]) -> None:
    error = refusal(text)
    assert all(arch in error.message for arch in archs)
    assert error.hint is not None
    assert read(error.hint.removeprefix("--gpu ")).arch in archs


@pytest.mark.parametrize("text", ["sm_120a", "sm120f", "12.0f", "120f", "compute_120a"])
def test_a_build_target_is_refused_with_the_gpu_it_means(text: str) -> None:
    error = refusal(text)
    assert "build target" in error.message
    assert error.hint == "--gpu sm120"


def test_an_unknown_architecture_is_refused_with_its_neighbours() -> None:
    error = refusal("sm99")
    assert "sm90 and sm100" in error.message
    assert error.hint == "--gpu sm100"


@pytest.mark.parametrize(
    ("text", "sm"), [("V100", "sm70"), ("Tesla V100-SXM2-32GB", "sm70"), ("GTX 1080", "sm61"), ("p100", "sm60")]
)
def test_old_gpus_are_refused_by_name(text: str, sm: str) -> None:
    message = refusal(text).message
    assert sm in message
    assert "too old" in message
    assert "sm75" in message


def test_an_old_architecture_is_refused_like_its_gpus() -> None:
    assert "too old" in refusal("sm70").message
    assert "too old" in refusal("6.1").message


@pytest.mark.parametrize("text", ["mi300x", "MI355X", "gfx942", "rocm", "Radeon RX 7900 XTX", "AMD Instinct MI300X"])
def test_amd_is_refused_by_name(text: str) -> None:
    message = refusal(text).message
    assert "AMD" in message
    assert "ROCm is not supported" in message


@pytest.mark.parametrize("text", ["arc b580", "gaudi3", "Intel Arc A770"])
def test_intel_is_refused_by_name(text: str) -> None:
    assert "Intel" in refusal(text).message


@pytest.mark.parametrize(("text", "near"), [("rtx5091", "rtx-5090"), ("5090", "rtx-5090"), ("h1000", "h100")])
def test_an_unknown_name_is_refused_with_the_nearest(text: str, near: str) -> None:
    error = refusal(text)
    assert "unknown GPU" in error.message
    assert near in error.message
    assert error.hint is not None
    read(error.hint.removeprefix("--gpu "))


def test_a_name_like_nothing_is_refused_with_a_command_that_tells() -> None:
    assert (refusal("qqqqqqqq").hint or "").startswith("nvidia-smi ")


def test_names_that_mean_two_things_are_refused_as_data() -> None:
    base = {
        "series": "a",
        "sm": 120,
        "kind": "geforce",
        "machines": ["x86_64"],
        "source": "a test",
        "checked": next(iter(NAMES.records)).checked,
    }
    rows = {"gpu": [base | {"names": ["RTX 1"]}, base | {"names": ["GeForce RTX-1"]}]}
    with pytest.raises(DataInvalid, match="is written like"):
        parse_gpu_names(Table(rows, file="gpus.toml"), ARCHITECTURES)
    with pytest.raises(DataInvalid, match="has no record in"):
        parse_gpu_names(Table({"gpu": [base | {"names": ["x"], "sm": 99}]}, file="gpus.toml"), ARCHITECTURES)
    with pytest.raises(DataInvalid, match="unknown key"):
        parse_gpu_names(Table({"gpu": [base | {"names": ["x"], "cores": 1}]}, file="gpus.toml"), ARCHITECTURES)
