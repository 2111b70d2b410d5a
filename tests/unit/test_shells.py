"""An image that loads and holds no instruction: counted as absent, and called what it is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from qresolve.cli.main import main
from qresolve.completions import answer_from
from qresolve.facts import Fact, FactTable
from qresolve.gates import All, AnyOf, Compare, Expression, kleene
from qresolve.knowledge.engine import load_engine
from qresolve.shells import words_of_gate
from tests.unit.core.small_engine import gate

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

    from qresolve.knowledge.records import Gate

LOST = "the wheel has no image of it"
A, B = (Compare(f"image.engine:lib/{name}", "is", "sass") for name in ("a", "b"))
SHELL = Fact(value="none", source="measured", shell_image="sm_120f")
NONE = Fact(value="none", source="measured")


def table(images: Mapping[str, Fact], sm: int = 120) -> FactTable:
    values = {f"image.engine:lib/{name}": fact for name, fact in images.items()}
    return FactTable(vocabulary=load_engine("vllm").vocabulary, values={**values, "gpu.sm": Fact(value=sm, source="")})


def of(when: Expression) -> Gate:
    return replace(gate("image", when), say=LOST)


def test_a_kernel_without_an_image_is_said_in_the_words_of_its_record() -> None:
    assert words_of_gate(of(A), table({"a": NONE})) == LOST


def test_a_shell_is_named_with_the_image_that_loads() -> None:
    words = words_of_gate(of(A), table({"a": SHELL}))
    assert "sm_120f image of a loads" in words
    assert "no tensor-core instruction" in words
    assert LOST not in words


def test_of_two_kernels_each_is_said_what_is_true_of_it() -> None:
    words = words_of_gate(of(All((A, B))), table({"a": SHELL, "b": NONE}))
    assert "sm_120f image of a loads" in words
    assert "no image of b loads" in words


def test_a_shell_that_does_not_matter_on_this_gpu_is_not_blamed() -> None:
    newer, older = Compare("gpu.sm", "at-least", 120), Compare("gpu.sm", "below", 120)
    either = of(AnyOf((All((newer, A)), All((older, B)))))
    assert words_of_gate(either, table({"a": NONE, "b": SHELL})) == LOST
    assert "image of b" in words_of_gate(either, table({"a": NONE, "b": SHELL}, sm=110))


def test_where_something_else_fails_the_gate_a_shell_is_not_blamed() -> None:
    gated = of(All((A, Compare("gpu.sm", "below", 100))))
    found = table({"a": SHELL})
    assert kleene(gated.when, answer_from(found)) is False
    assert words_of_gate(gated, found) == LOST


# ---------------------------------------------------------------- recorded wheels


def explained(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[Any, str]:
    main(["explain", *options, "--json"])
    document = json.loads(capsys.readouterr().out)
    main(["explain", *options, "-v"])
    (row,) = [one for one in document["formats"] if one["asked"]]
    return row, " ".join(capsys.readouterr().out.split())


def options(release: str, arch: str, machine: str, selector: str) -> tuple[str, ...]:
    return ("--engine", f"vllm=={release}", "--gpu", arch, "--machine", machine, "--formats", selector)


def test_explain_says_that_the_image_of_0_20_2_on_thor_is_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    row, text = explained(capsys, *options("0.20.2", "sm110", "aarch64", "fp8@channel-dynamic"))
    assert row["verdict"] == "broken"
    assert "the sm_110f image of scaled_mm_sm100_fp8 loads on this GPU and is a shell" in text
    assert "no image of the FP8 kernel that loads" not in text
    gate = next(one for route in row["routes"] for one in route["gates"] if "scaled_mm_sm100_fp8" in one["have"])
    assert "scaled_mm_sm100_fp8 none (sm_110f is a shell)" in gate["have"]


def test_explain_says_of_the_x86_wheel_that_nothing_loads(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = explained(capsys, *options("0.20.2", "sm110", "x86_64", "fp8@channel-dynamic"))
    assert "no image of the FP8 kernel that loads" in text
    assert "shell" not in text


def test_explain_tells_the_shell_of_0_9_2_from_its_missing_quantizer(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = explained(capsys, *options("0.9.2", "sm120", "x86_64", "nvfp4:moe"))
    assert "the sm_120 image of nvfp4_blockwise_moe_kernel loads on this GPU and is a shell" in text
    assert "no image of nvfp4_experts_quant loads on this GPU" in text


def test_the_matrix_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    main(["matrix", "--engine", "vllm==0.9.2", "--formats", "nvfp4:moe", "--gpu", "sm120", "--json"])
    document = json.loads(capsys.readouterr().out)
    reasons = {sheet["cells"][0][0]["plain"]["why"] for sheet in document["sheets"]}
    assert any("is a shell" in reason for reason in reasons)
