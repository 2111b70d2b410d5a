"""Reading ``constraints/``: what is wrong with a record is refused, naming the file and the dotted path."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from qresolve.data import data_folder
from qresolve.errors import DataInvalid, NoResolution, UsageError
from qresolve.knowledge import engine as engine_module
from qresolve.knowledge import load as load_module
from qresolve.knowledge.digests import records_of_ladder
from qresolve.knowledge.engine import engine_names, load_engine, newest_first, read_releases
from qresolve.knowledge.load import read_formats, read_workload

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LADDER_FILE = "constraints/engines/vllm/ladders/small.toml"

HEAD = """
checked = 2026-12-01
read-from = "a test"
"""

CONDITION = """
[[condition]]
id = "test.blackwell"
when = { fact = "gpu.sm", at-least = 100 }
where = "somewhere"
"""

ROUTE = """
[[route]]
id = "test.route"
name = "TestKernel"
library = "test"
built = "jit"
class = "native"
where = "somewhere"
select = [{ id = "blackwell", when = { condition = "test.blackwell" } }]
"""

LADDER = """
[[ladder]]
id = "test.ladder"
serves = ["fp8@test:dense"]
order = ["test.route"]
nothing = "nothing there"
where = "somewhere"
"""


@pytest.fixture
def constraints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the data folder in which the test may write."""
    copy = tmp_path / "constraints"
    shutil.copytree(data_folder("constraints"), copy)
    for module in (load_module, engine_module):
        monkeypatch.setattr(module, "data_folder", lambda name: tmp_path / name)
    return copy


@pytest.fixture
def small(constraints: Path) -> Callable[[str], None]:
    """Writes one small ladder file beside the real ones."""

    def write(text: str) -> None:
        (constraints / "engines" / "vllm" / "ladders" / "small.toml").write_text(HEAD + text, encoding="utf-8")

    return write


def refused() -> str:
    with pytest.raises(DataInvalid) as caught:
        load_engine("vllm")
    return str(caught.value)


def test_the_small_file_is_read(small: Callable[[str], None]) -> None:
    small(CONDITION + ROUTE + LADDER)
    ladder = load_engine("vllm").ladders["fp8@test:dense"]
    assert ladder.order == ("test.route",)


@pytest.mark.parametrize(
    ("text", "path", "problem"),
    [
        # unknown keys
        ("surprise = 1" + CONDITION, "surprise", "unknown key"),
        (CONDITION + "surprise = 1", "condition[0].surprise", "unknown key"),
        (CONDITION + ROUTE + "surprise = 1", "route[0].surprise", "unknown key"),
        (CONDITION + ROUTE + LADDER + "surprise = 1", "ladder[0].surprise", "unknown key"),
        (
            CONDITION + ROUTE.replace('id = "blackwell",', 'id = "blackwell", surprise = 1,'),
            "route[0].select[0].surprise",
            "unknown key",
        ),
        (CONDITION.replace("at-least = 100", "at-least = 100, surprise = 1"), "condition[0].when.surprise", "unknown"),
        # ids that lead nowhere
        (ROUTE, "route[0].select[0].when.condition", "no condition has the id `test.blackwell`"),
        (CONDITION + LADDER, "ladder[0].order[0]", "no route has the id `test.route`"),
        (
            CONDITION
            + ROUTE
            + LADDER
            + 'move = [{ when = { condition = "test.blackwell" }, route = "a", before = "b" }]',
            "ladder[0].move[0].route",
            "no route has the id `a`",
        ),
        (
            CONDITION + ROUTE + LADDER + 'force = [{ when = { condition = "test.blackwell" }, route = "a" }]',
            "ladder[0].force[0].route",
            "no route has the id `a`",
        ),
        (CONDITION.replace("gpu.sm", "gpu.smm"), "condition[0].when.fact", "no fact is called `gpu.smm`"),
        (CONDITION + ROUTE + LADDER + 'disabled-by = "env.NO"', "ladder[0].disabled-by", "no fact is called `env.NO`"),
        (
            CONDITION
            + ROUTE
            + LADDER
            + 'explicit = [{ fact = "config.no", auto = ["auto"], unmatched = "auto", offer = true }]',
            "ladder[0].explicit[0].fact",
            "no fact is called `config.no`",
        ),
        # circles
        (
            CONDITION.replace('{ fact = "gpu.sm", at-least = 100 }', '{ condition = "test.blackwell" }'),
            "condition[0].when.condition",
            "names itself",
        ),
        (
            CONDITION.replace('{ fact = "gpu.sm", at-least = 100 }', '{ not = { condition = "test.other" } }')
            + CONDITION.replace("test.blackwell", "test.other").replace(
                '{ fact = "gpu.sm", at-least = 100 }', '{ all = [{ condition = "test.blackwell" }] }'
            ),
            "condition[1].when.all[0].condition",
            "names itself",
        ),
        # measured without its bracket
        (CONDITION + 'kind = "measured"', "condition[0].kind", "`passes` and `fails`"),
        (CONDITION + 'kind = "measured"\npasses = "sm_100"', "condition[0].kind", "`passes` and `fails`"),
        (CONDITION + ROUTE + 'kind = "measured"\nfails = "sm_90"', "route[0].kind", "`passes` and `fails`"),
        (
            CONDITION + ROUTE.replace('id = "blackwell",', 'id = "blackwell", kind = "measured", passes = "sm_100",'),
            "route[0].select[0].kind",
            "`passes` and `fails`",
        ),
        (CONDITION + 'kind = "heard"', "condition[0].kind", "must be one of"),
        # operands of another type
        (CONDITION.replace("100", '"100"'), "condition[0].when.at-least", "must be int"),
        (CONDITION.replace("100", "true"), "condition[0].when.at-least", "must be int"),
        (
            CONDITION.replace('"gpu.sm", at-least = 100', '"build.cuda", at-least = 12'),
            "condition[0].when.at-least",
            "must be str",
        ),
        (CONDITION.replace("at-least = 100", "in = 100"), "condition[0].when.in", "list"),
        (CONDITION.replace("at-least = 100", "in = []"), "condition[0].when.in", "list"),
        (CONDITION.replace("at-least = 100", 'in = [100, "120"]'), "condition[0].when.in", "must be int"),
        (
            CONDITION.replace('"gpu.sm", at-least = 100', '"workload.dtype", at-least = "bf16"'),
            "condition[0].when.at-least",
            "have an order",
        ),
        (CONDITION.replace("at-least = 100", 'has = "a"'), "condition[0].when.has", ""),
        (CONDITION.replace("at-least = 100", "at-least = 100, below = 120"), "condition[0].when", "exactly one"),
        (CONDITION.replace(", at-least = 100", ""), "condition[0].when", "exactly one"),
        (CONDITION.replace('fact = "gpu.sm",', 'fact = "gpu.sm", all = [],'), "condition[0].when", "exactly one"),
        # ids that stand twice
        (CONDITION + CONDITION, "condition[1].id", "declared twice"),
        (CONDITION + ROUTE + ROUTE, "route[1].id", "declared twice"),
        (CONDITION + ROUTE + LADDER + LADDER.replace("@test", "@other"), "ladder[1].id", "declared twice"),
        (CONDITION + ROUTE + LADDER.replace("fp8@test", "mxfp4@w4a4"), "ladder[0].serves", "is served by"),
        (
            CONDITION + ROUTE.replace("}]", '}, { id = "blackwell", when = { fact = "gpu.sm", is = 100 } }]'),
            "route[0].select",
            "the same id",
        ),
        (
            CONDITION + ROUTE + LADDER.replace('["test.route"]', '["test.route", "test.route"]'),
            "ladder[0].order",
            "twice",
        ),
        # classes
        (CONDITION + ROUTE.replace('"native"', '"fast"'), "route[0].class", "must be one of"),
        (CONDITION + ROUTE.replace('class = "native"', ""), "route[0].class", "is missing"),
        (
            CONDITION + ROUTE.replace('class = "native"', 'classes = [{ class = "unknown" }]'),
            "route[0].classes[0].why",
            "says why",
        ),
        (CONDITION.replace('where = "somewhere"', ""), "condition[0].where", "is missing"),
        (CONDITION.replace('"somewhere"', '""'), "condition[0].where", "must not be empty"),
    ],
)
def test_a_wrong_record_is_refused(small: Callable[[str], None], text: str, path: str, problem: str) -> None:
    small(text)
    message = refused()
    assert LADDER_FILE in message
    assert f"{path}:" in message or f"{path} " in message, message
    assert problem in message


def test_a_condition_of_a_real_file_may_not_be_declared_again(small: Callable[[str], None]) -> None:
    small(CONDITION.replace("test.blackwell", "flashinfer.compiles"))
    message = refused()
    assert LADDER_FILE in message
    assert "condition[0].id" in message


def test_a_file_for_other_releases_is_not_read(small: Callable[[str], None]) -> None:
    small('releases = "<0.20"' + CONDITION + ROUTE + LADDER)
    assert "fp8@test:dense" not in load_engine("vllm").ladders


def test_a_file_that_is_not_toml(small: Callable[[str], None]) -> None:
    small("[[")
    message = refused()
    assert LADDER_FILE in message
    assert "not valid TOML" in message


@pytest.mark.parametrize(
    ("file", "before", "after", "path"),
    [
        ("facts.toml", 'type = "int"', 'type = "float"', "fact[0].type"),
        ("facts.toml", 'key = "gpu.sm"\n', 'key = "gpu.sm"\nsurprise = 1\n', "fact[0].surprise"),
        ("engines/vllm/engine.toml", 'requires-python = ">=3.11', 'requires-python = "3.11 or so', "release[0]."),
        ("engines/vllm/engine.toml", 'version = "0.33.0"', 'version = "newest"', "release[0].version"),
        ("engines/vllm/engine.toml", 'distribution = "vllm"\n', 'distribution = "vllm"\nsurprise = 1\n', "surprise"),
    ],
)
def test_wrong_facts_and_releases(constraints: Path, file: str, before: str, after: str, path: str) -> None:
    target = constraints / file
    text = target.read_text(encoding="utf-8")
    assert before in text
    target.write_text(text.replace(before, after, 1), encoding="utf-8")
    message = refused()
    assert f"constraints/{file}" in message
    assert path in message


def test_a_fact_declared_twice(constraints: Path) -> None:
    target = constraints / "facts.toml"
    fact = '\n[[fact]]\nkey = "gpu.sm"\ntype = "int"\nscope = "target"\nmeaning = "again"\n'
    target.write_text(target.read_text(encoding="utf-8") + fact, encoding="utf-8")
    assert "`gpu.sm` is declared twice" in refused()


@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        ('wants = "native"', 'wants = "fast"', "scheme[0].wants"),
        ('roles = ["dense", "moe"]', 'roles = ["dens"]', "scheme[0].roles"),
        ('dense = "w16a16"', 'dense = "w17a17"', "default.dense"),
        ('weights = "bf16"', 'weihgts = "bf16"', "scheme[0].facts.weihgts"),
        ('means = "int4@awq"', 'means = "int4@gptq"', "alias[0].means"),
        ('name = "fp16"', 'name = "bf16"', "format[1].name"),
    ],
)
def test_wrong_formats(constraints: Path, before: str, after: str, path: str) -> None:
    target = constraints / "formats.toml"
    text = target.read_text(encoding="utf-8")
    assert before in text
    target.write_text(text.replace(before, after, 1), encoding="utf-8")
    with pytest.raises(DataInvalid) as caught:
        read_formats()
    assert "constraints/formats.toml" in str(caught.value)
    assert path in str(caught.value)


def test_names_that_nobody_records() -> None:
    with pytest.raises(UsageError) as wrong_engine:
        load_engine("vlm")
    assert wrong_engine.value.hint == "--engine vllm"
    with pytest.raises(NoResolution) as newer:
        load_engine("vllm", "99.0")
    assert "Nothing is extrapolated" in str(newer.value)
    with pytest.raises(UsageError):
        load_engine("vllm", "newest")
    with pytest.raises(UsageError):
        read_workload("nothing")


def test_every_ladder_that_is_shipped_serves_a_scheme_and_has_digests() -> None:
    schemes = {scheme.key(role) for form in read_formats().formats for scheme in form.schemes for role in scheme.roles}
    for name in engine_names():
        engine = load_engine(name)
        assert set(engine.ladders) <= schemes
        for ladder in engine.ladders.values():
            digests = records_of_ladder(engine, ladder)
            assert f"ladder:{ladder.id}" in digests
            assert all(digest.startswith("sha256:") for digest in digests.values())


def test_the_digest_of_a_record_does_not_depend_on_the_order_of_its_keys(small: Callable[[str], None]) -> None:
    small(CONDITION)
    first = load_engine("vllm").digests["condition:test.blackwell"]
    head, *rest = CONDITION.strip().splitlines()
    small("\n".join((head, "# a comment", *reversed(rest))))
    assert load_engine("vllm").digests["condition:test.blackwell"] == first
    small(CONDITION.replace("100", "110"))
    assert load_engine("vllm").digests["condition:test.blackwell"] != first


def test_a_pre_release_is_taken_only_when_it_is_named() -> None:
    release = read_releases("vllm")[0]
    versions = ["1.2.0", "1.4.0rc1", "1.3.0", "1.4.0rc2"]
    found = newest_first([replace(release, version=version) for version in versions])
    assert [item.version for item in found] == ["1.3.0", "1.2.0", "1.4.0rc2", "1.4.0rc1"]
