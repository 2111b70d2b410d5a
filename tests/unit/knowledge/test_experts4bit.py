"""experts4bit-qlora with grouped-nf4-gemm: what its records say, held against what its sources do."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from qresolve.cli.main import main
from qresolve.data import data_folder
from qresolve.errors import DataInvalid
from qresolve.facts import ABSENT, Scope
from qresolve.gates import ALWAYS, Compare, ExpressionReader, decide
from qresolve.knowledge import engine as engine_module
from qresolve.knowledge import load as load_module
from qresolve.knowledge.engine import applying, load_engine
from qresolve.knowledge.load import read_vocabulary
from qresolve.knowledge.records import STATUSES
from qresolve.strict import read_toml
from qresolve.wheels.index import read_wheel_index
from tests import knowledge_support as support

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from qresolve.facts import FactType, Value

NAME = "experts4bit-qlora"
NF4 = "nf4@w4a16:moe"
FP8 = "fp8@codebook:moe"
KV = "fp8@e4m3:kv"

PLAIN: Mapping[str, Value | None] = {"package.grouped-nf4-gemm": ABSENT, "package.transformers": ABSENT}
EXTRAS: Mapping[str, Value | None] = {"package.grouped-nf4-gemm": "0.51.0", "package.transformers": "5.24.0"}
SERVED: Mapping[str, Value | None] = {**EXTRAS, "config.expert_path": "fast"}
PAGED: Mapping[str, Value | None] = {**EXTRAS, "config.expert_path": "paged"}
TRAINED: Mapping[str, Value | None] = {**EXTRAS, "workload.task": "train", "env.FAST_TRAIN": "1"}


def judged(scheme: str, sm: int, facts: Mapping[str, Value | None]) -> tuple[str, str | None]:
    """Verdict and route id."""
    found = support.outcome(scheme, support.table_for(scheme, sm, facts, name=NAME), name=NAME)
    return found.verdict, found.route


# ---------------------------------------------------------------- which kernel packages a release accepts


def _accepted(release: str, kernels: str) -> bool:
    file = data_folder("constraints") / "engines" / NAME / "ladders" / "conditions.toml"
    table = read_toml(file, name="conditions.toml")
    vocabulary = read_vocabulary()

    def type_of(key: str) -> FactType | None:
        kind = vocabulary.get(key)
        return kind.type if kind else None

    rules = [
        item for item in applying(table, "condition", release) if item.text("id") == "experts4bit.accepts-the-kernels"
    ]
    assert len(rules) == 1, f"one rule for {release}"
    rule = ExpressionReader(type_of).read(rules[0], "when")

    def answer(compare: Compare) -> bool:
        assert compare.fact == "package.grouped-nf4-gemm"
        return kernels != ABSENT and SpecifierSet(f">={compare.operand}").contains(kernels)

    return decide(rule, answer)


@pytest.mark.parametrize(
    ("release", "floor", "below"),
    [
        ("0.58.1", "0.43.0", "0.42.0"),
        ("0.55.0", "0.43.0", "0.42.0"),
        ("0.54.0", "0.30.0", "0.29.0"),
        ("0.35.0", "0.30.0", "0.29.0"),
        ("0.34.0", "0.28.0", "0.27.0"),
        ("0.33.0", "0.27.0", "0.26.0"),
        ("0.32.0", "0.26.0", "0.25.0"),
        ("0.31.2", "0.24.0", "0.23.0"),
        ("0.30.0", "0.24.0", "0.23.0"),
    ],
)
def test_each_release_accepts_the_kernel_packages_that_its_extra_lets_in(release: str, floor: str, below: str) -> None:
    assert _accepted(release, floor)
    assert _accepted(release, "0.51.0")
    assert not _accepted(release, below)
    assert not _accepted(release, ABSENT)


def test_a_kernel_package_below_the_floor_breaks_serving_and_silently_undoes_training() -> None:
    old = {"package.grouped-nf4-gemm": "0.42.0"}
    assert judged(NF4, 120, {**SERVED, **old}) == ("broken", "experts4bit.serve.grouped")
    assert judged(NF4, 120, {**TRAINED, **old}) == ("emulated", "experts4bit.reference")


def test_each_known_release_brings_its_kernels_by_an_extra_that_its_rule_accepts() -> None:
    for release in support.engine(NAME).releases:
        known = load_engine(NAME, release.version)
        offered = {item.fact: item for item in known.provisions}
        kernels = offered["package.grouped-nf4-gemm"]
        assert kernels.requirements == ("experts4bit-qlora[fast]",)
        assert _accepted(release.version, kernels.value)


def test_the_rule_is_what_the_measured_wheels_declare() -> None:
    rows = {row.version: row for row in read_wheel_index(NAME)}
    for release in support.engine(NAME).releases:
        declared = [Requirement(text) for text in rows[release.version].declared.requires_dist or ()]
        fast = next(
            item
            for item in declared
            if item.name == "grouped-nf4-gemm" and item.marker is not None and item.marker.evaluate({"extra": "fast"})
        )
        for kernels in ("0.42.0", "0.43.0", "0.46.1", "0.51.0"):
            assert _accepted(release.version, kernels) is fast.specifier.contains(kernels)


# ---------------------------------------------------------------- NF4 experts


@pytest.mark.parametrize("sm", [80, 86, 90, 100, 120, 121])
def test_a_plain_install_decodes_each_expert_to_16_bits(sm: int) -> None:
    assert judged(NF4, sm, PLAIN) == ("emulated", "experts4bit.reference")


@pytest.mark.parametrize("sm", [80, 90, 120])
def test_a_program_that_calls_enable_fast_multiplies_the_packed_experts(sm: int) -> None:
    assert judged(NF4, sm, SERVED) == ("weight-only", "experts4bit.serve.grouped")


def test_enable_fast_without_the_kernels_fails_at_the_first_forward_pass() -> None:
    found = support.outcome(
        NF4, support.table_for(NF4, 90, {**PLAIN, "config.expert_path": "fast"}, name=NAME), name=NAME
    )
    assert (found.verdict, found.gate) == ("broken", "kernels")


def test_enable_fast_train_without_the_kernels_goes_on_in_silence() -> None:
    assert judged(NF4, 90, {**TRAINED, "package.grouped-nf4-gemm": ABSENT}) == ("emulated", "experts4bit.reference")
    for route in ("experts4bit.train.grouped-mm", "experts4bit.train.fused", "experts4bit.train.decoded"):
        gate = next(item for item in support.engine(NAME).routes[route].select if item.id == "kernels")
        assert gate.loudness == "silent"
        assert "returns 0" in gate.say


@pytest.mark.parametrize("sm", [70, 75])
def test_the_kernels_need_sm80(sm: int) -> None:
    found = support.outcome(NF4, support.table_for(NF4, sm, SERVED, name=NAME), name=NAME)
    assert (found.verdict, found.gate) == ("broken", "sm80")


@pytest.mark.parametrize(
    ("package", "version"),
    [("torch", "2.7.1"), ("triton", "3.3.1"), ("transformers", "4.57.0"), ("bitsandbytes", "0.42.0")],
)
def test_each_package_has_its_floor(package: str, version: str) -> None:
    assert judged(NF4, 90, SERVED)[0] == "weight-only"
    assert judged(NF4, 90, {**SERVED, f"package.{package}": version})[0] == "broken"


def test_a_development_build_of_torch_2_8_will_do() -> None:
    assert judged(NF4, 90, {**SERVED, "package.torch": "2.8.0.dev20250319"})[0] == "weight-only"


# ---------------------------------------------------------------- training


@pytest.mark.parametrize("sm", [80, 86, 89, 100, 103, 110, 120, 121])
def test_grouped_mm_is_for_exactly_sm90(sm: int) -> None:
    assert judged(NF4, 90, TRAINED) == ("weight-only", "experts4bit.train.grouped-mm")
    assert judged(NF4, sm, TRAINED) == ("weight-only", "experts4bit.train.fused")
    asked = {**TRAINED, "env.GNF4_TRAIN_GEMM": "grouped_mm"}
    assert judged(NF4, 90, asked) == ("weight-only", "experts4bit.train.grouped-mm")
    assert judged(NF4, sm, asked) == ("broken", "experts4bit.train.grouped-mm")


def test_the_environment_variable_names_another_way_to_multiply() -> None:
    assert judged(NF4, 90, {**TRAINED, "env.GNF4_TRAIN_GEMM": "fused"})[1] == "experts4bit.train.fused"
    assert judged(NF4, 120, {**TRAINED, "env.GNF4_TRAIN_GEMM": "decoded"})[1] == "experts4bit.train.decoded"


def test_training_that_asks_for_no_kernels_takes_the_reference_loop() -> None:
    assert judged(NF4, 90, {**TRAINED, "env.FAST_TRAIN": "<unset>"}) == ("emulated", "experts4bit.reference")


@pytest.mark.parametrize("family", ["olmoe", "qwen3_moe", "mixtral", "gemma4_text", "nemotron_h", "qwen3_5_moe"])
def test_listed_families_are_trained(family: str) -> None:
    assert judged(NF4, 120, {**TRAINED, "workload.model-type": family})[0] == "weight-only"


@pytest.mark.parametrize("family", ["jamba", "deepseek_v4", "qwen3_next", "kimi_k2"])
def test_a_family_that_loads_and_is_not_on_the_list_is_not_trained(family: str) -> None:
    assert judged(NF4, 120, {**TRAINED, "workload.model-type": family}) == ("unsupported", None)
    assert judged(NF4, 120, {**SERVED, "workload.model-type": family})[0] == "weight-only"


@pytest.mark.parametrize("family", ["llama", "llama4", "longcat_flash", "axk1", "qwen3_vl_moe", "jetmoe", "dbrx"])
def test_a_family_that_the_loader_refuses_has_no_route(family: str) -> None:
    for facts in (PLAIN, SERVED, PAGED, TRAINED):
        assert judged(NF4, 120, {**facts, "workload.model-type": family}) == ("unsupported", None)


def test_training_gpt_oss_is_refused_by_name() -> None:
    table = support.table_for(NF4, 120, {**TRAINED, "workload.model-type": "gpt_oss"}, name=NAME)
    found = support.outcome(NF4, table, name=NAME)
    assert (found.verdict, found.route, found.gate) == ("broken", "experts4bit.train.gpt-oss", "asked-for")
    assert "gpt-oss" in found.why


def test_the_way_around_the_refusal_is_an_experiment_that_is_never_offered() -> None:
    known = support.engine(NAME)
    facts = {**TRAINED, "workload.model-type": "gpt_oss", "env.E4B_GPTOSS_EXPERT_LORA": "1"}
    verdict, route = judged(NF4, 120, facts)
    assert (verdict, known.routes[route or ""].status) == ("emulated", "experimental")
    switch = known.vocabulary["env.E4B_GPTOSS_EXPERT_LORA"]
    assert (switch.scope, switch.choices, switch.default) == (Scope.HOST, (), "0")


def test_gpt_oss_is_served_by_the_paged_server_and_skipped_by_enable_fast() -> None:
    family = {"workload.model-type": "gpt_oss"}
    assert judged(NF4, 120, {**PAGED, **family}) == ("weight-only", "experts4bit.serve.grouped")
    assert judged(NF4, 120, {**SERVED, **family}) == ("emulated", "experts4bit.reference")


# ---------------------------------------------------------------- multiprocessors


QWEN3: Mapping[str, Value | None] = {"workload.n": 1536, "workload.k": 2048}
OLMOE: Mapping[str, Value | None] = {"workload.n": 2048, "workload.k": 1024}


@pytest.mark.parametrize(
    ("sm", "shape", "count", "taken"),
    [
        (120, QWEN3, 170, True),
        (120, QWEN3, 160, True),
        (120, QWEN3, 159, False),
        (89, QWEN3, 128, True),
        (89, QWEN3, 127, False),
        (89, QWEN3, 142, False),
        (89, OLMOE, 128, False),  # read on the RTX 4090 at Qwen3's shapes alone
        (120, OLMOE, 170, True),
        (90, QWEN3, 132, False),
    ],
)
def test_the_number_of_multiprocessors_decides_the_kernel_of_single_rows(
    sm: int, shape: Mapping[str, Value | None], count: int, taken: bool
) -> None:
    route = judged(NF4, sm, {**SERVED, **shape, "gpu.sm-count": count})[1]
    assert (route == "experts4bit.serve.gemv") is taken


def test_an_unknown_number_leaves_the_kernel_open_and_the_class_certain() -> None:
    found = support.outcomes(NF4, support.table_for(NF4, 120, {**SERVED, **QWEN3}, name=NAME), name=NAME)
    assert {item.outcome.verdict for item in found} == {"weight-only"}
    assert {item.outcome.route for item in found} == {"experts4bit.serve.gemv", "experts4bit.serve.grouped"}


def test_a_shape_without_a_plan_does_not_ask_for_it() -> None:
    found = support.outcomes(NF4, support.table_for(NF4, 120, SERVED, name=NAME), name=NAME)
    assert [item.outcome.route for item in found] == ["experts4bit.serve.grouped"]


# ---------------------------------------------------------------- FP8


@pytest.mark.parametrize("facts", [PLAIN, SERVED, TRAINED])
def test_no_kernel_multiplies_fp8_experts(facts: Mapping[str, Value | None]) -> None:
    assert judged(FP8, 120, facts) == ("emulated", "experts4bit.reference")


@pytest.mark.parametrize(
    ("sm", "verdict", "route"),
    [
        (80, "storage-only", "experts4bit.kv.f32-compute"),
        (86, "storage-only", "experts4bit.kv.f32-compute"),
        (89, "native", "experts4bit.kv.fp8-compute"),
        (90, "storage-only", "experts4bit.kv.fp8-compute"),  # Triton multiplies tiles of 16 rows at 16 bits
        (120, "native", "experts4bit.kv.fp8-compute"),
    ],
)
def test_the_fp8_cache_is_multiplied_as_fp8_where_gpu_and_triton_can(sm: int, verdict: str, route: str) -> None:
    assert judged(KV, sm, PAGED) == (verdict, route)


def test_an_explicit_fp8_product_is_never_downgraded() -> None:
    asked = {**PAGED, "env.GNF4_ATTN_COMPUTE": "fp8"}
    assert judged(KV, 86, asked) == ("unsupported", None)
    assert judged(KV, 120, asked) == ("native", "experts4bit.kv.fp8-compute")
    assert judged(KV, 120, {**PAGED, "env.GNF4_ATTN_COMPUTE": "f32"})[1] == "experts4bit.kv.f32-compute"


@pytest.mark.parametrize(("size", "route"), [(64, "f32"), (96, "f32"), (128, "fp8"), (256, "fp8")])
def test_small_heads_have_key_groups_too_narrow_for_the_fp8_product(size: int, route: str) -> None:
    assert judged(KV, 120, {**PAGED, "workload.head-size": size})[1] == f"experts4bit.kv.{route}-compute"


def test_only_the_paged_server_has_an_fp8_cache() -> None:
    assert judged(KV, 120, SERVED) == ("unsupported", None)
    assert judged(KV, 120, {**PAGED, "workload.task": "train"}) == ("unsupported", None)


# ---------------------------------------------------------------- what the authors vouch for


def test_experiments_and_private_measurements_say_so() -> None:
    status = {route.id: route.status for route in support.engine(NAME).routes.values() if route.status != "supported"}
    assert status == {
        "experts4bit.train.gpt-oss": "experimental",
        "experts4bit.serve.mxfp4": "experimental",
        "experts4bit.serve.int4": "measured-private",
    }


def test_weight_only_schemes_want_weight_only() -> None:
    for served in support.engine(NAME).ladders:
        scheme = support.schemes()[served]
        assert scheme.wants == ("weight-only" if scheme.facts["scheme.activations"] == "none" else "native"), served


def test_python_3_10_is_let_in_and_not_tested() -> None:
    for release in support.engine(NAME).releases:
        assert release.requires_python.contains("3.10")
        assert release.tested_python is not None
        assert not release.tested_python.contains("3.10")
        assert release.tested_python.contains("3.11")


def explained(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["explain", "--engine", NAME, *words])
    return code, " ".join(capsys.readouterr().out.split())


def test_explain_says_that_a_route_is_an_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = explained(capsys, "--gpu", "sm120", "--formats", "mxfp4@gpt-oss:moe")
    assert code == 0
    assert "weight-only, experimental" in out
    assert "gemm_mxfp4_grouped is experimental: " in out


def test_explain_says_that_a_measurement_is_private(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = explained(capsys, "--gpu", "sm120", "--formats", "int4@b32:moe")
    assert code == 0
    assert "weight-only, measured-private" in out
    assert "is measured-private: " in out


def test_explain_says_nothing_of_the_kind_about_what_is_supported(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = explained(capsys, "--gpu", "sm80,sm90,sm120", "--formats", "nf4:moe")
    assert code == 0
    assert "emulated, silent" in out  # what a plain install does, without a word
    assert not [status for status in STATUSES if f"is {status}" in out]


def test_explain_says_that_nobody_tests_this_python(capsys: pytest.CaptureFixture[str]) -> None:
    assert "test Python >=3.11" in explained(capsys, "--gpu", "sm90", "--formats", "nf4:moe", "--python", "3.10")[1]
    assert "test Python" not in explained(capsys, "--gpu", "sm90", "--formats", "nf4:moe", "--python", "3.11")[1]


def test_explain_points_from_fp8_experts_to_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = explained(capsys, "--gpu", "sm90", "--formats", "fp8:moe")
    assert code == 3
    assert "fp8@codebook:moe" in out


# ---------------------------------------------------------------- the loader


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('status = "experimental"', 'status = "promising"', "must be one of supported, experimental, measured-private"),
        ('status = "experimental"\n', "", "stands beside a `status`"),
    ],
)
def test_a_status_is_one_of_three_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, problem: str
) -> None:
    shutil.copytree(data_folder("constraints"), tmp_path / "constraints")
    for module in (load_module, engine_module):
        monkeypatch.setattr(module, "data_folder", lambda name: tmp_path / name)
    file = tmp_path / "constraints" / "engines" / NAME / "ladders" / "experts.toml"
    file.write_text(file.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    with pytest.raises(DataInvalid, match=r"route\[\d+\]\.status") as caught:
        load_engine(NAME)
    assert problem in str(caught.value)


def test_a_route_is_supported_unless_it_says_otherwise() -> None:
    route = support.engine(NAME).routes["experts4bit.serve.grouped"]
    assert (route.status, route.status_why) == ("supported", "")
    assert route.classes[0].when is ALWAYS
