"""The entry point: which exit code each way of ending has, and what it prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qresolve import __version__, errors
from qresolve.cli import explain
from qresolve.cli.main import COMMANDS, build_parser, main

if TYPE_CHECKING:
    import argparse

ARGUMENTS = ["explain", "--gpu", "sm120", "--formats", "nvfp4"]


def ends_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
    def run(arguments: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr(explain, "run", run)
    return main(ARGUMENTS)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UsageError, 2),
        (errors.NoResolution, 3),
        (errors.LowerClass, 4),
        (errors.InstallFailed, 5),
        (errors.Refuted, 6),
        (errors.Unproved, 7),
        (errors.DataInvalid, 8),
        (errors.Stale, 9),
    ],
)
def test_each_error_has_its_code_and_is_one_message_and_one_hint(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: type[errors.QResolveError],
    code: int,
) -> None:
    assert ends_with(monkeypatch, error("what happened", hint="qresolve --help")) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "error: what happened\nhint: qresolve --help\n")


def test_no_hint_no_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ends_with(monkeypatch, errors.UsageError("what happened"))
    assert capsys.readouterr().err == "error: what happened\n"


def test_each_leaf_of_the_tree_has_a_code_of_its_own() -> None:
    leaves = errors.QResolveError.__subclasses__()
    assert sorted(leaf.exit_code for leaf in leaves) == [2, 3, 4, 5, 6, 7, 8, 9]


def test_ctrl_c_is_said_in_one_word(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(monkeypatch, KeyboardInterrupt()) == 130
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "interrupted\n")


def test_a_full_disk_is_no_bug_of_ours() -> None:
    """``/dev/full`` takes nothing, and what is buffered must not be tried again at exit."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    command = [sys.executable, "-m", "qresolve", *ARGUMENTS]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 2
    assert "error: the output cannot be written: No space left on device" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr


@pytest.mark.parametrize("command", ["explain", "lock"])
def test_without_a_gpu_nothing_is_said_to_hold(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--gpu", "none", "--formats", "nvfp4"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("error: with `--gpu none` there is nothing to judge\nhint: --gpu sm120\n")


def test_what_nobody_expected_is_called_our_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends_with(monkeypatch, ZeroDivisionError("of the test")) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "error: this is a bug in qresolve: ZeroDivisionError: of the test" in said
    assert said.splitlines()[-1].startswith("hint: ")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"qresolve {__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_is_printed_and_is_no_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 0
    assert "usage: qresolve" in capsys.readouterr().out


def test_the_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = capsys.readouterr().out
    assert all(re.search(rf"\n    {name}\s", listed) for name in COMMANDS)


@pytest.mark.parametrize(
    "arguments", [[], ["explian"], ["--gpu", "sm120"], ["explain", "--gpu"], [*ARGUMENTS, "more"], ["--verison"]]
)
def test_a_wrong_command_line_is_a_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")


@pytest.mark.parametrize("arguments", [["explian"], ["explain", "--gpu"], [*ARGUMENTS, "more"]])
def test_the_hint_of_a_usage_error_works(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(arguments)
    hint = capsys.readouterr().err.partition("hint: ")[2].split()
    assert hint[0] == "qresolve"
    with pytest.raises(SystemExit) as raised:
        main(hint[1:])
    assert raised.value.code == 0


def test_one_commands_parser_is_that_of_the_whole() -> None:
    only = build_parser("explain").parse_args(ARGUMENTS)
    whole = build_parser().parse_args(ARGUMENTS)
    assert vars(only) == vars(whole)
