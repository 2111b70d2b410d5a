"""What is called in SGLang for each point, and how: loaded by sglang_predicates.py, in SGLang's interpreter.

A question returns a name, or raises what SGLang raises when it refuses.
"""

# ruff: noqa: D103, SLF001 - one line of code each, and their names say what they ask; it stands in for SGLang's objects
from __future__ import annotations

import importlib
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SRT = "sglang.srt."
LAYERS = SRT + "layers.quantization."
SCHEMES = LAYERS + "compressed_tensors.schemes."


def module(name: str) -> Any:
    return importlib.import_module(name)


class Picked(Exception):
    """Thrown by what stands in for a kernel: it was reached."""


def stand_in(name: str) -> Callable[..., Any]:
    def reached(*_: Any, **__: Any) -> Any:
        raise Picked(name)

    return reached


def put_settings(settings: dict[str, str]) -> None:
    """Publish the backends that a point names; every other argument is as SGLang has it by default."""
    kernel = SimpleNamespace(
        fp8_gemm_runner_backend=settings.get("fp8_gemm_runner_backend", "auto"),
        fp4_gemm_runner_backend=settings.get("fp4_gemm_runner_backend", "auto"),
    )
    graph = SimpleNamespace(cuda_graph_config=SimpleNamespace(prefill=SimpleNamespace(tc_compiler="eager")))
    moe = SimpleNamespace(flashinfer_mxfp4_moe_precision="default")
    published = SimpleNamespace(kernel=kernel, graph=graph, moe=moe)
    for name in ("fp8_utils", "fp4_utils", "mxfp4"):
        module(LAYERS + name).get_exec = lambda: published
    module(LAYERS + "fp8_utils").initialize_fp8_gemm_config()
    module(LAYERS + "fp4_utils").initialize_fp4_gemm_config()
    runner = module(SRT + "layers.moe").MoeRunnerBackend(settings.get("moe_runner_backend", "auto"))
    module(SRT + "runtime_context").get_flags().moe.runner_backend = runner


# ---------------------------------------------------------------- predicates

OF_MAJOR = (
    "is_sm90_supported", "is_sm100_supported", "is_sm110_supported", "is_sm120_supported", "is_blackwell_supported",
)  # fmt: skip
OF_CUDA = (*OF_MAJOR, "cutlass_fp8_supported")


def predicates(sm: int) -> dict[str, Callable[[], Any]]:
    common = module(SRT + "utils.common")
    fp8 = module(LAYERS + "fp8_utils")
    marlin = module(LAYERS + "marlin_utils")
    # Older releases have not all of them.
    by_major = {name: getattr(common, name) for name in OF_MAJOR if hasattr(common, name)}
    return by_major | {
        "is_flashinfer_available": common.is_flashinfer_available,
        "cutlass_fp8_supported": fp8.cutlass_fp8_supported,
        "query_marlin_supported_quant_types": lambda: bool(marlin.query_marlin_supported_quant_types()),
        "ENABLE_JIT_DEEPGEMM": lambda: bool(module(SRT + "layers.deep_gemm_wrapper").ENABLE_JIT_DEEPGEMM),
        "Mxfp4Config.get_min_capability": lambda: sm >= module(LAYERS + "mxfp4").Mxfp4Config.get_min_capability(),
        "is_triton_kernels_available": common.is_triton_kernels_available,
        "can_auto_enable_marlin_fp8": fp8.can_auto_enable_marlin_fp8,
        "fp4_quantize is cute-dsl": lambda: module(LAYERS + "fp4_utils")._flashinfer_fp4_quantize_backend == "cute-dsl",
    }


# ---------------------------------------------------------------- layers of compressed-tensors


def weights(bits: int, kind: str, strategy: str, **more: Any) -> dict[str, Any]:
    return {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": True, "dynamic": False, **more}


def activations(bits: int, kind: str, strategy: str, **more: Any) -> dict[str, Any]:
    return {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": True, "dynamic": True, **more}


FP8 = "float-quantized"
COMPRESSED: dict[str, tuple[str, dict[str, Any], dict[str, Any] | None]] = {
    "fp8@tensor-static": (FP8, weights(8, "float", "tensor"), activations(8, "float", "tensor", dynamic=False)),
    "fp8@channel-dynamic": (FP8, weights(8, "float", "channel"), activations(8, "float", "token")),
    "fp8@w8a16": (FP8, weights(8, "float", "channel"), None),
    "fp8-block@block128": (
        FP8,
        weights(8, "float", "block", block_structure=[128, 128]),
        activations(8, "float", "group", group_size=128),
    ),
    "int8@w8a8": ("int-quantized", weights(8, "int", "channel"), activations(8, "int", "token")),
    "int8@w8a16": ("pack-quantized", weights(8, "int", "channel"), None),
    "int4@w4a16": ("pack-quantized", weights(4, "int", "group", group_size=128), None),
    "nvfp4@w4a4": (
        "nvfp4-pack-quantized",
        weights(4, "float", "tensor_group", group_size=16),
        activations(4, "float", "tensor_group", group_size=16, dynamic="local"),
    ),
    "nvfp4@w4a16": ("nvfp4-pack-quantized", weights(4, "float", "tensor_group", group_size=16), None),
    "mxfp8@w8a8": (
        "mxfp8-quantized",
        weights(8, "float", "group", group_size=32),
        activations(8, "float", "group", group_size=32),
    ),
}


def compressed_config(form: str) -> Any:
    layout, weight, activation = COMPRESSED[form]
    groups = {"group_0": {"targets": ["Linear"], "weights": weight, "input_activations": activation}}
    known = module(LAYERS + "compressed_tensors.compressed_tensors").CompressedTensorsConfig
    return known.from_config({"format": layout, "config_groups": groups, "ignore": []})


def linear_layer(torch: Any, *, scales: int, static: bool) -> Any:
    """A small layer as a checkpoint fills it: 128 by 128, which every shape rule of these kernels takes."""
    layer = torch.nn.Module()
    put = {"weight": torch.zeros(128, 128).to(torch.float8_e4m3fn)}
    put["weight_scale"] = torch.ones(scales, 1) if scales > 1 else torch.ones(1)
    if static:
        put["input_scale"] = torch.ones(1)
    for name, value in put.items():
        layer.register_parameter(name, torch.nn.Parameter(value, requires_grad=False))
    layer.logical_widths, layer.orig_dtype, layer.weight_block_size = [128], torch.bfloat16, None
    return layer


def apply_fp8(method: str, apply: Callable[[], Any]) -> str:
    """Which GEMM ``apply`` reaches, with those that launch something replaced."""
    torch, fp8 = module("torch"), module(LAYERS + "fp8_utils")
    kept = torch._scaled_mm

    def quantized(values: Any, scale: Any = None, **named: Any) -> tuple[Any, Any]:
        rows = named.get("use_per_token_if_dynamic", False)
        made = scale if scale is not None else (torch.ones(len(values), 1) if rows else torch.ones(1))
        return torch.zeros(values.shape).to(torch.float8_e4m3fn), made

    def repeated(values: Any, scale: Any, *, repeat_scale: bool = False) -> tuple[Any, Any]:
        made = scale.repeat(len(values)).view(-1, 1) if repeat_scale else scale
        return torch.zeros(values.shape).to(torch.float8_e4m3fn), made

    fp8.scaled_fp8_quant, fp8.static_quant_fp8 = quantized, repeated
    fp8.sglang_per_token_quant_fp8 = lambda values: quantized(values, use_per_token_if_dynamic=True)
    fp8.get_w8a8_channelwise_fp8_config = lambda **_: None
    fp8.fp8_scaled_mm, fp8.triton_scaled_mm = stand_in("fp8_scaled_mm"), stand_in("triton_scaled_mm")
    fp8._apply_fallback_scaled_mm = stand_in("_apply_fallback_scaled_mm")
    torch._scaled_mm = stand_in("torch._scaled_mm")
    try:
        apply()
    except Picked as picked:
        return str(picked)
    finally:
        torch._scaled_mm = kept
    return f"{method}: no GEMM was reached"


def name_of(function: Any) -> str:
    name = str(getattr(function, "func", function).__name__)
    if name != "flashinfer_gemm_w8a8_block_fp8_linear_with_fallback":
        return name
    groupwise = module(LAYERS + "fp8_utils")._get_flashinfer_groupwise_backend
    groupwise.cache_clear()
    return f"{name} {groupwise()}"


def compressed_dense(form: str) -> str:
    """The scheme of compressed-tensors for a linear layer, then the GEMM that it chooses."""
    torch, config = module("torch"), compressed_config(form)
    scheme_of = config.target_scheme_map["Linear"]
    scheme = config._get_scheme_from_parts(scheme_of["weights"], scheme_of.get("input_activations"))
    config._check_scheme_supported(scheme.get_min_capability())
    name = type(scheme).__name__
    if name == "CompressedTensorsW8A8Fp8" and scheme.weight_block_size is not None:
        return name_of(scheme.w8a8_block_fp8_linear)
    if name == "CompressedTensorsW8A8Fp8":
        static = scheme.is_static_input_scheme
        layer = linear_layer(torch, scales=1 if form == "fp8@tensor-static" else 128, static=static)
        values = torch.zeros(32, 128, dtype=torch.bfloat16)

        def apply() -> None:
            if form == "fp8@tensor-static":  # process_weights_after_loading casts by a kernel; what it leaves is this
                layer.weight = torch.nn.Parameter(layer.weight.t(), requires_grad=False)
                layer.weight_scale = torch.nn.Parameter(layer.weight_scale.max(), requires_grad=False)
                layer.input_scale = torch.nn.Parameter(layer.input_scale.max(), requires_grad=False)
            else:
                scheme.process_weights_after_loading(layer)
            scheme.apply_weights(layer, values)

        return apply_fp8(name, apply)
    if name == "CompressedTensorsW8A16Fp8":
        scheme.create_weights(
            torch.nn.Module(), input_size=128, output_size=128, input_size_per_partition=128,
            output_partition_sizes=[128], params_dtype=torch.bfloat16, weight_loader=lambda *_: None,
        )  # fmt: skip
    if name == "CompressedTensorsW4A4Fp4":
        return f"{name} {module(LAYERS + 'fp4_utils').get_fp4_gemm_runner_backend().get_flashinfer_backend()}"
    if name == "CompressedTensorsW4A16Fp4":
        bf16 = module(SCHEMES + "compressed_tensors_w4a16_nvfp4")._use_flashinfer_bf16_fp4(torch.bfloat16)
        return f"{name} {'mm_bf16_fp4' if bf16 else 'marlin'}"
    return name


def compressed_moe(form: str) -> str:
    """The scheme of compressed-tensors for experts, then the runner that it makes."""
    torch, config = module("torch"), compressed_config(form)
    experts = type("FusedMoE", (torch.nn.Module,), {})()  # the class's name is what a checkpoint's targets are held to
    scheme = config.get_moe_scheme(experts, "model.layers.0.mlp.experts")
    name = type(scheme).__name__
    home = module(type(scheme).__module__)
    reached: list[str] = []
    home.MoeRunner = lambda backend, _config: reached.append(str(backend.value))
    config_of = SimpleNamespace(is_gated=True, activation="silu")
    scheme.create_moe_runner(experts, config_of)
    return f"{name} {reached[0] if reached else 'no runner'}"


# ---------------------------------------------------------------- layers of other quantizers


def fp8_config(form: str) -> Any:
    known = module(LAYERS + "fp8").Fp8Config
    if form == "mxfp8@w8a8":
        return known(is_checkpoint_fp8_serialized=True, activation_scheme="dynamic", use_mxfp8=True)
    if form == "fp8-block@block128":
        return known(is_checkpoint_fp8_serialized=True, activation_scheme="dynamic", weight_block_size=[128, 128])
    return known(is_checkpoint_fp8_serialized=True, activation_scheme="static")


def fp8_dense(form: str, sm: int) -> str:
    """SGLang's own fp8 and mxfp8 methods."""
    torch, config = module("torch"), fp8_config(form)
    if sm < config.get_min_capability():
        raise ValueError(f"the method starts at {config.get_min_capability()}")
    method = module(LAYERS + "fp8").Fp8LinearMethod(config)
    if method.use_mxfp8:
        return f"{method.mxfp8_dense_backend.value}"
    if method.use_marlin:
        return "apply_fp8_marlin_linear"
    if method.block_quant:
        return name_of(method.w8a8_block_fp8_linear)
    layer = linear_layer(torch, scales=1, static=True)
    values = torch.zeros(32, 128, dtype=torch.bfloat16)

    def apply() -> None:
        home = module(LAYERS + "fp8")
        home.requantize_with_max_scale = lambda *, weight, weight_scale, **_: (weight_scale.max(), weight)
        method.process_weights_after_loading(layer)
        method.apply(layer, values)

    return apply_fp8("Fp8LinearMethod", apply)


def modelopt_nvfp4(sm: int) -> str:
    """ModelOpt's NVFP4 method, as far as the preparation of its weights."""
    torch, home = module("torch"), module(LAYERS + "modelopt_quant")
    config = home.ModelOptFp4Config(is_checkpoint_nvfp4_serialized=True, group_size=16)
    if sm < config.get_min_capability():
        raise ValueError(f"the method starts at {config.get_min_capability()}")
    method = home.ModelOptFp4LinearMethod(config)
    backend = module(LAYERS + "fp4_utils").get_fp4_gemm_runner_backend()
    home.prepare_nvfp4_layer_for_marlin = stand_in("apply_fp4_marlin_linear")
    home.pad_nvfp4_weight = stand_in(f"fp4_gemm {backend.get_flashinfer_backend()}")
    layer = torch.nn.Module()
    values = {
        "weight": torch.zeros(128, 64, dtype=torch.uint8), "input_scale": torch.ones(1),
        "weight_scale_2": torch.ones(1), "weight_scale": torch.ones(128, 8).to(torch.float8_e4m3fn),
    }  # fmt: skip
    for name, value in values.items():
        layer.register_parameter(name, torch.nn.Parameter(value, requires_grad=False))
    layer.logical_widths, layer.params_dtype = [128], torch.bfloat16
    try:
        method.process_weights_after_loading(layer)
    except Picked as picked:
        return str(picked)
    return "no GEMM was reached"


def gpt_oss_moe(settings: dict[str, str], sm: int) -> str:
    """The runner for gpt-oss, by the override of its model, then what the mxfp4 method makes of it."""
    backend = settings.get("moe_runner_backend", "auto")
    if backend == "auto":
        home = module(SRT + "arg_groups.model_overrides.gpt_oss")
        arguments = SimpleNamespace(
            attention_backend=None, prefill_attention_backend=None, decode_attention_backend=None,
            dtype="auto", moe_runner_backend="auto", ep_size=1, quantization=None,
        )  # fmt: skip
        home.resolving_view = lambda _: arguments
        home.get_nvidia_driver_version = lambda: (580,)
        overrides = home._gpt_oss_overrides(arguments, SimpleNamespace(quantization_config={"quant_method": "mxfp4"}))
        backend = overrides.get("moe_runner_backend", "auto")
        put_settings({"moe_runner_backend": backend})
    mxfp4 = module(LAYERS + "mxfp4")
    if sm < mxfp4.Mxfp4Config.get_min_capability():
        raise ValueError(f"the method starts at {mxfp4.Mxfp4Config.get_min_capability()}")
    method = mxfp4.Mxfp4MoEMethod("")
    if method.use_marlin:
        module(LAYERS + "marlin_utils").check_moe_marlin_supports_layer = stand_in("marlin")
        try:
            method.process_weights_after_loading(module("torch").nn.Module())
        except Picked as picked:
            return str(picked)
    return f"{backend}{f' {method._fi_kernel}' if method._fi_kernel else ''}"


def attention(cache: str) -> str:
    """The attention backend that SGLang takes by itself for a model with multi-head attention."""
    base, overrides = module(SRT + "arg_groups.model_override_base"), module(SRT + "arg_groups.overrides")
    arguments = SimpleNamespace(speculative_algorithm=None, speculative_eagle_topk=None, tp_size=1)
    base.resolving_view = base.resolved_view = lambda _: arguments
    model = SimpleNamespace(
        hf_config=SimpleNamespace(architectures=["LlamaForCausalLM"]), has_asymmetric_kv=False,
        has_attention_sinks=False,
    )  # fmt: skip
    picked = base.get_default_attn_backend(arguments, use_mla_backend=False, model_config=model)
    view = SimpleNamespace(attention_backend=picked, kv_cache_dtype=cache)
    return str(overrides._attention_backend_fa3_fp8_fallback(view).get("attention_backend", picked))


# ---------------------------------------------------------------- points

FP8_BACKENDS = (
    "auto", "triton", "cutlass", "deep_gemm", "flashinfer_cutlass", "flashinfer_trtllm", "flashinfer_deepgemm",
    "flashinfer_cutedsl",
)  # fmt: skip
FP4_BACKENDS = (
    "auto", "marlin", "flashinfer_cutedsl", "flashinfer_cutlass", "flashinfer_cudnn", "flashinfer_trtllm",
)  # fmt: skip
MOE_BACKENDS = ("auto", "triton", "marlin", "flashinfer_trtllm", "flashinfer_cutlass", "deep_gemm")
GPT_OSS_BACKENDS = ("auto", "flashinfer_mxfp4", "triton_kernel", "triton", "marlin")


def points(sm: int) -> dict[str, tuple[dict[str, str], Callable[[], str]]]:
    """By the text of a point (scheme, quantizer, a backend named): the settings, and how it is asked."""
    found: dict[str, tuple[dict[str, str], Callable[[], str]]] = {}

    def add(scheme: str, quantizer: str, key: str, backend: str, ask: Callable[[], str]) -> None:
        named = {} if backend == "auto" else {key: backend}
        text = " ".join((f"{scheme} {quantizer}", *(f"{key}={backend}" for key, backend in named.items())))
        found[text] = (named, ask)

    fp8, fp4, moe = "fp8_gemm_runner_backend", "fp4_gemm_runner_backend", "moe_runner_backend"
    for form in ("fp8@tensor-static", "fp8@channel-dynamic", "fp8@w8a16", "int8@w8a8", "int8@w8a16", "int4@w4a16"):
        add(f"{form}:dense", "compressed-tensors", fp8, "auto", partial(compressed_dense, form))
    add("fp8@tensor-static:dense", "fp8", fp8, "auto", partial(fp8_dense, "fp8@tensor-static", sm))
    for form in ("fp8-block@block128", "mxfp8@w8a8"):
        for backend in FP8_BACKENDS:
            if form == "mxfp8@w8a8" or backend != "flashinfer_cutedsl":
                add(f"{form}:dense", "compressed-tensors", fp8, backend, partial(compressed_dense, form))
                add(f"{form}:dense", "fp8", fp8, backend, partial(fp8_dense, form, sm))
    for backend in FP4_BACKENDS:
        add("nvfp4@w4a4:dense", "compressed-tensors", fp4, backend, partial(compressed_dense, "nvfp4@w4a4"))
        add("nvfp4@w4a16:dense", "compressed-tensors", fp4, backend, partial(compressed_dense, "nvfp4@w4a16"))
        add("nvfp4@w4a4:dense", "modelopt", fp4, backend, partial(modelopt_nvfp4, sm))
    for form in ("fp8@tensor-static", "fp8@channel-dynamic", "fp8-block@block128", "nvfp4@w4a4", "int4@w4a16"):
        for backend in MOE_BACKENDS:
            add(f"{form}:moe", "compressed-tensors", moe, backend, partial(compressed_moe, form))
    add("nvfp4@w4a16:moe", "compressed-tensors", moe, "auto", partial(compressed_moe, "nvfp4@w4a16"))
    for backend in GPT_OSS_BACKENDS:
        named = {} if backend == "auto" else {moe: backend}
        add("mxfp4@gpt-oss:moe", "gpt-oss", moe, backend, partial(gpt_oss_moe, named, sm))
    for cache in ("e4m3", "e5m2"):
        add(f"fp8@{cache}:kv", "compressed-tensors", "attention_backend", "auto", partial(attention, f"fp8_{cache}"))
    return found
