"""The libraries of installed distributions: found by their RECORD, read once, searched for the GPUs asked about."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from qresolve.arch import driver_choice
from qresolve.errors import Unproved
from qresolve.inspect.subject import is_binary_name
from qresolve.machine_code.scan import scan_binary
from qresolve.verify.images import InstalledLibrary, find_installed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from qresolve.arch import Architectures, ImageArch
    from qresolve.install.interpreter import InstalledDistribution


class InstalledLibraries:
    """What rungs 1 to 3 read; called with a project and the stem of a library it gives that library, or None."""

    def __init__(
        self,
        distributions: Iterable[InstalledDistribution],
        *,
        sms: Sequence[int],
        architectures: Architectures,
        progress: Callable[[str], None] = lambda _path: None,
    ) -> None:
        self._folders = {one.normalized_name: one.path for one in reversed(tuple(distributions)) if one.name}
        self._sms = tuple(sms)
        self._architectures = architectures
        self._progress = progress
        self._paths: dict[str, tuple[str, ...]] = {}
        self._read: dict[tuple[str, str], InstalledLibrary] = {}

    def __call__(self, project: str, stem: str) -> InstalledLibrary | None:
        """The library whose name without its endings is ``stem`` (``sm90/common_ops`` where folders are named)."""
        path = find_installed(self.binaries(project), stem)
        if path is None:
            return None
        if (project, path) not in self._read:
            self._read[project, path] = self._scan(self._folders[project].parent, path)
        return self._read[project, path]

    def root(self, project: str) -> Path | None:
        """The folder of packages that a distribution is installed in; None where it is not installed."""
        folder = self._folders.get(project)
        return folder.parent if folder is not None else None

    def files(self, project: str, stems: Iterable[str]) -> tuple[Path, ...]:
        """Those of the libraries that are installed, in the order of the stems; none is read."""
        root = self.root(project)
        found = (find_installed(self.binaries(project), stem) for stem in stems)
        return () if root is None else tuple(root / path for path in found if path is not None)

    def binaries(self, project: str) -> tuple[str, ...]:
        """The binaries that a distribution's RECORD lists, below the folder of packages; none where there is none."""
        if project not in self._paths:
            folder = self._folders.get(project)
            self._paths[project] = _recorded(folder) if folder is not None else ()
        return self._paths[project]

    def _scan(self, root: Path, path: str) -> InstalledLibrary:
        self._progress(path)
        try:
            data = _mapped(root / path)
            return InstalledLibrary(path=path, scan=scan_binary(data, path=path, wanted=self._wanted))
        except Unproved as error:
            return InstalledLibrary(path=path, scan=None, problem=error.message)

    def _wanted(self, images: tuple[ImageArch, ...]) -> tuple[ImageArch, ...]:
        found = (driver_choice(images, sm, self._architectures) for sm in self._sms)
        return tuple(dict.fromkeys(image for image in found if image is not None))


def _recorded(dist_info: Path) -> tuple[str, ...]:
    try:
        text = (dist_info / "RECORD").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ()
    return tuple(row[0] for row in csv.reader(text.splitlines()) if row and is_binary_name(row[0]))


def _mapped(path: Path) -> bytes | memoryview:
    import mmap  # noqa: PLC0415 - as the standard library has it, for large files only

    try:
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except ValueError:
        return b""
    except OSError as error:
        raise Unproved(f"{path}: {error.strerror or error}") from error
