"""What a closure brought, taken in: wheels that the wheel index does not know are opened, their names prove nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve.builds import same_lane
from qresolve.errors import NoResolution
from qresolve.measured import image_projects
from qresolve.wheels.index import read_row_of_wheel

if TYPE_CHECKING:
    from qresolve.closure.request import Closure
    from qresolve.edges import Edges
    from qresolve.knowledge.records import Engine
    from qresolve.lock.model import LockedPackage
    from qresolve.question import Question


def take_closed(question: Question, engine: Engine, closure: Closure, edges: Edges) -> None:
    """Judge the release by the closure's versions and by its very wheels from now on.

    Raises:
        NoResolution: the engine is not among them, or its wheel is compiled with another CUDA than was asked for.
    """
    release = engine.release.version
    question.packages[release] = {package.name: package.version for package in closure.packages}
    question.wheels[release] = _gated_wheels(closure, engine)
    open_unknown_wheels(question, engine, closure, edges)
    question.forget()


def _gated_wheels(closure: Closure, engine: Engine) -> dict[str, str]:
    """The sha256 of each gated wheel: what was measured of another file of that name does not count."""
    found = {item.name: item.wheel.sha256 for item in closure.packages if item.name in engine.gated}
    if engine.distribution not in found:
        raise NoResolution(f"the closure does not hold {engine.distribution} itself")
    return found


def open_unknown_wheels(question: Question, engine: Engine, closure: Closure, edges: Edges) -> None:
    """Open the wheels whose images gates look at and that the wheel index does not know.

    Another build is another set of kernels, whatever its name says.
    """
    for project in image_projects(engine):
        package = next((item for item in closure.packages if item.name == project), None)
        if package is None or read_row_of_wheel(project, package.wheel.sha256) is not None:
            continue
        edges.say(f"reading the kernels of {package.wheel.filename}")
        if (row := edges.measure(package)) is not None:
            question.open_wheel(engine.release.version, row)
            check_build(question, engine, package)


def check_build(question: Question, engine: Engine, package: LockedPackage) -> None:
    """Refuse an engine's wheel that is compiled with another CUDA than the lane that was asked for, whatever its name.

    Raises:
        NoResolution: it is.
    """
    asked, found = question.target.cuda, question.engine(engine.release.version).release.cuda
    if asked is not None and package.name == engine.distribution and not same_lane(asked, found):
        raise NoResolution(
            f"{package.wheel.filename} is compiled with CUDA {found}, as its images say, and CUDA {asked} is asked for",
            hint=f"--cuda {found}",
        )
