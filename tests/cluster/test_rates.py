"""Throughput and occupancy, held against the made truth by counting."""

from __future__ import annotations

import numpy as np
import pytest

from gpusize.cluster.phases.rates import throughput
from gpusize.cluster.phases.timed import time_workloads
from gpusize.cluster.report.words import notes, occupancy_text
from tests.cluster.synthetic import BEGIN, S, World, make


@pytest.mark.parametrize("seed", range(4))
def test_pods_a_second(seed: int) -> None:
    made = make(World(n=120, gang=2, seed=seed, every_s=0.05, lag_s=0.0, offset_known_s=0.0, offset_s=1.25))
    timed = time_workloads(made.stamps, made.attempts, made.facts)
    ends = [times[f"pod {p} scheduled"] for times in made.truth.values() for p in range(2)]
    begin = min(times["submitted"] for times in made.truth.values())
    rate = timed.pods_per_s()
    assert rate is not None
    assert rate.n == 240
    assert rate.elapsed_s == pytest.approx((max(ends) - begin) / S, abs=1e-5)
    assert rate.rate == pytest.approx(240 / rate.elapsed_s)
    assert rate.idle_s == pytest.approx((made.look_ns - max(ends)) / S, abs=1e-5)
    for k in range(rate.per_s.size - 1):
        inside = sum(begin + k * S <= end < begin + (k + 1) * S for end in ends)
        assert abs(rate.per_s[k] - inside) <= 1, "but for microseconds at the edge of a second"
    each = timed.workloads_per_s()
    assert each is not None
    assert each.n == 120


def test_the_last_second_is_as_long_as_it_was() -> None:
    times = np.array([0.1, 0.2, 1.3, 2.1, 2.2, 2.45]) * S
    found = throughput(times.astype(np.int64), 0, 100 * S)
    assert found is not None
    np.testing.assert_allclose(found.per_s, [2, 1, 3 / 0.45])
    np.testing.assert_array_equal(found.counts, [2, 1, 3])
    assert found.most == 3
    assert found.idle_s == pytest.approx(97.55)
    assert throughput(np.array([], dtype=np.int64), 0, None) is None


@pytest.mark.parametrize("last_s", [2.5, 2.05])
def test_the_most_in_a_second_counts_those_of_the_last_one(last_s: float) -> None:
    """All ended in a second that is cut off: they are neither none nor more than they were."""
    found = throughput(np.full(5, last_s * S).astype(np.int64), 0, None)
    assert found is not None
    assert (found.n, found.most) == (5, 5.0)


def test_stamps_of_whole_seconds_are_counted_second_by_second() -> None:
    """As Kubernetes writes them: those of the last second are not added to the one before."""
    times = np.array([0, 0, 1, 2, 2, 2, 3, 3]) * S
    found = throughput(times.astype(np.int64), 0, None)
    assert found is not None
    np.testing.assert_array_equal(found.per_s, [2, 1, 3, 2])
    assert (found.n, found.elapsed_s, found.most) == (8, 3.0, 3.0)
    late = throughput(np.full(100, 5 * S), 0, None)
    assert late is not None
    np.testing.assert_array_equal(late.per_s, [0, 0, 0, 0, 0, 100])
    assert (late.rate, late.most) == (20.0, 100.0)
    alone = throughput(np.array([0, 0]), 0, None)
    assert alone is not None
    assert alone.n == 2


@pytest.mark.parametrize("seed", range(3))
def test_gpus_over_time(seed: int) -> None:
    made = make(World(n=40, gang=3, seed=30 + seed, lag_s=0.0, offset_known_s=0.0, facts={}))
    facts = {**made.facts, "submit": {"pods": 3, "options": {"num_gpus": 4}}}
    timed = time_workloads(made.stamps, made.attempts, facts)
    taken = timed.occupancy()
    assert taken is not None
    ends = np.array([times[f"pod {p} bound"] for times in made.truth.values() for p in range(3)])
    begin = min(times["submitted"] for times in made.truth.values())
    for at in np.linspace(0, (made.look_ns - begin) / S, 25):
        place = int(np.searchsorted(taken.times_s, at, side="right")) - 1
        assert abs(taken.gpus[place] - 4 * np.sum(ends <= begin + at * S)) <= 4
    mean = 4 * np.sum(made.look_ns - ends) / (made.look_ns - begin)
    assert taken.mean == pytest.approx(mean, rel=1e-3)


def test_a_pod_that_ended_gives_its_gpus_back() -> None:
    import polars as pl

    made = make(World(n=10, seed=33, lag_s=0.0, offset_known_s=0.0))
    of = made.stamps.filter(pl.col("moment") == "bound").head(4)
    ended = of.with_columns(moment=pl.lit("succeeded"), at_ns=pl.lit(BEGIN + 30 * S))
    timed = time_workloads(pl.concat([made.stamps, ended]), made.attempts, made.facts)
    taken = timed.occupancy()
    assert taken is not None
    assert (taken.gpus.max(), taken.gpus[-1]) == (10, 6)


@pytest.mark.parametrize("total, doubled", [(10, False), (5, True)])
def test_more_gpus_than_there_are_is_told_and_warned_of(total: int, doubled: bool) -> None:
    made = make(World(n=10, seed=33, lag_s=0.0, offset_known_s=0.0))
    facts = {**made.facts, "sample": {**(made.facts.get("sample") or {}), "gpus": total}}
    timed = time_workloads(made.stamps, made.attempts, facts)
    share = "200%" if doubled else "100%"
    assert f"at most 10 of {total} GPUs taken ({share})" in occupancy_text(timed.occupancy())
    warned = [text for text in notes(timed) if text.startswith("10 GPUs were taken at once, and the nodes have 5")]
    assert len(warned) == int(doubled)


def test_a_binding_that_was_found_later_takes_its_gpus_from_the_decision_on() -> None:
    """Sampled once, after all: a list shows the node of each pod, and no one knows since when."""
    import polars as pl

    made = make(World(n=30, seed=34, lag_s=0.0, offset_known_s=0.0))
    bound = pl.col("moment") == "bound"
    found = made.stamps.with_columns(
        pl.when(bound).then(made.look_ns).otherwise("at_ns").alias("at_ns"),
        pl.when(bound).then(pl.lit(value=False)).otherwise("reported").alias("reported"),
    )
    taken = time_workloads(found, made.attempts, made.facts).occupancy()
    assert taken is not None
    decided = np.array([times["pod 0 scheduled"] for times in made.truth.values()])
    begin = min(times["submitted"] for times in made.truth.values())
    assert taken.mean == pytest.approx(np.sum(made.look_ns - decided) / (made.look_ns - begin), rel=1e-2)
