from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.arch import (
    Architectures,
    ImageArch,
    Kind,
    Loadability,
    Suffix,
    best_loadability,
    loadability,
    parse_architectures,
    parse_image_arch,
    read_architectures,
)
from qresolve.errors import DataInvalid
from qresolve.strict import Table

ARCHITECTURES = read_architectures()
SMS = tuple(one.sm for one in ARCHITECTURES.known)
sms = st.sampled_from(SMS)
kinds: st.SearchStrategy[Kind] = st.sampled_from(["sass", "ptx"])
suffixes: st.SearchStrategy[Suffix] = st.sampled_from(["", "a", "f"])
images = st.builds(ImageArch, sm=sms, suffix=suffixes, kind=kinds)


@pytest.mark.parametrize(
    ("text", "sm", "suffix", "kind"),
    [
        ("sm_120f", 120, "f", "sass"),
        ("120f", 120, "f", "sass"),
        ("sm120a", 120, "a", "sass"),
        ("sm_75", 75, "", "sass"),
        ("90a", 90, "a", "sass"),
        ("compute_90", 90, "", "ptx"),
        ("compute_100f", 100, "f", "ptx"),
    ],
)
def test_image_names_are_read(text: str, sm: int, suffix: Suffix, kind: Kind) -> None:
    assert parse_image_arch(text) == ImageArch(sm=sm, suffix=suffix, kind=kind)


def test_the_kind_given_wins_over_the_prefix() -> None:
    assert parse_image_arch("90", kind="ptx").kind == "ptx"


@pytest.mark.parametrize("text", ["", "sm_", "sm_120b", "12.0", "sm_1200", "x90", "sm_012", "sm_\uff190"])
def test_other_text_is_no_image_name(text: str) -> None:
    with pytest.raises(ValueError, match="not an image architecture"):
        parse_image_arch(text)


@given(images)
def test_an_image_name_is_read_as_it_is_written(image: ImageArch) -> None:
    assert parse_image_arch(str(image)) == image


@pytest.mark.parametrize(
    ("image", "gpu", "expected"),
    [
        ("sm_75", 80, "none"),
        ("sm_80", 80, "sass"),
        ("sm_80", 86, "sass"),
        ("sm_80", 89, "sass"),
        ("sm_86", 80, "none"),
        ("sm_89", 90, "none"),
        ("sm_90", 100, "none"),
        ("sm_100", 103, "sass"),
        ("sm_100", 110, "none"),
        ("sm_103", 100, "none"),
        ("sm_120", 121, "sass"),
        ("sm_121", 120, "none"),
        ("sm_90a", 90, "sass"),
        ("sm_100a", 103, "none"),
        ("sm_120a", 120, "sass"),
        ("sm_120a", 121, "none"),
        ("sm_100f", 100, "sass"),
        ("sm_100f", 103, "sass"),
        ("sm_100f", 107, "sass"),
        ("sm_100f", 110, "none"),
        ("sm_100f", 120, "none"),
        ("sm_103f", 100, "none"),
        ("sm_110f", 110, "sass"),
        ("sm_120f", 121, "sass"),
        ("sm_121f", 120, "none"),
        ("compute_80", 75, "none"),
        ("compute_80", 86, "ptx"),
        ("compute_80", 121, "ptx"),
        ("compute_90a", 90, "ptx"),
        ("compute_90a", 100, "none"),
        ("compute_100f", 103, "ptx"),
        ("compute_100f", 120, "none"),
        # Jetson Orin: no binary compatibility with desktop parts, in neither direction; PTX is compiled there
        ("sm_87", 87, "sass"),
        ("sm_80", 87, "none"),
        ("sm_86", 87, "none"),
        ("sm_87", 89, "none"),
        ("compute_80", 87, "ptx"),
    ],
)
def test_the_loading_rule(image: str, gpu: int, expected: str) -> None:
    assert loadability(parse_image_arch(image), gpu, ARCHITECTURES) is Loadability(expected)


@given(sms, kinds)
def test_an_exact_image_runs_on_one_architecture(sm: int, kind: Kind) -> None:
    image = ImageArch(sm=sm, suffix="a", kind=kind)
    assert [gpu for gpu in SMS if loadability(image, gpu, ARCHITECTURES) is not Loadability.NONE] == [sm]


@given(sms, kinds, sms)
def test_a_family_image_stays_in_its_family_and_never_goes_back(sm: int, kind: Kind, gpu: int) -> None:
    if loadability(ImageArch(sm=sm, suffix="f", kind=kind), gpu, ARCHITECTURES) is not Loadability.NONE:
        assert gpu in ARCHITECTURES.family(sm)
        assert gpu >= sm


@given(sms, sms)
def test_plain_machine_code_never_crosses_a_major(sm: int, gpu: int) -> None:
    if loadability(ImageArch(sm=sm), gpu, ARCHITECTURES) is Loadability.SASS:
        assert gpu // 10 == sm // 10
        assert gpu >= sm


@given(sms, sms, sms)
def test_plain_ptx_runs_on_everything_later(sm: int, gpu: int, later: int) -> None:
    image = ImageArch(sm=sm, kind="ptx")
    if later >= gpu and loadability(image, gpu, ARCHITECTURES) is Loadability.PTX:
        assert loadability(image, later, ARCHITECTURES) is Loadability.PTX


@given(images, sms)
def test_an_image_loads_only_as_what_it_is(image: ImageArch, gpu: int) -> None:
    assert loadability(image, gpu, ARCHITECTURES) in {Loadability(image.kind), Loadability.NONE}


@given(st.lists(images), images, sms)
def test_one_image_more_never_makes_it_worse(some: list[ImageArch], more: ImageArch, gpu: int) -> None:
    before = best_loadability(some, gpu, ARCHITECTURES)
    assert best_loadability([*some, more], gpu, ARCHITECTURES).rank >= before.rank


def test_the_best_image_counts() -> None:
    fat = [parse_image_arch(text) for text in ("sm_80", "compute_80", "sm_120a")]
    assert best_loadability(fat, 120, ARCHITECTURES) is Loadability.SASS
    assert best_loadability(fat, 121, ARCHITECTURES) is Loadability.PTX
    assert best_loadability(fat, 75, ARCHITECTURES) is Loadability.NONE
    assert best_loadability([], 75, ARCHITECTURES) is Loadability.NONE


def test_a_family_image_of_an_unrecorded_architecture_runs_nowhere_else() -> None:
    assert loadability(ImageArch(sm=101, suffix="f"), 103, ARCHITECTURES) is Loadability.NONE


def test_the_shipped_records_cover_the_architectures_that_a_lock_may_name() -> None:
    assert SMS == (75, 80, 86, 87, 89, 90, 100, 103, 107, 110, 120, 121)
    assert all(one.source and one.checked <= date(2100, 1, 1) for one in ARCHITECTURES.known)


def test_plain_blackwell_images_cannot_hold_block_scaled_instructions() -> None:
    for one in ARCHITECTURES.known:
        for feature in one.features:
            if feature.name in {"nvfp4", "mxfp4", "mxfp8"}:
                assert "" not in feature.suffixes, (one.name, feature)


@pytest.mark.parametrize(
    ("sm", "feature", "has"),
    [
        (75, "bf16", False),
        (75, "fp8", False),
        (86, "fp8", False),
        (87, "fp8", False),
        (89, "fp8", True),
        (89, "int4", True),
        (90, "fp8", True),
        (90, "int4", False),
        (90, "nvfp4", False),
        (100, "int8", True),
        (100, "nvfp4", True),
        (103, "int8", True),
        (103, "int4", False),
        (120, "nvfp4", True),
        (121, "mxfp4", True),
    ],
)
def test_what_the_tensor_cores_compute_in(sm: int, feature: str, has: bool) -> None:
    record = ARCHITECTURES.find(sm)
    assert record is not None
    assert record.has(feature) is has


def test_int8_is_in_the_fast_unit_of_sm100_and_not_of_sm103() -> None:
    units = {sm: {way.unit for way in one.ways("int8")} for sm in (100, 103) if (one := ARCHITECTURES.find(sm))}
    assert units == {100: {"mma", "tcgen05"}, 103: {"mma"}}


def test_hopper_has_fp8_in_wgmma_of_exact_images_alone() -> None:
    hopper = ARCHITECTURES.find(90)
    assert hopper is not None
    assert [(way.unit, way.suffixes) for way in hopper.ways("fp8")] == [("wgmma", ("a",))]


def _row(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "sm": 120,
        "compute": "12.0",
        "generation": "Blackwell",
        "family": [120],
        "toolkit": "12.8",
        "appears_in": ["geforce"],
        "source": "a test",
        "checked": date(2026, 12, 1),
        "feature": [{"name": "fp8", "unit": "mma", "instruction": "QMMA", "suffixes": [""]}],
    }
    return row | changes


def _parse(*rows: dict[str, Any]) -> Architectures:
    return parse_architectures(Table({"architecture": list(rows)}, file="architectures.toml"))


def test_a_good_record_is_read() -> None:
    assert _parse(_row()).names == ("sm120",)


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"compute": "12.1"}, "architecture[0].compute"),
        ({"family": [121]}, "architecture[0].family"),
        ({"family": [120, 121]}, "architecture[0].family"),
        ({"appears_in": ["console"]}, "architecture[0].appears_in"),
        ({"speed": 1}, "architecture[0].speed"),
        (
            {"feature": [{"name": "fp8", "unit": "mma", "instruction": "QMMA", "suffixes": ["x"]}]},
            "feature[0].suffixes",
        ),
        ({"source": ""}, "architecture[0].source"),
    ],
)
def test_a_wrong_record_is_refused_with_its_place(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(DataInvalid) as caught:
        _parse(_row(**changes))
    assert "architectures.toml" in caught.value.message
    assert where in caught.value.message


def test_two_records_of_one_architecture_are_refused() -> None:
    with pytest.raises(DataInvalid, match="each once"):
        _parse(_row(), _row())
