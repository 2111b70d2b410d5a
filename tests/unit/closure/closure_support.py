"""What the closure tests share: a user with one index and a cache of their own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from qresolve.closure.indexes import UserIndex, UserIndexes
from qresolve.closure.lockstep import LockstepRules
from qresolve.closure.request import Closure, ClosureRequest
from qresolve.closure.solve import run_closure

if TYPE_CHECKING:
    from pathlib import Path

RULES = LockstepRules(
    metapackage="cuda-toolkit",
    major_suffix="-cu",
    members=("cuda-bindings", "cuda-python", "nv-jitlink"),
    exceptions=("dsl-libs-cu12",),
)


def user(url: str, folder: Path, *more: UserIndex, **variables: str) -> UserIndexes:
    """A user whose default index is ``url``; uv's cache is in ``folder``."""
    known = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "UV_CACHE_DIR": str(folder / "cache"),
        "UV_HTTP_RETRIES": "0",
        **variables,
    }
    return UserIndexes(
        indexes=(*more, UserIndex(url=url, default=True)) if url else more, variables=tuple(sorted(known.items()))
    )


def close(who: UserIndexes, *requirements: str, **options: Any) -> Closure:
    """Resolve with no records at all, so that only the index speaks."""
    known = options.pop("requirements_of", lambda _name, _version: None)
    pins = options.pop("pins_of", lambda _release: None)
    request = ClosureRequest(requirements=requirements, **options)
    return run_closure(request, who, rules=RULES, requirements_of=known, pins_of=pins)


def versions(closure: Closure) -> dict[str, str]:
    return {package.name: package.version for package in closure.packages}
