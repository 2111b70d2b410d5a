"""One file an engine or library: how each is asked, built and launched. None imports what it is about."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from qresolve.verify.plugins.plugin import EnginePlugin, LibraryPlugin

_ENGINES = {"vllm": "vllm", "sglang": "sglang"}
_LIBRARIES = {"humming": "humming", "triton": "triton"}


def engine_plugin(name: str) -> EnginePlugin | None:
    """The plug-in of an engine; None where nobody wrote one."""
    if name not in _ENGINES:
        return None
    return cast("EnginePlugin", import_module(f"{__name__}.{_ENGINES[name]}").PLUGIN)


def library_plugin(name: str) -> LibraryPlugin | None:
    """The plug-in of a library whose kernels routes run on (``Route.library``); None where nobody wrote one."""
    if name not in _LIBRARIES:
        return None
    return cast("LibraryPlugin", import_module(f"{__name__}.{_LIBRARIES[name]}").PLUGIN)
