"""Reports of a real inference-perf: totals are those that it printed, times those of its own summaries."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

import gpusize
from gpusize.studies.imports.inference_perf import import_inference_perf

FIXTURES = Path(__file__).parents[1] / "fixtures" / "inference_perf"
FIGURES = {"p50": "median", "p90": "p90", "p95": "p95", "p99": "p99", "max": "max"}


def stages(name: str) -> list[dict]:
    files = sorted((FIXTURES / name).glob("stage_*.json"))
    return [json.loads(file.read_text()) for file in files]


def printed(name: str, table: str) -> list[list[str]]:
    """The rows of a table that it printed."""
    text = (FIXTURES / name / "printed.txt").read_text().split(table)[1]
    rows = [line for line in text.split("└")[0].splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in row.strip("│").split("│")] for row in rows]


@pytest.fixture
def figures(tmp_path: Path) -> Path:
    """The reports without the single requests."""
    folder = tmp_path / "reports"
    shutil.copytree(FIXTURES / "closed", folder)
    (folder / "per_request_lifecycle_metrics.json").unlink()
    return folder


def test_counts_are_those_that_it_printed(tmp_path: Path, figures: Path):
    for folder in (FIXTURES / "closed", figures):
        rows = gpusize.read(folder, tmp_path / "runs").summary.rows(named=True)
        errors = printed("closed", "Request Error Summary")
        assert [(row["n"] - row["errors"], row["errors"]) for row in rows] == [(int(e[1]), int(e[2])) for e in errors]
        assert [row["concurrency"] for row in rows] == [2, 4]


def test_figures_are_those_that_it_printed(tmp_path: Path, figures: Path):
    result = gpusize.read(figures, tmp_path / "runs")
    assert [level.quantile("itl_mean", 0.95) for level in result.levels] == [None, None]
    rows = result.summary.rows(named=True)
    speeds, times = printed("closed", "Throughput and Goodput Summary"), printed("closed", "Request & Token Latency")
    lengths = printed("closed", "Token Length Aggregates")
    for row, speed, time, length in zip(rows, speeds, times, lengths, strict=True):
        assert f"{row['achieved_rate']:.1f}" == speed[4]
        assert f"{row['tokens_in_per_s']:.1f}" == speed[5]
        # It printed the tokens of its own tokenizer, and how many the server counted of a request.
        by_server = float(speed[6]) * float(length[7]) / float(length[4])
        assert row["tokens_out_per_s"] == pytest.approx(by_server, abs=0.06)
        assert [f"{row[key] * 1e3:.1f}" for key in ("runtime_mean_s", "service_p50_s", "service_p90_s")] == time[1:4]
        assert [f"{row[key] * 1e3:.1f}" for key in ("ttft_sent_p50_s", "ttft_sent_p90_s")] == time[5:7]
        assert row["itl_p95_s"] is None
        assert row["lateness_p95_s"] is None
        assert "little" not in row["flags"]


def test_requests_have_the_percentiles_of_its_stages(tmp_path: Path):
    rows = gpusize.read(FIXTURES / "closed", tmp_path).summary.rows(named=True)
    for row, stage in zip(rows, stages("closed"), strict=True):
        told = stage["successes"]["latency"]
        for mine, theirs in FIGURES.items():
            assert row[f"service_{mine}_s"] == pytest.approx(told["request_latency"][theirs], abs=1e-8)
            assert row[f"runtime_{mine}_s"] == row[f"service_{mine}_s"]
            assert row[f"ttft_sent_{mine}_s"] == pytest.approx(told["time_to_first_token"][theirs], abs=1e-8)
        assert row["total_runtime_s"] == pytest.approx(stage["benchmark_time_seconds"], abs=1e-8)


def test_requests_have_the_figures_of_its_benchmark_report(tmp_path: Path):
    rows = gpusize.read(FIXTURES / "closed", tmp_path).summary.rows(named=True)
    for k, row in enumerate(rows):
        file = FIXTURES / "closed" / f"inference-perf.partial.stage_{k}.yaml"
        told = YAML(typ="safe").load(file)["results"]["request_performance"]["aggregate"]
        assert (row["n"], row["errors"]) == (told["requests"]["total"], told["requests"]["failures"])
        assert row["service_p95_s"] == pytest.approx(told["latency"]["request_latency"]["p95"], abs=1e-8)
        assert row["ttft_sent_p99_s"] == pytest.approx(told["latency"]["time_to_first_token"]["p99"], abs=1e-8)


def test_requests_have_tokens_gaps_and_failures(tmp_path: Path):
    levels = gpusize.read(FIXTURES / "closed", tmp_path).levels
    requests = json.loads((FIXTURES / "closed" / "per_request_lifecycle_metrics.json").read_text())
    requests.sort(key=lambda each: each["start_time"])
    assert sum(level.outcomes().get("http_error", 0) for level in levels) == 1
    for level, stage, own in zip(levels, stages("closed"), (requests[:24], requests[24:]), strict=True):
        ok = level.ok("tokens_in", "tokens_out").collect()
        assert ok["tokens_out"].sum() == stage["successes"]["output_tokens"]["total"]
        assert ok["tokens_in"].sum() == stage["successes"]["prompt_tokens"]["total"]
        times = [each["info"]["response_metrics"]["chunk_times"] for each in own if not each["error"]]
        gaps = np.concatenate([np.diff(each) for each in times])
        assert level.quantile("itl_mean", 0.5) == pytest.approx(np.median([np.diff(each).mean() for each in times]))
        assert level.quantile("itl_max", 1) == pytest.approx(gaps.max())


def test_a_load_that_was_sent_late_is_flagged(tmp_path: Path):
    rows = gpusize.read(FIXTURES / "late", tmp_path).summary.rows(named=True)
    for row, stage in zip(rows, stages("late"), strict=True):
        load = stage["load_summary"]
        assert row["rate"] == load["requested_rate"]
        assert load["schedule_delay"]["max"] > 0.5
        assert row["lateness_p95_s"] == load["schedule_delay"]["p95"]
        assert row["runtime_p95_s"] is None
        assert row["flags"] == ["not-delivered"]


def test_few_that_were_due_by_chance_are_not_flagged(tmp_path: Path):
    [stage, _] = stages("late")
    delays = stage["load_summary"]["schedule_delay"]
    stage["load_summary"]["schedule_delay"] = {key: value / 1e3 for key, value in delays.items()}
    (tmp_path / "stage_0_lifecycle_metrics.json").write_text(json.dumps(stage))
    [row] = gpusize.read(tmp_path, tmp_path / "runs").summary.rows(named=True)
    assert row["flags"] == []
    assert any("by chance" in each for each in row["alerts"])


@pytest.mark.parametrize("change", ["one is missing", "another time", "another outcome"])
def test_requests_that_are_not_those_of_the_stages_are_left_out(tmp_path: Path, change: str):
    folder = tmp_path / "reports"
    shutil.copytree(FIXTURES / "closed", folder)
    file = folder / "per_request_lifecycle_metrics.json"
    requests = json.loads(file.read_text())
    if change == "one is missing":
        requests.pop()
    elif change == "another time":
        requests[5]["end_time"] += 0.5
    else:
        requests[5]["error"] = {"error_type": "TimeoutError", "error_msg": "Request timed out"}
    file.write_text(json.dumps(requests))
    found = import_inference_perf(folder, tmp_path / "runs")
    assert any("per_request_lifecycle_metrics.json is left out" in each for each in found.warnings)
    assert all(level.imported for level in gpusize.open_run(found.folder).levels)


def test_broken_requests_are_one_line(tmp_path: Path):
    folder = tmp_path / "reports"
    shutil.copytree(FIXTURES / "closed", folder)
    file = folder / "per_request_lifecycle_metrics.json"
    whole = file.read_text()
    for text in ("", "{}", "[3]", "[{}]", whole[:-100], whole.replace("start_time", "x", 1), '[{"start_time": NaN}]'):
        file.write_text(text)
        with pytest.raises(gpusize.GpusizeError) as error:
            import_inference_perf(folder, tmp_path / "runs")
        assert file.name in str(error.value)
        assert "\n" not in str(error.value)
