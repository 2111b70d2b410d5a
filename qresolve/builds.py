"""Builds of an engine's release for another CUDA than that of the default index's wheels. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qresolve.knowledge.indexes import EngineBuild
    from qresolve.knowledge.records import Engine


def same_lane(asked: str, built: str) -> bool:
    """Whether two CUDA releases are the same up to the minor number."""
    return Version(asked).release[:2] == Version(built).release[:2]


def build_for(builds: Iterable[EngineBuild], engine: str, version: str, cuda: str | None) -> EngineBuild | None:
    """The recorded build of a release for ``cuda`` beside the default index's, if there is one."""
    if cuda is None:
        return None
    return next(
        (
            build
            for build in builds
            if build.engine == engine and Version(build.version) == Version(version) and same_lane(cuda, build.cuda)
        ),
        None,
    )


def with_cuda(engine: Engine, cuda: str) -> Engine:
    """The engine's records for another build of the release: compiled with ``cuda``, its toolkit not known."""
    return replace(engine, release=replace(engine.release, cuda=cuda, toolkit=None))
