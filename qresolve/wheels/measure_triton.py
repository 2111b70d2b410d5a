"""Write ``constraints/measured/triton.json``: what each Triton release compiles for GPUs that are not there.

    python -m qresolve.wheels.measure_triton [--check] [--only VERSION] [--answers FOLDER] [--python INTERPRETER]

Each release of ``constraints/measured/triton.toml`` is installed alone into an environment of its own (some 200 MB
from the index that uv is set up with) and runs ``kernels/compile_triton.py``, several minutes each.
``--answers`` keeps what the script said of each release in a folder; what is there already is not measured again.
``--python`` is an interpreter of the Python that the request names, where uv finds none by itself.
``--only`` replaces the rows of one release. ``--check`` compares instead of writing. Tests do not come here.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qresolve.data import data_folder
from qresolve.errors import QResolveError, Stale, Unproved
from qresolve.wheels.triton import (
    TritonRelease,
    TritonRequest,
    dump_measured,
    parse_answer,
    parse_measured,
    read_request,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND = "python -m qresolve.wheels.measure_triton"
_NAME = "triton.json"


def script_request(request: TritonRequest) -> str:
    """What the script reads: every product on every arch."""
    cells = [
        {"arch": arch, "format": product.kernel, "tile": list(product.tile)}
        for arch in request.archs
        for product in request.products
    ]
    return json.dumps({"limit": request.seconds, "cells": cells})


def run_release(request: TritonRequest, version: str) -> dict[str, Any]:
    """Install one release and let the script compile.

    Raises:
        Unproved: it cannot be installed, or the script fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "environment"
        python = environment / "bin" / "python"
        uv = [sys.executable, "-m", "uv"]
        packages = [f"triton=={version}", *request.beside, request.disassembler]
        _run([*uv, "venv", "--quiet", "--python", request.python, str(environment)])
        _run([*uv, "pip", "install", "--quiet", "--no-deps", "--python", str(python), *packages])
        tools = sorted(environment.glob("lib/python*/site-packages/nvidia/*/bin/nvdisasm"))
        if not tools:
            raise Unproved(f"{request.disassembler} has no nvdisasm")
        tools[0].chmod(0o755)
        # Nothing of the caller's environment: Triton reads many variables, some of which name another compiler.
        said = _run(
            [str(python), "-I", str(data_folder("kernels") / "compile_triton.py"), str(tools[0])],
            text=script_request(request),
            environment={"PATH": "/nonexistent", "HOME": folder},
        )
    answer: dict[str, Any] = json.loads(said)
    if answer["triton"] != version:
        raise Unproved(f"asked for Triton {version}, and {answer['triton']} was installed")
    return answer


def _run(command: list[str], *, text: str | None = None, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise Unproved(f"{Path(command[0]).name} ended with {done.returncode}: {' '.join(command[1:4])}")
    return done.stdout


def read_or_run(request: TritonRequest, version: str, answers: Path | None) -> TritonRelease:
    """What the script said of a release, from ``answers`` where it is kept there."""
    kept = None if answers is None else answers / f"{version}.json"
    if kept is not None and kept.is_file():
        answer = json.loads(kept.read_text(encoding="utf-8"))
    else:
        print(f"measuring triton {version}", file=sys.stderr)
        answer = run_release(request, version)
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(answer), encoding="utf-8")
    return parse_answer(request, answer)


def run_measure(*, only: Sequence[str], check: bool, answers: Path | None, python: str | None = None) -> None:
    """Write, or with ``check`` compare, the file.

    Raises:
        Stale: with ``check``, it is not what would be written now.
        Unproved: a release cannot be measured.
    """
    request = read_request()
    if python is not None:
        request = replace(request, python=python)
    path = data_folder("constraints") / "measured" / _NAME
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    known = {release.version: release for release in parse_measured(before, file=_NAME)} if before else {}
    found = tuple(
        known[version] if only and version not in only and version in known else read_or_run(request, version, answers)
        for version in request.versions
        if not only or version in only or version in known
    )
    after = dump_measured(COMMAND, request.disassembler, found)
    if not check:
        path.write_text(after, encoding="utf-8")
    elif after != before:
        raise Stale("what Triton compiles differs from what is recorded", hint=COMMAND)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the generator; returns an exit code of docs/exit-codes.md."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Write constraints/measured/triton.json.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--only", action="append", default=[], metavar="VERSION", help="this release alone")
    parser.add_argument("--answers", type=Path, metavar="FOLDER", help="keep and reuse what the script said")
    parser.add_argument("--python", metavar="INTERPRETER", help="make the environments with this one")
    options: Any = parser.parse_args(arguments)
    try:
        run_measure(only=options.only, check=options.check, answers=options.answers, python=options.python)
    except QResolveError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
