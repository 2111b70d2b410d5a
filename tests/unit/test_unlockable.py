"""Releases of which no lock can be made from the index: judged where they are named, never taken by themselves."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from qresolve import question as question_module
from qresolve.cli.main import main
from qresolve.closure.request import Closure, ClosureRequest, NamedIndex
from qresolve.edges import Edges
from qresolve.errors import NoResolution
from qresolve.knowledge.engine import load_engine, read_releases
from qresolve.knowledge.records import Release, Source, Unlockable
from qresolve.lock.model import LockedPackage, LockedWheel
from qresolve.locking import LockRequest, make_lock
from qresolve.measured import row_for
from qresolve.question import ask_question
from qresolve.target.drivers import read_cuda_releases
from qresolve.target.target import build_target, read_target_data

if TYPE_CHECKING:
    from qresolve.question import Question

SOURCE_ONLY = ("0.5.22", "0.5.21", "0.5.20", "0.5.19")
NEWEST, SECOND = (item.version for item in read_releases("vllm")[:2])


def asked(engine: str | None = None, *, gpu: str = "sm120", formats: str = "nvfp4") -> Question:
    data = read_target_data()
    return ask_question(
        formats=[formats],
        target=build_target(gpu=[gpu], data=data),
        architectures=data.architectures,
        engine=engine,
    )


def barred(release: Release) -> Release:
    source = Source(kind="stated", where="a test", checked=release.released)
    return replace(release, unlockable=Unlockable(package="odd", why="it pins odd", source=source))


@pytest.fixture
def newest_barred(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest vLLM cannot be locked."""

    def releases(name: str) -> tuple[Release, ...]:
        first, *rest = read_releases(name)
        return (barred(first), *rest)

    monkeypatch.setattr(question_module, "read_releases", releases)


def closed(request: ClosureRequest) -> Closure:
    version = request.requirements[0].partition("==")[2]
    versions = {**{pin.package: pin.version for pin in load_engine("vllm", version).release.pins}, "vllm": version}
    packages = []
    for name, found in sorted(versions.items()):
        row = row_for(name, found, "x86_64")
        wheel = LockedWheel(
            filename=f"{name}-{found}-py3-none-any.whl",
            url=f"https://files.invalid/{name}",
            sha256=row.sha256 if row is not None else "0" * 64,
            size=1,
        )
        packages.append(LockedPackage(name=name, version=found, wheel=wheel))
    return Closure(packages=tuple(packages))


EDGES = Edges(
    close=closed,
    record=lambda package: None,
    measure=lambda package: None,
    newer=lambda project, known: None,
    say=lambda line: None,
)


def test_the_releases_that_pin_a_package_without_wheels_are_recorded() -> None:
    found = {item.version: item.unlockable for item in read_releases("sglang")}
    assert {version for version, why in found.items() if why is not None} == set(SOURCE_ONLY)
    for version in SOURCE_ONLY:
        why = found[version]
        assert why is not None
        assert why.package in why.why
        assert version in why.source.where


@pytest.mark.usefixtures("newest_barred")
def test_a_release_that_cannot_be_locked_is_not_taken_by_itself() -> None:
    question = asked()
    assert (NEWEST in question.releases(), question.releases()[0]) == (False, SECOND)
    locked = make_lock(question, LockRequest(requested=()), EDGES, read_cuda_releases())
    assert locked.lock.engine_version == SECOND
    assert any(NEWEST in note and "it pins odd" in note for note in locked.notes)


@pytest.mark.usefixtures("newest_barred")
def test_it_is_tried_where_the_person_binds_the_package_to_an_index() -> None:
    request = LockRequest(
        requested=(), indexes=(NamedIndex(name="own", url="https://own.invalid/", packages=("odd",)),)
    )
    locked = make_lock(asked(), request, EDGES, read_cuda_releases())
    assert (locked.lock.engine_version, locked.notes) == (NEWEST, ())


def test_it_is_tried_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question_module, "read_releases", lambda name: tuple(map(barred, read_releases(name))))
    assert asked().releases() == tuple(item.version for item in read_releases("vllm"))


def test_a_pinned_one_is_asked_of_the_index_and_the_error_names_one_that_can_be_locked() -> None:
    def refuse(request: ClosureRequest) -> Closure:
        raise NoResolution("odd is there as source only")

    question = asked("sglang==0.5.22", gpu="sm100")
    question.host = replace(question.host, nvcc="13.0", cxx=True)
    with pytest.raises(NoResolution, match="source only") as failure:
        make_lock(question, LockRequest(requested=()), replace(EDGES, close=refuse), read_cuda_releases())
    assert failure.value.hint == "--engine sglang==0.5.23"


@pytest.mark.parametrize("version", SOURCE_ONLY)
def test_explain_of_a_pinned_one_judges_it_and_offers_no_lock_of_it(
    version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--gpu",
        "sm100",
        "--formats",
        "nvfp4",
        "--nvcc",
        "13.0",
        "--assume",
        "host.cxx=true",
        "--engine",
        f"sglang=={version}",
    ]
    code = main(["explain", *words, "--json"])
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert "cuda-tile" in document["engine"]["unlockable"]
    assert "warning: `lock` refuses this release: " in captured.err
    rows = [row for row in document["formats"] if row["asked"]]
    assert (code, [row["verdict"] for row in rows]) == (0, ["native"])
    commands = [shlex.split(remedy["run"]) for row in rows for remedy in row["remedy"] if remedy["run"]]
    assert commands
    assert not any(command[1] == "lock" and f"sglang=={version}" in command for command in commands)
    assert any("sglang==0.5.23" in command for command in commands)
    assert main(["explain", *words]) == 0
    text = capsys.readouterr().out
    assert "cannot be locked" in text
    assert "lock it" not in text


def test_explain_of_a_release_that_can_be_locked_says_nothing_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    main(
        [
            "explain",
            "--gpu",
            "sm100",
            "--formats",
            "nvfp4",
            "--nvcc",
            "13.0",
            "--assume",
            "host.cxx=true",
            "--engine",
            "sglang",
            "--json",
        ]
    )
    captured = capsys.readouterr()
    assert json.loads(captured.out)["engine"] == {"name": "sglang", "version": "0.5.23", "unlockable": None}
    assert "refuses this release" not in captured.err


@pytest.mark.usefixtures("newest_barred")
def test_explain_says_which_newer_release_it_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", "--gpu", "sm120", "--formats", "nvfp4"])
    captured = capsys.readouterr()
    assert captured.out.startswith(f"vllm {SECOND} ")
    assert f"vllm {NEWEST} was passed over, as it cannot be locked: it pins odd" in captured.err
