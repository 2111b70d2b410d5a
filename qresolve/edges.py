"""What locking asks of the network and of files, as functions: whoever has others in their place needs neither."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from qresolve.closure.request import Closure, ClosureRequest
    from qresolve.lock.model import LockedPackage
    from qresolve.wheels.index_rows import WheelRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """What touches the network. ``say`` shows a line of progress to a person."""

    close: Callable[[ClosureRequest], Closure]
    record: Callable[[LockedPackage], str | None]
    measure: Callable[[LockedPackage], WheelRow | None]
    newer: Callable[[str, str], str | None]
    say: Callable[[str], None]
