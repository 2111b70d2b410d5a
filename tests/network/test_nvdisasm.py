"""Our reading of SASS held live against NVIDIA's disassembler, which a package of the index brings."""

from __future__ import annotations

import platform
import random
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from qresolve.data import data_folder
from qresolve.machine_code.sass import instruction_name
from qresolve.machine_code.sass_encodings import GENERATIONS
from tests.data.sass.regenerate import CORPUS, TARGETS, fuzz
from tests.nvdisasm import WIDTH, disassemble, name_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.network, pytest.mark.timeout(600)]

if platform.system() != "Linux":
    pytest.skip("the disassembler is a program for Linux", allow_module_level=True)


@pytest.fixture(scope="module")
def nvdisasm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of the version that the measurements name."""
    file = data_folder("constraints") / "measured" / "triton.toml"
    requirement = tomllib.loads(file.read_text(encoding="utf-8"))["disassembler"]
    folder = tmp_path_factory.mktemp("nvdisasm")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), requirement]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        pytest.skip(f"{requirement} cannot be had: {run.stderr.strip().splitlines()[-1]}")
    return next(folder.rglob("bin/nvdisasm"))


def _corpus(sm: int) -> dict[int, str]:
    rows = [line.split("\t") for line in CORPUS.read_text(encoding="utf-8").splitlines()]
    return {int.from_bytes(bytes.fromhex(word), "little"): text for number, word, text, _ in rows if number == str(sm)}


@pytest.mark.parametrize("sm", sorted(TARGETS))
def test_the_corpus_is_what_the_disassembler_prints(nvdisasm: Path, sm: int) -> None:
    corpus = _corpus(sm)
    texts = disassemble(nvdisasm, list(corpus), TARGETS[sm])
    printed = [None if text is None else name_of(text) for text in texts]
    assert printed == [name_of(text) for text in corpus.values()]


@pytest.mark.parametrize("sm", sorted(TARGETS))
def test_new_random_words_are_named_alike(nvdisasm: Path, sm: int) -> None:
    assert set(TARGETS) == set(GENERATIONS)
    seed = random.randrange(1 << 32)
    seen = list(fuzz(nvdisasm, sm, _corpus(sm), words=2000, chance=random.Random(seed)))
    wrong = {
        f"{word:032x} {text}"
        for word, text in seen
        if instruction_name(word.to_bytes(WIDTH, "little"), sm) != name_of(text)
    }
    assert not wrong, f"seed {seed}"
    assert len({name_of(text) for _, text in seen}) > 10, f"seed {seed}"
