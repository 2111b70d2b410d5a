"""RECORD's digest: the same from the wheel and from what uv and pip made of it, another for any change."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.wheels.record import (
    RecordInvalid,
    RecordRow,
    counted_path,
    parse_record,
    read_comparison,
    record_digest,
)

DIST_INFO = "tiny-1.0.dist-info"
FILES = {
    "tiny/__init__.py": b"def main():\n    print('tiny')\n",
    "tiny/data, with comma.txt": b"data\n",
    "tiny-1.0.data/scripts/tiny-script": b"#!python\nprint('tiny')\n",
    "tiny-1.0.data/data/share/tiny/readme.txt": b"readme\n",
    "tiny-1.0.data/platlib/tiny_extension.py": b"native = True\n",
    f"{DIST_INFO}/METADATA": b"Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
    f"{DIST_INFO}/WHEEL": b"Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{DIST_INFO}/entry_points.txt": b"[console_scripts]\ntiny-command = tiny:main\n",
}


def _record(files: dict[str, bytes]) -> str:
    lines = []
    for path, data in files.items():
        value = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        shown = f'"{path}"' if "," in path else path
        lines.append(f"{shown},sha256={value},{len(data)}\n")
    return "".join(lines) + f"{DIST_INFO}/RECORD,,\n"


def _build_wheel(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(f"{DIST_INFO}/RECORD", _record(files))
    return path


def _install(installer: str, wheel: Path, environment: Path) -> Path:
    """Install ``wheel`` with the real installer into a new environment; returns its site-packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=120)
    python = environment / "bin" / "python"
    options = ["--no-index", "--find-links", str(wheel.parent), "tiny==1.0"]
    if installer == "uv":
        command = [str(Path(sysconfig.get_path("scripts")) / "uv"), "pip", "install", "--offline", "--no-config"]
        command += ["--compile-bytecode", "--python", str(python)]
    else:
        command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--quiet"]
    cache = {"UV_CACHE_DIR": str(environment / "cache"), "PIP_NO_CACHE_DIR": "1", "PATH": "/usr/bin:/bin"}
    subprocess.run([*command, *options], check=True, timeout=120, env=cache, capture_output=True)
    (found,) = (environment / "lib").glob("python3*/site-packages")
    return found


@pytest.fixture(scope="module", params=["uv", "pip"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(str(request.param))
    return _install(request.param, _build_wheel(folder / "wheels", FILES), folder / "environment")


EXPECTED = record_digest(parse_record(_record(FILES)))


def test_both_installers_leave_the_digest_of_the_wheel(installed: Path) -> None:
    assert (installed / "tiny_extension.py").is_file()  # platlib of .data was laid into site-packages
    comparison = read_comparison(EXPECTED, site_packages=installed, dist_info=installed / DIST_INFO)
    assert comparison.same
    assert (comparison.changed, comparison.missing, comparison.extra) == ((), (), ())
    named = read_comparison(
        EXPECTED, site_packages=installed, dist_info=installed / DIST_INFO, wheel_record=_record(FILES)
    )
    assert named == comparison


@pytest.mark.parametrize("path", ["tiny/__init__.py", "tiny_extension.py", f"{DIST_INFO}/METADATA"])
def test_one_changed_byte_is_named(installed: Path, path: str) -> None:
    whole = (installed / path).read_bytes()
    (installed / path).unlink()  # installers may link into their cache
    (installed / path).write_bytes(whole[:-1] + b"\t")
    try:
        comparison = read_comparison(EXPECTED, site_packages=installed, dist_info=installed / DIST_INFO)
    finally:
        (installed / path).write_bytes(whole)
    assert not comparison.same
    assert comparison.changed == (path,)
    assert comparison.missing == ()


def test_a_missing_file_is_named(installed: Path) -> None:
    path = installed / "tiny" / "__init__.py"
    whole = path.read_bytes()
    path.unlink()
    try:
        comparison = read_comparison(EXPECTED, site_packages=installed, dist_info=installed / DIST_INFO)
    finally:
        path.write_bytes(whole)
    assert not comparison.same
    assert comparison.missing == ("tiny/__init__.py",)


def test_another_build_of_the_same_version_differs_and_is_named_by_the_wheels_record(installed: Path) -> None:
    other = {**FILES, "tiny/__init__.py": b"def main():\n    print('TINY')\n", "tiny/more.py": b""}
    del other["tiny/data, with comma.txt"]
    digest = record_digest(parse_record(_record(other)))
    plain = read_comparison(digest, site_packages=installed, dist_info=installed / DIST_INFO)
    assert not plain.same
    assert (plain.changed, plain.missing) == ((), ())  # the files are whole, only not these
    named = read_comparison(
        digest, site_packages=installed, dist_info=installed / DIST_INFO, wheel_record=_record(other)
    )
    assert named.changed == ("tiny/__init__.py",)
    assert named.missing == ("tiny/more.py",)
    assert named.extra == ("tiny/data, with comma.txt",)


def test_an_edited_record_does_not_hide_a_changed_file(installed: Path) -> None:
    module, record = installed / "tiny" / "__init__.py", installed / DIST_INFO / "RECORD"
    whole, rows = module.read_bytes(), record.read_text()
    changed = whole.replace(b"tiny", b"evil")
    hashes = [
        base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode() for data in (whole, changed)
    ]
    module.unlink()
    module.write_bytes(changed)
    record.write_text(rows.replace(hashes[0], hashes[1]))
    try:
        comparison = read_comparison(EXPECTED, site_packages=installed, dist_info=installed / DIST_INFO)
    finally:
        module.write_bytes(whole)
        record.write_text(rows)
    assert hashes[0] in rows
    assert not comparison.same


def test_the_digest_is_the_hash_of_the_documented_lines() -> None:
    rows = (RecordRow(path="b.py", sha256="BBBB", size=2), RecordRow(path="a.py", sha256="AAAA", size=1))
    lines = b"a.py,sha256=AAAA,1\nb.py,sha256=BBBB,2\n"
    assert record_digest(rows) == "sha256:" + hashlib.sha256(lines).hexdigest()


@given(st.permutations(sorted(FILES)), st.integers(0, 7))
def test_order_does_not_matter_and_every_counted_file_does(order: list[str], left_out: int) -> None:
    assert record_digest(parse_record(_record({path: FILES[path] for path in order}))) == EXPECTED
    path = order[left_out]
    fewer = record_digest(parse_record(_record({one: FILES[one] for one in order if one != path})))
    assert (fewer == EXPECTED) == (counted_path(path) is None)


@pytest.mark.parametrize(
    ("path", "counted"),
    [
        ("pkg/a.py", "pkg/a.py"),
        ("pkg/__pycache__/a.cpython-311.pyc", None),
        ("pkg/shipped.pyc", "pkg/shipped.pyc"),
        ("../../../bin/command", None),
        ("/usr/bin/command", None),
        ("p-1.dist-info/RECORD", None),
        ("p-1.dist-info/INSTALLER", None),
        ("p-1.dist-info/uv_cache.json", None),
        ("p-1.dist-info/licenses/RECORD", "p-1.dist-info/licenses/RECORD"),
        ("p-1.data/scripts/x", None),
        ("p-1.data/purelib/pkg/b.py", "pkg/b.py"),
        ("p-1.data/platlib/c.so", "c.so"),
        ("p-1.data/headers/h.h", None),
    ],
)
def test_what_counts(path: str, counted: str | None) -> None:
    assert counted_path(path) == counted


@pytest.mark.parametrize(
    "text",
    ["a.py,sha512=xx,1\n", "a.py,sha256=xx\n", "a.py,sha256=xx,\n", "a.py,sha256=x,1\na.py,sha256=y,1\n", "a,md5,3\n"],
)
def test_a_record_that_proves_nothing_is_refused(text: str) -> None:
    with pytest.raises(RecordInvalid):
        parse_record(text)


def test_standard_base64_is_the_same_hash() -> None:
    assert parse_record("a,sha256=+/A=,1\n") == parse_record("a,sha256=-_A,1\n")


def test_an_installed_package_without_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordInvalid, match="RECORD"):
        read_comparison("sha256:0", site_packages=tmp_path, dist_info=tmp_path / "gone.dist-info")
