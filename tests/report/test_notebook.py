"""What a notebook shows: HTML of results, answers, plans and comparisons, pictures, and progress below a cell."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import types
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import gpusize
from gpusize.analysis.compare.comparison import Comparison, compare_sides
from gpusize.analysis.compare.matching import Run, Side
from gpusize.analysis.read_levels import read_levels
from gpusize.report.live.live import LiveProgress
from gpusize.report.live.notebook import Notebook, in_notebook
from gpusize.report.notebook.show import comparison_html, estimate_html, plan_html, result_html
from gpusize.report.summary.columns import summary_columns
from gpusize.report.summary.sweep import sweep_of
from tests.report.folders import level_columns, run_folder, streamed
from tests.report.results import HOSTILE, SLO, crossing, interrupted, slope, sweep
from tests.report.test_live import SETTING, Event, S, running

VOID = {"meta", "br", "hr", "img", "path", "use", "rect", "circle"}


class Page(HTMLParser):
    """Tags in their order, cells of tables, and whether every tag ends where it must."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.cells: list[str] = []
        self.ids: list[str] = []
        self.rows = 0
        self._open: list[str] = []
        self._cell = False
        self.feed(text)
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self._open.append(tag)
        if tag in ("td", "th"):
            self._cell = True
            self.cells.append("")
        self.rows += tag == "tr"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag
        self._cell = self._cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._cell:
            self.cells[-1] += data


def test_a_result_shows_its_answer_its_levels_and_the_picture() -> None:
    source = sweep(interrupted())
    text = result_html(source, [slope(), crossing()])
    page = Page(text)
    assert re.search(r'class="headline">\d+ GPUs for 100 users at p95 runtime &lt;= 10s<', text)
    assert "svg" in page.tags
    assert "script" not in page.tags
    told = [cell.text for column in summary_columns(sweep_of(source), 100.0) for cell in column.cells]
    assert sorted(set(told) - set(page.cells)) == []
    assert page.rows == 1 + source.summary.height


def test_hostile_text_stays_text() -> None:
    html = [
        result_html(sweep(interrupted(alert=HOSTILE)), [slope(warnings=(HOSTILE,))]),
        result_html(sweep(), problem=HOSTILE),
        estimate_html(slope(reason=HOSTILE, gpus=None)),
    ]
    for text in html:
        page = Page(text)
        assert "script" not in page.tags
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
        assert "\x1b" not in text
        assert "http://" not in re.sub(r"gpu-07:8000|http://gpu-07", "", text), "nothing is fetched"


def test_pieces_of_one_notebook_have_ids_of_their_own() -> None:
    one = Page(result_html(sweep(), [crossing()]))
    other = Page(result_html(sweep(), [crossing(users=200.0)]))
    assert one.ids
    assert not set(one.ids) & set(other.ids)


def test_a_style_counts_inside_its_piece_only() -> None:
    style = re.search(r"<style>(.*?)</style>", result_html(sweep()), re.DOTALL)
    assert style is not None
    for selector in re.findall(r"([^{}]+)\{", re.sub(r"@media[^{]*\{", "", style[1])):
        assert ".gpusize-out" in selector, selector
    for theme in ('data-jp-theme-light="false"', "vscode-dark", "prefers-color-scheme: dark"):
        assert theme in style[1]


def folder(place: Path, levels: tuple[int, ...] = (1, 2, 4)) -> Path:
    columns = {c: level_columns(c) for c in levels}
    for each in columns.values():
        streamed(each, tokens=5)
    return run_folder(place, columns, options={"slo": ["p95 runtime <= 150ms"], "users": 100, "gpus": 2})


def test_objects_of_a_run_show_themselves(tmp_path: Path) -> None:
    result = gpusize.open_run(folder(tmp_path / "a"))
    text = result._repr_html_()
    [answer] = re.findall(r'class="headline">(.*?)<', text)
    best = result.estimate()
    assert best.gpus is None or answer.startswith(f"{best.gpus:,} GPU")
    assert f'class="headline">{answer}<' in best._repr_html_(), "the same in both"
    plan = gpusize.what_if(result, users=[2, 4], slos="p95 runtime <= 150ms")
    assert Page(plan._repr_html_()).rows == 1 + len(plan.rows)
    assert plan._repr_html_() == plan_html(plan)


def test_a_result_without_a_question_is_shown_too(tmp_path: Path) -> None:
    result = gpusize.open_run(run_folder(tmp_path / "a", {2: level_columns(2)}))
    page = Page(result._repr_html_())
    assert page.rows == 2
    assert "svg" in page.tags, "the runtimes, as there is no attainment"


def comparison(tmp_path: Path, sides: int = 2) -> Comparison:
    made = []
    for name in ("a", "<b>")[:sides]:
        paths = [folder(tmp_path / f"{len(made)}-{k}", (1, 2)) for k in range(2)]
        made.append(Side(name, tuple(Run(path.name, str(path), read_levels(path)) for path in paths)))
    return compare_sides(made)


def test_a_comparison_has_a_row_for_each_difference(tmp_path: Path) -> None:
    found = comparison(tmp_path)
    page = Page(found._repr_html_())
    assert page.rows == 1 + len(found.differences)
    assert [each.verdict for each in found.differences] == [each for each in page.cells if each in VERDICTS]
    assert "<b>" not in comparison_html(found)
    alone = comparison(tmp_path / "alone", 1)
    assert Page(alone._repr_html_()).rows == 1 + len(alone.noise)


VERDICTS = ("better", "worse", "equivalent", "no evidence", "within these two runs")


def test_a_plot_is_a_picture_without_pyplot(tmp_path: Path) -> None:
    code = f"""
import sys, gpusize
figure = gpusize.open_run({str(folder(tmp_path / "a"))!r}).plot("runtime")
picture, size = figure._repr_png_()
sys.stdout.buffer.write(picture)
assert (size["width"], size["height"]) == (806, 451), size
gpusize.open_run({str(tmp_path / "a")!r})._repr_html_()
assert "matplotlib.pyplot" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", done.stdout[16:24]) == (1260, 705), "150 dots to the inch"


class Cell:
    """Outputs below a cell, as IPython keeps them."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.updates = 0

    def display(self, what: Any, *, display_id: bool) -> Cell:
        assert display_id
        self.shown.append(repr(what))
        return self

    def update(self, what: Any) -> None:
        self.shown[-1] = repr(what)
        self.updates += 1


def test_progress_is_one_output_that_changes() -> None:
    cell, clock = Cell(), [0.0]
    with LiveProgress(now=lambda: clock[0], screen=Notebook(cell.display, lambda: clock[0])) as live:
        live.message("a simulated cluster")
        for tick in range(1, 41):
            clock[0] = tick / 10
            live.event(Event(1, 2, SETTING, progress=running(clock[0], tick)))
        assert "level 1/2  8 users" in cell.shown[0]
        assert "40 done" in cell.shown[0]
        assert cell.updates <= 1 + 4 / 0.5
        record = {"state": "done", "outcomes": {"ok": 40}, "start_ns": 0, "end_ns": 4 * S}
        live.event(Event(1, 2, SETTING, progress=running(4, 40, state="done"), level=record))
    assert len(cell.shown) == 1
    assert cell.shown[0].splitlines() == [
        "a simulated cluster",
        "level 1/2  8 users  4 s  40 done  10.0/s  p50 0.800 p95 1.23 s",
    ]
    assert "\x1b" not in cell.shown[0]


def test_a_notebook_is_told_by_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not in_notebook()
    ipython = types.ModuleType("IPython")
    for shell, expected in ((None, False), (types.SimpleNamespace(), False), (types.SimpleNamespace(kernel=1), True)):
        ipython.get_ipython = lambda shell=shell: shell  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        assert in_notebook() == expected


def test_the_slo_of_the_picture_is_the_results() -> None:
    assert SLO.replace("<=", "&lt;=") in result_html(sweep())
