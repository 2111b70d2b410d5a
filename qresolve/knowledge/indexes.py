"""Known package indexes: what may come from each, how it writes a CUDA release, and when it is needed.

The facts are in ``constraints/indexes.toml``; what is chosen for a request is in :mod:`qresolve.lanes`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal, cast

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from qresolve.data import data_folder
from qresolve.strict import read_toml

if TYPE_CHECKING:
    from pathlib import Path

    from qresolve.strict import Table

Need = Literal["lane", "missing", "build", "engine", "none"]

_NEEDS = ("lane", "missing", "build", "engine", "none")
_LAYOUTS = ("simple", "flat")
_FIELD = re.compile(r"\{([a-z]+)(?::(\d))?\}")
_FILE = "indexes.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownIndex:
    """One index. ``url`` may hold ``{lane}`` and ``{version}``; ``lanes`` are the CUDA releases it has, none: any.

    ``packages`` is all that may come from it. ``flat``: a page of links. ``upload_times``: it says when a file came.
    """

    name: str
    url: str
    lanes: tuple[str, ...]
    packages: tuple[str, ...]
    flat: bool
    upload_times: bool
    need: Need
    where: str

    def address(self, *, cuda: str = "", version: str = "") -> str:
        """The address for a CUDA release (``12.9``) and a release of the engine."""
        return self.url.replace("{lane}", lane_word(cuda) if cuda else "").replace("{version}", version)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalForm:
    """How a CUDA release is written in a local version: ``cu{major:2}{minor:1}`` for ``cu130``."""

    form: str
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFact:
    """Something about some versions of a package: the CUDA of the default index's build, or that it has none."""

    package: str
    versions: SpecifierSet
    cuda: str = ""

    def covers(self, package: str, version: str) -> bool:
        """Whether it speaks of that release; the local part does not count."""
        return package == self.package and self.versions.contains(Version(version).public, prereleases=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBuild:
    """A build of an engine's release for another CUDA than the default index's, and the index that has it.

    ``index`` is empty where the user himself gives the wheel.
    """

    engine: str
    version: str
    cuda: str
    index: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexBook:
    """All of ``indexes.toml``.

    ``pairs`` are packages that share their public version; by the major of ``runtimes`` a build shows its CUDA.
    """

    indexes: tuple[KnownIndex, ...]
    forms: tuple[LocalForm, ...]
    default_builds: tuple[VersionFact, ...]
    missing: tuple[VersionFact, ...]
    builds: tuple[EngineBuild, ...]
    pairs: tuple[tuple[str, ...], ...]
    runtimes: tuple[str, ...]

    def find(self, name: str) -> KnownIndex | None:
        """The index of that name, or None."""
        return next((index for index in self.indexes if index.name == name), None)

    def cuda_of_default(self, package: str, version: str) -> str | None:
        """The CUDA of the default index's build of a release, None where it is not recorded."""
        return next((fact.cuda for fact in self.default_builds if fact.covers(package, version)), None)

    def is_missing(self, package: str, version: str) -> bool:
        """Whether the default index is known not to have that release."""
        return any(fact.covers(package, version) for fact in self.missing)

    def cuda_of_local(self, version: str) -> str | None:
        """The CUDA that a local version names: ``13.0`` of ``2.14.0+cu130``; None where it names none."""
        local = Version(version).local
        if local is None:
            return None
        for form in self.forms:
            if match := form.pattern.match(local):
                return f"{int(match['major'])}.{int(match['minor'])}"
        return None

    def partners(self, package: str) -> tuple[str, ...]:
        """The packages that must have the public version of ``package``, without itself."""
        return tuple(name for pair in self.pairs if package in pair for name in pair if name != package)


def lane_word(cuda: str) -> str:
    """``cu129`` of ``12.9``, as the indexes' addresses have it."""
    major, minor = Version(cuda).release[:2]
    return f"cu{major}{minor}"


def parse_indexes(table: Table) -> IndexBook:
    """Check ``indexes.toml``.

    Raises:
        DataInvalid: a key is missing, unknown or contradicts another.
    """
    table.day("checked")
    table.text("read-from")
    forms = tuple(_parse_form(row) for row in table.tables("local"))
    indexes = tuple(_parse_index(row) for row in table.tables("index"))
    names = [index.name for index in indexes]
    if len(set(names)) != len(names):
        raise table.fail("index", f"each name once, not {names}")
    builds = []
    for row in table.tables("build"):
        build = EngineBuild(
            engine=row.text("engine"), version=row.text("version"), cuda=_cuda(row, "cuda"), index=row.text("index")
        )
        known = next((index for index in indexes if index.name == build.index), None)
        if known is None or build.cuda not in known.lanes:
            raise row.fail("index", f"no index `{build.index}` with CUDA {build.cuda}")
        _finish(row)
        builds.append(build)
    pairs = []
    for row in table.tables("pair"):
        pairs.append(row.texts("packages"))
        row.text("why")
        _finish(row)
    runtimes = []
    for row in table.tables("runtime"):
        runtimes.append(row.text("package"))
        _finish(row)
    book = IndexBook(
        indexes=indexes,
        forms=forms,
        default_builds=tuple(_parse_fact(row, cuda=True) for row in table.tables("default-build")),
        missing=tuple(_parse_fact(row, cuda=False) for row in table.tables("missing")),
        builds=tuple(builds),
        pairs=tuple(pairs),
        runtimes=tuple(runtimes),
    )
    table.done()
    return book


@cache
def read_indexes(folder: Path | None = None) -> IndexBook:
    """Read ``indexes.toml`` of ``folder``, by default of the shipped constraints.

    Raises:
        DataInvalid: the file is missing or wrong.
    """
    where = folder if folder is not None else data_folder("constraints")
    return parse_indexes(read_toml(where / _FILE, name=f"constraints/{_FILE}"))


def _parse_index(row: Table) -> KnownIndex:
    url, lanes = row.text("url"), row.texts("lanes", ())
    if not url.startswith("https://") or url.endswith("/"):
        raise row.fail("url", f"must begin with https:// and have no slash at the end, not {url!r}")
    if ("{lane}" in url) != bool(lanes):
        raise row.fail("lanes", "an address with {lane} has lanes, and no other")
    packages = row.texts("packages")
    if not packages or any(canonicalize_name(name) != name for name in packages):
        raise row.fail("packages", f"normalised names, at least one, not {list(packages)}")
    index = KnownIndex(
        name=row.text("name"),
        url=url,
        lanes=tuple(_checked_cuda(row, "lanes", lane) for lane in lanes),
        packages=packages,
        flat=row.choice("layout", _LAYOUTS) == "flat",
        upload_times=row.flag("upload-times"),
        need=cast("Need", row.choice("need", _NEEDS)),
        where=row.text("where"),
    )
    row.done()
    return index


def _parse_form(row: Table) -> LocalForm:
    """A form as a pattern at the start of a local version; what follows begins with a dot or is nothing."""
    form = row.text("form")
    pieces = []
    end = 0
    for match in _FIELD.finditer(form):
        pieces.append(re.escape(form[end : match.start()]))
        name, width = match.groups()
        what = r"\d+\.\d+(?:\.\d+)?" if name == "torch" else rf"\d{{{width}}}" if width else r"\d+"
        pieces.append(f"(?P<{name}>{what})")
        end = match.end()
    pieces.append(re.escape(form[end:]))
    if not {"major", "minor"} <= set(re.findall(r"\?P<([a-z]+)>", "".join(pieces))):
        raise row.fail("form", f"must hold {{major}} and {{minor}}, not {form!r}")
    _finish(row)
    return LocalForm(form=form, pattern=re.compile("".join(pieces) + r"(?=\.|\Z)"))


def _parse_fact(row: Table, *, cuda: bool) -> VersionFact:
    text = row.text("versions")
    try:
        versions = SpecifierSet(text)
    except InvalidSpecifier as error:
        raise row.fail("versions", f"not a version specifier: {text!r}") from error
    fact = VersionFact(package=row.text("package"), versions=versions, cuda=_cuda(row, "cuda") if cuda else "")
    _finish(row)
    return fact


def _cuda(row: Table, key: str) -> str:
    return _checked_cuda(row, key, row.text(key))


def _checked_cuda(row: Table, key: str, text: str) -> str:
    if re.fullmatch(r"\d{2}\.\d", text, re.ASCII) is None:
        raise row.fail(key, f"not a CUDA release: {text!r}")
    return text


def _finish(row: Table) -> None:
    """Every record says where it was read."""
    row.text("where")
    row.done()
