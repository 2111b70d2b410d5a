"""What stopped a resolution, in one line and with the smallest change that would help.

uv's own words are read for what and whom; where they stop at "no usable wheels", the package's files on the index
say why. Nothing here shows credentials.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote, urlsplit

from qresolve.closure.explain import Reason, WheelTarget, explain_no_wheel
from qresolve.closure.indexes import redact_url, searched_urls
from qresolve.closure.tags import glibc_pair
from qresolve.closure.uv import PROJECT, UvStopped, known_glibcs, parse_cutoff, run_uv_compile
from qresolve.errors import NoResolution
from qresolve.install.child import redact

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qresolve.closure.indexes import UserIndexes
    from qresolve.closure.request import ClosureRequest
    from qresolve.closure.simple import ProjectFile
    from qresolve.http.client import HttpClient

FailureKind = Literal[
    "index", "glibc", "python", "machine", "platform", "variants", "cuda", "date", "yanked", "offline", "auth", "hash",
    "conflict",
]  # fmt: skip

_NAME = r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*?)"
_DECORATION = r"(?:\[[^\]]*\])?(?:\{[^}]*\})?"
_SPECIFIER = r"(?P<specifier>(?:(?:==|!=|<=|>=|~=|<|>)[^\s,]+(?:,(?=[=!<>~]))?)*)"
_SUBJECT = rf"(?<![\w.-]){_NAME}{_DECORATION}{_SPECIFIER}(?=[\s,]|$)"
_NO_WHEEL = re.compile(rf"{_SUBJECT} ha(?:s|ve) no (?:usable )?wheels")
_VARIANTS = re.compile(rf"{_SUBJECT} ha(?:s|ve) only unsupported wheel variants")
_YANKED = re.compile(rf"{_SUBJECT} (?:was|were) yanked(?: \(reason: (?P<why>[^)]*)\))?")
_PYTHON = re.compile(
    rf"does not satisfy Python(?P<needs>[^\s]+) and (?:all versions of )?{_SUBJECT} depends? on Python"
)
_NOT_FOUND = re.compile(rf"{_SUBJECT} was not found in the package registry")
_NO_VERSION = re.compile(rf"(?:there (?:is|are) no versions? of|only the following versions of) {_SUBJECT}")
_NOT_CACHED = re.compile(rf"{_SUBJECT} was not found in the cache|{_SUBJECT.replace('?P<', '?P<other_')} needs to be")
_DATE = re.compile(
    r"`(?P<name>[^`]+)` was filtered by `exclude-newer`.*?uploaded before (?P<have>\S+?)\."
    r"(?:\s.*?v(?P<version>\S+?)(?:, (?:was )?published at (?P<needs>\S+?))?\.(?:\s|$))?"
)
_AUTH = re.compile(
    r"An index(?: URL)? \((?P<url>[^)]+)\) (?:could not be queried due to [^(]*\(|returned an? )(?P<status>40[13])"
)
_HTTP = re.compile(r"HTTP status (?:client|server) error \((?P<status>\d{3})[^)]*\) for url \((?P<url>[^)]+)\)")
_FETCH = re.compile(r"(?:Failed to fetch: |for url \()`?(?P<url>[a-z][a-z0-9+.-]*://[^\s`)]+)")
_UNREADABLE = re.compile(r"Failed to (?:unzip|extract|read|download)[^:\n]*: `?(?P<name>[^\s`]+)")
_CAUSES = ("Connection refused", "dns error", "certificate", "timed out", "closed")
_HASH = re.compile(r"Hash mismatch for `?(?P<name>[^\s`]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureFacts:
    """What is known of a failure. ``change`` is the smallest change as options, None where none is known.

    ``specifiers``: the releases of ``package`` that are in question are those within any of them.
    ``unreachable``: the index itself, so that asking it for another release is of no use. ``address``: where other
    credentials are wanted.
    """

    reason: FailureKind
    message: str
    package: str | None = None
    specifiers: tuple[str, ...] = ("",)
    nearest: str | None = None
    change: str | None = None
    look_up: bool = False
    unreachable: bool = False
    address: str | None = None


class ClosureFailure(NoResolution):
    """No closure, classified. Its facts are those of :class:`FailureFacts`.

    ``detail`` is the resolver's own text without credentials.
    """

    def __init__(self, facts: FailureFacts, *, detail: str = "") -> None:
        super().__init__(facts.message, hint=facts.change)
        self.reason = facts.reason
        self.package = facts.package
        self.specifiers = facts.specifiers
        self.nearest = facts.nearest
        self.change = facts.change
        self.unreachable = facts.unreachable
        self.detail = detail


def shown_text(stderr: str) -> str:
    """The words of uv as they may be shown: no credentials, markers of names left out, the request called so."""
    text = re.sub(r"\{[^{}]*\}", "", redact(stderr)).replace(PROJECT, "the request")
    return "\n".join(line.rstrip() for line in text.splitlines() if not line.startswith("warning:")).strip()


def parse_failure(stderr: str, *, lockstep: Iterable[str] = (), toolkit: str | None = None) -> FailureFacts:
    """What uv says. ``look_up``: the package's files have to be looked at to say more.

    ``lockstep`` are the names that were held at CUDA toolkit release ``toolkit``.
    """
    text = " ".join(stderr.split())
    for read in (_read_transport, _read_solution):
        facts = read(text)
        if facts is not None:
            return facts
    cause = _first_cause(stderr)
    names = set(re.findall(r"[a-z0-9][a-z0-9._-]*[a-z0-9]", cause))
    held = sorted(names.intersection(lockstep))
    if held and toolkit is not None:
        return FailureFacts(
            reason="cuda",
            package=held[0],
            message=f"{held[0]} cannot come from CUDA toolkit {toolkit} as the rest does: {cause}",
        )
    return FailureFacts(reason="conflict", message=cause or "uv found no environment and does not say why")


def _read_transport(text: str) -> FailureFacts | None:
    """What keeps uv from reading the index at all."""
    if match := _HASH.search(text):
        return FailureFacts(
            reason="hash", package=match["name"], message=f"{redact(match['name'])} is not the file the index announces"
        )
    if match := _AUTH.search(text):
        return _auth(match["url"], match["status"])
    if match := _HTTP.search(text):
        if match["status"] in ("401", "403", "407"):
            return _auth(match["url"], match["status"])
        what = redact_url(match["url"])
        return FailureFacts(reason="index", package=_project(match["url"]), message=f"{what}: HTTP {match['status']}")
    if "network was disabled" in text or "Network connectivity is disabled" in text:
        cached = _NOT_CACHED.search(text)
        name = (cached["name"] or cached["other_name"]) if cached else None
        return FailureFacts(
            reason="offline",
            package=name,
            message=f"{name or 'a package'} is not in uv's cache, and the network is not to be used",
            change="leave out --offline once",
        )
    if (match := _UNREADABLE.search(text)) and "://" in match["name"]:  # a page of links, not a wheel
        return FailureFacts(reason="index", message=f"{redact_url(match['name'])} cannot be reached or holds no links")
    if match := _UNREADABLE.search(text):
        return FailureFacts(
            reason="index",
            package=match["name"].split("-")[0].replace("_", "-"),
            message=f"{match['name']} could not be read from the index: cut off, or not a wheel",
        )
    if "error: Failed to fetch" in text or "error sending request" in text or "operation timed out" in text:
        match = _FETCH.search(text)
        url = match["url"] if match else ""
        cause = next((word for word in _CAUSES if word in text), "")
        return FailureFacts(
            reason="index",
            package=_project(url),
            message=f"{redact_url(url) or 'the index'} cannot be reached" + (f" ({cause})" if cause else ""),
            unreachable=True,
        )
    return None


def _read_solution(text: str) -> FailureFacts | None:
    """What the index offers, and why it does not do."""
    if match := _VARIANTS.search(text):
        clauses = [one["specifier"] for one in _VARIANTS.finditer(text) if one["name"] == match["name"]]
        return FailureFacts(
            reason="variants",
            package=match["name"].lower(),
            specifiers=tuple(dict.fromkeys(clauses)),
            message=f"{match['name']}{match['specifier']} is there as variant wheels alone",
        )
    if match := _DATE.search(text):
        name, version, needs = match["name"], match["version"], match["needs"]
        if version and needs:
            return FailureFacts(
                reason="date",
                package=name,
                nearest=version,
                message=f"{name} {version} came on {needs}, after the cutoff {match['have']}",
                change=f"--exclude-newer {needs[:10]}",
            )
        return FailureFacts(
            reason="date",
            package=name,
            nearest=version,
            message=f"nothing of {name} is known to be older than the cutoff {match['have']}",
        )
    if match := _NO_WHEEL.search(text):
        clauses = [one["specifier"] for one in _NO_WHEEL.finditer(text) if one["name"] == match["name"]]
        return FailureFacts(
            reason="platform",
            package=match["name"].lower(),
            specifiers=tuple(dict.fromkeys(clauses)),
            message=f"{match['name']}{match['specifier']} has no wheel that fits the target",
            look_up=True,
        )
    if match := _PYTHON.search(text):
        return FailureFacts(
            reason="python",
            package=match["name"].lower(),
            specifiers=(match["specifier"],),
            message=f"{match['name']} {match['specifier'].removeprefix('==')} needs Python {match['needs']}",
            look_up=True,
        )
    if match := _YANKED.search(text):
        why = f": {match['why']}" if match["why"] else ""
        return FailureFacts(
            reason="yanked",
            package=match["name"].lower(),
            nearest=match["specifier"].removeprefix("=="),
            message=f"{match['name']} {match['specifier'].removeprefix('==')} was yanked{why}",
        )
    if match := _NOT_FOUND.search(text):
        return FailureFacts(
            reason="index", package=match["name"].lower(), message=f"no index that is set up has {match['name']}"
        )
    if match := re.search(rf"there (?:is|are) no versions? of {_SUBJECT}", text):
        return FailureFacts(
            reason="index",
            package=match["name"].lower(),
            message=f"the index has no {match['name']}{match['specifier']}",
            look_up=True,
        )
    return None


def _auth(url: str, status: str) -> FailureFacts:
    return FailureFacts(
        reason="auth",
        package=_project(url),
        message=f"{redact_url(url)} wants other credentials (HTTP {status})",
        unreachable=True,
        address=redact_url(url),
    )


def _project(url: str) -> str | None:
    """The project that an address of an index belongs to."""
    parts = [unquote(part) for part in urlsplit(url).path.split("/") if part]
    if not parts:
        return None
    last = parts[-1].removesuffix(".metadata")
    return last.split("-")[0].replace("_", "-").lower() if last.endswith(".whl") else last.lower()


def _first_cause(stderr: str) -> str:
    """The derivation in the words of uv, as one line."""
    lines: list[str] = []
    for line in shown_text(stderr).splitlines():
        if line.lstrip().startswith("cause:"):
            lines = [line.partition("cause:")[2]]
        elif lines and line.startswith("  "):
            lines.append(line)
        elif lines:
            break
    if not lines:
        lines = shown_text(stderr).splitlines()[:1]
    return " ".join(" ".join(lines).split())


def explain_facts(facts: FailureFacts, files: tuple[ProjectFile, ...] | None, target: WheelTarget) -> FailureFacts:
    """``facts`` made exact by the package's files; unchanged where those are not known or do not explain it."""
    if files is None or facts.package is None:
        return facts
    if facts.reason == "index":
        newest = _newest(files)
        if newest is None:
            return facts
        return replace(facts, nearest=newest, message=f"{facts.message}; the newest there is {newest}")
    reason = explain_no_wheel(files, target, facts.specifiers)
    if reason is None:
        return facts
    return _worded(replace(facts, nearest=reason.nearest), reason, target)


def _worded(facts: FailureFacts, reason: Reason, target: WheelTarget) -> FailureFacts:
    name, needs = facts.package, reason.needs or ""
    if reason.dimension == "glibc":
        message = f"{name} needs glibc >= {needs}; the target has {reason.have}"
        return replace(facts, reason="glibc", message=message, change=f"--glibc {needs}")
    if reason.dimension == "python":
        message = f"{name} has wheels for Python {needs}, none for {reason.have}"
        return replace(facts, reason="python", message=message, change=f"--python {needs}")
    if reason.dimension == "machine":
        message = f"{name} has wheels for {needs}, none for {reason.have}"
        return replace(facts, reason="machine", message=message, change=f"--machine {needs}")
    if reason.dimension == "date":
        message = f"{name} came on {needs}, after the cutoff {reason.have}"
        return replace(facts, reason="date", message=message, change=f"--exclude-newer {needs[:10]}")
    if reason.dimension == "yanked":
        message = f"every fitting wheel of {name} was yanked" + (f": {needs}" if needs else "")
        return replace(facts, reason="yanked", message=message)
    if reason.nearest is None:
        return replace(
            facts, message=f"{name}{' or '.join(facts.specifiers)} is there as source only, without any wheel"
        )
    where = f"Python {target.python} on {target.machine} with glibc {target.glibc}"
    return replace(facts, message=f"no wheel of {name} comes near {where}; the newest is {reason.nearest}")


def _newest(files: tuple[ProjectFile, ...]) -> str | None:
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename  # noqa: PLC0415

    versions = []
    for file in files:
        try:
            versions.append(parse_wheel_filename(file.filename)[1])
        except InvalidWheelFilename:
            continue
    return str(max(versions)) if versions else None


def read_failure(
    stopped: UvStopped,
    request: ClosureRequest,
    indexes: UserIndexes,
    client: HttpClient,
    *,
    lockstep: Iterable[str] = (),
    toolkit: str | None = None,
) -> ClosureFailure:
    """Classify ``stopped``, asking the index for the files of the package where that says more."""
    from qresolve.closure.simple import read_project_files  # noqa: PLC0415
    from qresolve.http.refusal import refused_login  # noqa: PLC0415

    if not stopped.stderr or stopped.message != "uv found no environment":
        facts = FailureFacts(reason="index", message=stopped.message)
        return ClosureFailure(facts, detail=shown_text(stopped.stderr))
    facts = parse_failure(stopped.stderr, lockstep=lockstep, toolkit=toolkit)
    target = WheelTarget(
        python=request.python,
        machine=request.machine,
        glibc=request.glibc,
        cutoff=None if request.cutoff is None else parse_cutoff(request.cutoff),
    )
    if facts.look_up and facts.package is not None:
        if client.settings.offline or request.offline:
            files = _read_fitting_files(facts.package, request, indexes)
        else:
            gated = [index.url for index in request.indexes if facts.package in index.packages]
            files = read_project_files(facts.package, gated or searched_urls(indexes), client)
        facts = explain_facts(facts, files, target)
    if facts.address is not None:
        said, change = refused_login(facts.address, client.logins)
        facts = replace(facts, message=f"{facts.message}: {said}", change=change)
    bound = [index.name for index in request.indexes if facts.package in index.packages]
    if facts.reason == "index" and bound:
        facts = replace(facts, message=f"{facts.message} (it must come from the index `{bound[0]}`)")
    return ClosureFailure(facts, detail=shown_text(stopped.stderr))


def _read_fitting_files(package: str, request: ClosureRequest, indexes: UserIndexes) -> tuple[ProjectFile, ...] | None:
    """Without the index: the wheel of ``package`` that uv takes from its cache for a newer glibc, if any."""
    from qresolve.closure.simple import ProjectFile  # noqa: PLC0415

    # No uv knows glibc 2.0: its refusal lists what it knows.
    try:
        run_uv_compile(replace(request, glibc="2.0"), indexes)
        newer: tuple[str, ...] = ()
    except UvStopped as refused:
        newer = known_glibcs(refused.stderr, request.machine)
    for glibc in newer:
        if glibc_pair(glibc) <= glibc_pair(request.glibc):
            continue
        try:
            closure = run_uv_compile(replace(request, glibc=glibc), indexes)
        except NoResolution:
            continue
        found = [one.wheel.filename for one in closure.packages if one.name == package]
        return tuple(ProjectFile(filename=filename) for filename in found) or None
    return None
