"""What was measured, looked up for one target: images of the engine's wheel, and what a Triton release compiles."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from packaging.version import Version

from qresolve.facts import ABSENT, Fact
from qresolve.gates import leaves
from qresolve.machine_code.families import read_families
from qresolve.machine_code.instructions import read_instructions
from qresolve.wheels.index import images_of_unit, read_row_of_wheel, read_rows_of_release
from qresolve.wheels.triton import Result, read_measured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from qresolve.arch import ImageArch
    from qresolve.knowledge.records import Engine, Scheme
    from qresolve.machine_code.instructions import Product
    from qresolve.situation import Images
    from qresolve.wheels.index_rows import MeasuredLibrary, WheelRow


def row_for(project: str, version: str, machine: str) -> WheelRow | None:
    """The row of the wheel index for that release and machine (``x86_64``, ``aarch64``); None: not recorded."""
    rows = read_rows_of_release(project, version)
    return next((row for row in rows if row.filename.removesuffix(".whl").endswith(f"_{machine}")), None)


def build_cuda(row: WheelRow) -> str | None:
    """The CUDA release that a wheel was built with: as its images' own notes say, else as it claims; None: neither.

    Images of several compilers count as the newest of them: that one's macros decided what could be compiled in.
    """
    libraries = (row.measured.libraries if row.measured is not None else None) or ()
    noted = {release for library in libraries for release in library.compilers}
    if noted:
        newest = max(noted, key=Version)
        return ".".join(newest.split(".")[:2])
    return row.declared.cuda


def versions_of(engine: Engine) -> dict[str, str]:
    """The versions of the wheels that an environment of this release has: the engine itself and what it pins."""
    return {**{pin.package: pin.version for pin in engine.release.pins}, engine.distribution: engine.release.version}


def images_for(
    versions: Mapping[str, str],
    machine: str,
    *,
    wheels: Mapping[str, str] | None = None,
    opened: Mapping[str, WheelRow] | None = None,
) -> Images:
    """A lookup of measured images: (project, library stem, unit, scheme) to images, None where nothing was measured.

    ``versions`` are those of the projects' wheels. With ``wheels`` (project to sha256) only those very files count: a
    wheel of the same name from another index is another build; what was read in it stands in ``opened``, by sha256.
    """

    @cache
    def measured_row(project: str) -> WheelRow | None:
        return _row(project, versions, machine, wheels, opened or {})

    return images_in(lambda project, _library: _libraries(measured_row(project)))


def _libraries(row: WheelRow | None) -> tuple[MeasuredLibrary, ...] | None:
    return row.measured.libraries if row is not None and row.measured is not None else None


def images_in(libraries: Callable[[str, str], tuple[MeasuredLibrary, ...] | None]) -> Images:
    """A lookup of images in measured libraries, which ``libraries`` gives for a project and the stem of a library."""

    def images(project: str, library: str, unit: str, scheme: Scheme | None = None, /) -> tuple[ImageArch, ...] | None:
        folders, _, name = unit.rpartition("/")
        wanted = f"{library}/{folders}" if folders else library
        measured = libraries(project, wanted) or ()
        found = next((item for item in measured if is_library(item.path, wanted)), None)
        if found is None:
            return None
        product = product_of_unit(found.path, name, scheme) if scheme is not None else None
        return images_of_unit(found, name, product=product)

    return images


def product_of_unit(path: str, unit: str, scheme: Scheme) -> Product | None:
    """What an image of the unit must multiply to count; None: the unit is of no family that serves the scheme."""
    keys = {scheme.key(role) for role in scheme.roles}
    if not any(keys & set(family.serves) for family in read_families().of(path=path, unit=unit)):
        return None
    return read_instructions().product_of(scheme.facts)


def _row(
    project: str,
    versions: Mapping[str, str],
    machine: str,
    wheels: Mapping[str, str] | None,
    opened: Mapping[str, WheelRow],
) -> WheelRow | None:
    """The project's row: of the very file where ``wheels`` names files, else of its version on the machine."""
    if wheels is not None:
        return (
            (read_row_of_wheel(project, wheels[project]) or opened.get(wheels[project])) if project in wheels else None
        )
    return row_for(project, versions[project], machine) if project in versions else None


def is_library(path: str, wanted: str) -> bool:
    """``wanted`` is the stem of the file's name, with folders before it where one stem is in several."""
    folder, _, file = path.rpartition("/")
    return f"/{folder}/{file.partition('.')[0]}".endswith(f"/{wanted}")


def image_projects(engine: Engine) -> tuple[str, ...]:
    """The projects whose images gates of this engine look at, the engine's own among them, sorted."""
    projects = {
        leaf.fact.removeprefix("image.").partition(":")[0]
        for route in engine.routes.values()
        for gate in (*route.select, *route.execute)
        for leaf in leaves(gate.when)
        if leaf.fact.startswith("image.")
    }
    return tuple(sorted(projects | {engine.distribution}))


def measured_wheels(
    engine: Engine,
    machine: str,
    wheels: Mapping[str, str] | None,
    facts: Iterable[str],
    *,
    opened: Mapping[str, WheelRow],
) -> tuple[WheelRow, ...]:
    """The rows of the wheels whose images the decision looked at (``facts``), and the engine's own, by name."""
    images = (fact.removeprefix("image.") for fact in facts if fact.startswith("image."))
    projects = {image.partition(":")[0] for image in images} | {engine.distribution}
    versions = versions_of(engine)
    rows = (_row(project, versions, machine, wheels, opened) for project in sorted(projects))
    return tuple(row for row in rows if row is not None)


def kernel_records(scheme: Scheme, role: str) -> dict[str, str]:
    """Digests of what says which kernels serve a scheme and which instructions are native to it."""
    records = {f"family:{family.id}": family.digest for family in read_families().serving(scheme.key(role))}
    product = read_instructions().product_of(scheme.facts)
    return records if product is None else {**records, f"product:{product.name}": product.digest}


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
