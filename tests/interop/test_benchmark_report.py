"""Benchmark Reports of llm-d come in with their own figures, and ours come back as they went out."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

import gpusize
from gpusize.analysis.metrics import QUANTILES
from gpusize.analysis.summary_columns import OF_LEVELS, quantile_columns
from gpusize.base.errors import ConfigError, GpusizeError
from gpusize.studies.imports.guess import formats
from tests.interop.test_export import random_run

EXAMPLE = Path(__file__).parents[1] / "fixtures" / "benchmark_report" / "example_v0_2_1.yaml"


def report(**load: Any) -> dict[str, Any]:
    """A small document of another tool."""
    latency = {"units": "ms", "mean": 200.0, "min": 50, "p50": 180.0, "p95": 400.0, "max": 500.0}
    load = {"tool": "x", "tool_version": "1", "source": "random", **load}
    return {
        "version": "0.2.1",
        "run": {"uid": "a"},
        "scenario": {"load": {"metadata": {}, "native": {}, "standardized": load}},
        "results": {
            "request_performance": {
                "aggregate": {
                    "requests": {"total": 100, "failures": 3},
                    "latency": {"request_latency": latency},
                    "throughput": {"request_rate": {"units": "queries/s", "mean": 20.0}},
                }
            }
        },
    }


def write(place: Path, document: Any, name: str = "a.json") -> Path:
    (place / name).write_text(json.dumps(document))
    return place / name


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_there_and_back_every_figure_is_the_same(tmp_path: Path, seed: int, suffix: str) -> None:
    result = random_run(tmp_path, seed)
    [*files] = result.export("benchmark_report", tmp_path / "out")
    if suffix == "json":
        for file in files:
            document = YAML(typ="safe").load(file)
            file.unlink()
            write(file.parent, document, f"{file.stem}.json")
    back = gpusize.read(tmp_path / "out", tmp_path / "runs")
    assert back.notes == []
    columns = [name for name in quantile_columns(OF_LEVELS) if not name.startswith("lateness")]
    columns += ["concurrency", "n", "errors", "gpus", "achieved_rate", "runtime_mean_s", "total_runtime_s", "state"]
    columns += ["tokens_in_per_s", "tokens_out_per_s", "server_gpus", "server_gpu_utilization", "server_queue_s"]
    for name in columns:
        ours, theirs = result.summary[name].to_list(), back.summary[name].to_list()
        if result.summary[name].dtype.is_numeric():
            known = [each is None for each in ours]
            assert known == [each is None for each in theirs], name
            pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a is not None]
            assert all(math.isclose(a, b, rel_tol=1e-12) for a, b in pairs), name
        else:
            assert ours == theirs, name


def test_what_another_tool_counted_as_failed_is_not_lost_on_the_way(tmp_path: Path) -> None:
    """Its times are those of the others: without the count they are of a server that never failed."""
    result = gpusize.read(EXAMPLE.parents[1] / "inference_perf" / "late", tmp_path / "a")
    assert all(level.imported for level in result.levels)
    assert result.summary["errors"].to_list() == [0, 1]
    result.export("benchmark_report", tmp_path / "out")
    back = gpusize.read(tmp_path / "out", tmp_path / "b").summary
    assert back.select("n", "errors").rows() == result.summary.select("n", "errors").rows() == [(20, 0), (40, 1)]


def test_the_schemas_own_example(tmp_path: Path) -> None:
    result = gpusize.read(EXAMPLE, tmp_path / "runs", gpus=16)
    [row] = result.summary.to_dicts()
    told = YAML(typ="safe").load(EXAMPLE)["results"]["request_performance"]["aggregate"]
    first = told["latency"]["time_to_first_token"]
    assert (row["rate"], row["concurrency"], row["gpus"]) == (10.0, None, 16)
    assert (row["n"], row["errors"]) == (500, 0)
    assert row["achieved_rate"] == told["throughput"]["request_rate"]["mean"]
    for quantile in QUANTILES:
        assert row[f"ttft_sent_{quantile}_s"] == first[quantile]
        assert row[f"ttft_{quantile}_s"] is None
        assert row[f"runtime_{quantile}_s"] is None
    # Two components tell of it; nothing is made of that.
    assert row.get("server_gpu_utilization") is None


def test_a_concurrency_of_another_tool(tmp_path: Path) -> None:
    [row] = gpusize.read(write(tmp_path, report(concurrency=4)), tmp_path / "runs").summary.to_dicts()
    assert (row["concurrency"], row["n"], row["errors"], row["gpus"]) == (4, 100, 3, 0)
    assert (row["runtime_p95_s"], row["runtime_max_s"], row["runtime_mean_s"]) == (0.4, 0.5, 0.2)
    assert row["runtime_p90_s"] is row["ttft_p50_s"] is row["tokens_out_per_s"] is None
    assert row["flags"] == []


def test_what_is_not_known_is_null(tmp_path: Path) -> None:
    document = report(concurrency=4)
    document["results"]["request_performance"]["aggregate"].pop("requests")
    [row] = gpusize.read(write(tmp_path, document), tmp_path / "runs").summary.to_dicts()
    assert row["n"] is None
    assert row["errors"] is None


def test_what_is_odd_is_said(tmp_path: Path) -> None:
    document = report(concurrency=9, tool="aiperf")
    aggregate = document["results"]["request_performance"]["aggregate"]
    aggregate["requests"]["failures"] = 101
    aggregate["latency"]["request_latency"] |= {"P25": 100.0, "p99": 300.0}
    result = gpusize.read(write(tmp_path, document), tmp_path / "runs")
    [row] = result.summary.to_dicts()
    alerts = "\n".join(row["alerts"])
    assert "p99 (0.3 s) is below p95 (0.4 s)" in alerts
    assert "101 of 100 requests failed" in alerts
    assert "are 4 in flight, not 9" in alerts
    assert "little" in row["flags"]
    notes = "\n".join(result.notes)
    assert "read as p25" in notes
    assert "kinds of AIPerf's errors" in notes
    assert result.levels[0].quantile("runtime", 0.25) == 0.1


@pytest.mark.parametrize(
    "keys, value, said",
    [
        (("version",), "0.2", "version '0.2'; version 0.2.1 is read"),
        (("version",), "0.1", "0.2.1 is read"),
        (("results",), {"request_performance": None}, "no figures of requests"),
        (("results", "request_performance"), [], "not an object"),
        (("scenario", "load", "standardized", "concurrency"), None, "neither a concurrency nor a rate"),
        (("scenario", "load", "standardized", "concurrency"), 2.5, "not a concurrency"),
        (("scenario", "load", "standardized", "rate_qps"), 0, "rate of 0"),
        (("results", "request_performance", "aggregate", "requests", "total"), -1, "'-1' is not a number from 0"),
        (("results", "request_performance", "aggregate", "requests", "total"), 1.5, "not a whole number"),
        (("results", "request_performance", "aggregate", "latency", "request_latency", "units"), "GB", "no time"),
        (("results", "request_performance", "aggregate", "latency", "request_latency", "mean"), "x", "not a number"),
        (
            ("results", "request_performance", "aggregate", "latency", "request_latency", "mean"),
            10**400,
            "more than 64 bits",
        ),
        (("results", "request_performance", "aggregate", "latency", "request_latency", "max"), 1e14, "out of range"),
        (("results", "request_performance", "aggregate", "throughput", "request_rate", "mean"), 1e300, "not a number"),
        (("results", "request_performance", "aggregate", "throughput", "request_rate", "units"), "s", "queries/s"),
    ],
)
def test_what_is_wrong_is_an_error_with_its_place(tmp_path: Path, keys: tuple[str, ...], value: Any, said: str) -> None:
    document = report(concurrency=4)
    at: Any = document
    for key in keys[:-1]:
        at = at[key]
    at[keys[-1]] = value
    with pytest.raises(ConfigError, match=said) as caught:
        gpusize.read(write(tmp_path, document), tmp_path / "runs")
    assert str(tmp_path / "a.json") in str(caught.value)


def test_of_a_folder_what_can_be_read_is_taken(tmp_path: Path) -> None:
    for k in (3, 1, 2):
        write(tmp_path, report(concurrency=k, stage=k), f"{9 - k}.json")
    write(tmp_path, {**report(concurrency=5), "version": "0.1"}, "old.json")
    write(tmp_path, {"other": 1}, "config.json")
    result = gpusize.read(tmp_path, tmp_path / "runs")
    assert result.summary["concurrency"].to_list() == [1, 2, 3]
    [note] = result.notes
    assert "old.json" in note


def test_only_one_format_takes_it(tmp_path: Path) -> None:
    for path in (EXAMPLE, write(tmp_path, report(concurrency=1))):
        head = path.read_bytes()[:65_536]
        assert [name for name, module in formats().items() if module.looks_like(path, head)] == ["benchmark_report"]


@pytest.mark.parametrize("seed", range(150))
def test_a_damaged_document_is_an_error_or_true(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    document: Any = copy.deepcopy(report(concurrency=4))
    at: Any = document
    while True:
        key = random.choice(sorted(at))
        if not isinstance(at[key], dict) or not at[key] or random.random() < 0.1:
            break
        at = at[key]
    odd = [None, [], {}, "x", -1, math.nan, math.inf, 1e400, 10**30, True, [1], {"a": 1}]
    at[key] = odd[random.integers(len(odd))]
    text = json.dumps(document)
    if random.random() < 0.3:
        text = text[: random.integers(len(text))]
    (tmp_path / "a.json").write_text(text)
    try:
        summary = gpusize.read(tmp_path / "a.json", tmp_path / "runs").summary
    except GpusizeError as error:
        told = str(error)
        summary = None
    else:
        told = ""
    if summary is None:
        assert "a.json" in told
        return
    [row] = summary.to_dicts()
    assert row["runtime_p95_s"] in (0.4, None)
    assert row["n"] in (100, None, 10**30)
