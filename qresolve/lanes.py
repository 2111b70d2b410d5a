"""Which known index a package must come from, and which build of an engine a CUDA lane takes. Pure.

A lane is the CUDA release that wheels are built for. The default index has one build of each release; where another is
asked for, torch comes from the index of that lane, and the engine from its own where that has such a build.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from qresolve.builds import build_for, same_lane
from qresolve.closure.request import NamedIndex
from qresolve.errors import NoResolution
from qresolve.knowledge.engine import read_releases
from qresolve.knowledge.indexes import EngineBuild

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from qresolve.knowledge.indexes import IndexBook, KnownIndex
    from qresolve.knowledge.records import Engine, PackageIndex, Release
    from qresolve.question import Question


def releases_of_lane(name: str, releases: Iterable[Release], cuda: str, book: IndexBook) -> tuple[str, ...]:
    """The known releases that have a build for ``cuda``, in the given order."""
    return tuple(
        release.version
        for release in releases
        if same_lane(cuda, release.cuda) or build_for(book.builds, name, release.version, cuda) is not None
    )


def no_build(engine: Engine, cuda: str, book: IndexBook) -> tuple[str, str]:
    """What is said of a release without a build for ``cuda``, and what to type instead."""
    name = f"{engine.name} {engine.release.version}"
    built = f"{name} has no build for CUDA {cuda}: its wheels are built with {engine.release.cuda}"
    others = releases_of_lane(engine.name, engine.releases, cuda, book)
    if not others:
        return f"{built}; no known release has one", f"--cuda {engine.release.cuda}"
    build = build_for(book.builds, engine.name, others[0], cuda)
    index = None if build is None else book.find(build.index)
    where = "" if build is None or index is None else f", at {index.address(cuda=build.cuda, version=build.version)}"
    return (
        f"{built}; the last known release with one is {others[0]}{where}",
        f"--cuda {cuda} --engine {engine.name}=={others[0]}",
    )


def take_lane(question: Question, book: IndexBook, *, runs: Callable[[str], bool] = lambda _: True) -> tuple[str, ...]:
    """Where a CUDA lane is asked for, leave only releases with a build for it, other builds than the default included.

    Where none is, a release whose default build the driver does not run (``runs``, of a CUDA release) is taken in the
    newest build that it does run. A release whose wheel the user gives is taken to be of the asked lane until the wheel
    is opened. Returns what is to be said of the newest release where it has none.

    Raises:
        NoResolution: no known release has one.
    """
    cuda = question.target.cuda
    question.builds = book.builds
    if cuda is None:
        question.lanes.update(_lanes_of_driver(question, book, runs))
        return ()
    if question.engine_version is not None:
        engine = question.engine(question.engine_version)
        if engine.distribution in question.supplied:
            given = EngineBuild(engine=engine.name, version=engine.release.version, cuda=cuda, index="")
            question.builds = (given, *book.builds)
        return ()
    newest = question.engine(question.releases()[0])
    fitting = releases_of_lane(newest.name, newest.releases, cuda, book)
    if newest.release.version in fitting:
        said: tuple[str, ...] = ()
    else:
        message, hint = no_build(newest, cuda, book)
        if not fitting:
            raise NoResolution(message, hint=hint)
        said = (message,)
    question.excluded.update(set(question.releases()) - set(fitting))
    return said


def _lanes_of_driver(question: Question, book: IndexBook, runs: Callable[[str], bool]) -> dict[str, str]:
    found: dict[str, str] = {}
    for release in read_releases(question.engine_name):
        builds = [
            build.cuda
            for build in book.builds
            if build.engine == question.engine_name and Version(build.version) == Version(release.version)
        ]
        fitting = [cuda for cuda in builds if runs(cuda)]
        if fitting and not runs(release.cuda):
            found[release.version] = max(fitting, key=Version)
    return found


def indexes_of(
    named: tuple[NamedIndex, ...],
    known: PackageIndex | None,
    *,
    engine: Engine | None = None,
    cuda: str | None = None,
    book: IndexBook | None = None,
) -> tuple[NamedIndex, ...]:
    """The user's indexes; the engine's own and the known ones that are needed, for packages the user binds to none.

    ``cuda`` is the asked lane, None where none was asked for.
    """
    chosen: list[NamedIndex] = []
    if known is not None:
        chosen.append(
            NamedIndex(
                name=known.name,
                url=known.url,
                packages=known.packages,
                upload_times=known.upload_times,
                flat=known.flat,
            )
        )
    if engine is not None and book is not None:
        chosen += [found for index in book.indexes if (found := _needed(index, engine, cuda, book)) is not None]
    bound = {package for index in named for package in index.packages}
    kept = list(named)
    for index in chosen:
        packages = tuple(package for package in index.packages if package not in bound)
        bound.update(packages)
        if packages:
            kept.append(replace(index, packages=packages))
    return tuple(sorted(kept, key=lambda index: index.name)) if len(kept) > len(named) else named


def _needed(index: KnownIndex, engine: Engine, cuda: str | None, book: IndexBook) -> NamedIndex | None:
    """The index for what this release needs of it, None where it needs nothing."""
    pins = _pins(engine)
    packages: tuple[str, ...] = ()
    lane = cuda or engine.release.cuda
    if index.need == "lane":
        torch = pins.get("torch")
        built = None if torch is None else book.cuda_of_default("torch", torch)
        # Which build the default index has of it is not known: the lane's own index is certain.
        if cuda is not None and (built is None or not same_lane(cuda, built)):
            packages = index.packages
    elif index.need == "missing":
        packages = tuple(name for name in index.packages if _is_missing(name, pins, book))
    elif index.need == "build" and engine.distribution in index.packages:
        build = build_for(book.builds, engine.name, engine.release.version, cuda)
        if build is not None and build.index == index.name:
            packages = (engine.distribution,)
    if not packages:
        return None
    if index.lanes:
        fitting = [one for one in index.lanes if same_lane(one, lane)]
        if not fitting:
            return None
        lane = fitting[0]
    return NamedIndex(
        name=index.name,
        url=index.address(cuda=lane, version=engine.release.version),
        packages=packages,
        upload_times=index.upload_times,
        flat=index.flat,
    )


def _pins(engine: Engine) -> dict[str, str]:
    return {str(canonicalize_name(pin.package)): pin.version for pin in engine.release.pins}


def _is_missing(package: str, pins: Mapping[str, str], book: IndexBook) -> bool:
    """Whether the default index lacks the version that goes with what the release pins."""
    facts = [fact for fact in book.missing if package == fact.package or package.startswith(f"{fact.package}-")]
    wanted = [pins[name] for fact in facts for name in (fact.package, *book.partners(fact.package)) if name in pins]
    return any(fact.covers(fact.package, wanted[0]) for fact in facts) if wanted else False


def pair_constraints(engine: Engine, requirements: Iterable[str], book: IndexBook) -> tuple[str, ...]:
    """The versions of packages that go with a pinned one: ``flashinfer-jit-cache==0.7.2`` also means 0.7.2+cu130."""
    pins = _pins(engine)
    asked = {str(canonicalize_name(Requirement(text).name)) for text in requirements}
    found = set()
    for pinned, version in pins.items():
        found |= {f"{name}=={version}" for name in book.partners(pinned) if name in asked and name not in pins}
    return tuple(sorted(found))
