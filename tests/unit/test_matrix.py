"""``qresolve matrix``: every cell is what the same gates say elsewhere, in every form."""

from __future__ import annotations

import html.parser
import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import jsonschema
import pytest

import qresolve
from qresolve.cli.main import main
from qresolve.matrix import Axis, Option, positions
from qresolve.situation import Host

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = json.loads((Path(qresolve.__file__).parent / "schemas" / "matrix.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
FEW = ["matrix", "--engine", "vllm==0.33.0", "--formats", "nvfp4,mxfp4,fp8:moe,int8", "--gpu", "sm89,sm90,sm100,sm120"]


def _json(capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, object]:
    assert main([*FEW, "--json", *more]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def _cells(
    document: dict[str, object], position: tuple[str, ...]
) -> dict[tuple[str, str], dict[str, dict[str, object]]]:
    formats = document["formats"]
    archs = document["archs"]
    sheets = document["sheets"]
    assert isinstance(formats, list)
    assert isinstance(archs, list)
    assert isinstance(sheets, list)
    (sheet,) = [item for item in sheets if tuple(item["position"]) == position]
    return {
        (f"{ask['format']}@{ask['scheme']}:{ask['role']}", arch["arch"]): cell
        for ask, row in zip(formats, sheet["cells"], strict=True)
        for arch, cell in zip(archs, row, strict=True)
    }


def test_the_json_is_of_the_published_schema(capsys: pytest.CaptureFixture[str]) -> None:
    document: Any = _json(capsys, "--without", "humming-kernels", "--with", "b12x", "--build-cuda", "12.6")
    VALIDATOR.validate(document)
    options = [{option["name"] for option in axis["options"]} for axis in document["axes"]]
    for sheet in document["sheets"]:
        assert len(sheet["position"]) == len(options)
        assert all(name in names for name, names in zip(sheet["position"], options, strict=True))
        assert [len(row) for row in sheet["cells"]] == [len(document["archs"])] * len(document["formats"])
    assert any(cell["locked"]["settings"] for sheet in document["sheets"] for row in sheet["cells"] for cell in row)


def test_the_schema_of_the_json_refuses_what_is_not_so(capsys: pytest.CaptureFixture[str]) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    spoils: tuple[Callable[[Any], object], ...] = (
        lambda document: document.pop("workload"),
        lambda document: document["sheets"][0]["cells"][0][0]["plain"].update(verdict="fast"),
        lambda document: document["sheets"][0]["cells"][0][0].update(other=1),
        lambda document: document["archs"][0].update(arch="Blackwell"),
    )
    for spoil in spoils:
        document = _json(capsys)
        spoil(document)
        assert not VALIDATOR.is_valid(document)


def test_a_cell_is_what_explain_says(capsys: pytest.CaptureFixture[str]) -> None:
    cells = _cells(_json(capsys), ("bare", "pinned", "published"))
    for (selector, arch), cell in cells.items():
        main(["explain", "--engine", "vllm==0.33.0", "--gpu", arch, "--formats", selector, "--json"])
        (row,) = [row for row in json.loads(capsys.readouterr().out)["formats"] if row["asked"]]
        assert cell["locked"]["verdict"] == row["verdict"], (selector, arch)
        assert cell["plain"]["verdict"] == row["auto"]["verdict"], (selector, arch)
        assert cell["plain"]["route"] == row["auto"]["route"], (selector, arch)


def test_a_toolkit_on_the_host_makes_mxfp4_worse_on_sm120(capsys: pytest.CaptureFixture[str]) -> None:
    document = _json(capsys)
    bare = _cells(document, ("bare", "pinned", "published"))["mxfp4@w4a4:dense", "sm120"]
    toolkit = _cells(document, ("toolkit", "pinned", "published"))["mxfp4@w4a4:dense", "sm120"]
    assert bare["plain"]["verdict"] == "weight-only"
    assert toolkit["plain"]["verdict"] == "broken"
    assert bare["locked"] == toolkit["locked"]  # a lock does not hang on the host
    assert bare["locked"]["verdict"] == "native"


def test_a_package_and_a_build_change_cells(capsys: pytest.CaptureFixture[str]) -> None:
    document = _json(capsys, "--without", "humming-kernels", "--build-cuda", "12.6")
    without = _cells(document, ("bare", "no-humming-kernels", "published"))
    assert without["mxfp4@w4a4:dense", "sm90"]["plain"]["verdict"] == "weight-only"
    bare = _cells(document, ("bare", "pinned", "published"))["mxfp4@w4a4:dense", "sm90"]
    # By itself vLLM picks Humming there, whose compiler does not find NVRTC's builtins on a bare host.
    assert (bare["plain"]["verdict"], bare["locked"]["verdict"]) == ("broken", "mixed")
    old = _cells(document, ("bare", "pinned", "cuda-12.6"))
    assert old["nvfp4@w4a4:dense", "sm100"]["plain"]["verdict"] != "native"


def test_positions_move_one_axis_at_a_time_beside_the_first() -> None:
    def axis(name: str, count: int) -> Axis:
        return Axis(
            name=name, words=name, options=tuple(Option(name=f"{name}{n}", words="", host=Host()) for n in range(count))
        )

    found = positions((axis("a", 2), axis("b", 3), axis("c", 2)))
    assert len(found) == 2 * (1 + 2 + 1)
    assert len(set(found)) == len(found)
    for position in found:
        assert sum(not option.name.endswith("0") for option in position[1:]) <= 1


def test_text_has_a_word_in_every_cell_and_colour_only_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FEW, "--locked"]) == 0
    text = capsys.readouterr().out
    assert "\x1b[" not in text
    (line,) = [line for line in text.splitlines() if line.startswith("mxfp4@w4a4:dense")]
    # Humming makes fp8 activations on sm89 when it is named, and is picked by itself on sm90; all need settings.
    assert line.split()[1:] == ["mixed+", "mixed+", "native+", "native+"]
    assert "sm120" in text


def test_markdown_is_a_table_of_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FEW, "--format", "markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert {line.count("|") for line in table} == {6}
    assert any("weight-only" in line for line in table)


def test_what_cannot_be_written_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FEW, "-o", "/proc/matrix.txt"]) == 2
    assert "/proc/matrix.txt" in capsys.readouterr().err


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "matrix.html"
    assert main([*FEW, "--format", "html", "--with", "b12x", "--build-cuda", "12.6", "-o", str(path)]) == 0
    return path


def test_the_page_stands_alone(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for word in ("http://", "https://", "src=", "@import", "url("):
        assert word not in text.partition('id="data"')[0]
    assert "</script" not in text.partition('id="data">')[2].partition("</script>")[0]


class _Table(html.parser.HTMLParser):
    """The words of each row of the table, as a browser built it."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in {"th", "td"}:
            self.rows[-1].append("")
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        if tag in {"th", "td"}:
            self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.rows[-1][-1] += data


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on this machine")
@pytest.mark.parametrize(
    "choice",
    [
        {"side": "plain", "host": "bare"},
        {"side": "plain", "host": "toolkit"},
        {"side": "locked", "host": "bare", "packages": "b12x"},
        {"side": "plain", "host": "toolkit", "build": "cuda-12.6"},
    ],
)
def test_switching_a_fact_changes_the_cells_in_a_browser(page: Path, choice: dict[str, str], tmp_path: Path) -> None:
    command = [
        shutil.which("chromium") or "", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic",
        f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", f"{page.as_uri()}#{urlencode(choice)}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    table = _Table()
    table.feed(done.stdout)
    data = json.loads(page.read_text(encoding="utf-8").partition('id="data">')[2].partition("</script>")[0])
    position = [choice.get(axis["name"], axis["options"][0]["name"]) for axis in data["axes"]]
    (sheet,) = [item for item in data["sheets"] if item["position"] == position]
    words = {"storage-only": "storage only", "weight-only": "weight only", "unsupported": "no route"}
    expected = [
        [words.get(cell[choice["side"]]["verdict"], cell[choice["side"]]["verdict"]) for cell in row]
        for row in sheet["cells"]
    ]
    shown = [[cell.removesuffix(" +") for cell in row[1:]] for row in table.rows[1:]]
    assert shown == expected
