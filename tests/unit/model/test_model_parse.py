"""What is read from checkpoints: schemes, roles, shapes on a rank, facts, and what is named instead of guessed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.errors import DataInvalid, UsageError
from qresolve.knowledge.load import read_workload
from qresolve.model.asking import asks_of, recorded_facts
from qresolve.model.model import workload_of
from qresolve.model.parse import parse_model
from qresolve.model.read import MOST_BYTES, Checkpoint, read_checkpoint
from tests.unit.model.model_support import CHECKPOINTS, books, changed, config, parsed

if TYPE_CHECKING:
    from pathlib import Path

    from qresolve.model.model import Model


def keys(model: Model) -> set[str]:
    return {part.key for part in model.parts}


def shapes(model: Model, key: str) -> set[tuple[Any, Any]]:
    part = model.part(key)
    assert part is not None
    return {(dict(item.facts).get("workload.n"), dict(item.facts).get("workload.k")) for item in part.variants}


@pytest.mark.parametrize(
    ("name", "expected", "quantizer"),
    [
        ("llama-fp8-dynamic", {"fp8@channel-dynamic:dense"}, "compressed-tensors"),
        ("llama-fp8-kv", {"fp8@tensor-static:dense", "fp8@e4m3:kv"}, "compressed-tensors"),
        ("llama-nvfp4-ct", {"nvfp4@w4a4:dense"}, "compressed-tensors"),
        ("llama-nvfp4a16-ct", {"nvfp4@w4a16:dense"}, "compressed-tensors"),
        ("llama-mixed", {"fp8@channel-dynamic:dense", "nvfp4@w4a4:dense"}, "compressed-tensors"),
        ("llama-w8a8", {"int8@w8a8:dense"}, "compressed-tensors"),
        ("llama-w4a16-ct", {"int4@w4a16:dense"}, "compressed-tensors"),
        ("llama-modelopt-nvfp4", {"nvfp4@w4a4:dense", "fp8@e4m3:kv"}, "modelopt"),
        ("llama-modelopt-fp8", {"fp8@tensor-static:dense", "fp8@e4m3:kv"}, "modelopt"),
        ("llama-mxfp4-quark", {"mxfp4@w4a4:dense"}, "quark"),
        ("llama-awq", {"int4@awq:dense"}, "awq"),
        ("llama-gptq", {"int4@w4a16:dense"}, "gptq"),
        ("llama-gptq-64", {"int4@w4a16:dense"}, "gptq"),
        ("llama-bnb-nf4", {"nf4@w4a16:dense"}, "bitsandbytes"),
        ("llama-bf16", {"bf16@w16a16:dense"}, None),
        ("gpt-oss", {"mxfp4@gpt-oss:moe"}, "gpt-oss"),
        ("deepseek-v3-fp8", {"fp8-block@block128:dense", "fp8-block@block128:moe"}, "fp8"),
        # Its attention is on the list of excluded modules; the dense layers that remain are those of the MLPs.
        ("deepseek-r1-nvfp4", {"nvfp4@w4a4:dense", "nvfp4@w4a4:moe"}, "modelopt"),
        ("qwen3-moe-fp8-block", {"fp8-block@block128:dense", "fp8-block@block128:moe"}, "fp8"),
        ("qwen3-moe-nvfp4-ct", {"nvfp4@w4a4:moe"}, "compressed-tensors"),
        ("qwen3-moe-mixed-modelopt", {"fp8@tensor-static:dense", "nvfp4@w4a4:moe", "nvfp4@nvfp4:kv"}, "modelopt"),
    ],
)
def test_schemes_and_roles(name: str, expected: set[str], quantizer: str | None) -> None:
    model = parsed(CHECKPOINTS / name)
    assert keys(model) == expected
    assert not model.problems
    assert model.facts.get("workload.quantizer") == quantizer


def test_every_checkpoint_of_the_tests_is_in_the_table_above() -> None:
    (table,) = (mark for mark in test_schemes_and_roles.pytestmark if mark.name == "parametrize")  # type: ignore[attr-defined]
    assert {row[0] for row in table.args[1]} == {path.name for path in CHECKPOINTS.iterdir()}


# ---------------------------------------------------------------- shapes


def test_fused_layers_of_llama() -> None:
    """q, k and v are one layer (32 + 2 x 8 heads of 128), gate and up are one."""
    found = shapes(parsed(CHECKPOINTS / "llama-fp8-dynamic"), "fp8@channel-dynamic:dense")
    assert found == {(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)}


def test_tensor_parallelism_splits_outputs_of_the_first_layers_and_inputs_of_the_second() -> None:
    found = shapes(parsed(CHECKPOINTS / "llama-fp8-dynamic", tp=4), "fp8@channel-dynamic:dense")
    assert found == {(1536, 4096), (4096, 1024), (7168, 4096), (4096, 3584)}


def test_key_value_heads_are_repeated_where_there_are_more_ranks(tmp_path: Path) -> None:
    path = changed(tmp_path, "llama-fp8-dynamic", num_key_value_heads=2)
    found = shapes(parsed(path, tp=8), "fp8@channel-dynamic:dense")
    assert ((32 // 8 + 2) * 128, 4096) in found


def test_latent_attention_of_deepseek() -> None:
    model = parsed(CHECKPOINTS / "deepseek-v3-fp8", tp=8)
    dense = shapes(model, "fp8-block@block128:dense")
    assert (1536 + 512 + 64, 7168) in dense  # low-rank projections are not split
    assert (128 // 8 * (128 + 64), 1536) in dense
    assert (128 // 8 * (128 + 128), 512) in dense
    assert (7168, 128 // 8 * 128) in dense
    assert (2 * 2048 // 8, 7168) in dense  # the shared expert
    assert shapes(model, "fp8-block@block128:moe") == {(2048 // 8, 7168)}


def test_expert_parallelism_leaves_experts_whole() -> None:
    model = parsed(CHECKPOINTS / "deepseek-v3-fp8", tp=8, ep=8)
    assert shapes(model, "fp8-block@block128:moe") == {(2048, 7168)}
    assert model.facts["workload.ep"] == 8


@pytest.mark.parametrize(("tp", "key"), [(3, "num_key_value_heads"), (5, "num_key_value_heads"), (64, "heads")])
def test_parallelism_that_does_not_divide_names_the_key(tp: int, key: str) -> None:
    with pytest.raises(UsageError, match=key) as caught:
        parsed(CHECKPOINTS / "llama-fp8-dynamic", tp=tp)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("--tp ")


def test_parallelism_that_does_not_divide_the_intermediate_size(tmp_path: Path) -> None:
    path = changed(tmp_path, "llama-fp8-dynamic", intermediate_size=14337)
    with pytest.raises(UsageError, match="`intermediate_size` = 14337"):
        parsed(path, tp=2)


def test_a_rank_must_hold_whole_blocks() -> None:
    """768 / 8 = 96 is no multiple of 128: vLLM refuses to load it, so it is not judged."""
    parsed(CHECKPOINTS / "qwen3-moe-fp8-block", tp=2)
    with pytest.raises(UsageError, match=r"96 output features .* --tp 8") as caught:
        parsed(CHECKPOINTS / "qwen3-moe-fp8-block", tp=8)
    assert caught.value.hint == "--tp 8 --ep 8"
    assert shapes(parsed(CHECKPOINTS / "qwen3-moe-fp8-block", tp=4, ep=8), "fp8-block@block128:moe") == {(768, 2048)}


def test_groups_that_are_not_whole_are_unknown(tmp_path: Path) -> None:
    path = changed(tmp_path, "llama-mxfp4-quark", intermediate_size=14352)
    part = parsed(path).part("mxfp4@w4a4:dense")
    assert part is not None
    assert "mlp.down_proj has 14352 input features" in part.unknown


# ---------------------------------------------------------------- facts


def test_gpt_oss_facts() -> None:
    facts = parsed(CHECKPOINTS / "gpt-oss").facts
    assert facts["workload.sinks"] is True
    assert facts["workload.head-size"] == 64
    # hidden_act says silu; the model's own code clamps and scales it.
    assert facts["workload.moe-activation"] == "swigluoai"


def test_group_size_and_granularity_come_from_the_checkpoint(tmp_path: Path) -> None:
    for size, scale in ((64, "group64"), (32, "group32"), (-1, "channel")):
        path = changed(tmp_path / str(size), "llama-gptq-64", {"group_size": size})
        part = parsed(path).part("int4@w4a16:dense")
        assert part is not None
        assert {dict(item.facts)["scheme.weight-scale"] for item in part.variants} == {scale}


def test_an_unlisted_model_type_keeps_the_reference_sizes_and_says_so(tmp_path: Path) -> None:
    model = parsed(changed(tmp_path, "llama-fp8-dynamic", model_type="brand_new"))
    assert keys(model) == {"fp8@channel-dynamic:dense"}
    assert shapes(model, "fp8@channel-dynamic:dense") == {(None, None)}
    assert {"workload.n", "workload.k", "workload.head-size", "workload.sinks"} <= set(model.assumed)


def test_latent_attention_of_an_unlisted_model_is_seen(tmp_path: Path) -> None:
    model = parsed(changed(tmp_path, "deepseek-v3-fp8", model_type="brand_new"))
    assert model.unknown("fp8@e4m3:kv")
    assert "workload.head-size" in model.assumed
    assert not parsed(changed(tmp_path, "llama-fp8-dynamic", model_type="brand_new")).unknown("fp8@e4m3:kv")


def test_deepseek_v4_is_named(tmp_path: Path) -> None:
    """Its quant_method is fp8 and its experts are not."""
    with pytest.raises(UsageError, match="model_type = deepseek_v4"):
        parsed(changed(tmp_path, "deepseek-v3-fp8", model_type="deepseek_v4"))


def test_a_missing_size_is_assumed_and_said(tmp_path: Path) -> None:
    model = parsed(changed(tmp_path, "llama-fp8-dynamic", intermediate_size=None))
    assert "mlp.down_proj" in model.assumed["workload.k"]
    assert "mlp.gate_up_proj" in model.assumed["workload.n"]


def test_experts_of_an_unlisted_model_are_asked_as_experts(tmp_path: Path) -> None:
    model = parsed(changed(tmp_path, "llama-fp8-dynamic", model_type="brand_new", n_routed_experts=64))
    assert keys(model) == {"fp8@channel-dynamic:dense", "fp8@channel-dynamic:moe"}


def test_a_text_part_is_read(tmp_path: Path) -> None:
    whole = config("llama-fp8-dynamic")
    quantization = whole.pop("quantization_config")
    quantization["ignore"] = ["re:.*self_attn.*"]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "seer", "text_config": whole, "quantization_config": quantization}))
    model = parsed(path)
    assert model.facts["workload.model-type"] == "llama"
    assert shapes(model, "fp8@channel-dynamic:dense") == {(28672, 4096), (4096, 14336)}


# ---------------------------------------------------------------- named, not guessed


@pytest.mark.parametrize(
    ("name", "quantization", "named"),
    [
        ("llama-gptq-64", {"desc_act": True}, "desc_act = true"),
        ("llama-gptq-64", {"sym": False}, "int4 weights scaled by group64 with zero points"),
        ("llama-gptq-64", {"bits": 3}, "bits = 3"),
        ("llama-gptq-64", {"group_size": 48}, "group48"),
        ("llama-gptq-64", {"dynamic": {"+:.*": {"bits": 8}}}, "dynamic"),
        ("llama-gptq-64", {"checkpoint_format": "marlin"}, "checkpoint_format = marlin"),
        ("llama-gptq-64", {"quant_method": "aqlm"}, "quant_method = aqlm"),
        ("llama-gptq-64", {"quant_method": "mxfp4"}, "known of gpt_oss only"),
        ("llama-awq", {"version": "gemv"}, "version = gemv"),
        ("deepseek-v3-fp8", {"fmt": "e5m2"}, "fmt = e5m2"),
        ("llama-bnb-nf4", {"load_in_4bit": False, "load_in_8bit": True}, "load_in_8bit = true"),
        ("llama-bnb-nf4", {"bnb_4bit_quant_type": "fp4"}, "bnb_4bit_quant_type = fp4"),
        ("deepseek-v3-fp8", {"weight_block_size": [64, 64]}, "weight_block_size = 64x64"),
        ("deepseek-v3-fp8", {"weight_block_size": None}, "activation_scheme = dynamic"),
        ("llama-modelopt-fp8", {"quant_algo": "W4A8_AWQ"}, "quant_algo = W4A8_AWQ"),
        ("llama-modelopt-fp8", {"kv_cache_scheme": {"type": "float", "num_bits": 4}}, "float4"),
        ("llama-modelopt-fp8", {"quant_algo": "MIXED_PRECISION"}, "quantized_layers"),
        ("llama-fp8-dynamic", {"kv_cache_scheme": {"type": "int", "num_bits": 8, "strategy": "tensor"}}, "int8"),
        ("llama-mxfp4-quark", {"layer_quant_config": {"*q_proj": {}}}, "layer_quant_config"),
    ],
)
def test_what_no_record_speaks_of_is_named(tmp_path: Path, name: str, quantization: dict[str, Any], named: str) -> None:
    path = changed(tmp_path, name, quantization)
    with pytest.raises(UsageError, match=named):
        asks_of(parsed(path), [], books()[0])


def group_of(**changes: Any) -> dict[str, Any]:
    group = config("llama-nvfp4-ct")["quantization_config"]["config_groups"]["group_0"]
    for key, value in changes.items():
        group[key] = {**group[key], **value} if isinstance(value, dict) and isinstance(group[key], dict) else value
    return {"config_groups": {"group_0": group}}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        # NVFP4 without its tensor scale, another group, or with activations of another format, is another scheme.
        ({"weights": {"strategy": "group"}}, "float4 by group of 16"),
        ({"weights": {"group_size": 32}}, "float4 by tensor_group of 32"),
        ({"input_activations": {"num_bits": 8}}, "float8 by tensor_group of 16"),
        ({"weights": {"actorder": "group"}}, "actorder = group"),
        ({"output_activations": {"num_bits": 8}}, "output_activations"),
        ({"targets": ["LlamaMLP"]}, "LlamaMLP"),
    ],
)
def test_a_group_that_is_almost_a_known_one_is_named(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    path = changed(tmp_path, "llama-nvfp4-ct", group_of(**changes))
    with pytest.raises(UsageError, match=named):
        asks_of(parsed(path), [], books()[0])


def test_mxfp8_needs_its_scale_type(tmp_path: Path) -> None:
    """Groups of 32 with float scales are no MXFP8."""
    floats = {"num_bits": 8, "strategy": "group", "group_size": 32, "dynamic": False}
    inputs = {**floats, "dynamic": True}
    plain = changed(tmp_path / "a", "llama-nvfp4-ct", group_of(weights=floats, input_activations=inputs))
    assert parsed(plain).problems
    scaled = group_of(weights={**floats, "scale_dtype": "torch.uint8"}, input_activations=inputs)
    assert keys(parsed(changed(tmp_path / "b", "llama-nvfp4-ct", scaled))) == {"mxfp8@w8a8:dense"}


def test_awq_experts_are_named(tmp_path: Path) -> None:
    awq = config("llama-awq")["quantization_config"]
    model = parsed(changed(tmp_path, "qwen3-moe-fp8-block", awq | {"modules_to_not_convert": None}))
    assert keys(model) == {"int4@awq:dense"}
    with pytest.raises(UsageError, match="moe layers held as int4 weights") as caught:
        asks_of(model, [], books()[0])
    assert caught.value.hint is not None
    assert "--formats int4@awq:dense" in caught.value.hint
    assert [ask.key for ask in asks_of(model, ["awq"], books()[0])] == ["int4@awq:dense"]


def test_nvfp4_of_modelopt_without_activations_is_weight_only(tmp_path: Path) -> None:
    quantization = {
        "quant_algo": "NVFP4",
        "group_size": 16,
        "kv_cache_scheme": None,
        "config_groups": {"group_0": {"weights": {}, "input_activations": None, "targets": ["Linear"]}},
    }
    assert keys(parsed(changed(tmp_path, "llama-modelopt-fp8", quantization))) == {"nvfp4@w4a16:dense"}


def test_two_files_that_contradict_each_other(tmp_path: Path) -> None:
    path = changed(tmp_path, "llama-modelopt-fp8")
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "NVFP4"}}))
    with pytest.raises(UsageError, match=r"FP8, and hf_quant_config\.json says NVFP4"):
        parsed(path)


def test_nothing_quantized_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing is quantized"):
        parsed(changed(tmp_path, "llama-fp8-dynamic", {"ignore": ["re:.*"]}))


# ---------------------------------------------------------------- untrusted files


def test_broken_json_names_file_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{\n "model_type": llama\n}')
    with pytest.raises(DataInvalid, match=r"config\.json: not JSON at line 2 column 16"):
        read_checkpoint(str(path))


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"\xff\xfe", "not UTF-8"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "too long"),
        (b"[]", "must be an object"),
        (b"", "line 1 column 1"),
    ],
)
def test_a_file_that_is_no_json_object(tmp_path: Path, content: bytes, named: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(DataInvalid, match=named):
        read_checkpoint(str(path))


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as stream:
        stream.truncate(MOST_BYTES + 1)
    with pytest.raises(UsageError, match="larger than"):
        read_checkpoint(str(path))


def test_a_device_is_no_file() -> None:
    with pytest.raises(UsageError, match="is not a file"):
        read_checkpoint("/dev/zero")


def test_a_folder_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no config\.json"):
        read_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": "4096"},
        {"hidden_size": -1},
        {"hidden_size": 10**30},
        {"num_hidden_layers": 10**9},
        {"model_type": ["llama"]},
        {"model_type": "a\nb"},
        {"quantization_config": []},
        {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"a": {"targets": [1]}}}},
        {"quantization_config": {"quant_method": "compressed-tensors", "ignore": "lm_head"}},
    ],
)
def test_a_wrong_type_names_file_and_key(tmp_path: Path, change: dict[str, Any]) -> None:
    path = changed(tmp_path, "llama-fp8-dynamic", **change)
    with pytest.raises(DataInvalid, match=r"config\.json: "):
        parsed(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(sorted(path.name for path in CHECKPOINTS.iterdir())), st.data())
def test_no_value_of_any_key_is_a_bug(name: str, data: st.DataObject) -> None:
    """Whatever stands at a key, the answer is a model or an error of ours."""
    found = config(name)
    where = found
    while True:
        key = data.draw(st.sampled_from(sorted(where)))
        if isinstance(where[key], dict) and where[key] and data.draw(st.booleans()):
            where = where[key]
            continue
        where[key] = data.draw(JSON)
        break
    try:
        model = parse_model(
            Checkpoint(given="config.json", config=found), tp=2, ep=None, formats=books()[0], book=books()[1]
        )
        asks_of(model, [], books()[0])
    except (UsageError, DataInvalid):
        return


# ---------------------------------------------------------------- what a lock records


def test_the_recorded_facts_hold_no_path_and_do_not_hang_on_it(tmp_path: Path) -> None:
    base, _ = read_workload()
    recorded = []
    for folder in ("one", "another/place"):
        model = parsed(changed(tmp_path / folder, "llama-gptq-64"), tp=2)
        recorded.append(recorded_facts(model, workload_of(base, model, tp=2, ep=None), base, {}))
    assert recorded[0] == recorded[1]
    facts = dict(recorded[0])
    assert facts["workload.dtype"] == "fp16"
    assert facts["workload.quantizer"] == "gptq"
    assert facts["workload.tp"] == "2"
    assert facts["workload.layers.int4@w4a16:dense"] == "3072x4096 4096x2048 14336x4096 4096x7168"
    assert facts["scheme.weight-scale.int4@w4a16:dense"] == "group64"
    assert not any(str(tmp_path) in text for pair in recorded[0] for text in pair)


def test_without_a_model_only_what_was_assumed_is_recorded() -> None:
    base, _ = read_workload()
    assert recorded_facts(None, base, base, {"host.ninja": True}) == (("host.ninja", "True"),)
