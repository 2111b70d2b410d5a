"""Asks the predicates that an engine compiled into its libraries, for GPUs that are not there.

Runs in the engine's interpreter, by itself, in a throwaway process: it imports torch and nothing of qresolve or of the
engine, reads one JSON document on stdin and writes one JSON object a line on the descriptor that its first argument
names.

In:  ``{"driver": path | null, "libraries": [path], "operations": ["_C.supports_fp4"], "sms": [120]}``
Out: ``{"library": path, "problem": text}`` for each that does not load, and for each operation and GPU
     ``{"operation": name, "sm": number, "answer": bool}`` or ``{"operation": name, "sm": number, "problem": text}``

``driver`` is a library that stands in for libcuda.so.1, which the libraries want to find and which a predicate never
calls.
"""

# ruff: noqa: BLE001 - whatever goes wrong is an answer
from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any


def main() -> None:
    """Answer the request."""
    own = int(sys.argv[1])
    request = json.load(sys.stdin)

    def say(**values: Any) -> None:
        os.write(own, (json.dumps(values) + "\n").encode())

    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if request["driver"]:
        ctypes.CDLL(request["driver"], mode=ctypes.RTLD_GLOBAL)
    import torch  # type: ignore[import-not-found]  # noqa: PLC0415 - after the driver

    for library in request["libraries"]:
        try:
            torch.ops.load_library(library)
        except Exception as error:
            # torch hides what the linker said; asked again, it says it.
            try:
                ctypes.CDLL(library)
                problem = str(error)
            except OSError as linker:
                problem = str(linker)
            say(library=library, problem=problem.splitlines()[0][:300] if problem else type(error).__name__)
    for name in request["operations"]:
        namespace, _, operation = name.partition(".")
        for sm in request["sms"]:
            try:
                ask = getattr(getattr(torch.ops, namespace), operation)
                say(operation=name, sm=sm, answer=bool(ask(sm)))
            except Exception as error:
                lines = str(error).strip().splitlines()
                say(operation=name, sm=sm, problem=f"{type(error).__name__}: {lines[0][:200] if lines else ''}")


if __name__ == "__main__":
    main()
