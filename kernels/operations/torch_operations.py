"""torch's own scaled products; loaded by operations.py. Source: torch/_meta_registrations.py meta_scaled_mm."""

from __future__ import annotations

from typing import Any

from operations import BF16, FLOAT32, HOPPER_FP8, Case, decode_e4m3, e4m3_codes  # type: ignore[import-not-found]

M, N, K = 208, 144, 384


def prepare(_torch: Any, _arguments: dict[str, Any]) -> None:
    """Nothing to load."""


def scaled_mm(torch: Any, device: Any, *, by_row: bool) -> Case:
    left, right = e4m3_codes(torch, M, K, seed=1), e4m3_codes(torch, N, K, seed=2)
    maker = torch.Generator().manual_seed(3)
    shape_a, shape_b = ((M, 1), (1, N)) if by_row else ((1, 1), (1, 1))
    scale_a, scale_b = (torch.rand(shape, generator=maker) * 0.1 + 0.01 for shape in (shape_a, shape_b))
    a, b = (codes.to(device).view(torch.float8_e4m3fn) for codes in (left, right))
    wrong = scale_b.clone()
    wrong[0, 0] *= 2

    def run(second: Any) -> Any:
        first, other = (one.to(device) if by_row else one.to(device).reshape(()) for one in (scale_a, second))
        return torch._scaled_mm(a, b.t(), scale_a=first, scale_b=other, out_dtype=torch.bfloat16)  # noqa: SLF001

    return Case(
        run=lambda: run(scale_b),
        spoiled=lambda: run(wrong),
        left=decode_e4m3(torch, left) * scale_a.double(),
        right=decode_e4m3(torch, right) * scale_b.double().T,
        sum=HOPPER_FP8 + FLOAT32,
        result=BF16 + 2 * FLOAT32,
    )


def by_tensor(torch: Any, device: Any) -> Case:
    return scaled_mm(torch, device, by_row=False)


def by_row(torch: Any, device: Any) -> Case:
    return scaled_mm(torch, device, by_row=True)


def bf16(torch: Any, device: Any) -> Case:
    """The control: an ordinary product, whose left side is doubled in the spoiled one."""
    maker = torch.Generator().manual_seed(7)
    left, right = (torch.randn((rows, K), generator=maker).to(torch.bfloat16) for rows in (M, N))
    a, b = left.to(device), right.to(device)
    wrong = a.clone()
    wrong[0] *= 2
    return Case(
        run=lambda: a @ b.t(),
        spoiled=lambda: wrong @ b.t(),
        left=left.double(),
        right=right.double(),
        result=BF16,
    )


OPERATIONS = {"scaled_mm by tensor": by_tensor, "scaled_mm by row": by_row, "bf16": bf16}
