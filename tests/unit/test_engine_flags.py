from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.engine_command import check_config_file, merge_flags, takes_flags, unlocked_choices
from qresolve.engine_flags import EngineFlags, parse_engine_flags, read_engine_flags, render_flags
from qresolve.errors import DataInvalid, UsageError
from qresolve.facts import Scope
from qresolve.knowledge.engine import engine_names, load_engine
from qresolve.setting import Setting
from qresolve.strict import Table

FLAGS = read_engine_flags("vllm")
MXFP4 = Setting(path="kernel_config.linear_backend_per_quant.mxfp4", value="humming")
NVFP4 = Setting(path="kernel_config.linear_backend_per_quant.nvfp4_w4a4", value="cutlass")
LINEAR = Setting(path="kernel_config.linear_backend", value="flashinfer_cutlass")
SERVE = ("vllm", "serve", "model")

KEYS = st.sampled_from(["mxfp4", "mxfp8", "nvfp4_w4a4", "fp8_w8a8"])
BACKENDS = st.sampled_from(["humming", "cutlass", "triton"])
PER_QUANT = st.dictionaries(KEYS, BACKENDS, max_size=4)


def kernel_config(argv: tuple[str, ...]) -> dict[str, Any]:
    """The one `--kernel-config` of a command, as the engine would read it."""
    assert argv.count("--kernel-config") == 1
    value = json.loads(argv[argv.index("--kernel-config") + 1])
    assert isinstance(value, dict)
    return value


def as_settings(values: dict[str, str]) -> tuple[Setting, ...]:
    return tuple(
        Setting(path=f"kernel_config.linear_backend_per_quant.{key}", value=value) for key, value in values.items()
    )


def test_settings_of_one_root_become_one_json_option() -> None:
    assert render_flags((MXFP4, NVFP4), FLAGS) == (
        "--kernel-config",
        '{"linear_backend_per_quant":{"mxfp4":"humming","nvfp4_w4a4":"cutlass"}}',
    )


def test_a_field_with_its_own_option_uses_it() -> None:
    assert render_flags((LINEAR,), FLAGS) == ("--linear-backend", "flashinfer_cutlass")


def test_a_setting_that_no_option_carries_is_a_bad_data_file() -> None:
    with pytest.raises(DataInvalid, match=r"load_config\.device"):
        render_flags((Setting(path="load_config.device", value="cuda"),), FLAGS)


@pytest.mark.parametrize(
    "given_flags",
    [
        ("--kernel-config", '{"moe_backend":"triton"}'),
        ('--kernel-config={"moe_backend":"triton"}',),
        ('--kernel_config={"moe_backend":"triton"}',),
        ("--kernel-config.moe_backend", "triton"),
        ("--kernel_config.moe_backend=triton",),
        ("--moe-backend", "triton"),
        ("--moe_backend=triton",),
    ],
)
def test_every_spelling_is_merged(given_flags: tuple[str, ...]) -> None:
    merged = merge_flags((*SERVE, *given_flags, "--port", "8001"), (MXFP4,), FLAGS)
    assert merged[:5] == (*SERVE, "--port", "8001")
    assert kernel_config(merged) == {"linear_backend_per_quant": {"mxfp4": "humming"}}
    assert merged[merged.index("--moe-backend") + 1] == "triton"


@pytest.mark.parametrize(
    "given_flags",
    [
        ("--kernel-config", '{"linear_backend_per_quant":{"mxfp4":"marlin"}}'),
        ("--kernel-config.linear_backend_per_quant.mxfp4", "marlin"),
        ("--kernel-config.linear_backend_per_quant", '{"mxfp4":"marlin"}'),
        ("--kernel-config", '{"linear_backend_per_quant":null}'),
    ],
)
def test_another_value_is_refused_and_both_are_named(given_flags: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="--kernel-config") as caught:
        merge_flags((*SERVE, *given_flags), (MXFP4,), FLAGS)
    assert "humming" in caught.value.message
    assert "kernel_config.linear_backend_per_quant.mxfp4" in caught.value.message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("written", ["flashinfer_cutlass", "flashinfer-cutlass", "FlashInfer-Cutlass"])
def test_an_equal_plain_value_is_no_conflict(written: str) -> None:
    merged = merge_flags((*SERVE, "--linear-backend", written), (LINEAR,), FLAGS)
    assert merged == (*SERVE, "--linear-backend", "flashinfer_cutlass")


def test_a_plain_option_against_a_locked_field_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--linear-backend.*marlin.*flashinfer_cutlass"):
        merge_flags((*SERVE, "--linear-backend=marlin"), (LINEAR,), FLAGS)


def test_json_against_a_locked_plain_field_is_refused() -> None:
    with pytest.raises(UsageError, match="marlin"):
        merge_flags((*SERVE, "--kernel-config", '{"linear_backend":"marlin"}'), (LINEAR,), FLAGS)


def test_auto_beside_json_leaves_the_json_value() -> None:
    # vLLM: `--linear-backend auto` does not override kernel_config.linear_backend.
    merged = merge_flags(
        (*SERVE, "--linear-backend", "auto", "--kernel-config", '{"linear_backend":"triton"}'), (MXFP4,), FLAGS
    )
    assert merged[merged.index("--linear-backend") + 1] == "triton"


def test_two_json_options_are_refused_because_the_engine_keeps_one() -> None:
    twice = ("--kernel-config", '{"moe_backend":"triton"}', "--kernel-config.linear_backend", "triton")
    with pytest.raises(UsageError, match="more than once"):
        merge_flags((*SERVE, *twice), (MXFP4,), FLAGS)


def test_an_abbreviation_is_refused_and_a_longer_lived_option_is_not() -> None:
    with pytest.raises(UsageError, match="--kernel-config"):
        merge_flags((*SERVE, "--kernel-c", "{}"), (MXFP4,), FLAGS)
    setting = Setting(path="quantization_config.linear.activation", value="mxfp8")
    merged = merge_flags((*SERVE, "--quantization", "modelopt"), (setting,), FLAGS)
    assert merged[3:5] == ("--quantization", "modelopt")


def test_short_aliases_are_merged() -> None:
    setting = Setting(path="attention_config.use_trtllm_attention", value=False)
    merged = merge_flags((*SERVE, "-ac.flash_attn_version=2"), (setting,), FLAGS)
    assert json.loads(merged[-1]) == {"flash_attn_version": 2, "use_trtllm_attention": False}


def test_a_number_with_a_suffix_is_refused() -> None:
    with pytest.raises(UsageError, match="8k"):
        merge_flags((*SERVE, "--kernel-config.size", "8k"), (MXFP4,), FLAGS)


def test_what_is_not_json_is_refused() -> None:
    with pytest.raises(UsageError, match="not JSON"):
        merge_flags((*SERVE, "--kernel-config", "{moe}"), (MXFP4,), FLAGS)


def test_list_elements_are_appended() -> None:
    merged = merge_flags((*SERVE, "--kernel-config.order+", "a,b", "--kernel-config.order+=c"), (MXFP4,), FLAGS)
    assert kernel_config(merged)["order"] == ["a", "b", "c"]


def test_options_are_put_before_a_bare_double_dash() -> None:
    merged = merge_flags((*SERVE, "--", "rest"), (LINEAR,), FLAGS)
    assert merged == (*SERVE, "--linear-backend", "flashinfer_cutlass", "--", "rest")


def test_an_option_without_its_value_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a value"):
        merge_flags((*SERVE, "--kernel-config"), (MXFP4,), FLAGS)


@given(st.lists(st.sampled_from(["--port", "8000", "-tp", "2", "--kernel-config", "{}", "x.y", "-0.5"])))
def test_without_settings_a_command_stays_as_it_is(words: list[str]) -> None:
    assert merge_flags(words, (), FLAGS) == tuple(words)
    assert merge_flags(words, (Setting(env="A", value="b"),), FLAGS) == tuple(words)


@given(PER_QUANT, PER_QUANT)
def test_merging_keeps_all_of_both_sides_or_names_a_conflict(locked: dict[str, str], asked: dict[str, str]) -> None:
    argv = (*SERVE, "--kernel-config", json.dumps({"linear_backend_per_quant": asked}))
    differing = [key for key in locked if asked.get(key, locked[key]) != locked[key]]
    if differing:
        with pytest.raises(UsageError, match="but the lock fixes"):
            merge_flags(argv, as_settings(locked), FLAGS)
    elif locked:
        merged = merge_flags(argv, as_settings(locked), FLAGS)
        assert kernel_config(merged) == {"linear_backend_per_quant": asked | locked}


@given(PER_QUANT, st.sampled_from(["json", "dotted"]))
def test_merging_twice_changes_nothing_more(locked: dict[str, str], form: str) -> None:
    asked = ("--kernel-config.moe_backend", "triton") if form == "dotted" else ("--kernel-config", '{"a":{}}')
    once = merge_flags((*SERVE, *asked), as_settings(locked), FLAGS)
    assert merge_flags(once, as_settings(locked), FLAGS) == once


@given(PER_QUANT)
def test_the_rendered_options_are_what_merging_adds(locked: dict[str, str]) -> None:
    assert merge_flags(SERVE, as_settings(locked), FLAGS) == (*SERVE, *render_flags(as_settings(locked), FLAGS))


@pytest.mark.parametrize(
    ("argv", "takes"),
    [
        (("vllm", "serve", "m"), True),
        (("/env/bin/vllm", "bench", "latency"), True),
        (("python3.12", "-m", "vllm.entrypoints.openai.api_server"), True),
        (("vllm", "bench", "serve"), False),
        (("vllm", "collect-env"), False),
        (("python", "mine.py"), False),
        ((), False),
    ],
)
def test_which_commands_take_the_options(argv: tuple[str, ...], takes: bool) -> None:
    assert takes_flags(argv, FLAGS) is takes


@pytest.mark.parametrize("text", ["linear-backend: marlin\n", "port: 1\nkernel_config:\n  moe_backend: triton\n"])
def test_a_configuration_file_that_sets_the_same_root_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"c\.yaml"):
        check_config_file(text, "c.yaml", (MXFP4,), FLAGS)


def test_a_configuration_file_about_other_things_is_fine() -> None:
    assert check_config_file("port: 1\n# kernel-config: later\n", "c.yaml", (MXFP4,), FLAGS) == ()
    assert check_config_file("kv-cache-dtype: fp8\n", "c.yaml", (MXFP4,), FLAGS) == ()


def test_a_configuration_file_with_a_choice_that_the_lock_does_not_know_is_named() -> None:
    said = check_config_file("linear_backend: marlin\n", "c.yaml", (Setting(env="A", value="b"),), FLAGS)
    assert said == ("linear-backend in c.yaml",)


def table(**more: object) -> Table:
    flag = {"root": "a", "flag": "--a", "form": "json", "source": "s"}
    return Table(
        {"engine": "e", "flag": [flag | more], "environment": {"choice_prefixes": [], "source": "s"}}, file="f"
    )


@pytest.mark.parametrize("more", [{"form": "yaml"}, {"colour": "red"}, {"root": ""}])
def test_bad_data_is_refused(more: dict[str, object]) -> None:
    with pytest.raises(DataInvalid, match=r"flag\[0\]"):
        parse_engine_flags(table(**more))


def test_every_record_of_the_shipped_file_is_read() -> None:
    assert isinstance(FLAGS, EngineFlags)
    assert FLAGS.engine == "vllm"
    assert len({flag.root for flag in FLAGS.flags}) == len(FLAGS.flags)


@pytest.mark.parametrize("name", engine_names())
def test_every_setting_that_can_be_offered_has_an_option(name: str) -> None:
    flags = read_engine_flags(name)
    if not flags.commands:
        pytest.skip(f"{name} is no command; its settings are told and not passed")
    engine = load_engine(name)
    keys = {explicit.fact for ladder in engine.ladders.values() for explicit in ladder.explicit if explicit.offer}
    keys |= {kind.key for kind in engine.vocabulary.kinds() if kind.choices and kind.scope is Scope.ENVIRONMENT}
    paths = sorted(key.removeprefix("config.") for key in keys if key.startswith("config."))
    assert paths or name != engine_names()[0], "the data has settings of the configuration"
    for path in paths:
        assert flags.carrier(tuple(path.split("."))).flag.startswith("--")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--linear-backend", "marlin"), ("--linear-backend marlin",)),
        (("--linear-backend", "auto", "--port", "1"), ()),
        (("--moe_backend=marlin",), ("--moe-backend marlin",)),
        (
            ("--kernel-config.linear_backend_per_quant.nvfp4_w4a4", "marlin"),
            ("--kernel-config linear_backend_per_quant.nvfp4_w4a4 marlin",),
        ),
        (("--kernel-config.linear_backend_per_quant.mxfp4", "humming"), ()),
        (("-cc.mode", "3", "--kv-cache-dtype", "fp8"), ()),
    ],
)
def test_choices_that_the_lock_does_not_know_are_named(options: tuple[str, ...], named: tuple[str, ...]) -> None:
    assert unlocked_choices((*SERVE, *options), (MXFP4,), FLAGS) == named


def test_a_choice_that_cannot_be_read_is_named_as_well() -> None:
    (said,) = unlocked_choices((*SERVE, "--kernel-config", "{moe}"), (), FLAGS)
    assert "--kernel-config" in said
