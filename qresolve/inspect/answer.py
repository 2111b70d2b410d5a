"""Whether binaries hold a native kernel of a scheme that loads on a GPU: from scans to one answer a row. Pure.

``proved``: an image that the driver loads there holds an instruction of the scheme's own product, in kernels that serve
the scheme. ``refuted``: every binary was looked at, and none does. ``unproved``: something was not read, only PTX loads
(the driver then chooses the instructions), or the instruction stands in kernels of which nobody knows what they serve.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from qresolve.arch import driver_choice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from qresolve.arch import Architectures, ImageArch
    from qresolve.machine_code.families import Families
    from qresolve.machine_code.instructions import Instructions, Product
    from qresolve.machine_code.scan import BinaryScan, UnitScan
    from qresolve.request import Ask

Outcome = Literal["proved", "refuted", "unproved"]
State = Literal["native", "other", "ptx", "linked", "none", "unread"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One unit as it is on one GPU.

    ``state``: ``native`` holds the instruction; ``other`` loads and does not; ``ptx`` loads as PTX alone; ``linked`` is
    relocatable code with the instruction, or PTX, that the driver would link; ``none`` has no image that loads;
    ``unread`` was not or could not be searched. ``families`` are ids; none: nobody knows the unit.
    """

    library: str
    unit: str | None
    families: tuple[str, ...]
    image: ImageArch | None
    state: State
    instructions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of one row. ``seen`` are the units that decided; ``product`` the multiplication looked for."""

    ask: Ask
    sm: int
    outcome: Outcome
    why: str
    product: str | None
    seen: tuple[Seen, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectData:
    """The records that answers are made with."""

    architectures: Architectures
    instructions: Instructions
    families: Families


def answer(binaries: Iterable[BinaryScan], ask: Ask, sm: int, *, not_read: Iterable[str], data: InspectData) -> Answer:
    """The answer for one row on one GPU; ``not_read`` are paths of binaries that were not looked at."""
    seen = [one for binary in binaries for one in see(binary, ask, sm, data)]
    return answer_of(seen, ask, sm, not_read=not_read, data=data)


def answer_of(units: Sequence[Seen], ask: Ask, sm: int, *, not_read: Iterable[str], data: InspectData) -> Answer:
    """As :func:`answer`, for units that were looked at before (:func:`see`)."""
    product = data.instructions.product_of(ask.scheme.facts)
    if product is None:
        why = f"no record says which instruction is native to {ask.key}"
        return Answer(ask=ask, sm=sm, outcome="unproved", why=why, product=None, seen=())
    serving = {family.id for family in data.families.serving(ask.key)}
    ours = [one for one in units if serving & set(one.families)]
    outcome, why, decided = _decide(units, ours, ask=ask, sm=sm, product=product, not_read=tuple(not_read))
    return Answer(ask=ask, sm=sm, outcome=outcome, why=why, product=product.name, seen=tuple(decided))


def see(binary: BinaryScan, ask: Ask, sm: int, data: InspectData) -> tuple[Seen, ...]:
    """The units of one binary as they are on one GPU, for the product of one scheme; none where no record names it."""
    product = data.instructions.product_of(ask.scheme.facts)
    return () if product is None else tuple(_see_all(binary, sm, product, data))


def _see_all(binary: BinaryScan, sm: int, product: Product, data: InspectData) -> Iterator[Seen]:
    """Every unit on one GPU; relocatable code only where no linked image of the same kernels fits."""
    linked: set[str] = set()
    for unit in binary.loaded:
        taken = driver_choice(unit.archs, sm, data.architectures)
        linked.update(name for one in unit.images if one.arch == taken for name in one.kernels or ())
        yield _see(binary, unit, sm, product, data)
    for unit in binary.relocatable:
        taken = driver_choice(unit.archs, sm, data.architectures)
        kernels = {name for one in unit.images if one.arch == taken for name in one.kernels or ()}
        if kernels and kernels <= linked:
            continue
        seen = _see(binary, unit, sm, product, data)
        yield replace(seen, state="linked") if seen.state in ("native", "ptx") else seen


def _see(binary: BinaryScan, unit: UnitScan, sm: int, product: Product, data: InspectData) -> Seen:
    image = driver_choice(unit.archs, sm, data.architectures)
    # One container may hold two images for one arch; which of them is loaded nothing says.
    scans = [one for one in unit.images if one.arch == image]
    held = [tuple(one.instructions) for one in scans if one.instructions is not None]
    native = [bool(product.among(one)) for one in held]
    state: State
    if image is None:
        state = "none"
    elif image.kind == "ptx":
        state = "ptx"
    elif len(held) != len(scans) or len(set(native)) != 1:
        state = "unread"
    else:
        state = "native" if native[0] else "other"
    kernels = [name for one in scans for name in one.kernels or ()]
    return Seen(
        library=binary.path,
        unit=unit.name,
        families=tuple(one.id for one in data.families.of(path=binary.path, unit=unit.name, kernels=kernels)),
        image=image,
        state=state,
        instructions=tuple(sorted({name for one in held for name in one})),
    )


def _decide(
    units: Sequence[Seen], ours: list[Seen], *, ask: Ask, sm: int, product: Product, not_read: tuple[str, ...]
) -> tuple[Outcome, str, list[Seen]]:
    gpu = f"sm{sm}"
    native = [one for one in ours if one.state == "native"]
    if native:
        return "proved", _places(native, gpu, product), native
    if unread := [one for one in ours if one.state == "unread"]:
        return "unproved", f"the image for {gpu} of {_names(unread)} could not be read", unread
    if ptx := [one for one in ours if one.state == "ptx"]:
        return "unproved", f"{_names(ptx)} loads on {gpu} as PTX alone: its driver chooses the instructions", ptx
    if linked := [one for one in ours if one.state == "linked"]:
        return "unproved", _relocatable(linked, gpu), linked
    strangers = [one for one in units if not one.families and one.state == "native"]
    if strangers and ask.scheme.wants == "native" and not not_read:
        found = _places(strangers, gpu, product)
        if any(one.families for one in units):
            return "unproved", f"no kernel that is known to serve it; what this serves nobody knows: {found}", strangers
        return "proved", f"{found}; no record knows these kernels, dense or moe", strangers
    if not_read:
        return "unproved", f"not read: {', '.join(not_read[:3])}{' …' if len(not_read) > 3 else ''}", ours
    if not any(one.image or one.state == "none" for one in units):
        return "unproved", "there is no code for GPUs in it; what is compiled at run time cannot be seen here", []
    if unread := [one for one in units if one.state == "unread" and not one.families]:
        return "unproved", f"the image for {gpu} of {_names(unread)} could not be read", unread
    if linked := [one for one in units if one.state == "linked" and not one.families]:
        return "unproved", _relocatable(linked, gpu), linked
    if strangers or (ask.scheme.wants != "native" and not ours):
        return "unproved", "no kernel that is known to serve it; 16-bit instructions alone say nothing", ours
    return "refuted", _absence(units, ours, gpu=gpu, product=product), ours


def _relocatable(seen: list[Seen], gpu: str) -> str:
    return f"{_names(seen)} is relocatable code, which the driver of {gpu} links when it loads"


def _absence(units: Sequence[Seen], ours: list[Seen], *, gpu: str, product: Product) -> str:
    if other := [one for one in ours if one.state == "other"]:
        held = sorted({name for one in other for name in one.instructions})
        if not held:
            return f"{_names(other)} loads on {gpu} and holds no tensor-core instruction"
        return f"{_names(other)} loads on {gpu} and multiplies by {', '.join(held)}, none of it {product.name}"
    if ours:
        return f"{_names(ours)} has no image that loads on {gpu}"
    loads = sum(one.image is not None for one in units)
    if not loads:
        return f"none of the {len(units)} containers has an image that loads on {gpu}"
    return (
        f"no kernel serves it, and none of the {loads} units that load on {gpu} holds an instruction of {product.name}"
    )


def _names(seen: list[Seen]) -> str:
    names = list(dict.fromkeys(f"{one.unit or 'a unit'} in {_stem(one.library)}" for one in seen))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _places(seen: list[Seen], gpu: str, product: Product) -> str:
    images = Counter(str(one.image) for one in seen)
    held = sorted({name for one in seen for name in product.among(one.instructions)})
    shown = ", ".join(held[:3]) + (" …" if len(held) > 3 else "")
    return f"{_names(seen)}: {', '.join(images)} loads on {gpu} and holds {shown}"


def _stem(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0] or path
