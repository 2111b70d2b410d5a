"""Verifying an environment: looks, and puts together what was seen. Never reads a verdict or a route of a lock."""

from __future__ import annotations

import os
import platform
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qresolve.arch import read_architectures
from qresolve.errors import NoResolution, Unproved, UsageError
from qresolve.inside.stub_driver import SONAME, build_stub_driver
from qresolve.install.installed_files import read_comparisons
from qresolve.install.interpreter import read_interpreter
from qresolve.install.unfinished import read_marker
from qresolve.knowledge.load import read_workload, schemes_by_key
from qresolve.machine_code.instructions import read_instructions
from qresolve.verify.bytecode import bytecode_folder
from qresolve.verify.engines import Seen, look_at_engine, unasked
from qresolve.verify.environment import (
    environment_of,
    installed_engines,
    installed_versions,
    load_installed,
    packages_in_gates,
)
from qresolve.verify.evidence import Binds, Evidence, Outcome, VerifiedEnvironment, VerifyReport
from qresolve.verify.installed import check_installed
from qresolve.verify.joining import join
from qresolve.verify.libraries import InstalledLibraries
from qresolve.verify.operating import launch_operations, operation_evidence, operations_of
from qresolve.verify.plugins.plugin import Compiled, Looking
from qresolve.verify.probing import (
    CONTROL,
    Launched,
    all_probes,
    compile_probes,
    copy_harness,
    launch_evidence,
    launch_probes,
    probe_evidence,
    probes_for,
)
from qresolve.verify.rungs import NOTHING_THERE, RUNGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from qresolve.knowledge.operations import Operation
    from qresolve.knowledge.records import Engine, Scheme, Workload
    from qresolve.lock.model import Lock
    from qresolve.verify.evidence import FormatRow, Verdict

NO_LOCK = Evidence(
    rung=0,
    binds=Binds.PACKAGE,
    subject="environment",
    outcome=Outcome.SKIPPED,
    why="there is no lock to compare the installed packages with",
)
_LIMIT = 120.0  # seconds for one process that imports an engine, on a slow disk with nothing cached


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """How far to look.

    ``launching``: launch on GPUs; ``unbuilt`` are formats whose kernel need not be built here; ``export`` is a folder
    that gets every compact probe, compiled for the archs that are asked about, with what launches them.
    """

    launching: bool
    engine: str | None = None
    unbuilt: frozenset[str] = frozenset()
    export: Path | None = None
    progress: Callable[[str], None] = field(default=lambda _said: None, repr=False)


def run_verify(lock: Lock | None, rows: Sequence[FormatRow], *, python: Path, wish: Wish) -> VerifyReport:
    """Look at the environment of the interpreter ``python``; without a lock rung 0 does not apply.

    Raises:
        UsageError: the interpreter does not answer, or an engine was named that is not installed.
    """
    wish.progress("the installed packages")
    interpreter = read_interpreter(python)
    unfinished = read_marker(interpreter.prefix)
    versions = installed_versions(interpreter.distributions)
    names = _engines(lock, versions, wish.engine)
    engines, unknown = _load(names, versions)
    environment = environment_of(
        interpreter,
        lock.settings if lock is not None else (),
        os.environ,
        [engine.vocabulary for engine in engines.values()],
    )
    spread = [replace(row, engine=name) for row in rows for name in names or (None,)]
    architectures = read_architectures()
    found: list[Evidence] = []
    verdicts: list[Verdict] = []
    gated = {name for engine in engines.values() for name in (engine.distribution, *engine.gated)}
    with _throwaway() as (driver, folder), ThreadPoolExecutor(max_workers=1) as pool:
        comparisons = pool.submit(read_comparisons, lock.packages, interpreter.distributions) if lock else None
        looking = Looking(
            environment=environment,
            libraries=InstalledLibraries(
                interpreter.distributions,
                sms=sorted({row.sm for row in rows}),
                architectures=architectures,
                progress=wish.progress,
            ),
            architectures=architectures,
            instructions=read_instructions(),
            driver=driver,
            bytecode=bytecode_folder(interpreter, gated, otherwise=folder / "bytecode"),
            limit=_LIMIT,
        )
        place = wish.export if wish.export is not None else folder / "probes"
        looking = replace(looking, probes=_compile(looking, rows, place, wish))
        launched = _launch(looking, wish)
        schemes = schemes_by_key()
        workload, assumed = _workload(lock)
        for name in names or (None,):
            own = [row for row in spread if row.engine == name]
            if name is None or name in unknown:
                why = unknown.get(name or "", "no engine is installed that there are records of")
                seen = Seen(picks=dict.fromkeys(own), evidence=tuple(unasked(row, why) for row in own))
            else:
                seen = look_at_engine(
                    looking, engines[name], own, workload=workload, assumed=assumed, progress=wish.progress
                )
            operations: tuple[Operation, ...] = ()
            ran: Mapping[str, Sequence[Mapping[str, Any]]] = {}
            if wish.launching:
                wish.progress("operations on the GPUs of this host")
                operations = operations_of(name, environment.versions, [row.key for row in own])
                ran = launch_operations(looking, operations)
            for row in own:
                about = [one for one in seen.evidence if one.about == row]
                about += _probed(looking, row, schemes[row.key], launched)
                if wish.launching:
                    picked = seen.picks[row]
                    route = picked.route if picked is not None else None
                    about += operation_evidence(row, route, operations, ran)
                about += _not_looked_at(row, about, launching=wish.launching)
                found += sorted(about, key=lambda one: one.rung)
                verdicts.append(
                    join(row, seen.picks[row], about, launching=wish.launching, unbuilt=row.format in wish.unbuilt)
                )
        packages: tuple[Evidence, ...] = (NO_LOCK,)
        if lock is not None and comparisons is not None:
            packages = check_installed(
                lock.packages,
                interpreter.distributions,
                comparisons.result(),
                unfinished,
                spoken_of=packages_in_gates(engines.values()) if engines else None,
            )
    return VerifyReport(
        target=lock.target if lock is not None else None,
        environment=VerifiedEnvironment(
            python=str(interpreter.executable),
            version=interpreter.version,
            prefix=str(interpreter.prefix),
            distributions=len(interpreter.distributions),
            unfinished_install=unfinished is not None,
        ),
        evidence=packages + tuple(found),
        verdicts=tuple(verdicts),
    )


def _compile(looking: Looking, rows: Sequence[FormatRow], folder: Path, wish: Wish) -> dict[int, Compiled]:
    """The probes of every arch; none where the environment has no Triton."""
    if "triton" not in looking.environment.versions:
        if wish.export is not None:
            raise Unproved(
                f"no probe can be compiled: triton is not installed for {looking.environment.python}",
                hint=f"{looking.environment.python} -m pip install triton",
            )
        return {}
    found = {}
    asked = dict.fromkeys((row.sm for row in rows), all_probes()) if wish.export is not None else probes_for(rows)
    for sm, names in asked.items():
        wish.progress(f"what Triton {looking.environment.versions['triton']} compiles for sm{sm}")
        wanted = names if not wish.launching or CONTROL in names else (CONTROL, *names)
        found[sm] = compile_probes(looking, sm, wanted, folder / f"sm{sm}")
    if wish.export is not None:
        copy_harness(wish.export)
    return found


def _launch(looking: Looking, wish: Wish) -> dict[int, Launched]:
    """The probes launched, by sm; nothing where nothing is to be launched."""
    found = {}
    for sm, compiled in looking.probes.items() if wish.launching else ():
        wish.progress(f"kernels of sm{sm} on the GPUs of this host")
        found[sm] = launch_probes(looking, compiled)
    return found


def _probed(looking: Looking, row: FormatRow, scheme: Scheme, launched: Mapping[int, Launched]) -> list[Evidence]:
    """What the probes say of one row: about the compiler, and about GPU and driver."""
    compiled = looking.probes.get(row.sm)
    if compiled is None:
        return []
    native = probe_evidence(looking, row, scheme, compiled, binds=Binds.TOOLCHAIN)
    found = [native]
    if row.sm in launched:
        found += launch_evidence(row, native, launched[row.sm])
    return found


def _engines(lock: Lock | None, versions: Mapping[str, str], named: str | None) -> tuple[str, ...]:
    installed = installed_engines(versions)
    if named is not None and named not in installed:
        have = f"; installed: {', '.join(installed)}" if installed else ""
        raise UsageError(f"{named} is not installed there{have}", hint="qresolve verify --engine NAME")
    if named is not None:
        return (named,)
    if lock is not None:
        return (lock.engine,) if lock.engine in installed else ()
    return installed


def _load(names: Sequence[str], versions: Mapping[str, str]) -> tuple[dict[str, Engine], dict[str, str]]:
    """The records of the installed releases, and why there are none of others."""
    engines: dict[str, Engine] = {}
    unknown: dict[str, str] = {}
    for name in names:
        try:
            engines[name] = load_installed(name, versions)
        except NoResolution as error:
            unknown[name] = error.message
    return engines, unknown


def _workload(lock: Lock | None) -> tuple[Workload, dict[str, str]]:
    """The workload that the lock was made for, and what it assumed of it; the reference one without a lock."""
    if lock is None:
        return read_workload()[0], {}
    assumed = {key: value for key, value in lock.assumed if key.startswith("workload.")}
    try:
        return read_workload(lock.workload)[0], assumed
    except UsageError:
        return read_workload()[0], assumed


@contextmanager
def _throwaway() -> Iterator[tuple[Path, Path]]:
    """A stub driver, and the folder that it lies in."""
    with tempfile.TemporaryDirectory(prefix="qresolve-verify-") as made:
        folder = Path(made)
        driver = folder / SONAME
        try:
            # Newer than any: what a driver would refuse is not this rung's question.
            driver.write_bytes(build_stub_driver(platform.machine(), cuda=_NEWEST))
        except ValueError as error:
            raise UsageError(f"engines cannot be asked on this machine: {error}") from error
        (folder / "bytecode").mkdir()
        yield driver, folder


_NEWEST = 20000  # as a driver says it: CUDA 20.0


def _not_looked_at(row: FormatRow, about: Sequence[Evidence], *, launching: bool) -> list[Evidence]:
    """A line for every rung that nothing was looked at on."""
    seen = {one.rung for one in about}
    lines = []
    for rung in RUNGS:
        if rung.number in seen:
            continue
        left_out = rung.launches and not launching
        outcome = Outcome.SKIPPED if left_out else Outcome.UNPROVED
        why = "nothing is launched under --static" if left_out else NOTHING_THERE
        lines.append(rung.observed(row, rung.looks_at, outcome, why=why))
    return lines
