"""``explain`` and ``lock`` for engines whose records lean on documentation, or whose wheels are elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qresolve.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    assert not Path("pylock.toml").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("--engine lmdeploy --gpu sm90 --formats int4", 0),
        ("--engine lmdeploy --gpu sm90 --formats fp8-block --assume workload.quantizer=fp8", 0),
        ("--engine lmdeploy --gpu sm90 --formats nvfp4", 3),
        ("--engine lmdeploy --gpu sm103 --formats int4", 6),
        ("--engine tensorrt-llm --gpu sm100 --formats nvfp4", 7),
        ("--engine tensorrt-llm==1.2.1 --gpu sm90 --formats awq", 7),
        ("--engine tensorrt-llm --gpu sm90 --formats nvfp4", 3),
        ("--engine mlc-llm --gpu sm90 --formats awq", 0),
        ("--engine mlc-llm --gpu sm90 --formats fp8-block", 7),
    ],
)
def test_exit_codes_of_explain(arguments: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *arguments.split()]) == code
    assert capsys.readouterr().out


def test_explain_tells_what_documentation_claims(capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", "--engine", "tensorrt-llm", "--gpu", "sm100", "--formats", "nvfp4", "--json"])
    (row,) = (item for item in json.loads(capsys.readouterr().out)["formats"] if item["asked"])
    assert (row["verdict"], row["holds"], row["possible"]) == ("unknown", False, ["native", "unknown"])


def test_explain_gives_the_reason_beside_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", "--engine", "lmdeploy", "--gpu", "sm90", "--formats", "int8"])
    assert "--assume workload.quantizer=smooth_quant" in capsys.readouterr().out


def test_lock_refuses_what_is_only_documented_and_says_where_the_wheels_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["lock", "--engine", "tensorrt-llm", "--gpu", "sm100", "--formats", "nvfp4"]) == 7
    said = capsys.readouterr().err
    assert "documentation only" in said
    assert "https://pypi.nvidia.com" in said
    assert "--engine tensorrt-llm==" in said


def test_lock_says_where_the_wheels_are_when_they_cannot_be_had(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--engine", "mlc-llm", "--gpu", "sm90", "--formats", "awq", "--offline"]
    assert main(["lock", *asked]) == 3
    assert "https://mlc.ai/wheels" in capsys.readouterr().err
