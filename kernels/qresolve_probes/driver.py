"""The CUDA driver through ctypes alone: devices, modules, memory, launches, times. No torch and no Triton.

Source of names and numbers: the CUDA Driver API reference (cuda.h of CUDA 12 and 13).
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STUB_LIBRARY = 34  # CUDA_ERROR_STUB_LIBRARY: the toolkit's file for linking, which is no driver
_NAMES = {
    1: "invalid value", 2: "out of memory", 3: "not initialized", 34: "a stub library of the toolkit, not a driver",
    35: "the driver is older than this CUDA", 100: "no device", 101: "invalid device",
    200: "invalid image", 209: "no image for this GPU", 218: "invalid PTX", 222: "PTX of a newer release",
    300: "invalid source", 400: "invalid handle", 500: "not found", 700: "illegal address", 701: "out of resources",
    702: "timed out", 715: "illegal instruction", 716: "misaligned address", 719: "launch failed", 999: "unknown",
}  # fmt: skip
_COUNT, _MAJOR, _MINOR, _SHARED_OPT_IN = 16, 75, 76, 97  # CU_DEVICE_ATTRIBUTE_*
_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_USUAL_SHARED = 48 * 1024


class DriverError(Exception):
    """A call of the driver failed; ``code`` is its CUresult."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: {_NAMES.get(code, 'error')} ({code})")
        self.code = code


class Driver:
    """The loaded driver. ``path`` is the file that the loader took."""

    def __init__(self, name: str = "libcuda.so.1") -> None:
        try:
            self._library = ctypes.CDLL(name)
        except OSError as error:
            raise DriverError(f"{name} cannot be loaded: {error}", 3) from error
        self.path = _mapped_path(Path(name).name)
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver.

        Raises:
            DriverError: it does not return success.
        """
        try:
            function = getattr(self._library, name)
        except AttributeError as error:
            raise DriverError(f"{name} is not in {self.path}", 500) from error
        code = int(function(*arguments))
        if code:
            raise DriverError(name, code)

    def version(self) -> str:
        """The newest CUDA that the driver runs, ``13.0``."""
        number = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def devices(self) -> list[dict[str, Any]]:
        """Every device: index, name, sm, uuid, number of SMs."""
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        found = []
        for index in range(count.value):
            device = self._device(index)
            name = ctypes.create_string_buffer(256)
            self.call("cuDeviceGetName", name, 256, device)
            uuid = (ctypes.c_ubyte * 16)()
            self.call("cuDeviceGetUuid", ctypes.byref(uuid), device)
            major, minor = self._attribute(device, _MAJOR), self._attribute(device, _MINOR)
            found.append(
                {
                    "index": index,
                    "name": name.value.decode("utf-8", "replace"),
                    "sm": major * 10 + minor,
                    "uuid": bytes(uuid).hex(),
                    "multiprocessors": self._attribute(device, _COUNT),
                }
            )
        return found

    def _device(self, index: int) -> ctypes.c_int:
        device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), index)
        return device

    def _attribute(self, device: ctypes.c_int, attribute: int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        return value.value

    @contextmanager
    def context(self, index: int) -> Iterator[None]:
        """The primary context of a device, current on this thread."""
        device = self._device(index)
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        try:
            self.call("cuCtxSetCurrent", context)
            yield
        finally:
            self.call("cuDevicePrimaryCtxRelease_v2", device)

    def load(self, cubin: bytes, kernel: str, shared: int) -> ctypes.c_void_p:
        """A kernel of a cubin, allowed that much dynamic shared memory.

        Raises:
            DriverError: among others 209: there is no image for this GPU in it.
        """
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(cubin))
        self.call("cuModuleGetFunction", ctypes.byref(function), module, kernel.encode())
        if shared > _USUAL_SHARED:
            self.call("cuFuncSetAttribute", function, _DYNAMIC_SHARED, ctypes.c_int(shared))
        return function

    def put(self, data: bytes) -> ctypes.c_uint64:
        """A buffer on the device with these bytes."""
        pointer = self.room(len(data))
        self.call("cuMemcpyHtoD_v2", pointer, ctypes.c_char_p(data), ctypes.c_size_t(len(data)))
        return pointer

    def room(self, size: int) -> ctypes.c_uint64:
        """An empty buffer on the device."""
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(size, 1)))
        return pointer

    def clear(self, pointer: ctypes.c_uint64, size: int) -> None:
        """Fill a buffer with ones: what a kernel does not write is then no number."""
        self.call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(0xFF), ctypes.c_size_t(size))

    def get(self, pointer: ctypes.c_uint64, size: int) -> bytes:
        """The bytes of a buffer."""
        data = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", data, pointer, ctypes.c_size_t(size))
        return data.raw

    def free(self, pointer: ctypes.c_uint64) -> None:
        """Give a buffer back."""
        self.call("cuMemFree_v2", pointer)

    def launch(
        self, function: ctypes.c_void_p, grid: tuple[int, int], threads: int, shared: int, values: Sequence[Any]
    ) -> None:
        """Start a kernel; ``values`` are ctypes objects, one a parameter."""
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self.call(
            "cuLaunchKernel", function, *(ctypes.c_uint(size) for size in (*grid, 1, threads, 1, 1, shared)),
            None, pointers, None,
        )  # fmt: skip

    def wait(self) -> None:
        """Until all that was started has ended; a kernel's fault is raised here."""
        self.call("cuCtxSynchronize")

    def milliseconds(self, start: Any, repeats: int) -> float:
        """The time of one call of ``start``, over so many, by events of the device."""
        events = [ctypes.c_void_p(), ctypes.c_void_p()]
        for event in events:
            self.call("cuEventCreate", ctypes.byref(event), 0)
        self.call("cuEventRecord", events[0], None)
        for _ in range(repeats):
            start()
        self.call("cuEventRecord", events[1], None)
        self.call("cuEventSynchronize", events[1])
        taken = ctypes.c_float()
        self.call("cuEventElapsedTime", ctypes.byref(taken), *events)
        for event in events:
            self.call("cuEventDestroy_v2", event)
        return taken.value / repeats


def _mapped_path(name: str) -> str:
    """The file behind a library of this process; its name where the system does not say."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return name
    stem = name.partition(".so")[0]
    return next((line.split(maxsplit=5)[5] for line in lines if f"/{stem}.so" in line), name)
