"""One run of ``uv pip compile``: everything it may see goes in as a value, a full hashed set comes out.

uv reads no configuration of the user's: it gets a private file with the indexes that were read before, and a
private folder to run in. Gated packages are direct dependencies of a project there, as uv's explicit indexes hold
for direct dependencies only.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qresolve.closure.indexes import redact_url
from qresolve.closure.process import run_captured
from qresolve.closure.request import Closure
from qresolve.closure.tags import glibc_pair, select_wheel, target_tags
from qresolve.errors import NoResolution, UsageError
from qresolve.install.child import redact
from qresolve.lock.model import LockedPackage, LockedWheel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from packaging.tags import Tag

    from qresolve.closure.indexes import UserIndexes
    from qresolve.closure.request import ClosureRequest, NamedIndex

# How the request is called in uv's own words; replaced before anything is shown.
PROJECT = "qresolve-request"


class UvStopped(NoResolution):
    """uv ended without a result. ``stderr`` is its whole text; :mod:`qresolve.closure.failure` reads it."""

    def __init__(self, message: str, *, stderr: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.stderr = stderr


def direct_requirements(request: ClosureRequest, also: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The requirements in one order, and the names ``also`` that none of them has."""
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415
    from packaging.utils import canonicalize_name  # noqa: PLC0415

    named: set[str] = set()
    for text in request.requirements:
        try:
            named.add(canonicalize_name(Requirement(text).name))
        except InvalidRequirement as error:
            raise UsageError(f"not a requirement: {text!r}: {str(error).splitlines()[0]}") from error
    return tuple(sorted({*request.requirements, *(name for name in also if name not in named)}))


def project_text(request: ClosureRequest, also: tuple[str, ...] = ()) -> str:
    """The project that uv resolves: requirements, and which index each gated one must come from."""
    import tomli_w  # noqa: PLC0415

    direct = direct_requirements(request, also)
    names = {_name(text) for text in direct}
    explicit = [index for index in request.indexes if names.intersection(index.packages)]
    # A workspace of its own: uv would otherwise take one from a folder above, with its sources.
    settings: dict[str, Any] = {"workspace": {"members": []}}
    if explicit:
        settings["sources"] = dict(
            sorted(
                (
                    (package, {"index": index.name})
                    for index in explicit
                    for package in index.packages
                    if package in names
                ),
                key=lambda source: source[0],
            )
        )
        settings["index"] = [
            {"name": index.name, "url": index.url, "explicit": index.explicit}
            | ({"format": "flat"} if index.flat else {})
            for index in sorted(explicit, key=lambda index: index.name)
        ]
    project = {
        "project": {"name": PROJECT, "version": "0", "dependencies": list(direct)},
        "tool": {"uv": settings},
    }
    return tomli_w.dumps(project)


def configuration_text(indexes: UserIndexes, metadata: tuple[tuple[str, str, tuple[str, ...]], ...] = ()) -> str:
    """The configuration for uv: the user's indexes in order and what goes with them; requirements given by hand."""
    import tomli_w  # noqa: PLC0415

    tables = []
    for index in indexes.indexes:
        table: dict[str, Any] = {"url": index.url, **dict(index.options)}
        if index.name is not None:
            table["name"] = index.name
        if index.default:
            table["default"] = True
        if index.explicit:
            table["explicit"] = True
        tables.append(table)
    settings = dict(indexes.settings)
    if tables:
        settings["index"] = tables
    if metadata:
        settings["dependency-metadata"] = [
            {"name": name, "version": version, "requires-dist": list(requires)} for name, version, requires in metadata
        ]
    return tomli_w.dumps(settings)


def compile_command(uv: str, request: ClosureRequest, *, interpreter: str, platform: str) -> tuple[str, ...]:
    """The command, to be run in the folder that holds its files.

    ``interpreter`` is any CPython here: uv asks for one, but judges by the target's version and platform.
    """
    command = [
        uv, "pip", "compile", "pyproject.toml", "--config-file", "uv.toml", "--format", "pylock.toml",
        "--only-binary", ":all:", "--python", interpreter, "--no-python-downloads",
        "--python-version", request.python, "--python-platform", platform,
        "--no-header", "--color", "never", "--no-progress",
    ]  # fmt: skip
    for option, texts in _files(request):
        if texts:  # uv warns of an empty file
            command += [f"--{option}", f"{option}.txt"]
    if request.cutoff is not None:
        command += ["--exclude-newer", parse_cutoff(request.cutoff)]
        free = {name for index in request.indexes if not index.upload_times for name in index.packages}
        for name in sorted(free):
            command += ["--exclude-newer-package", f"{name}=false"]
    for folder in request.links:
        command += ["--find-links", folder]
    if request.offline:
        command.append("--offline")
    return tuple(command)


def parse_cutoff(text: str) -> str:
    """A cutoff as a moment in UTC. A date means the whole day in UTC; uv itself would take this host's zone.

    Raises:
        UsageError: neither a date nor a moment with its zone.
    """
    from datetime import UTC, date, datetime, time, timedelta  # noqa: PLC0415

    try:
        if len(text) == len("2026-11-30"):
            moment = datetime.combine(date.fromisoformat(text) + timedelta(days=1), time(), UTC)
        else:
            moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"not a date or moment: {text!r}", hint="--exclude-newer 2026-11-30") from error
    if moment.tzinfo is None:
        raise UsageError(f"the cutoff {text!r} names no time zone", hint=f"--exclude-newer {text}Z")
    return in_utc(moment)


def in_utc(moment: datetime) -> str:
    """A moment in UTC as RFC 3339 with a Z."""
    from datetime import UTC  # noqa: PLC0415

    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def known_glibcs(stderr: str, machine: str) -> tuple[str, ...]:
    """The glibc releases that uv lists for ``machine`` when it refuses a platform, oldest first."""
    listed = stderr.partition("possible values")[2].partition("]")[0]
    found = {
        (int(match[1]), int(match[2])) for match in re.finditer(rf"{re.escape(machine)}-manylinux_(\d+)_(\d+)", listed)
    }
    return tuple(f"{major}.{minor}" for major, minor in sorted(found))


def nearest_platform(stderr: str, machine: str, glibc: str) -> str | None:
    """Of the platforms that uv lists in its refusal, the newest one for ``machine`` that is not above ``glibc``."""
    wanted = glibc_pair(glibc)
    older = [known for known in known_glibcs(stderr, machine) if glibc_pair(known) <= wanted]
    return _platform(machine, older[-1]) if older else None


def _platform(machine: str, glibc: str) -> str:
    return f"{machine}-manylinux_{glibc.replace('.', '_')}"


def parse_pylock(text: str, *, ranks: Mapping[Tag, int], named: Mapping[str, NamedIndex]) -> tuple[LockedPackage, ...]:
    """The result of uv with the one best wheel of each package, sorted by name.

    Raises:
        NoResolution: a package without a wheel for the target, or without a sha256.
    """
    import tomli  # noqa: PLC0415

    packages = []
    for table in tomli.loads(text).get("packages", ()):
        name = table["name"]
        wheels = [table["archive"]] if "archive" in table else table.get("wheels", [])
        by_filename = {_filename(wheel): wheel for wheel in wheels}
        best = select_wheel(by_filename, ranks)
        if best is None:
            raise NoResolution(f"{name} {table.get('version', '')}: none of its {len(wheels)} files fits the target")
        wheel = by_filename[best]
        sha256 = wheel.get("hashes", {}).get("sha256")
        if sha256 is None:
            raise NoResolution(f"{name}: the index gives no sha256 for {best}, so it cannot be locked")
        index = named.get(name)
        uploaded = wheel.get("upload-time")
        packages.append(
            LockedPackage(
                name=name,
                version=table.get("version") or best.split("-")[1],
                wheel=LockedWheel(
                    filename=best,
                    url=redact_url(wheel.get("url") or Path(wheel["path"]).as_uri()),
                    sha256=sha256,
                    size=wheel.get("size"),
                    upload_time=None if uploaded is None else uploaded.isoformat().replace("+00:00", "Z"),
                ),
                index="direct" if "archive" in table else ("default" if index is None else index.name),
                index_url=None if index is None else redact_url(index.url),
            )
        )
    return tuple(sorted(packages, key=lambda package: package.name))


def parse_notes(stderr: str) -> tuple[str, ...]:
    """What uv warns of although it found an environment, for example a pinned release that was yanked."""
    lines = (line.strip() for line in stderr.splitlines())
    return tuple(sorted({redact(line.removeprefix("warning: ")) for line in lines if line.startswith("warning: ")}))


def run_uv_compile(
    request: ClosureRequest,
    indexes: UserIndexes,
    *,
    interpreter: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Closure:
    """Resolve ``request``.

    A package of a named index that comes in by another package's wish is made a direct requirement in a second
    run, as only such ones are bound to an index; so is one that the first run looked for elsewhere in vain.

    Raises:
        UvStopped: no result; not yet classified.
        UsageError: a requirement that cannot be read.
    """
    also: tuple[str, ...] = ()
    while True:
        direct = {_name(text) for text in direct_requirements(request, also)}
        named = {name: index for index in request.indexes for name in index.packages if name in direct}
        wanted = {name for index in request.indexes for name in index.packages} - direct
        if progress is not None:
            progress(f"resolving {', '.join(request.requirements[:3])} with uv")
        try:
            packages, notes = _run_once(
                request, indexes, also=also, named=named, interpreter=interpreter or sys.executable
            )
        except UvStopped as stopped:
            if not (missed := wanted & _spoken_of(stopped.stderr)):
                raise
            also = tuple(sorted({*also, *missed}))
            continue
        strayed = wanted.intersection(package.name for package in packages)
        if not strayed:
            return Closure(packages=packages, notes=notes)
        also = tuple(sorted({*also, *strayed}))


def _spoken_of(stderr: str) -> set[str]:
    """The words in which a failure can name a package."""
    return set(re.findall(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?", stderr))


def _run_once(
    request: ClosureRequest,
    indexes: UserIndexes,
    *,
    also: tuple[str, ...],
    named: Mapping[str, NamedIndex],
    interpreter: str,
) -> tuple[tuple[LockedPackage, ...], tuple[str, ...]]:
    from qresolve.install.installers import find_uv  # noqa: PLC0415

    ranks = target_tags(request.python, request.machine, request.glibc)
    with tempfile.TemporaryDirectory(prefix="qresolve-") as name:
        folder = Path(name)  # private to the user (mode 0700): the configuration can hold credentials
        files = {
            "pyproject.toml": project_text(request, also),
            "uv.toml": configuration_text(indexes, request.metadata),
            **{f"{option}.txt": "".join(f"{text}\n" for text in texts) for option, texts in _files(request)},
        }
        for filename, text in files.items():
            (folder / filename).write_text(text, encoding="utf-8")
        platform: str | None = _platform(request.machine, request.glibc)
        refused = False
        while platform is not None:
            command = compile_command(find_uv(), request, interpreter=interpreter, platform=platform)
            ended = run_captured(command, variables=dict(indexes.variables), folder=folder, timeout=request.timeout)
            if ended.status == 0:
                return parse_pylock(ended.stdout, ranks=ranks, named=named), parse_notes(ended.stderr)
            if refused or "invalid value" not in ended.stderr or "--python-platform" not in ended.stderr:
                break
            # uv knows only some glibc releases; the next older one it knows accepts no wheel too many.
            refused = True
            platform = nearest_platform(ended.stderr, request.machine, request.glibc)
    if platform is None:
        raise UvStopped(f"uv cannot resolve for {request.machine} with glibc {request.glibc}", stderr=ended.stderr)
    if ended.status is None:
        raise UvStopped(f"uv did not end within {request.timeout:g} s", stderr=ended.stderr)
    raise UvStopped("uv found no environment", stderr=ended.stderr)


def _files(request: ClosureRequest) -> tuple[tuple[str, list[str]], ...]:
    return (
        ("constraints", sorted(set(request.constraints))),
        ("overrides", sorted(set(request.overrides))),
        ("excludes", sorted(set(request.excludes))),
    )


def _name(requirement: str) -> str:
    from packaging.requirements import Requirement  # noqa: PLC0415
    from packaging.utils import canonicalize_name  # noqa: PLC0415

    return canonicalize_name(Requirement(requirement).name)


def _filename(wheel: Mapping[str, Any]) -> str:
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415

    if "name" in wheel:
        return str(wheel["name"])
    address = wheel.get("url") or wheel.get("path", "")
    return unquote(urlsplit(address).path.rsplit("/", 1)[-1])
