"""The facts of one row: one scheme and role on one GPU under one release, with what was assumed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from qresolve.arch import Architectures, ImageArch, Loadability, best_loadability, driver_choice
from qresolve.completions import Thresholds
from qresolve.facts import ABSENT, Fact, FactTable, Scope, Value
from qresolve.gates import Compare, Expression, leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from qresolve.facts import FactKind
    from qresolve.knowledge.records import Engine, Ladder, Scheme, Workload

    Toolchain = Callable[[str, int, str | None], Fact]
    """(``toolchain.`` fact, sm, version of the toolchain's package or absent) -> what it was seen to compile."""


class Images(Protocol):
    """(project, library stem, unit) -> measured images of the wheel for the target, None where not measured.

    With a scheme, images of kernels that serve it count only if an instruction of its product stands in them.
    """

    def __call__(
        self, project: str, library: str, unit: str, scheme: Scheme | None = None, /
    ) -> tuple[ImageArch, ...] | None:
        """The images, in the order of the file."""


_LOADS = {Loadability.SASS: "sass", Loadability.PTX: "ptx", Loadability.NONE: "none"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What is known of the host; None is unknown, and the verdict must hold for every value.

    ``plain`` says that every other fact of the host has the default of its record; else only those have it that a
    setting can fix, and the others are unknown.
    """

    nvcc: str | None = None
    ninja: bool | None = None
    cxx: bool | None = None
    plain: bool = False

    @classmethod
    def without_toolkit(cls) -> Host:
        """A host that shows neither nvcc nor ninja nor a C++ compiler: what ``auto`` is judged on."""
        return cls(nvcc=ABSENT, ninja=False, cxx=False, plain=True)

    def leaves_open(self, kind: FactKind) -> bool:
        """Whether the fact may have any value on this host."""
        return kind.scope is Scope.HOST and kind.fix is None and not self.plain


def expressions_of(engine: Engine, ladder: Ladder) -> Iterable[Expression]:
    """Every expression that judging on this ladder can evaluate."""
    for move in ladder.moves:
        yield move.when
    for force in ladder.forces:
        yield force.when
    for identifier in dict.fromkeys((*ladder.order, *(force.route for force in ladder.forces))):
        route = engine.routes[identifier]
        for gate in (*route.select, *route.execute):
            yield gate.when
        for variant in route.classes:
            yield variant.when


def compares_of(engine: Engine, ladder: Ladder) -> tuple[Compare, ...]:
    """Every comparison on this ladder, its explicit keys and disabled names included."""
    found = [leaf for expression in expressions_of(engine, ladder) for leaf in leaves(expression)]
    for explicit in ladder.explicit:
        values = (*explicit.auto, *offered_backends(engine, ladder))
        found += [Compare(explicit.fact, "is", value) for value in values]
    if ladder.disabled_by:
        found += [Compare(ladder.disabled_by, "has", engine.routes[route].name) for route in ladder.order]
    return tuple(dict.fromkeys(found))


def offered_backends(engine: Engine, ladder: Ladder) -> tuple[str, ...]:
    """The backend names that some route of the ladder has, in the ladder's order."""
    return tuple(dict.fromkeys(backend for route in ladder.order for backend in engine.routes[route].backends))


def thresholds_of(engine: Engine, ladder: Ladder) -> Thresholds:
    """The constants that this ladder compares facts with."""
    return Thresholds(compares_of(engine, ladder))


def facts_of(
    *,
    engine: Engine,
    sm: int,
    scheme: Scheme,
    workload: Workload,
    host: Host,
    images: Images,
    architectures: Architectures,
    assumed: Mapping[str, Value],
    packages: Mapping[str, str] | None = None,
    toolchain: Toolchain | None = None,
    machine: str | None = None,
) -> FactTable:
    """The fact table of one row.

    ``packages`` are the versions of a closed environment; without it the release's pins hold and every other
    package is absent. ``assumed`` wins over everything. A build whose CUDA is assumed was never measured: its images
    are taken to be those that the build macros allow for this GPU.
    """
    values: dict[str, Fact] = {}
    for kind in engine.vocabulary.kinds():
        if host.leaves_open(kind):
            values[kind.key] = Fact(value=None, source="host", why_unknown="it is the host's, and nobody said")
        elif kind.default is not None:
            values[kind.key] = Fact(value=kind.default, source="default")
    values |= {
        "gpu.sm": Fact(value=sm, source="target"),
        "target.machine": Fact(value=machine, source="target", why_unknown="no CPU machine was named"),
        "gpu.family": Fact(value=sm // 10 * 10, source="target"),
        "build.cuda": Fact(value=engine.release.cuda, source=f"{engine.name} {engine.release.version}"),
        "runtime.cudart": Fact(value=engine.release.cuda, source=f"{engine.name} {engine.release.version}"),
        "host.nvcc": Fact(value=host.nvcc, source="host", why_unknown="the host's nvcc is not known"),
        "host.ninja": Fact(value=host.ninja, source="host", why_unknown="the host's PATH is not known"),
        "host.cxx": Fact(value=host.cxx, source="host", why_unknown="the host's PATH is not known"),
    }
    values |= {key: Fact(value=value, source="scheme") for key, value in scheme.facts.items()}
    values |= {key: Fact(value=value, source=f"workload {workload.name}") for key, value in workload.facts.items()}
    hypothetical = "build.cuda" in assumed
    if hypothetical:
        values["build.hypothetical"] = Fact(value=True, source="assumed")
        values["runtime.cudart"] = Fact(value=assumed["build.cuda"], source="assumed with build.cuda")
    values |= {key: Fact(value=value, source="assumed") for key, value in assumed.items()}
    pins = {pin.package: pin.version for pin in engine.release.pins} if packages is None else dict(packages)

    def derive(key: str) -> Fact | None:
        if key.startswith("package."):
            version = pins.get(key.removeprefix("package."), ABSENT)
            return Fact(value=version, source="release" if packages is None else "closure")
        if key.startswith("image."):
            return _image_fact(
                key, sm=sm, scheme=scheme, images=images, architectures=architectures, hypothetical=hypothetical
            )
        if key.startswith("toolchain.") and toolchain is not None:
            return toolchain(key, sm, _package_version(key.split(".")[1], pins, assumed))
        kind = engine.vocabulary.get(key)
        if kind is not None and kind.default is not None and kind.scope in {Scope.ENVIRONMENT, Scope.HOST}:
            return Fact(value=kind.default, source="default")
        return None

    return FactTable(vocabulary=engine.vocabulary, values=values, derive=derive)


def _package_version(name: str, pins: Mapping[str, str], assumed: Mapping[str, Value]) -> str:
    return str(assumed.get(f"package.{name}", pins.get(name, ABSENT)))


def _image_fact(
    key: str, *, sm: int, scheme: Scheme, images: Images, architectures: Architectures, hypothetical: bool
) -> Fact:
    if hypothetical:
        return Fact(value="sass", source="assumed: a build that targets this GPU")
    project, _, rest = key.removeprefix("image.").partition(":")
    library, _, unit = rest.partition("/")
    measured = images(project, library, unit, scheme)
    if measured is None:
        return Fact(value=None, source="wheel index", why_unknown=f"{library}/{unit} of this wheel was not measured")
    loads = best_loadability(measured, sm, architectures)
    shell = None
    if loads is Loadability.NONE:
        shell = driver_choice(images(project, library, unit) or (), sm, architectures)
    return Fact(value=_LOADS[loads], source="measured in the wheel", shell_image="" if shell is None else str(shell))
