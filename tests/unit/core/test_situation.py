"""The facts of a row: what the target and the host say."""

from __future__ import annotations

import pytest

from qresolve.judging import answer
from qresolve.question import Question, ask_question
from qresolve.target.detect import Detection, parse_nvidia_smi
from qresolve.target.target import build_target, read_target_data

CSV = "0, GPU-1, NVIDIA GeForce RTX 5090, 12.0, 580.95.05, [N/A]\n"


def asked(gpu: str, *, machine: str | None = None, cxx: bool | None = None, engine: str | None = None) -> Question:
    data = read_target_data()
    found = parse_nvidia_smi(CSV)
    return ask_question(
        formats=["nvfp4"],
        target=build_target(
            gpu=[gpu],
            data=data,
            machine=machine,
            detect=lambda: Detection(
                gpus=found.gpus, driver=found.driver, source=found.source, machine="x86_64", glibc="2.39", cxx=cxx
            ),
        ),
        architectures=data.architectures,
        engine=engine,
    )


def fact(question: Question, key: str) -> object:
    bench = question.bench(question.releases()[0], question.rows()[0])
    assert bench is not None
    return bench.table.get(key).value


@pytest.mark.parametrize(("gpu", "machine"), [("gb10", "aarch64"), ("sm120", "x86_64"), ("sm90", "aarch64")])
def test_a_gate_can_ask_for_the_cpu_machine(gpu: str, machine: str) -> None:
    assert fact(asked(gpu, machine=machine), "target.machine") == machine


@pytest.mark.parametrize("cxx", [True, False, None])
def test_the_cxx_compiler_is_as_detected_and_unknown_where_nobody_looked(cxx: bool | None) -> None:
    assert fact(asked("auto", cxx=cxx), "host.cxx") is cxx
    assert fact(asked("sm120", cxx=cxx), "host.cxx") is None
    bench = (question := asked("auto", cxx=cxx)).bench(question.releases()[0], question.rows()[0], plain=True)
    assert bench is not None
    assert bench.table.get("host.cxx").value is False


def test_a_remedy_that_names_the_detected_gpu_keeps_what_was_detected() -> None:

    found = answer(asked("auto", cxx=True, engine="sglang"))
    commands = [remedy.run for row in found.rows if row.asked for remedy in row.remedy if remedy.run]
    assert commands
    assert all("--assume host.cxx=true" in command for command in commands)
    assert any(command.endswith("--nvcc 13.0") for command in commands)


def test_the_digest_covers_the_wheels_that_the_asked_ladders_look_at() -> None:
    """FP8 asks for images of sglang-kernel; NVFP4 asks for none of them."""

    def wheels(formats: str) -> set[str]:
        data = read_target_data()
        question = ask_question(
            formats=[formats],
            target=build_target(gpu=["sm120"], data=data),
            architectures=data.architectures,
            engine="sglang",
        )
        records = answer(question, extra=False).records
        return {key.removeprefix("wheel:").partition("-")[0] for key in records if key.startswith("wheel:")}

    assert wheels("fp8") == {"sglang", "sglang_kernel"}
    assert wheels("nvfp4") == {"sglang"}
