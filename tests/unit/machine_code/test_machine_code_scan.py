"""From the bytes of a binary to its images: cubins among other data count once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.errors import Unproved
from qresolve.machine_code.cubin import parse_cubin
from qresolve.machine_code.fatbin import parse_section
from qresolve.machine_code.payload import read_payload
from qresolve.machine_code.scan import scan_binary

if TYPE_CHECKING:
    from qresolve.arch import ImageArch

FATBINS = Path(__file__).resolve().parents[2] / "data" / "fatbins"


def cubins(name: str) -> list[tuple[ImageArch, bytes]]:
    data = (FATBINS / name).read_bytes()
    return [
        (entry.image, bytes(read_payload(data, entry)))
        for container in parse_section(data)
        for entry in container.entries
        if entry.image is not None and entry.kind == "sass"
    ]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a compiler for the host")
def test_a_cubin_among_other_data_is_a_unit_of_its_own(tmp_path: Path) -> None:
    arch, data = cubins("family.fatbin")[1]
    (tmp_path / "one.cubin").write_bytes(data)
    (tmp_path / "whole.fatbin").write_bytes((FATBINS / "plain.fatbin").read_bytes())
    source = '.section .rodata\n.ascii "\\177ELF\\2\\1\\1 no cubin"\n.balign 8\n.incbin "one.cubin"\n'
    source += '.balign 8\n.incbin "whole.fatbin"\n.section .note.GNU-stack,"",@progbits\n'
    (tmp_path / "held.s").write_text(source)
    subprocess.run([str(shutil.which("gcc")), "-shared", "held.s", "-o", "held.so"], cwd=tmp_path, check=True)
    scan = scan_binary((tmp_path / "held.so").read_bytes(), path="held.so", wanted=lambda images: images)
    assert sorted(len(unit.images) for unit in scan.units) == [1, 2], "the cubins of the container count once"
    loose = next(unit for unit in scan.units if len(unit.images) == 1)
    assert loose.section == ".rodata"
    assert loose.archs == (arch,)
    assert loose.images[0].kernels == tuple(kernel.name for kernel in parse_cubin(data).kernels)


def test_relocatable_units_are_told_apart() -> None:
    scan = scan_binary((FATBINS / "linker_input.so").read_bytes(), path="x.so", wanted=lambda images: images)
    assert {unit.name for unit in scan.relocatable} == {"first_sm120_kernels", "second"}
    assert all(unit.section == "__nv_relfatbin" for unit in scan.relocatable)
    assert not any(unit.relocatable for unit in scan.loaded)


NATIVE = (FATBINS / "native" / "_C_stable_libtorch.abi3.so").read_bytes()


@given(st.integers(min_value=0, max_value=len(NATIVE)))
def test_a_library_that_is_cut_off_is_refused_or_read_within_itself(length: int) -> None:
    try:
        scan = scan_binary(NATIVE[:length], path="x.so", wanted=lambda images: images)
    except Unproved:
        return
    assert all(unit.offset < length for unit in scan.units)


@given(st.integers(min_value=0, max_value=len(NATIVE) - 1), st.binary(min_size=1, max_size=8))
def test_changed_bytes_never_do_more_than_an_error(position: int, other: bytes) -> None:
    changed = NATIVE[:position] + other + NATIVE[position + len(other) :]
    try:
        scan = scan_binary(changed, path="x.so", wanted=lambda images: images)
    except Unproved:
        return
    assert sum(image.raw_length for unit in scan.units for image in unit.images) < 1 << 30
