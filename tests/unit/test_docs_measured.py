"""The page on what a card showed says what was recorded."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from qresolve.verify.evidence import Binds, Evidence, FormatRow, Outcome, Verdict, VerifiedEnvironment, VerifyReport
from qresolve.verify.report import format_header, format_rows, plain_table

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "h200.md").read_text(encoding="utf-8")
RECORDED: dict[str, Any] = json.loads((DOCS / "measured" / "h200.json").read_text(encoding="utf-8"))


def launched(triton: str) -> dict[str, Any]:
    (found,) = [one["launched"] for one in RECORDED["probes"] if one.get("triton") == triton]
    (device,) = found["devices"]
    assert device["sm"] == 90
    return dict(device["probes"])


def cell(facts: dict[str, Any]) -> str:
    return f"{facts['numbers']}, {facts['worst']:.2g}, {facts['ratio']:.2f}"


def test_every_probe_of_the_page_is_as_it_was_recorded() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    newer, older = launched("3.8.0"), launched("3.6.0")
    assert {row[0] for row in rows} == set(newer)
    for name, first, second in rows:
        assert first == cell(newer[name])
        assert second == cell(older[name]) if name in older else second.startswith("not compiled")
        assert newer[name]["spoiled"] == "refuted"


def test_every_operation_of_the_page_is_as_it_was_recorded() -> None:
    rows = {
        row[0]: row[1:]
        for row in re.findall(r"^\| [^|:]+: ([^|]+) \| (\w+) \| ([\w-]+) \| (\w+|-) \|", PAGE, re.MULTILINE)
    }
    lines = {line["operation"]: line for group in RECORDED["operations"] for line in group["lines"]}
    assert set(rows) == set(lines)
    for name, (end, numbers, spoiled) in rows.items():
        assert (end, numbers, spoiled) == (
            lines[name]["end"], lines[name].get("numbers", "-"), lines[name].get("spoiled", "-")
        )  # fmt: skip


def test_nothing_is_claimed_of_a_gpu_that_was_not_there() -> None:
    assert {device["name"] for device in RECORDED["host"]["devices"]} == {"NVIDIA H200"}
    for one in RECORDED["probes"]:
        for device in one.get("launched", {}).get("devices", ()):
            assert device["name"] == "NVIDIA H200"


def test_the_table_of_verify_is_that_of_its_recorded_report() -> None:
    recorded = json.loads((DOCS / "measured" / "h200-verify.json").read_text(encoding="utf-8"))

    def about(one: dict[str, Any]) -> FormatRow:
        return FormatRow(
            format=one["format"],
            scheme=one["scheme"],
            role=one["role"],
            arch=one["arch"],
            engine=one["engine"],
            wanted="",
        )

    report = VerifyReport(
        target=None,
        environment=VerifiedEnvironment(**recorded["environment"]),
        evidence=tuple(
            Evidence(
                rung=one["rung"], binds=Binds(one["binds"]), subject=one["subject"], outcome=Outcome(one["outcome"]),
                about=about(one) if one["format"] else None,
            )
            for one in recorded["evidence"]
        ),
        verdicts=tuple(
            Verdict(
                about=about(one), verdict=one["verdict"], level=one["level"], holds=one["holds"], route=one["route"]
            )
            for one in recorded["verdicts"]
        ),
    )  # fmt: skip
    assert plain_table(format_header(), format_rows(report)) in PAGE
    assert not any(verdict.holds for verdict in report.verdicts)
