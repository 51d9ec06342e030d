"""Runs go out to other tools, and into pull requests."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.cli.conftest import Gpusize

SWEEP = Path(__file__).parents[1] / "fixtures" / "perf_analyzer" / "inst1_c1-8.csv"


def imported(gpusize: Gpusize) -> str:
    return gpusize("import", "perf_analyzer", SWEEP, "--gpus", "1", "--out", "runs").out.strip()


def test_a_run_is_printed_in_another_tools_format(gpusize: Gpusize) -> None:
    run = imported(gpusize)
    done = gpusize("export", run, "--format", "perf_analyzer")
    assert (done.code, done.err) == (0, "")
    assert sorted(done.out.splitlines()) == sorted(SWEEP.read_text().splitlines())


def test_files_are_named(gpusize: Gpusize) -> None:
    run = imported(gpusize)
    done = gpusize("export", run, "--format", "benchmark_report", "--out", "reports")
    assert done.code == 0, done.err
    assert len(done.out.split()) == 8
    assert all(Path(file).is_file() for file in done.out.split())


def test_what_cannot_be_printed_needs_a_place(gpusize: Gpusize) -> None:
    run = imported(gpusize)
    for name in ("parquet", "benchmark_report"):
        done = gpusize("export", run, "--format", name)
        assert done.code == 2
        assert "--out" in done.complaint
    assert gpusize("export", run, "--format", "xml").code == 2


def cells(text: str) -> list[list[str]]:
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows]


def test_markdown_has_the_figures_of_the_document(gpusize: Gpusize) -> None:
    run = imported(gpusize)
    asked = ("--users", "20", "--slo", "p95 runtime <= 100ms")
    before = set(Path(run).rglob("*"))
    done = gpusize("report", run, *asked, "--format", "md")
    assert (done.code, done.err) == (0, "")
    assert set(Path(run).rglob("*")) == before
    document = json.loads(gpusize("estimate", run, *asked, "--json").out)
    plain = re.sub(r"\\(.)", r"\1", done.out)
    assert f"**{document['answer']}**" in plain
    for text in document["warnings"]:
        assert f"- {text}" in plain
    header, marks, *rows = cells(done.out)
    assert all(re.fullmatch(r"---:?", mark) for mark in marks)
    assert len(rows) == len(document["summary"])
    assert {len(row) for row in rows} == {len(header)}
    p95 = next(number for number, name in enumerate(header) if "p95" in name and "runtime" in name)
    assert len(header) <= 8
    unit = 1e3 if "ms" in header[p95] else 1.0
    for row, told in zip(rows, document["summary"], strict=True):
        assert float(row[0]) == told["concurrency"]
        assert abs(float(row[p95].replace(",", "")) / (told["runtime_p95_s"] * unit) - 1) < 0.01


def test_texts_of_servers_are_no_markup(gpusize: Gpusize) -> None:
    run = imported(gpusize)
    file = next(Path(run).glob("levels/*/level.json"))
    about = json.loads(file.read_text())
    hostile = "<script>alert(1)</script> | [x](http://evil) *b* @admin `c` &lt; #1"
    file.write_text(json.dumps({**about, "alerts": [hostile]}))
    text = gpusize("report", run, "--format", "md").out
    assert "<script>" not in text
    assert "\\<script\\>" in text
    assert "\\[x\\]" in text
    assert "@admin" not in text
    assert "No number of GPUs was asked for" in text


def test_formats_of_a_report(gpusize: Gpusize) -> None:
    run = imported(gpusize)
    assert "html, md" in gpusize("report", run, "--format", "pdf").complaint
    assert "--out" in gpusize("report", run, "--format", "md", "--out", "x").complaint
