"""Mistakes of usage end with a hint that can be pasted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

ASKED = ["matrix", "--gpu", "sm120", "--formats", "nvfp4", "-o"]


def test_a_matrix_for_a_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "gone"
    assert main([*ASKED, str(folder / "page.html")]) == 2
    assert f"hint: mkdir -p {folder}" in capsys.readouterr().err
    folder.mkdir()
    assert main([*ASKED, str(folder / "page.html")]) == 0


def test_a_matrix_for_a_file_that_is_taken_for_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    assert main([*ASKED, str(tmp_path / "file" / "page.html")]) == 2
    assert "hint: -o -" in capsys.readouterr().err
