"""The generator over local wheels: what becomes a row, and what it refuses to do."""

from __future__ import annotations

import hashlib
import zipfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from qresolve.errors import DataInvalid, Stale, Unproved
from qresolve.strict import Table, read_toml
from qresolve.wheels.generate import (
    check_row_count,
    parse_sources,
    parse_toolkit_parts,
    run_generate,
    select_files,
)
from qresolve.wheels.index import images_of
from qresolve.wheels.index_text import parse_cuda_toolkits, parse_wheel_index
from qresolve.wheels.measure import parse_cuda_claim
from qresolve.wheels.pip_index import IndexFile
from qresolve.wheels.remote import ZipWheel, open_local_wheel

FATBINS = Path(__file__).resolve().parents[2] / "data" / "fatbins"

SOURCES = """
schema = 1
index = "default"
toolkit = "toolkit"

[[wheel]]
project = "pkg"
versions = ["1.0"]
machines = ["x86_64"]
libraries = ["pkg/*.so"]
most_compressed = 1_000_000
why = "a test"

[[wheel]]
project = "pkg"
versions = ["0.9"]
machines = ["x86_64"]
why = "a test"

[cuda_toolkit]
project = "cuda-toolkit"
versions = ["13.0.3"]
why = "a test"
"""


class _Folder:
    """A package index over a folder of wheels."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def wheels(self, project: str) -> tuple[IndexFile, ...]:
        paths = sorted(self._folder.glob(f"{project.replace('-', '_')}-*.whl"), reverse=True)
        return tuple(
            IndexFile(
                filename=path.name,
                url=str(path),
                sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
                requires_python=None,
                upload_time="2026-01-02T03:04:05Z",
            )
            for path in paths
        )

    def open_wheel(self, file: IndexFile) -> ZipWheel:
        return open_local_wheel(Path(file.url))

    def whole_wheel(self, file: IndexFile) -> AbstractContextManager[ZipWheel]:
        return nullcontext(self.open_wheel(file))


def _wheel(folder: Path, filename: str, *, requires: tuple[str, ...] = (), library: str | None = None) -> None:
    name, version = filename.split("-")[:2]
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: >=3.10\n"
    metadata += "".join(f"Requires-Dist: {one}\n" for one in requires)
    with zipfile.ZipFile(folder / filename, "w") as archive:
        archive.writestr(f"{name}-{version}.dist-info/METADATA", metadata)
        archive.writestr(f"{name}-{version}.dist-info/RECORD", f"{name}-{version}.dist-info/RECORD,,\n")
        if library is not None:
            archive.writestr(f"{name}/{library}", (FATBINS / library).read_bytes())


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    index, wheels = tmp_path / "wheel_index", tmp_path / "wheels"
    index.mkdir()
    wheels.mkdir()
    (index / "sources.toml").write_text(SOURCES)
    _wheel(
        wheels,
        "pkg-1.0-cp311-abi3-manylinux_2_28_x86_64.whl",
        requires=("zeta", "alpha>=2", "toolkit[cudart]==13.0.3"),
        library="two_units.so",
    )
    _wheel(wheels, "pkg-1.0-cp311-abi3-manylinux_2_28_aarch64.whl")
    _wheel(wheels, "pkg-1.0-cp311-abi3-win_amd64.whl")
    _wheel(wheels, "pkg-0.9-py3-none-any.whl")
    return index, wheels


def _generate(folders: tuple[Path, Path], *, check: bool = False, shrink: bool = False) -> None:
    run_generate(folders[0], _Folder(folders[1]), projects=("pkg",), check=check, shrink=shrink)


def test_rows_hold_claims_and_measurements_apart(folders: tuple[Path, Path]) -> None:
    _generate(folders)
    old, new = parse_wheel_index((folders[0] / "pkg.json").read_text(), file="pkg.json")
    assert (old.version, new.version) == ("0.9", "1.0")
    assert new.filename == "pkg-1.0-cp311-abi3-manylinux_2_28_x86_64.whl"
    assert new.declared.requires_dist == ("alpha>=2", "toolkit[cudart]==13.0.3", "zeta")
    assert new.declared.cuda == "13.0.3"
    assert new.declared.upload_time == "2026-01-02T03:04:05Z"
    assert new.size == (folders[1] / new.filename).stat().st_size
    assert [str(image) for image in images_of(new, "pkg/two_units.so", "second") or ()] == [
        "sm_80",
        "sm_90a",
        "compute_80",
    ]
    assert old.measured is not None
    assert old.measured.libraries is None
    assert old.declared.cuda is None


def test_generating_twice_changes_no_byte(folders: tuple[Path, Path]) -> None:
    _generate(folders)
    before = {path.name: path.read_bytes() for path in folders[0].iterdir()}
    _generate(folders)
    assert {path.name: path.read_bytes() for path in folders[0].iterdir()} == before
    _generate(folders, check=True)


def test_check_names_what_differs_and_writes_nothing(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _generate(folders)
    before = (folders[0] / "pkg.json").read_bytes()
    _wheel(folders[1], "pkg-0.9-py3-none-any.whl", requires=("changed",))
    with pytest.raises(Stale, match="pkg"):
        _generate(folders, check=True)
    assert '+     "changed"' in capsys.readouterr().out
    assert (folders[0] / "pkg.json").read_bytes() == before


def test_fewer_rows_are_refused_unless_asked_for(folders: tuple[Path, Path]) -> None:
    _generate(folders)
    before = (folders[0] / "pkg.json").read_bytes()
    (folders[0] / "sources.toml").write_text(SOURCES.replace('versions = ["0.9"]', "versions = []"))
    with pytest.raises(DataInvalid, match="1 rows instead of 2"):
        _generate(folders)
    assert (folders[0] / "pkg.json").read_bytes() == before
    _generate(folders, shrink=True)
    assert len(parse_wheel_index((folders[0] / "pkg.json").read_text(), file="pkg.json")) == 1


def test_a_release_that_is_not_there_is_an_error(folders: tuple[Path, Path]) -> None:
    (folders[1] / "pkg-0.9-py3-none-any.whl").unlink()
    with pytest.raises(Unproved, match=r"pkg 0\.9"):
        _generate(folders)
    assert not (folders[0] / "pkg.json").exists()


def test_a_library_over_the_limit_stays_unknown(folders: tuple[Path, Path]) -> None:
    text = SOURCES.replace("most_compressed = 1_000_000", "most_compressed = 100")
    (folders[0] / "sources.toml").write_text(text)
    _generate(folders)
    row = parse_wheel_index((folders[0] / "pkg.json").read_text(), file="pkg.json")[1]
    assert images_of(row, "pkg/two_units.so", "second") is None


def test_the_toolkits_file_is_generated_too(folders: tuple[Path, Path]) -> None:
    sources = SOURCES.replace('toolkit = "toolkit"', 'toolkit = "cuda-toolkit"')
    (folders[0] / "sources.toml").write_text(sources)
    requires = ("runtime==13.0.96.*; extra == 'cudart'", "runtime==13.0.96.*; extra == 'all'")
    _wheel(folders[1], "cuda_toolkit-13.0.3.0-py3-none-any.whl", requires=requires)
    run_generate(folders[0], _Folder(folders[1]), projects=("cuda-toolkit",), check=False, shrink=False)
    (release,) = parse_cuda_toolkits((folders[0] / "cuda-toolkit.json").read_text(), file="t")
    assert release.version == "13.0.3"
    assert ("cudart", "runtime", "==13.0.96.*") in release.parts


def test_the_extra_that_repeats_all_others_is_left_out_but_for_what_only_it_has() -> None:
    parts = parse_toolkit_parts(
        (
            "a==1.*; extra == 'first'",
            'b==2.*; (sys_platform == "linux") and extra == "second"',
            "a==1.*; extra == 'all'",
            "b==2.*; extra == 'all'",
            "C_c==3.*; extra == 'all'",
        )
    )
    assert parts == (("all", "c-c", "==3.*"), ("first", "a", "==1.*"), ("second", "b", "==2.*"))


def test_a_part_without_an_extra_is_refused() -> None:
    with pytest.raises(Unproved, match="a==1"):
        parse_toolkit_parts(("a==1",))


@pytest.mark.parametrize(
    ("version", "requires", "claim"),
    [
        ("2.9.0+cu130", (), "13.0"),
        ("2.9.0+cu129", (), "12.9"),
        ("1.0+abc.cu126", (), "12.6"),
        ("1.0+cpu", (), None),
        ("1.0", ("toolkit[a,b]==13.0.3; x == 'y'",), None),  # no valid requirement
        ("1.0", ("toolkit[a,b]==13.0.3; sys_platform == 'linux'",), "13.0.3"),
        ("1.0+cu130", ("toolkit==13.1.0",), "13.0"),
        ("1.0", ("toolkit==13.0.3; extra == 'a'", "toolkit==12.9.1; extra == 'b'"), None),
        ("1.0", ("toolkit>=13",), None),
        ("1.0", ("other==13.0",), None),
    ],
)
def test_what_a_wheel_claims_about_cuda(version: str, requires: tuple[str, ...], claim: str | None) -> None:
    assert parse_cuda_claim(version, requires, toolkit="toolkit") == claim


def _file(filename: str) -> IndexFile:
    return IndexFile(filename=filename, url="", sha256="", requires_python=None, upload_time=None)


def test_selection_by_machine_and_tag() -> None:
    names = (
        "p-1.0-cp312-cp312-manylinux_2_28_x86_64.whl",
        "p-1.0-cp312-cp312-manylinux_2_17_aarch64.manylinux2014_aarch64.whl",
        "p-1.0-cp313-cp313t-manylinux_2_28_x86_64.whl",
        "p-1.0-cp312-cp312-musllinux_1_2_x86_64.whl",
        "p-1.0-cp312-cp312-macosx_11_0_arm64.whl",
        "p-1.0.1-cp312-cp312-manylinux_2_28_x86_64.whl",
    )
    files = tuple(map(_file, names))

    def chosen(machines: tuple[str, ...], tags: tuple[str, ...] | None) -> tuple[str, ...]:
        found = select_files(files, version="1.0", machines=machines, tags=tags)
        return tuple(file.filename for file in found)

    assert chosen(("x86_64",), None) == (names[0], names[2])
    assert chosen(("aarch64", "x86_64"), ("cp312-cp312",)) == (names[1], names[0])
    assert chosen(("riscv64",), None) == ()


def test_the_hint_of_a_refused_shrink_can_be_pasted() -> None:
    with pytest.raises(DataInvalid) as caught:
        check_row_count("pkg", before=2, after=1)
    assert caught.value.hint == "python -m qresolve.wheels.generate --only pkg --shrink"
    check_row_count("pkg", before=2, after=2)


def test_the_shipped_sources_can_be_read_and_unknown_keys_cannot(folders: tuple[Path, Path]) -> None:
    shipped = Path(__file__).resolve().parents[3] / "wheel_index" / "sources.toml"
    assert "vllm" in parse_sources(read_toml(shipped)).projects
    (folders[0] / "sources.toml").write_text(SOURCES + 'url = "x"\n')
    table: Table = read_toml(folders[0] / "sources.toml")
    with pytest.raises(DataInvalid, match=r"sources\.toml: cuda_toolkit\.url"):
        parse_sources(table)
