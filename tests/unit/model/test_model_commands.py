"""``--model`` through the commands: verdicts of checkpoints, differences between schemes and shapes, and the lock."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

import qresolve
from qresolve.cli.main import main
from qresolve.closure.request import Closure, ClosureRequest
from qresolve.edges import Edges
from qresolve.knowledge.engine import load_engine
from qresolve.lock.file import dump_lock, parse_lock
from qresolve.lock.model import Lock, LockedPackage, LockedWheel
from qresolve.locking import LockRequest, make_lock
from qresolve.measured import row_for
from qresolve.model.read import read_checkpoint
from qresolve.question import ask_question
from qresolve.target.drivers import read_cuda_releases
from qresolve.target.target import build_target, read_target_data
from tests.unit.model.model_support import CHECKPOINTS, changed

if TYPE_CHECKING:
    from collections.abc import Callable

ENGINE = "vllm==0.33.0"
SCHEMA = json.loads((Path(qresolve.__file__).parent / "schemas" / "explain.json").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def rows(self) -> dict[str, Any]:
        """The asked rows by ``format@scheme:role``."""
        return {
            f"{row['format']}@{row['scheme']}:{row['role']}": row
            for row in json.loads(self.out)["formats"]
            if row["asked"]
        }


@pytest.fixture
def explain(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def run(model: str | Path, gpu: str, *arguments: str) -> Ran:
        path = str(CHECKPOINTS / model) if isinstance(model, str) else str(model)
        code = main(["explain", "--gpu", gpu, "--engine", ENGINE, "--model", path, "--json", *arguments])
        captured = capsys.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    return run


@pytest.mark.parametrize("name", sorted(path.name for path in CHECKPOINTS.iterdir()))
def test_every_checkpoint_is_judged(explain: Callable[..., Ran], name: str) -> None:
    ran = explain(name, "sm120")
    jsonschema.validate(json.loads(ran.out), SCHEMA, jsonschema.Draft202012Validator)
    assert ran.rows
    assert all(f"model: {key}: " in ran.err for key in ran.rows)
    assert (ran.code == 0) is all(row["holds"] for row in ran.rows.values())


def test_checkpoints_of_one_format_with_and_without_activations_differ(explain: Callable[..., Ran]) -> None:
    both, weights = explain("llama-nvfp4-ct", "sm120"), explain("llama-nvfp4a16-ct", "sm120")
    assert {key: row["verdict"] for key, row in both.rows.items()} == {"nvfp4@w4a4:dense": "native"}
    assert {key: row["verdict"] for key, row in weights.rows.items()} == {"nvfp4@w4a16:dense": "weight-only"}
    # Weights alone are all that the checkpoint holds, so that is what is wanted of it.
    assert weights.rows["nvfp4@w4a16:dense"]["wanted"] == "weight-only"


def test_gpt_oss_asks_for_its_experts_only(explain: Callable[..., Ran]) -> None:
    ran = explain("gpt-oss", "sm120")
    assert set(ran.rows) == {"mxfp4@gpt-oss:moe"}
    assert json.loads(ran.out)["assumes"]["workload.sinks"] is True
    assert "model: workload.sinks = true" in ran.err


def test_a_small_k_on_a_rank_drops_the_native_route(explain: Callable[..., Ran], tmp_path: Path) -> None:
    """FlashInfer's MXFP8 wants K of at least 128: 768 / 4 = 192 has it, 768 / 8 = 96 has not."""
    mxfp8 = {"quant_algo": "MXFP8", "kv_cache_scheme": None}
    path = changed(tmp_path, "llama-modelopt-fp8", mxfp8, intermediate_size=768)
    whole, small = (explain(path, "sm100", "--tp", ranks) for ranks in ("4", "8"))
    assert whole.rows["mxfp8@w8a8:dense"]["verdict"] == "native"
    row = small.rows["mxfp8@w8a8:dense"]
    assert row["verdict"] == "weight-only"
    assert small.code == 4
    lost = next(route for route in row["routes"] if route["name"] == whole.rows["mxfp8@w8a8:dense"]["route"])
    assert any(gate["outcome"] == "fail" and "workload.k 96" in gate["have"] for gate in lost["gates"])


def test_the_text_says_what_each_layer_comes_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mxfp8 = {"quant_algo": "MXFP8", "kv_cache_scheme": None}
    path = changed(tmp_path, "llama-modelopt-fp8", mxfp8, intermediate_size=768)
    main(["explain", "--gpu", "sm100", "--engine", ENGINE, "--model", str(path), "--tp", "8"])
    out = capsys.readouterr().out
    assert "mlp.down_proj: weight-only (MarlinMxfp8LinearKernel)" in out
    assert "self_attn.o_proj: native" in out


def test_ragged_groups_are_unknown(explain: Callable[..., Ran], tmp_path: Path) -> None:
    ran = explain(changed(tmp_path, "llama-mxfp4-quark", intermediate_size=14352), "sm120")
    assert ran.rows["mxfp4@w4a4:dense"]["verdict"] == "unknown"
    assert ran.code == 7


def test_the_cache_of_latent_attention_is_unknown(explain: Callable[..., Ran]) -> None:
    ran = explain("deepseek-v3-fp8", "sm90", "--formats", "fp8:kv")
    assert ran.rows["fp8@e4m3:kv"]["verdict"] == "unknown"
    assert ran.code == 7


def test_formats_select_among_what_the_model_has(explain: Callable[..., Ran]) -> None:
    assert set(explain("llama-mixed", "sm120", "--formats", "nvfp4").rows) == {"nvfp4@w4a4:dense"}
    assert set(explain("deepseek-r1-nvfp4", "sm120", "--formats", "nvfp4:moe").rows) == {"nvfp4@w4a4:moe"}
    # The dtype of the cache is chosen when the engine starts.
    assert set(explain("llama-w8a8", "sm90", "--formats", "int8,fp8:kv").rows) == {"int8@w8a8:dense", "fp8@e4m3:kv"}


@pytest.mark.parametrize("formats", ["mxfp4", "nvfp4@w4a16", "nvfp4:moe", "nvfp4,fp8"])
def test_formats_that_the_model_has_not_are_an_error(explain: Callable[..., Ran], formats: str) -> None:
    ran = explain("llama-nvfp4-ct", "sm120", "--formats", formats)
    assert ran.code == 2
    assert "has nvfp4@w4a4:dense" in ran.err
    assert "hint: --formats nvfp4@w4a4:dense" in ran.err


def test_a_remedy_asks_about_the_same_model(explain: Callable[..., Ran], capsys: pytest.CaptureFixture[str]) -> None:
    ran = explain("llama-nvfp4-ct", "sm90")
    accept = next(
        item["run"] for item in ran.rows["nvfp4@w4a4:dense"]["remedy"] if item["run"] and "--allow" in item["run"]
    )
    words = accept.split()[2:]
    assert main(["explain", *words]) == 0
    assert "model: nvfp4@w4a4:dense" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--model", "/nowhere/config.json"], 2, "does not exist"),
        (["--model", str(CHECKPOINTS / "llama-fp8-dynamic"), "--tp", "3"], 2, "--tp 3 does not divide"),
        (["--model", str(CHECKPOINTS / "llama-fp8-dynamic"), "--tp", "0"], 2, "--tp 0"),
        (["--formats", "fp8", "--ep", "-1"], 2, "--ep -1"),
        ([], 2, "no format is asked for"),
    ],
)
def test_usage_errors(arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--gpu", "sm120", *arguments]) == code
    assert said in capsys.readouterr().err


def test_broken_json_and_unknown_schemes(explain: Callable[..., Ran], tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("{]")
    ran = explain(path, "sm120")
    assert ran.code == 8
    assert "line 1 column 2" in ran.err
    ran = explain(changed(tmp_path / "b", "deepseek-v3-fp8", {"activation_scheme": "mystery"}), "sm120")
    assert ran.code == 2
    assert "activation_scheme = mystery" in ran.err


def test_a_folder_and_its_file_are_the_same(explain: Callable[..., Ran]) -> None:
    folder = explain("llama-modelopt-nvfp4", "sm100")
    file = explain(CHECKPOINTS / "llama-modelopt-nvfp4" / "hf_quant_config.json", "sm100")
    # Remedies name the path that was given.
    without = [
        {key: {name: value for name, value in row.items() if name != "remedy"} for key, row in ran.rows.items()}
        for ran in (folder, file)
    ]
    assert without[0] == without[1]
    assert set(folder.rows) == {"nvfp4@w4a4:dense", "fp8@e4m3:kv"}


def test_an_assumption_wins_over_the_model(explain: Callable[..., Ran]) -> None:
    """sm120's NVFP4 of a model that is said to be of another dtype is judged by what was said."""
    ran = explain("llama-nvfp4-ct", "sm120", "--assume", "workload.dtype=fp16")
    assert json.loads(ran.out)["assumes"]["workload.dtype"] == "fp16"


def test_parallelism_without_a_model_is_a_fact_of_the_workload(capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", "--gpu", "sm120", "--formats", "nvfp4:moe", "--ep", "2", "--json", "--engine", ENGINE])
    assert json.loads(capsys.readouterr().out)["assumes"]["workload.ep"] == 2


# ---------------------------------------------------------------- lock


def _package(name: str, version: str) -> LockedPackage:
    filename = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    row = row_for(name, version, "x86_64")
    wheel = LockedWheel(
        filename=filename,
        url=f"https://files.invalid/{filename}",
        sha256=row.sha256 if row is not None else "0" * 64,
        size=1,
    )
    return LockedPackage(name=name, version=version, wheel=wheel)


def _close(request: ClosureRequest) -> Closure:
    version = request.requirements[0].partition("==")[2]
    versions = {pin.package: pin.version for pin in load_engine("vllm", version).release.pins} | {"vllm": version}
    return Closure(packages=tuple(_package(name, found) for name, found in sorted(versions.items())))


def _locked(path: Path, *, tp: int | None = None) -> Lock:
    data = read_target_data()
    question = ask_question(
        formats=[],
        target=build_target(gpu=["sm120"], data=data),
        architectures=data.architectures,
        engine=ENGINE,
        checkpoint=read_checkpoint(str(path)),
        tp=tp,
    )
    edges = Edges(
        close=_close,
        record=lambda package: f"sha256:{package.name}",
        measure=lambda _: None,
        newer=lambda *_: None,
        say=lambda _: None,
    )
    request = LockRequest(requested=tuple(ask.key for ask in question.asks))
    return make_lock(question, request, edges, read_cuda_releases()).lock


def test_one_model_gives_the_same_bytes_whatever_its_path(tmp_path: Path) -> None:
    one = _locked(changed(tmp_path / "one", "llama-mixed"))
    other = _locked(changed(tmp_path / "another" / "place", "llama-mixed").parent)
    assert dump_lock(one) == dump_lock(other)
    assert str(tmp_path) not in dump_lock(one)
    assert {(row.format, row.verdict) for row in one.formats} == {("fp8", "native"), ("nvfp4", "native")}
    assert len(one.formats) == 2  # one row a format, not one a layer


def test_the_lock_records_what_differs_from_the_reference(tmp_path: Path) -> None:
    lock = _locked(changed(tmp_path, "llama-mixed"), tp=2)
    facts = dict(lock.assumed)
    assert facts["workload.tp"] == "2"
    assert facts["workload.model-type"] == "llama"
    assert facts["workload.layers.nvfp4@w4a4:dense"] == "14336x4096 4096x7168"
    assert "workload.dtype" not in facts  # bf16, as the reference has it
    assert parse_lock(dump_lock(lock), name="pylock.toml").assumed == lock.assumed
    assert dump_lock(lock) != dump_lock(_locked(changed(tmp_path, "llama-mixed"), tp=4))
