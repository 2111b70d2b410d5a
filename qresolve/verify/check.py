"""Verifying an environment: looks, and puts together what was seen. Never reads a verdict or a route of a lock."""

from __future__ import annotations

import os
import platform
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from qresolve.arch import read_architectures
from qresolve.errors import NoResolution, UsageError
from qresolve.inside.stub_driver import SONAME, build_stub_driver
from qresolve.install.installed_files import read_comparisons
from qresolve.install.interpreter import read_interpreter
from qresolve.install.unfinished import read_marker
from qresolve.knowledge.load import read_formats, read_workload
from qresolve.knowledge.predicates import read_predicates
from qresolve.machine_code.instructions import read_instructions
from qresolve.verify.environment import (
    environment_of,
    facts_here,
    installed_engines,
    load_installed,
    read_host_facts,
)
from qresolve.verify.evidence import Binds, Evidence, Outcome, VerifiedEnvironment, VerifyReport
from qresolve.verify.images import installed_images, look_at_images
from qresolve.verify.installed import check_installed
from qresolve.verify.joining import join
from qresolve.verify.libraries import InstalledLibraries
from qresolve.verify.plugins import engine_plugin, library_plugin
from qresolve.verify.plugins.plugin import Asked, Looking
from qresolve.verify.predicates import look_at_predicates, predicates_of
from qresolve.verify.rungs import RUNGS, SELECTION, TOOLCHAIN
from qresolve.verify.selection import Answered, look_at_selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from qresolve.facts import Value
    from qresolve.knowledge.records import Engine, Scheme, Workload
    from qresolve.lock.model import Lock
    from qresolve.verify.evidence import FormatRow, Verdict
    from qresolve.verify.selection import Picked

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
    """How far to look. ``launching``: launch on GPUs; ``unbuilt`` are formats whose kernel need not be built here."""

    launching: bool
    engine: str | None = None
    unbuilt: frozenset[str] = frozenset()
    progress: Callable[[str], None] = field(default=lambda _said: None, repr=False)


def run_verify(lock: Lock | None, rows: Sequence[FormatRow], *, python: Path, wish: Wish) -> VerifyReport:
    """Look at the environment of the interpreter ``python``; without a lock rung 0 does not apply.

    Raises:
        UsageError: the interpreter does not answer, or an engine was named that is not installed.
    """
    wish.progress("the installed packages")
    interpreter = read_interpreter(python)
    unfinished = read_marker(interpreter.prefix)
    evidence: tuple[Evidence, ...] = (NO_LOCK,)
    if lock is not None:
        evidence = check_installed(
            lock.packages,
            interpreter.distributions,
            read_comparisons(lock.packages, interpreter.distributions),
            unfinished,
        )
    versions = {
        one.normalized_name: one.version
        for one in reversed(interpreter.distributions)
        if one.normalized_name is not None and one.version is not None
    }
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
    with _throwaway() as (driver, bytecode):
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
            bytecode=bytecode,
            limit=_LIMIT,
        )
        workload, assumed = _workload(lock)
        for name in names or (None,):
            own = [row for row in spread if row.engine == name]
            if name is None or name in unknown:
                why = unknown.get(name or "", "no engine is installed that there are records of")
                picks = dict.fromkeys(own)
                seen = [_unasked(row, why) for row in own]
            else:
                picks, seen = _look(looking, engines[name], own, workload, assumed, wish)
            for row in own:
                about = [one for one in seen if one.about == row]
                about += _not_looked_at(row, about, launching=wish.launching)
                found += sorted(about, key=lambda one: one.rung)
                verdicts.append(
                    join(row, picks[row], about, launching=wish.launching, unbuilt=row.format in wish.unbuilt)
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
        evidence=evidence + tuple(found),
        verdicts=tuple(verdicts),
    )


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
    """A folder with a stub driver, and one for compiled modules of the processes that are started."""
    with tempfile.TemporaryDirectory(prefix="qresolve-verify-") as made:
        folder = Path(made)
        driver = folder / SONAME
        try:
            # Newer than any: what a driver would refuse is not this rung's question.
            driver.write_bytes(build_stub_driver(platform.machine(), cuda=_NEWEST))
        except ValueError as error:
            raise UsageError(f"engines cannot be asked on this machine: {error}") from error
        (folder / "bytecode").mkdir()
        yield driver, folder / "bytecode"


_NEWEST = 20000  # as a driver says it: CUDA 20.0


def _look(
    looking: Looking,
    engine: Engine,
    rows: Sequence[FormatRow],
    workload: Workload,
    assumed: Mapping[str, str],
    wish: Wish,
) -> tuple[dict[FormatRow, Picked | None], list[Evidence]]:
    """Rungs 1 to 6 of one engine."""
    schemes: dict[str, Scheme] = {
        scheme.key(role): scheme for form in read_formats().formats for scheme in form.schemes for role in scheme.roles
    }
    host = read_host_facts(looking.environment)
    found: list[Evidence] = []
    asked: list[Asked] = []
    picks: dict[FormatRow, Picked | None] = dict.fromkeys(rows)
    given: dict[str, Value] = {key: engine.vocabulary.parse_value(key, text) for key, text in assumed.items()}
    for row in rows:
        if engine.ladder_for(row.key) is None:
            why = engine.unserved.get(row.format, f"{engine.name} {engine.release.version} has no route for it")
            found.append(_unasked(row, why, outcome=Outcome.REFUTED))
            continue
        facts = facts_here(
            looking.environment,
            engine,
            schemes[row.key],
            sm=row.sm,
            workload=workload,
            images=installed_images(row.sm, libraries=looking.libraries, architectures=looking.architectures),
            architectures=looking.architectures,
            host=host,
        )
        asked.append(
            Asked(row=row, scheme=schemes[row.key], facts=facts.with_values(dict(given), "assumed by the lock"))
        )
    plugin = engine_plugin(engine.name)
    answers: Mapping[FormatRow, Answered] = {}
    if plugin is None:
        answers = {one.row: Answered(problem=f"nothing here asks the selectors of {engine.name}") for one in asked}
    elif asked:
        wish.progress(f"the selectors of {engine.name} {engine.release.version}")
        answers = plugin.ask(looking, engine, asked)
    for one in asked:
        ladder = engine.ladder_for(one.row.key)
        assert ladder is not None  # noqa: S101 - for the type checker: rows without one were left out
        hint = "" if one.row in answers else " (it was not answered)"
        picked = look_at_selection(
            one.row, engine, ladder, one.facts, answers.get(one.row, Answered(problem="no answer")), hint=hint
        )
        picks[one.row] = picked
        found.append(picked.evidence)
    found += _images(looking, asked, picks)
    found += _predicates(looking, engine, asked, picks, wish)
    found += _builds(looking, asked, picks, wish)
    return picks, found


def _images(looking: Looking, asked: Sequence[Asked], picks: Mapping[FormatRow, Picked | None]) -> Iterator[Evidence]:
    for one in asked:
        picked = picks[one.row]
        if picked is not None and picked.route is not None:
            yield from look_at_images(
                one.row,
                one.scheme,
                picked.route,
                one.facts,
                libraries=looking.libraries,
                architectures=looking.architectures,
            )


def _predicates(
    looking: Looking, engine: Engine, asked: Sequence[Asked], picks: Mapping[FormatRow, Picked | None], wish: Wish
) -> Iterator[Evidence]:
    known = [one for one in read_predicates() if one.engine == engine.name]
    wanted = {
        one.row: predicates_of(picked.route, known)
        for one in asked
        if (picked := picks[one.row]) is not None and picked.route is not None
    }
    operations = sorted({item.operation for found in wanted.values() for item in found})
    sms = sorted({row.sm for row, found in wanted.items() if found})
    plugin = engine_plugin(engine.name)
    answers, source = {}, ""
    if operations and plugin is not None:
        wish.progress(f"the compiled predicates of {engine.name}")
        told = plugin.predicates(looking, operations, sms)
        answers, source = dict(told.answers), told.source
    for row, found in wanted.items():
        picked = picks[row]
        if picked is not None and picked.route is not None:
            yield look_at_predicates(row, picked.route, found, answers, source=source)


def _builds(
    looking: Looking, asked: Sequence[Asked], picks: Mapping[FormatRow, Picked | None], wish: Wish
) -> Iterator[Evidence]:
    for one in asked:
        picked = picks[one.row]
        if picked is None or picked.route is None:
            continue
        route = picked.route
        if route.built == "precompiled":
            yield _toolchain(one.row, route.name, Outcome.SKIPPED, "its kernel is in the wheel, nothing is compiled")
            continue
        plugin = library_plugin(route.library)
        if plugin is None:
            why = f"nothing here builds the kernels of {route.library} without a card"
            yield _toolchain(one.row, route.name, Outcome.UNPROVED, why)
            continue
        wish.progress(f"{route.library}'s kernel for {one.row} on {one.row.arch}")
        yield plugin.build(looking, one, route)


def _toolchain(row: FormatRow, subject: str, outcome: Outcome, why: str) -> Evidence:
    return Evidence(rung=TOOLCHAIN.number, binds=Binds.ROUTE, subject=subject, outcome=outcome, about=row, why=why)


def _unasked(row: FormatRow, why: str, *, outcome: Outcome = Outcome.UNPROVED) -> Evidence:
    return Evidence(
        rung=SELECTION.number,
        binds=SELECTION.binds,
        subject=row.engine or "no engine",
        outcome=outcome,
        about=row,
        why=why,
        implies="unsupported" if outcome is Outcome.REFUTED else None,
    )


def _not_looked_at(row: FormatRow, about: Sequence[Evidence], *, launching: bool) -> list[Evidence]:
    """A line for every rung that nothing was looked at on."""
    seen = {one.rung for one in about}
    lines = []
    for rung in RUNGS:
        if rung.number in seen:
            continue
        left_out = rung.launches and not launching
        lines.append(
            Evidence(
                rung=rung.number,
                binds=rung.binds,
                subject=rung.looks_at,
                outcome=Outcome.SKIPPED if left_out else Outcome.UNPROVED,
                about=row,
                why="nothing is launched under --static" if left_out else "there was nothing to look at",
            )
        )
    return lines
