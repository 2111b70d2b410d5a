"""From a question to a lock: solve the core, close it, judge the closed set again, and say what goes into the lock.

The edges come in as functions (:class:`Edges`): closing a request, reading a wheel's RECORD, asking which releases
the index has. So everything here can be tested without a network.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.version import Version

from qresolve.builds import same_lane
from qresolve.classes import CLASSES
from qresolve.closure.failure import ClosureFailure
from qresolve.closure.lockstep import read_lockstep_rules
from qresolve.closure.request import Closure, ClosureRequest, NamedIndex
from qresolve.errors import LowerClass, NoResolution, QResolveError, Refuted, Unproved
from qresolve.facts import ABSENT
from qresolve.gates import leaves
from qresolve.judging import Answer, answer, answer_for
from qresolve.knowledge.indexes import read_indexes
from qresolve.knowledge.load import digest_of
from qresolve.lanes import indexes_of, no_build, pair_constraints, take_lane
from qresolve.ledger import ClosureFailed, Ledger
from qresolve.lock.model import GatedBecause, Lock, LockedFormat, LockedPackage, LockedTarget
from qresolve.model.asking import recorded_facts
from qresolve.opening import take_closed
from qresolve.report.lock_text import refusal
from qresolve.resolution import Core, Impossible, Resolution, solve
from qresolve.target.drivers import describe_answer, driver_floor, driver_supports, highest_cuda, parse_driver
from qresolve.wheels.index import cuda_toolkit_pins, read_row_of_wheel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qresolve.arch import Architecture
    from qresolve.edges import Edges
    from qresolve.explain import RowView
    from qresolve.facts import Value
    from qresolve.knowledge.records import Engine, PackageIndex
    from qresolve.question import Question
    from qresolve.target.drivers import CudaReleases

MOST_CLOSURES = 20
"""Bound of the fixpoint between the core and the closure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRequest:
    """What only ``lock`` knows: the cutoff, indexes for single packages, and whether the network may be used.

    ``wheels`` are exact pins (``vllm==0.33.0+mine``) of packages that come from a wheel the user gave.
    """

    requested: tuple[str, ...]
    cutoff: str | None = None
    indexes: tuple[NamedIndex, ...] = ()
    wheels: tuple[str, ...] = ()
    offline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """A lock with the answer it holds and the ledger of what was tried."""

    lock: Lock
    answer: Answer
    ledger: Ledger
    notes: tuple[str, ...]


def make_lock(question: Question, request: LockRequest, edges: Edges, cuda_releases: CudaReleases) -> Locked:
    """Resolve a question to a lock.

    Raises:
        NoResolution: no release, or no closure, for this target. LowerClass: only a class that nobody allowed.
        Refuted: every way is broken. Unproved: the verdict hangs on facts that are not known.
    """
    question.supplied = frozenset(package for index in request.indexes for package in index.packages)
    question.opens = True
    ledger = Ledger()
    failures: list[NoResolution] = []
    skipped: list[str] = []
    skipped += take_lane(question, read_indexes())
    for _ in range(MOST_CLOSURES):
        if not question.releases():
            raise failures[0]
        solved = solve_best(question, ledger)
        if isinstance(solved, Impossible):
            raise failures[0] if failures else _refused(question)
        engine = question.engine(solved.release)
        try:
            check_release(question, engine, cuda_releases)
            edges.say(f"closing {engine.distribution} {solved.release}")
            asked = closure_request(question, request, engine, solved)
            closure = _close(replace(asked, driver_cuda=driver_cuda(question, cuda_releases)), engine, edges)
        except NoResolution as failure:
            if question.engine_version is not None or (isinstance(failure, ClosureFailure) and failure.unreachable):
                other = question.lockable_instead(engine)
                failure.hint = failure.hint or (other and f"--engine {engine.name}=={other}")
                raise
            failures.append(failure)
            ledger.reject(f"engine {solved.release}", ClosureFailed(reason="closure", message=failure.message))
            skipped.append(f"{engine.name} {solved.release} was not taken: {failure.message}")
            edges.say(skipped[-1])
            question.excluded.add(solved.release)
            continue
        packages = {package.name: package.version for package in closure.packages}
        if question.packages.get(solved.release) != packages:
            # The closure's own versions decide now; the core is solved once more on them.
            take_closed(question, engine, closure, edges)
            if not same_lane(question.engine(solved.release).release.cuda, engine.release.cuda):
                continue  # the engine's own wheel is of another CUDA: driver and lane are checked once more
            again = solve_best(question, ledger)
            if isinstance(again, Impossible):
                raise _refused(question, closed=solved.release)
            if again.release != solved.release or _added(again) - _added(solved):
                continue
            solved = again
        _check_added(question, engine, solved, packages)
        found = answer_for(question, solved)
        for row in found.rows:
            if not row.holds:
                raise Refuted(f"{row.selector} on {row.arch} is {row.verdict} on the closed set")
        packages_with_reasons = tuple(
            _with_reason(package, found.engine, solved, edges) if package.name in engine.gated else package
            for package in closure.packages
        )
        records = {**found.records, **lockstep_records(closure.toolkit), **index_records(closure)}
        found = replace(found, records=dict(sorted(records.items())))
        lock = _lock_of(question, request, found, packages_with_reasons, cuda_releases)
        notes = (*skipped, *closure.notes, *_notes(question, request, found.engine, edges))
        return Locked(lock=lock, answer=found, ledger=ledger, notes=notes)
    raise NoResolution("the core and the closure do not come to a fixpoint")


def solve_best(question: Question, ledger: Ledger) -> Resolution | Impossible:
    """Solve with the classes that the schemes want; only where no release gives them, with what was allowed.

    The class of each format comes before the newest release: an accepted lower class is no reason to take it from a
    newer release where an older one has the wanted class.
    """
    core = question.core(ledger)
    if question.allowances:
        wanted = tuple(replace(row, wanted=row.ask.scheme.wants) for row in core.rows)
        found = solve(Core(releases=core.releases, rows=wanted, bench=core.bench))
        if isinstance(found, Resolution):
            return found
    return solve(core)


def _added(solved: Resolution) -> set[str]:
    return {key for key, _ in solved.assignment if key.startswith("package.")}


def _check_added(question: Question, engine: Engine, solved: Resolution, packages: Mapping[str, str]) -> None:
    """Refuse a closure without a package that a way adds, or with others than were assumed."""
    missing = sorted(_added(solved) - {f"package.{name}" for name in packages})
    if missing:
        names = ", ".join(key.removeprefix("package.") for key in missing)
        raise NoResolution(f"{engine.distribution} {solved.release} was asked for with {names}, and did not bring it")
    for name, assumed in assumed_packages(question.assumed).items():
        found = packages.get(name, ABSENT)
        if found != assumed and (ABSENT in (found, assumed) or Version(found).public != Version(assumed).public):
            raise NoResolution(f"package.{name} = {assumed} was assumed, and in the closed set it is {found}")


def check_release(question: Question, engine: Engine, cuda_releases: CudaReleases) -> None:
    """Refuse a release that the target's Python, CUDA lane or driver cannot run.

    Raises:
        NoResolution: with what stands in the way.
    """
    release, target = engine.release, question.target
    name = f"{engine.name} {release.version}"
    if not release.requires_python.contains(target.python, prereleases=True):
        wanted = next((f"3.{minor}" for minor in range(9, 20) if release.requires_python.contains(f"3.{minor}")), None)
        raise NoResolution(
            f"{name} needs Python {release.requires_python}, and the target has {target.python}",
            hint=f"--python {wanted}" if wanted else None,
        )
    if target.cuda is not None and not same_lane(target.cuda, release.cuda):
        message, hint = no_build(engine, target.cuda, read_indexes())
        raise NoResolution(message, hint=hint)
    if target.driver is None:
        return
    driver = parse_driver(target.driver)
    cuda = release.cuda
    for gpu in target.gpus:
        support = driver_supports(
            cuda,
            driver,
            cuda_releases,
            kind=gpu.kind,
            uses_ptx=False,
            architecture=question.architectures.find(gpu.sm),
        )
        if support.blocks:
            raise NoResolution(
                f"{name} runs on CUDA {cuda}, and driver {target.driver} does not on {gpu.name}: "
                f"{describe_answer(support)}",
                hint=f"--driver {driver_floor(cuda, cuda_releases, _architectures(question)) or cuda}",
            )


def driver_cuda(question: Question, cuda_releases: CudaReleases) -> str | None:
    """The newest CUDA release that the target's driver runs; None where the driver is not known."""
    given = question.target.driver
    return None if given is None else highest_cuda(parse_driver(given), cuda_releases)


def closure_request(question: Question, request: LockRequest, engine: Engine, solved: Resolution) -> ClosureRequest:
    """What uv is asked: the engine at its release with the packages that the ways add."""
    added = _added(solved)
    provisions = [item for item in engine.provisions if item.fact in added]
    requirements = [f"{engine.distribution}=={engine.release.version}"]
    for provision in provisions:
        requirements += provision.requirements
    # What was assumed of the environment is made so.
    assumed = assumed_packages(question.assumed)
    requirements += [f"{name}=={version}" for name, version in assumed.items() if version != ABSENT]
    target, book = question.target, read_indexes()
    return ClosureRequest(
        requirements=tuple(requirements),
        excludes=tuple(name for name, version in assumed.items() if version == ABSENT),
        constraints=(*engine.release.constraints, *pair_constraints(engine, requirements, book), *request.wheels),
        python=target.python,
        machine=target.machine,
        glibc=target.glibc,
        cutoff=request.cutoff,
        indexes=indexes_of(request.indexes, engine.index, engine=engine, cuda=target.cuda, book=book),
        offline=request.offline,
        cuda=engine.release.cuda,
        gated=engine.gated,
        sms=tuple(sorted({gpu.sm for gpu in target.gpus})),
    )


def assumed_packages(assumed: Mapping[str, Value]) -> dict[str, str]:
    """The packages of ``--assume package.NAME=VERSION`` with their versions, or absent."""
    found = {key: str(value) for key, value in assumed.items() if key.startswith("package.")}
    return {key.removeprefix("package."): value for key, value in sorted(found.items())}


def _close(asked: ClosureRequest, engine: Engine, edges: Edges) -> Closure:
    """The closure; where the engine has an index of its own and it gives nothing, the error says where that is."""
    try:
        return edges.close(asked)
    except NoResolution as failure:
        known = engine.index
        if known is None or not any(index.url == known.url for index in asked.indexes):
            raise
        raise NoResolution(
            f"{failure.message}. {where_the_wheels_are(engine.name, known)}", hint=failure.hint or index_hint(known)
        ) from failure


def where_the_wheels_are(name: str, known: PackageIndex) -> str:
    """One sentence."""
    packages = "" if known.packages == (name,) else f" ({', '.join(known.packages)})"
    return f"The wheels of {name}{packages} are at {known.url}: {known.note}"


def index_hint(known: PackageIndex) -> str:
    """What to type to see whether the index can be reached, or to give another that has the same wheels."""
    if known.flat:
        return f"pip download --no-deps --pre --find-links {known.url} {known.packages[0]}"
    return f"--index {known.name}={known.url}={','.join(known.packages)}"


def lockstep_records(toolkit: str | None) -> dict[str, str]:
    """Digests of the records that held the CUDA parts together: the rules, and the parts of the toolkit release."""
    if toolkit is None:
        return {}
    records = {"lockstep:rules": digest_of(repr(read_lockstep_rules()))}
    pins = cuda_toolkit_pins(toolkit)
    if pins is not None:
        records[f"toolkit:{toolkit}"] = digest_of(dict(pins))
    return records


def index_records(closure: Closure) -> dict[str, str]:
    """Digests of the known indexes that packages came from."""
    book = read_indexes()
    names = sorted({package.index for package in closure.packages})
    return {f"index:{name}": digest_of(repr(known)) for name in names if (known := book.find(name)) is not None}


def _notes(question: Question, request: LockRequest, engine: Engine, edges: Edges) -> tuple[str, ...]:
    passed_over = question.passed_over(engine.release)
    if question.engine_version is not None or request.offline:
        return passed_over
    known = engine.releases[0].version
    newest = edges.newer(engine.distribution, known)
    if newest is None:
        return passed_over
    skipped = f"{engine.name} {newest} is newer than the records and was skipped; {engine.release.version} is locked"
    return (*passed_over, skipped)


def _lock_of(
    question: Question,
    request: LockRequest,
    found: Answer,
    packages: tuple[LockedPackage, ...],
    cuda_releases: CudaReleases,
) -> Lock:
    engine, target = found.engine, question.target
    return Lock(
        target=LockedTarget(
            gpus=tuple((gpu.name, gpu.arch) for gpu in target.gpus),
            machine=target.machine,
            glibc=target.glibc,
            python=target.python,
            driver=target.driver,
            cuda=engine.release.cuda,
        ),
        engine=engine.name,
        engine_version=engine.release.version,
        packages=packages,
        formats=tuple(_locked_format(row) for row in found.rows),
        settings=found.settings,
        data_digest=found.data_digest,
        requested=request.requested,
        assumed=recorded_facts(question.model, question.workload, question.reference, question.assumed),
        allowed=tuple(sorted({item.text for item in question.allowances})),
        driver_floor=driver_floor(engine.release.cuda, cuda_releases, _architectures(question)),
        cutoff=request.cutoff,
        workload=question.workload.name,
        data=tuple(found.records.items()),
    )


def _architectures(question: Question) -> tuple[Architecture, ...]:
    return tuple(
        found
        for sm in sorted({gpu.sm for gpu in question.target.gpus})
        if (found := question.architectures.find(sm)) is not None
    )


def _locked_format(row: RowView) -> LockedFormat:
    return LockedFormat(
        format=row.format,
        scheme=row.scheme,
        role=row.role,
        arch=row.arch,
        wanted=row.wanted,
        verdict=row.verdict,
        level=row.level,
        route=row.route or "",
    )


def _with_reason(package: LockedPackage, engine: Engine, solved: Resolution, edges: Edges) -> LockedPackage:
    routes: set[str] = set()
    gates: set[str] = set()
    fact = f"package.{package.name}"
    for item in solved.rows:
        identifier = item.way.outcome.route
        if identifier is None:
            continue
        route = engine.routes[identifier]
        if package.name in {engine.distribution, route.library}:
            routes.add(route.id)
        for gate in (*route.select, *route.execute):
            if any(leaf.fact == fact for leaf in leaves(gate.when)):
                routes.add(route.id)
                gates.add(f"{route.id}/{gate.id}")
    row = read_row_of_wheel(package.name, package.wheel.sha256)
    declared = row.declared.cuda if row is not None else None
    cuda = engine.release.cuda if package.name == engine.distribution else declared
    because = GatedBecause(
        routes=tuple(sorted(routes)), gates=tuple(sorted(gates)), cuda=cuda, record=edges.record(package)
    )
    return replace(package, because=because)


def _refused(question: Question, *, closed: str | None = None) -> QResolveError:
    """The error of a question that no release answers as wanted; ``closed`` names one whose closure is known."""
    found = answer(question, extra=False)
    short = [row for row in found.rows if not row.holds]
    if not short:
        return NoResolution(
            "each format holds for itself, and not together: they need different values of one setting",
            hint="lock them apart",
        )
    message, hint = refusal(found, short)
    engine = found.engine
    own = question.wheels[closed][engine.distribution] if closed is not None else None
    if own is not None and read_row_of_wheel(engine.distribution, own) is None and own not in question.opened:
        message += (
            f" The index's {engine.distribution} {closed} is not a file that was measured: its kernels are unknown."
        )
    if engine.index is not None:
        message += f" {where_the_wheels_are(engine.name, engine.index)}."
    verdicts = {row.verdict for row in short}
    if "broken" in verdicts:
        return Refuted(message, hint=hint)
    if "unsupported" in verdicts:
        return NoResolution(message, hint=hint)
    if verdicts & set(CLASSES):
        return LowerClass(message, hint=hint)
    return Unproved(message, hint=hint)
