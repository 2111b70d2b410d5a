"""Measured images of the engine's wheel for one target, looked up in the wheel index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version

from qresolve.wheels.index import images_of, read_wheel_index

if TYPE_CHECKING:
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
