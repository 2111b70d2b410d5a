"""What the documentation claims is held against the program."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from qresolve import errors
from qresolve.cli.main import COMMANDS, build_parser
from qresolve.exit_code import BROKEN, LOWER, NO_RESOLUTION, UNKNOWN
from qresolve.gates import OPERATORS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("**/*.md")])


def _commands() -> list[tuple[str, str]]:
    return [
        (page.name, match[1].strip())
        for page in PAGES
        for match in re.finditer(r"(?:`|\$ |bin/)(qresolve [^`\n]+)", page.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize(("page", "command"), _commands())
def test_every_command_in_the_docs_parses(page: str, command: str) -> None:
    words = shlex.split(command.replace("…", "X"))[1:]
    if words[:1] == ["--version"]:
        return
    assert words[0] in COMMANDS, f"{page}: {command}"
    build_parser(words[0]).parse_args(words)


def test_the_readme_names_every_command() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert f"`qresolve {command}" in text


def test_ci_runs_the_command_that_the_readme_shows() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.count("<!-- test-command -->") == 1
    assert "test-command" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_exit_codes_are_those_of_the_program() -> None:
    text = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    documented = {int(match) for match in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    leaves = {
        kind.exit_code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.QResolveError)
    }
    assert documented == leaves | {0, 130}
    assert {BROKEN, LOWER, NO_RESOLUTION, UNKNOWN} <= documented


def test_every_operator_is_documented() -> None:
    text = (ROOT / "docs" / "gates.md").read_text(encoding="utf-8")
    for operator in OPERATORS:
        assert f"`{operator}`" in text


def test_the_architecture_names_modules_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text.partition("| module | is |")[2]
    for name in re.findall(r"`([a-z_]+)(/?)`", table):
        module, slash = name
        if module in {"constraints", "wheel_index"}:
            continue
        path = ROOT / "qresolve" / module
        assert path.is_dir() if slash else path.with_suffix(".py").is_file(), module


def test_every_module_is_in_the_architecture() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for path in (ROOT / "qresolve").iterdir():
        if path.name.startswith("_") or path.name == "py.typed":
            continue
        name = f"{path.name}/" if path.is_dir() else path.stem
        assert f"`{name}`" in text, name


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_what_each_option_is(command: str) -> None:
    parser = build_parser(command)
    (subparsers,) = [item for item in parser._actions if isinstance(item, argparse._SubParsersAction)]
    for action in subparsers.choices[command]._actions:
        assert action.help, f"{command} {action.option_strings}"
