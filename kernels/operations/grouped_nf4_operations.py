"""grouped-nf4-gemm's product over experts; loaded by operations.py. Source: nf4_grouped.py gemm_4bit_grouped.

Its decode kernels are counted by the library itself (``dispatch_counts``): a call that returned without one raises
here, since a fallback that dequantizes gives right numbers too. What it launches for more rows the profiler names.
"""

from __future__ import annotations

import importlib
from typing import Any

from operations import BF16, FLOAT32, Case, nf4_levels  # type: ignore[import-not-found]

EXPERTS, N, K, BLOCK = 3, 256, 512, 64


def prepare(_torch: Any, _arguments: dict[str, Any]) -> None:
    importlib.import_module("nf4_grouped")


def grouped(torch: Any, device: Any, sizes: tuple[int, ...], *, counted: bool) -> Case:
    """Every expert multiplies its own rows; the reference does all experts and takes each row's own."""
    library = importlib.import_module("nf4_grouped")
    maker = torch.Generator().manual_seed(9)
    codes = torch.randint(0, 16, (EXPERTS, N, K), generator=maker, dtype=torch.int32)
    largest = torch.rand((EXPERTS, N, K // BLOCK), generator=maker) + 0.1
    largest[0, 0, 0] = 4.0  # the one that the spoiled control doubles
    inputs = torch.randn((sum(sizes), K), generator=maker).to(torch.bfloat16)
    packed = (codes[..., ::2] << 4 | codes[..., 1::2]).to(torch.uint8).to(device)
    wrong = largest.clone()
    wrong.view(-1)[int(largest.argmax())] *= 2
    values = torch.tensor(nf4_levels(), dtype=torch.float64)[codes.long()] * largest.double().repeat_interleave(
        BLOCK, 2
    )
    # One row of A stands for (row, expert): zero where the expert is another's.
    left = torch.zeros((sum(sizes), EXPERTS * K), dtype=torch.float64)
    start = 0
    for expert, size in enumerate(sizes):
        left[start : start + size, expert * K : (expert + 1) * K] = inputs[start : start + size].double()
        start += size
    right = values.permute(1, 0, 2).reshape(N, EXPERTS * K)

    def run(second: Any) -> Any:
        library.reset_dispatch_counts()
        out = library.gemm_4bit_grouped(inputs.to(device), packed, second.to(device), list(sizes), list(range(EXPERTS)))
        if counted and not sum(library.dispatch_counts().values()):
            raise RuntimeError("it returned without launching a kernel of its own")
        return out

    return Case(
        run=lambda: run(largest),
        spoiled=lambda: run(wrong),
        left=left,
        right=right,
        # The tile variants round operands to TF32 or bf16; the one for a row multiplies in float32.
        operand=FLOAT32 if counted else BF16 / 2,
        sum=FLOAT32,
        result=BF16,
    )


def prefill(torch: Any, device: Any) -> Case:
    return grouped(torch, device, (40, 7, 17), counted=False)


def decode(torch: Any, device: Any) -> Case:
    return grouped(torch, device, (1, 1, 1), counted=True)


OPERATIONS = {"gemm_4bit_grouped prefill": prefill, "gemm_4bit_grouped decode": decode}
