"""bitsandbytes' NF4 product; loaded by operations.py. Source: bitsandbytes/functional.py, autograd/_functions.py."""

from __future__ import annotations

import importlib
from typing import Any

from operations import BF16, FLOAT32, Case, nf4_levels  # type: ignore[import-not-found]

M, N, K = 64, 128, 512
BLOCK = 64


def prepare(_torch: Any, _arguments: dict[str, Any]) -> None:
    importlib.import_module("bitsandbytes")


def nf4(torch: Any, device: Any) -> Case:
    functional = importlib.import_module("bitsandbytes.functional")
    product = importlib.import_module("bitsandbytes").matmul_4bit
    maker = torch.Generator().manual_seed(8)
    inputs = torch.randn((M, K), generator=maker).to(torch.bfloat16)
    weight = torch.randn((N, K), generator=maker).to(torch.bfloat16).to(device)
    packed, state = functional.quantize_4bit(weight, blocksize=BLOCK, quant_type="nf4")
    codes = packed.view(-1).cpu()
    each = torch.stack((codes >> 4, codes & 15), 1).reshape(N, K).long()
    largest = state.absmax.detach().cpu().double().reshape(N, K // BLOCK)
    right = torch.tensor(nf4_levels(), dtype=torch.float64)[each] * largest.repeat_interleave(BLOCK, 1)
    x = inputs.to(device)

    def run(factor: float) -> Any:
        kept = state.absmax.clone()
        state.absmax[int(kept.argmax())] *= factor
        try:
            return product(x, packed.t(), quant_state=state)
        finally:
            state.absmax.copy_(kept)

    return Case(
        run=lambda: run(1.0),
        spoiled=lambda: run(2.0),
        left=inputs.double(),
        right=right,
        operand=BF16 / 2,
        sum=FLOAT32,
        result=BF16,
    )


OPERATIONS = {"nf4 matmul_4bit": nf4}
