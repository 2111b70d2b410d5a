"""The cache under damage, crashes, two writers at once and a full folder."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from qresolve.http.cache import Cache, Entry, cache_folder, entry_text, parse_entry

ROOT = Path(__file__).resolve().parents[3]


def _only(cache: Cache) -> Path:
    (path,) = cache.folder.glob("entries/*/*/*")
    return path


def _run(code: str, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, *words], cwd=ROOT, stdout=subprocess.PIPE)


@given(body=st.binary(), notes=st.dictionaries(st.text(), st.text()), moment=st.floats(0, 1e11), key=st.text())
def test_an_entry_comes_back_as_it_was(body: bytes, notes: dict[str, str], moment: float, key: str) -> None:
    head, _, rest = entry_text(Entry(body=body, notes=notes, moment=moment), key=key).partition(b"\n")
    assert parse_entry(head, rest, key=key) == Entry(body=body, notes=notes, moment=moment)
    assert parse_entry(head, rest, key=key + "x") is None


@given(data=st.data(), body=st.binary(min_size=1, max_size=200))
def test_a_changed_byte_is_noticed(data: st.DataObject, body: bytes) -> None:
    whole = bytearray(entry_text(Entry(body=body, notes={"tag": "one"}), key="k"))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    head, _, rest = bytes(whole).partition(b"\n")
    found = parse_entry(head, rest, key="k")
    assert found is None or found == Entry(body=body, notes={"tag": "one"})


@given(body=st.binary(min_size=1, max_size=200), share=st.floats(0, 1, exclude_max=True))
def test_a_torn_entry_is_none(body: bytes, share: float) -> None:
    whole = entry_text(Entry(body=body), key="k")
    head, _, rest = whole[: int(len(whole) * share)].partition(b"\n")
    assert parse_entry(head, rest, key="k") is None


def test_a_damaged_entry_is_dropped_and_can_be_written_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.write("pages", "k", b"x" * 1000, {"tag": "one"})
    path = _only(cache)
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.read("pages", "k") is None
    assert not path.exists()
    cache.write("pages", "k", b"new")
    entry = cache.read("pages", "k")
    assert entry is not None
    assert entry.body == b"new"


def test_kinds_do_not_mix(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.write("pages", "k", b"page")
    assert cache.read("records", "k") is None


def test_two_processes_that_write_one_entry_at_once_leave_a_whole_one(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from qresolve.http.cache import Cache
cache, letter = Cache(Path(sys.argv[1])), sys.argv[2].encode()
torn = 0
for number in range(150):
    cache.write("pages", "k", letter * (200_000 + number))
    found = cache.read("pages", "k")
    torn += found is None or len(set(found.body)) != 1
print(torn)
"""
    both = [_run(code, str(tmp_path), letter) for letter in "ab"]
    assert [process.communicate(timeout=120)[0].strip() for process in both] == [b"0", b"0"]
    entry = Cache(tmp_path).read("pages", "k")
    assert entry is not None
    assert set(entry.body) in ({ord("a")}, {ord("b")})
    assert len(list(tmp_path.glob("entries/*/*/*"))) == 1


def test_a_kill_in_the_middle_of_a_write_leaves_the_old_entry(tmp_path: Path) -> None:
    """The process is killed when half of the new entry is on the disk."""
    cache = Cache(tmp_path)
    cache.write("pages", "k", b"old")
    code = """
import os, sys, pathlib
from qresolve.http.cache import Cache
real = pathlib.Path.open
def half(self, mode="r", *more, **named):
    file = real(self, mode, *more, **named)
    if "x" not in mode:
        return file
    class Half:
        def __enter__(self): return self
        def __exit__(self, *error): pass
        def write(self, content):
            file.write(content[: len(content) // 2]); file.flush()
            os.kill(os.getpid(), 9)
    return Half()
pathlib.Path.open = half
Cache(pathlib.Path(sys.argv[1])).write("pages", "k", b"new" * 100_000)
"""
    killed = _run(code, str(tmp_path))
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    entry = cache.read("pages", "k")
    assert entry is not None
    assert entry.body == b"old"
    (left,) = [path for path in tmp_path.glob("entries/*/*/.*") if path.is_file()]
    cache.clear_to_size()
    assert left.exists()  # it may belong to a process that is still writing
    old = Cache(tmp_path, now=lambda: left.stat().st_mtime + 4000)
    old.clear_to_size()
    assert not left.exists()
    assert cache.read("pages", "k") is not None


def test_the_folder_stays_within_its_bound_and_what_was_read_lately_stays(tmp_path: Path) -> None:
    moment = [1_000_000.0]

    def now() -> float:
        moment[0] += 1
        return moment[0]

    cache = Cache(tmp_path, most=100_000, now=now)
    cache.write("pages", "used", b"u" * 1000)
    for number in range(100):
        cache.write("pages", f"k{number}", bytes(5000))
        assert cache.read("pages", "used") is not None
        # Between two clearings a fifth of the bound can come on top.
        assert sum(path.stat().st_size for path in tmp_path.glob("entries/*/*/*")) <= 130_000
    assert cache.read("pages", "k0") is None
    assert cache.read("pages", "k99") is not None


def test_what_is_larger_than_the_bound_is_not_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path, most=1000)
    cache.write("pages", "k", bytes(2000))
    assert cache.read("pages", "k") is None


def test_a_file_where_the_folder_should_be_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    cache = Cache(tmp_path / "cache")
    cache.write("pages", "k", b"x")
    cache.clear_to_size()
    assert cache.read("pages", "k") is None


def test_the_folder_is_the_users(tmp_path: Path) -> None:
    assert cache_folder({}, tmp_path) == tmp_path / ".cache" / "qresolve"
    assert cache_folder({"XDG_CACHE_HOME": "/var/x"}, tmp_path) == Path("/var/x/qresolve")
    assert cache_folder({"XDG_CACHE_HOME": "relative"}, tmp_path) == tmp_path / ".cache" / "qresolve"
    assert cache_folder({"XDG_CACHE_HOME": "/var/x", "QRESOLVE_CACHE_DIR": "/own"}, tmp_path) == Path("/own")
