"""What is called in vLLM for each scheme, and how: loaded by vllm_selectors.py, in vLLM's interpreter.

A question is a function of the point's settings. It returns a name, or raises what vLLM raises when it refuses.
"""

# ruff: noqa: D103, SLF001 - one line of code each, and their names say what they ask
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPE = (4096, 4096)
LINEAR = "vllm.model_executor.kernels.linear"
KEYS = "vllm.model_executor.layers.quantization.utils.quant_utils"
COMPRESSED = "vllm.model_executor.layers.quantization.compressed_tensors"
ORACLE = "vllm.model_executor.layers.fused_moe.oracle"


# What a question went through: the modules that it asked, in order, and the classes that it was answered with.
CONSULTED: list[Any] = []
ANSWERED: list[type] = []


def module(name: str) -> Any:
    found = importlib.import_module(name)
    CONSULTED.append(found)
    return found


def key(name: str) -> Any:
    return getattr(module(KEYS), name)


def dtype() -> Any:
    return module("torch").bfloat16


# ---------------------------------------------------------------- dense


def name_of(found: Any) -> str:
    kind = found if isinstance(found, type) else type(found)
    ANSWERED.append(kind)
    return kind.__name__


def known_only(kind: Any, values: dict[str, Any]) -> Any:
    """A dataclass of those values that it has fields for: releases differ in them."""
    fields = {name for name, field in kind.__dataclass_fields__.items() if field.init}
    return kind(**{name: value for name, value in values.items() if name in fields})


def scaled_mm(config: Any, table: str, quantization: str) -> str:
    """``choose_scaled_mm_linear_kernel``, with and without the keyword that newer releases ask for."""
    linear = module(LINEAR)
    kernels = getattr(linear, table)
    try:
        return name_of(linear.choose_scaled_mm_linear_kernel(config, kernels, quantization=quantization))
    except TypeError as error:
        if "quantization" not in str(error):
            raise
        return name_of(linear.choose_scaled_mm_linear_kernel(config, kernels))


def fp8(weight: str, activation: str, table: str, quantization: str) -> Callable[[dict[str, Any]], str]:
    def ask(_: dict[str, Any]) -> str:
        values = {
            "weight_quant_key": key(weight), "activation_quant_key": key(activation),
            "weight_shape": SHAPE, "input_dtype": dtype(), "out_dtype": dtype(),
        }  # fmt: skip
        config = known_only(module(LINEAR).FP8ScaledMMLinearLayerConfig, values)
        return scaled_mm(config, table, quantization)

    return ask


def int8(_: dict[str, Any]) -> str:
    config = module(LINEAR).Int8ScaledMMLinearLayerConfig(
        is_static_input_scheme=False, is_channelwise=True, input_symmetric=True
    )
    return scaled_mm(config, "_POSSIBLE_INT8_KERNELS", "int8_w8a8")


def mixed(weight: str, activations: str | None = None, *, zero_points: bool = False) -> Callable[[dict[str, Any]], str]:
    def ask(_: dict[str, Any]) -> str:
        linear = module(LINEAR)
        torch = module("torch")
        values = {
            "full_weight_shape": SHAPE, "partition_weight_shape": SHAPE, "group_size": 128,
            "weight_type": getattr(module("vllm.scalar_type").scalar_types, weight),
            "act_type": getattr(torch, activations) if activations else dtype(),
            "out_type": dtype() if activations else None,
            "zero_points": zero_points, "has_g_idx": False,
        }  # fmt: skip
        config = known_only(linear.MPLinearLayerConfig, values)
        return name_of(linear.choose_mp_linear_kernel(config))

    return ask


def made(function: str, *keys: str | None, **named: Any) -> Callable[[dict[str, Any]], str]:
    """A selector that returns a kernel that it made."""

    def ask(_: dict[str, Any]) -> str:
        return name_of(getattr(module(LINEAR), function)(*(key(item) if item else None for item in keys), **named))

    return ask


def mxfp8(_: dict[str, Any]) -> str:
    function = module(LINEAR).init_mxfp8_linear_kernel
    wanted = function.__code__.co_varnames[: function.__code__.co_argcount + function.__code__.co_kwonlyargcount]
    return name_of(function(**({"weight_shape": SHAPE} if "weight_shape" in wanted else {})))


# ---------------------------------------------------------------- experts


def layer(settings: dict[str, Any], *, activation: str = "SILU") -> Any:
    """A fused MoE layer of 8 experts on one GPU."""
    config = module("vllm.model_executor.layers.fused_moe.config")
    activations = module("vllm.model_executor.layers.fused_moe.activation").MoEActivation
    values = {
        "num_experts": 8, "experts_per_token": 2, "hidden_dim": 4096, "intermediate_size": 4096,
        "intermediate_size_per_partition": 4096, "num_local_experts": 8, "num_logical_experts": 8,
        "activation": getattr(activations, activation), "device": "cuda",
        "routing_method": config.RoutingMethodType.Renormalize, "in_dtype": dtype(),
        "moe_parallel_config": config.FusedMoEParallelConfig.make_no_parallel(),
        "moe_backend": settings.get("config.kernel_config.moe_backend", "auto"),
    }  # fmt: skip
    kind = config.FusedMoEConfig
    known = {name for name, field in kind.__dataclass_fields__.items() if field.init}
    if "intermediate_size" in known:
        known.discard("intermediate_size_per_partition")
    return kind(**{name: value for name, value in values.items() if name in known})


def backend_of(found: Any) -> str:
    """``BACKEND/ExpertsClass`` of what an oracle answers."""
    if not isinstance(found, tuple):
        return str(found.name)
    backend, kind = found
    if kind is not None:
        ANSWERED.append(kind)
    return str(backend.name) + (f"/{kind.__name__}" if kind is not None else "")


def experts(
    oracle: str, function: str, *keys: str | None, activation: str = "SILU", **named: Any
) -> Callable[[dict[str, Any]], str]:
    def ask(settings: dict[str, Any]) -> str:
        select = getattr(module(f"{ORACLE}.{oracle}"), function)
        arguments = [key(item) if item else None for item in keys]
        return backend_of(select(layer(settings, activation=activation), *arguments, **named))

    return ask


def int4_experts(settings: dict[str, Any]) -> str:
    arguments = module("compressed_tensors.quantization").QuantizationArgs(
        num_bits=4, type="int", symmetric=True, group_size=128, strategy="group"
    )
    select = module(f"{ORACLE}.int_wna16").select_wna16_moe_backend
    values = {
        "config": layer(settings), "weight_key": key("kInt4Static"), "quant_config": arguments,
        "may_have_zp": False, "may_have_bias": False,
    }  # fmt: skip
    known = select.__code__.co_varnames[: select.__code__.co_argcount]
    return backend_of(select(**{name: value for name, value in values.items() if name in known}))


def compressed_mxfp4_experts(settings: dict[str, Any]) -> str:
    """The experts that compressed-tensors binds by itself, where it asks no oracle."""
    methods = module(f"{COMPRESSED}.compressed_tensors_moe.compressed_tensors_moe_w4a4_mxfp4")
    return name_of(methods.CompressedTensorsW4A4Mxfp4MoEMethod(layer(settings)).experts_cls)


def compressed_w4a8(settings: dict[str, Any]) -> str:
    """The kernel of compressed-tensors' W4A8 method; elsewhere than on sm90 it takes the checkpoint for another."""
    kind = module("compressed_tensors.quantization").QuantizationArgs
    weights = kind(num_bits=4, type="int", symmetric=True, group_size=128, strategy="group")
    activations = kind(num_bits=8, type="float", symmetric=True, strategy="token", dynamic=True)
    config = module(f"{COMPRESSED}.compressed_tensors").CompressedTensorsConfig
    if not config._is_fp8_w4a8_sm90(weights, activations):
        return "not CompressedTensorsW4A8Fp8"
    return mixed("int4", "float8_e4m3fn")(settings)


# ---------------------------------------------------------------- KV cache


def attention(cache: str, head_size: int = 128, **named: Any) -> Callable[[dict[str, Any]], str]:
    """The valid backends in order, joined by ``+``; with a named one, that alone where it is valid."""

    def ask(settings: dict[str, Any]) -> str:
        platform = module("vllm.platforms").current_platform
        capability = platform.get_device_capability()
        kind = module("vllm.v1.attention.selector").AttentionSelectorConfig
        values = {"head_size": head_size, "dtype": dtype(), "kv_cache_dtype": cache, "block_size": None, **named}
        config = kind(**{name: value for name, value in values.items() if name in kind._fields})
        asked = settings.get("config.attention_config.backend")
        if asked:
            registry = module("vllm.v1.attention.backends.registry").AttentionBackendEnum
            reasons = (
                registry[asked].get_class().validate_configuration(device_capability=capability, **config._asdict())
            )
            if reasons:
                raise ValueError("; ".join(reasons))
            ANSWERED.append(registry[asked].get_class())
            return str(asked)
        valid = platform.get_valid_backends(device_capability=capability, attn_selector_config=config)[0]
        found: list[Any] = [getattr(item, "backend", None) or item[0] for item in valid]
        names = [str(item.name) for item in found]
        if not names:
            raise ValueError("no valid attention backend")
        ANSWERED.append(found[0].get_class())
        return "+".join(names)

    return ask


W8A16 = ("kFp8StaticChannelSym", "kFp8DynamicTokenSym", "_POSSIBLE_WFP8A16_KERNELS", "w8a16_fp8")
TENSOR = ("kFp8StaticTensorSym", "kFp8StaticTensorSym")
CHANNEL = ("kFp8StaticChannelSym", "kFp8DynamicTokenSym")
BLOCK = ("kFp8Static128BlockSym", "kFp8Dynamic128Sym")
# By scheme; with the kind of checkpoint behind it where that one has a question of its own.
ASKS: dict[str, Callable[[dict[str, Any]], str]] = {
    "fp8@tensor-static:dense": fp8(*TENSOR, "_POSSIBLE_FP8_KERNELS", "fp8_w8a8"),
    "fp8@channel-dynamic:dense": fp8(*CHANNEL, "_POSSIBLE_FP8_KERNELS", "fp8_w8a8"),
    "fp8@w8a16:dense": fp8(*W8A16),
    "fp8-block@block128:dense": fp8(*BLOCK, "_POSSIBLE_FP8_BLOCK_KERNELS", "fp8_block_w8a8"),
    "mxfp8@w8a8:dense": mxfp8,
    "nvfp4@w4a4:dense": made("init_nvfp4_linear_kernel"),
    "nvfp4@w4a16:dense": made("init_nvfp4_linear_kernel", use_a16=True),
    "mxfp4@w4a4:dense": made("init_mxfp4_linear_kernel", "kMxfp4Dynamic"),
    "mxfp4@w4a16:dense": made("init_mxfp4_linear_kernel", None),
    "mxfp4@w4a6:dense": made("init_mxfp4_linear_kernel", "kMxfp6E3M2Dynamic"),
    "mxfp6@w6a6:dense": made("init_mxfp6_linear_kernel", "kMxfp6E3M2Static", "kMxfp6E3M2Dynamic"),
    "int8@w8a8:dense": int8,
    "int4@w4a16:dense": mixed("uint4b8"),
    "int4@awq:dense": mixed("uint4", zero_points=True),
    "int8@w8a16:dense": mixed("uint8b128"),
    "w4a8-fp8@w4a8:dense compressed-tensors": compressed_w4a8,
    "w4a8-fp8@w4a8:dense": mixed("int4", "float8_e4m3fn"),
    "fp8@tensor-static:moe": experts("fp8", "select_fp8_moe_backend", *TENSOR, allow_vllm_cutlass=True),
    "fp8@channel-dynamic:moe": experts("fp8", "select_fp8_moe_backend", *CHANNEL, allow_vllm_cutlass=True),
    "fp8-block@block128:moe": experts("fp8", "select_fp8_moe_backend", *BLOCK, allow_vllm_cutlass=True),
    "mxfp8@w8a8:moe": experts("mxfp8", "select_mxfp8_moe_backend"),
    "nvfp4@w4a4:moe": experts("nvfp4", "select_nvfp4_moe_backend", "kNvfp4Static", "kNvfp4Dynamic"),
    "nvfp4@w4a16:moe": experts("nvfp4", "select_nvfp4_moe_backend", "kNvfp4Static", None),
    "mxfp4@gpt-oss:moe": experts("mxfp4", "select_mxfp4_moe_backend", activation="SWIGLUOAI"),
    "mxfp4@w4a4:moe compressed-tensors": compressed_mxfp4_experts,
    "mxfp4@w4a4:moe": experts("mxfp4", "select_mxfp4_moe_backend", "kMxfp4Dynamic"),
    "mxfp4@w4a8-mxfp8:moe": experts("mxfp4", "select_mxfp4_moe_backend", "kMxfp8Dynamic"),
    "mxfp4@deepseek-v4:moe": experts("mxfp4", "select_deepseek_v4_mxfp4_moe_backend"),
    "int8@w8a8:moe": experts("int8", "select_int8_moe_backend"),
    "int4@w4a16:moe": int4_experts,
    "w4a8-fp8@w4a8:moe": experts("w4a8", "select_w4a8_moe_backend"),
    "fp8@e4m3:kv": attention("fp8_e4m3"),
    "fp8@e5m2:kv": attention("fp8_e5m2"),
    "nvfp4@nvfp4:kv": attention("nvfp4"),
    "nvfp4@4over6:kv": attention("nvfp4_4over6"),
    "nvfp4@ds-mla:kv": attention("nvfp4_ds_mla", 576, use_mla=True, use_sparse=True),
    "int8@per-token-head:kv": attention("int8_per_token_head"),
}
