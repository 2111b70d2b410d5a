"""The README's main command, on the real index."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import tomli

from qresolve.cli.main import main

pytestmark = pytest.mark.network


def test_the_main_command_locks_what_the_readme_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    block = readme.partition("<!-- main-command -->")[2].partition("<!-- /main-command -->")[0]
    found = re.search(r"qresolve (lock [^\n`]+)", block)
    assert found is not None
    monkeypatch.chdir(tmp_path)
    code = main(shlex.split(found[1]))
    said = capsys.readouterr().err
    if code == 3 and "index" in said:
        pytest.skip(f"no index can be reached: {said.splitlines()[-1]}")
    assert code == 0, said
    tool = tomli.loads(Path("pylock.toml").read_text(encoding="utf-8"))["tool"]["qresolve"]
    assert {row["format"]: row["verdict"] for row in tool["formats"]} == {"mxfp4": "native", "nvfp4": "native"}
