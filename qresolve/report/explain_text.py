"""``explain`` for people: a table to act on in ten seconds, and with ``-v`` every route with what rejected it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve.report.explain_json import target_words
from qresolve.report.lock_text import reservation_lines
from qresolve.report.table import render_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qresolve.explain import RowView
    from qresolve.judging import Answer
    from qresolve.question import Question
    from qresolve.setting import Setting


def explain_lines(question: Question, answer: Answer, *, verbose: bool, width: int) -> Iterator[str]:
    """The lines of the report."""
    yield f"{answer.engine.name} {answer.engine.release.version} on {target_words(question.target.to_mapping())}"
    yield ""
    asked = [row for row in answer.rows if row.asked]
    lockable = question.unlockable(answer.engine.release) is None
    yield from render_table(
        ("format", "gpu", "verdict", "route", "plain install", "what to do"),
        [_table_row(row, below=bool(answer.settings), lockable=lockable) for row in asked],
        width=width,
    )
    yield from _settings(answer.settings, lockable=lockable)
    tested = answer.engine.release.tested_python
    if tested is not None and not tested.contains(question.target.python):
        yield ""
        yield (
            f"{answer.engine.name} {answer.engine.release.version} lets Python {question.target.python} in, "
            f"and its authors test Python {tested}"
        )
    for line in reservation_lines(answer):
        yield ""
        yield line
    yield from _notes(asked)
    yield from _beside([row for row in answer.rows if not row.asked])
    if verbose:
        for row in asked:
            yield from _routes(row)


def _table_row(row: RowView, *, below: bool, lockable: bool) -> tuple[str, ...]:
    verdict = row.verdict if row.holds else f"{row.verdict} (wanted {row.wanted})"
    if row.verdict == "unknown" and len(row.possible) > 1:
        verdict = f"unknown: {' or '.join(row.possible)}"
    if row.reservation is not None:
        verdict += f", {row.reservation.status}"
    if not lockable:
        todo = "cannot be locked, see below"
    elif row.holds:
        # Where another row does not hold there is no lock of all, so no settings of all are listed either.
        which = "the settings below" if below else "the settings of a lock of its own"
        kept = f"lock it; {which} keep it so on any host" if row.settings else "lock it"
        todo = kept if row.auto.loudness == "none" else f"lock it; it needs {which}"
    elif any("--allow" in (remedy.run or "") for remedy in row.remedy):
        todo = "accept it or use another format, see below"
    elif row.remedy:
        todo = "see below"
    else:
        todo = row.why or "nothing is known to help"
    auto = row.auto.verdict + (f", {row.auto.loudness}" if row.auto.loudness != "none" else "")
    return (row.selector, row.arch, verdict, row.route or "-", auto, todo)


def _settings(settings: tuple[Setting, ...], *, lockable: bool) -> Iterator[str]:
    if settings:
        yield ""
        yield "settings that the lock will hold:" if lockable else "settings that it needs:"
        for setting in settings:
            yield f"  {setting_words(setting)}"


def setting_words(setting: Setting) -> str:
    """One setting on one line."""
    if setting.path is not None:
        return f"{setting.path} = {setting.value}"
    return f"unset {setting.env}" if setting.value is None else f"{setting.env}={setting.value or '(empty)'}"


def _notes(rows: list[RowView]) -> Iterator[str]:
    seen = set()
    for row in rows:
        if len({(group.verdict, group.route) for group in row.layers}) > 1:
            yield ""
            yield f"{row.selector} on {row.arch} by layer; the worst is the verdict:"
            for group in row.layers:
                yield f"  {group.name}: {group.verdict} ({group.route or group.why or '-'})"
        for claim in row.claims:
            if claim.id not in seen:
                seen.add(claim.id)
                yield ""
                yield f'note: "{claim.claim}" is not so: {claim.refutation} [{claim.source.where}]'
        if row.remedy and row.why and not row.holds:  # the table has the reason where there is no remedy
            yield ""
            yield f"{row.format} on {row.arch} is {row.verdict}: {row.why}"
        for remedy in row.remedy:
            line = f"{row.format} on {row.arch}: {remedy.say}"
            if line not in seen:
                seen.add(line)
                yield ""
                yield line
                if remedy.run:
                    yield f"  $ {remedy.run}"


def _beside(rows: list[RowView]) -> Iterator[str]:
    """The unasked rows, one line a scheme and role; those that fall short first."""
    if not rows:
        return
    lines: dict[str, list[RowView]] = {}
    for row in rows:
        lines.setdefault(row.selector, []).append(row)
    yield ""
    yield "not asked for:"
    for selector, found in sorted(lines.items(), key=lambda item: all(row.holds for row in item[1])):
        by_verdict: dict[tuple[str, str], list[str]] = {}
        for row in found:
            words = row.verdict if row.holds else f"{row.verdict}, not {row.wanted}"
            if row.reservation is not None:
                words += f", {row.reservation.status}"
            by_verdict.setdefault((words, row.route or ""), []).append(row.arch)
        parts = [
            f"{words} on {', '.join(archs)}" + (f" ({route})" if route and words != "native" else "")
            for (words, route), archs in by_verdict.items()
        ]
        yield f"  {selector}: {'; '.join(parts)}"


def _routes(row: RowView) -> Iterator[str]:
    yield ""
    yield f"routes of {row.selector} on {row.arch}, in the engine's order:"
    for route in row.routes:
        status = f" ({route.status}: {route.status_why})" if route.status != "supported" else ""
        yield f"  {route.decision:9} {route.class_:12} {route.name}{status}"
        for gate in route.gates:
            if gate.outcome == "pass" and route.decision != "selected":
                continue
            mark = {"pass": "ok", "fail": "no", "unknown": "??"}[gate.outcome]
            words = f" ({gate.say})" if gate.say and gate.outcome != "pass" else ""
            yield f"      {mark} {gate.stage} {gate.id}: needs {gate.needs}; have {gate.have}{words}"
            if gate.outcome != "pass":
                yield f"         [{gate.source}]"
