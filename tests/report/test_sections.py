"""The tables and figures that only some runs have: on a terminal, in the page, in files; and nothing for the others."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest

from gpusize.cli import invoke
from gpusize.report.export import result_document
from gpusize.report.figures.plots import figures
from gpusize.report.page.html import render_html
from gpusize.report.summary.columns import notes
from gpusize.report.summary.sections import sections
from gpusize.report.summary.sweep import sweep_of
from gpusize.report.summary.terminal import print_sections
from gpusize.result import Result
from tests.analysis.synthetic import MS
from tests.report.folders import HTTP_ERROR, gpus, level_columns, run_folder, server_row, streamed
from tests.report.results import HOSTILE, Source, console, frame, meta, row, sweep
from tests.report.test_html import Page
from tests.report.test_plots import points, said
from tests.report.test_tables import summary

STATS = {"version": "1", "requests": 10, "failed": 0, "inferences": 20, "executions": 5, "mean_batch": 4.0,
         "request_s": 0.08, "queue_s": 0.004, "compute_infer_s": 0.07, "execution_s": 0.072}  # fmt: skip


def everything(place: Path, *, levels: tuple[int, ...] = (1, 2, 4, 8), replicas: int = 4, models: int = 1) -> Result:
    """A run in which everything was measured; replica 1 fails every request, GPU 3 is much smaller than the others."""
    columns, facts, spans = {}, {}, {}
    for c in levels:
        columns[c] = level_columns(c)
        streamed(columns[c], 5, tokens=5)
        n = len(columns[c]["due_ns"])
        columns[c]["target"] = [k % replicas for k in range(n)]
        columns[c]["outcome"] = [HTTP_ERROR if k % replicas == 1 else 0 for k in range(n)]
        busy = c / 10
        told = [
            *gpus([busy, busy, busy, busy / 2], [100 + c] * 4, [40, 40, 40, 10], [80, 80, 80, 20]),
            server_row("energy_per_output_token", "J", mean=2 / c),
            server_row("kv_cache_use", "share", mean=c / 20, max=c / 10),
            server_row("waiting", "requests", mean=float(c)),
            server_row("batch_size", "inferences", mean=c / 2),
            server_row("queue_time", "s", mean=0.001 * c),
            server_row("compute_infer_time", "s", mean=0.07),
            server_row("request_time", "s", mean=0.07 + 0.001 * c),
        ]
        facts[c] = {"server": told, "models": [{"model": f"m{k}", **STATS} for k in range(models)]}
        sent = columns[c]["sent_ns"]
        call = {"kind": "llm", "name": "m", "outcome": "ok"}
        spans[c] = [{"seq": k, **call, "start_ns": sent[k], "end_ns": sent[k] + 20 * MS} for k in range(n)]
    rows = [{"input_tokens": 10, "output_tokens": 4}]
    return Result(
        [run_folder(place / "r", columns, facts=facts, spans=spans, rows=rows, targets=replicas, gpus_each=1)]
    )


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The run of ``everything``; nothing in it changes."""
    return everything(tmp_path_factory.mktemp("full"))


def shown(result: Result, width: int = 120, encoding: str = "utf-8") -> str:
    out, raw = console(width, encoding)
    print_sections(result, out)
    return raw.getvalue().decode(encoding)


def figures_of(text: str, title: str) -> list[list[str]]:
    """The rows of the table under a title."""
    body = text.split(f"\n{title}")[1].split("\n\n", maxsplit=1)[0]
    return [line.split() for line in body.splitlines() if re.match(r" +\d", line)]


def test_a_plain_run_shows_nothing_more() -> None:
    source = sweep()
    assert sections(source) == []
    assert shown(source) == ""  # type: ignore[arg-type]
    assert set(figures(source)) == {"runtime", "ttft", "itl", "percentiles", "attainment", "throughput"}
    assert result_document(source)["tables"] == {}


def test_the_terminal_has_a_compact_table_of_each(full: Result) -> None:
    text = shown(full)
    titles = [line for line in text.splitlines() if re.fullmatch(r"[A-Z][A-Za-z ]+( \(.*\))?", line)]
    assert titles == [
        "GPUs",
        "In the server",
        "Replicas (the last 12 of 16 rows)",
        "LLM calls",
        "Lengths",
        "Token counts",
    ]
    assert figures_of(text, "GPUs")[-1] == ["8", "4", "70.0%", "80.0%", "432", "0.250", "130", "50.0%"]
    assert " ".join(figures_of(text, "In the server")[-1]) == "8 40.0% 80.0% 8.00 4.00 8.00 70.0 78.0 100"
    assert figures_of(text, "Lengths")[0] == ["1", "output", "36", "4.00", "5.00", "+25.0%"]
    assert figures_of(text, "LLM calls")[0][:4] == ["1", "48", "1.00", "0"]
    assert max(map(len, text.splitlines())) <= 120


def test_the_tables_leave_columns_where_there_is_no_room(tmp_path: Path) -> None:
    text = shown(everything(tmp_path), 60)
    assert max(map(len, text.splitlines())) <= 60
    assert "hidden, the terminal is too narrow" in text
    assert "70.0%" in text
    assert shown(everything(tmp_path / "ascii"), 120, "ascii").isascii()


def test_every_replica_has_its_rate_and_errors(full: Result) -> None:
    rows = figures_of(shown(full, 160), "Replicas")
    assert len(rows) == 12
    assert [each[0] for each in rows] == ["2"] * 4 + ["4"] * 4 + ["8"] * 4
    assert rows[-3][1:5] == ["http://gpu-1:8000/v1/chat/completions", "96", "25.0%", "0"]
    assert rows[-3][-1] == "96"
    assert rows[-1][-1] == "0"


def test_lengths_as_asked_and_one_model_stay_off_the_terminal(tmp_path: Path) -> None:
    columns = level_columns(1)
    streamed(columns, 5, tokens=5)
    facts = {1: {"models": [{"model": "m", **STATS}]}}
    result = Result([run_folder(tmp_path / "r", {1: columns}, rows=[{"output_tokens": 5}], facts=facts)])
    assert shown(result) == ""
    assert [each.key for each in sections(result)] == ["delivery", "model_stats", "lengths", "tokens"]
    assert "Models in the server" in shown(everything(tmp_path / "two", models=2))


def test_the_page_has_a_section_for_each(tmp_path: Path) -> None:
    result = everything(tmp_path, models=2)
    made = figures(result)
    text = render_html(result, figures=made)
    page = Page(text)
    assert re.findall(r"<h2>(.*?)</h2>", text) == re.findall(r'<li><a href="#[\w-]+">(.*?)</a>', text)
    tables = re.findall(r"<caption>(.*?)</caption>", text)
    assert tables == ["Levels", "Was this load delivered?", "GPUs", "In the server", "Replicas", "Models in the server",
                      "LLM calls", "Lengths", "Token counts"]  # fmt: skip
    assert set(made) == {name for tag, key, name in page.attributes if tag == "figure" and key == "id"}
    assert all(n == 1 for n in page.ids.values())
    assert "4 replicas · 4 GPUs tested" in page.text


def test_names_from_a_server_are_harmless(tmp_path: Path) -> None:
    columns = level_columns(1)
    facts = {1: {"models": [{"model": HOSTILE, **STATS}, {"model": "b", **STATS}]}}
    columns["model"] = [k % 2 for k in range(len(columns["due_ns"]))]
    result = Result([run_folder(tmp_path / "r", {1: columns}, facts=facts, models=[HOSTILE, "b"])])
    text = shown(result)
    assert "\x1b" not in text
    assert "\u202e" not in text
    page = render_html(result)
    assert page.count("<script") == Page(page).tags["script"] == 2


def test_files_and_the_document_hold_the_tables(tmp_path: Path) -> None:
    result = everything(tmp_path, models=2)
    out = tmp_path / "out"
    result.report(out, plots=False)
    names = {f"{name}.{kind}" for name in result.tables for kind in ("csv", "json", "parquet")}
    assert {file.name for file in (out / "tables").iterdir()} == names
    assert set(result.tables) == {"delivery", "replicas", "model_stats", "lengths", "tokens", "server"}
    stored = json.loads((out / "summary.json").read_text())
    assert stored[3]["server_gpu_power_w"] == 432
    document = result_document(result)
    assert set(document["tables"]) == {"delivery", "replicas", "model_stats", "lengths", "tokens"}
    assert document["tables"]["replicas"] == json.loads((out / "tables" / "replicas.json").read_text())
    assert document["summary"] == stored


def test_shares_are_drawn_on_a_scale_of_percent(full: Result) -> None:
    figure = figures(full)["server"]
    busy, power, cache, requests, times = figure.axes
    assert (busy.get_ylim(), cache.get_ylim()) == ((0, 103), (0, 103))
    assert [y for _, y in points(busy.lines[0])] == pytest.approx([7 / 8 * 10 * c for c in (1, 2, 4, 8)])
    assert [y for _, y in points(busy.lines[2])] == pytest.approx([10 * c for c in (1, 2, 4, 8)])
    assert points(power.lines[0]) == [(c, 4 * (100 + c)) for c in (1, 2, 4, 8)]
    assert power.get_ylim()[1] > 432
    assert power.get_ylabel() == "power, all GPUs (W)"
    assert points(requests.lines[0])[-1] == (8, 8)
    assert times.get_ylabel() == "mean time (ms)"
    assert said(figure, "4 GPUs, on average, were 70.0% busy at 8 users, the peak rate")


def test_replicas_are_drawn_beside_each_other(full: Result) -> None:
    figure = figures(full)["replicas"]
    (axes,) = figure.axes
    solid = [line for line in axes.lines if line.get_linestyle() == "-" and len(points(line)) == 4]
    assert [points(line)[-1][1] for line in solid] == pytest.approx([20, 0, 20, 20])
    assert said(figure, "Of 4 replicas, some completed nothing at the highest level")
    assert said(figure, "http://gpu-3:8000/v1/chat/completions")


@pytest.mark.parametrize(
    "failing, finding",
    [
        (0, "2 replicas complete the same, within 2 %"),
        (1, "The fastest of 2 replicas completes 33.3 % more than the slowest"),
        (3, "The fastest of 2 replicas completes 4.00 times as much as the slowest"),
    ],
)
def test_how_far_replicas_are_apart_is_said(tmp_path: Path, failing: int, finding: str) -> None:
    columns = level_columns(4)
    n = len(columns["due_ns"])
    columns["target"] = [k % 2 for k in range(n)]
    columns["outcome"] = [HTTP_ERROR if k % 2 and (k // 2) % 4 < failing else 0 for k in range(n)]
    figure = figures(Result([run_folder(tmp_path / "r", {4: columns}, targets=2)]))["replicas"]
    assert said(figure, finding)


def test_of_many_replicas_the_fastest_and_the_slowest_are_named(tmp_path: Path) -> None:
    figure = figures(everything(tmp_path, replicas=12, levels=(24,)))["replicas"]
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert len(legend.get_texts()) == 2
    assert said(figure, "http://gpu-1:8000/v1/chat/completions")


def test_inferences_stand_beside_requests() -> None:

    source = Source(frame([row(c, 1.0, inferences_rate=100.0 * c) for c in (1, 2)]), meta())
    text = summary(source, 160)
    assert text.splitlines()[2].split()[2:4] == ["req/s", "infer/s"]
    assert "infer/s" not in summary(sweep(), 160)


def test_what_several_levels_say_stands_once() -> None:

    rows = [row(c, 1.0, alerts=[text, "same"]) for c, text in ((1, "first"), (2, "other"), (4, "first"))]
    found = notes(sweep_of(Source(frame(rows), meta())))
    assert found == [("1, 4 users", ("first",)), ("1, 2, 4 users", ("same",)), ("2 users", ("other",))]


def test_a_ramp_is_named_by_its_ends() -> None:
    ramp = row(30.0, 1.0, kind="open", ramp="20 to 40/s", alerts=["it rises"])
    assert notes(sweep_of(Source(frame([ramp]), meta()))) == [("20 to 40 requests/s", ("it rises",))]


def test_every_table_names_a_ramp_by_its_ends() -> None:
    named = {"visit": 30, "run": "20261120T210312Z-7f3a9c", "concurrency": None, "rate": 30.0}
    check = {"check": "count", "value": 0.5, "bound": 1.0, "status": "failed", "text": "half came"}
    part = {"name": "a", "n": 3, "share": 1.0, "requests": 3, "usage_mean": 2.0, "flagged": True}
    tables = {
        name: pl.DataFrame([{**named, **more}])
        for name, more in (("delivery", check), ("models", part), ("tokens", part), ("lengths", part))
    }
    ramp = row(30.0, 1.0, kind="open", ramp="20 to 40/s", delivered=False)
    found = sections(Source(frame([ramp]), meta(), tables=tables))
    assert [each.key for each in found] == ["delivery", "models", "lengths", "tokens"]
    assert [each.columns[0].cells[0].text for each in found] == ["20 to 40"] * 4
    assert found[0].note.startswith("20 to 40 requests/s was not delivered, because half came.")


def test_the_page_says_where_itl_comes_from(tmp_path: Path) -> None:
    columns = level_columns(1)
    streamed(columns, 5, tokens=5, keep=True)
    assert "ITL is exact" in render_html(Result([run_folder(tmp_path / "kept", {1: columns})]))
    source = Source(frame([row(1, 1.0, itl_source="histogram")]), meta())
    assert "ITL is from a histogram" in render_html(source)
    assert "ITL is" not in render_html(sweep())


def test_the_command_prints_and_hands_over_the_tables(full: Result, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(full.path)
    asked = ["--users", "10", "--slo", "p95 runtime <= 200ms"]
    assert invoke(["estimate", place, *asked]) == 1
    assert "In the server" in capsys.readouterr().out
    assert invoke(["estimate", place, *asked, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert len(document["tables"]["replicas"]) == 16
    assert document["summary"][0]["llm_calls_per_request"] == 1
