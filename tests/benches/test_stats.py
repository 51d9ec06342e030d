"""The statistics behind the bars: they decide whether a bar is kept."""

from __future__ import annotations

import math
import random

import pytest

from benches.lib.bars import Bar, exit_code
from benches.lib.host import CpuTimes
from benches.lib.procs import BenchFailed
from benches.lib.stats import Interval, bootstrap_median, paired
from benches.sections.instructions import slope


def test_equal_values_have_no_spread() -> None:
    assert bootstrap_median([3.0] * 15) == Interval(3.0, 3.0, 3.0)


def test_the_interval_holds_the_median_and_lies_within_the_values() -> None:
    values = [float(v) for v in random.Random(4).choices(range(100), k=15)]
    found = bootstrap_median(values)
    assert found.value == sorted(values)[7]
    assert min(values) <= found.lo <= found.value <= found.hi <= max(values)
    assert found.lo < found.hi


def test_the_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    # Exponential with median ln 2; the percentile bootstrap of a median of 15 covers 90 to 97 % of the time.
    rng = random.Random(7)
    covered = 0
    for _ in range(200):
        found = bootstrap_median([rng.expovariate(1.0) for _ in range(15)])
        covered += found.lo <= math.log(2) <= found.hi
    assert 0.88 * 200 <= covered <= 200


def test_the_same_values_give_the_same_interval() -> None:
    values = [1.0, 5.0, 2.0, 8.0, 3.0]
    assert bootstrap_median(values) == bootstrap_median(values)


def test_pairs_cancel_what_both_sides_suffer() -> None:
    rng = random.Random(1)
    noise = [rng.uniform(1, 10) for _ in range(15)]
    ratio = paired([0.9 * slow for slow in noise], noise)
    assert ratio.lo == pytest.approx(0.9)
    assert ratio.hi == pytest.approx(0.9)
    unpaired = bootstrap_median(noise)
    assert unpaired.hi - unpaired.lo > 1


def test_pairs_can_be_differences() -> None:
    assert paired([5.0, 6.0], [1.0, 1.0], lambda a, b: a - b).value == 4.5


def test_sides_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        paired([1.0], [1.0, 2.0])


def test_no_values_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        bootstrap_median([])


@pytest.mark.parametrize(
    "interval, ok",
    [
        (Interval(0.90, 0.89, 0.95), True),
        (Interval(0.90, 0.89, 0.951), False),
        (Interval(0.96, 0.95, 0.97), False),
        (Interval(0.90, 0.89, math.nan), False),
    ],
)
def test_the_worse_end_decides(interval: Interval, ok: bool) -> None:
    bar = Bar("cpu", interval, 0.95)
    assert bar.ok is ok
    assert bar.line().endswith("ok" if ok else "short")
    assert exit_code([Bar("other", Interval.exact(0.0), 1.0), bar]) == (0 if ok else 1)


def test_a_bar_by_value_leaves_the_ends_out() -> None:
    upper, lower = Bar("too_few", Interval(0.03, 0.01, 0.05), 0.03, by_value=True), Interval(0.9, 0.8, 0.95)
    assert upper.ok
    assert upper.line() == "BAR too_few 0.03 [0.01,0.05] 0.03 by value ok"
    assert Bar("exact", lower, 0.9, at_least=True, by_value=True).ok
    assert not Bar("exact", lower, 0.91, at_least=True, by_value=True).ok
    assert not Bar("exact", Interval(math.nan, 0.0, 1.0), 0.0, at_least=True, by_value=True).ok


def test_a_bars_line() -> None:
    assert (
        Bar("late_ns", Interval(1234.5, 1000.0, 2000.0), 25_000.0, "ns").line()
        == "BAR late_ns 1234 [1000,2000] 25000 ns ok"
    )


def test_a_slope_leaves_the_start_up_out() -> None:
    assert slope((20_000, 500_000_000 + 3_000 * 20_000), (60_000, 500_000_000 + 3_000 * 60_000)) == 3_000
    with pytest.raises(BenchFailed):
        slope((20_000, 1), (20_000, 2))


def test_steal_is_a_share_of_all_time() -> None:
    before = CpuTimes.parse("cpu  100 0 50 800 0 0 0 10 99 0\ncpu0 1 1 1 1\n")
    after = CpuTimes.parse("cpu  150 0 70 820 0 0 0 20 150 0\ncpu0 1 1 1 1\n")
    assert after.total - before.total == 100
    assert after.steal_share(before) == pytest.approx(0.1)
    assert before.steal_share(before) == 0.0
