"""Variant wheels: what the metadata says, and which one is the target's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.arch import Loadability, loadability, parse_image_arch, read_architectures
from qresolve.closure.tags import target_tags
from qresolve.closure.variants import (
    BadVariants,
    VariantDecision,
    VariantTarget,
    parse_variants,
    read_variant_rules,
    select_variant,
    split_label,
    variants_filename,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ARCHITECTURES = read_architectures()
SMS = [one.sm for one in ARCHITECTURES.known]


def decide(
    variants: Mapping[str, Mapping[str, Mapping[str, Sequence[str]]]],
    *sms: int,
    cuda: str | None = "13.0",
    machine: str = "x86_64",
    tag: str = "py3-none-any",
    namespaces: Sequence[str] = ("nvidia",),
    providers: Mapping[str, object] | None = None,
    packages: Mapping[str, str] | None = None,
) -> dict[str, VariantDecision]:
    document = {
        "default-priorities": {"namespace": list(namespaces)},
        "providers": dict(providers or {}),
        "variants": variants,
    }
    decisions = select_variant(
        parse_variants(json.dumps(document)),
        [f"demo-1.0-{tag}-{label}.whl" for label in variants],
        target=VariantTarget(sms=sms, cuda=cuda, machine=machine, packages=packages or {}),
        ranks=target_tags("3.12", machine, "2.35"),
        rules=read_variant_rules(),
        architectures=ARCHITECTURES,
    )
    assert len(decisions) == len(variants)  # one decision for every candidate
    assert sum(one.taken for one in decisions) <= 1
    assert all(one.reasons for one in decisions if not one.taken)
    return {one.label: one for one in decisions}


def taken(decisions: Mapping[str, VariantDecision]) -> str | None:
    return next((label for label, one in decisions.items() if one.taken), None)


def images(*values: str) -> dict[str, dict[str, dict[str, Sequence[str]]]]:
    return {value.replace("_", "."): {"nvidia": {"sm_arch": [value]}} for value in values}


def test_a_family_image_fits_a_later_member_and_an_exact_one_does_not() -> None:
    assert taken(decide(images("120f_real", "120a_real"), 121)) == "120f.real"
    decisions = decide(images("120a_real"), 121)
    assert taken(decisions) is None
    assert "120a_real does not load on sm121" in decisions["120a.real"].reasons[0]


def test_on_its_own_gpu_the_exact_image_is_the_best_and_the_plain_one_the_last() -> None:
    assert taken(decide(images("120_real", "120f_real", "120a_real"), 120)) == "120a.real"
    assert taken(decide(images("120_real", "120f_real"), 120)) == "120f.real"
    assert taken(decide(images("120_real", "90_virtual"), 120)) == "120.real"
    assert taken(decide(images("90_virtual", "90a_real"), 120)) == "90.virtual"


def test_every_gpu_of_the_target_counts() -> None:
    assert taken(decide(images("120f_real", "90a_real"), 90, 120)) is None
    both = {"both": {"nvidia": {"sm_arch": ["120f_real"]}}, "ptx": {"nvidia": {"sm_arch": ["80_virtual"]}}}
    decisions = decide(both, 90, 120)
    assert taken(decisions) == "ptx"
    assert "each of sm90, sm120" in decisions["both"].reasons[0]


@given(
    sm=st.sampled_from(SMS),
    image_sm=st.sampled_from(SMS),
    suffix=st.sampled_from(["", "a", "f"]),
    kind=st.sampled_from(["real", "virtual"]),
)
def test_a_variant_fits_exactly_where_its_image_loads(sm: int, image_sm: int, suffix: str, kind: str) -> None:
    image = parse_image_arch(f"{image_sm}{suffix}", kind="sass" if kind == "real" else "ptx")
    fits = loadability(image, sm, ARCHITECTURES) is not Loadability.NONE
    assert (taken(decide(images(f"{image_sm}{suffix}_{kind}"), sm)) is not None) == fits


CUDA = {
    "cu12": {"nvidia": {"cuda_version_lower_bound": ["12.6"], "cuda_version_upper_bound": ["13"]}},
    "cu13": {"nvidia": {"cuda_version_lower_bound": ["13.0"]}},
    "cu132": {"nvidia": {"cuda_version_lower_bound": ["13.2"]}},
}


@pytest.mark.parametrize(
    ("cuda", "label"), [("12.9", "cu12"), ("12.4", None), ("13.0", "cu13"), ("13.2", "cu132"), (None, None)]
)
def test_the_nearest_cuda_of_the_lane_wins(cuda: str | None, label: str | None) -> None:
    decisions = decide(CUDA, 90, cuda=cuda)
    assert taken(decisions) == label
    if label != "cu12":
        assert "cuda_version" in decisions["cu12"].reasons[0]


def test_null_is_for_where_nothing_else_fits() -> None:
    variants = {**images("120f_real"), "null": {}}
    assert taken(decide(variants, 120)) == "120f.real"
    assert taken(decide(variants, 90)) == "null"


def test_what_nobody_knows_fits_nothing() -> None:
    decisions = decide({"x": {"vendor": {"chip": ["9"]}}}, 120, namespaces=["vendor"])
    assert "nothing here knows" in decisions["x"].reasons[0]
    static = {"vendor": {"static-properties": {"chip": ["10", "9"]}}}
    both = {"nine": {"vendor": {"chip": ["9"]}}, "ten": {"vendor": {"chip": ["10"]}}}
    assert taken(decide(both, 120, namespaces=["vendor"], providers=static)) == "ten"


def test_static_properties_do_not_speak_for_the_gpu() -> None:
    """Metadata may not say for itself that every machine has the GPU."""
    static = {"nvidia": {"static-properties": {"sm_arch": ["120a_real"]}}}
    assert taken(decide(images("120a_real"), 90, providers=static)) is None


def test_of_the_cpu_only_the_baseline_is_known() -> None:
    levels = {level: {"x86_64": {"level": [level]}} for level in ("v1", "v3")}
    decisions = decide(levels, 120, namespaces=["x86_64"])
    assert taken(decisions) == "v1"
    assert "more than every x86_64 has" in decisions["v3"].reasons[0]
    assert taken(decide(levels, 121, namespaces=["x86_64"], machine="aarch64")) is None


def test_another_machine_s_tags_do_not_fit() -> None:
    decisions = decide(images("120f_real"), 121, machine="aarch64", tag="cp312-cp312-manylinux_2_28_x86_64")
    assert decisions["120f.real"].reasons == ("its tags do not fit the target",)
    assert taken(decide(images("120f_real"), 121, machine="aarch64", tag="cp312-cp312-manylinux_2_28_aarch64"))


def test_a_dependency_s_release_counts() -> None:
    variants = {"t14": {"abi_dependency": {"torch": ["2.14"]}}, "t15": {"abi_dependency": {"torch": ["2.15"]}}}
    decisions = decide(variants, 120, namespaces=["abi_dependency"], packages={"torch": "2.14.0+cu130"})
    assert taken(decisions) == "t14"
    assert "2.14.0+cu130" in decisions["t15"].reasons[0]


def test_the_first_namespace_weighs_most() -> None:
    variants = {
        "cpu": {"x86_64": {"level": ["v1"]}},
        "gpu": {"nvidia": {"sm_arch": ["120f_real"]}},
    }
    assert taken(decide(variants, 120, namespaces=["nvidia", "x86_64"])) == "gpu"
    assert taken(decide(variants, 120, namespaces=["x86_64", "nvidia"])) == "cpu"


@pytest.mark.parametrize(
    ("filename", "expected"),
    [
        ("demo-1.0-py3-none-any-cu13.whl", ("demo-1.0-py3-none-any.whl", "cu13")),
        ("demo-1.0-1-py3-none-any-cu13.whl", ("demo-1.0-1-py3-none-any.whl", "cu13")),
        ("demo-1.0-py3-none-any.whl", None),
        ("demo-1.0-1-py3-none-any.whl", None),
        ("demo-1.0.tar.gz", None),
        ("demo-1.0-variants.json", None),
    ],
)
def test_a_label_is_told_from_a_build_tag(filename: str, expected: tuple[str, str] | None) -> None:
    assert split_label(filename) == expected


def test_the_name_of_the_metadata() -> None:
    assert variants_filename("Demo.kern", "1.0+cu130") == "demo_kern-1.0+cu130-variants.json"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"variants": []}',
        '{"variants": {"a-b": {}}}',
        '{"variants": {"a": {"nvidia": {"sm_arch": "120f_real"}}}}',
        '{"variants": {"a": {"nvidia": {"SM": ["1"]}}}}',
        '{"variants": {}, "default-priorities": {"namespace": "nvidia"}}',
    ],
)
def test_what_is_no_metadata_is_refused(text: str) -> None:
    with pytest.raises(BadVariants):
        parse_variants(text)


def test_while_the_environment_is_not_known_any_release_of_a_dependency_may_be_there() -> None:
    variants = {"t14": {"abi_dependency": {"torch": ["2.14"]}}, "gpu": {"nvidia": {"sm_arch": ["90a_real"]}}}
    document = {"default-priorities": {"namespace": ["abi_dependency", "nvidia"]}, "variants": variants}
    decisions = select_variant(
        parse_variants(json.dumps(document)),
        [f"demo-1.0-py3-none-any-{label}.whl" for label in variants],
        target=VariantTarget(sms=(120,), cuda="13.0", machine="x86_64", packages=None),
        ranks=target_tags("3.12", "x86_64", "2.35"),
        rules=read_variant_rules(),
        architectures=ARCHITECTURES,
    )
    assert {one.label: one.taken for one in decisions} == {"t14": True, "gpu": False}
