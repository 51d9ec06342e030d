"""Results of other tools: kube-burner's pods and quantiles, KAI's tests, ClusterLoader2's PerfData."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure

from gpusize.base.errors import StoreError, UsageError
from gpusize.cluster.figures.layouts import detailed_figure, general_figure
from gpusize.cluster.figures.overview import overview_figure
from gpusize.cluster.imports.files import import_files
from gpusize.cluster.imports.kai import go_duration_s
from gpusize.cluster.opened import has_rows, imported_figures, open_test
from gpusize.cluster.phases.timed import Timed


def pods(n: int, *, version: int, seed: int = 1) -> list[dict[str, Any]]:
    """As kube-burner indexes them: version 1 whole seconds and flat, version 2 with finer scheduling and labels."""
    draw = np.random.default_rng(seed)
    made = []
    for k in range(n):
        scheduled = int(draw.integers(0, 3)) * 1000 if version == 1 else int(draw.integers(1, 900))
        ready = 1000 * int(draw.integers(2, 6))
        names = {"namespace": "density-1", "podName": f"pod-{k}", "nodeName": f"node-{k % 3}"}
        row = {
            "timestamp": f"2026-07-01T10:{k // 60:02}:{k % 60:02}Z",
            "schedulingLatency": scheduled,
            "initializedLatency": 1000,
            "containersReadyLatency": ready,
            "podReadyLatency": ready,
            "metricName": "podLatencyMeasurement",
            "uuid": "u-1",
            "jobName": "node-density",
        }
        new = {"readyToStartContainersLatency": 1000, "containersStartedLatency": 0, "labels": {**names, "replica": 1}}
        made.append({**row, **(names if version == 1 else new)})
    return made


@pytest.mark.parametrize("version", [1, 2])
def test_pods_of_kube_burner(tmp_path: Path, version: int) -> None:
    documents = pods(40, version=version)
    file = tmp_path / "podLatencyMeasurement-node-density.json"
    file.write_text(json.dumps(documents))
    found = import_files([file], tmp_path / "out")
    assert (found.pods, found.figures) == (40, 0)
    assert "never became ready" in found.notes[0]
    timed = open_test(tmp_path / "out")
    for phase, key in (("pod_scheduled", "schedulingLatency"), ("pod_ready", "podReadyLatency")):
        rows = timed.rows(phase).with_columns(pl.col("unit"))
        values = dict(rows.select("unit", "value_ns").iter_rows())
        shift = 499.5 if phase == "pod_scheduled" and version == 2 else 0
        for each in documents:
            name = each.get("podName") or each["labels"]["podName"]
            # A finer end counts from the middle of the second of creation.
            assert abs(values[name] / 1e6 - (each[key] - shift)) <= 1
            of = rows.filter(pl.col("unit") == name)
            assert of["lo_ns"].item() <= each[key] * 1e6 <= of["hi_ns"].item()
    row = timed.summary().filter(pl.col("phase") == "pod_ready").row(0, named=True)
    theirs = sorted(each["podReadyLatency"] for each in documents)
    assert row["p95_s"] == theirs[37] / 1000
    assert set(timed.workloads["outcome"]) == {"running"}
    assert timed.rows("pod_started").filter(pl.col("state") == "done").is_empty(), "0 is no start"


@pytest.mark.parametrize("draw", [general_figure, detailed_figure, overview_figure])
def test_pods_without_workloads_are_drawn(tmp_path: Path, draw: Callable[[Timed], Figure]) -> None:
    """Nobody recorded submissions; that no workload came, or that nothing was measured, is not so."""
    file = tmp_path / "podLatencyMeasurement-node-density.json"
    file.write_text(json.dumps(pods(40, version=1)))
    import_files([file], tmp_path / "out")
    figure = draw(open_test(tmp_path / "out"))
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert not {"nothing was measured", "no workload came so far"} & set(texts)
    if draw is overview_figure:
        assert sum("nobody recorded submissions" in text for text in texts) == 3
        return
    assert "Pod Scheduling" in figure.axes[0].get_title(loc="left")
    x = np.asarray(figure.axes[0].lines[0].get_xdata(), dtype=float)
    assert x.size == 40
    assert (np.diff(x) >= 0).all(), "a line that goes back and forth shows nothing"


def test_quantiles_of_kube_burner(tmp_path: Path) -> None:
    quantile = {"quantileName": "Ready", "uuid": "u", "P99": 4000, "P95": 3000, "P50": 2000, "max": 5000, "avg": 2500}
    quantile |= {"metricName": "podLatencyQuantilesMeasurement", "jobName": "node-density"}
    file = tmp_path / "q.json"
    file.write_text("\n".join(json.dumps(each) for each in (quantile, {**quantile, "quantileName": "PodScheduled"})))
    found = import_files([file], tmp_path / "out")
    assert (found.pods, found.figures) == (0, 10)
    assert not has_rows(tmp_path / "out")
    figures = imported_figures(tmp_path / "out")
    assert figures is not None
    assert figures.row(0, named=True) == {
        "source": "kube-burner",
        "test": "node-density",
        "phase": "pod_ready",
        "figure": "p50",
        "value": 2.0,
        "unit": "s",
    }
    assert set(figures["phase"]) == {"pod_ready", "pod_scheduled"}


def test_scale_tests_of_kai(tmp_path: Path) -> None:
    tests = [
        {"test_name": "Fill cluster", "status": "success", "details": {"nodes": 500, "jobs": 4000, "time": "6m36.7s"}},
        {"test_name": "Reclaim", "status": "failure", "details": {"time to reclaim (seconds)": 12.5}},
    ]
    document = {"metadata": {"kwok_node_count": 500}, "results": {"status": "success", "tests": tests}}
    (tmp_path / "kwok_scale_test.json").write_text(json.dumps(document))
    import_files([tmp_path / "kwok_scale_test.json"], tmp_path / "out")
    figures = imported_figures(tmp_path / "out")
    assert figures is not None
    assert [tuple(row) for row in figures.select("test", "phase", "figure", "value", "unit").iter_rows()] == [
        ("Fill cluster", "success", "nodes", 500.0, "count"),
        ("Fill cluster", "success", "jobs", 4000.0, "count"),
        ("Fill cluster", "success", "time", pytest.approx(396.7), "s"),
        ("Reclaim", "failure", "time to reclaim", 12.5, "s"),
    ]
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(document["results"]))
    assert import_files([bare], tmp_path / "bare").figures == 4


@pytest.mark.parametrize(
    "text, seconds",
    [("6m36.7s", 396.7), ("1h2m3s", 3723.0), ("250ms", 0.25), ("12µs", 12e-6), ("", None), ("5 s", None)],
)
def test_durations_of_go(text: str, seconds: float | None) -> None:
    assert go_duration_s(text) == (None if seconds is None else pytest.approx(seconds))


def test_perf_data(tmp_path: Path) -> None:
    items = [
        {"data": {"Perc50": 810.5, "Perc99": 2300}, "unit": "ms", "labels": {"Metric": "pod_startup"}},
        {"data": {"Perc99": 1.5}, "unit": "ms", "labels": {"Metric": "create_to_schedule", "Type": "stateless"}},
    ]
    (tmp_path / "PodStartupLatency.json").write_text(json.dumps({"version": "1.0", "dataItems": items}))
    import_files([tmp_path / "PodStartupLatency.json"], tmp_path / "out")
    figures = imported_figures(tmp_path / "out")
    assert figures is not None
    assert figures["value"].to_list() == pytest.approx([0.8105, 2.3, 0.0015])
    assert figures["phase"].to_list() == ["pod_startup", "pod_startup", "pod_scheduled"]


def test_what_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"some": "thing"}')
    with pytest.raises(UsageError, match="no known format"):
        import_files([tmp_path / "a.json"], tmp_path / "out")
    assert not (tmp_path / "out").exists(), "nothing is made of what cannot be read"
    (tmp_path / "b.json").write_text("{broken")
    with pytest.raises(StoreError, match="broken JSON"):
        import_files([tmp_path / "b.json"], tmp_path / "out")
    (tmp_path / "c.json").write_text(json.dumps(pods(2, version=1)))
    import_files([tmp_path / "c.json"], tmp_path / "out")
    with pytest.raises(UsageError, match="there is a test in this folder"):
        import_files([tmp_path / "c.json"], tmp_path / "out")
    (tmp_path / "d.json").write_text(json.dumps([{**pods(1, version=1)[0], "timestamp": "soon"}]))
    with pytest.raises(StoreError, match="document 0 has no time"):
        import_files([tmp_path / "d.json"], tmp_path / "other")
