"""Reading ``constraints/``: strict, and only what one question needs.

Every reader refuses unknown keys, dangling ids and *measured* floors without a bracket, naming file and dotted path.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from qresolve.classes import CLASSES
from qresolve.data import data_folder
from qresolve.errors import DataInvalid, UsageError
from qresolve.facts import FACT_TYPES, FactKind, Scope, Value, Vocabulary
from qresolve.knowledge.indexes import read_indexes
from qresolve.knowledge.records import ROLES, Format, FormatBook, PackageIndex, Release, Scheme, Source, Workload
from qresolve.strict import Table, read_toml

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date
    from pathlib import Path

SOURCE_KINDS = ("stated", "measured", "documented")


def digest_of(values: object) -> str:
    """The digest of a record: sha256 over its canonical JSON, so that comments and order do not count."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), default=str)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def read_source(table: Table, *, checked: date) -> Source:
    """The source of a record: ``where``, and ``kind``, ``passes``, ``fails`` where they are not the default."""
    kind = table.choice("kind", SOURCE_KINDS, "stated")
    source = Source(
        kind=kind,  # type: ignore[arg-type]
        where=table.text("where"),
        checked=table.day("checked") if "checked" in table else checked,
        passes=table.text("passes", ""),
        fails=table.text("fails", ""),
    )
    if kind == "measured" and not (source.passes and source.fails):
        raise table.fail("kind", "a measured fact needs both `passes` and `fails`")
    return source


def read_specifier(table: Table, key: str) -> SpecifierSet:
    """A PEP 440 specifier set."""
    try:
        return SpecifierSet(table.text(key))
    except InvalidSpecifier as error:
        raise table.fail(key, f"not a version specifier: {error}") from error


def read_version(table: Table, key: str) -> str:
    """A PEP 440 version, kept as written."""
    text = table.text(key)
    try:
        Version(text)
    except InvalidVersion as error:
        raise table.fail(key, f"not a version: {text!r}") from error
    return text


def read_fact_kinds(table: Table) -> Iterable[FactKind]:
    """The ``[[fact]]`` tables of a file."""
    for entry in table.tables("fact"):
        kind = entry.choice("type", FACT_TYPES)
        yield FactKind(
            key=entry.text("key"),
            type=kind,  # type: ignore[arg-type]
            scope=Scope(entry.choice("scope", tuple(Scope))),
            meaning=entry.text("meaning"),
            default=_value(entry, "default"),
            choices=tuple(
                _checked_value(entry, f"choices[{n}]", item) for n, item in enumerate(entry.raw("choices") or ())
            ),
            unfixed=_value(entry, "unfixed"),
            fix=entry.text("fix", "") if "fix" in entry else None,
            with_toolkit=_value(entry, "with-toolkit"),
            values=entry.texts("values", ()),
            may_be_absent=entry.flag("may-be-absent", default=False),
        )
        entry.done()


def _value(table: Table, key: str) -> Value | None:
    value = table.raw(key)
    return None if value is None else _checked_value(table, key, value)


def _checked_value(table: Table, key: str, value: Any) -> Value:
    if isinstance(value, list):
        return frozenset(str(item) for item in value)
    if isinstance(value, bool | int | str):
        return value
    raise table.fail(key, f"a fact's value is text, a number, true/false or a list, not {value!r}")


def read_vocabulary(extra: Iterable[FactKind] = ()) -> Vocabulary:
    """The words of ``constraints/facts.toml`` and those of an engine."""
    table = read_toml(data_folder("constraints") / "facts.toml", name="constraints/facts.toml")
    kinds = (*read_fact_kinds(table), *extra)
    table.done()
    return Vocabulary(kinds)


def _read_facts(table: Table, vocabulary: Vocabulary, prefix: str) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for key in table:
        full = f"{prefix}.{key}"
        if vocabulary.get(full) is None:
            raise table.fail(key, f"no fact is called `{full}`")
        values[full] = _checked_value(table, key, table.raw(key))
    return values


def read_formats() -> FormatBook:
    """The formats of ``constraints/formats.toml`` in file order."""
    table = read_toml(data_folder("constraints") / "formats.toml", name="constraints/formats.toml")
    vocabulary = read_vocabulary()
    formats: list[Format] = []
    digests: dict[str, str] = {}
    names: set[str] = set()
    for entry in table.tables("format"):
        name = entry.text("name")
        schemes = tuple(_read_scheme(item, name, vocabulary) for item in entry.tables("scheme"))
        default = {role: entry.table("default").text(role) for role in entry.table("default")}
        for role, scheme in default.items():
            if role not in ROLES:
                raise entry.fail(f"default.{role}", f"not a role; roles are {', '.join(ROLES)}")
            if not any(item.name == scheme and role in item.roles for item in schemes):
                raise entry.fail(f"default.{role}", f"no scheme `{scheme}` of {name} has the role {role}")
        found = Format(
            name=name,
            meaning=entry.text("meaning"),
            aliases=entry.texts("aliases", ()),
            schemes=schemes,
            default=default,
        )
        entry.raw("default")
        entry.done()
        for word in (name, *found.aliases):
            if word in names:
                raise entry.fail("name", f"`{word}` names two formats")
            names.add(word)
        formats.append(found)
        digests[f"format:{name}"] = digest_of(entry.values)
    aliases: dict[str, str] = {}
    for entry in table.tables("alias"):
        alias = entry.text("name")
        if alias in names or alias in aliases:
            raise entry.fail("name", f"`{alias}` names two things")
        format_name, _, scheme_name = entry.text("means").partition("@")
        if not any(item.name == format_name and any(s.name == scheme_name for s in item.schemes) for item in formats):
            raise entry.fail("means", f"no scheme is called `{entry.text('means')}`")
        aliases[alias] = entry.text("means")
        entry.done()
    table.done()
    return FormatBook(formats=tuple(formats), aliases=aliases, digests=digests)


def _read_scheme(table: Table, format_name: str, vocabulary: Vocabulary) -> Scheme:
    roles = table.texts("roles")
    for role in roles:
        if role not in ROLES:
            raise table.fail("roles", f"`{role}` is not a role; roles are {', '.join(ROLES)}")
    scheme = Scheme(
        format=format_name,
        name=table.text("name"),
        roles=roles,
        wants=table.choice("wants", CLASSES),
        meaning=table.text("meaning"),
        facts={"scheme.format": format_name, **_read_facts(table.table("facts"), vocabulary, "scheme")},
        common=table.flag("common", default=False),
    )
    table.done()
    return scheme


def schemes_by_key() -> dict[str, Scheme]:
    """Every scheme of every format by ``format@scheme:role``."""
    return {
        scheme.key(role): scheme for form in read_formats().formats for scheme in form.schemes for role in scheme.roles
    }


def read_workload(name: str | None = None) -> tuple[Workload, str]:
    """A workload of ``constraints/workloads.toml`` (the first where none is named), and its digest.

    Raises:
        UsageError: no such workload.

    """
    table = read_toml(data_folder("constraints") / "workloads.toml", name="constraints/workloads.toml")
    vocabulary = read_vocabulary()
    found: list[tuple[Workload, str]] = []
    for entry in table.tables("workload"):
        workload = Workload(
            name=entry.text("name"),
            meaning=entry.text("meaning"),
            facts=_read_facts(entry.table("facts"), vocabulary, "workload"),
        )
        entry.done()
        found.append((workload, digest_of(entry.values)))
    table.done()
    for workload, digest in found:
        if name in {None, workload.name}:
            return workload, digest
    raise UsageError(f"no workload is called `{name}`", hint=f"known: {', '.join(item.name for item, _ in found)}")


def read_release(table: Table, *, checked: date) -> Release:
    """One ``[[release]]`` table of an engine."""
    from qresolve.knowledge.records import Pin, Unlockable  # noqa: PLC0415 - beside their only use

    pins = []
    for entry in table.tables("pin"):
        pins.append(
            Pin(
                package=entry.text("package"),
                requirement=entry.text("requirement"),
                version=read_version(entry, "version"),
            )
        )
        entry.done()
    barred = table.optional_table("unlockable")
    unlockable = None
    if barred is not None:
        source = read_source(barred, checked=checked)
        unlockable = Unlockable(package=barred.text("package"), why=barred.text("why"), source=source)
        barred.done()
    release = Release(
        version=read_version(table, "version"),
        released=table.day("released"),
        requires_python=read_specifier(table, "requires-python"),
        cuda=read_version(table, "cuda"),
        toolkit=table.optional_text("toolkit"),
        pins=tuple(pins),
        source=read_source(table, checked=checked),
        tested_python=read_specifier(table, "tested-python") if "tested-python" in table else None,
        constraints=table.texts("constraints", ()),
        unlockable=unlockable,
    )
    table.done()
    return release


def read_applying_files(folder: Path, release: str, *, name: str) -> Iterable[Table]:
    """The TOML files of a folder whose head says no other release range, by name.

    Only the head is read first: most files of an engine are about other releases, and parsing them all is what
    would make a question slow.
    """
    for path in constraint_files(folder):
        head = path.read_text(encoding="utf-8").partition("\n[")[0]
        found = re.search(r'^releases = "([^"]*)"', head, re.MULTILINE)
        if found is not None:
            try:
                if not SpecifierSet(found[1]).contains(release, prereleases=True):
                    continue
            except InvalidSpecifier as error:
                raise DataInvalid.at(f"{name}/{path.name}", "releases", f"not a version specifier: {error}") from error
        yield read_toml(path, name=f"{name}/{path.name}")


def read_package_index(table: Table | None, *, checked: date) -> PackageIndex | None:
    """The ``[index]`` table of an engine, if it has one: the name of a known index, and what is elsewhere."""
    if table is None:
        return None
    name = table.text("name")
    known = read_indexes().find(name)
    if known is None or known.need != "engine":
        raise table.fail("name", f"no index of constraints/indexes.toml that is needed by an engine: {name!r}")
    found = PackageIndex(
        name=name,
        url=known.address(),
        packages=known.packages,
        flat=known.flat,
        upload_times=known.upload_times,
        note=table.text("note"),
        source=read_source(table, checked=checked),
    )
    table.done()
    return found


def constraint_files(folder: Path) -> tuple[Path, ...]:
    """The TOML files of a folder by name."""
    return tuple(sorted(folder.glob("*.toml")))
