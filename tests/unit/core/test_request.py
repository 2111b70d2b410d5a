"""What the person asks for: names, aliases, schemes and roles; lower classes, assumptions, engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.classes import CLASSES
from qresolve.errors import UsageError
from qresolve.knowledge.load import read_formats, read_vocabulary
from qresolve.request import Ask, beside, parse_allow, parse_assumptions, parse_engine, parse_formats, wanted_class

if TYPE_CHECKING:
    from collections.abc import Sequence

BOOK = read_formats()
VOCABULARY = read_vocabulary()

SELECTORS = tuple(
    f"{form.name}@{scheme.name}:{role}" for form in BOOK.formats for scheme in form.schemes for role in scheme.roles
)


def keys(*texts: str) -> list[str]:
    return [ask.key for ask in parse_formats(texts, BOOK)]


# Spelled out: these are promised, whatever the data says.
PROMISED = (
    "bf16", "fp16", "fp8", "fp8-block", "mxfp8", "nvfp4", "mxfp4", "mxfp6", "int8", "int4", "w4a8-fp8", "nf4",
)  # fmt: skip


@pytest.mark.parametrize("name", PROMISED)
def test_each_promised_format_parses_as_dense(name: str) -> None:
    (ask,) = parse_formats([name], BOOK)
    assert (ask.scheme.format, ask.role, ask.asked) == (name, "dense", True)


def test_each_format_of_the_data_is_promised() -> None:
    assert tuple(form.name for form in BOOK.formats) == PROMISED


@pytest.mark.parametrize("selector", SELECTORS)
def test_the_full_form_of_each_scheme_and_role_names_itself(selector: str) -> None:
    assert keys(selector) == [selector]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("gptq", "int4@w4a16:dense"),
        ("awq", "int4@awq:dense"),
        ("nvfp4-w4a16", "nvfp4@w4a16:dense"),
        ("mxfp4-w4a16", "mxfp4@w4a16:dense"),
        ("nvfp4-w4a16:moe", "nvfp4@w4a16:moe"),
        ("fp8:kv", "fp8@e4m3:kv"),
        ("nvfp4:kv", "nvfp4@nvfp4:kv"),
        ("nvfp4:moe", "nvfp4@w4a4:moe"),
        ("mxfp4@gpt-oss", "mxfp4@gpt-oss:moe"),
        ("fp8@tensor-static", "fp8@tensor-static:dense"),
        (" NVFP4 ", "nvfp4@w4a4:dense"),
    ],
)
def test_short_forms(text: str, key: str) -> None:
    assert keys(text) == [key]


@given(st.lists(st.sampled_from([*SELECTORS, "gptq", "awq", "fp8:kv"]), min_size=1, max_size=6), st.randoms())
def test_neither_order_nor_repetition_nor_grouping_counts(words: list[str], random: object) -> None:
    shuffled = [*words, words[0]]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert keys(*words) == keys(",".join(shuffled))


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("nvpf4", "no format is called `nvpf4`", "`nvfp4`"),
        ("mxpf4", "no format is called `mxpf4`", "`mxfp4`"),
        ("fp8-blok", "no format is called `fp8-blok`", "`fp8-block`"),
        ("gpqt", "no format is called `gpqt`", "`gptq`"),
        ("nvfp4:mow", "`mow` is not a role", "nvfp4:moe"),
        ("nvfp4@w4a14", "nvfp4 has no scheme `w4a14`", "nvfp4@w4a"),
        ("mxfp4:kv", "mxfp4 has no scheme for kv", "mxfp4:dense"),
        ("mxfp4@gpt-oss:dense", "is for moe, not for dense", "mxfp4@gpt-oss:moe"),
        ("awq@w4a16", "already names a scheme", "awq"),
        ("", "no format is asked for", "--formats"),
        (" , ,", "no format is asked for", "--formats"),
    ],
)
def test_what_is_not_known_is_refused_with_the_nearest(text: str, said: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_formats([text], BOOK)
    assert said in raised.value.message
    assert hint in (raised.value.hint or "")


@pytest.mark.parametrize("text", ["nvfp4:mow", "nvfp4@w4a14", "mxfp4:kv", "mxfp4@gpt-oss:dense", "awq@w4a16", ""])
def test_a_hint_with_an_option_parses_as_printed(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_formats([text], BOOK)
    option, value = (raised.value.hint or "").split(" ", 1)
    assert option == "--formats"
    assert parse_formats([value], BOOK)


def test_a_name_unlike_all_others_has_no_misleading_hint() -> None:
    with pytest.raises(UsageError) as raised:
        parse_formats(["zzzz"], BOOK)
    assert raised.value.hint is None
    assert all(name in raised.value.message for name in PROMISED)


def test_beside_what_is_asked_stand_the_other_roles_and_common_schemes_of_that_format_alone() -> None:
    asks = parse_formats(["mxfp4"], BOOK)
    found = beside(asks, BOOK)
    assert all(not ask.asked for ask in found)
    assert {ask.scheme.format for ask in found} == {"mxfp4"}
    assert {"mxfp4@w4a4:moe", "mxfp4@gpt-oss:moe", "mxfp4@w4a16:dense"} <= {ask.key for ask in found}
    assert "mxfp4@w4a4:dense" not in {ask.key for ask in found}
    assert "mxfp4@w4a6:dense" not in {ask.key for ask in found}


# ---------------------------------------------------------------- --allow


def wanted(text: str, allow: Sequence[str]) -> str:
    (ask,) = parse_formats([text], BOOK)
    return wanted_class(ask, parse_allow(allow, BOOK))


def test_an_allowance_speaks_of_the_rows_that_its_selector_matches() -> None:
    assert wanted("mxfp4", []) == "native"
    assert wanted("mxfp4", ["mxfp4=mixed"]) == "mixed"
    assert wanted("nvfp4", ["mxfp4=mixed"]) == "native"
    assert wanted("mxfp4:moe", ["mxfp4:dense=mixed"]) == "native"
    assert wanted("mxfp4:moe", ["mxfp4=mixed"]) == "mixed"
    assert wanted("mxfp4", ["mxfp4@w4a4:dense=weight-only"]) == "weight-only"
    assert wanted("mxfp4@w4a6", ["mxfp4@w4a4=weight-only"]) == "native"


def test_the_lowest_of_several_allowances_counts() -> None:
    assert wanted("mxfp4", ["mxfp4=mixed,mxfp4:dense=emulated"]) == "emulated"


def test_allowing_less_than_a_scheme_wants_changes_nothing() -> None:
    assert wanted("nvfp4@w4a16", ["nvfp4=mixed"]) == "weight-only"


@given(st.sampled_from(SELECTORS), st.lists(st.sampled_from(CLASSES), max_size=3))
def test_an_allowance_never_asks_for_more(selector: str, classes: list[str]) -> None:
    before = wanted(selector, [])
    after = wanted(selector, [f"{selector}={name}" for name in classes])
    assert CLASSES.index(after) == max(map(CLASSES.index, [before, *classes]))


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("mxfp4", "is not SELECTOR=CLASS", "--allow mxfp4=mixed"),
        ("mxfp4=mixd", "`mixd` is not a class", "--allow mxfp4=mixed"),
        ("mxfp4=broken", "`broken` is not a class", "--allow mxfp4="),
        ("mxpf4=mixed", "no format is called `mxpf4`", "`mxfp4`"),
    ],
)
def test_a_wrong_allowance_is_refused(text: str, said: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_allow([text], BOOK)
    assert said in raised.value.message
    assert hint in (raised.value.hint or "")


# ---------------------------------------------------------------- --assume and --engine


def test_assumptions_have_the_type_of_their_fact() -> None:
    texts = ["build.cuda=12.8", "host.ninja=yes", "workload.tp=2", "workload.dtype=fp16", "package.b12x=absent"]
    assert parse_assumptions(texts, VOCABULARY) == {
        "build.cuda": "12.8",
        "host.ninja": True,
        "workload.tp": 2,
        "workload.dtype": "fp16",
        "package.b12x": "absent",
    }


def test_assumptions_do_not_depend_on_their_order() -> None:
    texts = ["workload.tp=2", "build.cuda=12.8"]
    assert list(parse_assumptions(texts, VOCABULARY)) == list(parse_assumptions(texts[::-1], VOCABULARY))


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["build.cuda"], "is not FACT=VALUE"),
        (["=12.8"], "is not FACT=VALUE"),
        (["build.cud=12.8"], "no fact is called `build.cud`"),
        (["build.cuda=twelve"], "is a version"),
        (["build.cuda=absent"], "is a version"),
        (["host.ninja=maybe"], "is true or false"),
        (["workload.tp=two"], "is a whole number"),
        (["workload.tp=--2"], "is a whole number"),
        (["workload.tp=-2"], "is a whole number"),
        (["workload.tp=²"], "is a whole number"),
        (["workload.tp=1", "workload.tp=2"], "two values are assumed"),
        (["host.ninja=true", "host.ninja=false"], "two values are assumed"),
        (["host.ninja=false", "host.ninja=true"], "two values are assumed"),
    ],
)
def test_a_wrong_assumption_is_refused(texts: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_assumptions(texts, VOCABULARY)


def test_an_unknown_fact_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError) as raised:
        parse_assumptions(["build.cud=12.8"], VOCABULARY)
    assert "build.cuda" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, (None, None)),
        ("vllm", ("vllm", None)),
        ("vllm==0.33.0", ("vllm", "0.33.0")),
        (" vLLM == 0.33.0 ", ("vllm", "0.33.0")),
    ],
)
def test_engine(text: str | None, expected: tuple[str | None, str | None]) -> None:
    assert parse_engine(text) == expected


@pytest.mark.parametrize("text", ["", "==1", "vllm>=0.33", "vllm~=0.33", "vllm=0.33", "vllm==", "vllm<1", "vllm 1"])
def test_a_wrong_engine_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not NAME or NAME==VERSION"):
        parse_engine(text)


def test_the_key_of_a_row_is_its_full_form() -> None:
    (ask,) = parse_formats(["mxfp4"], BOOK)
    assert ask == Ask(scheme=ask.scheme, role="dense")
    assert ask.key == "mxfp4@w4a4:dense"
