"""A closure with one CUDA toolkit release: predict the release from records, resolve once, check.

Where the records do not lead to a release, or to another one than the closure has, it is resolved once more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from qresolve.closure.failure import ClosureFailure, FailureFacts, read_failure
from qresolve.closure.lockstep import (
    check_lockstep,
    needed,
    parse_toolkit_parts,
    predict_toolkit,
    read_lockstep_rules,
)
from qresolve.closure.uv import UvStopped, run_uv_compile
from qresolve.http.credentials import IndexAddress
from qresolve.wheels.index import cuda_toolkit_pins, read_rows_of_release

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from qresolve.closure.indexes import UserIndexes
    from qresolve.closure.lockstep import LockstepRules
    from qresolve.closure.request import Closure, ClosureRequest
    from qresolve.http.client import HttpClient

_ATTEMPTS = 3  # a second release can only come in when the first one's constraints change the set


def recorded_requirements(name: str, version: str) -> tuple[str, ...] | None:
    """What the wheel index says that ``name`` at ``version`` requires; None: not recorded."""
    rows = read_rows_of_release(name, version)
    return rows[0].declared.requires_dist if rows else None


def marker_environment(request: ClosureRequest) -> dict[str, str]:
    """The values that dependency markers have on the target."""
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{request.python}.0",
        "os_name": "posix",
        "platform_machine": request.machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{request.python}.0",
        "python_version": request.python,
        "sys_platform": "linux",
    }


def run_closure(
    request: ClosureRequest,
    indexes: UserIndexes,
    *,
    toolkit: str | None = None,
    rules: LockstepRules | None = None,
    requirements_of: Callable[[str, str], tuple[str, ...] | None] = recorded_requirements,
    pins_of: Callable[[str], Mapping[str, str] | None] = cuda_toolkit_pins,
    client: HttpClient | None = None,
    progress: Callable[[str], None] | None = None,
) -> Closure:
    """Resolve ``request`` with every CUDA part from one toolkit release.

    ``toolkit`` is the release that the caller knows of, None to look it up in the records. ``requirements_of``
    and ``pins_of`` are the recorded facts; a toolkit that is not recorded is read from the index. ``client`` None:
    one of its own, where the index has to be asked.

    Raises:
        ClosureFailure: there is none, with the reason.
        UsageError: a requirement or the cutoff cannot be read.
    """
    if indexes.offline:
        request = replace(request, offline=True)
    if client is None:
        from qresolve.http.client import open_http_client  # noqa: PLC0415

        with open_http_client(indexes, offline=request.offline) as own:
            return run_closure(
                request,
                indexes,
                toolkit=toolkit,
                rules=rules,
                requirements_of=requirements_of,
                pins_of=pins_of,
                client=own,
                progress=progress,
            )
    client.logins.add(
        IndexAddress(url=index.url, name=index.name, where=f"--index {index.name}") for index in request.indexes
    )
    rules = (rules or read_lockstep_rules()).without(request.lockstep_exceptions)
    release = toolkit or predict_toolkit(
        request.requirements,
        requirements_of,
        environment=marker_environment(request),
        metapackage=rules.metapackage,
    )
    pins = pins_of(release) if release is not None else None
    confirmed = False
    for _ in range(_ATTEMPTS):
        held = needed(release, pins, rules) if release is not None and pins is not None else {}
        # A prediction must not decide which release it is: torch's own pin does.
        held.pop(rules.metapackage, None)
        constraints = tuple(f"{name}{specifier}" for name, specifier in held.items())
        asked = replace(request, constraints=(*request.constraints, *constraints))
        try:
            closure = run_uv_compile(asked, indexes, progress=progress)
        except UvStopped as stopped:
            if not constraints:
                raise read_failure(stopped, asked, indexes, client) from stopped
            closure = _run_freely(request, indexes, client, progress=progress)
            found = closure.version_of(rules.metapackage)
            if confirmed or (found is not None and release is not None and _same(found, release)):
                raise read_failure(stopped, asked, indexes, client, lockstep=held, toolkit=release) from stopped
        found = closure.version_of(rules.metapackage)
        if found is None:
            # Without the metapackage nothing says which release the parts are of; a wrong prediction held some.
            return _run_freely(request, indexes, client, progress=progress) if constraints else closure
        if release is not None and pins is not None and _same(found, release):
            violations = check_lockstep(closure, release, pins, rules)
            if not violations:
                return replace(closure, toolkit=found)
            raise ClosureFailure(
                FailureFacts(
                    reason="cuda", package=violations[0].package, message="; ".join(str(one) for one in violations)
                )
            )
        release, confirmed = found, True
        pins = pins_of(found)
        if pins is None:
            pins = _read_pins(closure, rules, client)
    raise ClosureFailure(
        FailureFacts(
            reason="cuda",
            package=rules.metapackage,
            message=f"{rules.metapackage} changes with its own parts; the last release was {release}",
        )
    )


def _run_freely(
    request: ClosureRequest, indexes: UserIndexes, client: HttpClient, *, progress: Callable[[str], None] | None
) -> Closure:
    """Resolve without lockstep: shows whether lockstep is to blame, and which toolkit there really is."""
    try:
        return run_uv_compile(request, indexes, progress=progress)
    except UvStopped as stopped:
        raise read_failure(stopped, request, indexes, client) from stopped


def _same(left: str, right: str) -> bool:
    from packaging.version import Version  # noqa: PLC0415

    return Version(left) == Version(right)


def _read_pins(closure: Closure, rules: LockstepRules, client: HttpClient) -> Mapping[str, str]:
    """The parts of the toolkit release in ``closure``, from the METADATA of its wheel."""
    from email.parser import HeaderParser  # noqa: PLC0415

    from qresolve.closure.metadata import read_wheel_metadata  # noqa: PLC0415

    package = next(package for package in closure.packages if package.name == rules.metapackage)
    text = read_wheel_metadata(package.wheel, client)
    if text is None:
        raise ClosureFailure(
            FailureFacts(
                reason="cuda",
                package=package.name,
                message=f"the parts of {package.name} {package.version} are not recorded and could not be read",
            )
        )
    return parse_toolkit_parts(HeaderParser().parsestr(text).get_all("Requires-Dist") or ())
