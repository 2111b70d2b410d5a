"""From scans to answers: what counts as a native kernel, and what does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.arch import Loadability, driver_choice, loadability
from qresolve.inspect.answer import answer
from tests.unit.inspect.inspect_support import LIBRARY, ask, image, library, small_data, unit

if TYPE_CHECKING:
    from qresolve.machine_code.scan import ImageScan, UnitScan

DATA = small_data(date(2026, 12, 1))
NVFP4 = ask("nvfp4")


def outcome(*units: object, sm: int = 121, not_read: tuple[str, ...] = (), row: object = NVFP4) -> tuple[str, str]:
    found = answer([library(*units)], row, sm, not_read=not_read, data=DATA)  # type: ignore[arg-type]
    return found.outcome, found.why


def test_an_image_that_loads_with_the_instruction_in_a_kernel_that_serves_is_proof() -> None:
    found, why = outcome(unit("fp4_mm", image("sm_120f", "OMMA.SF", "HMMA")))
    assert found == "proved"
    assert "fp4_mm" in why
    assert "sm_120f" in why
    assert "OMMA.SF" in why
    assert "HMMA" not in why, "what is not the format's own instruction proves nothing"


@pytest.mark.parametrize(
    ("arch", "sm", "expected"),
    [
        ("sm_120a", 120, "proved"),
        ("sm_120a", 121, "refuted"),
        ("sm_120f", 120, "proved"),
        ("sm_120f", 121, "proved"),
        ("sm_100f", 103, "proved"),
        ("sm_100a", 103, "refuted"),
        ("sm_100f", 110, "refuted"),
    ],
)
def test_the_suffix_decides_and_not_the_number(arch: str, sm: int, expected: str) -> None:
    assert outcome(unit("fp4_mm", image(arch, "OMMA.SF")), sm=sm)[0] == expected


def test_an_image_without_the_instruction_is_a_shell() -> None:
    found, why = outcome(unit("fp4_mm", image("sm_120"), image("sm_100a", "UTCOMMA")))
    assert found == "refuted"
    assert "no tensor-core instruction" in why


def test_an_image_with_another_instruction_says_which() -> None:
    found, why = outcome(unit("fp4_mm", image("sm_120f", "HMMA.16816")))
    assert found == "refuted"
    assert "HMMA.16816" in why


def test_ptx_alone_proves_nothing_either_way() -> None:
    found, why = outcome(unit("fp4_mm", image("compute_120f")))
    assert found == "unproved"
    assert "driver" in why


def test_an_instruction_in_kernels_that_serve_something_else_is_no_proof() -> None:
    assert outcome(unit("attention", image("sm_120f", "OMMA.SF")))[0] == "refuted"


def test_a_stranger_beside_known_kernels_cannot_be_told() -> None:
    units = (unit("attention", image("sm_120f")), unit("mystery", image("sm_120f", "OMMA.SF")))
    found, why = outcome(*units)
    assert found == "unproved"
    assert "mystery" in why


def test_in_a_library_of_strangers_the_instruction_itself_is_the_proof() -> None:
    found, why = outcome(unit("mystery", image("sm_120f", "OMMA.SF")))
    assert found == "proved"
    assert "no record" in why


def test_stripped_units_are_known_by_their_kernels() -> None:
    assert outcome(unit(None, image("sm_120f", "OMMA.SF", kernels=("_Z8fp4_gemmPv",))))[0] == "proved"


def test_what_was_not_read_leaves_it_open() -> None:
    found, why = outcome(unit("attention", image("sm_120f")), not_read=("engine/_moe_C.abi3.so",))
    assert found == "unproved"
    assert "engine/_moe_C.abi3.so" in why
    assert outcome(unit("fp4_mm", image("sm_120f", read=False)))[0] == "unproved"


def test_without_any_code_for_gpus_nothing_can_be_told() -> None:
    assert answer([], NVFP4, 121, not_read=(), data=DATA).outcome == "unproved"
    assert answer([library()], NVFP4, 121, not_read=(), data=DATA).outcome == "unproved"


def test_a_weight_only_scheme_needs_a_kernel_known_to_serve_it() -> None:
    row = ask("nvfp4@w4a16")
    assert outcome(unit("w4_mm", image("sm_120", "HMMA")), row=row)[0] == "proved"
    assert outcome(unit("mystery", image("sm_120", "HMMA")), row=row)[0] == "unproved"


def test_the_image_that_the_driver_takes_is_the_one_that_counts() -> None:
    both = unit("fp4_mm", image("sm_120", "HMMA"), image("sm_120f", "OMMA.SF"))
    assert outcome(both)[0] == "proved"
    other = unit("fp4_mm", image("sm_120", "OMMA.SF"), image("sm_121a", "HMMA"))
    assert outcome(other, sm=121)[0] == "refuted", "sm_121a's code is loaded there, whatever sm_120's holds"


IMAGES = st.builds(
    lambda arch, held: image(arch, *held),
    st.sampled_from(["sm_80", "sm_90a", "sm_100a", "sm_100f", "sm_120", "sm_120a", "sm_120f", "compute_90"]),
    st.lists(st.sampled_from(["HMMA", "QMMA", "OMMA.SF"]), unique=True, max_size=3),
)
UNITS = st.builds(
    lambda name, images: unit(name, *images),
    st.sampled_from(["fp4_mm", "w4_mm", "attention", "mystery", None]),
    st.lists(IMAGES, max_size=4),
)


@given(units=st.lists(UNITS, max_size=4), sm=st.sampled_from([80, 90, 100, 103, 110, 120, 121]))
def test_no_proof_without_a_loadable_image_that_holds_the_instruction(units: list[object], sm: int) -> None:
    scan = library(*units)  # type: ignore[arg-type]
    found = answer([scan], NVFP4, sm, not_read=(), data=DATA)
    loadable = [
        one
        for item in scan.units
        for one in item.images
        if loadability(one.arch, sm, DATA.architectures) is Loadability.SASS and "OMMA.SF" in (one.instructions or ())
    ]
    if found.outcome == "proved":
        assert loadable
    if found.outcome == "refuted":
        for item in scan.units:
            if item.name == "fp4_mm":
                taken = driver_choice(item.archs, sm, DATA.architectures)
                assert all(one not in loadable for one in item.images if one.arch == taken)


@given(
    units=st.lists(UNITS, max_size=4),
    read=st.integers(min_value=0, max_value=4),
    sm=st.sampled_from([90, 100, 120, 121]),
)
def test_reading_on_never_takes_a_proof_back(units: list[object], read: int, sm: int) -> None:
    whole = answer([library(*units)], NVFP4, sm, not_read=(), data=DATA).outcome  # type: ignore[arg-type]
    part = answer([library(*units[:read])], NVFP4, sm, not_read=("rest",), data=DATA).outcome  # type: ignore[arg-type]
    assert part != "refuted"
    assert part != "proved" or whole == "proved"


def test_the_library_pattern_is_for_the_whole_file_name() -> None:
    scan = library(unit("fp4_mm", image("sm_120f", "HMMA")), path=f"other/not{LIBRARY.rpartition('/')[2]}")
    assert answer([scan], NVFP4, 121, not_read=(), data=DATA).why.startswith("no kernel serves it")


def relocatable(name: str | None, *images: ImageScan) -> UnitScan:
    return replace(unit(name, *images), section="__nv_relfatbin", relocatable=True)


def test_relocatable_code_is_neither_a_proof_nor_dead() -> None:
    code = relocatable("fp4_mm", image("sm_120f", "OMMA.SF", kernels=("fp4_gemm",)))
    assert outcome(code)[0] == "unproved"
    assert outcome(code, unit("linked", image("sm_100f", "UTCOMMA", kernels=("fp4_gemm",))))[0] == "unproved"
    assert outcome(relocatable("fp4_mm", image("compute_120f")))[0] == "unproved"
    assert outcome(code, sm=100)[0] == "refuted", "there is nothing of it for that GPU either"


def test_relocatable_code_does_not_count_where_it_was_linked() -> None:
    linked = unit("fp4_mm", image("sm_120f", "OMMA.SF", kernels=("fp4_gemm", "other")))
    code = relocatable("fp4_mm", image("sm_120f", "OMMA.SF", kernels=("fp4_gemm",)))
    assert outcome(linked, code)[0] == "proved"
    shell = unit("fp4_mm", image("sm_120f", "HMMA", kernels=("fp4_gemm", "other")))
    assert outcome(shell, code)[0] == "refuted", "what was linked is what runs"
