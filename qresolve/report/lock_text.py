"""What ``lock`` says to a person: why it refused, or what it wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from qresolve.explain import RowView
    from qresolve.judging import Answer
    from qresolve.lock.model import Lock


def refusal(answer: Answer, short: Sequence[RowView]) -> tuple[str, str | None]:
    """Message and hint for rows that fall short."""
    release = f"{answer.engine.name} {answer.engine.release.version}"
    parts = []
    for row in short:
        words = f"{row.selector} on {row.arch} is {row.verdict}, and {row.wanted} was wanted"
        if row.verdict == "unknown" and len(row.possible) > 1:
            words = f"{row.selector} on {row.arch} is unknown ({' or '.join(row.possible)})"
        elif row.verdict == "unsupported":
            words = f"{row.selector} on {row.arch} has no route in {release}"
        if row.route:
            words += f" ({row.route})"
        if row.why:
            words += f": {row.why}"
        parts.append(words)
    remedy = next((item.run for row in short for item in row.remedy if item.run), None)
    asked = f"--gpu {short[0].arch} --engine {answer.engine.name}=={answer.engine.release.version}"
    hint = remedy or f"qresolve explain {asked} --formats {short[0].selector} -v"
    return f"{release}: {'; '.join(parts)}. Nothing was written.", hint


def reservation_lines(answer: Answer) -> Iterator[str]:
    """What the authors of a locked route do not vouch for, each once: a lock of it is not written without a word."""
    seen = set()
    for row in answer.rows:
        route = row.reservation
        if route is not None:
            line = f"{row.selector}: {route.name} is {route.status}: {route.status_why}"
            if line not in seen:
                seen.add(line)
                yield line


def lock_lines(lock: Lock, where: str) -> Iterator[str]:
    """What was locked, for stderr."""
    yield f"{lock.engine} {lock.engine_version}, {len(lock.packages)} packages, CUDA {lock.target.cuda} -> {where}"
    for row in lock.formats:
        yield f"  {row.format}@{row.scheme}:{row.role} on {row.arch}: {row.verdict} by {row.route}"
    if lock.driver_floor:
        yield f"  needs driver {lock.driver_floor} or newer"
    if lock.settings:
        yield "  with settings (`qresolve run -- …` or `qresolve env` apply them):"
        for setting in lock.settings:
            name = setting.path or setting.env
            yield f"    {name} = {setting.value if setting.value is not None else '(removed)'}"
