"""What to do about a row: each remedy with a command that asks the same question and works as printed."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from qresolve.classes import at_least_as_good
from qresolve.explain import Remedy, RowView
from qresolve.knowledge.engine import engine_names
from qresolve.request import (
    Ask,
)
from qresolve.resolution import Core, Row

if TYPE_CHECKING:
    from qresolve.question import Question


def with_remedies(question: Question, release: str, row: Row, found: RowView) -> RowView:
    """The view with its remedies; rows that nobody asked for get none that accept less."""
    same = options_of(question, row.arch)
    remedies: list[Remedy] = []
    if found.holds:
        if not at_least_as_good(found.auto.verdict, row.wanted) and row.ask.asked:
            remedies.append(
                Remedy(
                    say=f"a plain install gives {found.auto.verdict}; the lock's settings make it {found.verdict}",
                    run=f"qresolve lock {same} --formats {found.selector}",
                )
            )
    elif row.ask.asked:
        engine = f"{question.engine_name} {release}"
        alone = Core(releases=(release,), rows=(row,), bench=question.bench)
        if next(alone.ways_of(release, row), None) is not None:
            remedies.append(
                Remedy(
                    say=f"beside the others it is {found.verdict}; an environment of its own makes it {row.wanted}",
                    run=f"qresolve lock {same} --formats {found.selector}",
                )
            )
        elif release in question.unmeasured:
            remedies.append(
                Remedy(
                    say=f"{engine} for CUDA {question.lane(release)} is another build than the one that was measured; "
                    "`lock` opens its wheel and judges what is in it",
                    run=f"qresolve lock {same} --formats {found.selector}",
                )
            )
        elif found.verdict in {"mixed", "storage-only", "weight-only", "emulated"}:
            remedies.append(
                Remedy(
                    say=f"no install of {engine} makes it {row.wanted} on {row.arch}; accept {found.verdict}",
                    run=f"qresolve lock {same} --formats {found.selector} --allow {found.selector}={found.verdict}",
                )
            )
        if found.verdict == "unknown" and (compilers := _compilers_that_help(question, release, row)) is not None:
            words, options = compilers
            remedies.append(
                Remedy(
                    say=f"it is compiled on the host; with {words} there it is {row.wanted}",
                    run=f"qresolve lock {same} --formats {found.selector} {options}",
                )
            )
        instead = alternatives(question, release, row)
        if instead:
            remedies.append(
                Remedy(
                    say=f"use a format that is native there: {', '.join(instead)}",
                    run=f"qresolve explain {options_of(question, row.arch, model=False)} --formats {instead[0]}",
                )
            )
    if (barred := question.unlockable(question.engine(release).release)) is not None and row.ask.asked:
        remedies = [item for item in remedies if not (item.run or "").startswith("qresolve lock ")]
        remedies.insert(0, _another_release(question, release, row, found, barred.why))
    return replace(found, remedy=tuple(remedies))


def _another_release(question: Question, release: str, row: Row, found: RowView, why: str) -> Remedy:
    """What to do about a release that cannot be locked: the newest that can, locked where the row holds there too."""
    say = f"{question.engine_name} {release} cannot be locked: {why}"
    other = question.lockable_instead(question.engine(release))
    if other is None:
        return Remedy(say=say)
    there = Core(releases=(other,), rows=(row,), bench=question.bench)
    holds = next(there.ways_of(other, row), None) is not None
    words = f"and it is {row.wanted} there" if holds else f"where nothing makes it {row.wanted} for certain"
    same = options_of(question, row.arch, release=other)
    return Remedy(
        say=f"{say}; {other} can, {words}",
        run=f"qresolve {'lock' if holds else 'explain'} {same} --formats {found.selector}",
    )


def _compilers_that_help(question: Question, release: str, row: Row) -> tuple[str, str] | None:
    """The fewest of the host's unknown compilers that make the row hold, in words and as options; None: none do."""
    cuda = question.engine(release).release.cuda
    toolkit = {"nvcc": cuda} if question.host.nvcc is None else {}
    compiler = {"cxx": True} if question.host.cxx is None and "host.cxx" not in question.assumed else {}
    words = {"nvcc": f"a CUDA {cuda} toolkit", "cxx": "a C++ compiler"}
    options = {"nvcc": f"--nvcc {cuda}", "cxx": "--assume host.cxx=true"}
    for known in (toolkit, compiler, {**toolkit, **compiler}):
        there = replace(question, host=replace(question.host, **known), _benches={})
        core = Core(releases=(release,), rows=(row,), bench=there.bench)
        if known and next(core.ways_of(release, row), None) is not None:
            return " and ".join(words[key] for key in known), " ".join(options[key] for key in known)
    return None


def options_of(question: Question, arch: str, *, model: bool = True, release: str | None = None) -> str:
    """The options that ask the same of one GPU of the target: what was given, and none of the defaults.

    ``model`` says whether the checkpoint is named too: a command about another format cannot. ``release`` is pinned
    instead of what the question pins.
    """
    target = question.target
    gpu = next(gpu for gpu in target.gpus if gpu.arch == arch)
    defaulted = {item.option for item in target.defaults}
    words = ["--gpu", gpu.name if gpu.source == "named" else gpu.arch]
    for option, value in (
        ("--machine", target.machine),
        ("--glibc", target.glibc),
        ("--python", target.python),
        ("--driver", target.driver),
        ("--cuda", target.cuda),
        ("--nvcc", target.nvcc),
    ):
        if value is not None and option not in defaulted:
            words += [option, value]
    name, version = question.engine_name, release or question.engine_version
    if version is not None or name != engine_names()[0]:
        words += ["--engine", name if version is None else f"{name}=={version}"]
    if model and question.model is not None:
        words += ["--model", question.model.given]
    for option, ranks in (("--tp", question.tp), ("--ep", question.ep)):
        words += [option, str(ranks)] if ranks is not None else []
    if target.cxx is not None and "host.cxx" not in question.assumed:
        # It was found on this host, and the GPU is named now, so nobody looks any more.
        words += ["--assume", f"host.cxx={str(target.cxx).lower()}"]
    for key, assumed in question.assumed.items():
        text = ",".join(sorted(assumed)) if isinstance(assumed, frozenset) else str(assumed)
        words += ["--assume", f"{key}={text.lower() if isinstance(assumed, bool) else text}"]
    return shlex.join(words)


def alternatives(question: Question, release: str, row: Row) -> tuple[str, ...]:
    """Other formats whose default scheme in the same role runs as it wants on that GPU, in data order."""
    found = []
    engine = question.engine(release)
    for item in question.book.formats:
        name = item.default.get(row.ask.role)
        if item.name == row.ask.scheme.format or name is None:
            continue
        scheme = next(s for s in item.schemes if s.name == name and row.ask.role in s.roles)
        unquantized = scheme.facts["scheme.activations"] == "none"
        if scheme.wants != "native" or unquantized or engine.ladder_for(scheme.key(row.ask.role)) is None:
            continue
        ask = Ask(scheme=scheme, role=row.ask.role, asked=False)
        other = Row(ask=ask, arch=row.arch, sm=row.sm, wanted=scheme.wants)
        core = Core(releases=(release,), rows=(other,), bench=question.bench)
        if next(core.ways_of(release, other), None) is not None:
            found.append(item.name if row.ask.role == "dense" else f"{item.name}:{row.ask.role}")
    return tuple(found)
