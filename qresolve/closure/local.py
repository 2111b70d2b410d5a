"""Wheels that the user has as files: one wheel, or a folder of them, each package from there and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from qresolve.closure.request import NamedIndex
from qresolve.errors import NoResolution, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from qresolve.question import Question


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalIndex:
    """A folder as the only source of some packages. ``versions`` are (package, version) that it has.

    ``pin`` is the exact requirement where one wheel was named, None for a folder.
    """

    index: NamedIndex
    versions: tuple[tuple[str, str], ...]
    pin: str | None = None


def read_local_indexes(wheels: Sequence[str], folders: Sequence[str]) -> tuple[LocalIndex, ...]:
    """Read ``--wheel`` and ``--find-links``.

    Raises:
        UsageError: no such file or folder, no wheel, or a package that is there twice.
    """
    found = [_local_wheel(Path(text)) for text in wheels] + [
        _local_folder(Path(text), position) for position, text in enumerate(folders)
    ]
    seen: dict[str, str] = {}
    for local in found:
        for package in local.index.packages:
            if seen.setdefault(package, local.index.url) != local.index.url or _pins(found, package) > 1:
                raise UsageError(
                    f"`{package}` is given twice, by --wheel or --find-links", hint="leave one of them out"
                )
    return tuple(found)


def _pins(found: Iterable[LocalIndex], package: str) -> int:
    return sum(local.pin is not None and package in local.index.packages for local in found)


def _local_wheel(path: Path) -> LocalIndex:
    if not path.is_file():
        raise UsageError(f"--wheel {path}: there is no such file", hint=f"ls {path.parent}")
    try:
        name, version, _, _ = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise UsageError(f"--wheel {path}: {error}", hint="a wheel is called NAME-VERSION-TAGS.whl") from error
    return LocalIndex(
        index=NamedIndex(
            name=f"wheel-{name}",
            url=path.resolve().parent.as_uri(),
            packages=(str(name),),
            upload_times=False,
            flat=True,
        ),
        versions=((str(name), str(version)),),
        pin=f"{name}=={version}",
    )


def _local_folder(path: Path, position: int) -> LocalIndex:
    if not path.is_dir():
        raise UsageError(f"--find-links {path}: there is no such folder", hint="mkdir and put wheels there")
    versions = set()
    for file in path.glob("*.whl"):
        try:
            name, version, _, _ = parse_wheel_filename(file.name)
        except InvalidWheelFilename as error:
            raise UsageError(f"--find-links {path}: {error}", hint=f"rm {file}") from error
        versions.add((str(name), str(version)))
    if not versions:
        raise UsageError(f"--find-links {path}: there is no wheel in it", hint=f"ls {path}")
    packages = tuple(sorted({name for name, _ in versions}))
    return LocalIndex(
        index=NamedIndex(
            name=f"find-links-{position + 1}",
            url=path.resolve().as_uri(),
            packages=packages,
            upload_times=False,
            flat=True,
        ),
        versions=tuple(sorted(versions)),
    )


def join_indexes(named: tuple[NamedIndex, ...], local: tuple[NamedIndex, ...]) -> tuple[NamedIndex, ...]:
    """Both together, by name.

    Raises:
        UsageError: a package is bound by both.
    """
    for one in local:
        for other in named:
            if shared := sorted(set(one.packages) & set(other.packages)):
                raise UsageError(
                    f"`{shared[0]}` is bound to the index {other.name} and to a local wheel",
                    hint="leave one of them out",
                )
    return tuple(sorted((*named, *local), key=lambda index: index.name))


def pin_local_engine(question: Question, local: Iterable[LocalIndex]) -> None:
    """Where the user has a wheel of the engine, its release is asked for: no other could come from there.

    Raises:
        NoResolution: there are no records of that release, so nobody knows what its gates are.
        UsageError: another release was asked for.
    """
    releases = question.releases()
    distribution = question.engine(releases[0]).distribution
    for item in local:
        for package, version in item.versions:
            if package != distribution:
                continue
            known = next((one for one in releases if Version(one) == Version(Version(version).public)), None)
            if known is None and question.engine_version is not None:
                raise UsageError(
                    f"{question.engine_name} {question.engine_version} is asked for, and the wheel is {version}",
                    hint=f"--engine {question.engine_name}=={Version(version).public}",
                )
            if known is None:
                raise NoResolution(
                    f"there are no records of {question.engine_name} {Version(version).public}: what its selector asks "
                    "is not known",
                    hint=f"qresolve audit {question.engine_name}=={Version(version).public}",
                )
            question.engine_version = known
