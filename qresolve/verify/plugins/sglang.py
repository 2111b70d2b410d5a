"""SGLang: its own methods run with a GPU that is not there, up to the kernel that they reach.

SGLang has no selector that could be called by itself: a quantization method decides while it runs. So the method of
each scheme is run with every kernel replaced by something that says its name, and the records say which route that is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qresolve.audit.ask_selectors import read_predicates
from qresolve.inside.process import SCRIPTS, run_script
from qresolve.verify.plugins.plugin import Predicates
from qresolve.verify.predicates import PredicateAnswer
from qresolve.verify.selection import Answered, unanswered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qresolve.audit.predicate_questions import Predicates as Questions
    from qresolve.inside.process import ScriptEnd
    from qresolve.knowledge.records import Engine
    from qresolve.verify.evidence import FormatRow
    from qresolve.verify.plugins.plugin import Asked, Looking

_REFUSED, _ERROR = "refused: ", "error: "


class Sglang:
    """The plug-in."""

    def ask(self, looking: Looking, engine: Engine, asked: Sequence[Asked]) -> Mapping[FormatRow, Answered]:
        """One process for all archs; in it one for each."""
        questions = read_predicates(engine.name, engine.release.version)
        sms = sorted({one.row.sm for one in asked})
        jobs = [
            {
                "id": number,
                "sm": sm,
                "environ": {},
                "cudas": [],
                "schemes": sorted({one.row.key for one in asked if one.row.sm == sm}),
            }
            for number, sm in enumerate(sms)
        ]
        end = run_script(
            looking.environment.python,
            SCRIPTS / questions.script,
            {"driver": str(looking.driver), "limit": int(looking.limit), "jobs": jobs},
            variables={"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **looking.environment.variables},
            limit=looking.limit * len(jobs),
            bytecode=looking.bytecode,
        )
        lines = {line.get("job"): line for line in end.lines}
        number_of = {sm: number for number, sm in enumerate(sms)}
        configuration = looking.environment.configuration()
        return {
            one.row: _answer(one, lines.get(number_of[one.row.sm]), end, engine, questions, configuration)
            for one in asked
        }

    def predicates(self, looking: Looking, operations: Sequence[str], sms: Sequence[int]) -> Predicates:  # noqa: ARG002
        """None of SGLang's predicates is compiled: they are Python, and its methods ask them on rung 5."""
        absent = PredicateAnswer(said=None, problem="SGLang has no compiled predicates")
        return Predicates(answers={(name, sm): absent for name in operations for sm in sms}, source="sglang")


def _answer(  # noqa: PLR0917 - what one row's answer hangs on
    asked: Asked,
    line: Mapping[str, Any] | None,
    end: ScriptEnd,
    engine: Engine,
    questions: Questions,
    configuration: Mapping[str, object],
) -> Answered:
    if line is None or "failed" in line:
        return unanswered(line, end)
    answers = line.get("answers")
    points = answers.get("points") if isinstance(answers, dict) else None
    if not isinstance(points, dict):
        return Answered(problem="the answers are not those to what was asked")
    if line.get("release") != engine.release.version:
        return Answered(problem=f"SGLang says that it is {line.get('release')}, not {engine.release.version}")
    key = asked.row.key
    quantizer = str(asked.facts.get("workload.quantizer").value or "compressed-tensors")
    named = [f"{name.removeprefix('config.')}={value}" for name, value in sorted(configuration.items())]
    said = points.get(" ".join((key, quantizer, *named))) if named else points.get(f"{key} {quantizer}")
    if said is None:
        wanted = " ".join((key, quantizer, *named))
        return Answered(problem=f"nobody knows how SGLang is asked for `{wanted}`")
    text = str(said)
    if text.startswith(_REFUSED):
        return Answered(refused=text.removeprefix(_REFUSED))
    if text.startswith(_ERROR):
        return Answered(problem=text.removeprefix(_ERROR))
    route = questions.argued.get(("stock", key, text)) or questions.routes.get(key, {}).get(text)
    files = line.get("files")
    return Answered(
        picked=engine.routes[route].name if route is not None and route in engine.routes else text,
        kind=f"it reaches {text}",
        files=dict(files) if isinstance(files, dict) else {},
    )


PLUGIN = Sglang()
