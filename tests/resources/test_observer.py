"""Containers and processes beside a load: what each level has of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from gpusize.base.errors import EnvironmentLacks, UsageError
from gpusize.engine.session import monotonic_ns
from gpusize.observe.metrics import scan_samples
from gpusize.observe.observer import Observer
from gpusize.observe.usage.observer import METRICS, Beside, ResourceObserver, _alerts, level_row, long_samples
from gpusize.observe.usage.readings import wide_schema
from gpusize.observe.usage.source_facts import Held, Limit
from gpusize.observe.usage.usage import usage_of
from gpusize.options.observers import observers_of
from gpusize.records.samples import sample_schema
from gpusize.targets.workflow.target import WorkflowTarget
from tests.resources.made import MIB, S, readings, workload

WORK = """import sys, time
held = b""
print("up", flush=True)
for line in sys.stdin:
    held = b"1" * (int(line) << 20)
    end = time.process_time() + 0.2
    while time.process_time() < end: pass
    print("done", flush=True)
"""


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[str]]:
    """Burns 0.2 s of CPU holding so many MiB, each time it is told a number."""
    child = subprocess.Popen([sys.executable, "-c", WORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    yield child
    child.kill()
    child.communicate()


def work(child: subprocess.Popen[str], mebibytes: int) -> tuple[int, int]:
    """When it began and ended."""
    begun_ns = monotonic_ns()
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{mebibytes}\n")
    child.stdin.flush()
    assert child.stdout.readline() == "done\n"
    return begun_ns, monotonic_ns()


def test_each_level_has_what_was_used_in_it(worker, tmp_path: Path):
    observer: Observer = ResourceObserver([Beside("pid", str(worker.pid))], 0.005)
    observer.start()
    rows = []
    for number, mebibytes in enumerate((40, 160)):
        observer.boundary()
        span = work(worker, mebibytes)
        folder = tmp_path / str(number)
        folder.mkdir()
        facts = observer.level(folder, *span)
        assert facts["alerts"] == []
        json.dumps(facts, allow_nan=False)
        rows += facts["resources"]
        samples = scan_samples(folder).collect()
        assert samples.schema == sample_schema()
        assert set(samples["metric"]) <= set(METRICS.values())
        assert samples["t_ns"].is_sorted()
        cpu = samples.filter(metric="container_cpu_usage_seconds_total")
        # The last value before the level, so that the counter can be told at its start, and one after its end.
        # A sample of the thread's own may lie between the boundary's and the level's start.
        assert 1 <= (cpu["t_ns"] <= span[0]).sum() <= 2
        assert cpu["t_ns"][-1] >= span[1]
        assert cpu["value"][-1] - cpu["value"][0] >= 0.19
    observer.stop()
    observer.stop()
    for row, mebibytes in zip(rows, (40, 160), strict=True):
        assert row["source"] == f"pid {worker.pid}"
        # The 0.2 s, and what it takes to get the memory.
        assert 0.19 <= row["cpu_mean_cores"] * row["over_s"] <= 1.0
        assert row["mem_peak_bytes"] >= mebibytes * MIB
    assert rows[0]["mem_peak_bytes"] < 160 * MIB


def test_what_ends_is_said(worker, tmp_path: Path):
    observer = ResourceObserver([Beside("pid", str(worker.pid))], 0.005)
    observer.start()
    span = work(worker, 1)
    worker.kill()
    worker.wait()
    observer.boundary()
    facts = observer.level(tmp_path, span[0], monotonic_ns())
    observer.stop()
    assert facts["alerts"] == [f"pid {worker.pid}: it has ended, so there are no further readings"]
    assert facts["resources"][0]["cpu_mean_cores"] > 0


def test_nothing_to_sample_leaves_a_level_as_it_is(tmp_path: Path):
    observer = ResourceObserver([])
    observer.start()
    observer.boundary()
    assert observer.level(tmp_path, 0, S) == {}
    observer.stop()
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_is_refused_before_the_load(monkeypatch, tmp_path: Path):
    with pytest.raises(UsageError, match="no process"):
        ResourceObserver([Beside("pid", str(2**22 + 1))]).start()
    with pytest.raises(UsageError, match='"x" is not a process id'):
        ResourceObserver([Beside("pid", "x")]).start()
    with pytest.raises(EnvironmentLacks):
        ResourceObserver([Beside("cgroup", "/no/such/group")]).start()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(EnvironmentLacks, match="no Docker daemon"):
        ResourceObserver([Beside("container", "box")]).start()


def test_every_column_has_a_name_of_its_own():
    assert set(METRICS) == set(wide_schema()) - {"t_ns", "width_ns", "epoch"}
    assert len(set(METRICS.values())) == len(METRICS)


def test_values_are_in_the_units_of_their_names():
    made = readings({"t_ns": [5, 6], "cpu_ns": [0, 2 * S], "mem_bytes": [10, None], "cpu_periods": [1, 2]})
    rows = long_samples(made).sort("metric", "t_ns").rows()
    assert rows == [
        (5, "made", "container_cpu_cfs_periods_total", "", 1.0),
        (6, "made", "container_cpu_cfs_periods_total", "", 2.0),
        (5, "made", "container_cpu_usage_seconds_total", "", 0.0),
        (6, "made", "container_cpu_usage_seconds_total", "", 2.0),
        (5, "made", "container_memory_usage_bytes", "", 10.0),
    ]
    assert long_samples(readings({"t_ns": []})).schema == pl.Schema(sample_schema())


def test_a_level_that_shows_a_limit_says_so():
    columns = {"t_ns": [0, S], "cpu_ns": [0, S], "cpu_periods": [0, 10], "cpu_throttled_periods": [0, 3]}
    shared = (Held("/pod", "cpu", 2.0, 0, S, 4), Held("/pod", "cpu", 2.0, S, 2 * S, 9))
    made = readings({**columns, "mem_bytes": [MIB, MIB]}, limits=(Limit("box", MIB),), held=shared)
    use = usage_of(made, start_ns=0, end_ns=S)
    assert _alerts(made, use, S) == [
        "made: its CPU limit throttled it in 30% of the periods",
        "made: the CPU limit of /pod (2 cores), which it shares, throttled it in 4 periods",
        "made: memory in use, page cache included, reached the limit of box",
    ]
    free = workload(lambda _: 1.0, 2.0, ended_ns=None)
    assert _alerts(free, usage_of(free), 1002 * S) == []
    assert level_row(use)["throttled_share"] == pytest.approx(0.3)


def test_options_become_an_observer(tmp_path: Path):
    target = WorkflowTarget(lambda row: row)
    options = {"metrics_url": ["none"], "sample_pid": ["12"], "sample_cgroup": ["/a", "/a"], "sample_interval": "5ms"}
    *_, last = observers_of(options, target)
    assert isinstance(last, ResourceObserver)
    assert last._beside == [Beside("pid", "12"), Beside("cgroup", "/a")]
    assert last._interval_s == 0.005
    assert not any(isinstance(each, ResourceObserver) for each in observers_of({"metrics_url": ["none"]}, target))
    with pytest.raises(UsageError, match="sample_interval"):
        observers_of({**options, "sample_interval": "0"}, target)
    with pytest.raises(UsageError, match="interval"):
        observers_of({**options, "sample_interval": "soon"}, target)
