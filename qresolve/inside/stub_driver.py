"""A library that stands in for the CUDA driver's, so that an engine's extensions can be loaded where there is none.

An ELF shared object of a few kilobytes, made without a compiler. Every function answers with an error, except the
one that tells the driver's CUDA version. It is only for throwaway processes that ask selectors and launch nothing.
Source of the layout: System V ABI, "Dynamic Linking"; ld.so(8).
"""

from __future__ import annotations

import struct

_PAGE = 0x1000
_MACHINES = {"x86_64": 62, "aarch64": 183}
_NOT_FOUND = 500  # CUDA_ERROR_NOT_FOUND
SONAME = "libcuda.so.1"

# What extensions of engines and of torch link with, or what loaders of the driver ask for by name.
SYMBOLS = (
    "cuCtxGetCurrent", "cuDeviceGet", "cuDeviceGetAttribute", "cuDeviceGetCount", "cuDevicePrimaryCtxRetain",
    "cuDriverGetVersion", "cuFuncGetAttribute", "cuFuncSetAttribute", "cuGetErrorName", "cuGetErrorString",
    "cuGetProcAddress", "cuGetProcAddress_v2", "cuInit", "cuLaunchKernel", "cuLaunchKernelEx", "cuMemCreate",
    "cuMemGetAddressRange_v2", "cuModuleGetFunction", "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleUnload",
    "cuPointerGetAttribute", "cuTensorMapEncodeIm2col", "cuTensorMapEncodeTiled",
)  # fmt: skip


def _answer(machine: str, value: int) -> bytes:
    if machine == "x86_64":
        return b"\xb8" + struct.pack("<I", value) + b"\xc3"  # mov eax, value; ret
    return struct.pack("<II", 0x52800000 | value << 5, 0xD65F03C0)  # mov w0, #value; ret


def _store_and_succeed(machine: str, value: int) -> bytes:
    if machine == "x86_64":
        return b"\xc7\x07" + struct.pack("<I", value) + b"\x31\xc0\xc3"  # mov [rdi], value; xor eax, eax; ret
    move, store = 0x52800001 | value << 5, 0xB9000001  # mov w1, #value; str w1, [x0]
    return struct.pack("<IIII", move, store, 0x52800000, 0xD65F03C0)


def build_stub_driver(machine: str, *, cuda: int) -> bytes:
    """The library for ``machine`` (``x86_64`` or ``aarch64``); ``cuda`` as a driver says it: 1000 x major + 10 x minor.

    Raises:
        ValueError: another machine, or a version that does not fit.
    """
    if machine not in _MACHINES or not 0 <= cuda < 1 << 16:
        raise ValueError(f"no stub for {machine} and {cuda}")
    names = b"\0" + SONAME.encode() + b"\0"
    code = b""
    entries = [b"\0" * 24]
    starts = []
    for symbol in SYMBOLS:
        code += b"\0" * (-len(code) % 16)
        starts.append((len(names), len(code)))
        names += symbol.encode() + b"\0"
        code += _store_and_succeed(machine, cuda) if symbol == "cuDriverGetVersion" else _answer(machine, _NOT_FOUND)
    count = len(SYMBOLS) + 1
    headers = 64 + 4 * 56
    table_at = headers
    hash_at = table_at + 24 * count
    names_at = hash_at + 4 * (3 + count)
    code_at = names_at + len(names) + -(names_at + len(names)) % 16
    for name, start in starts:
        entries.append(struct.pack("<IBBHQQ", name, 0x12, 0, 1, code_at + start, 16))  # a global function
    # One bucket: a chain through all symbols.
    hashes = struct.pack(f"<{3 + count}I", 1, count, 1, 0, *range(2, count), 0)
    end = code_at + len(code)
    dynamic_at = end + -end % _PAGE
    # DT_SONAME, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_NULL
    tags = ((14, 1), (4, hash_at), (5, names_at), (6, table_at), (10, len(names)), (11, 24), (0, 0))
    dynamic = b"".join(struct.pack("<QQ", tag, value) for tag, value in tags)
    header = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    header += struct.pack("<HHIQQQIHHHHHH", 3, _MACHINES[machine], 1, 0, 64, 0, 0, 64, 56, 4, 64, 0, 0)
    segment = struct.Struct("<IIQQQQQQ")
    programs = segment.pack(1, 5, 0, 0, 0, end, end, _PAGE)  # what is read and run
    programs += segment.pack(1, 6, dynamic_at, dynamic_at, dynamic_at, len(dynamic), len(dynamic), _PAGE)
    programs += segment.pack(2, 6, dynamic_at, dynamic_at, dynamic_at, len(dynamic), len(dynamic), 8)
    programs += segment.pack(0x6474E551, 6, 0, 0, 0, 0, 0, 16)  # a stack that is not run
    text = header + programs + b"".join(entries) + hashes + names
    text += b"\0" * (code_at - len(text)) + code
    return text + b"\0" * (dynamic_at - len(text)) + dynamic
