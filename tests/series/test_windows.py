"""Increases, rates, percentiles and sums of windows against numpy over the raw observations."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from gpusize.analysis.series import bucket_rises, gauge_at, increases, total_increases
from gpusize.records.series import labels_text, series_schema
from tests.series.observed import BOUNDS, Replica, S, frame_of, replica

SEEDS = range(40)


def world(seed: int) -> tuple[list[Replica], pl.DataFrame, list[tuple[int, int]]]:
    random = np.random.default_rng(seed)
    replicas = [replica(random, f"r{k}") for k in range(int(random.integers(1, 6)))]
    edges = np.sort(random.integers(0, 1800 * S, (12, 2)), axis=1)
    windows = [(int(low), int(high)) for low, high in edges if high - low > 60 * S]
    return replicas, frame_of(replicas), windows


def last_at_or_before(one: Replica, moment: int) -> int | None:
    before = one.scrapes[one.scrapes <= moment]
    return int(before[-1]) if before.size else None


def truth(one: Replica, window: tuple[int, int]) -> np.ndarray | None:
    """The observations of a window as scrapes delimit it; None where the replica has no scrape in it."""
    first, last = last_at_or_before(one, window[0]), last_at_or_before(one, window[1])
    if last is None or last == first:
        return None
    return one.took[one.seen(int(one.scrapes[0]) if first is None else first, last)]


@pytest.mark.parametrize("seed", SEEDS)
def test_increases_are_the_observations_between_scrapes(seed: int):
    replicas, frame, windows = world(seed)
    found = increases(frame, windows, name="time_count")
    rows = {(row["start_ns"], row["end_ns"], row["labels"]): row for row in found.iter_rows(named=True)}
    expected = {
        (*window, labels_text({"pod": one.name})): seen
        for window in windows
        for one in replicas
        if (seen := truth(one, window)) is not None
    }
    assert rows.keys() == expected.keys()
    for key, seen in expected.items():
        assert rows[key]["value"] == pytest.approx(seen.size, abs=1e-6)
    totals = total_increases(frame, windows, name="time_count")
    assert totals.select("start_ns", "end_ns").rows() == windows
    for window, row in zip(windows, totals.iter_rows(named=True), strict=True):
        each = [truth(one, window) for one in replicas]
        there = [seen.size for seen in each if seen is not None]
        assert row["series"] == len(there)
        assert row["value"] == (pytest.approx(sum(there)) if there else None)


@pytest.mark.parametrize("seed", SEEDS)
def test_percentiles_lie_in_the_bucket_that_is_told(seed: int):
    replicas, frame, windows = world(seed)
    checked = 0
    for window, rise in zip(windows, bucket_rises(frame, windows, name="time"), strict=True):
        seen = [found for one in replicas if (found := truth(one, window)) is not None]
        raw = np.sort(np.concatenate(seen)) if seen else np.array([])
        assert rise.count == pytest.approx(raw.size)
        assert rise.unknown == 0
        for share in (0.0, 0.01, 0.25, 0.5, 0.9, 0.95, 0.99, 1.0):
            told = rise.percentile(share)
            if not raw.size:
                assert told is None
                continue
            assert told is not None
            # The observation of that rank, which Prometheus's own definition asks for as well.
            exact = float(np.quantile(raw, share, method="inverted_cdf"))
            assert told.low < exact <= told.high
            if math.isfinite(told.high):
                assert told.value is not None
                assert told.low <= told.value <= told.high
            else:
                assert told.value is None
                assert told.low == BOUNDS[-1]
            checked += 1
        for bound in (*BOUNDS, 0.3):
            within = rise.share_within(bound)
            if raw.size:
                assert within is not None
                exact = float((raw <= bound).mean())
                assert within[0] - 1e-9 <= exact <= within[1] + 1e-9
                assert bound not in BOUNDS or within[0] == within[1]
    assert checked > 20


def test_resets_cost_what_was_not_scraped_and_no_more():
    values = [0, 5, 9, 2, 4, 4, 1]
    frame = counter([(k * 15, value) for k, value in enumerate(values)])
    [row] = increases(frame, [(0, 90 * S)]).iter_rows(named=True)
    assert (row["value"], row["resets"]) == (5 + 4 + 2 + 2 + 0 + 1, 2)


def counter(
    points: list[tuple[float, float]], name: str = "c", pod: str = "a", le: float | None = None
) -> pl.DataFrame:
    labels = labels_text({"pod": pod})
    rows = [(round(at * S), name, labels, le, float(value)) for at, value in points]
    return pl.DataFrame(rows, schema=series_schema(), orient="row")


def test_nothing_is_extrapolated():
    # Scrapes at 10, 25, ... 100: a window from 20 to 80 is that from 10 to 70.
    frame = counter([(10 + 15 * k, 15 * k) for k in range(7)])
    [row] = increases(frame, [(20 * S, 80 * S)]).iter_rows(named=True)
    assert (row["value"], row["from_ns"], row["to_ns"]) == (60, 10 * S, 70 * S)
    assert row["rate"] == 1
    assert row["gap_s"] == 15


def test_a_border_in_a_gap_is_not_known_and_a_gap_inside_is():
    frame = counter([(0, 0), (15, 3), (30, 6), (45, 9), (300, 50), (315, 53)])
    found = increases(frame, [(0, 150 * S), (150 * S, 315 * S), (0, 315 * S), (45 * S, 300 * S)])
    assert found.sort("start_ns", "end_ns")["value"].to_list() == [None, 53, 41, None]
    by_window = {(row["start_ns"] // S, row["end_ns"] // S): row for row in found.iter_rows(named=True)}
    assert by_window[0, 315]["gap_s"] == 255
    total = total_increases(pl.concat([frame, counter([(15 * k, k) for k in range(22)], pod="b")]), [(0, 150 * S)])
    [row] = total.iter_rows(named=True)
    assert (row["value"], row["known"], row["series"], row["unknown"]) == (None, 10, 2, 1)


def test_a_series_that_begins_inside_the_window_says_with_what():
    old = counter([(15 * k, k) for k in range(21)], pod="old")
    new = counter([(150 + 15 * k, 7 + k) for k in range(11)], pod="new")
    both = pl.concat([old, new])
    rows = {row["labels"]: row for row in increases(both, [(0, 300 * S)]).iter_rows(named=True)}
    assert rows['{"pod":"new"}']["value"] == 10
    assert rows['{"pod":"new"}']["born"] == 7
    assert rows['{"pod":"old"}']["born"] == 0
    # One of which the data begins no later than the others' is no birth: it was there before.
    assert increases(new, [(0, 300 * S)])["born"].to_list() == [0]


def test_a_series_that_has_ended_adds_nothing_later():
    frame = pl.concat(
        [counter([(15 * k, k) for k in range(41)], pod="a"), counter([(15 * k, k) for k in range(11)], pod="b")]
    )
    found = total_increases(frame, [(0, 300 * S), (160 * S, 300 * S), (300 * S, 600 * S), (700 * S, 900 * S)])
    assert found["value"].to_list() == [20 + 10, 10, 20, None]
    assert found["series"].to_list() == [2, 1, 1, 0]
    # Over the time that it was there for, spread over the window.
    assert found["rate"][0] == pytest.approx(1 / 15 + 10 / 300)


def test_the_rate_of_steady_counters_is_their_rate():
    random = np.random.default_rng(5)
    at = np.cumsum(random.uniform(10, 20, 200))
    frame = pl.concat([counter([(t, 3.5 * t) for t in at], pod=pod) for pod in "ab"])
    windows = [(int(low * S), int((low + 300) * S)) for low in range(50, 2000, 137)]
    assert total_increases(frame, windows)["rate"].to_list() == pytest.approx([7.0] * len(windows))


def test_histograms_of_replicas_with_other_bounds_meet_where_both_know():
    random = np.random.default_rng(9)
    other = (0.1, 0.5, 2.5)
    replicas = [replica(random, "a"), replica(random, "b", bounds=other)]
    window = (100 * S, 1700 * S)
    [rise] = bucket_rises(frame_of(replicas), [window], name="time")
    assert rise.bounds.tolist() == [*other, math.inf]
    raw = np.concatenate([seen for one in replicas if (seen := truth(one, window)) is not None])
    assert rise.counts.tolist() == [float((raw <= bound).sum()) for bound in rise.bounds]


def test_a_bucket_that_falls_resets_them_all():
    # The count rose over the restart, so that it alone shows nothing of it.
    low = counter([(0, 100), (15, 3)], le=1.0)
    high = counter([(0, 100), (15, 120)], le=math.inf)
    [rise] = bucket_rises(pl.concat([low, high]), [(0, 15 * S)])
    assert (rise.counts.tolist(), rise.resets) == ([3, 120], 1)


def test_histograms_in_a_gap_are_counted_as_unknown():
    def series(pod: str, times: list[int]) -> pl.DataFrame:
        return pl.concat([counter([(t, t) for t in times], pod=pod, le=le) for le in (1.0, math.inf)])

    frame = pl.concat([series("a", [0, 15, 30, 45, 60]), series("b", [0, 15, 30, 500])])
    [rise] = bucket_rises(frame, [(0, 300 * S)])
    assert (rise.series, rise.unknown, rise.count) == (2, 1, 60)
    [nothing] = bucket_rises(frame, [(200 * S, 300 * S)])
    assert (nothing.count, nothing.unknown, nothing.percentile(0.5)) == (0, 1, None)
    [empty] = bucket_rises(frame.clear(), [(0, S)])
    assert (empty.count, empty.series, empty.percentile(0.5), empty.share_within(1)) == (0, 0, None, None)


def test_a_share_is_a_share():
    [rise] = bucket_rises(counter([(0, 0), (15, 4)], le=math.inf), [(0, 15 * S)])
    with pytest.raises(ValueError, match=r"in \[0, 1\], not 95"):
        rise.percentile(95)
    assert rise.percentile(0.5) == (None, 0.0, math.inf)


@pytest.mark.parametrize("seed", range(20))
def test_sums_over_replicas_are_those_of_each_moment(seed: int):
    random = np.random.default_rng(seed)
    frames, tables = [], []
    moments = np.sort(random.integers(0, 2000 * S, 60))
    for pod in "abc"[: random.integers(1, 4)]:
        times = np.arange(int(random.integers(0, 600)), int(random.integers(700, 1500)), 15.0) + random.uniform(0, 1)
        keep = np.ones(times.size, bool)
        at = int(random.integers(1, times.size - 8))
        keep[at : at + int(random.integers(0, 7))] = False
        times, values = times[keep], random.integers(0, 9, keep.sum())
        frames.append(counter(list(zip(times, values, strict=True)), pod=pod))
        cells: list[float | str | None] = []
        for moment in moments / S:
            before = times[np.round(times * S) <= round(moment * S)]
            if not before.size:
                cells.append(None)
            elif moment - before[-1] <= 45 + 1e-9:
                cells.append(float(values[before.size - 1]))
            else:
                cells.append("gap" if before.size < times.size else None)
        tables.append(cells)
    frame = pl.concat(frames)
    for across, make in (("sum", np.sum), ("mean", np.mean), ("max", np.max), ("min", np.min)):
        found = gauge_at(frame, moments.tolist(), across, stale_after_s=45.0)  # type: ignore[arg-type]
        for told, row in zip(zip(*tables, strict=True), found.iter_rows(named=True), strict=True):
            there = [cell for cell in told if isinstance(cell, float)]
            gaps = told.count("gap")
            assert (row["series"], row["unknown"]) == (len(there), gaps)
            assert row["value"] == (pytest.approx(make(there)) if there and not gaps else None)


def test_what_is_not_there_is_null_and_not_0():
    found = gauge_at(counter([(0, 1), (15, 2)]).clear(), [0, S])
    assert found["value"].to_list() == [None, None]
    with pytest.raises(ValueError, match="across must be one of"):
        gauge_at(counter([(0, 1)]), [0], "median")  # type: ignore[arg-type]
    two = pl.concat([counter([(0, 1)]), counter([(0, 1)], name="d")])
    with pytest.raises(ValueError, match="several names, such as c, d"):
        gauge_at(two, [0])
    assert gauge_at(two, [0], name="d")["value"].to_list() == [1]
