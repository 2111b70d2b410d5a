"""Rung 6: what a compiler made for the arch, judged by the instructions of its machine code. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qresolve.arch import Loadability, loadability
from qresolve.errors import Unproved
from qresolve.machine_code.scan import scan_binary
from qresolve.verify.evidence import Binds, Evidence, Outcome
from qresolve.verify.rungs import TOOLCHAIN

if TYPE_CHECKING:
    from qresolve.arch import Architectures
    from qresolve.machine_code.instructions import Product
    from qresolve.verify.evidence import FormatRow


def judge_built(
    row: FormatRow,
    subject: str,
    code: bytes,
    *,
    product: Product | None,
    architectures: Architectures,
    binds: Binds,
    source: str,
) -> Evidence:
    """Whether a cubin that was built for the row's arch loads there and multiplies as the scheme does.

    Proved: its tensor-core instructions are all of the scheme's product. Refuted: none is. Some: unproved, as nothing
    says which of them does the work.
    """

    def told(outcome: Outcome, seen: str, why: str | None = None, implies: str | None = None) -> Evidence:
        return TOOLCHAIN.observed(
            row, subject, outcome, binds=binds, seen=seen, why=why, source=source, implies=implies
        )  # fmt: skip

    if product is None:
        return told(Outcome.UNPROVED, "a cubin", f"no record says which instruction is native to {row}")
    try:
        scan = scan_binary(code, path=subject, wanted=lambda images: images)
    except Unproved as error:
        return told(Outcome.UNPROVED, "something that is no cubin", error.message)
    images = [image for unit in scan.units for image in unit.images]
    archs = ", ".join(dict.fromkeys(str(image.arch) for image in images))
    if not any(loadability(image.arch, row.sm, architectures) is Loadability.SASS for image in images):
        return told(Outcome.REFUTED, archs, f"it does not load on {row.arch}", "broken")
    unread = [image.why for image in images if image.instructions is None]
    if unread:
        return told(Outcome.UNPROVED, archs, f"its instructions cannot be read: {unread[0]}")
    held = sorted({name for image in images for name in image.instructions or ()})
    counted = {name: sum((image.instructions or {}).get(name, 0) for image in images) for name in held}
    seen = f"{archs}: {', '.join(f'{counted[name]} {name}' for name in held) or 'no tensor-core instruction'}"
    among = product.among(held)
    if held and len(among) == len(held):
        return told(Outcome.PROVED, seen)
    if not among:
        what = "it multiplies otherwise" if held else "it uses no tensor core"
        return told(Outcome.REFUTED, seen, f"{what}: none of this is {product.name}", "emulated")
    return told(Outcome.UNPROVED, seen, f"only a part of this is {product.name}")
