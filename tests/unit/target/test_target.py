from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qresolve.errors import UsageError
from qresolve.target.detect import Detection, parse_nvidia_smi
from qresolve.target.target import Default, Target, build_target, describe_defaults, read_target_data

DATA = read_target_data()
MACHINES = Path(__file__).parents[2] / "data" / "machines"


def never() -> Detection:
    raise AssertionError("the host was asked")


def build(*gpu: str, **options: Any) -> Target:
    return build_target(gpu=gpu, data=DATA, **({"detect": never} | options))


def refusal(*gpu: str, **options: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        build(*gpu, **options)
    return caught.value


def recorded(name: str, **more: Any) -> Any:
    found = parse_nvidia_smi((MACHINES / name).read_text(encoding="utf-8"))
    return lambda: Detection(gpus=found.gpus, driver=found.driver, source=found.source, **more)


def test_a_name_alone_is_a_whole_target_and_every_assumption_is_told() -> None:
    target = build("sm120")
    assert (target.machine, target.glibc, target.python, target.origin) == ("x86_64", "2.35", "3.12", "named")
    assert (target.driver, target.cuda, target.nvcc) == (None, None, None)
    assert describe_defaults(target) == (
        "--machine x86_64 (usual for sm120)",
        "--glibc 2.35 (that of ubuntu22.04; none was given)",
        "--python 3.12 (none was given)",
    )


def test_nothing_is_assumed_where_all_was_given() -> None:
    target = build(
        "sm120", machine="x86_64", glibc="2.31", python="3.11", driver="570.26", cuda="cu128", nvcc="12.8.93"
    )
    assert target.defaults == ()
    assert (target.driver, target.cuda, target.nvcc, target.glibc) == ("570.26", "12.8", "12.8.93", "2.31")


@pytest.mark.parametrize("gpu", ["gb10", "sm121", "thor", "gh200", "gb200", "gb300", "orin"])
def test_the_machine_comes_from_the_gpu(gpu: str) -> None:
    target = build(gpu)
    assert target.machine == "aarch64"
    assert any(one.option == "--machine" and gpu in one.why for one in target.defaults)


def test_the_order_of_the_options_does_not_matter() -> None:
    assert build("rtx5090", "sm90,l40s") == build("l40s", "rtx5090,sm90")
    assert build("rtx5090", "sm90,l40s").archs == ("sm89", "sm90", "sm120")


def test_two_gpus_of_one_architecture_are_one_architecture() -> None:
    target = build("rtx5090,rtx5080")
    assert len(target.gpus) == 2
    assert target.archs == ("sm120",)
    assert target.sms == (120,)


def test_none_is_a_target_without_gpus() -> None:
    target = build("none")
    assert (target.gpus, target.archs, target.origin) == ((), (), "none")


def test_a_machine_that_the_board_does_not_come_with_is_refused() -> None:
    error = refusal("gb10", machine="x86_64")
    assert "gb10 boards are aarch64" in error.message
    assert error.hint == "--machine aarch64"


def test_gpus_of_two_machines_are_locked_separately() -> None:
    error = refusal("rtx5090,gb10")
    assert "rtx5090 (x86_64)" in error.message
    assert "gb10 (aarch64)" in error.message
    assert "pylock.sm120.toml" in (error.hint or "")
    assert "--gpu gb10 -o pylock.sm121.toml" in (error.hint or "")


def test_gpus_of_two_machines_may_sit_in_one_when_said() -> None:
    assert build("rtx5090,gb10", machine="arm64").machine == "aarch64"


def test_the_system_gives_the_glibc() -> None:
    target = build("sm120", os_name="ubuntu24.04")
    assert target.glibc == "2.39"
    assert all(one.option != "--glibc" for one in target.defaults)
    assert build("sm120", os_name="ubuntu24.04", glibc="2.39").glibc == "2.39"


def test_a_system_and_a_glibc_that_differ_are_refused() -> None:
    error = refusal("sm120", os_name="ubuntu24.04", glibc="2.35")
    assert "ubuntu24.04 has glibc 2.39" in error.message
    assert error.hint is not None


def test_a_system_of_one_machine_decides_it() -> None:
    assert build("orin", os_name="jetpack6").machine == "aarch64"
    assert "jetpack6 is aarch64" in refusal("rtx5090", os_name="jetpack6", machine="x86_64").message


@pytest.mark.parametrize(
    "options",
    [
        {"python": "3.12.1"},
        {"machine": "riscv64"},
        {"glibc": "musl"},
        {"driver": "12.8"},
        {"cuda": "13.99"},
        {"nvcc": "new"},
        {"os_name": "windows"},
    ],
)
def test_a_wrong_value_is_refused_with_a_hint(options: dict[str, str]) -> None:
    assert refusal("sm120", **options).hint


def test_nvcc_may_be_known_to_be_absent() -> None:
    assert build("sm120", nvcc="none").nvcc == "none"


def test_a_detected_host_is_taken_whole() -> None:
    target = build("auto", detect=recorded("mixed.csv", machine="x86_64", glibc="2.39"))
    assert target.origin == "detected"
    assert target.archs == ("sm86", "sm120")
    assert [gpu.name for gpu in target.gpus] == ["NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 5090"]
    assert {gpu.source for gpu in target.gpus} == {"nvidia-smi"}
    assert {gpu.kind for gpu in target.gpus} == {"geforce"}
    assert (target.driver, target.glibc) == ("580.95.05", "2.39")
    assert Default(option="--glibc", value="2.39", why="that of this machine") in target.defaults


def test_a_driver_that_was_given_wins_over_the_detected_one() -> None:
    assert build("auto", detect=recorded("rtx5090.csv"), driver="570.26").driver == "570.26"


def test_the_silicon_wins_over_the_name() -> None:
    found = parse_nvidia_smi("0, GPU-1, NVIDIA Engineering Sample, 10.3, 580.95.05, Disabled\n")
    gpu = build("auto", detect=lambda: found).gpus[0]
    assert (gpu.arch, gpu.name) == ("sm103", "NVIDIA Engineering Sample")


def test_a_detected_gpu_without_a_record_is_refused() -> None:
    message = refusal("auto", detect=recorded("v100.csv")).message
    assert "V100" in message
    assert "too old" in message


def test_a_detected_gpu_that_does_not_tell_is_not_guessed() -> None:
    error = refusal("auto", detect=recorded("no_permission.csv"))
    assert "A100" in error.message
    assert build((error.hint or "").removeprefix("--gpu ")).archs == ("sm80",)


def test_auto_stands_alone() -> None:
    assert refusal("auto,sm120").hint == "--gpu auto"


@pytest.mark.parametrize("cxx", [True, False, None])
def test_whether_there_is_a_cxx_compiler_is_looked_at_on_this_machine_alone(cxx: bool | None) -> None:
    assert build("auto", detect=recorded("rtx5090.csv", machine="x86_64", glibc="2.39", cxx=cxx)).cxx is cxx
    assert build("rtx5090", detect=recorded("rtx5090.csv", machine="x86_64", glibc="2.39", cxx=cxx)).cxx is None


def test_the_json_form() -> None:
    mapping = build("gb10", driver="580.95.05", cuda="13.0").to_mapping()
    assert json.loads(json.dumps(mapping)) == {
        "gpus": [{"name": "gb10", "arch": "sm121", "source": "named"}],
        "machine": "aarch64",
        "glibc": "2.35",
        "python": "3.12",
        "driver": "580.95.05",
        "cuda": "13.0",
        "nvcc": None,
        "cxx": None,
        "defaults": [
            {"option": "--machine", "value": "aarch64", "why": "gb10 boards exist for no other"},
            {"option": "--glibc", "value": "2.35", "why": "that of ubuntu22.04; none was given"},
            {"option": "--python", "value": "3.12", "why": "none was given"},
        ],
    }
