"""``--gpu auto``: which GPUs this host shows to a CUDA program, and with which driver.

NVML is asked first, then ``nvidia-smi``. Every visible GPU counts: a host with two kinds of GPU is a target of two
architectures, never its best, its worst or its first. A MIG instance has the architecture of its GPU.
"""

from __future__ import annotations

import csv
import os
import platform
import shlex
import shutil
import subprocess
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from qresolve.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_FIELDS = ("index", "uuid", "name", "compute_cap", "driver_version", "mig.mode.current")
_COMMAND = ("nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader")
_SECONDS = 20.0
_NAME_IT = "--gpu sm120 (the GPU to lock for need not be in this machine)"


class DetectionFailed(Exception):
    """One way of asking gave no answer; the text says why, in the tool's words. Another way may still work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectedGpu:
    """One GPU as the driver describes it; ``index`` is in PCI order, ``compute`` is None where it was not told."""

    index: int
    uuid: str
    name: str
    compute: tuple[int, int] | None
    mig: bool = False
    mig_uuids: tuple[str, ...] = ()

    @property
    def sm(self) -> int | None:
        """120 of compute capability 12.0."""
        return self.compute[0] * 10 + self.compute[1] if self.compute is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """What was found on this host. ``source`` is ``nvml`` or ``nvidia-smi``; the rest is raw text or None.

    ``cxx`` says whether compilers at run time find a C++ compiler, None where nobody looked.
    """

    gpus: tuple[DetectedGpu, ...]
    driver: str | None
    source: str
    machine: str | None = None
    glibc: str | None = None
    cxx: bool | None = None


def read_host(
    environment: Mapping[str, str] | None = None,
    readers: tuple[Callable[[], Detection], ...] | None = None,
) -> Detection:
    """Ask this host; only GPUs that ``CUDA_VISIBLE_DEVICES`` shows are returned.

    Raises:
        UsageError: there is no GPU, no driver, no permission, or the visible ones cannot be told.
    """
    variables = os.environ if environment is None else environment
    failures: list[str] = []
    for reader in readers if readers is not None else (read_nvml, read_nvidia_smi):
        try:
            found = reader()
        except DetectionFailed as failure:
            failures.append(str(failure))
            continue
        if not found.gpus:
            failures.append("the driver reports no GPU")
            continue
        visible = select_visible(
            found.gpus, variables.get("CUDA_VISIBLE_DEVICES"), order=variables.get("CUDA_DEVICE_ORDER")
        )
        return replace(
            found,
            gpus=visible,
            machine=platform.machine() or None,
            glibc=read_glibc(),
            cxx=finds_cxx(variables),
        )
    reasons = "; ".join(dict.fromkeys(failures)) or "nothing could be asked"
    raise UsageError(f"no GPU was detected: {reasons}", hint=_NAME_IT)


def read_glibc() -> str | None:
    """The glibc of this host, ``2.39``; None where it is another C library."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, ValueError, OSError):
        return None
    return version if name == "glibc" and version else None


def finds_cxx(variables: Mapping[str, str]) -> bool:
    """Whether PATH has the two programs of a GNU C++ compiler that compilers at run time start.

    nvcc starts ``gcc``, and the builds of FlashInfer and SGLang link with what ``CXX`` names, else with ``c++``.
    """
    words = shlex.split(variables.get("CXX", "")) or ["c++"]
    path = variables.get("PATH", os.defpath)
    return all(shutil.which(program, path=path) is not None for program in ("gcc", words[0]))


def read_nvidia_smi() -> Detection:
    """Run ``nvidia-smi``.

    Raises:
        DetectionFailed: it is not there, failed, or did not answer in time.
    """
    try:
        done = subprocess.run(_COMMAND, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except FileNotFoundError as error:
        raise DetectionFailed("nvidia-smi is not installed") from error
    except PermissionError as error:
        raise DetectionFailed("nvidia-smi may not be run by this user") from error
    except subprocess.TimeoutExpired as error:
        raise DetectionFailed(f"nvidia-smi did not answer in {_SECONDS:.0f} s") from error
    except OSError as error:
        raise DetectionFailed(f"nvidia-smi could not be run: {error.strerror}") from error
    return parse_nvidia_smi(done.stdout, status=done.returncode, errors=done.stderr)


def parse_nvidia_smi(text: str, *, status: int = 0, errors: str = "") -> Detection:
    """Read the answer of ``nvidia-smi`` to the query of this module.

    Raises:
        DetectionFailed: it reports a failure, or the lines are not the ones asked for.
    """
    said = " ".join((text.strip() or errors.strip()).split())
    if status != 0 or "has failed" in said or "Failed to initialize" in said:
        if "not a valid field" in said:
            said = "this driver is too old to tell compute capabilities"
        raise DetectionFailed(f"nvidia-smi: {said}" if said else f"nvidia-smi ended with status {status}")
    if "No devices were found" in said:
        return Detection(gpus=(), driver=None, source="nvidia-smi")
    gpus = []
    drivers = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if len(cells) != len(_FIELDS) or not cells[0].isdigit():
            raise DetectionFailed(f"nvidia-smi: not understood: {', '.join(cells)}")
        index, uuid, name, compute, driver, mig = cells
        gpus.append(
            DetectedGpu(
                index=int(index),
                uuid=uuid,
                name=name,
                compute=_parse_compute(compute),
                mig=mig.casefold() == "enabled",
            )
        )
        drivers.append(driver)
    known = [driver for driver in drivers if driver[:1].isdigit()]
    return Detection(gpus=tuple(gpus), driver=known[0] if known else None, source="nvidia-smi")


def _parse_compute(text: str) -> tuple[int, int] | None:
    major, dot, minor = text.partition(".")
    return (int(major), int(minor)) if dot and major.isdigit() and minor.isdigit() else None


def read_nvml(library: Any = None) -> Detection:
    """Ask NVML; ``library`` is the module ``pynvml`` or something that acts like it.

    Raises:
        DetectionFailed: NVML is not there or refuses.
    """
    if library is None:
        try:
            import pynvml  # noqa: PLC0415 - loads a shared library
        except ImportError as error:
            raise DetectionFailed("the Python package nvidia-ml-py is not installed") from error
        library = pynvml
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        raise DetectionFailed(f"NVML: {error}") from error
    try:
        count = library.nvmlDeviceGetCount()
        gpus = tuple(_read_nvml_gpu(library, index) for index in range(count))
        driver = _text(library.nvmlSystemGetDriverVersion())
    except library.NVMLError as error:
        raise DetectionFailed(f"NVML: {error}") from error
    finally:
        library.nvmlShutdown()
    return Detection(gpus=gpus, driver=driver, source="nvml")


def _read_nvml_gpu(library: Any, index: int) -> DetectedGpu:
    handle = library.nvmlDeviceGetHandleByIndex(index)
    major, minor = library.nvmlDeviceGetCudaComputeCapability(handle)
    return DetectedGpu(
        index=index,
        uuid=_text(library.nvmlDeviceGetUUID(handle)),
        name=_text(library.nvmlDeviceGetName(handle)),
        compute=(int(major), int(minor)),
        **_read_nvml_mig(library, handle),
    )


def _read_nvml_mig(library: Any, handle: Any) -> dict[str, Any]:
    try:
        current, _pending = library.nvmlDeviceGetMigMode(handle)
        if not current:
            return {}
        uuids = []
        for instance in range(library.nvmlDeviceGetMaxMigDeviceCount(handle)):
            try:
                device = library.nvmlDeviceGetMigDeviceHandleByIndex(handle, instance)
            except library.NVMLError:  # an empty slot
                continue
            uuids.append(_text(library.nvmlDeviceGetUUID(device)))
    except library.NVMLError:  # GPUs without MIG refuse the question
        return {}
    return {"mig": True, "mig_uuids": tuple(uuids)}


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def select_visible(
    gpus: tuple[DetectedGpu, ...], variable: str | None, *, order: str | None = None
) -> tuple[DetectedGpu, ...]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` (``variable``) leaves, by CUDA's rules.

    A list of indices, UUIDs or MIG UUIDs, each may be shortened; the first entry that matches nothing hides itself
    and all that follow. Indices count in CUDA's own order, fastest first, unless ``CUDA_DEVICE_ORDER`` (``order``)
    is ``PCI_BUS_ID``: on a host with several kinds of GPU an index alone does not say which one is meant.

    Source: CUDA Programming Guide, "CUDA Environment Variables".

    Raises:
        UsageError: nothing is left, or an entry can mean GPUs of several architectures.
    """
    if variable is None:
        return gpus
    entries = [entry.strip() for entry in variable.split(",")]
    chosen: dict[int, DetectedGpu] = {}
    for entry in entries:
        matches = _match_visible(entry, gpus, order=order)
        if not matches:
            break
        if len({(gpu.sm, gpu.name) for gpu in matches}) > 1:
            kinds = ", ".join(sorted({gpu.name for gpu in matches}))
            raise UsageError(
                f"CUDA_VISIBLE_DEVICES={variable}: `{entry}` does not say which of {kinds} is meant, "
                "because CUDA counts the fastest GPU first",
                hint="export CUDA_DEVICE_ORDER=PCI_BUS_ID",
            )
        free = next((gpu for gpu in matches if gpu.index not in chosen), matches[0])
        chosen[free.index] = free
    if not chosen:
        raise UsageError(
            f"CUDA_VISIBLE_DEVICES={variable!r} hides all {len(gpus)} GPUs of this machine",
            hint="unset CUDA_VISIBLE_DEVICES",
        )
    return tuple(gpu for gpu in gpus if gpu.index in chosen)


def _match_visible(entry: str, gpus: tuple[DetectedGpu, ...], *, order: str | None) -> tuple[DetectedGpu, ...]:
    if entry.isdigit():
        index = int(entry)
        if index >= len(gpus):
            return ()
        if order == "PCI_BUS_ID" or len({(gpu.sm, gpu.name) for gpu in gpus}) == 1:
            return tuple(gpu for gpu in gpus if gpu.index == index)
        return gpus
    if entry.startswith("GPU-") and len(entry) > len("GPU-"):
        return tuple(gpu for gpu in gpus if gpu.uuid.startswith(entry))
    if entry.startswith("MIG-"):
        parent = entry.removeprefix("MIG-").partition("/")[0]
        if parent.startswith("GPU-"):  # the older form names the GPU: MIG-GPU-<uuid>/<instance>/<instance>
            return tuple(gpu for gpu in gpus if gpu.uuid.startswith(parent))
        named = tuple(gpu for gpu in gpus if any(uuid.startswith(entry) for uuid in gpu.mig_uuids))
        return named or tuple(gpu for gpu in gpus if gpu.mig and not gpu.mig_uuids)
    return ()
