"""Names against a checkpoint's lists: the safe matcher agrees with Python's own, and cannot be made to run long."""

from __future__ import annotations

import fnmatch
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.errors import UsageError
from qresolve.model.matching import names_of
from qresolve.model.patterns import PatternUnknown, compile_regex, compile_wildcard, matches

LETTERS = st.sampled_from("ab.0_")
PIECES = st.sampled_from([
    "a", "b", r"\.", ".", ".*", ".+", "a?", "b*", "[ab]", "[a-b]", r"\d", r"\d+", "(a|b)", "(?:ab|b0)", "(a|)", "_",
])  # fmt: skip


@given(st.lists(PIECES, max_size=7), st.text(LETTERS, max_size=9), st.sampled_from(["", "$"]))
def test_it_agrees_with_re_match(pieces: list[str], name: str, end: str) -> None:
    pattern = "".join(pieces) + end
    assert any(matches(steps, name) for steps in compile_regex(pattern)) is (re.match(pattern, name) is not None)


@given(st.text(st.sampled_from("ab.*?"), max_size=8), st.text(LETTERS, max_size=9))
def test_wildcards_agree_with_fnmatch(pattern: str, name: str) -> None:
    assert matches(compile_wildcard(pattern), name) is fnmatch.fnmatchcase(name, pattern)


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", r"(a)\1", "(?=a)", "a{2,}", "a$b", "[^a]", "(a", "a)", "*a", "a" * 500, "(a|b)" * 9, "b^a"]
)
def test_what_is_not_understood_is_refused(pattern: str) -> None:
    with pytest.raises(PatternUnknown):
        compile_regex(pattern)


def test_a_pattern_that_makes_a_backtracking_engine_run_for_ever_is_walked_in_no_time() -> None:
    steps = compile_regex(".*a" * 60 + "z$")
    assert not any(matches(item, "a" * 300) for item in steps)


def test_the_error_names_the_list_and_the_pattern() -> None:
    with pytest.raises(UsageError, match=r"config\.json: ignore: the pattern `re:\(a\+\)\+` is not understood"):
        names_of(("re:(a+)+",), "regex", at="config.json: ignore")


@given(st.text(string.printable, max_size=30))
def test_no_pattern_breaks_the_compiler(pattern: str) -> None:
    try:
        compile_regex(pattern)
    except PatternUnknown:
        return
    assert re.compile(pattern)


@pytest.mark.parametrize(
    ("mode", "entry", "name", "meant"),
    [
        ("regex", "lm_head", "lm_head", True),
        ("regex", "model.layers.1", "model.layers.10.mlp.gate_proj", False),
        ("regex", "re:.*mlp.gate$", "model.layers.1.mlp.gate", True),
        ("regex", "re:.*mlp.gate$", "model.layers.1.mlp.gate_proj", False),
        ("exact", "model.layers.1.mlp.gate", "model.layers.1.mlp.gate_proj", False),
        ("exact", "model.layers.1.mlp.experts", "model.layers.1.mlp.experts.0.gate_proj", True),
        ("exact", "model.layers.1.mlp.experts", "model.layers.2.mlp.experts.0.gate_proj", False),
        ("inside", "self_attn", "model.layers.1.self_attn.q_proj", True),
        ("wildcard-or-inside", "model.layers.1.self_attn*", "model.layers.1.self_attn.q_proj", True),
        ("wildcard-or-inside", "model.layers.1.self_attn*", "model.layers.11.self_attn.q_proj", False),
        ("wildcard-or-inside", "model.layers.1.mlp", "model.layers.1.mlp.down_proj", True),
    ],
)
def test_each_method_reads_its_own_list(mode: str, entry: str, name: str, meant: bool) -> None:
    assert names_of((entry,), mode, at="").match(name) is meant
