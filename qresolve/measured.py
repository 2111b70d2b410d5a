"""What was measured, looked up for one target: images of the engine's wheel, and what a Triton release compiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version

from qresolve.facts import ABSENT, Fact
from qresolve.wheels.index import images_of, read_wheel_index
from qresolve.wheels.triton import Result, read_measured

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qresolve.arch import ImageArch
    from qresolve.situation import Images
    from qresolve.wheels.index import WheelRow


def row_for(project: str, version: str, machine: str) -> WheelRow | None:
    """The row of the wheel index for that release and machine (``x86_64``, ``aarch64``); None: not recorded."""
    wanted = Version(version)
    return next(
        (
            row
            for row in read_wheel_index(project)
            if Version(row.version) == wanted and row.filename.removesuffix(".whl").endswith(f"_{machine}")
        ),
        None,
    )


def images_for(distribution: str, version: str, machine: str) -> Images:
    """A lookup of measured images: (project, library stem, unit) to images, None where nothing was measured."""
    row = row_for(distribution, version, machine)

    def images(project: str, library: str, unit: str) -> tuple[ImageArch, ...] | None:
        if row is None or project != distribution or row.measured is None or row.measured.libraries is None:
            return None
        path = next(
            (item.path for item in row.measured.libraries if item.path.rpartition("/")[2].partition(".")[0] == library),
            None,
        )
        return None if path is None else images_of(row, path, unit)

    return images


_SAID: Mapping[Result, str] = {"native": "native", "decomposed": "decomposed", "none": "none"}


def toolchain_fact(key: str, sm: int, version: str | None) -> Fact:
    """The fact ``toolchain.triton.PRODUCT`` of one arch for the Triton in the environment.

    A release that was not measured, a compiler that crashed or was too slow, and a product of which only a part is
    native, are unknown. Without Triton nothing compiles.
    """
    product = key.removeprefix("toolchain.triton.")
    if version is None:
        return Fact(value=None, source="", why_unknown="the release of Triton is not known")
    if version == ABSENT:
        return Fact(value="none", source="Triton is not installed")
    source = f"triton {version}"
    release = read_measured().get(version)
    row = release.row(sm, product) if release is not None else None
    if row is None:
        why = f"what Triton {version} compiles for {product} on sm{sm} was not measured"
    elif row.result in _SAID:
        return Fact(value=_SAID[row.result], source=f"{source} cross-compiled for sm{sm}: {', '.join(row.opcodes)}")
    else:
        why = f"compiling {product} for sm{sm} with Triton {version}: {row.result}"
    return Fact(value=None, source=source, why_unknown=why)


def toolchain_records(version: str | None) -> dict[str, str]:
    """The digest of what was measured of a Triton release, as a record that a decision used."""
    release = read_measured().get(version or "")
    return {} if release is None else {f"measured:triton=={release.version}": release.digest}
