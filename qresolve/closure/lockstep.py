"""One CUDA toolkit release for all its parts.

The parts of a release are what the toolkit's metapackage of that release lists (recorded in the wheel index);
which other packages follow it, and which are free, is data: ``constraints/lockstep.toml``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from qresolve.data import data_folder
from qresolve.strict import read_toml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from qresolve.closure.request import Closure
    from qresolve.strict import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class LockstepRules:
    """``members`` are held at the toolkit's major.minor; ``exceptions`` are held by nothing."""

    metapackage: str
    major_suffix: str
    members: tuple[str, ...]
    exceptions: tuple[str, ...]

    def without(self, names: Iterable[str]) -> LockstepRules:
        """The same rules with more exceptions."""
        return LockstepRules(
            metapackage=self.metapackage,
            major_suffix=self.major_suffix,
            members=self.members,
            exceptions=tuple(sorted({*self.exceptions, *names})),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LockstepViolation:
    """``package`` at ``version`` is not of toolkit ``release``, which needs ``needs``."""

    package: str
    version: str
    release: str
    needs: str

    def __str__(self) -> str:
        return f"{self.package} {self.version} is not of CUDA toolkit {self.release}, which needs {self.needs}"


@cache
def read_lockstep_rules() -> LockstepRules:
    """The rules as shipped.

    Raises:
        DataInvalid: the file is missing or wrong.
    """
    return parse_lockstep_rules(read_toml(data_folder("constraints") / "lockstep.toml"))


def parse_lockstep_rules(table: Table) -> LockstepRules:
    """The rules in ``table``.

    Raises:
        DataInvalid: an unknown or missing key, or a name that is both member and exception.
    """
    table.check_schema(1)
    names: dict[str, list[str]] = {"member": [], "exception": []}
    for kind, found in names.items():
        for entry in table.tables(kind):
            name = entry.text("name")
            if any(name in others for others in names.values()):
                raise entry.fail("name", f"{name!r} stands twice")
            found.append(name)
            entry.text("source")
            entry.day("date")
            if kind == "exception":
                entry.text("why")
            entry.done()
    rules = LockstepRules(
        metapackage=table.text("metapackage"),
        major_suffix=table.text("major_suffix"),
        members=tuple(sorted(names["member"])),
        exceptions=tuple(sorted(names["exception"])),
    )
    table.done()
    return rules


def needed(release: str, pins: Mapping[str, str], rules: LockstepRules) -> dict[str, str]:
    """Package → specifier for everything that follows toolkit ``release``; ``pins`` are the metapackage's parts."""
    major, minor = release.split(".")[:2]
    specifiers = dict(pins)
    for member in rules.members:
        held = f"=={major}.{minor}.*"
        specifiers[member] = f"{specifiers[member]},{held}" if member in specifiers else held
    specifiers[rules.metapackage] = f"=={release}"
    return {name: text for name, text in sorted(specifiers.items()) if name not in rules.exceptions}


def lockstep_constraints(release: str, pins: Mapping[str, str], rules: LockstepRules) -> tuple[str, ...]:
    """Constraints that keep every part at toolkit ``release``, sorted. They install nothing by themselves."""
    return tuple(f"{name}{specifier}" for name, specifier in needed(release, pins, rules).items())


def check_lockstep(
    closure: Closure, release: str, pins: Mapping[str, str], rules: LockstepRules
) -> tuple[LockstepViolation, ...]:
    """Every package that is of another toolkit release, or named for another CUDA major."""
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415 - keeps this module's import fast

    specifiers = needed(release, pins, rules)
    major = release.split(".", 1)[0]
    named_for = re.compile(rf"{re.escape(rules.major_suffix)}(\d+)\Z")
    violations = []
    for package in closure.packages:
        if package.name in rules.exceptions:
            continue
        needs = specifiers.get(package.name)
        match = named_for.search(package.name)
        if needs is not None and not SpecifierSet(needs).contains(package.version, prereleases=True):
            shown = needs
        elif match is not None and match[1] != major:
            shown = f"the build for CUDA {major}"
        else:
            continue
        violations.append(
            LockstepViolation(package=package.name, version=package.version, release=release, needs=shown)
        )
    return tuple(violations)


def parse_toolkit_parts(requires_dist: Iterable[str]) -> dict[str, str]:
    """The parts of a toolkit from its METADATA's requirements: package → specifier, of all extras together."""
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415
    from packaging.utils import canonicalize_name  # noqa: PLC0415

    parts: dict[str, set[str]] = {}
    for text in requires_dist:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if requirement.specifier:
            parts.setdefault(canonicalize_name(requirement.name), set()).add(str(requirement.specifier))
    return {name: ",".join(sorted(texts)) for name, texts in sorted(parts.items())}


def predict_toolkit(
    requirements: Iterable[str],
    requires_dist: Callable[[str, str], tuple[str, ...] | None],
    *,
    environment: Mapping[str, str],
    metapackage: str,
) -> str | None:
    """The toolkit release that pinned requirements lead to; None where the records do not say.

    ``requires_dist`` gives what a recorded release declares, None for one that is not recorded. Only ``==`` pins
    are followed: of a range, which release is taken is the resolver's to say.
    """
    from packaging.requirements import Requirement  # noqa: PLC0415
    from packaging.utils import canonicalize_name  # noqa: PLC0415

    waiting = [(text, frozenset[str]()) for text in sorted(requirements)]
    seen: set[tuple[str, str, frozenset[str]]] = set()
    while waiting:
        text, extras = waiting.pop()
        requirement = Requirement(text)
        if requirement.marker is not None and not any(
            requirement.marker.evaluate({**environment, "extra": extra}) for extra in extras or {""}
        ):
            continue
        pinned = _pin(str(requirement.specifier))
        if pinned is None:
            continue
        name = canonicalize_name(requirement.name)
        if name == metapackage:
            return pinned
        key = (name, pinned, frozenset(requirement.extras))
        if key not in seen:
            seen.add(key)
            declared = requires_dist(name, pinned) or ()
            waiting += [(line, frozenset(requirement.extras)) for line in sorted(declared)]
    return None


def _pin(specifier: str) -> str | None:
    match = re.fullmatch(r"={2,3}\s*([0-9][^*,\s]*)", specifier)
    return None if match is None else match[1]
