"""The side file of an audit that is under way: one JSON line a job that was answered, by what was asked.

It is only ever appended to, one whole line at a time, so that a process that is stopped leaves at most its last line
cut off; such a line is not read.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

from qresolve.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


def progress_path(record: Path) -> Path:
    """The side file of a record that is being made."""
    return record.with_name(f"{record.name}.part")


def job_keys(
    jobs: Iterable[Mapping[str, Any]], *, texts: tuple[bytes, ...], python: str, release: str
) -> dict[int, str]:
    """A digest for each job's number: of all that it asks, the scripts' texts, the interpreter and the release.

    The number itself does not count, so that a job is the same one under another choice of GPUs.
    """
    scripts = [hashlib.sha256(text).hexdigest() for text in texts]
    found = {}
    for job in jobs:
        asked = {key: value for key, value in job.items() if key != "id"}
        text = json.dumps([asked, scripts, python, release], sort_keys=True)
        found[int(job["id"])] = hashlib.sha256(text.encode()).hexdigest()
    return found


def read_progress(path: Path) -> dict[str, Mapping[str, Any]]:
    """What was answered so far, by the digest of the job.

    Raises:
        UsageError: the file is there and cannot be read.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    found: dict[str, Mapping[str, Any]] = {}
    for line in lines[:-1]:  # what follows the last line break was cut off
        try:
            document = json.loads(line)
            found[document["key"]] = document["answer"]
        except (ValueError, KeyError, TypeError):
            continue  # cut off, and another run wrote after it
    return found


def append_progress(path: Path, key: str, answer: Mapping[str, Any]) -> None:
    """Add one answered job; it is on the disk when this returns.

    Raises:
        UsageError: it cannot be written.
    """
    line = json.dumps({"key": key, "answer": dict(answer)}) + "\n"
    try:
        with path.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    line = "\n" + line  # the end of one that was cut off
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error
