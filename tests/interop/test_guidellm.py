"""Reports of a real GuideLLM: totals are its own, times are those of its raw requests or of its own summary."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import gpusize
from gpusize.analysis.failed_requests import told_requests
from gpusize.analysis.slo import Slo
from gpusize.base.errors import ConfigError
from gpusize.studies.imports.guess import formats
from gpusize.studies.imports.guidellm import import_guidellm

FIXTURES = Path(__file__).parents[1] / "fixtures" / "guidellm"
WHOLE = ("concurrent", "constant", "poisson")
SAMPLED = ("sampled", "poisson_sampled", "throughput_sampled")


def raw(name: str) -> dict:
    report: dict = json.loads((FIXTURES / f"{name}.json").read_text())
    return report


def load(bench: dict) -> dict:
    strategy = bench["config"]["strategy"]
    if "rate" in strategy:
        return {"kind": "open", "rate": strategy["rate"], "concurrency": None}
    return {"kind": "closed", "rate": None, "concurrency": strategy.get("streams") or strategy["max_concurrency"]}


def put(folder: Path, content: dict) -> Path:
    (folder / "g.json").write_text(json.dumps(content))
    return folder / "g.json"


@pytest.mark.parametrize("name", [*WHOLE, *SAMPLED])
def test_loads_and_totals_are_the_tools_own(tmp_path: Path, name: str):
    benchmarks = raw(name)["benchmarks"]
    rows = gpusize.read(FIXTURES / f"{name}.json", tmp_path, gpus=2).summary.rows(named=True)
    assert len(rows) == len(benchmarks)
    for row, bench in zip(rows, benchmarks, strict=True):
        totals = bench["metrics"]["request_totals"]
        assert {key: row[key] for key in ("kind", "rate", "concurrency")} == load(bench)
        assert (row["n"], row["errors"], row["gpus"]) == (totals["total"], totals["errored"], 2)


@pytest.mark.parametrize("name", WHOLE)
def test_times_are_those_of_the_raw_requests(tmp_path: Path, name: str):
    rows = gpusize.read(FIXTURES / f"{name}.json", tmp_path).summary.rows(named=True)
    for row, bench in zip(rows, raw(name)["benchmarks"], strict=True):
        good = bench["requests"]["successful"]
        times = [each["info"]["timings"] for each in good]
        service = [each["request_end"] - each["request_start"] for each in times]
        first = [each["first_token_iteration"] - each["request_start"] for each in times]
        for mine, prob in (("p50", 50), ("p90", 90), ("p95", 95), ("p99", 99), ("max", 100)):
            assert row[f"service_{mine}_s"] == pytest.approx(np.percentile(service, prob), abs=1e-6)
            assert row[f"ttft_sent_{mine}_s"] == pytest.approx(np.percentile(first, prob), abs=1e-6)
        # The tool's percentiles are values that occurred: ours lie between those beside them.
        assert min(service) - 1e-6 <= row["service_p50_s"] <= max(service) + 1e-6
        assert row["service_max_s"] == pytest.approx(bench["metrics"]["request_latency"]["successful"]["max"], abs=1e-6)
        told = bench["metrics"]["time_to_first_token_ms"]["successful"]["max"] / 1e3
        assert row["ttft_sent_max_s"] == pytest.approx(told, abs=1e-6)


@pytest.mark.parametrize("name", ["constant", "poisson"])
def test_at_a_rate_the_runtime_counts_from_when_a_request_was_due(tmp_path: Path, name: str):
    [bench] = raw(name)["benchmarks"]
    [row] = gpusize.read(FIXTURES / f"{name}.json", tmp_path).summary.rows(named=True)
    told = bench["metrics"]["request_scheduled_latency"]["successful"]
    assert row["runtime_mean_s"] == pytest.approx(told["mean"], abs=1e-6)
    assert row["runtime_max_s"] == pytest.approx(told["max"], abs=1e-6)
    assert row["runtime_mean_s"] > bench["metrics"]["request_latency"]["successful"]["mean"]
    assert row["lateness_p50_s"] > 0


def test_in_a_closed_loop_the_tools_own_delay_is_no_runtime(tmp_path: Path):
    for row in gpusize.read(FIXTURES / "concurrent.json", tmp_path).summary.rows(named=True):
        assert row["runtime_p95_s"] == row["service_p95_s"]
        assert row["lateness_p95_s"] is None


def test_requests_due_in_1970_leave_the_runtime_unknown(tmp_path: Path):
    sampled, whole = raw("poisson_sampled"), raw("poisson")
    assert sampled["benchmarks"][0]["metrics"]["request_scheduled_latency"]["successful"]["max"] > 1e9
    whole["benchmarks"][0]["requests"]["successful"][4]["info"]["timings"]["targeted_start"] = 0.0
    for k, content in enumerate((sampled, whole)):
        [row] = gpusize.read(put(tmp_path, content), tmp_path / str(k)).summary.rows(named=True)
        assert row["runtime_p50_s"] is None
        assert row["lateness_p50_s"] is None
        assert row["service_p50_s"] < 1
        assert any("targeted_start" in each or "is left out" in each for each in row["alerts"])


@pytest.mark.parametrize("name", SAMPLED)
def test_of_a_sample_the_figures_are_the_tools_own(tmp_path: Path, name: str):
    [bench] = raw(name)["benchmarks"]
    found = gpusize.read(FIXTURES / f"{name}.json", tmp_path)
    [row] = found.summary.rows(named=True)
    every = bench["metrics"]
    figures = ["request_latency", "time_to_first_token_ms", "requests_per_second"]
    figures += ["output_tokens_per_second", "prompt_tokens_per_second"]
    metrics = {key: every[key]["successful"] for key in figures}
    for mine in ("p50", "p90", "p95", "p99"):
        assert row[f"service_{mine}_s"] == metrics["request_latency"]["percentiles"][mine]
        told = metrics["time_to_first_token_ms"]["percentiles"][mine] / 1e3
        assert row[f"ttft_sent_{mine}_s"] == pytest.approx(told, rel=1e-12)
    assert row["achieved_rate"] == metrics["requests_per_second"]["mean"]
    assert row["tokens_out_per_s"] == metrics["output_tokens_per_second"]["mean"]
    assert row["tokens_in_per_s"] == metrics["prompt_tokens_per_second"]["mean"]
    assert row["total_runtime_s"] == bench["duration"]
    # Its inter token latency is of another kind.
    assert row["itl_p95_s"] is None
    assert any("requests failed" in each for each in row["alerts"])


def test_records_hold_tokens_and_kinds_of_failures(tmp_path: Path):
    level = gpusize.read(FIXTURES / "constant.json", tmp_path).levels[0]
    [bench] = raw("constant")["benchmarks"]
    ok = level.ok("tokens_out").collect()
    assert ok["tokens_out"].sum() == bench["metrics"]["output_token_count"]["successful"]["total_sum"]
    told = [each["inter_token_latency_ms"] for each in bench["requests"]["successful"]]
    assert level.mean("itl_mean") == pytest.approx(np.mean(told) / 1e3, rel=1e-6)
    assert level.outcomes() == {"ok": 23, "http_error": 1}


def test_warm_up_and_contradictions(tmp_path: Path):
    warm = raw("concurrent")
    warm["benchmarks"][0]["warmup_duration"] = 0.1
    found = gpusize.read(put(tmp_path, warm), tmp_path / "a")
    assert [level.imported for level in found.levels] == [True, False]
    wrong = raw("sampled")
    wrong["benchmarks"][0]["metrics"]["request_totals"]["successful"] += 1
    [row] = gpusize.read(put(tmp_path, wrong), tmp_path / "b").summary.rows(named=True)
    assert "inconsistent" in row["flags"]
    falls = raw("sampled")
    falls["benchmarks"][0]["metrics"]["request_latency"]["successful"]["percentiles"]["p99"] = 1e-3
    [row] = gpusize.read(put(tmp_path, falls), tmp_path / "c").summary.rows(named=True)
    assert "inconsistent" in row["flags"]
    idle = raw("sampled")
    idle["benchmarks"][0]["config"]["strategy"]["streams"] = 40
    [row] = gpusize.read(put(tmp_path, idle), tmp_path / "d").summary.rows(named=True)
    assert "little" in row["flags"]


def test_no_other_format_takes_it():
    for file in FIXTURES.glob("*.json"):
        head = file.read_bytes()[:65536]
        assert [name for name, each in formats().items() if each.looks_like(file, head)] == ["guidellm"]


@pytest.mark.parametrize(
    "change, what",
    [
        ({"benchmarks": []}, "no benchmark"),
        ({"benchmarks": [3]}, "not a JSON object"),
        ({"benchmarks": [{"metrics": {"request_totals": {"total": 0}}}]}, "no request in its request_totals"),
        ({"benchmarks": [{"metrics": {"request_totals": {"total": float("nan")}}}]}, "not a number"),
        ({"benchmarks": [raw("sampled")["benchmarks"][0] | {"warnings": -1}]}, "warnings: -1 is not a list"),
        (
            {"benchmarks": [raw("sampled")["benchmarks"][0] | {"requests": {"errored": 7}}]},
            "errored: 7 is not a list",
        ),
    ],
)
def test_broken_reports_are_one_line(tmp_path: Path, change: dict, what: str):
    with pytest.raises(ConfigError, match=what) as error:
        import_guidellm(put(tmp_path, raw("sampled") | change), tmp_path / "runs")
    assert "g.json" in str(error.value)
    assert "\n" not in str(error.value)


def test_what_was_cut_off_at_the_end_is_no_request_of_which_a_share_failed(tmp_path: Path):
    content = raw(SAMPLED[0])
    [bench] = content["benchmarks"]
    totals = bench["metrics"]["request_totals"]
    good = totals["successful"]
    totals |= {"errored": 3, "incomplete": 7, "total": good + 10}
    [level] = gpusize.read(put(tmp_path, content), tmp_path / "out").levels
    assert told_requests(level) == (good + 3, 3)
    share, n = level.attainment(Slo.parse("share ok >= 99%"))
    assert (share, n) == pytest.approx((good / (good + 3), good + 3))
