"""The generated file of digests of a release's cited places: ``constraints/audited/<engine>-<version>.json``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from qresolve.audit.reread import Digest
from qresolve.errors import DataInvalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SCHEMA = "qresolve.audited/1"


def recorded_document(
    digests: Iterable[tuple[tuple[str, str, str], Digest]],
    *,
    engine: str,
    release: str,
    archives: Mapping[str, str],
) -> dict[str, Any]:
    """The file's values: records, cited paths, then ``[file, lines, digest]``; ``archives`` maps names to sha256."""
    records: dict[str, dict[str, dict[str, list[str]]]] = {}
    for (record, cited, what), digest in sorted(digests, key=lambda item: item[0]):
        place = [digest.path if digest.path != cited else "", digest.lines, digest.digest]
        records.setdefault(record, {}).setdefault(cited, {})[what] = place
    return {
        "schema": SCHEMA,
        "engine": engine,
        "release": release,
        "archives": dict(sorted(archives.items())),
        "records": records,
    }


def recorded_text(document: Mapping[str, Any]) -> str:
    """The file: one line a cited place, so that a diff shows which changed."""
    head = {key: value for key, value in document.items() if key != "records"}
    lines = json.dumps(head, indent=1, ensure_ascii=False)[:-2] + ',\n "records": {\n'
    blocks = []
    for record, cited in document["records"].items():
        rows = [
            f"   {json.dumps(path)}: {{"
            + ", ".join(f"{json.dumps(what)}: {json.dumps(place)}" for what, place in whats.items())
            + "}"
            for path, whats in cited.items()
        ]
        blocks.append(f"  {json.dumps(record)}: {{\n" + ",\n".join(rows) + "\n  }")
    return lines + ",\n".join(blocks) + "\n }\n}\n"


def parse_recorded(text: str, *, file: str) -> dict[tuple[str, str, str], Digest]:
    """The digests by record, cited path and what.

    Raises:
        DataInvalid: not such a file.
    """
    try:
        document = json.loads(text)
        if document["schema"] != SCHEMA:
            raise DataInvalid.at(file, "schema", f"must be {SCHEMA}")
        return {
            (record, path, what): Digest(path=place[0] or path, lines=place[1], digest=place[2])
            for record, cited in document["records"].items()
            for path, whats in cited.items()
            for what, place in whats.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise DataInvalid(
            f"{file}: not a file of digests: {error}", hint="qresolve audit ENGINE==VERSION --record"
        ) from error
