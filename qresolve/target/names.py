"""GPU names: what ``--gpu`` accepts, and the records of ``constraints/gpus.toml`` behind it.

A GPU is named by its architecture (``sm120``, ``sm_120``, ``12.0``, ``120``) or by its product name, compared
without case, spaces, dashes and the words that vendors and tools add. A name that NVIDIA gave to several products
is refused with the choices; nothing is guessed.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qresolve.data import data_folder
from qresolve.errors import UsageError
from qresolve.strict import read_toml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import date
    from pathlib import Path

    from qresolve.arch import Architectures
    from qresolve.strict import Table

KINDS = ("geforce", "professional", "datacenter", "jetson", "soc")
MACHINES = ("x86_64", "aarch64")

_FILE = "gpus.toml"
_MEMORY = re.compile(r"(?<![a-z0-9])\d+\s?gb(?![a-z0-9])")
_NOISE = re.compile(r"nvidia|geforce|tesla|edition|generation|(?<!nv)gpu$|\bwith\b|\bdesign$|\((?:r|tm)\)|[®™]")
_CAPABILITY = re.compile(r"(?:sm|cc|compute)?[\s_-]*(?P<major>[1-9]\d?)(?:\.(?P<minor>\d))(?P<suffix>[af]?)", re.ASCII)
_SM = re.compile(r"(?P<prefix>sm|compute)?[\s_-]*(?P<sm>[1-9]\d{1,2})(?P<suffix>[af]?)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRecord:
    """Products that differ in nothing that a lock depends on.

    ``kind`` decides about forward compatibility of drivers; ``machines`` are the CPU machines that such boards
    exist in, the default first.
    """

    series: str
    sm: int
    kind: str
    machines: tuple[str, ...]
    names: tuple[str, ...]
    source: str
    checked: date


@dataclass(frozen=True, slots=True, kw_only=True)
class AmbiguousName:
    """A name of several products; ``choices`` are the full names."""

    name: str
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetiredGpus:
    """Known GPUs that no record covers, because they are too old."""

    sm: int
    generation: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignDevices:
    """Another maker's devices, recognised by how their names start."""

    maker: str
    starts: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNames:
    """All that ``gpus.toml`` says."""

    records: tuple[GpuRecord, ...]
    ambiguous: tuple[AmbiguousName, ...]
    retired: tuple[RetiredGpus, ...]
    foreign: tuple[ForeignDevices, ...]

    def find(self, name: str) -> GpuRecord | None:
        """The record of a product name as people or drivers write it, or None."""
        wanted = normalise(name)
        return next((one for one in self.records if any(normalise(known) == wanted for known in one.names)), None)

    def of_sm(self, sm: int) -> tuple[GpuRecord, ...]:
        """All records of one architecture."""
        return tuple(one for one in self.records if one.sm == sm)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU to lock for.

    ``name`` is what was typed or what the driver calls it, ``source`` where that came from (``named``, ``nvml``,
    ``nvidia-smi``). ``kind`` is None where the name leaves it open (``sm120`` is GeForce and professional).
    ``machines`` are the possible CPU machines, the default first.
    """

    name: str
    arch: str
    sm: int
    kind: str | None
    machines: tuple[str, ...]
    source: str = "named"

    @property
    def sort_key(self) -> tuple[int, str]:
        """Order of GPUs in a target."""
        return (self.sm, self.name)


def normalise(name: str) -> str:
    """The form in which names are compared: ``NVIDIA GeForce RTX 5090 Laptop GPU`` is ``rtx5090laptop``."""
    lowered = _MEMORY.sub(" ", name.casefold().replace("_", " "))
    plain = _NOISE.sub("", lowered.strip())
    return re.sub(r"[^a-z0-9]", "", plain)


def shorten(name: str) -> str:
    """A name as it can be pasted after ``--gpu``: ``GeForce RTX 5090 Laptop`` is ``rtx-5090-laptop``."""
    words = re.sub(r"[^a-z0-9]+", " ", _NOISE.sub("", name.casefold())).split()
    return "-".join(words)


def split_names(values: Sequence[str]) -> tuple[str, ...]:
    """The names in repeated and comma-separated options, in order."""
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


def parse_gpus(values: Sequence[str], names: GpuNames, architectures: Architectures) -> tuple[Gpu, ...]:
    """Read ``--gpu`` options: each GPU once, sorted; ``none`` is no GPU.

    ``auto`` is the caller's (see :mod:`qresolve.target.detect`).

    Raises:
        UsageError: a name is unknown, ambiguous, too old or another maker's.
    """
    parts = split_names(values)
    if not parts:
        raise UsageError("no GPU is named", hint="--gpu sm120 (or a product name, `auto`, `none`)")
    if any(part.casefold() == "none" for part in parts):
        if len(set(parts)) > 1:
            raise UsageError(f"`none` cannot be combined with other GPUs: {', '.join(parts)}", hint="--gpu none")
        return ()
    found: dict[tuple[int, str], Gpu] = {}
    for part in parts:
        gpu = parse_gpu(part, names, architectures)
        found.setdefault((gpu.sm, normalise(gpu.name)), gpu)
    return tuple(sorted(found.values(), key=lambda gpu: gpu.sort_key))


def parse_gpu(text: str, names: GpuNames, architectures: Architectures) -> Gpu:
    """Read one name.

    Raises:
        UsageError: see :func:`parse_gpus`.
    """
    sm = _parse_sm(text, names, architectures)
    if sm is not None:
        return gpu_of_sm(sm, names, name=f"sm{sm}")
    record = names.find(text)
    if record is not None:
        return Gpu(
            name=text.strip(),
            arch=f"sm{record.sm}",
            sm=record.sm,
            kind=record.kind,
            machines=record.machines,
        )
    raise _refusal(text, names, architectures)


def gpu_of_sm(sm: int, names: GpuNames, *, name: str, source: str = "named") -> Gpu:
    """A GPU of which the architecture is known; kind and machines are what all products of it agree on."""
    records = names.of_sm(sm)
    kinds = {one.kind for one in records}
    shared = [machine for machine in MACHINES if any(machine in one.machines for one in records)]
    return Gpu(
        name=name,
        arch=f"sm{sm}",
        sm=sm,
        kind=kinds.pop() if len(kinds) == 1 else None,
        machines=tuple(shared) or MACHINES,
        source=source,
    )


def check_sm(sm: int, architectures: Architectures, *, named: str) -> None:
    """Refuse an architecture without a record.

    Raises:
        UsageError: it is older than all records, or unknown.
    """
    if architectures.find(sm) is not None:
        return
    oldest = architectures.known[0].sm
    if sm < oldest:
        raise UsageError(
            f"{named} is compute capability {sm // 10}.{sm % 10} (sm{sm}): too old, the records begin at sm{oldest}",
            hint=f"--gpu sm{oldest}",
        )
    below = [one for one in architectures.known if one.sm < sm][-1:]
    above = [one for one in architectures.known if one.sm > sm][:1]
    nearest = sorted((*below, *above), key=lambda one: abs(one.sm - sm))
    raise UsageError(
        f"{named}: there is no record of an architecture sm{sm}; the nearest are "
        f"{' and '.join(one.name for one in (*below, *above))} (all: {', '.join(architectures.names)})",
        hint=f"--gpu {nearest[0].name}",
    )


def _parse_sm(text: str, names: GpuNames, architectures: Architectures) -> int | None:
    lowered = text.strip().casefold()
    found = _CAPABILITY.fullmatch(lowered)
    if found is not None:
        sm = int(found["major"]) * 10 + int(found["minor"])
        written = f"{found['major']}.{found['minor']}"
    else:
        found = _SM.fullmatch(lowered)
        if found is None or names.find(text) is not None:
            return None
        sm = int(found["sm"])
        written = f"sm{sm}"
    suffix = found["suffix"]
    if suffix:
        raise UsageError(
            f"`{text.strip()}` names a build target: the `{suffix}` belongs to compiled code, "
            f"the GPU that runs it is sm{sm}",
            hint=f"--gpu sm{sm}",
        )
    check_sm(sm, architectures, named=written)
    return sm


def _refusal(text: str, names: GpuNames, architectures: Architectures) -> UsageError:
    wanted = normalise(text)
    for ambiguous in names.ambiguous:
        if normalise(ambiguous.name) == wanted:
            choices = []
            for choice in ambiguous.choices:
                record = names.find(choice)
                choices.append(f"{choice} (sm{record.sm})" if record is not None else choice)
            return UsageError(
                f"`{text.strip()}` is the name of several GPUs: {', '.join(choices)}",
                hint=f"--gpu {shorten(ambiguous.choices[-1])}",
            )
    for retired in names.retired:
        if any(normalise(known) == wanted for known in retired.names):
            oldest = architectures.known[0].name
            return UsageError(
                f"`{text.strip()}` is a {retired.generation} GPU (sm{retired.sm}): too old, "
                f"the records begin at {oldest}",
                hint=f"--gpu {oldest}",
            )
    for foreign in names.foreign:
        if wanted.startswith(foreign.starts):
            return UsageError(
                f"`{text.strip()}` names {foreign.maker} hardware: {foreign.why}, only NVIDIA GPUs are",
                hint="--gpu sm120",
            )
    known = {normalise(name): shorten(name) for record in names.records for name in record.names}
    known |= {one.name: one.name for one in architectures.known}
    likely = [known[form] for form in (f"rtx{wanted}", f"gtx{wanted}") if form in known]  # `5090`
    near = likely or [known[match] for match in difflib.get_close_matches(wanted, known, n=3, cutoff=0.6)]
    if near:
        return UsageError(
            f"unknown GPU `{text.strip()}`; the nearest names are {', '.join(near)}", hint=f"--gpu {near[0]}"
        )
    return UsageError(
        f"unknown GPU `{text.strip()}`; name it by product (rtx5090, h200) or by architecture "
        f"({', '.join(architectures.names)})",
        hint="nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader",
    )


def parse_gpu_names(table: Table, architectures: Architectures) -> GpuNames:
    """Check ``gpus.toml``.

    Raises:
        DataInvalid: a key is missing or unknown, an sm has no architecture, a name means two things.
    """
    records = tuple(_parse_record(row, architectures) for row in table.tables("gpu"))
    ambiguous = []
    for row in table.tables("ambiguous"):
        ambiguous.append(AmbiguousName(name=row.text("name"), choices=row.texts("choices")))
        row.done()
    retired = []
    for row in table.tables("retired"):
        retired.append(RetiredGpus(sm=row.whole("sm"), generation=row.text("generation"), names=row.texts("names")))
        row.text("source")
        row.day("checked")
        row.done()
    foreign = []
    for row in table.tables("foreign"):
        foreign.append(ForeignDevices(maker=row.text("maker"), starts=row.texts("starts"), why=row.text("why")))
        row.done()
    table.done()
    names = GpuNames(records=records, ambiguous=tuple(ambiguous), retired=tuple(retired), foreign=tuple(foreign))
    _check_unique(names, table)
    return names


def _parse_record(row: Table, architectures: Architectures) -> GpuRecord:
    record = GpuRecord(
        series=row.text("series"),
        sm=row.whole("sm"),
        kind=row.choice("kind", KINDS),
        machines=row.texts("machines"),
        names=row.texts("names"),
        source=row.text("source"),
        checked=row.day("checked"),
    )
    row.done()
    if architectures.find(record.sm) is None:
        raise row.fail("sm", f"{record.sm} has no record in architectures.toml")
    if not record.machines or set(record.machines) - set(MACHINES):
        raise row.fail("machines", f"must be some of {', '.join(MACHINES)}")
    if not record.names:
        raise row.fail("names", "must not be empty")
    return record


def _check_unique(names: GpuNames, table: Table) -> None:
    seen: dict[str, str] = {}
    for key, name in _all_names(names):
        form = normalise(name)
        if form in seen:
            raise table.fail(key, f"{name!r} is written like {seen[form]!r}")
        seen[form] = name
    for ambiguous in names.ambiguous:
        for choice in ambiguous.choices:
            if names.find(choice) is None:
                raise table.fail("ambiguous", f"{choice!r} of {ambiguous.name!r} has no record")


def _all_names(names: GpuNames) -> Iterator[tuple[str, str]]:
    groups: Iterable[tuple[str, Iterable[str]]] = (
        *(("gpu", record.names) for record in names.records),
        *(("retired", retired.names) for retired in names.retired),
        ("ambiguous", (one.name for one in names.ambiguous)),
    )
    for key, group in groups:
        for name in group:
            yield key, name


def read_gpu_names(architectures: Architectures, folder: Path | None = None) -> GpuNames:
    """Read ``gpus.toml`` of ``folder``, by default of the shipped constraints.

    Raises:
        DataInvalid: the file is missing or wrong.
    """
    where = folder if folder is not None else data_folder("constraints")
    return parse_gpu_names(read_toml(where / _FILE, name=f"constraints/{_FILE}"), architectures)
