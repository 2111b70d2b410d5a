"""Humming's layer, compiled and launched on the card; loaded by operations.py. Source: humming/layer.py HummingLayer.

Weights and inputs lie on the grid of their format with scales that quantizing finds again (each row holds the largest
code), so that what is multiplied is known exactly.
"""

from __future__ import annotations

import importlib
from typing import Any

from operations import BF16, FLOAT32, HOPPER_FP8, Case, decode_e4m3, e4m3_codes  # type: ignore[import-not-found]

M, N, K = 96, 256, 512


def prepare(_torch: Any, _arguments: dict[str, Any]) -> None:
    importlib.import_module("humming.layer")


def layer_of(torch: Any, device: Any, weights: Any, weight: dict[str, Any], inputs: dict[str, Any] | None) -> Any:
    layer = (
        importlib.import_module("humming.layer")
        .HummingLayer(shape_n=N, shape_k=K, weight_config=weight, input_config=inputs, torch_dtype=torch.bfloat16)
        .to(device)
    )
    layer.load_from_unquantized(weights.to(torch.bfloat16).to(device))
    layer.to(device).transform()
    return layer


def case(torch: Any, device: Any, sides: tuple[Any, Any], configs: tuple[Any, Any], **rounding: float) -> Case:
    """``sides`` are float64 on the grid, ``configs`` of weights and inputs; the control doubles a row of weights."""
    left, right = sides
    wrong = right.clone()
    wrong[0] *= 2
    good, bad = (layer_of(torch, device, one, *configs) for one in (right, wrong))
    x = left.to(torch.bfloat16).to(device)
    return Case(run=lambda: good(x), spoiled=lambda: bad(x), left=left, right=right, **rounding)


def int8_weights(torch: Any, device: Any) -> Case:
    maker = torch.Generator().manual_seed(10)
    codes = torch.randint(-127, 128, (N, K), generator=maker).double()
    codes[:, 0] = 127
    left = torch.randn((M, K), generator=maker).to(torch.bfloat16).double()
    configs = ({"dtype": "int8"}, None)
    return case(torch, device, (left, codes / 128), configs, operand=BF16, sum=FLOAT32, result=2 * BF16)


def int4_weights(torch: Any, device: Any) -> Case:
    maker = torch.Generator().manual_seed(11)
    codes = torch.randint(-7, 8, (N, K), generator=maker).double()
    codes[:, ::128] = -8
    left = torch.randn((M, K), generator=maker).to(torch.bfloat16).double()
    configs = ({"dtype": "int4", "group_size": 128}, None)
    return case(torch, device, (left, codes / 8), configs, operand=BF16, sum=FLOAT32, result=2 * BF16)


def fp8(torch: Any, device: Any) -> Case:
    """Both sides hold 448 in each row, so both scales are one."""
    left, right = e4m3_codes(torch, M, K, seed=12), e4m3_codes(torch, N, K, seed=13)
    left[:, 9] = right[:, 9] = 0x7E
    sides = (decode_e4m3(torch, left), decode_e4m3(torch, right))
    configs = ({"dtype": "float8e4m3"}, {"dtype": "float8e4m3"})
    return case(torch, device, sides, configs, sum=HOPPER_FP8 + FLOAT32, result=2 * BF16)


OPERATIONS = {"int8 weights": int8_weights, "int4 weights": int4_weights, "fp8 weights and activations": fp8}
