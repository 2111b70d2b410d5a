"""Which binary image runs on which GPU: images, architectures and the loading rule.

The rule is code and the facts are data (``constraints/architectures.toml``): which architectures exist, which
are members of a family, and which load machine code only of their own kind.

* Plain machine code (SASS, a cubin) runs on the same major with an equal or later minor: sm_80 on sm86, never
  on sm90. Where the record says ``sass_alone`` (Jetson Orin), there is no such compatibility in either direction:
  sm_86 does not run on sm87, and sm_87 does not run on sm89.
* Suffix ``a`` (one exact part): on that sm and on no other, SASS and PTX alike.
* Suffix ``f`` (a family): on that sm and on later members of its family, SASS and PTX alike.
* Plain PTX: on any equal or later sm, compiled by the driver when it is loaded.

Source: CUDA Programming Guide, "Compute Capabilities" and "Binary Compatibility"; each record names its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal, cast

from qresolve.data import data_folder
from qresolve.strict import read_toml

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date
    from pathlib import Path

    from qresolve.strict import Table

Suffix = Literal["", "a", "f"]
Kind = Literal["sass", "ptx"]

_IMAGE = re.compile(r"(?:(?P<prefix>sm|compute)_?)?(?P<sm>[1-9][0-9]{1,2})(?P<suffix>[af]?)", re.ASCII)
_FILE = "architectures.toml"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ImageArch:
    """The architecture an image was built for: ``sm`` is 120 for sm_120f, ``suffix`` its ``f``."""

    sm: int
    suffix: Suffix = ""
    kind: Kind = "sass"

    def __str__(self) -> str:
        """As the CUDA tools write it: ``sm_120f`` for machine code, ``compute_90`` for PTX."""
        return f"{'sm' if self.kind == 'sass' else 'compute'}_{self.sm}{self.suffix}"


def parse_image_arch(text: str, *, kind: Kind | None = None) -> ImageArch:
    """Read ``sm_120f``, ``sm120f``, ``120f`` or ``compute_90``.

    ``kind`` wins over the prefix; without both it is machine code.

    Raises:
        ValueError: not an architecture.
    """
    found = _IMAGE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"not an image architecture: {text!r} (expected for example sm_90a, 120f, compute_80)")
    said: Kind = "ptx" if found["prefix"] == "compute" else "sass"
    return ImageArch(sm=int(found["sm"]), suffix=cast("Suffix", found["suffix"]), kind=kind or said)


class Loadability(Enum):
    """How an image gets onto a GPU. PTX means the driver compiles it at load, and so chooses the opcodes."""

    SASS = "sass"
    PTX = "ptx"
    NONE = "none"

    @property
    def rank(self) -> int:
        """Higher is better."""
        return {Loadability.SASS: 2, Loadability.PTX: 1, Loadability.NONE: 0}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A tensor-core format the silicon computes in (``fp8``, ``nvfp4``) and the instruction that does it.

    ``unit`` is the PTX family (``mma``, ``wgmma``, ``tcgen05``), ``instruction`` the SASS opcode it becomes. One
    format may stand several times: ``mma`` is the slow way where there is another.
    """

    name: str
    unit: str
    instruction: str
    suffixes: tuple[Suffix, ...]  # of the images that can hold the instruction


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One compute capability.

    ``family`` are the sm numbers on which an ``f`` image of this architecture runs, itself included; empty
    where there are no ``f`` images. ``toolkit`` is the first CUDA release whose compiler targets it,
    ``driver_branch`` the first Linux driver branch that runs it (None: not known).
    """

    sm: int
    compute: str
    generation: str
    family: tuple[int, ...]
    toolkit: str
    driver_branch: int | None
    appears_in: tuple[str, ...]
    sass_alone: bool
    features: tuple[Feature, ...]
    source: str
    checked: date

    @property
    def name(self) -> str:
        """``sm120``, as the command line and the reports write it."""
        return f"sm{self.sm}"

    def has(self, feature: str) -> bool:
        """Whether the tensor cores compute in ``feature``, by whatever instruction."""
        return bool(self.ways(feature))

    def ways(self, feature: str) -> tuple[Feature, ...]:
        """All instructions that compute in ``feature``; none where the silicon does not have it."""
        return tuple(one for one in self.features if one.name == feature)


@dataclass(frozen=True, slots=True, kw_only=True)
class Architectures:
    """All known architectures, by sm number."""

    known: tuple[Architecture, ...]

    def find(self, sm: int) -> Architecture | None:
        """The record of ``sm``, or None where there is none."""
        return next((one for one in self.known if one.sm == sm), None)

    def family(self, sm: int) -> tuple[int, ...]:
        """Where an ``f`` image of ``sm`` runs; of an unrecorded sm nothing but itself is promised."""
        record = self.find(sm)
        return record.family if record is not None and record.family else (sm,)

    @property
    def names(self) -> tuple[str, ...]:
        """``sm75`` … in order."""
        return tuple(one.name for one in self.known)


def loadability(image: ImageArch, gpu_sm: int, architectures: Architectures) -> Loadability:
    """How ``image`` gets onto a GPU of ``gpu_sm``; see the module for the rule."""
    yes = Loadability.SASS if image.kind == "sass" else Loadability.PTX
    if image.sm == gpu_sm:
        return yes
    if image.suffix == "a" or image.sm > gpu_sm:
        return Loadability.NONE
    if image.suffix == "f":
        return yes if gpu_sm in architectures.family(image.sm) else Loadability.NONE
    if image.kind == "ptx":
        return yes
    records = (architectures.find(image.sm), architectures.find(gpu_sm))
    if any(record is not None and record.sass_alone for record in records):
        return Loadability.NONE
    return yes if image.sm // 10 == gpu_sm // 10 else Loadability.NONE


def best_loadability(images: Iterable[ImageArch], gpu_sm: int, architectures: Architectures) -> Loadability:
    """The best of ``images``; no image at all is NONE.

    An empty list must mean "looked, and found none": what was not measured is the caller's unknown.
    """
    return max(
        (loadability(image, gpu_sm, architectures) for image in images),
        key=lambda found: found.rank,
        default=Loadability.NONE,
    )


def driver_choice(images: Iterable[ImageArch], gpu_sm: int, architectures: Architectures) -> ImageArch | None:
    """The one image of a container that the driver loads on a GPU of ``gpu_sm``; None where none loads.

    Machine code comes before PTX, the image built for more exactly this part before one for more parts, and the later
    sm before the earlier. Measured on an H200 (driver 580.159.04, nvcc 13.0), by programs that say what ran: sm_90a
    before sm_90 in either order, sm_90 before compute_80 and before compute_90a, compute_90a before compute_80,
    compute_90 beside sm_80; sm_80, sm_100 alone: none. For other GPUs the same order is taken to hold.
    """
    order = {"a": 2, "f": 1, "": 0}
    return max(
        (image for image in images if loadability(image, gpu_sm, architectures) is not Loadability.NONE),
        key=lambda image: (image.kind == "sass", order[image.suffix], image.sm),
        default=None,
    )


def parse_architectures(table: Table) -> Architectures:
    """Check the records of ``architectures.toml``.

    Raises:
        DataInvalid: a key is missing, unknown or contradicts another.
    """
    records = tuple(_parse_architecture(row) for row in table.tables("architecture"))
    table.done()
    numbers = [one.sm for one in records]
    if numbers != sorted(set(numbers)):
        raise table.fail("architecture", f"must be sorted by sm, each once, not {numbers}")
    if not records:
        raise table.fail("architecture", "is missing")
    for position, one in enumerate(records):
        for member in one.family:
            if member not in numbers:
                raise table.fail(f"architecture[{position}].family", f"{member} is no known sm")
    return Architectures(known=records)


def _parse_architecture(row: Table) -> Architecture:
    sm = row.whole("sm")
    compute = row.text("compute")
    if compute != f"{sm // 10}.{sm % 10}":
        raise row.fail("compute", f"{compute!r} is not the compute capability of sm{sm}")
    family = row.wholes("family")
    if family and (family[0] != sm or list(family) != sorted(set(family))):
        raise row.fail("family", f"must begin with {sm} and rise, not {list(family)}")
    branch = row.whole("driver_branch", 0)
    features = []
    for one in row.tables("feature"):
        suffixes = one.texts("suffixes")
        if not suffixes or set(suffixes) - {"", "a", "f"}:
            raise one.fail("suffixes", f"must be some of '', 'a', 'f', not {list(suffixes)}")
        features.append(
            Feature(
                name=one.text("name"),
                unit=one.choice("unit", ("mma", "wgmma", "tcgen05")),
                instruction=one.text("instruction"),
                suffixes=cast("tuple[Suffix, ...]", suffixes),
            )
        )
        one.done()
    record = Architecture(
        sm=sm,
        compute=compute,
        generation=row.text("generation"),
        family=family,
        toolkit=row.text("toolkit"),
        driver_branch=branch or None,
        appears_in=row.texts("appears_in"),
        sass_alone=row.flag("sass_alone", default=False),
        features=tuple(features),
        source=row.text("source"),
        checked=row.day("checked"),
    )
    unknown_kinds = set(record.appears_in) - {"geforce", "professional", "datacenter", "jetson", "soc"}
    if unknown_kinds:
        raise row.fail("appears_in", f"unknown kinds {sorted(unknown_kinds)}")
    row.done()
    return record


def read_architectures(folder: Path | None = None) -> Architectures:
    """Read ``architectures.toml`` of ``folder``, by default of the shipped constraints.

    Raises:
        DataInvalid: the file is missing or wrong.
    """
    where = folder if folder is not None else data_folder("constraints")
    return parse_architectures(read_toml(where / _FILE, name=f"constraints/{_FILE}"))
