"""What was measured, looked up for one target: images of the engine's wheel, and what a Triton release compiles."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from packaging.version import Version

from qresolve.facts import ABSENT, Fact
from qresolve.wheels.index import images_of, read_wheel_index
from qresolve.wheels.triton import Result, read_measured

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from qresolve.arch import ImageArch
    from qresolve.knowledge.records import Engine
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


def row_of_wheel(project: str, sha256: str) -> WheelRow | None:
    """The row of exactly that file; None: it was never looked at, whatever its name says."""
    return next((row for row in read_wheel_index(project) if row.sha256 == sha256), None)


def versions_of(engine: Engine) -> dict[str, str]:
    """The versions of the wheels that an environment of this release has: the engine itself and what it pins."""
    return {**{pin.package: pin.version for pin in engine.release.pins}, engine.distribution: engine.release.version}


def images_for(versions: Mapping[str, str], machine: str, *, wheels: Mapping[str, str] | None = None) -> Images:
    """A lookup of measured images: (project, library stem, unit) to images, None where nothing was measured.

    ``versions`` are those of the projects' wheels. With ``wheels`` (project to sha256) only those very files count: a
    wheel of the same name from another index is another build.
    """

    @cache
    def measured_row(project: str) -> WheelRow | None:
        return _row(project, versions, machine, wheels)

    def images(project: str, library: str, unit: str) -> tuple[ImageArch, ...] | None:
        found = measured_row(project)
        if found is None or found.measured is None or found.measured.libraries is None:
            return None
        folders, _, name = unit.rpartition("/")
        wanted = f"{library}/{folders}" if folders else library
        path = next((item.path for item in found.measured.libraries if _is_library(item.path, wanted)), None)
        return None if path is None else images_of(found, path, name)

    return images


def _row(project: str, versions: Mapping[str, str], machine: str, wheels: Mapping[str, str] | None) -> WheelRow | None:
    """The project's row: of the very file where ``wheels`` names files, else of its version on the machine."""
    if wheels is not None:
        return row_of_wheel(project, wheels[project]) if project in wheels else None
    return row_for(project, versions[project], machine) if project in versions else None


def _is_library(path: str, wanted: str) -> bool:
    """``wanted`` is the stem of the file's name, with folders before it where one stem is in several."""
    folder, _, file = path.rpartition("/")
    return f"/{folder}/{file.partition('.')[0]}".endswith(f"/{wanted}")


def measured_wheels(
    engine: Engine, machine: str, wheels: Mapping[str, str] | None, facts: Iterable[str]
) -> tuple[WheelRow, ...]:
    """The rows of the wheels whose images the decision looked at (``facts``), and the engine's own, by name."""
    images = (fact.removeprefix("image.") for fact in facts if fact.startswith("image."))
    projects = {image.partition(":")[0] for image in images} | {engine.distribution}
    versions = versions_of(engine)
    rows = (_row(project, versions, machine, wheels) for project in sorted(projects))
    return tuple(row for row in rows if row is not None)


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
