"""Results of a real vllm bench serve: totals and percentiles are those that it printed, and those of its raw lists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpusize
from gpusize.analysis.compare.figures import usual_figures

FIXTURES = Path(__file__).parents[1] / "fixtures" / "vllm"
DETAILED = ("closed_detailed", "rate_detailed", "limit_detailed")
PLAIN = ("closed_plain", "limit_plain", "burst_plain")
METRICS = {"TTFT": "ttft_sent", "ITL": "itl", "E2EL": "service"}
PROBS = {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "max": 100}


def raw(name: str) -> dict:
    content: dict = json.loads((FIXTURES / f"{name}.json").read_text())
    return content


def printed(name: str) -> dict[str, float]:
    """The figures of the table that it printed, by their names there."""
    lines = (FIXTURES / f"{name}.txt").read_text().splitlines()
    found = (re.fullmatch(r"(.+?):\s+([\d.]+)\s*", line) for line in lines)
    return {match[1]: float(match[2]) for match in found if match}


def read(name: str, tmp_path: Path) -> dict:
    [row] = gpusize.read(FIXTURES / f"{name}.json", tmp_path).summary.rows(named=True)
    return row


@pytest.mark.parametrize("name", [*DETAILED, *PLAIN])
def test_counts_and_percentiles_are_those_that_it_printed(tmp_path: Path, name: str):
    row, told = read(name, tmp_path), printed(name)
    assert row["n"] - row["errors"] == told["Successful requests"]
    assert row["errors"] == told["Failed requests"]
    for there, here in METRICS.items():
        for prob in ("p50", "p90", "p95", "p99"):
            assert row[f"{here}_{prob}_s"] * 1e3 == pytest.approx(told[f"P{prob[1:]} {there} (ms)"], abs=0.0051)


@pytest.mark.parametrize("name", PLAIN)
def test_rates_of_figures_are_those_that_it_printed(tmp_path: Path, name: str):
    row, told = read(name, tmp_path), printed(name)
    assert row["achieved_rate"] == pytest.approx(told["Request throughput (req/s)"], abs=0.0051)
    assert row["tokens_out_per_s"] == pytest.approx(told["Output token throughput (tok/s)"], abs=0.0051)
    both = row["tokens_in_per_s"] + row["tokens_out_per_s"]
    assert both == pytest.approx(told["Total token throughput (tok/s)"], abs=0.0051)
    assert row["total_runtime_s"] == pytest.approx(told["Benchmark duration (s)"], abs=0.0051)


@pytest.mark.parametrize("name", DETAILED)
def test_requests_add_up_to_the_totals_that_it_printed(tmp_path: Path, name: str):
    level = gpusize.read(FIXTURES / f"{name}.json", tmp_path).levels[0]
    told = printed(name)
    ok = level.ok("tokens_in", "tokens_out").collect()
    assert ok["tokens_in"].sum() == told["Total input tokens"]
    assert ok["tokens_out"].sum() == told["Total generated tokens"]
    assert level.quantile("itl_mean", 0.95) == pytest.approx(told["P95 TPOT (ms)"] / 1e3, abs=6e-6)
    # It also counts what it takes to make and end the requests.
    ends = level.requests().select("sent_ns", "end_ns").collect()
    span_s = (ends["end_ns"].max() - ends["sent_ns"].min()) / 1e9
    assert told["Benchmark duration (s)"] - 0.1 <= span_s <= told["Benchmark duration (s)"] + 0.0051


@pytest.mark.parametrize("name", ["limit_detailed", "limit_plain"])
def test_behind_a_limit_the_wait_for_a_place_counts_in_the_runtime(tmp_path: Path, name: str):
    row, told = read(name, tmp_path), printed(name)
    assert (row["kind"], row["rate"]) == ("open", 20.0)
    assert row["runtime_p95_s"] * 1e3 == pytest.approx(told["P95 E2EL incl. Client Queue (ms)"], abs=0.0051)
    assert row["lateness_p95_s"] * 1e3 == pytest.approx(told["P95 Client Queue Time (ms)"], abs=0.0051)
    assert row["runtime_p50_s"] > 3 * row["service_p50_s"]
    assert "not-delivered" in row["flags"]


@pytest.mark.parametrize("name", ["limit_plain", "burst_plain"])
def test_without_percentiles_in_the_summary_they_follow_from_its_lists(tmp_path: Path, name: str):
    content = {key: value for key, value in raw(name).items() if not re.match(r"(mean|median|p\d+)_(e2el|client)", key)}
    file = tmp_path / f"{name}.json"
    file.write_text(json.dumps(content))
    [row] = gpusize.read(file, tmp_path / "runs").summary.rows(named=True)
    service, waits = (np.array(content[key]) for key in ("latencies", "queue_times"))
    for mine, prob in PROBS.items():
        assert row[f"service_{mine}_s"] == pytest.approx(np.percentile(service, prob), rel=1e-12)
        if name == "limit_plain":
            assert row[f"runtime_{mine}_s"] == pytest.approx(np.percentile(service + waits, prob), rel=1e-12)


def test_of_a_closed_loop_the_queue_is_no_wait(tmp_path: Path):
    for name in ("closed_plain", "closed_detailed"):
        row = read(name, tmp_path)
        assert raw(name)["p95_client_queue_time_ms"] > 1000
        assert row["runtime_p95_s"] == row["service_p95_s"]
        assert row["lateness_p95_s"] is None
        # Of failures the detailed file does not say when they ended, so that what was in flight is not known.
        assert row["flags"] == (["tokens"] if name == "closed_detailed" else [])


def test_what_waited_for_a_place_is_not_said_to_wait_for_a_connection(tmp_path: Path):
    [alert] = [each for each in read("limit_detailed", tmp_path)["alerts"] if each.startswith("not delivered")]
    assert "p99 of sent - due" in alert
    assert "connection" not in alert


def test_gaps_that_it_states_are_shown_and_compared(tmp_path: Path):
    plain, detailed = (
        gpusize.read(FIXTURES / f"{name}.json", tmp_path) for name in ("closed_plain", "closed_detailed")
    )
    assert plain.summary["itl_source"].to_list() == ["stated"]
    assert detailed.summary["itl_source"].to_list() == ["events"]
    [level] = detailed.levels
    assert level.quantile("itl", 0.95) == detailed.summary["itl_p95_s"][0]
    [stated] = plain.levels
    assert stated.quantile("itl", 0.95) == raw("closed_plain")["p95_itl_ms"] / 1e3
    assert stated.mean("itl") == raw("closed_plain")["mean_itl_ms"] / 1e3
    assert "p95 itl_mean" in [each.name for each in usual_figures([stated])]
    assert "p95 itl_mean" in [each.name for each in usual_figures([level])]
    page = plain.report(tmp_path / "page", plots=False).read_text()
    assert "ITL is as the other tool states it." in page


def test_failures_have_no_times(tmp_path: Path):
    content = raw("closed_detailed")
    failed = [at for at, error in enumerate(content["errors"]) if error]
    assert failed
    assert {content["latencies"][at] for at in failed} == {0.0}
    level = gpusize.read(FIXTURES / "closed_detailed.json", tmp_path).levels[0]
    assert level.outcomes() == {"ok": content["completed"], "http_error": len(failed)}
    plain = raw("closed_plain")
    assert plain["failed"] > 0
    assert sum(latency > 0 for latency in plain["latencies"]) == plain["completed"]


def test_an_event_without_a_token_is_told(tmp_path: Path):
    row = read("closed_detailed", tmp_path)
    assert any("have more events than tokens" in each for each in row["alerts"])


def test_all_at_once_is_no_steady_load(tmp_path: Path):
    row = read("burst_plain", tmp_path)
    assert (row["kind"], row["concurrency"]) == ("closed", raw("burst_plain")["num_prompts"])
    assert row["flags"] == ["burst"]


@pytest.mark.parametrize("changed", [{"completed": 0, "failed": 24}, {"duration": 0}, {"completed": 12}])
def test_figures_that_are_not_of_one_measurement_are_flagged(tmp_path: Path, changed: dict[str, Any]):
    file = tmp_path / "result.json"
    file.write_text(json.dumps({**raw("closed_plain"), **changed}))
    [row] = gpusize.read(file, tmp_path / "runs").summary.to_dicts()
    assert "inconsistent" in row["flags"]
    assert any("over duration of" in each for each in row["alerts"])
