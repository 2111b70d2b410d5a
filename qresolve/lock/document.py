"""A lock as a PEP 751 document and back, pure.

``[tool.qresolve]`` and ``[packages.tool.qresolve]`` hold what only we read. ``seal`` is a digest over all the
rest, so that an edited verdict, a removed setting or another address is noticed; ``parts`` are digests of single
parts, so that it can be said which. They guard against edits, not against a forger.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from qresolve.closure.indexes import redact_url
from qresolve.errors import DataInvalid, Refuted, UsageError
from qresolve.lock.model import (
    GatedBecause,
    Lock,
    LockedFormat,
    LockedPackage,
    LockedTarget,
    LockedWheel,
)
from qresolve.setting import Setting
from qresolve.strict import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = 1
_PART_KEYS = ("target", "formats", "settings", "data")
_FORMAT_KEYS = ("format", "scheme", "role", "arch", "wanted", "verdict", "level", "route")


def lock_document(lock: Lock) -> dict[str, Any]:
    """The document of ``lock``; the same lock gives the same document, keys in one order. No credentials."""
    target = lock.target
    tool: dict[str, Any] = {
        "schema": SCHEMA,
        "requested": list(lock.requested),
        "engine": {"name": lock.engine, "version": lock.engine_version},
        "target": _without_none(
            {
                "gpus": [{"name": name, "arch": arch} for name, arch in target.gpus],
                "machine": target.machine,
                "glibc": target.glibc,
                "python": target.python,
                "driver": target.driver,
                "cuda": target.cuda,
            }
        ),
        "driver-floor": lock.driver_floor,
        "cutoff": lock.cutoff,
        "workload": lock.workload,
        "allow": list(lock.allowed),
        "assumed": dict(lock.assumed),
        "formats": [{key: getattr(row, key) for key in _FORMAT_KEYS} for row in lock.formats],
        "settings": [setting.to_mapping() for setting in lock.settings],
        "data": dict(lock.data),
        "data-digest": lock.data_digest,
    }
    document: dict[str, Any] = {
        "lock-version": "1.0",
        "environments": [environment_marker(target)],
        "requires-python": f"=={'.'.join(target.python.split('.')[:2])}.*",
        "created-by": "qresolve",
        "packages": [_package_table(package) for package in lock.packages],
        "tool": {"qresolve": _without_none(tool)},
    }
    document["tool"]["qresolve"]["parts"] = part_digests(document)
    document["tool"]["qresolve"]["seal"] = seal_of(document)
    return document


def environment_marker(target: LockedTarget) -> str:
    """The marker by which every installer refuses another platform. glibc is left to the wheels' tags."""
    return f"implementation_name == 'cpython' and sys_platform == 'linux' and platform_machine == '{target.machine}'"


def _package_table(package: LockedPackage) -> dict[str, Any]:
    wheel = package.wheel
    because = package.because
    address = redact_url(wheel.url)
    reasons: dict[str, Any] = _without_none(
        {"index": package.index, "variant": wheel.variant, "url": None if wheel.path is None else address}
    )
    if because is not None:
        reasons |= _without_none(
            {
                "routes": list(because.routes),
                "gates": list(because.gates),
                "cuda": because.cuda,
                "record": because.record,
            }
        )
    return _without_none(
        {
            "name": package.name,
            "version": package.version,
            "requires-python": package.requires_python,
            "index": None if package.index_url is None else redact_url(package.index_url),
            "wheels": [
                _without_none(
                    {
                        "name": wheel.filename,
                        "upload-time": None if wheel.upload_time is None else _moment(wheel.upload_time),
                        "path": wheel.path,
                        "url": address if wheel.path is None else None,
                        "size": wheel.size,
                        "hashes": {"sha256": wheel.sha256},
                    }
                )
            ],
            "tool": {"qresolve": reasons},
        }
    )


def part_digests(document: Mapping[str, Any]) -> dict[str, str]:
    """Short digests of single parts, only to tell which part of a broken seal differs."""
    tool = document["tool"]["qresolve"]
    parts = {key: tool.get(key) for key in _PART_KEYS}
    parts["packages"] = document.get("packages")
    return {key: _digest(value)[:16] for key, value in sorted(parts.items())}


def seal_of(document: Mapping[str, Any]) -> str:
    """``sha256:`` and the digest over the canonical JSON of everything but the seal."""
    tool = {key: value for key, value in document["tool"]["qresolve"].items() if key != "seal"}
    rest = {**document, "tool": {**document["tool"], "qresolve": tool}}
    return f"sha256:{_digest(rest)}"


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_shown_moment)
    return hashlib.sha256(text.encode()).hexdigest()


def parse_document(document: Mapping[str, Any], *, name: str) -> Lock:
    """The lock in ``document``; ``name`` is how errors call the file.

    Raises:
        UsageError: a lock, but not one of ours.
        DataInvalid: not valid by PEP 751, or with keys that this version does not know.
        Refuted: the seal is broken.
    """
    from packaging.pylock import Pylock, PylockUnsupportedVersionError, PylockValidationError  # noqa: PLC0415

    try:
        Pylock.from_dict(document)
    except (PylockValidationError, PylockUnsupportedVersionError) as error:
        raise DataInvalid(f"{name}: not a valid pylock file: {error}") from error
    tool = document.get("tool", {}).get("qresolve")
    if not isinstance(tool, dict):
        raise UsageError(
            f"{name} is a lock file, but qresolve did not write it", hint="qresolve lock --gpu auto --formats fp8"
        )
    top = Table(document, file=name)
    table = top.table("tool").table("qresolve")
    if table.whole("schema") != SCHEMA:
        raise table.fail("schema", f"is {tool['schema']}; this version reads {SCHEMA}")
    _check_seal(document, name=name)
    return _parse_lock(top, table)


def _check_seal(document: Mapping[str, Any], *, name: str) -> None:
    tool = document["tool"]["qresolve"]
    hint = _lock_again(tool)
    if "seal" not in tool:
        raise Refuted(f"{name}: the seal is missing, so nothing in it can be trusted", hint=hint)
    if tool["seal"] == seal_of(document):
        return
    noted = tool.get("parts")
    noted = noted if isinstance(noted, dict) else {}
    changed = [key for key, digest in part_digests(document).items() if noted.get(key) != digest]
    what = ", ".join(changed) if changed else "something beside packages, formats, settings, target and data"
    raise Refuted(f"{name} was edited after it was written; cannot be trusted: {what}", hint=hint)


def _lock_again(tool: Mapping[str, Any]) -> str:
    """The command that would lock the same request, as far as the file still says which it was."""
    try:
        gpus = ",".join(str(gpu["name"]) for gpu in tool["target"]["gpus"])
        formats = ",".join(str(selector) for selector in tool["requested"])
    except (KeyError, TypeError):
        gpus = formats = ""
    return f"qresolve lock --gpu {shlex.quote(gpus or 'auto')} --formats {shlex.quote(formats or 'fp8')}"


def _parse_lock(top: Table, table: Table) -> Lock:
    engine, target = table.table("engine"), table.table("target")
    assumed, data = table.table("assumed"), table.table("data")
    table.raw("seal")
    table.raw("parts")
    lock = Lock(
        target=LockedTarget(
            gpus=tuple(_parse_gpu(gpu) for gpu in target.tables("gpus")),
            machine=target.text("machine"),
            glibc=target.text("glibc"),
            python=target.text("python"),
            driver=target.optional_text("driver"),
            cuda=target.optional_text("cuda"),
        ),
        engine=engine.text("name"),
        engine_version=engine.text("version"),
        packages=tuple(_parse_package(package) for package in top.tables("packages")),
        formats=tuple(_parse_format(row) for row in table.tables("formats")),
        settings=tuple(_parse_setting(row) for row in table.tables("settings")),
        data_digest=table.text("data-digest", ""),
        requested=table.texts("requested"),
        assumed=tuple((key, assumed.text(key, "")) for key in assumed.keys()),  # noqa: SIM118 - a Table is no mapping
        allowed=table.texts("allow"),
        driver_floor=table.optional_text("driver-floor"),
        cutoff=table.optional_text("cutoff"),
        workload=table.optional_text("workload"),
        data=tuple((key, data.text(key)) for key in data.keys()),  # noqa: SIM118 - a Table is no mapping
    )
    for read in (engine, target, table):
        read.done()
    return lock


def _parse_gpu(table: Table) -> tuple[str, str]:
    gpu = (table.text("name"), table.text("arch"))
    table.done()
    return gpu


def _parse_format(table: Table) -> LockedFormat:
    row = LockedFormat(
        format=table.text("format"),
        scheme=table.text("scheme"),
        role=table.text("role"),
        arch=table.text("arch"),
        wanted=table.text("wanted"),
        verdict=table.text("verdict"),
        level=table.text("level"),
        route=table.text("route", ""),
    )
    table.done()
    return row


def _parse_setting(table: Table) -> Setting:
    return Setting.from_mapping({key: table.raw(key) for key in table.keys()})  # noqa: SIM118 - a Table is no mapping


def _parse_package(table: Table) -> LockedPackage:
    wheels = tuple(table.tables("wheels"))
    if len(wheels) != 1:
        raise table.fail("wheels", f"must be one wheel, not {len(wheels)}")
    wheel = wheels[0]
    reasons = table.table("tool").table("qresolve")
    uploaded = wheel.raw("upload-time")
    path = wheel.optional_text("path")
    because = None
    if any(key in reasons for key in ("routes", "gates", "cuda", "record")):
        because = GatedBecause(
            routes=reasons.texts("routes"),
            gates=reasons.texts("gates"),
            cuda=reasons.optional_text("cuda"),
            record=reasons.optional_text("record"),
        )
    package = LockedPackage(
        name=table.text("name"),
        version=table.text("version"),
        wheel=LockedWheel(
            filename=wheel.text("name"),
            url=wheel.text("url") if path is None else reasons.text("url"),
            sha256=wheel.table("hashes").text("sha256"),
            size=wheel.whole("size") if "size" in wheel else None,
            upload_time=None if uploaded is None else _shown_moment(uploaded),
            variant=reasons.optional_text("variant"),
            path=path,
        ),
        index=reasons.text("index"),
        index_url=table.optional_text("index"),
        requires_python=table.optional_text("requires-python"),
        because=because,
    )
    for read in (wheel, reasons, table):
        read.done()
    return package


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise DataInvalid(f"the upload time {text!r} names no time zone")
    return moment.astimezone(UTC)


def _shown_moment(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
