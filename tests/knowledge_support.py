"""Fact tables for tests of the knowledge of an engine: one GPU, one scheme, what the test overrides.

Everything that a release pins is there, everything else is absent, and every variable and key has its default.
Images are assumed to load as SASS unless a test gives its own ``derive``; what Triton compiles is what was measured.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qresolve.arch import best_loadability, read_architectures
from qresolve.completions import Completion, Thresholds, answer_from, possible
from qresolve.facts import ABSENT, Fact, FactTable, Value
from qresolve.gates import Compare, leaves
from qresolve.knowledge.engine import load_engine
from qresolve.knowledge.load import read_formats, read_workload
from qresolve.measured import images_for, toolchain_fact, versions_of
from qresolve.selector import Outcome, select
from qresolve.situation import facts_of
from qresolve.ways import bench_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from qresolve.gates import Expression
    from qresolve.knowledge.records import Engine, Scheme
    from qresolve.situation import Host, Images
    from qresolve.ways import Bench

OPTIONAL_PACKAGES = (
    "b12x",
    "amd-quark",
    "flashinfer-cubin",
    "fbgemm-gpu",
    "conch-triton-kernels",
    "deep-gemm",
    "hpc",
    "vllm-bnb-plugin",
)
"""Packages that gates look at and that no release pins; absent unless a test says otherwise."""

ORACLE = Path(__file__).parent / "data" / "oracle" / "vllm-0.33.0.json"
"""What the real release picked, recorded by running it."""

ARCHS = (75, 80, 86, 89, 90, 100, 103, 110, 120, 121)

TOOLKIT_ON_HOST: Mapping[str, Value | None] = {"host.nvcc": "13.0", "host.ninja": True, "host.cxx": True}
"""With these FlashInfer is usable."""

BUILTINS: Mapping[str, Value] = {"host.loads-nvrtc-builtins": True}
"""With this Humming compiles wherever the loader looks; what is so without it has tests of its own."""

NO_TOOLKIT: Mapping[str, Value | None] = {"host.nvcc": ABSENT, "host.ninja": False, "host.cxx": False}
"""With these (and without its cubins) FlashInfer is installed and not usable."""


@cache
def engine(name: str = "vllm", version: str | None = None) -> Engine:
    """The records of an engine, read once a test run."""
    return load_engine(name, version)


@cache
def schemes() -> dict[str, Scheme]:
    """Every scheme by ``format@scheme:role``."""
    return {
        scheme.key(role): scheme for form in read_formats().formats for scheme in form.schemes for role in scheme.roles
    }


def expressions(of: Engine) -> Iterator[Expression]:
    """Every expression that a selector or judge of the engine evaluates."""
    for route in of.routes.values():
        yield from (gate.when for gate in (*route.select, *route.execute))
        yield from (variant.when for variant in route.classes)
    for ladder in of.ladders.values():
        yield from (move.when for move in ladder.moves)
        yield from (force.when for force in ladder.forces)


def oracle_cells(variant: str, name: str) -> Mapping[str, tuple[Any, str]]:
    """What the oracle of vLLM 0.33.0 has for the format in the variant, or in the base that it equals.

    By arch: the pick, None where there was none, and what was seen.
    """
    variants = json.loads(ORACLE.read_text(encoding="utf-8"))["variants"]
    found: str | None = variant
    while found is not None:
        if name in variants[found]["formats"]:
            return {sm: (pick, seen) for sm, (pick, seen) in variants[found]["formats"][name].items()}
        found = variants[found]["base"]
    raise AssertionError(f"the oracle has no {name}")


@cache
def thresholds(name: str = "vllm") -> Thresholds:
    """The constants that the engine's gates compare facts with."""
    known = engine(name)
    compares: list[Compare] = [leaf for expression in expressions(known) for leaf in leaves(expression)]
    for ladder in known.ladders.values():
        for explicit in ladder.explicit:
            values = {value for route in ladder.order for value in known.routes[route].backends}
            compares += [Compare(explicit.fact, "is", value) for value in sorted(values | set(explicit.auto))]
    return Thresholds(compares)


def every_image_loads(key: str) -> Fact | None:
    """A ``derive`` for fact tables: each image is in the wheel as SASS for the GPU."""
    return Fact(value="sass", source="assumed by the test") if key.startswith("image.") else None


def derive_from_images(images: Images, sm: int) -> Callable[[str], Fact | None]:
    """A ``derive`` for fact tables: images as measured in a wheel."""
    architectures = read_architectures()

    def derive(key: str) -> Fact | None:
        if not key.startswith("image."):
            return None
        project, _, rest = key.removeprefix("image.").partition(":")
        library, _, unit = rest.partition("/")
        measured = images(project, library, unit)
        if measured is None:
            return Fact(value=None, source="", why_unknown="not measured")
        return Fact(value=best_loadability(measured, sm, architectures).value, source="measured")

    return derive


def table_for(
    scheme_key: str,
    sm: int,
    overrides: Mapping[str, Value | None] | None = None,
    *,
    name: str = "vllm",
    derive: Callable[[str], Fact | None] | None = every_image_loads,
) -> FactTable:
    """All facts of one GPU and one scheme (``nvfp4@w4a4:dense``); an override of None makes a fact unknown."""
    known = engine(name)
    values: dict[str, Value | None] = {f"package.{package}": ABSENT for package in OPTIONAL_PACKAGES}
    values |= {f"package.{pin.package}": pin.version for pin in known.release.pins}
    values |= {"gpu.sm": sm, "gpu.family": sm // 10 * 10}
    values |= {"build.cuda": known.release.cuda, "runtime.cudart": known.release.cuda}
    values |= read_workload()[0].facts
    values |= schemes()[scheme_key].facts
    for kind in known.vocabulary.kinds():
        if kind.default is not None:
            values.setdefault(kind.key, kind.default)
    for ladder in known.ladders.values():
        for explicit in ladder.explicit:
            values.setdefault(explicit.fact, explicit.auto[0])
    values |= BUILTINS
    values |= overrides or {}
    facts = {
        key: Fact(value=value, source="the test", why_unknown="" if value is not None else "the test says so")
        for key, value in values.items()
    }
    triton = values.get("package.triton", ABSENT)

    def derive_all(key: str) -> Fact | None:
        if key.startswith("toolchain."):
            return toolchain_fact(key, sm, None if triton is None else str(triton))
        return derive(key) if derive is not None else None

    return FactTable(vocabulary=known.vocabulary, values=facts, derive=derive_all)


def release_bench(
    release: str, key: str, sm: int, *, host: Host, machine: str, assumed: Mapping[str, Value], name: str = "vllm"
) -> Bench:
    """One scheme of a release on one GPU, with the images that were measured in the wheel for the machine."""
    known = engine(name, release)
    assumed = {**BUILTINS, **assumed}
    table = facts_of(
        engine=known,
        sm=sm,
        scheme=schemes()[key],
        workload=read_workload()[0],
        host=host,
        images=images_for(versions_of(known), machine),
        architectures=read_architectures(),
        assumed=assumed,
        toolchain=toolchain_fact,
    )
    return bench_of(known, known.ladders[key], table, assumed)


def outcome(scheme_key: str, table: FactTable, *, name: str = "vllm") -> Outcome:
    """What the selector comes to; raises Undecided where a fact that decides is not known."""
    known = engine(name)
    return select(known.ladders[scheme_key], dict(known.routes), answer_from(table))


def outcomes(scheme_key: str, table: FactTable, *, name: str = "vllm") -> tuple[Completion[Outcome], ...]:
    """What the selector can come to over all completions of the unknown facts."""
    known = engine(name)
    return possible(
        lambda answer: select(known.ladders[scheme_key], dict(known.routes), answer), table, thresholds(name)
    )


def route_name(found: Outcome, *, name: str = "vllm") -> str | None:
    """The engine's own name of the picked route."""
    return None if found.route is None else engine(name).routes[found.route].name
