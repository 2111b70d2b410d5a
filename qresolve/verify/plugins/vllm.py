"""vLLM: its selectors with a GPU that is not there, and the predicates of its compiled extensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve.data import data_folder
from qresolve.inside.process import SCRIPTS, run_script
from qresolve.verify.plugins.plugin import Predicates
from qresolve.verify.predicates import PredicateAnswer
from qresolve.verify.selection import Answered, unanswered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from qresolve.inside.process import ScriptEnd
    from qresolve.knowledge.records import Engine
    from qresolve.verify.evidence import FormatRow
    from qresolve.verify.libraries import InstalledLibraries
    from qresolve.verify.plugins.plugin import Asked, Looking

_DISTRIBUTION = "vllm"
# Of vLLM's libraries, those whose operations are in torch.ops._C: the main one, under its names of the releases.
_MAIN = ("_C_stable_libtorch", "_C")
# vLLM counts users and looks for models when it is imported; neither is wanted here.
_QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}


def main_libraries(libraries: InstalledLibraries) -> tuple[Path, ...]:
    """The installed files that register vLLM's own operations when torch loads them."""
    return libraries.files(_DISTRIBUTION, _MAIN)


class Vllm:
    """The plug-in."""

    def ask(self, looking: Looking, engine: Engine, asked: Sequence[Asked]) -> Mapping[FormatRow, Answered]:
        """One process for all archs; in it one for each, since vLLM fixes answers for the GPU it is imported on."""
        sms = sorted({one.row.sm for one in asked})
        configuration = looking.environment.configuration()
        jobs = []
        for number, sm in enumerate(sms):
            points = [
                {
                    "scheme": one.row.key,
                    "quantizer": one.facts.get("workload.quantizer").value or "compressed-tensors",
                    "settings": configuration,
                }
                for one in asked
                if one.row.sm == sm
            ]
            phase = {"hide": [], "stub": [], "environ": {}, "points": points}
            jobs.append({"id": number, "sm": sm, "phases": [phase]})
        request = {"driver": str(looking.driver), "limit": int(looking.limit), "jobs": jobs}
        variables = {**_QUIET, **looking.environment.variables}
        end = run_script(
            looking.environment.python,
            SCRIPTS / "vllm_selectors.py",
            request,
            variables=variables,
            limit=looking.limit * len(jobs),
            bytecode=looking.bytecode,
        )
        lines = {line.get("job"): line for line in end.lines}
        found: dict[FormatRow, Answered] = {}
        for job in jobs:
            rows = [one.row for one in asked if one.row.sm == job["sm"]]
            found |= zip(
                rows, _answers(lines.get(job["id"]), len(rows), end, release=engine.release.version), strict=True
            )
        return found

    def predicates(self, looking: Looking, operations: Sequence[str], sms: Sequence[int]) -> Predicates:
        """Load the extensions in a process that has torch and a stub driver, and ask."""
        root = looking.libraries.root(_DISTRIBUTION)
        paths = main_libraries(looking.libraries)
        if not paths or root is None:
            absent = PredicateAnswer(said=None, problem="vLLM's main extension is not installed")
            return Predicates(answers={(name, sm): absent for name in operations for sm in sms}, source=_DISTRIBUTION)
        request = {
            "driver": str(looking.driver),
            "libraries": [str(path) for path in paths],
            "operations": list(operations),
            "sms": list(sms),
        }
        end = run_script(
            looking.environment.python,
            data_folder("kernels") / "torch_predicates.py",
            request,
            variables=looking.environment.variables,
            limit=looking.limit,
            bytecode=looking.bytecode,
        )
        return Predicates(
            answers=_predicates(end, operations, sms), source=", ".join(str(path.relative_to(root)) for path in paths)
        )


def _answers(line: Mapping[str, Any] | None, count: int, end: ScriptEnd, *, release: str) -> list[Answered]:
    """The answers of one job, in the order of its points."""
    if line is None or "failed" in line:
        return [unanswered(line, end)] * count
    try:
        rows = line["answers"][0]
        if len(rows) != count:
            return [Answered(problem="the answers are not those to what was asked")] * count
        if line.get("release") != release:
            return [Answered(problem=f"vLLM says that it is {line.get('release')}, not {release}")] * count
        return [_answer(row) for row in rows]
    except (KeyError, IndexError, TypeError):
        return [Answered(problem="the answers are not those to what was asked")] * count


def _answer(row: Mapping[str, Any]) -> Answered:
    if "picked" in row:
        by = row.get("by", {})
        return Answered(picked=str(row["picked"]), kind=str(by.get("class", "")), files=dict(by.get("files", {})))
    if "refused" in row:
        return Answered(refused=str(row["refused"]))
    return Answered(problem=str(row.get("error", "no answer")))


def _predicates(
    end: ScriptEnd, operations: Sequence[str], sms: Sequence[int]
) -> dict[tuple[str, int], PredicateAnswer]:
    unloaded = "; ".join(str(line["problem"]) for line in end.lines if "library" in line)
    nothing = unloaded or end.reason
    found = {(name, sm): PredicateAnswer(said=None, problem=nothing) for name in operations for sm in sms}
    for line in end.lines:
        key = (line.get("operation"), line.get("sm"))
        if key not in found:
            continue
        said = line.get("answer")
        problem = unloaded or str(line.get("problem", ""))
        found[key] = PredicateAnswer(said=said if isinstance(said, bool) else None, problem=problem)
    return found


PLUGIN = Vllm()
