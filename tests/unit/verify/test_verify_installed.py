from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qresolve.verify
from qresolve.errors import Unproved, UsageError
from qresolve.install.interpreter import InstalledDistribution
from qresolve.install.perform import perform_install
from qresolve.install.unfinished import MARKER, write_marker
from qresolve.lock.model import GatedBecause, LockedFormat
from qresolve.verify.check import Wish, run_verify
from qresolve.verify.evidence import Binds, Evidence, FormatRow, Outcome, Verdict, exit_code
from qresolve.verify.installed import check_files, check_installed
from qresolve.verify.report import format_header, format_rows, package_rows, plain_table, to_mapping
from qresolve.verify.request import select_given, select_locked
from qresolve.wheels.record import RecordComparison
from tests.unit.install.environments import Built, build_wheel, locked, make_lock, module_of, write_pylock

if TYPE_CHECKING:
    from qresolve.lock.model import Lock
    from qresolve.verify.evidence import VerifyReport

SCHEMA = json.loads((Path(qresolve.verify.__file__).parents[1] / "schemas" / "verify.json").read_text())


@pytest.fixture(scope="module", params=["uv", "pip"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Lock, Built]:
    """An environment with a gated and an ungated package, by either installer; tests work on copies."""
    folder = tmp_path_factory.mktemp("installed")
    gated = build_wheel(folder / "wheels", "gated", "1.0")
    other = build_wheel(folder / "wheels", "other", "2.0")
    lock = make_lock((locked(gated), locked(other, gated=False)))
    file = write_pylock(folder / "pylock.toml", lock)
    perform_install(lock, file, environment=str(folder / "env"), installer=request.param)
    return folder / "env", lock, gated


@pytest.fixture
def environment(installed: tuple[Path, Lock, Built], tmp_path: Path) -> Path:
    return Path(shutil.copytree(installed[0], tmp_path / "env", symlinks=True))


def verify(environment: Path, lock: Lock | None, *, static: bool = False) -> VerifyReport:
    rows = select_locked(lock, only=(), archs=()) if lock is not None else ()
    return run_verify(lock, rows, python=environment / "bin" / "python", wish=Wish(launching=not static))


def code(report: VerifyReport) -> int:
    return exit_code(report.evidence, report.verdicts)


def rung0(report: VerifyReport) -> dict[str, Evidence]:
    return {observation.subject: observation for observation in report.evidence if observation.rung == 0}


def test_an_untouched_environment_is_proved_on_rung_0_only(
    environment: Path, installed: tuple[Path, Lock, Built]
) -> None:
    report = verify(environment, installed[1])
    assert {subject: seen.outcome for subject, seen in rung0(report).items()} == {
        "gated==1.0": Outcome.PROVED,
        "other==2.0": Outcome.PROVED,
    }
    assert code(report) == 7


def test_the_locks_own_native_verdict_is_no_evidence(environment: Path, installed: tuple[Path, Lock, Built]) -> None:
    (verdict,) = verify(environment, installed[1]).verdicts
    assert (verdict.verdict, verdict.holds) == ("unknown", False)


def test_one_changed_byte_is_refuted(environment: Path, installed: tuple[Path, Lock, Built]) -> None:
    _environment, lock, gated = installed
    module_of(environment, gated).write_text("built = 7\n")
    report = verify(environment, lock)
    found = rung0(report)["gated==1.0"]
    assert found.outcome is Outcome.REFUTED
    assert found.why == "changed: gated/__init__.py"
    assert code(report) == 6


def test_a_missing_file_is_refuted(environment: Path, installed: tuple[Path, Lock, Built]) -> None:
    _environment, lock, gated = installed
    module_of(environment, gated).unlink()
    found = rung0(verify(environment, lock))["gated==1.0"]
    assert (found.outcome, found.why) == (Outcome.REFUTED, "missing: gated/__init__.py")


def test_another_build_of_the_same_version_is_refuted(
    environment: Path, installed: tuple[Path, Lock, Built], tmp_path: Path
) -> None:
    other = build_wheel(tmp_path / "other", "gated", "1.0", content="built = 2\n")
    lock = make_lock((locked(other), installed[1].packages[1]))
    report = verify(environment, lock)
    found = rung0(report)["gated==1.0"]
    assert (found.outcome, found.why) == (Outcome.REFUTED, "another build of the same version")
    assert code(report) == 6


def test_another_version_and_an_absent_package_are_refuted(
    environment: Path, installed: tuple[Path, Lock, Built], tmp_path: Path
) -> None:
    newer = build_wheel(tmp_path / "new", "gated", "1.1")
    absent = build_wheel(tmp_path / "new", "absent", "1.0")
    found = rung0(verify(environment, make_lock((locked(newer), locked(absent), installed[1].packages[1]))))
    assert (found["gated==1.1"].outcome, found["gated==1.1"].seen) == (Outcome.REFUTED, "1.0")
    assert (found["absent==1.0"].outcome, found["absent==1.0"].why) == (Outcome.REFUTED, "not installed")


def test_an_unlocked_package_leaves_something_unproved(environment: Path, installed: tuple[Path, Lock, Built]) -> None:
    lock = replace(installed[1], packages=installed[1].packages[:1])
    found = rung0(verify(environment, lock))["other==2.0"]
    assert found.outcome is Outcome.UNPROVED
    assert "not in the lock" in (found.why or "")


def test_an_unfinished_install_is_reported(environment: Path, installed: tuple[Path, Lock, Built]) -> None:
    write_marker(environment, lock=Path("pylock.toml"), installer="uv")
    report = verify(environment, installed[1])
    assert report.environment.unfinished_install
    assert rung0(report)["environment"].outcome is Outcome.UNPROVED
    (environment / MARKER).write_text('{"lo')
    assert rung0(verify(environment, installed[1]))["environment"].seen == (
        "unfinished install with an unknown installer"
    )


def test_a_module_in_the_working_directory_changes_nothing(
    environment: Path, installed: tuple[Path, Lock, Built], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert rung0(verify(environment, installed[1]))["gated==1.0"].outcome is Outcome.PROVED


def test_a_package_folder_without_metadata_is_reported(environment: Path, installed: tuple[Path, Lock, Built]) -> None:
    info = module_of(environment, installed[2]).parents[1] / "gated-1.0.dist-info"
    (info / "METADATA").unlink()
    report = verify(environment, installed[1])
    assert rung0(report)["gated==1.0"].outcome is Outcome.REFUTED
    assert rung0(report)["gated-1.0.dist-info"].outcome is Outcome.UNPROVED


def test_every_rung_is_accounted_for_once(environment: Path, installed: tuple[Path, Lock, Built]) -> None:
    report = verify(environment, installed[1], static=True)
    (row,) = select_locked(installed[1], only=(), archs=())
    rungs = {observation.rung: observation.outcome for observation in report.evidence if observation.about == row}
    assert rungs == dict.fromkeys(range(1, 7), Outcome.UNPROVED) | dict.fromkeys((7, 8), Outcome.SKIPPED)
    launching = verify(environment, installed[1])
    rungs = {observation.rung: observation.outcome for observation in launching.evidence if observation.about == row}
    assert rungs == dict.fromkeys(range(1, 9), Outcome.UNPROVED)


def test_json_has_the_published_form(environment: Path, installed: tuple[Path, Lock, Built]) -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    validator.check_schema(SCHEMA)
    printed = json.loads(json.dumps(to_mapping(verify(environment, installed[1]))))
    validator.validate(printed)
    validator.validate(to_mapping(verify(environment, None)))
    assert set(printed["evidence"][0]) == {
        "format", "scheme", "role", "arch", "engine", "rung", "binds", "subject", "outcome", "seen", "why", "source",
    }  # fmt: skip
    relied_on = {"format", "scheme", "role", "arch", "verdict", "level", "holds"}
    assert set(printed["verdicts"][0]) == relied_on | {"engine", "route", "why"}


@pytest.mark.parametrize("place", [(), ("environment",), ("evidence", 0), ("verdicts", 0), ("target", "gpus", 0)])
def test_the_schema_refuses_unknown_keys(
    place: tuple[Any, ...], environment: Path, installed: tuple[Path, Lock, Built]
) -> None:
    printed = to_mapping(verify(environment, installed[1]))
    inner: Any = printed
    for key in place:
        inner = inner[key]
    inner["surprise"] = 1
    with pytest.raises(jsonschema.ValidationError, match="surprise"):
        jsonschema.validate(printed, SCHEMA)


def test_without_a_lock_rung_0_does_not_apply(environment: Path) -> None:
    (found,) = verify(environment, None).evidence
    assert found.outcome is Outcome.SKIPPED


def test_the_same_package_twice_is_refuted(tmp_path: Path) -> None:
    package = locked(build_wheel(tmp_path, "gated", "1.0"))
    copies = [InstalledDistribution(name="Gated", version="1.0", path=tmp_path / str(number)) for number in (1, 2)]
    (found,) = check_installed((package,), copies, {}, None)
    assert (found.outcome, found.why) == (Outcome.REFUTED, "installed more than once")


def test_a_gated_package_without_a_digest_or_a_readable_record_is_unproved(tmp_path: Path) -> None:
    package = replace(locked(build_wheel(tmp_path, "gated", "1.0")), because=GatedBecause(gates=("g",)))
    distribution = InstalledDistribution(name="gated", version="1.0", path=tmp_path)
    (found,) = check_installed((package,), [distribution], {}, None)
    assert found.outcome is Outcome.UNPROVED
    assert check_files(Unproved("RECORD cannot be read")) == (Outcome.UNPROVED, None, "RECORD cannot be read")


def test_many_changed_files_are_counted() -> None:
    files = tuple(f"f{number}" for number in range(5))
    comparison = RecordComparison(same=False, digest="sha256:0", changed=files)
    assert check_files(comparison)[2] == "changed: f0, f1, f2 and 2 more"


def test_a_version_of_another_build_is_another_version(tmp_path: Path) -> None:
    package = locked(build_wheel(tmp_path, "gated", "1.0"), gated=False)

    def outcome(version: str) -> Outcome:
        distribution = InstalledDistribution(name="gated", version=version, path=tmp_path)
        return check_installed((package,), [distribution], {}, None)[0].outcome

    assert outcome("1.0.0") is Outcome.PROVED
    assert outcome("1.0+cu130") is Outcome.REFUTED


ROW = FormatRow(format="nvfp4", scheme="w4a4", role="dense", arch="sm120", wanted="native")
OUTCOMES = st.lists(st.sampled_from(Outcome), max_size=4)


@given(OUTCOMES, st.lists(st.booleans(), max_size=3))
def test_the_exit_code_never_calls_unproved_a_success(outcomes: list[Outcome], holds: list[bool]) -> None:
    evidence = [Evidence(rung=0, binds=Binds.PACKAGE, subject="x", outcome=outcome) for outcome in outcomes]
    verdicts = [Verdict(about=ROW, verdict="native", level="static", holds=held) for held in holds]
    expected = 6 if Outcome.REFUTED in outcomes else 7 if Outcome.UNPROVED in outcomes or not all(holds) else 0
    assert exit_code(evidence, verdicts) == expected


def rows_lock() -> Lock:
    def row(format_: str, scheme: str, arch: str) -> LockedFormat:
        return LockedFormat(
            format=format_, scheme=scheme, role="dense", arch=arch, wanted="native", verdict="native",
            level="data", route="r",
        )  # fmt: skip

    lock = make_lock(
        (), formats=(row("nvfp4", "w4a4", "sm120"), row("nvfp4", "w4a16", "sm120"), row("mxfp4", "w4a4", "sm100"))
    )
    return replace(lock, target=replace(lock.target, gpus=(("rtx5090", "sm120"), ("b200", "sm100"))))


def test_only_and_gpu_pick_rows_of_the_lock() -> None:
    lock = rows_lock()
    assert len(select_locked(lock, only=(), archs=())) == 3
    assert [str(row) for row in select_locked(lock, only=("nvfp4@w4a16",), archs=())] == ["nvfp4@w4a16:dense"]
    assert [row.format for row in select_locked(lock, only=(), archs=("sm100",))] == ["mxfp4"]
    assert len(select_locked(lock, only=("nvfp4", "nvfp4@w4a4"), archs=("sm120",))) == 2
    for only, archs in (
        (("fp8",), ()),
        (("nvfp4:moe",), ()),
        ((), ("sm90",)),
        (("nvfp4",), ("sm100",)),
        (("a b",), ()),
    ):
        with pytest.raises(UsageError):
            select_locked(lock, only=only, archs=archs)


def test_without_a_lock_an_arch_is_needed() -> None:
    with pytest.raises(UsageError, match="--gpu"):
        select_given((), ())


def test_the_table_names_what_is_not_proved_and_collects_rungs(
    environment: Path, installed: tuple[Path, Lock, Built]
) -> None:
    module_of(environment, installed[2]).unlink()
    report = verify(environment, installed[1], static=True)
    (refuted,) = package_rows(report.evidence)
    assert refuted[:2] == ("refuted", "gated==1.0")
    (row,) = format_rows(report)
    assert dict(zip(format_header(), row, strict=True)) == {
        "format": "nvfp4@w4a4:dense", "gpu": "sm120", "route": "no engine",
        **dict.fromkeys(("1", "2", "3", "4", "5"), "?"), "6": "(?)", "7": "-", "8": "-",
        "verdict": "unknown", "level": "static", "holds": "no",
    }  # fmt: skip
    lines = plain_table(("outcome", "package", "seen", "why"), (refuted,)).splitlines()
    assert lines[0].index("package") == lines[1].index("gated==1.0")
