"""AIPerf's artifacts: real ones against its own summary, and what is broken or missing in them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import gpusize
from gpusize.base.errors import ConfigError, GpusizeError, PathMissing, StoreError
from gpusize.studies.imports.aiperf import ROWS, SUMMARY, import_aiperf

FIXTURES = Path(__file__).parents[1] / "fixtures" / "aiperf"


def summary_of(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FIXTURES / folder / SUMMARY).read_text())
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / "closed", tmp_path / "artifacts"))


def test_a_version_that_is_no_text_is_none(folder: Path, tmp_path: Path):
    told = json.loads((folder / SUMMARY).read_text())
    (folder / SUMMARY).write_text(json.dumps({**told, "aiperf_version": float("inf")}))
    assert gpusize.read(folder, tmp_path / "runs").meta["source"]["version"] is None


def test_a_benchmark_of_a_sweep_that_did_not_end_is_named(tmp_path: Path):
    for name in ("a", "b", "c"):
        shutil.copytree(FIXTURES / "closed", tmp_path / "sweep" / name)
    (tmp_path / "sweep" / "b" / SUMMARY).unlink()
    result = gpusize.read(tmp_path / "sweep", tmp_path / "runs")
    assert len(result.levels) == 2
    [note] = result.notes
    assert note.startswith(f"{tmp_path / 'sweep' / 'b'}: no {SUMMARY}, so that its level is missing")


@pytest.mark.parametrize("name", ["closed", "rate"])
def test_figures_are_those_of_its_own_summary(tmp_path: Path, name: str):
    told = summary_of(name)
    result = gpusize.read(FIXTURES / name, tmp_path, gpus=1)
    assert result.notes == []
    [row] = result.summary.iter_rows(named=True)
    failed = sum(each["count"] for each in told["error_summary"])
    assert failed == told["error_request_count"]["avg"] > len(told["error_summary"])
    assert (row["n"], row["errors"]) == (told["completed_request_count"]["avg"], failed)
    assert row["err_http_error"] == failed
    for tag, column in (
        ("request_latency", "service"),
        ("time_to_first_token", "ttft_sent"),
        ("inter_chunk_latency", "itl"),
    ):
        for quantile in ("p50", "p90", "p95", "p99", "max"):
            assert row[f"{column}_{quantile}_s"] == pytest.approx(told[tag][quantile] / 1e3, rel=1e-6), (tag, quantile)
    [level] = result.levels
    assert level.mean("itl_mean") == pytest.approx(told["inter_token_latency"]["avg"] / 1e3, rel=1e-6)
    assert level.ok().select(pl.col("tokens_out").sum()).collect().item() == told["total_osl"]["avg"]
    assert level.ok().select(pl.col("tokens_in").sum()).collect().item() == told["total_isl"]["avg"]
    assert row["lateness_p99_s"] is None
    # Between an answer and the next request AIPerf's workers take a while, which Little's law shows.
    assert [alert for alert in row["alerts"] if "Little's law" not in alert] == []
    assert level.llm


def test_the_warm_up_is_kept_and_does_not_count(tmp_path: Path):
    result = gpusize.read(FIXTURES / "closed", tmp_path)
    assert result.records.height == 66
    assert [each["name"] for each in result.levels[0].intervals] == ["warmup", "steady", "drain"]
    [row] = result.summary.iter_rows(named=True)
    assert (row["concurrency"], row["n"]) == (4, 60)
    # By AIPerf's own count 58 answers took 0.913 s; its last ones came while fewer than four were in flight.
    assert row["achieved_rate"] == pytest.approx(summary_of("closed")["request_throughput"]["avg"], rel=0.1)


def test_at_a_rate_nobody_knows_what_requests_waited_before(tmp_path: Path):
    [row] = gpusize.read(FIXTURES / "rate", tmp_path).summary.iter_rows(named=True)
    assert (row["rate"], row["runtime_p95_s"], row["ttft_p95_s"]) == (20.0, None, None)
    assert row["delivered"] is True


@pytest.mark.parametrize("name", [SUMMARY, ROWS])
def test_either_file_finds_the_other(tmp_path: Path, name: str):
    whole = gpusize.read(FIXTURES / "closed", tmp_path)
    assert gpusize.read(FIXTURES / "closed" / name, tmp_path).path == whole.path


def test_a_folder_of_several_is_one_run(tmp_path: Path):
    summary = gpusize.read(FIXTURES, tmp_path).summary
    assert summary.select("concurrency", "rate").rows() == [(4, None), (None, 20.0)]


def test_without_rows_there_are_its_own_figures(tmp_path: Path, folder: Path):
    (folder / ROWS).unlink()
    told = summary_of("closed")
    found = import_aiperf(folder, tmp_path / "runs")
    assert "SLOs are not judged" in found.warnings[0]
    [row] = gpusize.open_run(found.folder).summary.iter_rows(named=True)
    assert row["runtime_p95_s"] == row["service_p95_s"] == told["request_latency"]["p95"] / 1e3
    assert row["ttft_p95_s"] == told["time_to_first_token"]["p95"] / 1e3
    assert row["achieved_rate"] == told["request_throughput"]["avg"]
    assert row["alerts"] == ["2 of 60 requests failed: 2 Internal Server Error"]
    # As it counts them, of its profiling phase.
    assert (row["n"], row["errors"]) == (told["request_count"]["avg"] + told["error_request_count"]["avg"], 2)


def test_a_sweep_stands_in_the_order_in_which_it_was_measured(tmp_path: Path):
    """By name ``c16`` would stand before ``c2``."""
    for name, users, began in (("c16", 16, "2026-11-20T10:07:00"), ("c2", 2, "2026-11-20T10:05:00")):
        to = Path(shutil.copytree(FIXTURES / "closed", tmp_path / "sweep" / name))
        told = summary_of("closed")
        [phase] = [each for each in told["input_config"]["phases"] if each["kind"] == "profiling"]
        phase["concurrency"] = users
        (to / SUMMARY).write_text(json.dumps({**told, "start_time": began}))
    levels = gpusize.read(tmp_path / "sweep", tmp_path / "runs").levels
    assert [level.concurrency for level in levels] == [2, 16]


def test_tokens_are_the_servers_own_where_a_row_has_them(tmp_path: Path, folder: Path):
    """AIPerf's own tokenizer need not be the model's."""
    rows = [json.loads(line) for line in (folder / ROWS).read_text().splitlines()]
    for row in rows:
        row["metrics"]["output_sequence_length"] = {"value": 500, "unit": "tokens"}
        row["metrics"] |= {"usage_completion_tokens": {"value": 7, "unit": "tokens"}}
    (folder / ROWS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    [level] = gpusize.read(folder, tmp_path / "runs").levels
    assert level.ok().select(pl.col("tokens_out").unique()).collect()["tokens_out"].to_list() == [7]


def test_a_count_that_differs_is_said_to_be_the_files(tmp_path: Path, folder: Path):
    rows = [json.loads(line) for line in (folder / ROWS).read_text().splitlines()]
    for row in rows:
        for tag in ("usage_completion_tokens", "output_token_count"):
            row["metrics"].pop(tag, None)
        row["metrics"]["output_sequence_length"] = {"value": 500, "unit": "tokens"}
    (folder / ROWS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    [summary] = gpusize.read(folder, tmp_path / "runs").summary.iter_rows(named=True)
    [alert] = [alert for alert in summary["alerts"] if "counts of tokens differ" in alert]
    assert "500 as the file says per request" in alert
    assert "usage" not in alert


def test_pauses_between_turns_are_said(tmp_path: Path, folder: Path):
    told = summary_of("closed")
    told["input_config"]["datasets"] = [{"turns": {"mean": 3.0}, "turn_delay": {"mean": 300.0}}]
    (folder / SUMMARY).write_text(json.dumps(told))
    [row] = gpusize.read(folder, tmp_path / "runs").summary.iter_rows(named=True)
    assert any("paused for 300 ms on average between the turns" in alert for alert in row["alerts"])


def test_a_folder_of_rows_alone_was_broken_off(tmp_path: Path, folder: Path):
    (folder / SUMMARY).unlink()
    with pytest.raises(StoreError, match=r"nothing says which load was asked for.*did not come to its end"):
        import_aiperf(folder, tmp_path / "runs")


def test_rows_alone_do_not_say_the_load(tmp_path: Path, folder: Path):
    (folder / SUMMARY).unlink()
    with pytest.raises(StoreError, match="the load that was asked for"):
        import_aiperf(folder / ROWS, tmp_path / "runs")


def test_rows_that_are_not_those_of_the_summary_are_said(tmp_path: Path, folder: Path):
    lines = (folder / ROWS).read_bytes().splitlines(keepends=True)
    (folder / ROWS).write_bytes(b"".join(lines[:-10]) + lines[-10][:100])
    result = gpusize.read(folder, tmp_path / "runs")
    assert [note.rpartition("line ")[2] for note in result.notes] == [
        "57: the file breaks off in this line, which is left out"
    ]
    [row] = result.summary.iter_rows(named=True)
    assert any("not those of AIPerf's summary" in alert for alert in row["alerts"])


def change(folder: Path, at: int, **changes: Any) -> None:
    rows = [json.loads(line) for line in (folder / ROWS).read_text().splitlines()]
    for key, value in changes.items():
        part = "metadata" if key in rows[at]["metadata"] else "metrics"
        rows[at][part][key] = value
    (folder / ROWS).write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    "changes, what",
    [
        ({"request_end_ns": 5}, "line 13: request_start_ns and request_end_ns should be there, in order"),
        ({"request_start_ns": "soon"}, "line 13: request_start_ns should be a time"),
        ({"request_start_ns": 10**30}, "line 13: request_start_ns should be a time"),
        ({"time_to_first_token": {"value": float("nan")}}, "line 13, time_to_first_token: NaN is not a number"),
        ({"time_to_first_token": {"value": 1e9}}, "request 13: it ended before its last token"),
        ({"inter_chunk_latency": {"value": [1e15]}}, "line 13: inter_chunk_latency is out of range"),
        ({"inter_chunk_latency": {"value": [-1.0]}}, "line 13, inter_chunk_latency: -1.0 is not a number"),
        ({"time_to_first_token": {"value": 8.0, "unit": "us"}}, "line 13, time_to_first_token, unit: us is not ms"),
        ({"inter_chunk_latency": {"value": [0.004], "unit": "s"}}, "line 13, inter_chunk_latency, unit: s is not ms"),
        ({"output_sequence_length": {"value": 1.5}}, "line 13, output_sequence_length: 1.5 is not a count"),
        ({"output_sequence_length": 7}, "line 13: output_sequence_length should have a value"),
    ],
)
def test_what_is_broken_is_said_with_its_line(tmp_path: Path, folder: Path, changes: dict[str, Any], what: str):
    change(folder, 12, **changes)
    with pytest.raises(ConfigError, match=what) as error:
        import_aiperf(folder, tmp_path / "runs")
    assert ROWS in str(error.value)
    assert not list((tmp_path / "runs").iterdir())


def test_what_is_missing(tmp_path: Path):
    with pytest.raises(PathMissing):
        import_aiperf(tmp_path / "none", tmp_path / "runs")
    (tmp_path / "empty").mkdir()
    with pytest.raises(GpusizeError, match=SUMMARY):
        import_aiperf(tmp_path / "empty", tmp_path / "runs")
