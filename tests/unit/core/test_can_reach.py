"""The shortcut that skips the ways of a row that cannot hold never skips one that can."""

from __future__ import annotations

import pytest

from qresolve.classes import at_least_as_good
from qresolve.question import ask_question
from qresolve.target.target import build_target, read_target_data
from qresolve.ways import can_reach, ways

ROWS = [
    "nvfp4",
    "mxfp4",
    "mxfp8",
    "fp8-block",
    "int8",
    "w4a8-fp8",
    "mxfp6",
    "fp8:moe",
    "nvfp4:moe",
    "nvfp4:kv",
    "fp8:kv",
]


@pytest.mark.parametrize("gpu", ["sm75", "sm89", "sm90", "sm100", "sm120"])
def test_what_is_skipped_has_no_way(gpu: str) -> None:
    data = read_target_data()
    question = ask_question(
        formats=ROWS,
        target=build_target(gpu=[gpu], data=data),
        architectures=data.architectures,
        engine="vllm==0.33.0",
    )
    skipped = 0
    for row in question.rows():
        bench = question.bench("0.33.0", row)
        assert bench is not None
        for wanted in ("native", "mixed"):
            if can_reach(bench, wanted):
                continue
            skipped += 1
            assert not [way for way in ways(bench) if at_least_as_good(way.outcome.verdict, wanted)], (row.key, wanted)
    if gpu in {"sm75", "sm90"}:
        assert skipped  # the shortcut is taken at all
