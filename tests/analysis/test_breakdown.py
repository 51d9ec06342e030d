"""Levels taken apart by replica and by model: shares, rates and percentiles that are known beforehand."""

from __future__ import annotations

import numpy as np
import pytest

from gpusize.analysis.breakdown import breakdown
from gpusize.analysis.pooling import pool
from gpusize.base.errors import UsageError
from gpusize.records.schema import OUTCOMES
from gpusize.result import Result
from tests.analysis.synthetic import MS, SOURCE, level
from tests.report.folders import level_columns, run_folder

TWO = {**SOURCE, "targets": [{"url": f"http://h{k}/", "api": "json", "simulated": None} for k in range(2)]}


def taken_apart(**more):
    """Requests to two replicas by turns; the second takes 10 ms more with each request and fails every tenth time."""
    n = 100
    due = [1_000_000_000] * n
    runtime = [100 * MS if k % 2 == 0 else (100 + 10 * (k // 2)) * MS for k in range(n)]
    failed = OUTCOMES.index("timeout")
    columns = {
        "due_ns": due,
        "sent_ns": [each + MS for each in due],
        "end_ns": [each + took for each, took in zip(due, runtime, strict=True)],
        "target": [k % 2 for k in range(n)],
        "outcome": [failed if k % 20 == 19 else 0 for k in range(n)],
    }
    return level(4, columns, passes=25, source=TWO, **more), np.array(runtime) / 1e9, np.array(columns["outcome"]) == 0


def test_each_replica_has_its_own_figures():
    lv, runtime_s, ok = taken_apart()
    rows = breakdown([lv], "target").to_dicts()
    assert [(row["index"], row["name"], row["n"], row["share"], row["errors"]) for row in rows] == [
        (0, "http://h0/", 50, 0.5, 0),
        (1, "http://h1/", 50, 0.5, 5),
    ]
    good = runtime_s[1::2][ok[1::2]]
    for name, prob in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        assert rows[0][f"runtime_{name}_s"] == pytest.approx(0.1)
        assert rows[1][f"runtime_{name}_s"] == pytest.approx(np.quantile(good, prob))
    assert rows[1]["service_p50_s"] == pytest.approx(np.quantile(good, 0.5) - 0.001)
    assert rows[1]["ttft_p50_s"] is None
    assert rows[0]["achieved_rate"] == pytest.approx(50 / lv.window_s())
    assert sum(row["achieved_rate"] for row in rows) == pytest.approx(95 / lv.window_s())


def test_one_replica_or_model_is_nothing_to_take_apart():
    lv, *_ = taken_apart()
    assert breakdown([lv], "model").height == 0
    assert breakdown([], "target").columns == breakdown([lv], "target").columns


def test_pooled_visits_are_taken_apart_together():
    first, *_ = taken_apart(visit=0)
    second, *_ = taken_apart(visit=1)
    rows = breakdown(pool([first, second]), "target").to_dicts()
    assert [row["n"] for row in rows] == [100, 100]
    assert rows[0]["achieved_rate"] == pytest.approx(100 / (2 * first.window_s()))


def test_a_result_names_models_and_refuses_other_parts(tmp_path):
    columns = level_columns(2)
    columns["model"] = [0 if k % 4 else 1 for k in range(len(columns["due_ns"]))]
    result = Result([run_folder(tmp_path / "r", {2: columns}, models=["big", "small"])])
    rows = result.breakdown("model").to_dicts()
    assert [(row["name"], row["run"], row["concurrency"], row["n"]) for row in rows] == [
        ("big", "r", 2, 72),
        ("small", "r", 2, 24),
    ]
    assert list(result.tables) == ["delivery", "models"]
    with pytest.raises(UsageError, match="a breakdown by"):
        result.breakdown("host")  # type: ignore[arg-type]
