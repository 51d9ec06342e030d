"""Pooled runs of closed and open loops: every level is in the table, on the page and in a figure."""

from __future__ import annotations

import json
import re

import polars as pl

from gpusize.analysis.read_levels import read_levels
from gpusize.report.figures.plots import figures
from gpusize.report.page.html import render_html
from gpusize.report.summary.sections import sections
from gpusize.report.summary.terminal import print_summary
from tests.analysis.open_levels import arrivals, columns, open_setting, write_level, write_run
from tests.report.results import LEVELS, P95_S, console, row, sweep

RATES = (20.0, 40.0)
OPEN = [row(rate, 5.0, kind="open", visit=100 + int(rate), alerts=[f"alert at {rate:g}"]) for rate in RATES]


def first_cells(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if re.match(r" *\d", line)]


def test_one_level_at_a_rate_does_not_hide_the_levels_of_users() -> None:
    out, raw = console(160)
    print_summary(sweep(OPEN[0]), out)
    text = raw.getvalue().decode()
    assert first_cells(text) == [*map(str, LEVELS), "20"]
    assert "closed loop:" in text
    assert "open loop:" in text
    assert "20 requests/s: alert at 20" in " ".join(text.split())


def test_the_page_has_a_table_and_figures_of_both() -> None:
    source = sweep(*OPEN)
    made = figures(source)
    assert [name for name in made if name.startswith("runtime")] == ["runtime", "runtime-open"]
    marked = {name: [x for line in made[name].axes[0].lines for x in line.get_xdata()] for name in made}
    assert set(LEVELS) <= set(marked["runtime"])
    assert set(RATES) <= set(marked["runtime-open"])
    page = render_html(source, figures=made)
    for x in (*LEVELS, *RATES):
        assert re.search(rf"<th scope=\"row\"[^>]*>{x:g}</th>", page), x
    assert page.count("alert at") == len(RATES)


def test_the_larger_sweep_comes_first_and_tables_beside_the_summary_are_of_both() -> None:
    many = [row(rate, 5.0, kind="open", visit=200 + rate) for rate in range(10, 100, 10)]
    source = sweep(*many)
    source.tables = {"delivery": _checks(source.summary)}
    assert next(iter(figures(source))) == "runtime"
    assert "runtime-closed" in figures(source)
    found = {each.key: [cell.text for cell in each.columns[0].cells] for each in sections(source)}
    assert found["delivery-open"] == [str(rate) for rate in range(10, 100, 10)]
    assert found["delivery-closed"] == [str(users) for users in LEVELS]


def _checks(summary: pl.DataFrame) -> pl.DataFrame:
    said = {"check": "count", "value": 1.0, "bound": 0.99, "status": "ok", "text": "all were sent"}
    return summary.select("visit", "run", "concurrency", "rate").with_columns(
        pl.lit(v).alias(k) for k, v in said.items()
    )


def test_a_single_loop_has_no_heading_of_its_own() -> None:
    out, raw = console(160)
    print_summary(sweep(), out)
    assert "loop:" not in raw.getvalue().decode()
    assert len(P95_S) == len(first_cells(raw.getvalue().decode()))


def test_the_ten_thousandth_level_comes_after_those_before_it(tmp_path) -> None:
    place = write_run(tmp_path / "r")
    due = arrivals("constant", 10, 3)
    for visit in (9_998, 10_000, 9_999, 2):
        write_level(place, visit, columns(due, due + 0.1), open_setting(10.0, 3, "constant"), 3)
    (place / "levels" / "0003.bak").mkdir()
    assert [level.visit for level in read_levels(place)] == [2, 9_998, 9_999, 10_000]
    assert json.loads((place / "levels" / "10000" / "level.json").read_text())["visit"] == 10_000
