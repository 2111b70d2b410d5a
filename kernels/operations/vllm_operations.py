"""Operations of vLLM's own extension, called as its kernel classes call them; loaded by operations.py.

Source: vllm/_custom_ops.py cutlass_scaled_mm, cutlass_scaled_fp4_mm; vllm/model_executor/kernels/linear/.
"""

from __future__ import annotations

from typing import Any

from operations import (  # type: ignore[import-not-found]
    BF16,
    FLOAT32,
    HOPPER_FP8,
    Case,
    decode_e2m1,
    decode_e4m3,
    e4m3_codes,
)

M, N, K = 200, 144, 384


def prepare(torch: Any, arguments: dict[str, Any]) -> None:
    for library in arguments["libraries"]:
        torch.ops.load_library(library)


def scaled_mm(torch: Any, a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
    """B is given by rows of N and handed over as K x N, columns contiguous."""
    out = torch.empty((a.shape[0], b.shape[0]), dtype=torch.bfloat16, device=a.device)
    torch.ops._C.cutlass_scaled_mm(out, a, b.t(), scale_a, scale_b, None)  # noqa: SLF001 - the namespace's name
    return out


def fp8(torch: Any, device: Any) -> Case:
    """Scales per token and per channel."""
    left, right = e4m3_codes(torch, M, K, seed=1), e4m3_codes(torch, N, K, seed=2)
    scale_a = torch.rand((M, 1), generator=torch.Generator().manual_seed(3)) * 0.1 + 0.01
    scale_b = torch.rand((1, N), generator=torch.Generator().manual_seed(4)) * 0.1 + 0.01
    a, b = (codes.to(device).view(torch.float8_e4m3fn) for codes in (left, right))
    wrong = scale_b.clone()
    wrong[0, 0] *= 2
    return Case(
        run=lambda: scaled_mm(torch, a, b, scale_a.to(device), scale_b.to(device)),
        spoiled=lambda: scaled_mm(torch, a, b, scale_a.to(device), wrong.to(device)),
        left=decode_e4m3(torch, left) * scale_a.double(),
        right=decode_e4m3(torch, right) * scale_b.double().T,
        sum=HOPPER_FP8 + FLOAT32,
        result=BF16,
    )


def fp8_block(torch: Any, device: Any) -> Case:
    """Scales for 128 of a row of A, by columns in memory, and for blocks of 128 x 128 of B."""
    left, right = e4m3_codes(torch, M, K, seed=1), e4m3_codes(torch, N, K, seed=2)
    groups, blocks = K // 128, -(-N // 128)
    scale_a = torch.rand((M, groups), generator=torch.Generator().manual_seed(3)) * 0.1 + 0.01
    scale_b = torch.rand((blocks, groups), generator=torch.Generator().manual_seed(4)) * 0.1 + 0.01
    a, b = (codes.to(device).view(torch.float8_e4m3fn) for codes in (left, right))
    wrong = scale_b.clone()
    wrong[0, 0] *= 2

    def run(second: Any) -> Any:
        first = scale_a.to(device).t().contiguous().t()
        return scaled_mm(torch, a, b, first, second.to(device).t())

    return Case(
        run=lambda: run(scale_b),
        spoiled=lambda: run(wrong),
        left=decode_e4m3(torch, left) * scale_a.double().repeat_interleave(128, 1),
        right=decode_e4m3(torch, right) * scale_b.double().repeat_interleave(128, 0)[:N].repeat_interleave(128, 1),
        sum=HOPPER_FP8 + 2 * FLOAT32,
        result=BF16,
    )


def int8(torch: Any, device: Any) -> Case:
    """Scales per token and per channel; the sum is exact."""
    maker = torch.Generator().manual_seed(5)
    left = torch.randint(-128, 128, (M, K), generator=maker, dtype=torch.int8)
    right = torch.randint(-128, 128, (N, K), generator=maker, dtype=torch.int8)
    scale_a = torch.rand((M, 1), generator=maker) * 0.01 + 0.001
    scale_b = torch.rand((1, N), generator=maker) * 0.01 + 0.001
    wrong = scale_b.clone()
    wrong[0, 0] *= 2
    a, b = left.to(device), right.to(device)
    return Case(
        run=lambda: scaled_mm(torch, a, b, scale_a.to(device), scale_b.to(device)),
        spoiled=lambda: scaled_mm(torch, a, b, scale_a.to(device), wrong.to(device)),
        left=left.double() * scale_a.double(),
        right=right.double() * scale_b.double().T,
        sum=0.0,
        result=BF16 + 4 * FLOAT32,
    )


def swizzled(torch: Any, scales: Any) -> Any:
    """Block scales as Blackwell's tensor cores read them: tiles of 128 rows by 4 groups, rows interleaved by four."""
    rows, groups = scales.shape
    padded = torch.zeros((-(-rows // 128) * 128, -(-groups // 4) * 4), dtype=torch.uint8)
    padded[:rows, :groups] = scales
    tiles = padded.reshape(padded.shape[0] // 128, 4, 32, padded.shape[1] // 4, 4).permute(0, 3, 2, 1, 4)
    return tiles.contiguous().reshape(padded.shape)


def nvfp4(torch: Any, device: Any) -> Case:
    """Packed codes, a scale for every 16, and a factor."""
    maker = torch.Generator().manual_seed(6)
    codes = [torch.randint(0, 16, (rows, K), generator=maker, dtype=torch.int32) for rows in (M, N)]
    scales = [torch.randint(5 << 3, 9 << 3, (rows, K // 16), generator=maker, dtype=torch.int32) for rows in (M, N)]
    packed = [(one[:, ::2] | one[:, 1::2] << 4).to(torch.uint8).to(device) for one in codes]
    wrong = scales[1].clone()
    wrong[0, 0] += 8
    alpha = torch.tensor([0.0173], dtype=torch.float32, device=device)

    def run(second: Any) -> Any:
        out = torch.empty((M, N), dtype=torch.bfloat16, device=device)
        first, other = (
            swizzled(torch, one.to(torch.uint8)).to(device).view(torch.float8_e4m3fn) for one in (scales[0], second)
        )
        torch.ops._C.cutlass_scaled_fp4_mm(out, packed[0], packed[1], first, other, alpha)  # noqa: SLF001 - its name
        return out

    sides = [
        decode_e2m1(torch, code) * decode_e4m3(torch, scale).repeat_interleave(16, 1)
        for code, scale in zip(codes, scales, strict=True)
    ]
    return Case(
        run=lambda: run(scales[1]),
        spoiled=lambda: run(wrong),
        left=sides[0] * float(alpha.cpu()[0]),
        right=sides[1],
        sum=FLOAT32,
        result=BF16 + 2 * FLOAT32,
    )


OPERATIONS = {
    "CutlassFP8ScaledMMLinearKernel": fp8,
    "CutlassFp8BlockScaledMMKernel": fp8_block,
    "CutlassInt8ScaledMMLinearKernel": int8,
    "CutlassNvFp4LinearKernel": nvfp4,
}
