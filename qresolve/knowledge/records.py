"""What the data folder ``constraints/`` says, as frozen records. Read by :mod:`qresolve.knowledge.load`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date

    from packaging.specifiers import SpecifierSet

    from qresolve.facts import Value, Vocabulary
    from qresolve.gates import Expression, Named

Role = Literal["dense", "moe", "kv"]
ROLES: tuple[str, ...] = ("dense", "moe", "kv")
LOUDNESS: tuple[str, ...] = ("silent", "logged", "warned", "raises")
STATUSES: tuple[str, ...] = ("supported", "experimental", "measured-private")
"""How far the authors of a route vouch for it: fully; as an experiment; by measurements that they did not publish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a fact was read: ``where`` is a file with lines or symbol, or an address; ``checked`` the day.

    ``kind`` is ``stated`` (the source says it), ``measured`` (run here, bracketed by ``passes`` and ``fails``) or
    ``documented`` (known from documentation only; never carries an exit code 0 by itself).
    """

    kind: Literal["stated", "measured", "documented"]
    where: str
    checked: date
    passes: str = ""
    fails: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One test of a route: what it needs, what happens when it fails, where that was read."""

    id: str
    when: Expression
    loudness: str
    say: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassVariant:
    """The class of a route where ``when`` holds. ``class_`` may be ``unknown``, then ``why`` says why."""

    when: Expression
    class_: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One kernel implementation of an engine.

    ``select`` are the gates that the engine's selector tests, ``execute`` those that must hold for the picked route
    to run natively and that nobody tests. ``name`` is the engine's own name of it. ``backends`` are the values of the
    explicit backend setting that name it. ``built`` says whether its kernel is in a wheel or compiled at run time.
    ``status`` (:data:`STATUSES`) is not the class: what a kernel computes is read in its source, what its authors
    promise of it is theirs to say. It changes no verdict and is shown wherever the route is.
    """

    id: str
    name: str
    library: str
    built: Literal["precompiled", "jit"]
    backends: tuple[str, ...]
    explicit_only: bool
    select: tuple[Gate, ...]
    execute: tuple[Gate, ...]
    classes: tuple[ClassVariant, ...]
    source: Source
    status: str = "supported"
    status_why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Where ``when`` holds, ``route`` stands directly before ``before``, if it did not already."""

    when: Expression
    route: str
    before: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Force:
    """Where ``when`` holds the selector takes ``route`` and looks at no other; it raises when that is rejected."""

    when: Expression
    route: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explicit:
    """A configuration key by which a person names a backend.

    ``auto`` are its values that mean no choice. ``unmatched`` says what happens when the named backend has no route
    on this ladder: the whole ladder is used (``auto``) or the selector raises (``raise``). ``offer`` says whether
    qresolve may set it: a key that changes other formats too is simulated and never offered.
    """

    fact: str
    auto: tuple[str, ...]
    unmatched: Literal["auto", "raise"]
    offer: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """For (scheme, role), the routes in the engine's own order.

    ``disabled_by`` is the set fact whose members are names of routes that the selector skips. ``filter`` restricts
    the routes first, as the selector does. ``nothing`` is the error when every route is rejected.
    """

    id: str
    serves: tuple[str, ...]
    order: tuple[str, ...]
    moves: tuple[Move, ...]
    forces: tuple[Force, ...]
    explicit: tuple[Explicit, ...]
    disabled_by: str | None
    nothing: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """How the weights and activations of a format are held in one scheme.

    ``wants`` is the class that a person who asks for it wants. ``facts`` are the ``scheme.*`` facts of the scheme.
    ``common`` schemes are listed unasked beside the asked one.
    """

    format: str
    name: str
    roles: tuple[str, ...]
    wants: str
    meaning: str
    facts: Mapping[str, Value]
    common: bool

    def key(self, role: str) -> str:
        """``mxfp4@w4a4:dense``, the form in which ladders name what they serve."""
        return f"{self.format}@{self.name}:{role}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format with its schemes; ``default`` maps each role to its default scheme."""

    name: str
    meaning: str
    aliases: tuple[str, ...]
    schemes: tuple[Scheme, ...]
    default: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatBook:
    """All formats, the short names of single schemes (``awq`` is ``int4@awq``), and the digest of each format."""

    formats: tuple[Format, ...]
    aliases: Mapping[str, str]
    digests: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A named reference workload: ``workload.*`` facts that are assumed where no model is given."""

    name: str
    meaning: str
    facts: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A requirement of a release on a package that gates look at."""

    package: str
    requirement: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlockable:
    """Why no lock of a release can be made from the default index: what is wrong with a ``package`` it needs."""

    package: str
    why: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One release of an engine: what its wheels were built for and what it pins.

    ``cuda`` is the CUDA of the build of the default index's wheel, ``toolkit`` the release of the ``cuda-toolkit``
    metapackage that the pinned torch requires. ``tested_python`` is what its authors test, where that is less than
    what ``requires_python`` lets in. ``constraints`` are requirements that a lock adds, because the release's own
    metadata lets in what does not go together. A release that is ``unlockable`` is judged where it is named, and never
    taken by itself.
    """

    version: str
    released: date
    requires_python: SpecifierSet
    cuda: str
    toolkit: str | None
    pins: tuple[Pin, ...]
    source: Source
    tested_python: SpecifierSet | None = None
    constraints: tuple[str, ...] = ()
    unlockable: Unlockable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageIndex:
    """Where the wheels of an engine are, when the default index has none of them.

    ``packages`` must come from it and from nowhere else. ``flat``: a page of links instead of a simple index.
    ``upload_times`` False: it does not say when a file came. ``note`` is one clause about what is elsewhere.
    """

    name: str
    url: str
    packages: tuple[str, ...]
    flat: bool
    upload_times: bool
    note: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Provision:
    """A package that the environment may add: the fact it makes true and what it is asked for by."""

    fact: str
    value: str
    requirements: tuple[str, ...]
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim met in the wild that the sources refute; shown when a person is about to act on it."""

    id: str
    claim: str
    refutation: str
    serves: tuple[str, ...]
    when: Expression
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """All that is known of one engine, for one release.

    ``distribution`` is what installs it; ``ladders`` are keyed by what they serve (``mxfp4@w4a4:dense``);
    ``unserved`` says of a format why no ladder serves it; ``gated`` are the packages that gates look at, whose
    files a lock pins. ``digests`` maps ``kind:id`` of each record to the digest of its text. ``index`` says where its
    wheels are when the default index has none.
    """

    name: str
    distribution: str
    release: Release
    releases: tuple[Release, ...]
    vocabulary: Vocabulary
    conditions: Mapping[str, Named]
    routes: Mapping[str, Route]
    ladders: Mapping[str, Ladder]
    provisions: tuple[Provision, ...]
    unserved: Mapping[str, str]
    claims: tuple[Claim, ...]
    gated: tuple[str, ...]
    digests: Mapping[str, str]
    index: PackageIndex | None = None

    def ladder_for(self, scheme_key: str) -> Ladder | None:
        """The ladder that serves ``format@scheme:role``, if one does."""
        return self.ladders.get(scheme_key)
