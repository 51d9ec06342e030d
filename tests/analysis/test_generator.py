"""Was the generator the limit? By what its lateness does to a percentile, and by the time that it stood still."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from gpusize.analysis.checks import check, unbelieved
from gpusize.analysis.generator import generator_limits, longer_by
from gpusize.observe.machine import MachineObserver
from tests.analysis.synthetic import MS, closed, level


def measured(runtime_ms: Any, late_ms: Any, n: int, **more: Any) -> Any:
    """A level of 4 slots and n requests of given runtimes, of which so much is the generator's lateness."""
    length = np.broadcast_to(np.asarray(runtime_ms, float), n) * MS
    late = (np.broadcast_to(np.asarray(late_ms, float), n) * MS).astype(int)
    due = (np.arange(n) // 4 * length.max()).astype(int) + 10**9
    sent = (due + late).tolist()
    columns = {"due_ns": due.tolist(), "fired_ns": sent, "sent_ns": sent, "end_ns": (due + length).astype(int).tolist()}
    return level(4, columns, passes=n // 4, **more)


def test_one_late_request_of_sixteen_does_not_cost_a_level():
    """As in the field: 2.2 ms late once, of runtimes of 189 ms."""
    late = np.full(16, 0.3)
    late[5] = 2.2
    runtimes = 189 * np.random.default_rng(1).lognormal(0, 0.03, 16)
    found = check(measured(runtimes, late, 16))
    assert found.flags == []
    assert not unbelieved(measured(runtimes, late, 16))


def test_even_a_very_late_request_of_few_is_within_the_percentiles_own_error():
    late = np.zeros(16)
    late[5] = 150
    runtimes = np.where(late > 0, 339, 189 * np.random.default_rng(1).lognormal(0, 0.05, 16))
    assert "generator-limited" not in check(measured(runtimes, late, 16)).flags


@pytest.mark.parametrize("share, flagged", [(0.001, False), (0.08, True)])
def test_of_many_requests_the_share_that_is_late_decides(share, flagged):
    late = np.where(np.random.default_rng(2).random(2000) < share, 100.0, 0.0)
    lv = measured(189 * np.random.default_rng(1).lognormal(0, 0.03, 2000) + late, late, 2000)
    found = check(lv)
    assert ("generator-limited" in found.flags) is flagged
    assert bool(generator_limits(lv)) is flagged
    said = [text for text in found.alerts if "it fired late" in text]
    assert len(said) is int(flagged)
    assert all("of 2,000 runtimes is longer by" in text for text in said)


def test_what_is_said_of_a_percentile_is_its_difference_with_and_without_the_wait():
    rng = np.random.default_rng(4)
    late = np.where(rng.random(2000) < 0.2, rng.uniform(30, 90, 2000), 0.0)
    runtimes = rng.lognormal(5, 0.05, 2000) + late
    found = longer_by(measured(runtimes, late, 2000), "pacer_late")
    assert found is not None
    whole, without = (np.percentile(each, 100 * found.prob) for each in (runtimes, runtimes - late))
    assert found.by_s == pytest.approx((whole - without) / 1e3, abs=1e-6)
    assert found.value_s == pytest.approx(whole / 1e3, abs=1e-6)
    # The error against the spread of the same percentile over fresh draws.
    draws = [np.percentile(rng.lognormal(5, 0.05, 2000), 100 * found.prob) for _ in range(400)]
    assert found.error_s == pytest.approx(1.96 * np.std(draws) / 1e3, rel=0.5)


def test_a_little_lateness_of_every_request_counts_however_few_they_are():
    assert "generator-limited" in check(measured(100, 3, 2000)).flags
    assert "generator-limited" not in check(measured(100, 0.9, 2000)).flags


@pytest.mark.parametrize("stalled_s, flagged", [(0.0, False), (0.2, False), (2.5, True)])
def test_time_that_the_generator_stood_still_makes_it_the_limit(stalled_s, flagged):
    lv = level(4, closed(4, lambda k: 100 * MS, duration_ns=5000 * MS), duration_s=5)
    lost = {"stalled_ns": round(stalled_s * 1e9), "longest_stall_ns": round(stalled_s * 0.8e9)}
    lv = replace(lv, meta={**lv.meta, **lost})
    found = check(lv)
    assert ("generator-limited" in found.flags) is flagged
    assert unbelieved(lv) is flagged
    if flagged:
        assert any("it stalled for 2.5 of 5 s, at most 2 s at once: it was stopped" in text for text in found.alerts)


def test_a_generator_at_its_cpu_limit_is_told_what_throttled_it():
    lv = level(4, closed(4, lambda k: 100 * MS, duration_ns=5000 * MS), duration_s=5)
    meta = {**lv.meta, "stalled_ns": 3 * 10**9, "longest_stall_ns": 98 * MS, "machine": {"throttled_ns": 3 * 10**9}}
    [said] = check(replace(lv, meta=meta)).alerts
    assert said.endswith("(its cgroup was throttled for 3 s): lift its CPU limit")


def test_throttling_and_steal_are_read_at_the_borders_of_levels(tmp_path, monkeypatch):
    group = tmp_path / "sys/fs/cgroup/box"
    for folder in (group, tmp_path / "proc/self"):
        folder.mkdir(parents=True)

    def now(at_ns: int, throttled_us: int, stolen_ticks: int) -> None:
        monkeypatch.setattr("gpusize.observe.machine.monotonic_ns", lambda: at_ns)
        (group / "cpu.stat").write_text(f"usage_usec 5\nnr_throttled 3\nthrottled_usec {throttled_us}\n")
        (tmp_path / "proc/stat").write_text(f"cpu  1 1 1 1 1 1 1 {stolen_ticks} 0 0\ncpu0 1\n")

    layout = {"controllers": [{"controller": "unified", "dir": str(group), "top": str(group.parent)}]}
    monkeypatch.setattr("gpusize.observe.machine.own_layout", lambda root: layout)
    observer = MachineObserver(tmp_path)
    observer.start()
    for reading in ((1000, 10, 7), (2000, 10, 7), (3000, 250, 7), (4000, 250, 9)):
        now(*reading)
        observer.boundary()
    assert observer.level(tmp_path, 1100, 1900) == {}
    assert observer.level(tmp_path, 2100, 2900) == {"machine": {"throttled_ns": 240_000}}
    assert observer.level(tmp_path, 3100, 3900) == {"machine": {"stolen_ns": 20_000_000}}
    assert observer.level(tmp_path, 2100, 4900) == {"machine": {"throttled_ns": 240_000, "stolen_ns": 20_000_000}}


@pytest.mark.parametrize("outcome, limited", [("http_error", False), ("connect_error", True), ("ok", True)])
def test_errors_that_come_at_once_are_the_targets_limit(outcome, limited):
    """As of a proxy that lets 51 in and answers the 52nd with 503: the next one goes out at once, and fills a core."""
    lv = measured(1, 0, 4000)
    busy = lv.meta["end_ns"] - lv.meta["start_ns"]
    codes = pl.when(pl.int_range(pl.len()) % 10 > 0).then(pl.lit(outcome)).otherwise(pl.lit("ok"))
    records = lv.records.with_columns(codes.cast(lv.records.collect_schema()["outcome"]).alias("outcome"))
    counts = {"ok": 4000} if outcome == "ok" else {"ok": 400, outcome: 3600}
    meta = {**lv.meta, "outcomes": counts, "cpu_ns": round(0.95 * busy), "workers": 1}
    assert bool(generator_limits(replace(lv, records=records, meta=meta))) is limited
