"""verify on an environment with an engine: what is proved without a GPU, and what never is."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from qresolve.cli.main import main
from qresolve.setting import Setting
from qresolve.verify.check import Wish, run_verify
from qresolve.verify.evidence import Evidence, FormatRow, Outcome, Verdict, exit_code
from tests.fake_engine import WITHOUT, FakeEnvironment, make_environment
from tests.unit.install.environments import make_lock

if TYPE_CHECKING:
    from pathlib import Path

    from qresolve.lock.model import Lock
    from qresolve.verify.evidence import VerifyReport


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> FakeEnvironment:
    return make_environment(tmp_path_factory.mktemp("made") / "env")


@pytest.fixture
def environment(made: FakeEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEnvironment:
    monkeypatch.setenv("QRESOLVE_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("VLLM_DISABLED_KERNELS", "VLLM_HAS_FLASHINFER_CUBIN", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    copy = FakeEnvironment.__new__(FakeEnvironment)
    copy.folder = tmp_path / "env"
    shutil.copytree(made.folder, copy.folder, symlinks=True)
    copy.python = copy.folder / "bin" / "python"
    copy.site = next(copy.folder.glob("lib/python3*/site-packages"))
    return copy


def look(
    environment: FakeEnvironment, *, arch: str = "sm120", lock: Lock | None = None, wanted: str = "native"
) -> tuple[VerifyReport, dict[int, Evidence], Verdict]:
    row = FormatRow(format="nvfp4", scheme="w4a4", role="dense", arch=arch, wanted=wanted)
    report = run_verify(lock, (row,), python=environment.python, wish=Wish(launching=False))
    (verdict,) = report.verdicts
    return report, {one.rung: one for one in report.evidence if one.about is not None}, verdict


def code(report: VerifyReport) -> int:
    return exit_code(report.evidence, report.verdicts)


def test_a_native_kernel_is_proved_from_its_files_to_the_selector(environment: FakeEnvironment) -> None:
    report, rungs, verdict = look(environment)
    outcomes = {number: one.outcome for number, one in rungs.items()}
    assert outcomes == {
        **dict.fromkeys(range(1, 6), Outcome.PROVED),
        **dict.fromkeys((6, 7, 8), Outcome.SKIPPED),
    }
    assert (verdict.verdict, verdict.level, verdict.holds) == ("native", "static", True)
    assert verdict.route == "CutlassNvFp4LinearKernel"
    assert code(report) == 0
    assert "OMMA.SF.F32.E2M1.E2M1.UE4M3.4X" in (rungs[3].seen or "")
    assert "sm_120f" in (rungs[1].seen or "")
    assert rungs[4].seen == "_C.cutlass_scaled_mm_supports_fp4(120) = True"


def test_the_same_version_without_the_kernel_is_broken(environment: FakeEnvironment) -> None:
    environment.library.write_bytes(WITHOUT.read_bytes())
    report, rungs, verdict = look(environment)
    assert rungs[2].outcome is Outcome.REFUTED
    assert "nvfp4_scaled_mm_sm120_kernels" in (rungs[2].why or "")
    assert (verdict.verdict, verdict.holds) == ("broken", False)
    assert code(report) == 6


@pytest.mark.parametrize("content", [b"", b"\x7fELF" + b"\0" * 60, b"not a library at all"])
def test_a_library_that_cannot_be_read_proves_nothing(environment: FakeEnvironment, content: bytes) -> None:
    environment.library.write_bytes(content)
    report, rungs, verdict = look(environment)
    assert rungs[1].outcome is Outcome.UNPROVED
    assert not verdict.holds
    assert code(report) == 7


def test_a_predicate_that_says_yes_where_no_image_loads_proves_nothing(environment: FakeEnvironment) -> None:
    # On sm110 predicate and selector both say yes; the library has sm_80, sm_100f and sm_120f images.
    report, rungs, verdict = look(environment, arch="sm110")
    assert rungs[4].outcome is Outcome.PROVED
    assert rungs[1].outcome is Outcome.REFUTED
    assert verdict.verdict == "broken"
    assert code(report) == 6


def test_a_disabled_kernel_is_not_proved(environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_DISABLED_KERNELS", "CutlassNvFp4LinearKernel")
    report, rungs, verdict = look(environment)
    assert (rungs[5].seen or "").startswith("MarlinNvFp4LinearKernel")
    assert rungs[5].outcome is Outcome.REFUTED
    assert not verdict.holds
    assert code(report) == 6


def test_the_locks_settings_win_over_the_shells_variables(
    environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_DISABLED_KERNELS", "CutlassNvFp4LinearKernel")
    lock = make_lock((), settings=(Setting(env="VLLM_DISABLED_KERNELS", value=""),))
    _, rungs, verdict = look(environment, lock=lock)
    assert (rungs[5].seen or "").startswith("CutlassNvFp4LinearKernel")
    assert verdict.holds


def test_a_setting_that_forces_another_kernel_is_what_the_engine_is_asked_under(environment: FakeEnvironment) -> None:
    forced = Setting(path="kernel_config.linear_backend_per_quant.nvfp4_w4a4", value="marlin")
    report, rungs, verdict = look(environment, lock=make_lock((), settings=(forced,)))
    assert (rungs[5].seen or "").startswith("MarlinNvFp4LinearKernel")
    assert not verdict.holds
    assert code(report) == 6


def test_reordering_the_installed_list_changes_what_is_seen(environment: FakeEnvironment) -> None:
    _, before, _ = look(environment)
    text = environment.linear.read_text()
    environment.linear.write_text(
        text.replace(
            "    CutlassNvFp4LinearKernel,\n    MarlinNvFp4LinearKernel,\n",
            "    MarlinNvFp4LinearKernel,\n    CutlassNvFp4LinearKernel,\n",
        )
    )
    report, after, verdict = look(environment)
    assert before[5].source != after[5].source
    assert (after[5].seen or "").startswith("MarlinNvFp4LinearKernel")
    assert after[5].outcome is Outcome.UNPROVED  # the records expect another: they or the files are not what they seem
    assert not verdict.holds
    assert code(report) != 0


def test_a_folder_called_vllm_where_one_stands_changes_nothing(
    environment: FakeEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "here" / "vllm"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "here"))
    assert look(environment)[2].holds


def test_an_edited_verdict_of_the_lock_is_no_evidence(environment: FakeEnvironment) -> None:
    environment.library.write_bytes(WITHOUT.read_bytes())
    lock = make_lock(())
    assert lock.formats[0].verdict == "native"
    report, _, verdict = look(environment, lock=lock)
    assert verdict.verdict == "broken"
    lowered = replace(lock, formats=(replace(lock.formats[0], verdict="emulated", level="data"),))
    assert look(environment, lock=lowered)[2] == verdict
    assert code(report) == 6


ENDS = {
    "crash": ("import os, sys\nprint('something went wrong', file=sys.stderr, flush=True)\nos.abort()\n", "SIGABRT"),
    "exception": ("raise RuntimeError('no such thing')\n", "no such thing"),
    "exit": ("raise SystemExit(3)\n", "could not be asked"),
    "nonsense": (
        'import os, sys\nos.write(int(sys.argv[1]), b\'{"job": 0, "answers": 7}\\n\')\nos._exit(0)\n',
        "not those",
    ),
}


@pytest.mark.parametrize("kind", ENDS)
def test_an_engine_that_cannot_be_asked_is_unproved(environment: FakeEnvironment, kind: str) -> None:
    text, said = ENDS[kind]
    environment.linear.write_text(text)
    report, rungs, verdict = look(environment)
    assert rungs[5].outcome is Outcome.UNPROVED
    assert said in (rungs[5].why or "")
    assert (verdict.verdict, verdict.holds) == ("unknown", False)
    assert code(report) == 7


def test_a_selector_that_refuses_is_unsupported(environment: FakeEnvironment) -> None:
    environment.linear.write_text(
        "def init_nvfp4_linear_kernel(use_a16=False):\n    raise ValueError('Failed to find a kernel')\n"
    )
    report, rungs, verdict = look(environment)
    assert rungs[5].why == "ValueError: Failed to find a kernel"
    assert verdict.verdict == "unsupported"
    assert code(report) == 6


def test_a_kernel_that_no_record_knows_is_unproved(environment: FakeEnvironment) -> None:
    text = environment.linear.read_text().replace("CutlassNvFp4LinearKernel", "BrandNewLinearKernel")
    environment.linear.write_text(text)
    report, rungs, _ = look(environment)
    assert "BrandNewLinearKernel" in (rungs[5].why or "")
    assert code(report) == 7


def test_a_release_without_records_is_unproved(environment: FakeEnvironment) -> None:
    (environment.site / "vllm-0.33.0.dist-info").rename(environment.site / "vllm-99.0.dist-info")
    metadata = environment.site / "vllm-99.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("0.33.0", "99.0"))
    report, rungs, _ = look(environment)
    assert "99.0" in (rungs[5].why or "")
    assert code(report) == 7


def test_an_environment_without_an_engine_proves_nothing(environment: FakeEnvironment) -> None:
    shutil.rmtree(environment.site / "vllm-0.33.0.dist-info")
    report, rungs, verdict = look(environment)
    assert "no engine" in (rungs[5].why or "")
    assert (verdict.verdict, verdict.holds) == ("unknown", False)
    assert code(report) == 7


def test_two_engines_are_both_looked_at_and_one_can_be_named(environment: FakeEnvironment) -> None:
    environment.add("lmdeploy", "0.18.0", {"lmdeploy/__init__.py": ""})
    row = FormatRow(format="nvfp4", scheme="w4a4", role="dense", arch="sm120", wanted="native")
    report = run_verify(None, (row,), python=environment.python, wish=Wish(launching=False))
    held = {verdict.about.engine: verdict.holds for verdict in report.verdicts}
    assert held == {"vllm": True, "lmdeploy": False}
    assert code(report) != 0
    named = run_verify(None, (row,), python=environment.python, wish=Wish(launching=False, engine="vllm"))
    assert code(named) == 0


def test_a_weight_only_scheme_holds_with_its_weight_only_kernel_only(environment: FakeEnvironment) -> None:
    allowed = look(environment, wanted="weight-only")[2]
    assert allowed.verdict == "native"  # better than what is wanted
    assert allowed.holds


def test_the_environment_is_left_as_it_was(environment: FakeEnvironment) -> None:
    def files() -> dict[str, bytes]:
        return {
            str(path.relative_to(environment.folder)): path.read_bytes()
            for path in environment.folder.rglob("*")
            if path.is_file() and not path.is_symlink()
        }

    before = files()
    look(environment)
    assert files() == before


def test_the_command_ends_with_0_6_and_7(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["verify", "--python", str(environment.python), "--gpu", "sm120", "--formats", "nvfp4"]
    assert main([*asked, "--static"]) == 0
    shown = capsys.readouterr().out
    assert "native" in shown
    assert "CutlassNvFp4LinearKernel" in shown
    assert main([*asked, "--static", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [(one["verdict"], one["level"], one["engine"]) for one in printed["verdicts"]] == [
        ("native", "static", "vllm")
    ]
    environment.library.write_bytes(WITHOUT.read_bytes())
    assert main([*asked, "--static"]) == 6
    environment.linear.unlink()
    environment.library.write_bytes(b"")
    assert main([*asked, "--static"]) == 7
