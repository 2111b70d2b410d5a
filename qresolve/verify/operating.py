"""Rung 8: the engine's own operation launched on a card, with a reference and the name of the kernel that ran.

An operation of the route that the engine picked is evidence about the route. A library's operation beside it (torch's
own product, bitsandbytes') is evidence about library, GPU and driver, and proves no route of an engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qresolve.data import data_folder
from qresolve.inside.process import run_script
from qresolve.knowledge.operations import read_operations
from qresolve.verify.evidence import Binds, Evidence, Outcome
from qresolve.verify.plugins.vllm import main_libraries
from qresolve.verify.rungs import OPERATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from qresolve.knowledge.operations import Operation
    from qresolve.knowledge.records import Route
    from qresolve.verify.evidence import FormatRow
    from qresolve.verify.plugins.plugin import Looking

_SHOWN = 90  # letters of a kernel's name, which can have thousands


def operations_of(engine: str | None, versions: Mapping[str, str], keys: Iterable[str]) -> tuple[Operation, ...]:
    """The operations of the engine and of installed libraries that serve any of the schemes."""
    wanted = set(keys)
    return tuple(
        one
        for one in read_operations()
        if wanted & set(one.serves) and ((engine is not None and one.engine == engine) or one.library in versions)
    )


def launch_operations(looking: Looking, operations: Sequence[Operation]) -> dict[str, tuple[Mapping[str, Any], ...]]:
    """What came of launching, by the file that knows how; each line is one operation on one GPU, or a problem."""
    found = {}
    for file in dict.fromkeys(one.file for one in operations):
        names = [one.name for one in operations if one.file == file]
        libraries = [str(path) for path in main_libraries(looking.libraries)]
        end = run_script(
            looking.environment.python,
            data_folder("kernels") / "operations" / "operations.py",
            {"file": file, "arguments": {"libraries": libraries}, "operations": names},
            variables=looking.environment.variables,
            limit=looking.limit,
            bytecode=looking.bytecode,
        )
        nothing = ({"problem": end.reason},)
        found[file] = end.lines or nothing
    return found


def operation_evidence(
    row: FormatRow,
    route: Route | None,
    operations: Sequence[Operation],
    lines: Mapping[str, Sequence[Mapping[str, Any]]],
) -> list[Evidence]:
    """Rung 8 for one row: the picked route's own operation, and libraries' beside it."""
    found: list[Evidence] = []
    own = [one for one in operations if one.engine is not None and route is not None and one.name == route.name]
    if route is not None and not own:
        why = "nobody here knows how its operation is called by itself"
        found.append(OPERATION.observed(row, route.name, Outcome.UNPROVED, binds=Binds.ROUTE, why=why))
    for one in operations:
        if row.key not in one.serves or (one.engine is not None and one not in own):
            continue
        binds = Binds.ROUTE if one in own else Binds.SILICON
        subject = one.name if one in own else f"{one.library}: {one.name}"
        mine = [line for line in lines.get(one.file, ()) if line.get("operation") == one.name]
        here = [line for line in mine if (line.get("device") or {}).get("sm") == row.sm]
        if not here:
            absent = _absent(row, mine, lines.get(one.file, ()))
            found.append(OPERATION.observed(row, subject, Outcome.UNPROVED, binds=binds, why=absent))
        for line in here:
            outcome, reason, seen, implies = judge_operation(one, line)
            device = line["device"]
            shown = f"{subject} on {device.get('name')} (GPU {device.get('index')})"
            found.append(OPERATION.observed(row, shown, outcome, binds=binds, why=reason, seen=seen, implies=implies))
    return found


def _absent(row: FormatRow, mine: Sequence[Mapping[str, Any]], lines: Sequence[Mapping[str, Any]]) -> str:
    problem = next((str(line["problem"]) for line in lines if "problem" in line), None)
    if problem is not None:
        return f"nothing was launched: {problem}"
    there = ", ".join(dict.fromkeys(f"sm{(line.get('device') or {}).get('sm')}" for line in mine))
    return f"there is no GPU of {row.arch} here{f', but of {there}' if there else ''}"


def judge_operation(
    operation: Operation, line: Mapping[str, Any]
) -> tuple[Outcome, str | None, str | None, str | None]:
    """Outcome, why, what was seen, and what a refutation implies."""
    end = line.get("end")
    if end == "refused":
        return Outcome.REFUTED, f"it refuses: {line.get('why')}", None, "broken"
    if end != "launched":
        return Outcome.UNPROVED, f"{end}: {line.get('why')}", None, None
    kernels = [str(name) for name in line.get("kernels") or ()]
    ran = [name for name in kernels if operation.kernel.search(name)]
    shown = ", ".join(name[:_SHOWN] + ("…" if len(name) > _SHOWN else "") for name in ran or kernels)
    seen = f"numbers {line.get('numbers')}, spoiled control {line.get('spoiled')}, kernels: {shown or 'none'}"
    if line.get("numbers") != "agree":
        return Outcome.REFUTED, f"{line.get('outside')} elements are wrong", seen, "broken"
    if line.get("spoiled") != "refuted":
        return Outcome.UNPROVED, "a wrong scale was not noticed, so right numbers say nothing", seen, None
    if not kernels:
        return Outcome.UNPROVED, "the profiler named no kernel", seen, None
    if not ran:
        return Outcome.REFUTED, "right numbers, by another kernel", seen, "emulated"
    return Outcome.PROVED, None, seen, None
