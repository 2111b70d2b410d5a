"""Rungs 1 to 3: what the picked route's kernels are in the installed libraries. Pure but for reading the files.

Which translation units a route needs, and how they are combined, is what the execution gates of its record say; what
is in them is read in the installed files. Each rung asks the same gates another question: does an image load, is the
unit there, does the instruction stand in the image that loads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from qresolve.arch import driver_choice
from qresolve.completions import answer_from
from qresolve.facts import UNKNOWN
from qresolve.gates import All, AnyOf, Compare, Named, Not, kleene, leaves
from qresolve.machine_code.families import read_families
from qresolve.machine_code.instructions import read_instructions
from qresolve.measured import is_library, product_of_unit
from qresolve.verify.evidence import Evidence, Outcome
from qresolve.verify.rungs import FAMILIES, IMAGES, INSTRUCTIONS
from qresolve.wheels.index import ANY_UNIT, EVERY_UNIT, EVERY_UNIT_SPECIFIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from qresolve.arch import Architectures, ImageArch
    from qresolve.facts import FactTable
    from qresolve.gates import Expression
    from qresolve.knowledge.records import Route, Scheme
    from qresolve.machine_code.instructions import Product
    from qresolve.machine_code.scan import BinaryScan, UnitScan
    from qresolve.situation import Images
    from qresolve.verify.evidence import FormatRow
    from qresolve.verify.rungs import Rung

_EVERY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledLibrary:
    """A library of an installed distribution; ``scan`` is None where it could not be read, and ``problem`` says why."""

    path: str
    scan: BinaryScan | None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one rung saw of one unit: True, False or None for ``could not tell``, with the words."""

    held: bool | None
    seen: str
    why: str = ""


def image_facts(route: Route, facts: FactTable) -> tuple[str, ...]:
    """The ``image.`` facts on which the route's execution gates hang here, others taken as known."""
    answer = answer_from(facts.with_all("image.", UNKNOWN))
    return tuple(
        dict.fromkeys(
            leaf.fact for gate in route.execute for leaf in _open(gate.when, answer) if leaf.fact.startswith("image.")
        )
    )


def _open(expression: Expression, answer: Callable[[Compare], bool | None]) -> Iterator[Compare]:
    """The comparisons on which the value still hangs: parts that are decided ask about nothing any more."""
    match expression:
        case Compare():
            if answer(expression) is None:
                yield expression
        case Named():
            yield from _open(expression.expression, answer)
        case Not():
            yield from _open(expression.part, answer)
        case All() | AnyOf():
            if kleene(expression, answer) is None:
                for part in expression.parts:
                    yield from _open(part, answer)


def look_at_images(
    row: FormatRow,
    scheme: Scheme,
    route: Route,
    facts: FactTable,
    *,
    libraries: Callable[[str, str], InstalledLibrary | None],
    architectures: Architectures,
) -> tuple[Evidence, ...]:
    """Evidence of rungs 1 to 3 for the route that the installed engine picks."""
    needed = image_facts(route, facts)
    if not needed:
        why = (
            "its kernel is compiled at run time: rung 6 looks at what that gives"
            if route.built == "jit"
            else "no record says in which units of which library its kernel is"
        )
        outcome = Outcome.SKIPPED if route.built == "jit" else Outcome.UNPROVED
        return tuple(rung.observed(row, route.name, outcome, why=why) for rung in (IMAGES, FAMILIES, INSTRUCTIONS))
    units = {fact: _Unit(fact, scheme, row.sm, libraries, architectures) for fact in needed}
    gates = [gate.when for gate in route.execute if any(leaf.fact in units for leaf in leaves(gate.when))]
    known = answer_from(facts.with_all("image.", UNKNOWN))
    found = []
    for rung, ask in ((IMAGES, _Unit.image), (FAMILIES, _Unit.family), (INSTRUCTIONS, _Unit.instruction)):
        looks = {fact: ask(unit) for fact, unit in units.items()}

        def answer(compare: Compare, looks: dict[str, Look] = looks, rung: Rung = rung) -> bool | None:
            if compare.fact not in looks:
                return known(compare)
            unit = units[compare.fact]
            held = looks[compare.fact].held
            if rung is IMAGES and held is None and unit.is_ptx:
                # A gate that lets PTX in says so; the instructions are another rung's question.
                return "ptx" in compare.operand if isinstance(compare.operand, tuple) else False
            return held

        values = [kleene(gate, answer) for gate in gates]
        held = False if False in values else (None if None in values else True)
        if rung is INSTRUCTIONS and held and not any(unit.multiplies for unit in units.values()):
            if route.built == "jit":
                why = "what multiplies is compiled at run time: rung 6 looks at it"
                found.append(rung.observed(row, route.name, Outcome.SKIPPED, why=why))
                continue
            held = None
            looks = {fact: Look(held=None, seen=look.seen, why="no record says which of these units multiplies")
                     for fact, look in looks.items()}  # fmt: skip
        found.append(_joined(row, rung, route, held=held, looks=looks, units=units))
    return tuple(found)


def _joined(
    row: FormatRow, rung: Rung, route: Route, *, held: bool | None, looks: dict[str, Look], units: dict[str, _Unit]
) -> Evidence:
    outcome = {True: Outcome.PROVED, False: Outcome.REFUTED, None: Outcome.UNPROVED}[held]
    telling = [look for look in looks.values() if look.held is held] or list(looks.values())
    why = "; ".join(dict.fromkeys(look.why for look in telling if look.why)) or None
    implies = None
    if outcome is Outcome.REFUTED:
        loads = any(unit.loads_other_products for unit in units.values())
        implies = "emulated" if rung is INSTRUCTIONS and loads else "broken"
    return rung.observed(
        row,
        route.name,
        outcome,
        seen="; ".join(dict.fromkeys(look.seen for look in telling)),
        why=None if outcome is Outcome.PROVED else why,
        source=", ".join(dict.fromkeys(unit.where for unit in units.values())),
        implies=implies,
    )


class _Unit:
    """One unit of one installed library, as it is on one GPU."""

    def __init__(
        self,
        fact: str,
        scheme: Scheme,
        sm: int,
        libraries: Callable[[str, str], InstalledLibrary | None],
        architectures: Architectures,
    ) -> None:
        project, _, rest = fact.removeprefix("image.").partition(":")
        stem, _, unit = rest.partition("/")
        folders, _, self.name = unit.rpartition("/")
        self.stem = f"{stem}/{folders}" if folders else stem
        self.project = project
        self.sm = sm
        self.library = libraries(project, self.stem)
        scan = self.library.scan if self.library is not None else None
        self._containers: tuple[UnitScan, ...] = ()
        self._product: Product | None = None
        self._serving: list[UnitScan] = []
        if scan is not None:
            every = self.name.startswith(_EVERY)
            self._containers = tuple(unit for unit in scan.loaded if every or unit.name == self.name)
            if not every:
                self._product = product_of_unit(scan.path, self.name, scheme)
        self._taken = [driver_choice(unit.archs, sm, architectures) for unit in self._containers]
        self.where = self.library.path if self.library is not None else project
        if scan is not None and self.name in (EVERY_UNIT, EVERY_UNIT_SPECIFIC):
            self._keep_serving(scan.path, scheme)

    def _keep_serving(self, path: str, scheme: Scheme) -> None:
        """Of a library without names of units, those whose kernels are known to serve the scheme must multiply so."""
        keys = {scheme.key(role) for role in scheme.roles}
        families = read_families()
        for unit, taken in zip(self._containers, self._taken, strict=True):
            kernels = [name for one in unit.images if one.arch == taken for name in one.kernels or ()]
            if any(keys & set(family.serves) for family in families.of(path=path, unit=unit.name, kernels=kernels)):
                self._serving.append(unit)
        if self._serving:
            self._product = read_instructions().product_of(scheme.facts)

    @property
    def multiplies(self) -> bool:
        """Whether a record says that it serves the scheme, so that an instruction must stand in it."""
        return self._product is not None

    @property
    def is_ptx(self) -> bool:
        """Whether what the driver takes of some of its containers is PTX."""
        return any(image is not None and image.kind == "ptx" for image in self._taken)

    @property
    def loads_other_products(self) -> bool:
        """Whether the images that load hold tensor-core instructions at all."""
        return any(held for held in self._held() if held)

    def _absent(self) -> Look | None:
        if self.library is None:
            return Look(held=False, seen=f"no {self.stem} in {self.project}", why=f"{self.stem} is not installed")
        if self.library.scan is None:
            return Look(held=None, seen=self.stem, why=self.library.problem)
        return None

    def family(self) -> Look:
        """Rung 2: the unit is in the library."""
        absent = self._absent()
        if absent is not None:
            return absent
        scan = self.library.scan if self.library is not None else None
        if self._containers:
            return Look(held=True, seen=f"{self.name} in {self.stem}")
        if scan is not None and any(unit.name is None for unit in scan.loaded):
            why = f"{self.stem} has units without names, and one of them may be {self.name}"
            return Look(held=None, seen=self.stem, why=why)
        return Look(held=False, seen=f"no {self.name} in {self.stem}", why=f"{self.name} was not compiled into it")

    def image(self) -> Look:
        """Rung 1: an image of machine code loads."""
        family = self.family()
        if not self._containers:
            return family
        if self.name == ANY_UNIT:
            chosen = [image for image in self._taken if image is not None]
            return self._loads(chosen[:1] or [None])
        if self.name == EVERY_UNIT_SPECIFIC:
            return self._loads([image if image is not None and image.suffix else None for image in self._taken])
        return self._loads(self._taken)

    def images(self) -> tuple[ImageArch, ...] | None:
        """What loads, as the fact about the unit has it: nothing where the instruction is not in it; None: unknown."""
        absent = self._absent()
        if absent is not None:
            return () if absent.held is False else None
        if not self._containers:
            return () if self.family().held is False else None
        image = self.image()
        if image.held is False or (self._product is not None and self.instruction().held is False):
            return ()
        taken = tuple(dict.fromkeys(image for image in self._taken if image is not None))
        if self._product is not None and not self.is_ptx and self.instruction().held is None:
            return None
        return taken

    def _loads(self, taken: Sequence[ImageArch | None]) -> Look:
        shown = ", ".join(dict.fromkeys(str(image) for image in taken if image is not None))
        if None in taken:
            held = sorted({str(image) for unit in self._containers for image in unit.archs})
            why = f"of {', '.join(held) or 'no image'} none loads on sm{self.sm}"
            return Look(held=False, seen=f"{self.name}: {', '.join(held) or 'no image'}", why=why)
        if any(image is not None and image.kind == "ptx" for image in taken):
            why = f"{self.name} loads on sm{self.sm} as PTX alone: its driver chooses the instructions"
            return Look(held=None, seen=f"{self.name}: {shown}", why=why)
        return Look(held=True, seen=f"{self.name}: {shown}")

    def _held(self) -> list[tuple[str, ...] | None]:
        """Of each container, the instructions of the image that loads; None where they were not read."""
        found: list[tuple[str, ...] | None] = []
        for unit, taken in zip(self._containers, self._taken, strict=True):
            scans = [one for one in unit.images if one.arch == taken]
            known = [one.instructions for one in scans if one.instructions is not None]
            complete = taken is not None and taken.kind == "sass" and scans and len(known) == len(scans)
            found.append(tuple(sorted({name for one in known for name in one})) if complete else None)
        return found

    def instruction(self) -> Look:
        """Rung 3: the instruction of the scheme's product stands in the image that loads."""
        image = self.image()
        if not self._containers or image.held is False:
            return image
        if self._product is None:
            return Look(held=True if self.image().held else None, seen=f"{self.name}: multiplies nothing of the scheme")
        held = self._held()
        if None in held and not self._serving:
            why = image.why or f"the image of {self.name} for sm{self.sm} could not be searched"
            return Look(held=None, seen=f"{self.name}", why=why)
        product = self._product
        among = [product.among(one or ()) for one in held]
        if self._serving:
            # One family has many units, and some of them only prepare what another multiplies.
            ours = [found for found, unit in zip(among, self._containers, strict=True) if unit in self._serving]
            among = [tuple(name for found in ours for name in found)]
        if all(among):
            names = sorted({name for one in among for name in one})
            return Look(held=True, seen=f"{self.name}: {', '.join(names)}")
        other = sorted({name for one in held for name in one or ()})
        what = f"multiplies by {', '.join(other)}, none of it {product.name}" if other else "holds no such instruction"
        return Look(
            held=False,
            seen=f"{self.name}: {', '.join(other) or 'no tensor-core instruction'}",
            why=f"{self.name} {what}",
        )


def installed_images(
    sm: int, *, libraries: Callable[[str, str], InstalledLibrary | None], architectures: Architectures
) -> Images:
    """The images of installed libraries on one GPU, in the form in which gates ask for them."""

    def images(project: str, library: str, unit: str, scheme: Scheme | None = None, /) -> tuple[ImageArch, ...] | None:
        if scheme is None:
            return None
        return _Unit(f"image.{project}:{library}/{unit}", scheme, sm, libraries, architectures).images()

    return images


def find_installed(paths: Sequence[str], stem: str) -> str | None:
    """The installed file (by its path below the packages) that a gate means by ``stem``."""
    return next((path for path in paths if is_library(path, stem)), None)
