"""Schedules of replicas: windows, the two policies, and when replicas are ready."""

from __future__ import annotations

import numpy as np
import pytest

from gpusize.base.errors import UsageError
from gpusize.estimate.plan.over_time.policies import ScalingRules, Schedule, bounded, planned, reactive, recent, windows

S = 10**9


def steps(schedule):
    return list(zip((schedule.at_ns / S).tolist(), schedule.asked.tolist(), strict=True))


def ready(schedule):
    at, count = schedule.ready()
    return list(zip((at / S).tolist(), count.tolist(), strict=True))


def schedule(*given, delay=0.0):
    at, asked = zip(*given, strict=True)
    return Schedule(np.array(at, np.int64) * S, np.array(asked), delay)


def test_windows_hold_every_request_once():
    due = np.array([0, 1, 59, 60, 61, 130, 149], np.int64) * S
    edges, rates = windows(due, 150 * S, 60.0)
    # The last one is longer, as half a window would say little.
    assert (edges / S).tolist() == [0, 60, 150]
    assert (rates * np.diff(edges) / S).round(9).tolist() == [3, 4]
    edges, rates = windows(due, 170 * S, 60.0)
    assert (edges / S).tolist() == [0, 60, 120, 170]
    assert rates.tolist() == [3 / 60, 2 / 60, 2 / 50]
    assert windows(due, 10 * S, 60.0)[0].tolist() == [0, 10 * S]


def test_planned_asks_ahead_and_lets_go_late():
    edges = np.arange(0, 601, 60) * S
    need = np.array([1, 1, 5, 2, 2, 2, 1, 1, 1, 1])
    at_once = planned(edges, need, ScalingRules(start_delay_s=0, scale_down_after_s=0))
    assert steps(at_once) == [(0, 1), (120, 5), (180, 2), (360, 1)]
    early = planned(edges, need, ScalingRules(start_delay_s=90, scale_down_after_s=120))
    assert steps(early) == [(0, 1), (30, 5), (300, 2), (480, 1)]
    assert ready(early) == [(0, 1), (120, 5), (300, 2), (480, 1)]


def test_planned_keeps_replicas_over_a_short_dip():
    edges = np.arange(0, 361, 60) * S
    need = np.array([4, 1, 4, 1, 1, 1])
    assert steps(planned(edges, need, ScalingRules(start_delay_s=30, scale_down_after_s=60))) == [(0, 4), (240, 1)]
    # Without a stay they go, and come back in time.
    brisk = planned(edges, need, ScalingRules(start_delay_s=30, scale_down_after_s=0))
    assert steps(brisk) == [(0, 4), (60, 1), (90, 4), (180, 1)]


@pytest.mark.parametrize("delay, stay", [(0, 0), (45, 0), (60, 300), (400, 100)])
def test_planned_is_ready_whenever_a_window_needs_it(delay, stay):
    rng = np.random.default_rng(7)
    edges = np.arange(0, 60 * 41, 60) * S
    need = rng.integers(1, 9, 40)
    found = planned(edges, need, ScalingRules(start_delay_s=delay, scale_down_after_s=stay))
    at, count = found.ready()
    for begin, end, wanted in zip(edges[:-1], edges[1:], need, strict=True):
        if begin < delay * S:
            continue
        inside = count[(at >= begin) & (at < end)]
        before = count[np.searchsorted(at, begin, "right") - 1]
        assert min([before, *inside]) >= wanted


def test_reactive_follows_what_it_has_seen():
    # 1/s until 300 s, then 4/s until 600 s, then 1/s.
    due = np.concatenate([np.arange(0, 300, 1.0), np.arange(300, 600, 0.25), np.arange(600, 1500, 1.0)])
    due_ns = (due * S).astype(np.int64)
    rules = ScalingRules(window_s=60, decide_every_s=30, start_delay_s=20, scale_down_after_s=120)
    edges, _ = windows(due_ns, 1500 * S, 60.0)
    times, rates = recent(due_ns, edges, rules)
    assert rates[:11].tolist() == [1.0] * 11
    assert rates[11:13].tolist() == [2.5, 4.0]
    found = reactive(times, np.ceil(rates).astype(int), rules)
    # At 660 s the last minute has 1/s; the recommendation for 3 of 630 s holds for two minutes more.
    assert steps(found) == [(0, 1), (330, 3), (360, 4), (750, 3), (780, 1)]
    assert ready(found) == [(0, 1), (350, 3), (380, 4), (750, 3), (780, 1)]


def test_what_is_taken_back_before_it_is_ready_starts_anew():
    assert ready(schedule((0, 1), (10, 3), (12, 2), (13, 3), delay=5)) == [(0, 1), (15, 2), (18, 3)]
    assert ready(schedule((0, 1), (10, 3), (12, 1), delay=5)) == [(0, 1)]
    assert ready(schedule((0, 3), (10, 1), (20, 2))) == [(0, 3), (10, 1), (20, 2)]


def test_what_is_asked_for_is_paid_for():
    found = schedule((0, 1), (10, 3), (20, 2))
    assert (found.replica_s(30), found.replica_s(15), found.peak) == (10 + 30 + 20, 10 + 15, 3)
    assert Schedule.constant(4).replica_s(100) == 400


def test_bounds_and_reserve():
    need = np.array([1, 5, 10])
    assert bounded(need, ScalingRules(min_replicas=2, max_replicas=8)).tolist() == [2, 5, 8]
    assert bounded(need, ScalingRules(headroom=0.2, spare=1)).tolist() == [3, 7, 13]


@pytest.mark.parametrize(
    "change",
    [
        {"window_s": 0},
        {"decide_every_s": 0.5},
        {"start_delay_s": -1},
        {"scale_down_after_s": float("nan")},
        {"min_replicas": 0},
        {"min_replicas": 3, "max_replicas": 2},
        {"headroom": -0.1},
        {"spare": -1},
    ],
)
def test_rules_that_cannot_be_meant(change):
    with pytest.raises(UsageError):
        ScalingRules(**change)
