"""Reading the cited files of a release from the user's index: an sdist streamed once, a wheel by ranges, both cached.

The cache is ``$XDG_CACHE_HOME/qresolve/sources``, by the archive's sha256; what is in it was checked when it was put
there (an sdist against the index's sha256, a wheel's member against the zip's own table).
"""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
import tempfile
from email.parser import Parser
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from qresolve.audit.reread import ArchiveFiles
from qresolve.errors import Unproved
from qresolve.wheels.remote import check_member_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qresolve.audit.records import Archive
    from qresolve.wheels.pip_index import IndexFile, PipIndex
    from qresolve.wheels.remote import WheelSource

_MOST_FILE = 4 * 1024**2  # bytes of one source file
_MOST_KEPT = 128 * 1024**2  # bytes of all that are kept in memory
_MOST_ARCHIVE = 2 * 1024**3
_OK = 200


def cache_folder() -> Path:
    """Where archives and members are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "qresolve" / "sources"


class _Kept:
    """Texts of cited files, and of Python files that bind a cited name; bounded."""

    def __init__(self, wanted: Iterable[str], symbols: Iterable[str]) -> None:
        self._wanted = frozenset(wanted)
        self._names = frozenset(path.rpartition("/")[2] for path in self._wanted)
        heads = sorted({re.escape(symbol.split(".")[0]) for symbol in symbols})
        self._binds = re.compile(rf"(?m)^(?:(?:async )?def |class )?(?:{'|'.join(heads) or '(?!)'})\b\s*[(:=]")
        self.texts: dict[str, str] = {}
        self._size = 0

    def is_cited(self, name: str) -> bool:
        """Whether a file is one that a cited path can mean."""
        return name.rpartition("/")[2] in self._names and any(
            name == path or name.endswith(f"/{path}") or name.rpartition("/")[2] == path.rpartition("/")[2]
            for path in self._wanted
        )

    def take(self, name: str, data: bytes) -> None:
        """Keep the text of ``name`` where it is of use."""
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            return
        if not self.is_cited(name) and not (name.endswith(".py") and self._binds.search(text)):
            return
        self._size += len(data)
        if self._size > _MOST_KEPT:
            raise Unproved(f"the cited files are more than {_MOST_KEPT} bytes")
        self.texts[name] = text


def read_archive(
    index: PipIndex, archive: Archive, version: str, *, wanted: Iterable[str], symbols: Iterable[str], cache: Path
) -> ArchiveFiles:
    """The cited files of one archive of ``version``.

    Raises:
        Unproved: the index does not have it or does not answer, or it is not what the index says.
    """
    file = find_file(index, archive, version)
    kept = _Kept(wanted, symbols)
    if archive.kind == "sdist":
        names = _read_sdist(_cached_sdist(index, file, cache), kept)
    else:
        names = _read_wheel(index.open_wheel(file), kept, cache / file.sha256)
    return ArchiveFiles(
        version=version, filename=file.filename, sha256=file.sha256, texts=kept.texts, names=frozenset(names)
    )


def find_file(index: PipIndex, archive: Archive, version: str) -> IndexFile:
    """The archive on the index; of several wheels the one for every platform, else for Linux on x86_64.

    Raises:
        Unproved: there is none.
    """
    wanted = Version(version)
    project = canonicalize_name(archive.distribution)
    found = []
    for file in index.files(project, ".tar.gz" if archive.kind == "sdist" else ".whl"):
        try:
            if archive.kind == "sdist":
                held = parse_sdist_filename(file.filename)[1]
            else:
                held = parse_wheel_filename(file.filename)[1]
        except (InvalidSdistFilename, InvalidWheelFilename):
            continue
        if held == wanted:
            found.append(file)
    found.sort(key=lambda file: (_platform_order(file.filename), file.filename))
    if not found:
        raise Unproved(
            f"the index has no {archive.kind} of {archive.distribution} {version}",
            hint=f"pip index versions {archive.distribution}",
        )
    return found[0]


def _platform_order(filename: str) -> int:
    if filename.endswith("-any.whl"):
        return 0
    return 1 if filename.endswith("x86_64.whl") and "linux" in filename else 2


def _cached_sdist(index: PipIndex, file: IndexFile, cache: Path) -> Path:
    place = cache / f"{file.sha256}.tar.gz"
    if place.is_file():
        return place
    cache.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with tempfile.NamedTemporaryFile(dir=cache, prefix=".part-", delete=False) as part:
        try:
            with index.get(file.url, {"Accept-Encoding": "identity"}) as answer:
                if answer.status != _OK:
                    raise Unproved(f"{file.filename}: HTTP {answer.status}")
                for chunk in answer.chunks:
                    size += len(chunk)
                    if size > _MOST_ARCHIVE:
                        raise Unproved(f"{file.filename} is larger than {_MOST_ARCHIVE} bytes")
                    digest.update(chunk)
                    part.write(chunk)
            part.close()
            if digest.hexdigest() != file.sha256:
                raise Unproved(f"{file.filename}: its sha256 is not the one that the index says")
            Path(part.name).replace(place)
        finally:
            Path(part.name).unlink(missing_ok=True)
    return place


def _read_sdist(path: Path, kept: _Kept) -> set[str]:
    names: set[str] = set()
    try:
        with tarfile.open(path, mode="r|gz") as archive:
            for member in archive:
                name = member.name.partition("/")[2]
                if not member.isfile() or not name:
                    continue
                names.add(name)
                if member.size > _MOST_FILE or not (name.endswith(".py") or kept.is_cited(name)):
                    continue
                stream = archive.extractfile(member)
                if stream is not None:
                    kept.take(name, stream.read())
    except (tarfile.TarError, OSError, EOFError) as error:
        raise Unproved(f"{path.name}: {error}", hint=f"rm {path}") from error
    return names


def _read_wheel(wheel: WheelSource, kept: _Kept, cache: Path) -> set[str]:
    names = set(wheel.member_names())
    for name in sorted(names):
        if not kept.is_cited(name) or wheel.member_size(name) > _MOST_FILE:
            continue
        check_member_name(name)
        place = cache / name
        if place.is_file():
            kept.take(name, place.read_bytes())
            continue
        data = wheel.read_member(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place.parent, prefix=".part-", delete=False) as part:
            part.write(data)
        Path(part.name).replace(place)
        kept.take(name, data)
    return names


def read_exact_pins(index: PipIndex, archive: Archive, version: str) -> dict[str, str]:
    """Versions that the release requires exactly, by normalised name, from METADATA of its wheel."""
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415

    file = find_file(index, archive, version)
    wheel = index.open_wheel(file)
    name = next((item for item in wheel.member_names() if re.fullmatch(r"[^/]+\.dist-info/METADATA", item)), None)
    if name is None:
        raise Unproved(f"{file.filename} has no METADATA")
    pins: dict[str, str] = {}
    lines = Parser().parsestr(wheel.read_member(name).decode("utf-8", "replace")).get_all("Requires-Dist") or []
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        exact = [item.version for item in requirement.specifier if item.operator == "==" and "*" not in item.version]
        if exact and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            pins[canonicalize_name(requirement.name)] = exact[0]
    return pins
