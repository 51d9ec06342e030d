"""A result in other tools' formats has the figures of the summary, and of the requests themselves."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from ruamel.yaml import YAML

import gpusize
from gpusize.analysis.level import LevelData
from gpusize.base.errors import UsageError
from gpusize.report.exchange.benchmark_report import LATENCIES, PROBABILITIES
from gpusize.report.exchange.formats import FORMATS
from tests.analysis.synthetic import MS, closed
from tests.interop.json_schema import problems
from tests.report.folders import run_folder, server_row, streamed

FIXTURES = Path(__file__).parents[1] / "fixtures"
SWEEPS = sorted((FIXTURES / "perf_analyzer").glob("inst*_c1-8.csv"))
SCHEMA = json.loads((FIXTURES / "benchmark_report" / "schema_v0_2_1.json").read_text())


def random_run(place: Path, seed: int) -> gpusize.Result:
    """Two levels with times that are drawn, some answers streamed."""
    random = np.random.default_rng(seed)
    times = iter(random.integers(70, 400, 100_000))
    levels: dict[int, dict[str, Any]] = {}
    start_ns = 10**9
    for concurrency in sorted(random.choice(np.arange(1, 9), 2, replace=False).tolist()):
        columns = closed(concurrency, lambda _: int(next(times)) * MS, duration_ns=3000 * MS, start_ns=start_ns)
        if seed % 3:
            streamed(columns, 3, tokens=int(random.integers(3, 30)))
        if seed % 2:
            columns["tokens_in"] = random.integers(1, 900, len(columns["sent_ns"])).tolist()
        levels[concurrency] = columns
        start_ns += 10**10
    facts = {each: {"server": [server_row("gpu_utilization", "share", mean=0.5), *parts()]} for each in levels}
    return gpusize.open_run(run_folder(place / "run", levels, facts=facts))


def parts() -> list[Any]:
    names = ("queue_time", "compute_input_time", "compute_infer_time", "compute_output_time")
    times = [server_row(name, "s", mean=0.001 * k) for k, name in enumerate(names, 1)]
    return [*times, *(server_row("gpu_utilization", "share", f'gpu_uuid="GPU-{k}"', mean=k / 4) for k in range(2))]


def seconds(level: LevelData, start: str, end: str) -> np.ndarray:
    """Times of the steady requests that ended ok, straight from the rows."""
    rows = level.records.filter(pl.col("outcome").cast(pl.String) == "ok").collect()
    steady = [each for each in level.intervals if each["name"] == "steady"]
    if steady:
        due = pl.col("due_ns")
        rows = rows.filter(pl.any_horizontal([(due >= s["start_ns"]) & (due < s["end_ns"]) for s in steady]))
    both = rows.drop_nulls([start, end])
    return (both[end] - both[start]).to_numpy() / 1e9


@pytest.mark.parametrize("seed", range(12))
def test_every_benchmark_report_is_valid_and_has_the_figures_of_the_requests(tmp_path: Path, seed: int) -> None:
    result = random_run(tmp_path, seed)
    files = result.export("benchmark_report", tmp_path / "out")
    assert len(files) == len(result.levels)
    for file, level, row in zip(files, result.levels, result.summary.to_dicts(), strict=True):
        document = YAML(typ="safe").load(file)
        assert list(problems(document, SCHEMA, SCHEMA)) == []
        found = document["results"]["request_performance"]["aggregate"]
        service = seconds(level, "sent_ns", "end_ns")
        latency = found["latency"]["request_latency"]
        for name, share in PROBABILITIES.items():
            assert latency[name] == pytest.approx(np.quantile(service, share), rel=1e-9), name
        assert latency["mean"] == pytest.approx(service.mean())
        assert latency["stddev"] == pytest.approx(service.std())
        assert latency["p95"] == pytest.approx(row["service_p95_s"], rel=1e-12)
        first = seconds(level, "sent_ns", "first_token_ns")
        assert ("time_to_first_token" in found["latency"]) == (first.size > 0)
        if first.size:
            assert found["latency"]["time_to_first_token"]["p90"] == pytest.approx(np.quantile(first, 0.9))
        assert found["requests"]["total"] == row["n"]
        assert found["requests"]["failures"] == row["errors"]
        assert found["throughput"]["request_rate"]["mean"] == row["achieved_rate"]
        assert ("input_token_rate" in found["throughput"]) == (row["tokens_in_per_s"] is not None)
        assert ("load" in document["scenario"]) == bool(seed % 2)
        if seed % 2:
            assert document["scenario"]["load"]["standardized"]["concurrency"] == level.concurrency
        [component] = document["results"]["observability"]["components"]
        assert component["aggregate"]["gpu_utilization"] == {"units": "percent", "mean": 50.0}
        [own] = document["scenario"]["stack"]
        told = own["native"]["config"]["gpusize"]["summary"]
        assert {name: told[name] for name in row} == json.loads(json.dumps(row))
    assert all(name in SCHEMA["$defs"]["AggregateLatency"]["properties"] for name in LATENCIES)


def test_the_schemas_own_example_is_valid_and_a_mistake_is_not() -> None:
    example = YAML(typ="safe").load(FIXTURES / "benchmark_report" / "example_v0_2_1.yaml")
    text = json.dumps(example, default=str).replace("Infinity", "8")
    # Its extra keys of observability have units of their own; those are anything to the schema.
    assert list(problems(json.loads(text), SCHEMA, SCHEMA)) == []
    example = json.loads(text)
    example["results"]["request_performance"]["aggregate"]["requests"]["total"] = -1
    example["results"]["request_performance"]["aggregate"]["latency"]["P25"] = {}
    found = "\n".join(problems(example, SCHEMA, SCHEMA))
    assert "too small" in found
    assert "P25 is not allowed" in found


def test_one_level_goes_into_a_file_of_json(tmp_path: Path) -> None:
    columns = closed(2, lambda _: 100 * MS, duration_ns=2000 * MS, start_ns=10**9)
    result = gpusize.open_run(run_folder(tmp_path / "run", {2: columns}))
    [file] = result.export("benchmark_report", tmp_path / "one.json")
    assert list(problems(json.loads(file.read_text()), SCHEMA, SCHEMA)) == []


@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: file.stem)
def test_a_csv_of_perf_analyzer_comes_out_as_it_went_in(tmp_path: Path, file: Path) -> None:
    result = gpusize.read(file, tmp_path / "runs")
    [made] = result.export("perf_analyzer", tmp_path / "out")
    given, written = (list(csv.reader(io.StringIO(each.read_text()))) for each in (file, made))
    assert written[0] == given[0]
    assert written[1:] == sorted(given[1:], key=lambda row: int(row[0]))


@pytest.mark.parametrize("seed", range(4))
def test_our_levels_as_perf_analyzers_csv(tmp_path: Path, seed: int) -> None:
    result = random_run(tmp_path, seed)
    [made] = result.export("perf_analyzer", tmp_path / "sweep.csv")
    header = next(csv.reader(io.StringIO(SWEEPS[0].read_text())))
    rows = list(csv.DictReader(io.StringIO(made.read_text())))
    assert list(rows[0]) == header
    for row, level, told in zip(rows, result.levels, result.summary.to_dicts(), strict=True):
        service = seconds(level, "sent_ns", "end_ns")
        assert int(row["Concurrency"]) == level.concurrency
        assert float(row["Inferences/Second"]) == pytest.approx(told["achieved_rate"])
        assert int(row["p95 latency"]) == pytest.approx(np.quantile(service, 0.95) * 1e6, abs=1)
        assert int(row["Avg latency"]) == pytest.approx(service.mean() * 1e6, abs=1)
        assert [int(row[name]) for name in ("Server Queue", "Server Compute Infer")] == [1000, 3000]
        assert int(row["Network+Server Send/Recv"]) == pytest.approx(service.mean() * 1e6 - 10_000, abs=1)
        assert row["Client Send"] == row["Avg GPU Power Usage"] == ""
        assert row["Avg GPU Utilization"] == "GPU-0:0;GPU-1:0.25;"
    back = gpusize.read(made, tmp_path / "runs").summary
    assert back["runtime_p95_s"].to_list() == pytest.approx(result.summary["service_p95_s"].to_list(), abs=1e-6)
    assert back["server_gpus"].to_list() == [2, 2]


def test_the_calculators_document_is_read_back(tmp_path: Path) -> None:
    result = random_run(tmp_path, 5).asking(100, "p95 runtime <= 1s")
    [made] = result.export("nat", tmp_path / "calc_runner_output.json")
    back = gpusize.read(made, tmp_path / "runs").summary
    for name in ("concurrency", "runtime_p95_s"):
        assert back[name].to_list() == pytest.approx(result.summary[name].to_list())


def test_trends_have_a_row_for_each_run(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    days = {"r0": 9, "r1": 3, "r2": 5}
    for name, day in days.items():
        levels = {
            each: closed(
                each, lambda _: int(random.integers(70, 400)) * MS, duration_ns=3000 * MS, start_ns=each * 10**10
            )
            for each in ((2, 5, 7) if name == "r1" else (2, 5))
        }
        path = run_folder(tmp_path / name, levels)
        about = {**json.loads((path / "run.json").read_text()), "run": name}
        about["created"] = f"2026-11-{day:02d}T01:00:00+02:00"
        (path / "run.json").write_text(json.dumps(about))
    result = gpusize.open_run([tmp_path / name for name in days])
    [made] = result.export("otava", tmp_path / "trend.csv")
    rows = list(csv.DictReader(io.StringIO(made.read_text())))
    assert [row["run"] for row in rows] == ["r1", "r2", "r0"]
    assert rows[0]["time"] == "2026-11-02T23:00:00+00:00"
    assert all(all(row.values()) for row in rows)
    by_run = {row["run"]: row for row in rows}
    for told in result.summary.to_dicts():
        for name in ("achieved_rate", "runtime_p50_s", "runtime_p95_s"):
            column = f"c{told['concurrency']}_{name}"
            assert (column in rows[0]) == (told["concurrency"] != 7)
            if told["concurrency"] == 7:
                assert f"{column} is left out: not every run has it" in result.notes
            else:
                assert float(by_run[told["run"]][column]) == told[name]


@pytest.mark.parametrize("name", ["perf_analyzer", "otava", "nat"])
def test_failures_that_a_format_has_no_place_for_are_said(tmp_path: Path, name: str) -> None:
    columns = closed(2, lambda _: 100 * MS, duration_ns=3000 * MS)
    columns["outcome"] = [int(k % 5 == 0) for k in range(len(columns["due_ns"]))]
    options = {"users": 8, "slo": ["p95 runtime <= 1s"]}
    run = run_folder(tmp_path / "run", {2: columns}, created="2026-11-02T01:00:00+02:00", options=options)
    result = gpusize.open_run(run)
    [row] = result.summary.to_dicts()
    result.export(name, tmp_path / "out")
    said = f"run, visit 0: {row['errors']} of {row['n']} requests failed, which the format has no place for"
    assert row["errors"] > 0
    assert said in result.notes


def test_otava_is_told_that_an_import_says_no_time_of_its_own(tmp_path: Path) -> None:
    result = gpusize.read(FIXTURES / "k6" / "closed_handle.json", tmp_path / "runs")
    result.export("otava", tmp_path / "trend.csv")
    assert any(
        note.startswith("the time is that of the import, not of the measurement, of k6-") for note in result.notes
    )


def test_rates_that_differ_in_their_seventh_digit_are_two_columns(tmp_path: Path) -> None:
    from gpusize.report.exchange.otava import FIGURES, csv_of

    rows = [
        {"run": "a", "state": "done", "ramp": None, "concurrency": None, "rate": rate, **dict.fromkeys(FIGURES, rate)}
        for rate in (1234567.0, 1234568.0)
    ]
    text, _ = csv_of([{"run": "a", "created": "2026-11-02T01:00:00+00:00"}], rows)
    [row] = csv.DictReader(io.StringIO(text))
    assert [float(row[f"r{rate}_achieved_rate"]) for rate in (1234567, 1234568)] == [1234567, 1234568]


def test_tables_are_read_back(tmp_path: Path) -> None:
    result = random_run(tmp_path, 1)
    for what, frame in (("summary", result.summary), ("records", result.records)):
        [made] = result.export("parquet", tmp_path / f"{what}.parquet", what=what)
        assert pl.read_parquet(made).equals(frame)
        [made] = result.export("csv", tmp_path / "tables", what=what)
        assert pl.read_csv(made).height == frame.height
        [made] = result.export("json", tmp_path / "tables", what=what)
        assert len(json.loads(made.read_text())) == frame.height


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    result = random_run(tmp_path, 2)
    for name, out, what, said in (
        ("xml", "x", "summary", ", ".join(FORMATS)),
        ("csv", "x", "rows", "summary, records, samples"),
        ("otava", "x", "records", "csv, json, parquet"),
        ("benchmark_report", "x.yaml", "summary", "Name a folder"),
        ("nat", "x", "summary", "--users"),
    ):
        with pytest.raises(UsageError, match=said):
            result.export(name, tmp_path / out, what=what)
    assert not (tmp_path / "x").exists()
