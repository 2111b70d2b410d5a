"""Compact probes: compiled by the environment's Triton for an arch (rung 6), launched on this host's GPUs (rung 7).

The harness in ``kernels/`` compiles and launches, and says whether numbers agree. Whether a probe is native is judged
here, by the instructions of the very cubin that was launched: right numbers alone prove nothing, since emulated paths
are more exact than native ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qresolve.data import data_folder
from qresolve.inside.process import run_script
from qresolve.knowledge.probes import read_probes
from qresolve.verify.built import judge_built
from qresolve.verify.evidence import Outcome
from qresolve.verify.plugins.plugin import Compiled
from qresolve.verify.rungs import LAUNCH, TOOLCHAIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from qresolve.knowledge.records import Scheme
    from qresolve.verify.evidence import Binds, Evidence, FormatRow
    from qresolve.verify.plugins.plugin import Looking

CONTROL = "bf16"
_COMPILE_LIMIT = 20.0  # seconds for one probe: some never end (mxfp4 for sm75 takes minutes)
_LAUNCH_LIMIT = 60.0
_AT_ONCE = 2  # as the harness runs them


def probes_for(rows: Iterable[FormatRow]) -> dict[int, tuple[str, ...]]:
    """The names of the probes that rows need, by sm."""
    known = read_probes()
    found: dict[int, dict[str, None]] = {}
    for row in rows:
        if row.key in known:
            found.setdefault(row.sm, {})[known[row.key]] = None
    return {sm: tuple(names) for sm, names in found.items()}


def all_probes() -> tuple[str, ...]:
    """The names of all probes that some scheme has, the control first."""
    return tuple(dict.fromkeys((CONTROL, *read_probes().values())))


def copy_harness(folder: Path) -> None:
    """Put what launches exported probes beside them: a machine with a driver and a Python needs nothing else."""
    import shutil  # noqa: PLC0415 - for an export alone

    folder.mkdir(parents=True, exist_ok=True)
    kernels = data_folder("kernels")
    shutil.copyfile(kernels / "harness.py", folder / "harness.py")
    package = folder / "qresolve_probes"
    package.mkdir(exist_ok=True)
    for file in sorted((kernels / "qresolve_probes").glob("*.py")):
        shutil.copyfile(file, package / file.name)


def harness() -> Path:
    """The file that compiles and launches."""
    return data_folder("kernels") / "harness.py"


def compile_probes(looking: Looking, sm: int, names: Sequence[str], folder: Path) -> Compiled:
    """Compile probes for an arch with the Triton of the environment, into ``folder``."""
    request = {"do": "compile", "sm": sm, "formats": list(names), "folder": str(folder), "limit": _COMPILE_LIMIT}
    end = run_script(
        looking.environment.python,
        harness(),
        request,
        variables=looking.environment.variables,
        limit=_COMPILE_LIMIT * (len(names) / _AT_ONCE + 2),
        site=False,
    )
    answer = end.lines[-1] if end.lines else {}
    probes = answer.get("probes")
    if not isinstance(probes, dict):
        return Compiled(sm=sm, folder=folder, probes={}, problem=end.reason)
    return Compiled(sm=sm, folder=folder, probes={str(name): dict(facts) for name, facts in probes.items()})


def probe_evidence(
    looking: Looking, row: FormatRow, scheme: Scheme, compiled: Compiled | None, *, binds: Binds, subject: str = ""
) -> Evidence:
    """Rung 6 for one row: what the environment's Triton makes of the row's product."""
    name = read_probes().get(row.key)
    shown = subject or f"Triton probe {name}"

    def told(outcome: Outcome, why: str) -> Evidence:
        return TOOLCHAIN.observed(row, shown, outcome, binds=binds, why=why)

    if name is None or compiled is None:
        return told(Outcome.SKIPPED, "no probe multiplies as it does")
    if compiled.problem:
        return told(Outcome.UNPROVED, f"nothing was compiled: {compiled.problem}")
    facts = compiled.probes.get(name, {})
    if facts.get("end") != "compiled":
        said = str(facts.get("said", "")).strip().splitlines()
        last = f" ({said[-1].strip()[:160]})" if said else ""
        return told(Outcome.UNPROVED, f"{facts.get('end', 'not compiled')}: {facts.get('why', '')}{last}")
    code = _read(compiled, facts)
    if code is None:
        return told(Outcome.UNPROVED, "its cubin cannot be read")
    assembler = facts.get("ptxas") or {}
    return judge_built(
        row,
        shown,
        code,
        product=looking.instructions.product_of(scheme.facts),
        architectures=looking.architectures,
        binds=binds,
        source=f"triton {facts.get('triton')}, {assembler.get('file')} {assembler.get('release')}",
    )


def _read(compiled: Compiled, facts: Mapping[str, Any]) -> bytes | None:
    try:
        return (compiled.folder / str(facts["file"])).read_bytes()
    except (OSError, KeyError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """What the harness launched: each GPU of this host with the end of every probe; ``why`` where there is none."""

    devices: tuple[Mapping[str, Any], ...]
    why: str = ""
    driver: str = ""


def launch_probes(looking: Looking, compiled: Compiled) -> Launched:
    """Launch the probes of one arch on every GPU of this host."""
    wanted = [name for name, facts in compiled.probes.items() if facts.get("end") == "compiled"]
    request = {
        "do": "launch",
        "folder": str(compiled.folder),
        "formats": wanted,
        "timing": True,
        "limit": _LAUNCH_LIMIT,
    }
    end = run_script(
        looking.environment.python,
        harness(),
        request,
        variables=looking.environment.variables,
        limit=_LAUNCH_LIMIT * (len(wanted) + 1),
        site=False,
    )
    nothing: dict[str, Any] = {"why": end.reason}
    answer = end.lines[-1] if end.lines else nothing
    driver = answer.get("driver") or {}
    return Launched(
        devices=tuple(answer.get("devices") or ()),
        why=str(answer.get("why") or ""),
        driver=f"{driver.get('path')} (CUDA {driver.get('cuda')})" if driver else "",
    )


def launch_evidence(row: FormatRow, native: Evidence, launched: Launched) -> tuple[Evidence, ...]:
    """Rung 7 for one row, once for each GPU of its arch. ``native`` is what rung 6 says of the same cubin."""
    name = read_probes().get(row.key)

    def told(outcome: Outcome, subject: str, why: str | None, seen: str | None = None) -> Evidence:
        return LAUNCH.observed(row, subject, outcome, seen=seen, why=why, source=launched.driver or None)

    if name is None:
        return (told(Outcome.SKIPPED, LAUNCH.looks_at, "no probe multiplies as it does"),)
    if not launched.devices:
        return (told(Outcome.UNPROVED, LAUNCH.looks_at, f"nothing was launched: {launched.why or 'no GPU'}"),)
    own = [device for device in launched.devices if device.get("sm") == row.sm]
    if not own:
        there = ", ".join(f"{device.get('name')} (sm{device.get('sm')})" for device in launched.devices)
        return (told(Outcome.UNPROVED, LAUNCH.looks_at, f"there is no GPU of {row.arch} here, but {there}"),)
    found = []
    for device in own:
        facts = (device.get("probes") or {}).get(name) or {}
        subject = f"Triton probe {name} on {device.get('name')} (GPU {device.get('index')})"
        outcome, why, seen = judge_launch(name, facts, native)
        found.append(told(outcome, subject, why, seen))
    return tuple(found)


def judge_launch(name: str, facts: Mapping[str, Any], native: Evidence) -> tuple[Outcome, str | None, str | None]:
    """Outcome, why and what was seen of one launch."""
    if facts.get("end") != "launched":
        why = str(facts.get("why") or native.why or "it was not compiled")
        return Outcome.UNPROVED, f"{facts.get('end', 'not launched')}: {why}", None
    ratio = facts.get("ratio")
    speed = f", {ratio:.2f} times as fast as {CONTROL}" if isinstance(ratio, float | int) and name != CONTROL else ""
    seen = f"numbers {facts.get('numbers')}, spoiled control {facts.get('spoiled')}{speed}"
    if facts.get("numbers") != "agree":
        outside, error, bound = facts.get("outside"), facts.get("error"), facts.get("bound")
        return Outcome.REFUTED, f"{outside} elements are wrong (error {error:.3g}, bound {bound:.3g})", seen
    if facts.get("spoiled") != "refuted":
        return Outcome.UNPROVED, "a wrong scale was not noticed, so right numbers say nothing", seen
    if native.outcome is Outcome.REFUTED:
        return Outcome.REFUTED, f"right numbers, by other instructions: {native.seen}", seen
    if native.outcome is not Outcome.PROVED:
        return Outcome.UNPROVED, f"right numbers, and its instructions are not known: {native.why}", seen
    if name in _FOUR_BITS and isinstance(ratio, float | int) and ratio <= 1:
        return Outcome.UNPROVED, f"its instructions are native, and it is no faster than {CONTROL}", seen
    return Outcome.PROVED, None, seen


_FOUR_BITS = ("mxfp4", "nvfp4")
"""Native products of these are at least twice as fast as 16-bit ones on every GPU that has them."""
