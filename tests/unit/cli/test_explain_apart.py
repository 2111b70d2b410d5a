"""``explain --json``: what a row comes to without the others, and what each group of a model's layers comes to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema

import qresolve
from qresolve.classes import rank
from qresolve.cli.main import main

if TYPE_CHECKING:
    import pytest

SCHEMA = json.loads((Path(qresolve.__file__).parent / "schemas" / "explain.json").read_text(encoding="utf-8"))
CHECKPOINTS = Path(__file__).parents[2] / "data" / "checkpoints"


def rows_of(capsys: pytest.CaptureFixture[str], *words: str) -> list[Any]:
    main(["explain", *words, "--json"])
    document = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    return [row for row in document["formats"] if row["asked"]]


def test_alone_is_what_the_row_comes_to_when_it_is_asked_for_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(capsys, "--gpu", "sm80,sm89,sm120", "--formats", "nvfp4,mxfp4,fp8,fp8-block,mxfp8")
    apart = [row for row in rows if row["alone"] is not None]
    assert any(row["alone"]["verdict"] == "native" for row in apart)
    for row in rows:
        if row["alone"] is not None:
            assert rank(row["alone"]["verdict"]) < rank(row["verdict"])
    for row in apart:
        selector = f"{row['format']}@{row['scheme']}:{row['role']}"
        (own,) = rows_of(capsys, "--gpu", row["arch"], "--formats", selector, "--engine", "vllm==0.33.0")
        assert (own["verdict"], own["route"]) == (row["alone"]["verdict"], row["alone"]["route"])
        assert own["alone"] is None


def test_a_row_that_is_as_good_beside_the_others_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(capsys, "--gpu", "sm120", "--formats", "mxfp4,nvfp4")
    assert [row["alone"] for row in rows] == [None, None]


def test_the_row_of_a_model_is_the_worst_of_its_layers(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = rows_of(capsys, "--gpu", "sm120", "--model", str(CHECKPOINTS / "llama-gptq-64" / "config.json"))
    names = [group["name"] for group in row["layers"]]
    assert {"self_attn.qkv_proj", "self_attn.o_proj"} <= set(names)
    assert len(set(names)) == len(names)
    assert row["verdict"] == max((group["verdict"] for group in row["layers"]), key=rank)
    assert row["holds"] is all(group["holds"] for group in row["layers"])


def test_without_a_model_there_are_no_layers(capsys: pytest.CaptureFixture[str]) -> None:
    assert [row["layers"] for row in rows_of(capsys, "--gpu", "sm120", "--formats", "nvfp4")] == [[]]
