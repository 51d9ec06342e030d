from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.observe.metrics.series import counter_increase, gauge_summary, without_resets

S = 1_000_000_000


def series(*points: tuple[float, float]) -> tuple[Any, Any]:
    t = np.array([round(at * S) for at, _ in points], np.int64)
    return t, np.array([value for _, value in points], np.float64)


def test_a_counter_is_interpolated_at_both_ends():
    t, v = series((0, 100), (1, 110), (2, 130), (3, 130))
    risen = counter_increase(t, v, S // 2, 5 * S // 2)
    assert risen is not None
    assert risen.increase == pytest.approx(130 - 105)
    assert risen.over_s == 2


def test_a_counter_that_starts_anew_counts_from_nothing():
    t, v = series((0, 100), (1, 160), (2, 5), (3, 25), (4, 3))
    risen = counter_increase(t, v, 0, 4 * S)
    assert risen is not None
    assert risen.increase == 60 + 5 + 20 + 3


def test_a_counter_that_is_seen_late_says_how_long_it_was_seen():
    t, v = series((2, 10), (4, 30))
    risen = counter_increase(t, v, 0, 10 * S)
    assert risen is not None
    assert (risen.increase, risen.over_s) == (20, 2)


@pytest.mark.parametrize("points", [(), ((1, 5),), ((1, 5), (2, 6))])
def test_a_counter_outside_the_span_says_nothing(points):
    assert counter_increase(*series(*points), 5 * S, 6 * S) is None


def test_large_times_lose_no_precision():
    base = 300 * 86400 * S + 1
    t = np.array([base, base + 10], np.int64)
    risen = counter_increase(t, np.array([0.0, 10.0]), base + 3, base + 7)
    assert risen is not None
    assert risen.increase == pytest.approx(4, abs=1e-9)


@given(
    st.lists(st.integers(0, 1000), min_size=2, max_size=30),
    st.integers(0, 28),
)
def test_increases_of_two_halves_add_up(steps: list[int], cut: int):
    v = np.cumsum(steps).astype(np.float64)
    t = np.arange(len(v), dtype=np.int64) * S
    at, end = min(cut, len(v) - 1) * S // 2 + S // 3, int(t[-1])
    whole = counter_increase(t, v, 0, end)
    parts = [counter_increase(t, v, 0, at), counter_increase(t, v, at, end)]
    assert whole is not None
    assert sum(part.increase for part in parts if part is not None) == pytest.approx(whole.increase)


@given(st.lists(st.floats(0, 1e9), max_size=30))
def test_a_counter_never_falls_without_its_resets(values: list[float]):
    assert (np.diff(without_resets(np.array(values))) >= 0).all()


def test_a_gauge_is_averaged_over_time_and_not_over_readings():
    t, v = series((0, 0), (1, 10), (1.1, 10), (1.2, 10), (2, 10))
    gauge = gauge_summary(t, v, 0, 2 * S)
    assert gauge is not None
    assert gauge.mean == pytest.approx((5 + 10) / 2)
    assert (gauge.low, gauge.high, gauge.first, gauge.last, gauge.readings) == (0, 10, 0, 10, 5)


def test_a_gauge_between_two_readings_is_interpolated():
    t, v = series((0, 0), (1, 10))
    gauge = gauge_summary(t, v, S // 5, 2 * S // 5)
    assert gauge is not None
    assert (gauge.mean, gauge.first, gauge.last) == pytest.approx((3, 2, 4))
    assert gauge.readings == 0


def test_a_gap_is_left_out_of_a_gauge():
    t, v = series((0, 1), (1, 1), (2, 1), (62, 9), (63, 9))
    gauge = gauge_summary(t, v, 0, 63 * S)
    assert gauge is not None
    assert gauge.over_s == pytest.approx(3)
    assert gauge.mean == pytest.approx((2 * 1 + 1 * 9) / 3)


def test_a_gap_at_the_ends_leaves_the_nearest_reading_within():
    t, v = series((0, 1), (30, 5), (31, 7), (90, 9))
    gauge = gauge_summary(t, v, 10 * S, 60 * S)
    # The usual distance is 30 s here, so that nothing is a gap.
    assert gauge is not None
    assert gauge.first == pytest.approx(1 + 4 / 3)
    t, v = series((0, 1), (30, 5), (31, 7), (32, 7), (33, 7), (90, 9))
    gauge = gauge_summary(t, v, 10 * S, 60 * S)
    assert gauge is not None
    assert (gauge.first, gauge.last) == (5, 7)


@pytest.mark.parametrize("points", [(), ((0, 3),), ((0, 3), (100, 5))])
def test_a_gauge_without_readings_near_says_nothing(points):
    t, v = series(*points, *(((101, 1), (102, 1), (103, 1)) if len(points) == 2 else ()))
    assert gauge_summary(t, v, 40 * S, 41 * S) is None


def test_a_single_reading_is_a_gauge():
    gauge = gauge_summary(*series((3, 8)), 0, 10 * S)
    assert gauge is not None
    assert (gauge.mean, gauge.first, gauge.last, gauge.over_s, gauge.readings) == (8, 8, 8, 0, 1)
