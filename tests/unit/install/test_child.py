from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

import pytest

from qresolve.install.child import run_child

if TYPE_CHECKING:
    from pathlib import Path


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(code: str, folder: Path, stream: io.StringIO) -> tuple[int, tuple[str, ...]]:
    end = run_child((sys.executable, "-c", code), variables={"PATH": os.defpath}, folder=folder, stream=stream)
    return end.status, end.tail


@pytest.mark.parametrize(("stream", "terminal"), [(io.StringIO(), False), (Terminal(), True)])
def test_a_child_gets_a_terminal_where_there_is_one(stream: io.StringIO, terminal: bool, tmp_path: Path) -> None:
    status, tail = run("import sys; print(sys.stderr.isatty(), sys.stdout.isatty()); sys.exit(3)", tmp_path, stream)
    assert (status, tail) == (3, (f"{terminal} {terminal}",))
    assert f"{terminal}" in stream.getvalue()


def test_both_outputs_are_shown_and_the_last_lines_kept(tmp_path: Path) -> None:
    stream = io.StringIO()
    _status, tail = run("for n in range(40): print(n)", tmp_path, stream)
    assert stream.getvalue().split() == [str(n) for n in range(40)]
    assert tail == tuple(str(n) for n in range(25, 40))


def test_credentials_are_hidden_even_where_a_line_comes_in_pieces(tmp_path: Path) -> None:
    stream = io.StringIO()
    code = (
        "import os, select\n"
        "for piece in (b'\\x1b[31mGET http://an', b'na:geh', b'eim@host/x\\x1b[0m'):\n"
        "    os.write(2, piece); select.select([], [], [], 0.05)\n"
    )
    _status, tail = run(code, tmp_path, stream)
    assert tail == ("GET http://****@host/x",)
    assert "geheim" not in stream.getvalue()


def test_a_grandchild_that_holds_the_output_does_not_hold_us(tmp_path: Path) -> None:
    code = "import os, signal\nif os.fork() == 0:\n    signal.pause()\nprint('done', flush=True)\nos._exit(4)\n"
    assert run(code, tmp_path, io.StringIO()) == (4, ("done",))


def test_only_the_given_variables_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CONSTRAINT", "x")
    _status, tail = run("import os; print('UV_CONSTRAINT' in os.environ, os.getcwd())", tmp_path, io.StringIO())
    assert tail == (f"False {tmp_path}",)


def test_a_program_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="absent"):
        run_child((str(tmp_path / "absent"),), variables={}, folder=tmp_path, stream=io.StringIO())
