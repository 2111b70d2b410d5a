"""Reading and writing lock files.

A lock appears whole or not at all: it is written beside its place and moved there. A file that is not ours is not
overwritten. Two that write the same file wait for each other; the lock file for that lies in the user's cache, so
that nothing is left beside the output.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qresolve.errors import DataInvalid, NoResolution, QResolveError, UsageError
from qresolve.lock.document import lock_document, parse_document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qresolve.lock.model import Lock

STDOUT = "-"
_PATIENCE = 60.0  # seconds to wait for another process that writes the same file

_AGAIN = "qresolve lock --gpu auto --formats fp8 --force"
"""What a broken file held is not known, so its own request cannot be repeated."""


def dump_lock(lock: Lock) -> str:
    """The text of the lock file; the same lock gives the same bytes.

    Raises:
        DataInvalid: the lock would not be valid by PEP 751.
    """
    import tomli_w  # noqa: PLC0415
    from packaging.pylock import Pylock, PylockValidationError  # noqa: PLC0415

    document = lock_document(lock)
    try:
        Pylock.from_dict(document)
    except PylockValidationError as error:
        raise DataInvalid(f"the lock is not valid by PEP 751: {error}") from error
    return tomli_w.dumps(document)


def parse_lock(text: str, *, name: str) -> Lock:
    """The lock in ``text``; ``name`` is how errors call the file.

    Raises:
        UsageError: not a lock of ours. DataInvalid: not TOML, or not as this version writes it.
        Refuted: it was edited.
    """
    import tomli  # noqa: PLC0415

    try:
        document = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        raise DataInvalid(f"{name}: not valid TOML: {error}", hint=_AGAIN) from error
    return parse_document(document, name=name)


def read_lock(path: Path) -> Lock:
    """Read the lock file at ``path``.

    Raises:
        UsageError: it is not there, cannot be read, or is not ours. DataInvalid, Refuted: as :func:`parse_lock`.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UsageError(f"there is no lock {path}", hint="qresolve lock --gpu auto --formats fp8") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataInvalid(f"{path}: not UTF-8 text", hint=_AGAIN) from error
    return parse_lock(text, name=str(path))


def check_output(output: str | Path, *, force: bool = False) -> None:
    """Refuse early what :func:`write_lock` would refuse at the end.

    Raises:
        UsageError: the name is not ``pylock.toml`` or ``pylock.NAME.toml``, the folder is not there or cannot be
            written to, or the file there is not ours and ``force`` is not given.
    """
    if str(output) == STDOUT:
        return
    from packaging.pylock import is_valid_pylock_path  # noqa: PLC0415

    path = Path(output)
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint=f"-o {path / 'pylock.toml'}")
    if not is_valid_pylock_path(path):
        raise UsageError(
            f"{path} is not a name that installers accept: pylock.toml, or pylock.NAME.toml with a NAME without dots",
            hint=f"-o {path.parent / 'pylock.toml'}",
        )
    place = _place(path)
    if not place.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {place.parent}", hint=f"mkdir -p {place.parent}")
    if not os.access(place.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{path}: the folder {place.parent} cannot be written to")
    if place.exists() and not force and not _is_ours(place):
        raise UsageError(f"{path} is there already and qresolve did not write it", hint=f"-o {path} --force")


def check_same_files(output: str | Path, lock: Lock, *, force: bool = False) -> None:
    """Refuse to replace a lock of ours that has another file under the name of one of ``lock``'s.

    A file name on an index stands for one content for good; where it does not, someone replaced it. Files given by
    their own address are left out: a person builds those again. What cannot be read is not held against anything.

    Raises:
        NoResolution: a file of the same name and another sha256, and ``force`` is not given.
    """
    if str(output) == STDOUT or force:
        return
    try:
        before = read_lock(Path(output))
    except QResolveError:
        return
    known = {
        (package.wheel.filename, package.wheel.variant): package.wheel.sha256
        for package in before.packages
        if package.index != "direct"
    }
    for package in lock.packages:
        wheel = package.wheel
        sha256 = known.get((wheel.filename, wheel.variant), wheel.sha256)
        if package.index != "direct" and sha256 != wheel.sha256:
            raise NoResolution(
                f"{wheel.filename} is two files: {sha256[:12]}… in {output}, {wheel.sha256[:12]}… on the index now",
                hint=f"-o {output} --force",
            )


def write_lock(output: str | Path, lock: Lock, *, force: bool = False) -> None:
    """Write ``lock`` to ``output``; ``-`` is stdout.

    Raises:
        UsageError: as :func:`check_output`, or the file cannot be written; then the old one is untouched.
        DataInvalid: as :func:`dump_lock`.
    """
    text = dump_lock(lock)
    if str(output) == STDOUT:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    path = Path(output)
    check_output(path, force=force)
    place = _place(path)
    with _alone(place):
        check_output(path, force=force)  # another process may have put a file there in the meantime
        try:
            write_atomically(place, text)
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error


def _place(path: Path) -> Path:
    """Where the bytes go: a link stays a link."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path.absolute()


def _is_ours(path: Path) -> bool:
    import tomli  # noqa: PLC0415

    try:
        document: dict[str, Any] = tomli.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomli.TOMLDecodeError):
        return False
    tool = document.get("tool")
    return isinstance(tool, dict) and isinstance(tool.get("qresolve"), dict)


def write_atomically(place: Path, text: str) -> None:
    """Put ``text`` at ``place`` at once, with the usual mode of a new file or the mode of the old one."""
    beside = place.with_name(f".{place.name}.{secrets.token_hex(6)}")
    number = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(text.encode())
            stream.flush()
            os.fsync(stream.fileno())
        if place.exists():
            beside.chmod(place.stat().st_mode & 0o777)
        beside.replace(place)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    with contextlib.suppress(OSError):  # some file systems refuse to sync a folder; the move is done
        folder = os.open(place.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Wait until no other process writes ``place``."""
    import filelock  # noqa: PLC0415

    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(cache) / "qresolve" / "writing"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        guard = filelock.FileLock(
            folder / hashlib.sha256(os.fsencode(os.path.realpath(place))).hexdigest(), timeout=_PATIENCE
        )
        guard.acquire()
    except filelock.Timeout as error:
        raise UsageError(f"another qresolve has been writing {place} for {_PATIENCE:g} s") from error
    except OSError:
        # No cache to lock in (a read-only home): the move is atomic all the same, the last one wins.
        yield
        return
    try:
        yield
    finally:
        guard.release()
