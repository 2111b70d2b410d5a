"""Whether a target can run a release: its Python, its CUDA lane and its driver. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve.builds import same_lane
from qresolve.errors import NoResolution
from qresolve.knowledge.indexes import read_indexes
from qresolve.lanes import no_build
from qresolve.target.drivers import describe_answer, driver_floor, driver_supports, highest_cuda, parse_driver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from qresolve.arch import Architecture
    from qresolve.knowledge.records import Engine
    from qresolve.question import Question
    from qresolve.target.drivers import CudaReleases, DriverAnswer
    from qresolve.target.names import Gpu


def check_release(question: Question, engine: Engine, cuda_releases: CudaReleases) -> None:
    """Refuse a release that the target's Python, CUDA lane or driver cannot run.

    Raises:
        NoResolution: with what stands in the way.
    """
    release, target = engine.release, question.target
    name = f"{engine.name} {release.version}"
    if not release.requires_python.contains(target.python, prereleases=True):
        wanted = next((f"3.{minor}" for minor in range(9, 20) if release.requires_python.contains(f"3.{minor}")), None)
        raise NoResolution(
            f"{name} needs Python {release.requires_python}, and the target has {target.python}",
            hint=f"--python {wanted}" if wanted else None,
        )
    if target.cuda is not None and not same_lane(target.cuda, release.cuda):
        message, hint = no_build(engine, target.cuda, read_indexes())
        raise NoResolution(message, hint=hint)
    for gpu, support in _on_each_gpu(question, release.cuda, cuda_releases):
        if support.blocks:
            floor = driver_floor(release.cuda, cuda_releases, architectures_of(question))
            raise NoResolution(
                f"{name} runs on CUDA {release.cuda}, and driver {target.driver} does not on {gpu.name}: "
                f"{describe_answer(support)}",
                hint=f"--driver {floor or release.cuda}",
            )


def _on_each_gpu(question: Question, cuda: str, cuda_releases: CudaReleases) -> Iterator[tuple[Gpu, DriverAnswer]]:
    """How the target's driver runs a CUDA release on each of its GPUs; nothing where the driver is not known."""
    if question.target.driver is None:
        return
    driver = parse_driver(question.target.driver)
    for gpu in question.target.gpus:
        architecture = question.architectures.find(gpu.sm)
        yield (
            gpu,
            driver_supports(cuda, driver, cuda_releases, kind=gpu.kind, uses_ptx=False, architecture=architecture),
        )


def driver_runs(question: Question, cuda_releases: CudaReleases) -> Callable[[str], bool]:
    """Whether the target's driver runs a CUDA release on all its GPUs; an unknown driver blocks nothing."""

    def runs(cuda: str) -> bool:
        return not any(support.blocks for _, support in _on_each_gpu(question, cuda, cuda_releases))

    return runs


def driver_cuda(question: Question, cuda_releases: CudaReleases) -> str | None:
    """The newest CUDA release that the target's driver runs; None where the driver is not known."""
    given = question.target.driver
    return None if given is None else highest_cuda(parse_driver(given), cuda_releases)


def architectures_of(question: Question) -> tuple[Architecture, ...]:
    """The architectures of the target's GPUs that there are records of, each once."""
    return tuple(
        found
        for sm in sorted({gpu.sm for gpu in question.target.gpus})
        if (found := question.architectures.find(sm)) is not None
    )
