"""One inspection: which binaries are read in which order, and what they come to."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from qresolve.arch import driver_choice
from qresolve.errors import Unproved
from qresolve.inspect.answer import answer_of, see
from qresolve.machine_code.scan import NotABinary, scan_binary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from qresolve.arch import ImageArch
    from qresolve.inspect.answer import Answer, InspectData, Seen
    from qresolve.inspect.subject import Binary, Subject
    from qresolve.machine_code.scan import BinaryScan
    from qresolve.request import Ask


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRead:
    """A binary that was not looked at, and why. ``broken``: it was tried, and its bytes are not what they must be."""

    path: str
    why: str
    broken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What was seen. ``read`` is how many bytes of the subject that took, without its table of members."""

    name: str
    kind: str
    size: int | None
    read: int
    sms: tuple[int, ...]
    binaries: tuple[BinaryScan, ...]
    not_read: tuple[NotRead, ...]
    answers: tuple[Answer, ...]


def run_inspection(
    subject: Subject,
    *,
    asks: tuple[Ask, ...],
    sms: tuple[int, ...],
    data: InspectData,
    headers_only: bool = False,
    progress: Callable[[Binary], None] = lambda _binary: None,
) -> Inspection:
    """Read and judge.

    With formats and GPUs reading stops as soon as every row is proved: no further binary can change that.

    Raises:
        Unproved: the only binary there is cannot be read; of several, each that cannot is named instead.
    """
    scans: list[BinaryScan] = []
    not_read: list[NotRead] = []
    answers: tuple[Answer, ...] = ()
    rows: dict[tuple[str, int], list[Seen]] = {(ask.key, sm): [] for ask in asks for sm in sms}
    cost = 0
    wanted = choose_images(sms, data, headers_only=headers_only)
    waiting = order_binaries(subject.binaries(), asks, data)
    while waiting:
        binary = waiting.pop(0)
        progress(binary)
        cost += binary.cost
        try:
            scan = scan_binary(subject.read(binary), path=binary.path, wanted=wanted)
        except NotABinary as error:
            if subject.kind == "file":
                raise
            not_read.append(NotRead(path=binary.path, why=error.message))
        except Unproved as error:
            if subject.kind == "file":
                raise
            not_read.append(NotRead(path=binary.path, why=error.message, broken=True))
        else:
            scans.append(scan)
            for ask in asks:
                for sm in sms:
                    rows[ask.key, sm] += see(scan, ask, sm, data)
        left = [*(item.path for item in not_read), *(item.path for item in waiting)]
        answers = tuple(answer_of(rows[ask.key, sm], ask, sm, not_read=left, data=data) for ask in asks for sm in sms)
        if answers and all(one.outcome == "proved" for one in answers):
            break
    if not scans and not not_read:
        answers = tuple(answer_of((), ask, sm, not_read=(), data=data) for ask in asks for sm in sms)
    why = "every asked format is proved without it"
    return Inspection(
        name=subject.name,
        kind=subject.kind,
        size=subject.size,
        read=cost,
        sms=sms,
        binaries=tuple(sorted(scans, key=lambda scan: scan.path)),
        not_read=(*not_read, *(NotRead(path=item.path, why=why) for item in waiting)),
        answers=answers,
    )


def choose_images(
    sms: tuple[int, ...], data: InspectData, *, headers_only: bool
) -> Callable[[tuple[ImageArch, ...]], Iterable[ImageArch]]:
    """Which images of a unit are decompressed: what the driver would load on the GPUs, or all where none is asked."""

    def wanted(images: tuple[ImageArch, ...]) -> Iterable[ImageArch]:
        if headers_only:
            return ()
        if not sms:
            return images
        chosen = (driver_choice(images, sm, data.architectures) for sm in sms)
        return tuple(image for image in chosen if image is not None)

    return wanted


def order_binaries(binaries: Iterable[Binary], asks: tuple[Ask, ...], data: InspectData) -> list[Binary]:
    """Those first in which kernels that serve the asked formats are known to be, then the cheapest."""
    patterns = tuple(
        pattern for ask in asks for family in data.families.serving(ask.key) for pattern in family.libraries
    )

    def likely(binary: Binary) -> bool:
        return any(fnmatchcase(f"/{binary.path}", f"*/{pattern}") for pattern in patterns)

    return sorted(binaries, key=lambda binary: (not likely(binary), binary.cost, binary.path))


def inspection_exit_code(inspection: Inspection) -> int:
    """0: all asked is proved, or nothing was asked and all was read; 6 before 7 (docs/exit-codes.md)."""
    outcomes = {one.outcome for one in inspection.answers}
    if "refuted" in outcomes:
        return 6
    if "unproved" in outcomes:
        return 7
    return 7 if not inspection.answers and any(one.broken for one in inspection.not_read) else 0
