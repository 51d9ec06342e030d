"""Reports of inference-perf, in the shape of its source: figures, what is missing, what contradicts itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import gpusize
from gpusize.base.errors import ConfigError
from gpusize.studies.imports.guess import formats
from gpusize.studies.imports.inference_perf import import_inference_perf


def summary(values, percents=(0.1, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9)):
    made = {"mean": float(np.mean(values)), "min": float(np.min(values)), "max": float(np.max(values))}
    return made | {"median" if p == 50 else f"p{p:g}": float(np.percentile(values, p)) for p in percents}


def stage(seed: int, *, rate: float | None = None, users: int | None = None, failed: int = 0, n: int = 200):
    rnd = np.random.default_rng(seed)
    took, ttft = rnd.lognormal(-1, 0.3, n), rnd.lognormal(-3, 0.3, n)
    seconds = took.sum() / users if users else n / (rate or 1)
    load = {"count": n + failed, "schedule_delay": summary(rnd.exponential(0.001, n)), "send_duration": seconds}
    load |= {"requested_rate": rate or 0.0, "achieved_rate": (n + failed) / seconds} | (
        {"concurrency": users} if users else {}
    )
    return {
        "benchmark_time_seconds": seconds,
        "load_summary": load,
        "successes": {
            "count": n,
            "latency": {
                "request_latency": summary(took),
                "normalized_time_per_output_token": summary(took / 9),
                "time_per_output_token": summary((took - ttft) / 8),
                "time_to_first_token": summary(ttft),
                "inter_token_latency": None,
            },
            "throughput": {
                "input_tokens_per_sec": 50.0,
                "output_tokens_per_sec": 9 * n / seconds,
                "requests_per_sec": n / seconds,
            },
        },
        "failures": {
            "count": failed,
            "request_latency": None,
            "by_label": {"503 - Service Unavailable": {"count": failed, "messages": []}} if failed else {},
        },
    }


def put(folder: Path, *stages, first: int = 0) -> Path:
    for k, each in enumerate(stages, first):
        (folder / f"stage_{k}_lifecycle_metrics.json").write_text(json.dumps(each))
    return folder


def test_every_stage_is_a_level_with_the_tools_figures(tmp_path: Path):
    raw = [stage(1, rate=5.0), stage(2, rate=10.0, failed=7), stage(3, users=8)]
    found = gpusize.read(put(tmp_path, *raw), tmp_path / "runs", gpus=4)
    rows = found.summary.rows(named=True)
    assert [(row["rate"], row["concurrency"]) for row in rows] == [(5.0, None), (10.0, None), (None, 8)]
    for row, each in zip(rows, raw, strict=True):
        told = each["successes"]["latency"]
        names = {"p50": "median", "p90": "p90", "p95": "p95", "p99": "p99", "max": "max"}
        for mine, theirs in names.items():
            assert row[f"service_{mine}_s"] == told["request_latency"][theirs]
            assert row[f"ttft_sent_{mine}_s"] == told["time_to_first_token"][theirs]
            late = each["load_summary"]["schedule_delay"][theirs]
            assert row[f"lateness_{mine}_s"] == (late if row["concurrency"] is None else None)
            assert row[f"itl_{mine}_s"] is None
        closed = row["concurrency"] is not None
        assert row["runtime_p95_s"] == (told["request_latency"]["p95"] if closed else None)
        assert row["ttft_p95_s"] == (told["time_to_first_token"]["p95"] if closed else None)
        assert (row["n"], row["errors"]) == (each["load_summary"]["count"], each["failures"]["count"])
        assert row["achieved_rate"] == each["successes"]["throughput"]["requests_per_sec"]
        assert row["tokens_out_per_s"] == each["successes"]["throughput"]["output_tokens_per_sec"]
        assert row["flags"] == []
    assert "7 503 - Service Unavailable" in rows[1]["alerts"][0]


def test_what_a_folder_lacks_is_named(tmp_path: Path):
    put(tmp_path, stage(1, rate=5.0), first=2)
    (tmp_path / "summary_lifecycle_metrics.json").write_text(json.dumps(stage(1, rate=5.0, n=300)))
    (tmp_path / "per_request_lifecycle_metrics.json").write_text("[]")
    warnings = "\n".join(import_inference_perf(tmp_path, tmp_path / "runs").warnings)
    assert "stage 0, 1 has no report" in warnings
    assert "300 requests, and the stages have 200" in warnings
    assert "per_request_lifecycle_metrics.json is left out" in warnings


def test_what_contradicts_itself_is_flagged(tmp_path: Path):
    slow, wrong, falls, lost = stage(1, rate=5.0), stage(2, users=8), stage(3, users=8), stage(4, users=8, failed=3)
    slow["load_summary"] |= {"achieved_rate": 3.0, "send_duration": 200 / 3}
    wrong["load_summary"]["concurrency"] = 16
    falls["successes"]["latency"]["request_latency"]["p99"] = 1e-3
    lost["failures"]["count"] = 4
    flags = gpusize.read(put(tmp_path, slow, wrong, falls, lost), tmp_path / "runs").summary["flags"].to_list()
    assert flags == [["not-delivered"], ["little"], ["inconsistent"], ["inconsistent"]]


def test_a_rate_that_is_not_its_requests_over_their_time_is_flagged(tmp_path: Path):
    wrong = stage(1, rate=5.0)
    wrong["load_summary"]["achieved_rate"] = 4.9
    [row] = gpusize.read(put(tmp_path, wrong), tmp_path / "runs").summary.rows(named=True)
    assert row["flags"] == ["inconsistent"]


def test_no_other_format_takes_it(tmp_path: Path):
    put(tmp_path, stage(1, rate=5.0))
    file = tmp_path / "stage_0_lifecycle_metrics.json"
    for path, head in ((tmp_path, b""), (file, file.read_bytes())):
        assert [name for name, each in formats().items() if each.looks_like(path, head)] == ["inference_perf"]


@pytest.mark.parametrize(
    "text, what",
    [
        ("", "empty"),
        ('{"load_summary": 3}', "not an object"),
        ('{"load_summary": {}}', "neither requested_rate nor concurrency"),
        ('{"load_summary": {"requested_rate": NaN}}', "not a number"),
        ('{"load_summary": ', "line 1, column"),
        ("\ufeff[1]", "not a JSON object"),
    ],
)
def test_broken_files_are_one_line(tmp_path: Path, text: str, what: str):
    (tmp_path / "stage_0_lifecycle_metrics.json").write_text(text)
    with pytest.raises(ConfigError, match=what) as error:
        import_inference_perf(tmp_path, tmp_path / "runs")
    assert "stage_0" in str(error.value)
    assert "\n" not in str(error.value)
