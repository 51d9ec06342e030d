"""Tables beside the summary, and what the summary takes from rows, events and calls."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from gpusize.base.errors import StoreError
from gpusize.records.samples import sample_schema
from gpusize.result import Result
from tests.analysis.synthetic import MS
from tests.report.folders import HTTP_ERROR, column, level_columns, run_folder, server_row, streamed


def test_itl_is_exact_where_the_times_of_events_were_kept(tmp_path):
    columns = level_columns(2)
    streamed(columns, 4, tokens=4, keep=True)
    rng = np.random.default_rng(7)
    n = len(columns["due_ns"])
    gaps = rng.integers(1, 50, (n, 3)) * MS
    columns["events_ns"] = [[10 * MS, *(10 * MS + np.cumsum(each))] for each in gaps]
    columns["outcome"] = [HTTP_ERROR if k % 5 == 0 else 0 for k in range(n)]
    result = Result([run_folder(tmp_path / "r", {2: columns})])
    steady = result.levels[0].ok().select("seq").collect()["seq"].to_numpy()
    found = result.summary.row(0, named=True)
    assert found["itl_source"] == "events"
    for name, prob in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0)):
        assert found[f"itl_{name}_s"] == pytest.approx(np.quantile(gaps[steady] / 1e9, prob))
        assert result.levels[0].quantile("itl", prob) == found[f"itl_{name}_s"]
    assert result.levels[0].mean("itl") == pytest.approx(gaps[steady].mean() / 1e9)


def test_itl_comes_from_the_histogram_otherwise(tmp_path):
    columns = level_columns(2)
    streamed(columns, 4, tokens=4)
    place = run_folder(tmp_path / "r", {2: columns})
    assert Result([place]).summary["itl_source"].to_list() == [None]
    assert Result([place]).levels[0].quantile("itl", 0.5) is None
    histogram = {"metric": ["itl"], "low_ns": [10 * MS], "high_ns": [12 * MS], "count": [9]}
    pl.DataFrame(histogram).write_parquet(place / "levels" / "0000" / "histograms.parquet")
    result = Result([place])
    found = result.summary.row(0, named=True)
    assert (found["itl_source"], found["itl_p50_s"]) == ("histogram", pytest.approx(0.011))
    assert result.levels[0].quantile("itl", 0.5) == found["itl_p50_s"]
    assert result.levels[0].mean("itl") == pytest.approx(0.011)


def test_inferences_are_requests_times_the_samples_of_their_rows(tmp_path):
    columns = level_columns(2)
    n = len(columns["due_ns"])
    columns["row"] = [k % 3 for k in range(n)]
    columns["outcome"] = [HTTP_ERROR if k % 3 == 2 else 0 for k in range(n)]
    rows = [{"batch": 8}, {"batch": 2}, {"batch": 100}]
    found = Result([run_folder(tmp_path / "r", {2: columns}, rows=rows)]).summary.row(0, named=True)
    assert found["inferences_rate"] == pytest.approx(5 * found["achieved_rate"])
    plain = Result([run_folder(tmp_path / "plain", {2: columns}, rows=[{"input_tokens": 3}])])
    assert plain.summary["inferences_rate"].to_list() == [None]


def test_lengths_stand_side_by_side_for_every_level(tmp_path):
    levels = {}
    for concurrency, tokens in ((1, 64), (4, 60)):
        levels[concurrency] = level_columns(concurrency)
        streamed(levels[concurrency], 70, tokens=tokens)
        levels[concurrency]["tokens_in"] = [11] * len(levels[concurrency]["due_ns"])
    rows = [{"input_tokens": 10, "output_tokens": 64}]
    found = Result([run_folder(tmp_path / "r", levels, rows=rows)]).lengths()
    assert column(found, "concurrency") == [1, 1, 4, 4]
    assert column(found, "name") == ["input", "output"] * 2
    assert column(found, "asked_mean") == [10, 64] * 2
    assert column(found, "reported_mean") == [11, 64, 11, 60]
    assert column(found, "off") == pytest.approx([0.1, 0, 0.1, -0.0625])
    assert column(found, "flagged") == [True, False, True, True]


def test_what_a_run_kept_of_its_dataset_must_be_readable(tmp_path):
    place = run_folder(tmp_path / "r", {1: level_columns(1)})
    (place / "dataset.parquet").write_bytes(b"not parquet")
    with pytest.raises(StoreError, match="unreadable rows of the dataset"):
        _ = Result([place]).levels


def test_calls_are_counted_and_kept_together(tmp_path):
    columns = level_columns(2)
    sent, n = columns["sent_ns"], len(columns["due_ns"])
    calls = [
        {"seq": k // 2, "call": k % 2, "kind": kind, "name": "m", "start_ns": sent[k // 2], "outcome": "ok"}
        | {"end_ns": sent[k // 2] + (30 if k % 2 else 10) * MS}
        for k, kind in ((k, "llm" if k < 2 * n else "tool") for k in range(2 * n))
    ]
    place = run_folder(tmp_path / "r", {2: columns, 1: level_columns(1)}, spans={2: calls})
    result = Result([place])
    found = result.summary.row(0, named=True)
    assert found["llm_calls_per_request"] == 2
    assert found["llm_calls"] == 2 * found["n"]
    assert found["llm_latency_p50_s"] == pytest.approx(0.02)
    assert result.summary["llm_calls"].to_list()[1] is None
    every = result.calls().collect()
    assert every.columns[:5] == ["run", "visit", "stream", "seq", "attempt"]
    assert (every.height, every["run"].unique().to_list()) == (2 * n, ["r"])
    assert Result([run_folder(tmp_path / "plain", {1: level_columns(1)})]).calls().collect().is_empty()


def test_samples_and_server_rows_name_their_level(tmp_path):
    rows = [server_row("waiting", "requests", mean=3.0, n=5), server_row("waiting", "requests", 'engine="0"', mean=3.0)]
    stats = {"model": "a", "version": "1", "requests": 7, "queue_s": 0.5, "mean_batch": 2.0, "batches": [], "extra": 1}
    facts = {4: {"server": rows, "models": [stats]}}
    place = run_folder(tmp_path / "r", {1: level_columns(1), 4: level_columns(4)}, facts=facts)
    readings = {"t_ns": [5, 6], "source": ["a", "a"], "metric": ["m", "m"], "labels": ["", ""], "value": [1.0, 2.0]}
    folder = place / "levels" / "0001" / "samples"
    folder.mkdir()
    pl.DataFrame(readings, schema=sample_schema()).write_parquet(folder / "part-00000.parquet")
    result = Result([place])
    assert result.samples().collect().rows() == [(1, "r", 5, "a", "m", "", 1.0), (1, "r", 6, "a", "m", "", 2.0)]
    server = result.server()
    assert (column(server, "concurrency"), column(server, "mean")) == ([4, 4], [3.0, 3.0])
    assert column(server, "labels") == [None, 'engine="0"']
    (model,) = result.model_stats().to_dicts()
    assert (model["visit"], model["model"], model["requests"], model["queue_s"]) == (1, "a", 7, 0.5)
    assert list(result.tables) == ["delivery", "model_stats", "server"]
    assert json.loads((place / "levels" / "0001" / "level.json").read_text())["models"] == [stats]


def test_results_without_levels_have_empty_tables(tmp_path):
    result = Result([run_folder(tmp_path / "r", {})])
    assert result.tables == {}
    assert result.samples().collect().is_empty()
