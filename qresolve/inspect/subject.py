"""What is inspected: a wheel here or behind HTTP, a library, a fatbin, a cubin, or a folder of them.

A subject lists its binaries with what reading each costs; the bytes are read one binary at a time. A remote wheel is
read by ranges: its table of members, then only the members asked for, in one pass and without a file on disk.
"""

from __future__ import annotations

import mmap
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from qresolve.errors import Unproved, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qresolve.machine_code.fatbin import Buffer
    from qresolve.wheels.pip_index import IndexFile
    from qresolve.wheels.remote import ZipWheel

BINARIES: tuple[str, ...] = ("*.so", "*.so.*", "*.cubin", "*.fatbin")
"""Shell patterns for the names of files that may hold code for GPUs."""

_RELEASE = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """A file that may hold code for GPUs. ``size`` is its length, ``cost`` what has to be read for it, in bytes."""

    path: str
    size: int
    cost: int


class Subject(Protocol):
    """Where binaries come from."""

    @property
    def kind(self) -> str:
        """``wheel``, ``remote wheel``, ``file`` or ``directory``."""

    @property
    def name(self) -> str:
        """How reports call it; no address and no credentials."""

    @property
    def size(self) -> int | None:
        """Length in bytes; None for a directory."""

    def binaries(self) -> tuple[Binary, ...]:
        """Its binaries, by path."""

    def read(self, binary: Binary) -> Buffer:
        """The bytes of one of them."""


class WheelSubject:
    """A wheel, whoever brings its bytes."""

    def __init__(self, wheel: ZipWheel, *, name: str, kind: str) -> None:
        self._wheel = wheel
        self.name = name
        self.kind = kind
        self.size: int | None = wheel.size

    def binaries(self) -> tuple[Binary, ...]:
        """The members that may hold code for GPUs."""
        return tuple(
            Binary(path=name, size=self._wheel.member_size(name), cost=self._wheel.compressed_size(name))
            for name in sorted(self._wheel.member_names())
            if is_binary_name(name)
        )

    def read(self, binary: Binary) -> Buffer:
        """The member, checked against the zip's table."""
        return self._wheel.read_buffer(binary.path)


class FileSubject:
    """One file on this machine; mapped, not read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = path.name
        self.kind = "file"
        self.size: int | None = path.stat().st_size

    def binaries(self) -> tuple[Binary, ...]:
        """The file itself."""
        return (Binary(path=self._path.name, size=self.size or 0, cost=self.size or 0),)

    def read(self, binary: Binary) -> Buffer:  # noqa: ARG002 - there is one alone
        """Its bytes."""
        return _mapped(self._path)


class FolderSubject:
    """Every binary below a folder, links not followed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = str(path)
        self.kind = "directory"
        self.size: int | None = None

    def binaries(self) -> tuple[Binary, ...]:
        """The files whose names say that they may hold code for GPUs."""
        found = []
        for folder, _, names in os.walk(self._path):
            for name in names:
                file = Path(folder) / name
                if is_binary_name(name) and not file.is_symlink() and file.is_file():
                    size = file.stat().st_size
                    found.append(Binary(path=file.relative_to(self._path).as_posix(), size=size, cost=size))
        return tuple(sorted(found, key=lambda one: one.path))

    def read(self, binary: Binary) -> Buffer:
        """The file's bytes."""
        return _mapped(self._path / binary.path)


def is_binary_name(path: str) -> bool:
    """Whether a file of that name may hold code for GPUs."""
    return any(fnmatchcase(path.rpartition("/")[2], pattern) for pattern in BINARIES)


def _mapped(path: Path) -> Buffer:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        return b""  # an empty file cannot be mapped
    except OSError as error:
        raise Unproved(f"{path}: {error.strerror or error}") from error


def is_release(text: str) -> bool:
    """Whether ``text`` names a release on the index and nothing on this machine."""
    return _RELEASE.fullmatch(text) is not None and not Path(text).exists()


@contextmanager
def open_subject(text: str, *, machine: str, python: str) -> Iterator[Subject]:
    """The subject that ``text`` names: a path, an http(s) address, or ``NAME==VERSION`` on the user's index.

    ``machine`` and ``python`` (``3.12``) choose among the wheels of a release.

    Raises:
        UsageError: nothing of that name.
        Unproved: the index does not answer, has no such wheel, or its server gives no ranges.
        WheelInvalid: no readable zip.
    """
    path = Path(text)
    if path.is_dir():
        yield FolderSubject(path)
    elif path.is_file():
        yield _file_subject(path)
    elif text.startswith(("http://", "https://")):
        with _remote_wheel(text) as wheel:
            name = text.partition("#")[0].partition("?")[0].rpartition("/")[2]
            yield WheelSubject(wheel, name=name, kind="remote wheel")
    elif found := _RELEASE.fullmatch(text):
        from qresolve.wheels.pip_index import open_pip_index  # noqa: PLC0415 - heavy, and only for an index
        from qresolve.wheels.ranges import RangesUnsupported  # noqa: PLC0415 - as above

        with open_pip_index() as index:
            file = choose_wheel(
                index.wheels(_normalised(found["name"])), found["version"], machine=machine, python=python
            )
            if file is None:
                raise Unproved(
                    f"the index has no wheel of {found['name']} {found['version']} for Python {python} on {machine}",
                    hint=f"pip index versions {found['name']}",
                )
            try:
                wheel = index.open_wheel(file)
            except RangesUnsupported as error:
                raise Unproved(
                    f"{file.filename}: its server gives no byte ranges ({error.message}); download it whole",
                    hint=f"pip download --no-deps {text}",
                ) from error
            yield WheelSubject(wheel, name=file.filename, kind="remote wheel")
    else:
        raise UsageError(f"`{text}` is no file, folder, address or NAME==VERSION", hint="qresolve inspect vllm==0.33.0")


def _file_subject(path: Path) -> Subject:
    if path.suffix == ".whl":
        from qresolve.wheels.remote import open_local_wheel  # noqa: PLC0415 - only for wheels

        return WheelSubject(open_local_wheel(path), name=path.name, kind="wheel")
    return FileSubject(path)


@contextmanager
def _remote_wheel(url: str) -> Iterator[ZipWheel]:
    from qresolve.http.client import open_http_client  # noqa: PLC0415 - only for an address
    from qresolve.wheels.ranges import HttpRanges, RangesUnsupported  # noqa: PLC0415 - as above
    from qresolve.wheels.remote import ZipWheel  # noqa: PLC0415 - as above

    with open_http_client() as client:
        try:
            wheel = ZipWheel(HttpRanges(client, url))
        except RangesUnsupported as error:
            raise Unproved(
                f"the server gives no byte ranges ({error.message}); download the wheel whole",
                hint="pip download --no-deps ADDRESS",
            ) from error
        yield wheel


def _normalised(name: str) -> str:
    from packaging.utils import canonicalize_name  # noqa: PLC0415 - keeps this module's import fast

    return canonicalize_name(name)


def choose_wheel(files: tuple[IndexFile, ...], version: str, *, machine: str, python: str) -> IndexFile | None:
    """The wheel of ``version`` that an installer would take on Linux on ``machine`` with CPython ``python``.

    Of several for the same platform the one with the most exact Python tag, then the last name. A local version
    counts as its public one where that is what is asked for (``2.14.0`` finds ``2.14.0+cu130``).
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415 - as above
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename  # noqa: PLC0415 - as above

    try:
        wanted = SpecifierSet(f"=={version}", prereleases=True)
    except InvalidSpecifier:
        raise UsageError(f"`{version}` is no version", hint="qresolve inspect vllm==0.33.0") from None
    wanted_tag = f"cp{python.replace('.', '')}"
    minor = int(python.partition(".")[2] or 0)
    best: tuple[int, str] | None = None
    chosen = None
    for file in files:
        try:
            _, held, _, tags = parse_wheel_filename(file.filename)
        except InvalidWheelFilename:
            continue
        if not wanted.contains(held):
            continue
        for tag in tags:
            linux = "linux" in tag.platform and tag.platform.endswith(f"_{machine}")
            if not linux and tag.platform != "any":
                continue
            if tag.interpreter == wanted_tag:
                exact = 2
            elif tag.abi == "abi3" and tag.interpreter.startswith("cp3") and int(tag.interpreter[3:] or 0) <= minor:
                exact = 1
            elif tag.interpreter.startswith("py"):
                exact = 0
            else:
                continue
            if best is None or (exact, file.filename) > best:
                best, chosen = (exact, file.filename), file
    return chosen
