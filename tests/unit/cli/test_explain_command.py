"""``qresolve explain``: exit codes, what it says and offers, and the published schema of its JSON."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

import qresolve
from qresolve.cli.main import build_parser, main
from qresolve.knowledge.load import read_formats

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = json.loads((Path(qresolve.__file__).parent / "schemas" / "explain.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
ARCHS = ("sm75", "sm80", "sm86", "sm89", "sm90", "sm100", "sm103", "sm110", "sm120", "sm121")
EVERY_FORMAT = ",".join(
    f"{form.name}@{scheme.name}:{role}"
    for form in read_formats().formats
    for scheme in form.schemes
    for role in scheme.roles
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def explain(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def run(*arguments: str) -> Ran:
        code = main(["explain", *arguments])
        captured = capsys.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    return run


def asked(document: Any) -> list[Any]:
    return [row for row in document["formats"] if row["asked"]]


# ---------------------------------------------------------------- exit codes


def test_settings_are_called_below_only_where_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """NVFP4 holds on sm120 and not on sm90, so no lock holds both, and no settings of both are listed."""
    assert main(["explain", "--gpu", "sm90,sm120", "--formats", "nvfp4"]) == 4
    apart = capsys.readouterr().out
    assert main(["explain", "--gpu", "sm120", "--formats", "nvfp4"]) == 0
    together = capsys.readouterr().out
    listed = "settings that the lock will hold:"
    assert (listed in apart, "settings of a lock of its own" in " ".join(apart.split())) == (False, True)
    assert (listed in together, "settings below" in " ".join(together.split())) == (True, True)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("--gpu sm120 --formats mxfp4,nvfp4", 0),
        ("--gpu sm90 --formats mxfp4 --allow mxfp4=mixed", 0),
        ("--gpu sm90 --formats mxfp4 --allow mxfp4=emulated", 0),
        ("--gpu sm90 --formats mxfp4", 4),
        # A better class than the one that is had was allowed.
        ("--gpu sm90 --formats nvfp4 --allow nvfp4=mixed", 4),
        ("--gpu sm90 --formats mxfp4 --allow nvfp4=mixed", 2),
        ("--gpu sm120 --formats nf4", 3),
        ("--gpu sm120 --formats nvfp4 --engine vllm==0.0.1", 3),
        ("--gpu sm120 --formats nvfp4 --engine vllm==99.0", 3),
        ("--gpu sm120 --formats nvpf4", 2),
        ("--gpu sm1200 --formats nvfp4", 2),
        ("--gpu rtx50900 --formats nvfp4", 2),
        ("--gpu sm120 --formats nvfp4 --fromats mxfp4", 2),
        ("--gpu sm120 --formats nvfp4 --engine vlm", 2),
        ("--gpu sm120 --formats nvfp4 --engine vllm>=0.3", 2),
        ("--gpu sm120 --formats nvfp4 --engine vllm==newest", 2),
        ("--gpu sm120 --formats nvfp4 --assume build.cud=12.8", 2),
        ("--gpu sm120 --formats nvfp4 --allow nvfp4=slow", 2),
        ("--gpu sm120", 2),
        ("--formats nvfp4", 2),
    ],
)
def test_exit_codes(explain: Callable[..., Ran], arguments: str, code: int) -> None:
    assert explain(*arguments.split()).code == code


@pytest.mark.parametrize("json_too", [(), ("--json",)])
def test_the_code_is_the_same_with_json(explain: Callable[..., Ran], json_too: tuple[str, ...]) -> None:
    assert explain("--gpu", "sm90", "--formats", "mxfp4", *json_too).code == 4


def test_unasked_rows_never_change_the_exit_code(explain: Callable[..., Ran]) -> None:
    ran = explain("--gpu", "sm120", "--formats", "mxfp4", "--json")
    beside = [row for row in ran.json["formats"] if not row["asked"]]
    assert any(not row["holds"] for row in beside)
    assert all(row["holds"] for row in asked(ran.json))
    assert ran.code == 0


@pytest.mark.parametrize(
    "arguments",
    ["--gpu sm120 --formats nvpf4", "--gpu sm120 --formats nvfp4 --engine vllm==99.0", "--gpu sm120 --formats n --x"],
)
def test_an_error_is_one_message_and_one_hint_on_stderr_and_nothing_on_stdout(
    explain: Callable[..., Ran], arguments: str
) -> None:
    ran = explain(*arguments.split())
    lines = ran.err.splitlines()
    assert ran.out == ""
    assert [line.partition(": ")[0] for line in lines] == ["error", "hint"]


def test_a_newer_release_than_the_records_is_said_to_be_newer(explain: Callable[..., Ran]) -> None:
    ran = explain("--gpu", "sm120", "--formats", "nvfp4", "--engine", "vllm==99.0")
    assert "newer than the records" in ran.err
    hint = ran.err.partition("hint: ")[2].split()
    assert explain("--gpu", "sm120", "--formats", "nvfp4", *hint).code == 0


# ---------------------------------------------------------------- what it says


def test_mxfp4_and_nvfp4_on_sm120_are_native_together(explain: Callable[..., Ran]) -> None:
    ran = explain("--gpu", "sm120", "--formats", "mxfp4,nvfp4", "--json")
    rows = {row["format"]: row for row in asked(ran.json)}
    assert {name: row["verdict"] for name, row in rows.items()} == {"mxfp4": "native", "nvfp4": "native"}
    assert rows["mxfp4"]["route"] == "HummingMxFp4LinearKernel"
    assert {"path": "kernel_config.linear_backend_per_quant.mxfp4", "value": "humming"} in ran.json["settings"]
    auto = rows["mxfp4"]["auto"]
    assert (auto["verdict"], auto["route"], auto["loudness"]) == ("weight-only", "MarlinMxFp4LinearKernel", "silent")
    assert all(setting in ran.json["settings"] for row in rows.values() for setting in row["settings"])


def test_mxfp4_on_sm90_says_that_nothing_helps_what_runs_instead_and_what_else_there_is(
    explain: Callable[..., Ran],
) -> None:
    ran = explain("--gpu", "sm90", "--formats", "mxfp4")
    assert "no install of vllm 0.33.0 makes it native" in " ".join(ran.out.split())
    assert "HummingMxFp4LinearKernel" in ran.out
    assert "mixed (wanted native)" in ran.out
    assert "--allow mxfp4@w4a4:dense=mixed" in ran.out
    assert "use a format that is native there: fp8" in ran.out
    assert ran.code == 4


def test_what_sm90_offers_instead_is_native_there(explain: Callable[..., Ran]) -> None:
    (row,) = asked(explain("--gpu", "sm90", "--formats", "mxfp4", "--json").json)
    say = next(remedy["say"] for remedy in row["remedy"] if "use a format" in remedy["say"])
    for name in say.rpartition(": ")[2].split(", "):
        (other,) = asked(explain("--gpu", "sm90", "--formats", name, "--json").json)
        assert other["verdict"] == "native"


def test_every_gpu_is_judged(explain: Callable[..., Ran]) -> None:
    ran = explain("--gpu", "sm90,sm120", "--formats", "mxfp4", "--json")
    assert {row["arch"]: row["verdict"] for row in asked(ran.json)} == {"sm90": "mixed", "sm120": "native"}
    assert ran.code == 4
    text = explain("--gpu", "sm90", "--gpu", "sm120", "--formats", "mxfp4").out
    assert "sm90" in text
    assert "sm120" in text


def test_one_environment_serves_gpus_of_two_classes_where_there_is_one(explain: Callable[..., Ran]) -> None:
    ran = explain("--gpu", "sm90,sm120", "--formats", "nvfp4", "--json")
    assert {row["arch"]: row["verdict"] for row in asked(ran.json)} == {"sm90": "weight-only", "sm120": "native"}
    allowed = explain("--gpu", "sm90,sm120", "--formats", "nvfp4", "--allow", "nvfp4=weight-only", "--json")
    assert allowed.code == 0
    assert [row["verdict"] for row in asked(allowed.json)] == [row["verdict"] for row in asked(ran.json)]


def test_assumptions_are_said_and_recorded(explain: Callable[..., Ran]) -> None:
    arguments = ("--gpu", "sm120", "--formats", "nvfp4", "--assume", "build.cuda=12.6")
    ran = explain(*arguments)
    assert "assumed: build.cuda = 12.6" in ran.err
    document = explain(*arguments, "--json").json
    assert document["assumes"]["build.cuda"] == "12.6"
    # CUDA 12.6 has no FP4 at all, so the wheel's own kernel cannot have been built with it.
    assert asked(document)[0]["route"] != "CutlassNvFp4LinearKernel"


def test_the_workload_and_the_targets_defaults_are_said(explain: Callable[..., Ran]) -> None:
    ran = explain("--gpu", "gb10", "--formats", "nvfp4", "--json")
    assert ran.json["target"]["machine"] == "aarch64"
    assert "aarch64" in ran.err
    assert "assumed workload: reference" in ran.err
    assert ran.json["assumes"]["workload.dtype"] == "bf16"


def test_neither_the_order_nor_the_grouping_of_formats_counts(explain: Callable[..., Ran]) -> None:
    one = explain("--gpu", "sm120", "--formats", "mxfp4,nvfp4", "--json").out
    other = explain("--formats", "nvfp4", "--gpu", "sm120", "--formats", "mxfp4@w4a4:dense", "--json").out
    assert one == other


def test_verbose_gives_each_route_with_what_rejected_it(explain: Callable[..., Ran]) -> None:
    ran = explain("--gpu", "sm120", "--formats", "mxfp4", "-v")
    for name in ("FlashInferMxFp4LinearKernel", "MarlinMxFp4LinearKernel", "EmulationMxfp4LinearKernel"):
        assert name in ran.out
    assert "no execute flashinfer-accepts-mxfp4: needs gpu.family = 100; have gpu.family 120" in ran.out


# ---------------------------------------------------------------- the schema


def objects(schema: Any, path: str = "") -> list[tuple[str, Any]]:
    found = [(path, schema)] if isinstance(schema, dict) and schema.get("type") == "object" else []
    if isinstance(schema, dict):
        return found + [item for key, value in schema.items() for item in objects(value, f"{path}/{key}")]
    if isinstance(schema, list):
        return found + [item for n, value in enumerate(schema) for item in objects(value, f"{path}/{n}")]
    return found


def test_the_schema_is_one_and_closed_everywhere() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for path, found in objects(SCHEMA):
        if path != "/$defs/facts":
            assert found.get("additionalProperties") is False, path
            assert set(found["required"]) == set(found["properties"]), path


def test_the_schema_has_the_promised_shape() -> None:
    """The keys that are promised, written down a second time."""
    assert SCHEMA["required"] == ["schema", "target", "engine", "assumes", "formats", "settings", "data_digest"]
    assert list(SCHEMA["$defs"]["format"]["properties"]) == [
        "format", "scheme", "role", "arch", "asked", "wanted", "holds", "verdict", "level", "possible", "route",
        "settings", "auto", "routes", "remedy", "alone", "layers",
    ]  # fmt: skip
    assert list(SCHEMA["$defs"]["auto"]["properties"]) == ["verdict", "route", "loudness", "assumes"]
    assert list(SCHEMA["$defs"]["route"]["properties"]) == ["name", "class", "decision", "gates"]
    gate = ["id", "outcome", "needs", "have", "loudness", "source"]
    assert list(SCHEMA["$defs"]["gate"]["properties"]) == gate
    assert list(SCHEMA["$defs"]["remedy"]["properties"]) == ["say", "run"]


@pytest.mark.parametrize("gpu", ARCHS)
def test_every_format_on_every_gpu_is_valid(explain: Callable[..., Ran], gpu: str) -> None:
    document = explain("--gpu", gpu, "--formats", EVERY_FORMAT, "--json").json
    VALIDATOR.validate(document)
    assert len(asked(document)) == len(EVERY_FORMAT.split(","))


@pytest.mark.parametrize(
    "arguments",
    [
        "--gpu gb10 --formats nvfp4",
        "--gpu sm90,sm120 --formats nvfp4,mxfp4,fp8:kv",
        "--gpu thor --formats mxfp4 --allow mxfp4=emulated",
        "--gpu h100 --formats mxfp4@gpt-oss --nvcc 13.0 --driver 580.95.05",
        "--gpu sm120 --formats nvfp4 --nvcc none --assume package.b12x=1.5.1 --assume host.ninja=true",
        "--gpu sm120 --formats nvfp4 --assume env.VLLM_DISABLED_KERNELS=CutlassNvFp4LinearKernel,X",
        "--gpu sm120 --formats nf4",
    ],
)
def test_other_targets_and_assumptions_are_valid(explain: Callable[..., Ran], arguments: str) -> None:
    VALIDATOR.validate(explain(*arguments.split(), "--json").json)


def spoil(document: Any, path: list[Any], value: Any) -> Any:
    spoiled = json.loads(json.dumps(document))
    inner = spoiled
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return spoiled


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["extra"], 1),
        (["formats", 0, "extra"], 1),
        (["formats", 0, "verdict"], "fast"),
        (["formats", 0, "role"], "attention"),
        (["formats", 0, "wanted"], "broken"),
        (["formats", 0, "level"], "guessed"),
        (["formats", 0, "holds"], "yes"),
        (["formats", 0, "possible"], []),
        (["formats", 0, "possible"], ["native", "mixed"]),
        (["formats", 0, "auto", "loudness"], "loud"),
        (["formats", 0, "routes", 0, "decision"], "skipped"),
        (["formats", 0, "routes", 0, "gates", 0, "outcome"], True),
        (["formats", 0, "settings"], [{"path": "a.b", "env": "C", "value": "d"}]),
        (["settings"], [{"path": "a.b", "value": None}]),
        (["target", "gpus"], []),
        (["target", "gpus", 0, "arch"], "12.0"),
        (["engine", "version"], None),
        (["data_digest"], "md5:0"),
    ],
)
def test_the_schema_refuses_what_is_wrong(explain: Callable[..., Ran], path: list[Any], value: Any) -> None:
    document = explain("--gpu", "sm120", "--formats", "mxfp4", "--json").json
    assert VALIDATOR.is_valid(document)
    assert not VALIDATOR.is_valid(spoil(document, path, value))


@pytest.mark.parametrize("gpu", ["sm80", "sm90", "sm100", "sm120"])
def test_each_row_agrees_with_itself(explain: Callable[..., Ran], gpu: str) -> None:
    order = SCHEMA["$defs"]["class"]["enum"]
    for row in explain("--gpu", gpu, "--formats", EVERY_FORMAT, "--json").json["formats"]:
        holds = row["verdict"] in order and order.index(row["verdict"]) <= order.index(row["wanted"])
        assert row["holds"] is holds
        assert (row["verdict"] == "unknown") is (row["possible"] == ["unknown"] or len(row["possible"]) > 1)
        selected = [route["name"] for route in row["routes"] if route["decision"] == "selected"]
        assert selected == ([row["route"]] if row["route"] is not None else [])
        for route in row["routes"]:
            if row["holds"] and route["decision"] == "selected":
                assert not [gate["id"] for gate in route["gates"] if gate["outcome"] == "fail"]
            if route["decision"] == "rejected":
                assert [gate["id"] for gate in route["gates"] if gate["outcome"] == "fail"]


# ---------------------------------------------------------------- remedies


def remedies(document: Any) -> list[tuple[Any, str]]:
    return [(row, remedy["run"]) for row in document["formats"] for remedy in row["remedy"] if remedy["run"]]


@pytest.mark.parametrize("gpu", ["sm75", "sm90", "gh200", "sm100", "sm120"])
def test_every_remedy_parses_and_does_what_it_says(explain: Callable[..., Ran], gpu: str) -> None:
    document = explain("--gpu", gpu, "--formats", "mxfp4,nvfp4,mxfp8,fp8-block", "--python", "3.13", "--json").json
    found = remedies(document)
    assert found
    for row, run in found:
        program, *words = shlex.split(run)
        assert program == "qresolve"
        build_parser().parse_args(words)
        ran = explain(*words[1:], "--json")
        assert ran.code == 0, run
        if words[0] == "lock":
            (again,) = asked(ran.json)
            assert (again["format"], again["scheme"], again["role"]) == (row["format"], row["scheme"], row["role"])
        # It asks about the same target.
        assert [gpu["arch"] for gpu in ran.json["target"]["gpus"]] == [row["arch"]]
        assert {key: ran.json["target"][key] for key in ("machine", "glibc", "python")} == {
            key: document["target"][key] for key in ("machine", "glibc", "python")
        }


def test_a_remedy_keeps_engine_and_assumptions(explain: Callable[..., Ran]) -> None:
    options = ("--engine", "vllm==0.33.0", "--assume", "host.ninja=true", "--nvcc", "13.0")
    document = explain("--gpu", "sm90", "--formats", "mxfp4", *options, "--json").json
    for _, run in remedies(document):
        again = explain(*shlex.split(run)[2:], "--json").json
        assert again["assumes"] == document["assumes"]
        assert (again["engine"], again["target"]["nvcc"]) == (document["engine"], "13.0")


def test_what_is_no_class_is_never_offered_to_be_accepted(explain: Callable[..., Ran]) -> None:
    document = explain("--gpu", "sm120", "--formats", "nf4,nvfp4:kv,w4a8-fp8:moe", "--json").json
    assert {row["verdict"] for row in asked(document)} <= {"unsupported", "broken", "unknown"}
    assert not [run for _, run in remedies(document) if "--allow" in run]


# ---------------------------------------------------------------- as a process


def process(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "qresolve", *arguments],
        capture_output=True,
        check=False,
        timeout=60,
        cwd=Path(qresolve.__file__).parents[1],
        env={**os.environ, **(environment or {})},
    )


@pytest.mark.parametrize(
    "environment", [{"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}]
)
@pytest.mark.parametrize("arguments", ["explain --gpu sm120 --formats nvfp4", "explain --help", "--help"])
def test_it_prints_in_the_c_locale(environment: dict[str, str], arguments: str) -> None:
    done = process(*arguments.split(), environment=environment)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr
    assert done.stdout


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = [sys.executable, "-m", "qresolve", "explain", "--gpu", "sm120", "--formats", EVERY_FORMAT, "-v", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path(qresolve.__file__).parents[1]
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        errors = child.stderr.read().decode()
        code = child.wait(timeout=60)
    assert "Traceback" not in errors
    assert "BrokenPipe" not in errors
    assert code == 0


@pytest.mark.parametrize("seed", ["0", "1"])
def test_the_hash_seed_changes_nothing(explain: Callable[..., Ran], seed: str) -> None:
    arguments = ("--gpu", "sm90,sm120", "--formats", "nvfp4,mxfp4,mxfp8", "--json")
    done = process("explain", *arguments, environment={"PYTHONHASHSEED": seed})
    assert done.stdout.decode() == explain(*arguments).out


# ---------------------------------------------------------------- formats that cannot be had together

CLASHING = "fp8@channel-dynamic:moe,nvfp4@w4a4:moe"


def test_formats_that_each_hold_alone_and_not_together_are_not_said_to_hold(explain: Callable[..., Ran]) -> None:
    newest = ("--engine", "vllm==0.33.0")  # older releases have variables of their own for each
    for one in CLASHING.split(","):
        assert explain("--gpu", "sm120", "--formats", one, *newest).code == 0
    ran = explain("--gpu", "sm120", "--formats", CLASHING, "--json", *newest)
    assert ran.code != 0
    assert [row["holds"] for row in asked(ran.json)].count(False) == 1
    (row,) = (row for row in asked(ran.json) if not row["holds"])
    alone = next(remedy for remedy in row["remedy"] if "an environment of its own" in remedy["say"])
    assert explain(*shlex.split(alone["run"])[2:]).code == 0


@pytest.mark.parametrize(
    ("arguments", "todo"),
    [
        ("--gpu sm90 --formats mxfp4", "accept it or use another format"),
        ("--gpu sm120 --formats w4a8-fp8:moe", "see below"),
        ("--gpu sm120 --formats nf4", "bitsandbytes left vLLM's core"),
    ],
)
def test_what_to_do_is_what_can_be_done(explain: Callable[..., Ran], arguments: str, todo: str) -> None:
    ran = explain(*arguments.split())
    assert todo in " ".join(ran.out.split())
    assert ("accept it" in ran.out) is (todo.startswith("accept it"))


@pytest.mark.parametrize("formats", ["nvfp4", "mxfp4", "mxfp8", "int4"])
def test_a_k_that_is_not_whole_groups_is_not_known(formats: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["explain", "--engine", "vllm==0.33.0", "--gpu", "sm120", "--formats", formats]
    assert main([*command, "--assume", "workload.k=100"]) == 7
    assert "is not whole groups of" in capsys.readouterr().out
    assert main([*command, "--assume", "workload.k=2048"]) == 0


def test_a_value_that_a_fact_cannot_have_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--gpu", "sm120", "--formats", "nvfp4", "--assume", "workload.dtype=fp17"]) == 2
    assert "bf16, fp16" in capsys.readouterr().err


def test_options_are_spelled_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--gpu", "sm120", "--form", "nvfp4"]) == 2
    assert "--form" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("--driver", "450.80.02"), ("--python", "3.9")])
def test_explain_warns_of_a_target_that_lock_refuses(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "--engine", "vllm==0.33.0", "--gpu", "sm120", "--formats", "nvfp4", option, value]) == 0
    assert "warning: `lock` refuses this target" in capsys.readouterr().err


def test_accepting_less_for_what_is_not_asked_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--gpu", "sm90", "--formats", "nvfp4", "--allow", "mxfp4=mixed"]) == 2
    assert "mxfp4=mixed" in capsys.readouterr().err
