from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qresolve.errors import UsageError
from qresolve.target.detect import (
    DetectedGpu,
    Detection,
    DetectionFailed,
    parse_nvidia_smi,
    read_host,
    read_nvidia_smi,
    read_nvml,
    select_visible,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MACHINES = Path(__file__).parents[2] / "data" / "machines"


def recorded(name: str) -> str:
    return (MACHINES / name).read_text(encoding="utf-8")


def host(name: str) -> Callable[[], Detection]:
    return lambda: parse_nvidia_smi(recorded(name))


def fails(why: str) -> Callable[[], Detection]:
    def reader() -> Detection:
        raise DetectionFailed(why)

    return reader


def indices(gpus: tuple[DetectedGpu, ...]) -> list[int]:
    return [gpu.index for gpu in gpus]


def test_one_gpu() -> None:
    found = parse_nvidia_smi(recorded("rtx5090.csv"))
    assert found.driver == "580.95.05"
    assert [(gpu.name, gpu.sm, gpu.mig) for gpu in found.gpus] == [("NVIDIA GeForce RTX 5090", 120, False)]


def test_every_gpu_of_a_mixed_host_counts() -> None:
    assert [gpu.sm for gpu in parse_nvidia_smi(recorded("mixed.csv")).gpus] == [86, 120, 120]


def test_mig_is_told_for_each_gpu() -> None:
    assert [gpu.mig for gpu in parse_nvidia_smi(recorded("h100_mig.csv")).gpus] == [True, False]


def test_a_value_that_is_not_told_is_unknown() -> None:
    found = parse_nvidia_smi(recorded("no_permission.csv"))
    assert found.gpus[0].compute is None
    assert found.gpus[0].sm is None


def test_no_devices_is_no_gpu() -> None:
    assert parse_nvidia_smi(recorded("no_devices.txt")).gpus == ()


@pytest.mark.parametrize(
    ("name", "status", "why"),
    [
        ("no_driver.txt", 9, "couldn't communicate with the NVIDIA driver"),
        ("version_mismatch.txt", 18, "Driver/library version mismatch"),
        ("old_driver.txt", 2, "too old to tell compute capabilities"),
    ],
)
def test_failures_are_told_in_the_words_of_the_tool(name: str, status: int, why: str) -> None:
    with pytest.raises(DetectionFailed, match=why):
        parse_nvidia_smi(recorded(name), status=status)


@pytest.mark.parametrize("text", ["0, GPU-1, RTX\n", "zero, GPU-1, RTX, 12.0, 580.1, [N/A]\n"])
def test_other_lines_are_not_guessed_at(text: str) -> None:
    with pytest.raises(DetectionFailed, match="not understood"):
        parse_nvidia_smi(text)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (FileNotFoundError(), "not installed"),
        (PermissionError(), "may not be run"),
        (subprocess.TimeoutExpired("nvidia-smi", 1), "did not answer"),
    ],
)
def test_a_tool_that_cannot_be_run(error: Exception, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(DetectionFailed, match=why):
        read_nvidia_smi()


def test_the_tool_is_asked_with_a_list_and_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def run(command: tuple[str, ...], **options: Any) -> subprocess.CompletedProcess[str]:
        asked.update(options, command=command)
        return subprocess.CompletedProcess(command, 0, stdout=recorded("gb10.csv"), stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    assert read_nvidia_smi().gpus[0].sm == 121
    assert asked["command"][0] == "nvidia-smi"
    assert "shell" not in asked
    assert asked["timeout"] > 0


class FakeError(Exception):
    pass


class FakeNvml:
    """NVML of a host with an H100 in MIG mode (one instance, then an empty slot) and an RTX 5090."""

    NVMLError = FakeError

    def __init__(self, *, init: str = "", names_as_bytes: bool = False) -> None:
        self.init = init
        self.names_as_bytes = names_as_bytes
        self.open = False

    def nvmlInit(self) -> None:  # noqa: N802
        if self.init:
            raise FakeError(self.init)
        self.open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.95.05"

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        return ("h100", "rtx")[index]

    def nvmlDeviceGetCudaComputeCapability(self, handle: str) -> tuple[int, int]:  # noqa: N802
        return {"h100": (9, 0), "rtx": (12, 0)}[handle]

    def nvmlDeviceGetName(self, handle: str) -> str | bytes:  # noqa: N802
        name = {"h100": "NVIDIA H100 PCIe", "rtx": "NVIDIA GeForce RTX 5090"}[handle]
        return name.encode() if self.names_as_bytes else name

    def nvmlDeviceGetUUID(self, handle: str) -> str:  # noqa: N802
        return {"h100": "GPU-1", "rtx": "GPU-2", "slice": "MIG-9"}[handle]

    def nvmlDeviceGetMigMode(self, handle: str) -> tuple[int, int]:  # noqa: N802
        if handle == "rtx":
            raise FakeError("Not Supported")
        return (1, 1)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, index: int) -> str:  # noqa: N802
        if index == 1:
            raise FakeError("Not Found")
        return "slice"


@pytest.mark.parametrize("names_as_bytes", [False, True])
def test_nvml_is_read(names_as_bytes: bool) -> None:
    library = FakeNvml(names_as_bytes=names_as_bytes)
    found = read_nvml(library)
    assert [(gpu.name, gpu.sm, gpu.mig, gpu.mig_uuids) for gpu in found.gpus] == [
        ("NVIDIA H100 PCIe", 90, True, ("MIG-9",)),
        ("NVIDIA GeForce RTX 5090", 120, False, ()),
    ]
    assert (found.driver, found.source) == ("580.95.05", "nvml")
    assert not library.open


@pytest.mark.parametrize("why", ["NVML Shared Library Not Found", "Insufficient Permissions", "Driver Not Loaded"])
def test_nvml_that_refuses(why: str) -> None:
    with pytest.raises(DetectionFailed, match=why):
        read_nvml(FakeNvml(init=why))


def test_the_second_way_is_tried_where_the_first_fails() -> None:
    found = read_host({}, (fails("NVML: gone"), host("gb10.csv")))
    assert [gpu.sm for gpu in found.gpus] == [121]


def test_a_host_without_a_gpu_says_what_was_tried() -> None:
    with pytest.raises(UsageError) as caught:
        read_host({}, (fails("NVML: gone"), host("no_devices.txt")))
    assert "NVML: gone" in caught.value.message
    assert "reports no GPU" in caught.value.message
    assert "--gpu sm120" in (caught.value.hint or "")


MIXED = parse_nvidia_smi(recorded("mixed.csv")).gpus
SAME = parse_nvidia_smi(recorded("h100_mig.csv")).gpus


def test_without_the_variable_all_are_visible() -> None:
    assert select_visible(MIXED, None) == MIXED


@pytest.mark.parametrize("variable", ["", "-1", "NoDevFiles", "7", "GPU-nope", "GPU-"])
def test_hiding_every_gpu_is_said(variable: str) -> None:
    with pytest.raises(UsageError, match="hides all 3 GPUs") as caught:
        select_visible(MIXED, variable)
    assert caught.value.hint == "unset CUDA_VISIBLE_DEVICES"


def test_indices_count_in_pci_order_where_cuda_was_told_so() -> None:
    assert indices(select_visible(MIXED, "1", order="PCI_BUS_ID")) == [1]
    assert indices(select_visible(MIXED, "2,0", order="PCI_BUS_ID")) == [0, 2]


def test_an_index_on_a_mixed_host_is_not_guessed() -> None:
    with pytest.raises(UsageError, match="fastest GPU first") as caught:
        select_visible(MIXED, "0")
    assert caught.value.hint == "export CUDA_DEVICE_ORDER=PCI_BUS_ID"


def test_an_index_among_equals_needs_no_order() -> None:
    assert indices(select_visible(SAME, "1")) == [1]


def test_an_unknown_entry_hides_all_that_follow() -> None:
    assert indices(select_visible(MIXED, "1,9,2", order="PCI_BUS_ID")) == [1]
    with pytest.raises(UsageError):
        select_visible(MIXED, "9,1", order="PCI_BUS_ID")


def test_uuids_may_be_shortened() -> None:
    assert indices(select_visible(MIXED, "GPU-aaaaaaaa")) == [0]
    assert indices(select_visible(MIXED, "GPU-bbbbbbbb-0000-0000-0000-000000000003")) == [2]


def test_a_mig_instance_has_the_architecture_of_its_gpu() -> None:
    gpus = read_nvml(FakeNvml()).gpus
    assert [gpu.sm for gpu in select_visible(gpus, "MIG-9")] == [90]
    assert [gpu.sm for gpu in select_visible(gpus, "MIG-GPU-1/3/0")] == [90]
    assert indices(select_visible(SAME, "MIG-12345678")) == [0]  # nvidia-smi does not list instances
    with pytest.raises(UsageError, match="hides all"):
        select_visible(gpus, "MIG-nope")


def test_the_variable_of_the_environment_counts() -> None:
    found = read_host({"CUDA_VISIBLE_DEVICES": "GPU-aaaaaaaa"}, (host("mixed.csv"),))
    assert [gpu.sm for gpu in found.gpus] == [86]
    with pytest.raises(UsageError, match="hides all"):
        read_host({"CUDA_VISIBLE_DEVICES": ""}, (host("mixed.csv"), fails("not asked")))


@pytest.mark.parametrize(
    ("programs", "cxx", "found"),
    [
        (("gcc", "c++"), None, True),
        (("gcc", "clang++"), "clang++ -stdlib=libstdc++", True),
        (("gcc", "c++"), "clang++", False),
        (("gcc",), None, False),
        (("c++", "g++"), None, False),
        ((), None, False),
    ],
)
def test_a_cxx_compiler_is_gcc_for_nvcc_and_what_links(
    programs: tuple[str, ...], cxx: str | None, found: bool, tmp_path: Path
) -> None:
    for program in programs:
        (tmp_path / program).write_text("#!/bin/sh\n", encoding="utf-8")
        (tmp_path / program).chmod(0o755)
    variables = {"PATH": str(tmp_path), **({"CXX": cxx} if cxx is not None else {})}
    assert read_host(variables, (host("gb10.csv"),)).cxx is found
