"""Settings that no option carries: what the program itself must do, told by ``env`` and ``run``."""

from __future__ import annotations

import os
import sys

import pytest

from qresolve.engine_flags import read_engine_flags, render_flags
from qresolve.engine_run import plan_start
from qresolve.errors import DataInvalid, UsageError
from qresolve.setting import Setting

FLAGS = read_engine_flags("experts4bit-qlora")
FAST = (Setting(path="expert_path", value="fast"), Setting(env="GNF4_GEMV_BW", value="0"))
PAGED = (Setting(path="expert_path", value="paged"),)


def start(settings: tuple[Setting, ...], *command: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The command's arguments and what it owes."""
    planned = plan_start([sys.executable, *command], settings, FLAGS, variables=os.environ, programs=None)
    return planned.argv[1:], planned.owed


def test_no_option_is_made_of_a_call() -> None:
    assert render_flags(FAST, FLAGS) == ()
    assert [(call.value, call.argv) for call in FLAGS.called(FAST)] == [("fast", ())]


def test_a_program_of_ones_own_is_told_what_it_owes() -> None:
    argv, owed = start(FAST, "serve.py", "--port", "1")
    assert argv == ("serve.py", "--port", "1")
    assert len(owed) == 1
    assert "enable_fast(model)" in owed[0]


def test_the_command_that_does_it_owes_nothing() -> None:
    assert start(PAGED, "-m", "experts4bit_qlora.serve_paged") == (("-m", "experts4bit_qlora.serve_paged"), ())


def test_another_command_of_the_engine_is_refused() -> None:
    with pytest.raises(UsageError, match="the lock fixes paged") as caught:
        start(PAGED, "-m", "experts4bit_qlora.serve")
    assert caught.value.hint == "qresolve run -- python -m experts4bit_qlora.serve_paged"


def test_a_value_that_no_record_explains_is_a_wrong_record() -> None:
    with pytest.raises(DataInvalid, match="expert_path"):
        FLAGS.called((Setting(path="expert_path", value="slow"),))


def test_an_engine_without_calls_owes_nothing() -> None:
    settings = (Setting(path="kernel_config.linear_backend", value="marlin"),)
    assert read_engine_flags("vllm").called(settings) == ()
    assert read_engine_flags("vllm").carried(settings) == settings
