"""The page in headless Chromium, inside a page of the test that clicks and reads it."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpusize.report.figures.plots import figures
from gpusize.report.page.cards import level_cards
from gpusize.report.page.html import render_html
from gpusize.report.summary.sweep import sweep_of
from gpusize.result import Result
from tests.report.folders import level_columns, run_folder
from tests.report.results import HOSTILE

CHROMIUM = shutil.which("chromium")
AROUND = """<!DOCTYPE html><iframe id="page" src="report.html" width="1300" height="900"></iframe><pre id="told"></pre>
<script>
const all = q => [...page.contentDocument.querySelectorAll(q)];
const texts = q => all(q).map(each => each.textContent);
page.onload = () => {
  const told = {}, levels = "#levels tbody th", key = name => all("#runtime .plot")[0].dispatchEvent(
    new page.contentWindow.KeyboardEvent("keydown", {key: name}));
  told.levels = texts(levels);
  all("#levels thead button")[0].click(); all("#levels thead button")[0].click();
  told.sorted = texts(levels);
  told.order = all("#levels thead th")[0].ariaSort;
  told.drawn = all(".plot").map(each => each.closest("figure").id);
  told.still = all(".still").length;
  const ticks = () => texts("#over_time .plot > svg:last-of-type > .middle");
  told.time = ticks();
  all("#over_time [name=in]")[0].click();
  told.zoomed = ticks();
  const print = how => page.contentWindow.dispatchEvent(new page.contentWindow.Event(how));
  print("beforeprint");
  told.printed = ticks();
  print("afterprint");
  told.afterwards = ticks();
  all("#over_time [name=whole]")[0].click();
  told.whole = ticks();
  const line = () => all("#runtime .plot path.main")[1].getAttribute("d");
  const before = line();
  all("#runtime [name=y]")[0].click();
  told.log = before != line();
  const parts = how => all(`#runtime .plot path.${how}`).map(each => each.getAttribute("d"));
  told.rings = parts("ring"); told.holes = parts("hole");
  const order = all("#runtime .plot path").map(each => each.getAttribute("class"));
  told.under = order.indexOf("hole dot") < order.indexOf("dot");
  told.values = told.levels.map((_, k) => { key(k ? "ArrowRight" : "ArrowLeft"); return texts("#runtime output")[0]; });
  const seen = () => all(".cards").filter(each => each.getClientRects().length)
    .map(each => each.querySelector(".value").textContent);
  told.cards = all("fieldset label").map(each => { each.click(); return seen(); });
  told.wide = page.contentDocument.documentElement.scrollWidth;
  told.owned = page.contentWindow.owned ?? null;
  told.loads = page.contentWindow.performance.getEntriesByType("resource").length;
  document.getElementById("told").textContent = JSON.stringify(told);
};
</script>"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        asked.append(self.path)


asked: list[str] = []


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="pdftotext is not installed")
def test_paper_shows_every_level_and_every_row_of_every_table(tmp_path: Path) -> None:
    levels = {c: level_columns(c) for c in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32)}
    result = Result([run_folder(tmp_path / "run", levels)], slos=["p95 runtime <= 150ms"])
    text = render_html(result, figures=figures(result))
    page, paper = tmp_path / "report.html", tmp_path / "report.pdf"
    page.write_text(text)
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    options += ["--no-pdf-header-footer", f"--print-to-pdf={paper}"]
    subprocess.run([str(CHROMIUM), *options, page.as_uri()], capture_output=True, timeout=100, check=True)
    done = subprocess.run(["pdftotext", "-raw", str(paper), "-"], capture_output=True, text=True, check=True)
    printed = "".join(done.stdout.split())
    for each in level_cards(sweep_of(result))[0]:
        shown = "".join(f"{card.title}{card.value}{card.more}" for card in each.cards)
        assert "".join(shown.split()) in printed, f"the cards of level {each.name}"
    rows = re.findall(r"<tr>(<th scope=\"row\".*?)</tr>", text, re.DOTALL)
    assert len(rows) >= len(levels)
    for row in rows:
        shown = html.unescape(re.sub(r"<[^>]+>", "", row))
        assert "".join(shown.split()) in printed, shown


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_tables_sort_figures_zoom_and_nothing_is_loaded(tmp_path: Path) -> None:
    owned = f"<script>owned=1</script><img src=x onerror=owned=1>{HOSTILE}"
    lost = {c: {"state": "interrupted", "stop_reason": "errors"} for c in (2, 8)}
    levels = {c: level_columns(c) for c in (1, 2, 4, 8, 16)}
    run = run_folder(tmp_path / "run", levels, facts=lost, labels={"who": owned})
    result = Result([run], slos=["p95 runtime <= 150ms"])
    (tmp_path / "report.html").write_text(render_html(result, figures=figures(result)))
    (tmp_path / "around.html").write_text(AROUND)
    asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=5000"]
    options += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    try:
        address = f"http://127.0.0.1:{server.server_port}/around.html"
        done = subprocess.run(
            [str(CHROMIUM), *options, address], capture_output=True, text=True, timeout=100, check=True
        )
    finally:
        server.shutdown()
        server.server_close()
    assert "CONSOLE" not in done.stderr
    found = re.search(r'<pre id="told">(.+?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    told = json.loads(html.unescape(found[1]))
    assert told["levels"] == ["1", "2", "4", "8", "16"]
    assert told["sorted"] == ["16", "8", "4", "2", "1"]
    for rings in (told["rings"], told["holes"]):
        assert len(rings) == 2, "one for each level that was interrupted"
        assert all(re.fullmatch(r"M(\S+ \S+)L\1", each) for each in rings)
    assert told["under"], "points stand on the rings around them"
    assert told["order"] == "descending"
    assert {"runtime", "attainment", "throughput", "over_time"} <= set(told["drawn"])
    assert told["still"] == 1, "percentiles have names on their axis, so they stay a picture"
    assert told["time"] == told["whole"] != told["zoomed"]
    assert told["printed"][-1] == told["whole"][-1], "paper shows the whole run"
    assert told["printed"][0] == told["whole"][0]
    assert told["afterwards"] == told["zoomed"], "and the screen is as it was"
    assert told["log"]
    rows = result.summary.to_dicts()
    for text, row in zip(told["values"], rows, strict=True):
        shown = re.search(r"p95 ([\d.]+) (m?s)", text)
        assert shown, text
        assert float(shown[1]) / (1e3 if shown[2] == "ms" else 1) == pytest.approx(row["runtime_p95_s"], rel=6e-3)
    assert [len(each) for each in told["cards"]] == [1] * 5
    assert [float(each[0]) for each in told["cards"]] == pytest.approx([r["achieved_rate"] for r in rows], rel=6e-3)
    assert told["wide"] <= 1300
    assert told["owned"] is None
    assert told["loads"] == 0
    assert set(asked) <= {"/around.html", "/report.html", "/favicon.ico"}
