"""What an environment is made for: GPUs, CPU machine, glibc, Python, driver and CUDA.

A target is named, detected, or neither (``--gpu none``), and need not be this host. Whatever was not given and is
assumed is a :class:`Default` with its reason, and is printed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qresolve.arch import read_architectures
from qresolve.errors import UsageError
from qresolve.target import detect as detection
from qresolve.target.drivers import parse_cuda, parse_driver, read_cuda_releases
from qresolve.target.names import (
    Gpu,
    check_sm,
    gpu_of_sm,
    parse_gpus,
    read_gpu_names,
    shorten,
    split_names,
)
from qresolve.target.platforms import (
    parse_glibc,
    parse_machine,
    parse_platform,
    parse_python,
    read_platforms,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from qresolve.arch import Architectures
    from qresolve.target.drivers import CudaReleases
    from qresolve.target.names import GpuNames
    from qresolve.target.platforms import Platform, Platforms

_NVCC = re.compile(r"\d{2}\.\d(\.\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetData:
    """The records that targets are read with."""

    architectures: Architectures
    names: GpuNames
    releases: CudaReleases
    platforms: Platforms


def read_target_data(folder: Path | None = None) -> TargetData:
    """Read the four files of ``folder``, by default of the shipped constraints.

    Raises:
        DataInvalid: a file is missing or wrong.
    """
    architectures = read_architectures(folder)
    return TargetData(
        architectures=architectures,
        names=read_gpu_names(architectures, folder),
        releases=read_cuda_releases(folder),
        platforms=read_platforms(folder),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Default:
    """A value that nobody gave: the option that would have given it, the value, and why this one."""

    option: str
    value: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What to lock for.

    ``driver`` is raw text, None where unknown. ``nvcc`` is a version, ``none`` where known to be absent, None where
    unknown; ``cxx`` says whether the host has a C++ compiler, None where unknown. ``cuda`` is the lane of the wheels
    (``13.0``), None where the resolution may choose. ``origin`` is ``named``, ``detected`` or ``none``.
    """

    gpus: tuple[Gpu, ...]
    machine: str
    glibc: str
    python: str
    driver: str | None = None
    cuda: str | None = None
    nvcc: str | None = None
    cxx: bool | None = None
    origin: str = "named"
    defaults: tuple[Default, ...] = ()

    @property
    def archs(self) -> tuple[str, ...]:
        """Each architecture once, in the order of sm numbers."""
        return tuple(f"sm{sm}" for sm in self.sms)

    @property
    def sms(self) -> tuple[int, ...]:
        """Each sm number once, rising."""
        return tuple(sorted({gpu.sm for gpu in self.gpus}))

    def to_mapping(self) -> dict[str, Any]:
        """The form that JSON holds."""
        return {
            "gpus": [{"name": gpu.name, "arch": gpu.arch, "source": gpu.source} for gpu in self.gpus],
            "machine": self.machine,
            "glibc": self.glibc,
            "python": self.python,
            "driver": self.driver,
            "cuda": self.cuda,
            "nvcc": self.nvcc,
            "cxx": self.cxx,
            "defaults": [{"option": one.option, "value": one.value, "why": one.why} for one in self.defaults],
        }


def build_target(
    *,
    gpu: Sequence[str],
    data: TargetData,
    machine: str | None = None,
    glibc: str | None = None,
    os_name: str | None = None,
    python: str | None = None,
    driver: str | None = None,
    cuda: str | None = None,
    nvcc: str | None = None,
    detect: Callable[[], detection.Detection] = detection.read_host,
) -> Target:
    """Make a target of options as typed; ``detect`` is called for ``--gpu auto`` alone.

    Raises:
        UsageError: an option is wrong, or two contradict each other.
    """
    host, gpus = _choose_gpus(gpu, data, detect)
    defaults: list[Default] = []
    platform = parse_platform(os_name, data.platforms) if os_name is not None else None
    chosen_machine = _choose_machine(
        machine, gpus=gpus, platform=platform, host=host, platforms=data.platforms, defaults=defaults
    )
    chosen_glibc = _choose_glibc(glibc, platform, host, data.platforms, defaults)
    if python is None:
        python = data.platforms.default_python
        defaults.append(Default(option="--python", value=python, why="none was given"))
    if driver is None and host is not None and host.driver is not None:
        driver = host.driver
    origin = "detected" if host is not None else "named" if gpus else "none"
    return Target(
        gpus=gpus,
        machine=chosen_machine,
        glibc=chosen_glibc,
        python=parse_python(python),
        driver=parse_driver(driver).raw if driver is not None else None,
        cuda=parse_cuda(cuda, data.releases) if cuda is not None else None,
        nvcc=parse_nvcc(nvcc) if nvcc is not None else None,
        cxx=host.cxx if host is not None else None,
        origin=origin,
        defaults=tuple(defaults),
    )


def describe_defaults(target: Target) -> tuple[str, ...]:
    """One line for each assumed value: ``--glibc 2.35 (that of ubuntu22.04; none was given)``."""
    return tuple(f"{one.option} {one.value} ({one.why})" for one in target.defaults)


def parse_nvcc(text: str) -> str:
    """Read ``--nvcc``: ``13.0``, ``13.0.88``, or ``none`` for a host without a toolkit.

    Raises:
        UsageError: something else.
    """
    value = text.strip().casefold()
    if value == "none" or _NVCC.fullmatch(value):
        return value
    raise UsageError(f"`{text.strip()}` is no nvcc version (expected for example 13.0, or none)", hint="nvcc --version")


def _choose_gpus(
    values: Sequence[str], data: TargetData, detect: Callable[[], detection.Detection]
) -> tuple[detection.Detection | None, tuple[Gpu, ...]]:
    parts = split_names(values)
    if not any(part.casefold() == "auto" for part in parts):
        return None, parse_gpus(values, data.names, data.architectures)
    if len({part.casefold() for part in parts}) > 1:
        raise UsageError(f"`auto` cannot be combined with other GPUs: {', '.join(parts)}", hint="--gpu auto")
    host = detect()
    gpus: dict[tuple[int, str], Gpu] = {}
    for found in host.gpus:
        gpu = _identify(found, host.source, data)
        gpus.setdefault((gpu.sm, gpu.name), gpu)
    return host, tuple(sorted(gpus.values(), key=lambda one: one.sort_key))


def _identify(found: detection.DetectedGpu, source: str, data: TargetData) -> Gpu:
    if found.sm is None:
        raise UsageError(
            f"the driver does not tell the compute capability of GPU {found.index}, {found.name}",
            hint=f"--gpu {shorten(found.name) or 'sm120'}",
        )
    check_sm(found.sm, data.architectures, named=f"GPU {found.index} of this machine, {found.name},")
    record = data.names.find(found.name)
    if record is None or record.sm != found.sm:  # the silicon's answer wins over a name
        return gpu_of_sm(found.sm, data.names, name=found.name, source=source)
    return Gpu(
        name=found.name,
        arch=f"sm{found.sm}",
        sm=found.sm,
        kind=record.kind,
        machines=record.machines,
        source=source,
    )


def _choose_machine(
    given: str | None,
    *,
    gpus: tuple[Gpu, ...],
    platform: Platform | None,
    host: detection.Detection | None,
    platforms: Platforms,
    defaults: list[Default],
) -> str:
    if given is not None:
        machine = parse_machine(given)
        if platform is not None and platform.machine not in (None, machine):
            raise UsageError(
                f"{platform.name} is {platform.machine}, but --machine {given} was given",
                hint=f"--machine {platform.machine}",
            )
        _check_machine(machine, gpus, said=f"--machine {given} was given")
        return machine
    if platform is not None and platform.machine is not None:
        _check_machine(platform.machine, gpus, said=f"{platform.name} is {platform.machine}")
        machine, why = platform.machine, f"{platform.name} exists for no other"
    elif host is not None and host.machine is not None:
        machine, why = parse_machine(host.machine), "that of this machine"
    elif not gpus:
        machine, why = platforms.default_machine, "none was given"
    else:
        machine, why = _shared_machine(gpus)
    defaults.append(Default(option="--machine", value=machine, why=why))
    return machine


def _check_machine(machine: str, gpus: tuple[Gpu, ...], *, said: str) -> None:
    for gpu in gpus:
        # A bare architecture names no board, so what-if questions about it are free.
        if machine not in gpu.machines and gpu.name != gpu.arch:
            raise UsageError(
                f"{gpu.name} boards are {' or '.join(gpu.machines)}, but {said}",
                hint=f"--machine {gpu.machines[0]}",
            )


def _shared_machine(gpus: tuple[Gpu, ...]) -> tuple[str, str]:
    first = gpus[0]
    other = next((gpu for gpu in gpus if gpu.machines[0] != first.machines[0]), None)
    if other is not None:
        names = {gpu.machines[0]: gpu.name for gpu in reversed(gpus)}
        pairs = ", ".join(f"{name} ({machine})" for machine, name in sorted(names.items()))
        shared = [machine for machine in first.machines if all(machine in gpu.machines for gpu in gpus)]
        also = f"; if all of them sit in {shared[0]} machines, say --machine {shared[0]}" if shared else ""
        raise UsageError(
            f"one lock is for one CPU machine, and these GPUs come with different ones: {pairs}{also}",
            hint=f"--gpu {_argument(first.name)} -o pylock.{first.arch}.toml "
            f"(and then --gpu {_argument(other.name)} -o pylock.{other.arch}.toml)",
        )
    machine = first.machines[0]
    only = all(gpu.machines == (machine,) for gpu in gpus)
    names_text = ", ".join(gpu.name for gpu in gpus)
    return machine, f"{names_text} boards exist for no other" if only else f"usual for {names_text}"


def _argument(name: str) -> str:
    return name if re.fullmatch(r"[\w.-]+", name) else shorten(name)


def _choose_glibc(
    given: str | None,
    platform: Platform | None,
    host: detection.Detection | None,
    platforms: Platforms,
    defaults: list[Default],
) -> str:
    if given is not None:
        glibc = parse_glibc(given)
        if platform is not None and platform.glibc != glibc:
            raise UsageError(
                f"{platform.name} has glibc {platform.glibc}, but --glibc {given} was given",
                hint=f"--os {platform.name} (without --glibc)",
            )
        return glibc
    if platform is not None:
        return platform.glibc
    if host is not None and host.glibc is not None:
        glibc, why = parse_glibc(host.glibc), "that of this machine"
    else:
        glibc, why = platforms.default.glibc, f"that of {platforms.default.name}; none was given"
    defaults.append(Default(option="--glibc", value=glibc, why=why))
    return glibc
