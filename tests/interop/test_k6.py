"""Summaries of k6 in both shapes: figures, which load it was, failures and dropped iterations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gpusize
from gpusize.analysis.failed_requests import quantile_of_all
from gpusize.base.errors import ConfigError
from gpusize.studies.imports.guess import formats
from gpusize.studies.imports.k6 import import_k6

FIXTURES = Path(__file__).parents[1] / "fixtures" / "k6"
TIMES = {"avg": 40.0, "min": 8.0, "med": 38.0, "max": 210.5, "p(90)": 61.0, "p(95)": 75.5, "p(99)": 120.25}


def trend(scale: float = 1.0) -> dict:
    return {name: value * scale for name, value in TIMES.items()}


def metrics(**more) -> dict:
    made = {
        "http_reqs": {"count": 1000, "rate": 200.0},
        "http_req_duration": trend(),
        "http_req_duration{expected_response:true}": trend(2),
        "http_req_blocked": trend(0.001),
        "http_req_failed": {"passes": 0, "fails": 1000, "value": 0},
        "iterations": {"count": 1000, "rate": 200.0},
        "vus": {"value": 8, "min": 8, "max": 8},
    }
    return made | more


def put(folder: Path, made: dict, shape: str) -> Path:
    if shape == "export":
        content = {"root_group": {}, "metrics": made}
    else:
        moved = {k: ({"rate": v["value"], "passes": 0} if k == "http_req_failed" else v) for k, v in made.items()}
        content = {
            "metrics": {name: {"type": "trend", "contains": "time", "values": each} for name, each in moved.items()},
            "state": {"testRunDurationMs": 5000.5},
        }
    (folder / "k6.json").write_text(json.dumps(content))
    return folder / "k6.json"


@pytest.mark.parametrize(
    "name, kind, asked",
    [
        ("closed_handle", "closed", 4),
        ("closed_export", "closed", 4),
        ("open_export", "open", 40),
        ("dropped_export", "open", 300),
    ],
)
def test_real_summaries(tmp_path: Path, name: str, kind: str, asked: float):
    raw = {
        key: each.get("values", each)
        for key, each in json.loads((FIXTURES / f"{name}.json").read_text())["metrics"].items()
    }
    [row] = gpusize.read(FIXTURES / f"{name}.json", tmp_path).summary.rows(named=True)
    assert row["kind"] == kind
    # A rate is told by what began, or was dropped: k6 begins the last a little early or late.
    assert row["concurrency" if kind == "closed" else "rate"] == pytest.approx(asked, rel=0.01)
    assert (row["n"], row["errors"]) == (raw["http_reqs"]["count"], raw["http_req_failed"]["passes"])
    assert row["achieved_rate"] == raw["http_reqs"]["rate"]
    for mine, theirs in {"p50": "med", "p90": "p(90)", "p95": "p(95)", "max": "max"}.items():
        told = raw["http_req_duration"][theirs] / 1e3
        assert row[f"service_{mine}_s"] == told
        assert row[f"runtime_{mine}_s"] == (told if kind == "closed" else None)
    assert row["flags"] == (["not-delivered"] if "dropped_iterations" in raw else [])


@pytest.mark.parametrize("shape", ["export", "handle"])
def test_users_in_a_row_are_a_closed_loop(tmp_path: Path, shape: str):
    [row] = gpusize.read(put(tmp_path, metrics(), shape), tmp_path / "runs", gpus=1).summary.rows(named=True)
    assert (row["kind"], row["concurrency"], row["n"], row["errors"]) == ("closed", 8, 1000, 0)
    for mine, theirs in {"p50": "med", "p90": "p(90)", "p95": "p(95)", "p99": "p(99)", "max": "max"}.items():
        assert row[f"service_{mine}_s"] == row[f"runtime_{mine}_s"] == TIMES[theirs] / 1e3
    assert row["achieved_rate"] == 200.0
    assert row["total_runtime_s"] == (None if shape == "export" else 5.0005)
    assert row["flags"] == []


@pytest.mark.parametrize("shape", ["export", "handle"])
def test_failures_stay_out_of_the_times(tmp_path: Path, shape: str):
    made = metrics(http_req_failed={"passes": 250, "fails": 750, "value": 0.25})
    [row] = gpusize.read(put(tmp_path, made, shape), tmp_path / "runs").summary.rows(named=True)
    assert (row["errors"], row["achieved_rate"]) == (250, 150.0)
    assert row["service_p95_s"] == 2 * TIMES["p(95)"] / 1e3
    assert "250 of 1,000 requests failed" in row["alerts"][0]


@pytest.mark.parametrize("share,p95_s", [(0.0, 0.0755), (0.02, 0.0755 + 0.5 * (0.12025 - 0.0755))])
def test_times_that_are_of_failed_requests_too_are_taken_for_the_fastest(tmp_path: Path, share: float, p95_s: float):
    """Of 2 % failed, the fastest perhaps, the 95th percentile of all is at 97 among the times that k6 states."""
    failed = round(1000 * share)
    made = metrics(http_req_failed={"passes": failed, "fails": 1000 - failed, "value": share})
    del made["http_req_duration{expected_response:true}"]
    [level] = gpusize.read(put(tmp_path, made, "export"), tmp_path / "out").levels
    assert quantile_of_all(level, "service", 0.95, 1.0) == pytest.approx(p95_s)


def test_waits_for_connections_leave_the_runtime_unknown(tmp_path: Path):
    made = metrics(http_req_blocked=trend(0.5))
    [row] = gpusize.read(put(tmp_path, made, "export"), tmp_path / "runs").summary.rows(named=True)
    assert row["runtime_p95_s"] is None
    assert row["service_p95_s"] == TIMES["p(95)"] / 1e3


@pytest.mark.parametrize("vus", [{"min": 1, "max": 8}, {"min": 30, "max": 30}])
def test_any_other_load_is_a_rate(tmp_path: Path, vus: dict):
    [row] = gpusize.read(put(tmp_path, metrics(vus=vus), "handle"), tmp_path / "runs").summary.rows(named=True)
    assert (row["kind"], row["rate"], row["concurrency"]) == ("open", 200.0, None)
    assert row["runtime_p95_s"] is None
    assert "does not say which load" in row["alerts"][0]


def test_dropped_iterations_are_flagged_and_were_asked_for(tmp_path: Path):
    made = metrics(dropped_iterations={"count": 500, "rate": 100.0})
    [row] = gpusize.read(put(tmp_path, made, "export"), tmp_path / "runs").summary.rows(named=True)
    assert (row["kind"], row["rate"], row["achieved_rate"]) == ("open", 300.0, 200.0)
    assert row["flags"] == ["not-delivered"]


def test_without_the_share_of_failures_they_are_unknown(tmp_path: Path):
    made = metrics()
    del made["http_req_failed"]
    [row] = gpusize.read(put(tmp_path, made, "export"), tmp_path / "runs").summary.rows(named=True)
    assert row["errors"] is None
    assert row["achieved_rate"] is None


def test_percentiles_that_fall_are_flagged(tmp_path: Path):
    made = metrics(http_req_duration=trend() | {"p(99)": 1.0})
    [row] = gpusize.read(put(tmp_path, made, "export"), tmp_path / "runs").summary.rows(named=True)
    assert "inconsistent" in row["flags"]


def test_no_other_format_takes_it(tmp_path: Path):
    for shape in ("export", "handle"):
        file = put(tmp_path, metrics(), shape)
        assert [name for name, each in formats().items() if each.looks_like(file, file.read_bytes())] == ["k6"]


@pytest.mark.parametrize(
    "change, what",
    [
        ({"http_reqs": {"count": 0, "rate": 0}}, "no HTTP request"),
        ({"http_reqs": 5}, "not an object"),
        ({"http_req_failed": {"value": 25}}, "25 is not a share"),
        ({"http_req_duration": trend() | {"p(95)": float("nan")}}, "not a number"),
    ],
)
def test_broken_figures_are_one_line(tmp_path: Path, change: dict, what: str):
    with pytest.raises(ConfigError, match=what) as error:
        import_k6(put(tmp_path, metrics(**change), "export"), tmp_path / "runs")
    assert "k6.json" in str(error.value)
    assert "\n" not in str(error.value)
