"""The detectors on series whose truth is known: what they find, and how often they find what is not there."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from gpusize.analysis.detect import answered_behind, blocks_of, drift, growing, mser, plateau, steady_from
from gpusize.analysis.detect.arrivals import band, chi2_quantile, gap_autocorrelation, index_of_dispersion
from gpusize.analysis.detect.blocks import lag1, theil_sen
from tests.analysis.open_levels import Floats, arrivals


def mm1(rho: float, *, mu: float = 125.0, length_s: float = 60.0, seed: int = 0, warm_s: float = 60.0):
    """Arrivals and departures of an M/M/1 queue, seconds, as they are after a warm-up."""
    rng = np.random.default_rng(seed)
    came = arrivals("poisson", rho * mu, length_s + warm_s, seed=seed)
    service = rng.exponential(1 / mu, came.size)
    done = np.cumsum(service)
    left = done + np.maximum.accumulate(came - (done - service))
    return came - warm_s, left - warm_s


def per_second(came, left, length_s=60):
    edges = np.arange(length_s + 1)
    held = np.searchsorted(came, edges[1:]) - np.searchsorted(left, edges[1:])
    times = [(left - came)[(left >= k) & (left < k + 1)] for k in range(length_s)]
    medians = np.array([np.median(each) if each.size else math.nan for each in times])
    return np.histogram(came, edges)[0], np.histogram(left, edges)[0], held, medians


def grown(rho, seed, **more):
    offered, completed, held, runtime = per_second(*mm1(rho, seed=seed, **more))
    return growing(offered, completed, held, runtime_s=runtime).status


@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_a_queue_below_its_capacity_does_not_grow(rho):
    found = [grown(rho, seed) for seed in range(200)]
    assert found.count("not growing") == 200


def test_a_queue_above_its_capacity_grows():
    assert [grown(1.2, seed, warm_s=2.0) for seed in range(100)].count("growing") >= 99
    assert [grown(2.0, seed, warm_s=2.0) for seed in range(20)] == ["growing"] * 20


def test_growth_is_told_in_numbers():
    found = growing(np.full(30, 100), np.full(30, 80), np.arange(30) * 20 + 20)
    assert found.status == "growing"
    assert found.share == pytest.approx(0.2)
    assert found.per_s == pytest.approx(20)
    assert found.text == "100/s were offered, 80/s were answered"


def test_requests_that_are_shed_are_not_answered_although_nothing_waits():
    assert growing(np.full(30, 100), np.full(30, 80), np.full(30, 50)).status == "growing"


def test_a_server_that_fills_up_is_not_judged():
    """An endless number of servers, each request 40 s long: in flight grows for 40 s and then no more."""
    offered = np.full(30, 50)
    filling = growing(offered, np.zeros(30), np.cumsum(offered), runtime_s=np.full(30, 40.0))
    assert filling.status == "not judged"
    assert "shorter than 2 runtimes of 40 s" in filling.text
    rising = growing(offered, np.full(30, 25), np.cumsum(offered - 25), runtime_s=20 + np.arange(30) / 2)
    assert rising.status == "growing"


@pytest.mark.parametrize("steps, rate, why", [(9, 100, "10 are needed"), (30, 0, "20 are needed")])
def test_too_little_is_not_judged(steps, rate, why):
    found = growing(np.full(steps, rate), np.zeros(steps))
    assert (found.status, found.share) == ("not judged", None)
    assert why in found.text


def test_arrays_of_different_length_are_refused():
    with pytest.raises(ValueError, match="one value per step"):
        growing(np.ones(10), np.ones(9))


def test_the_knee_of_a_closed_sweep():
    users = [1, 2, 4, 8, 16, 32]
    rates = [10, 20, 40, 62, 63, 63]
    times = [0.1, 0.1, 0.1, 0.129, 0.254, 0.508]
    assert plateau(users, rates, times) == [None, False, False, False, True, True]
    assert plateau(users, [10 * n for n in users], [0.1] * 6) == [None, *[False] * 5]
    # Neighbours too close to each other say nothing; repeats are compared with the lower level.
    assert plateau([8, 9, 8], rates[:3], times[:3]) == [None, None, None]
    assert plateau([8, 16, 16], [50, 50, 51], [0.16, 0.32, 0.31]) == [None, True, True]
    assert plateau([8, 16], [math.nan, 50], [0.16, 0.32]) == [None, None]


def runtimes(
    change: float, *, n: int = 3000, length_s: float = 60.0, seed: int = 1, spread: float = 0.3
) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(0, length_s, n))
    return times, 0.1 * (1 + change * times / length_s) * rng.lognormal(0, spread, n)


@pytest.mark.parametrize("change", [0.3, -0.3])
def test_drift_is_found_with_its_size(change):
    found = drift(*runtimes(change), 0, 60)
    assert found.status == "drifts"
    assert found.change == pytest.approx(change / (1 + change / 2), abs=0.05)
    assert found.low < found.change < found.high


def test_a_change_that_does_not_matter_is_no_drift():
    found = drift(*runtimes(0.05, spread=0.02), 0, 60)
    assert found.status == "none"
    assert found.low > 0


@pytest.mark.parametrize("rho, most", [(0.5, 0.02), (0.8, 0.05)])
def test_a_steady_queue_seldom_seems_to_drift(rho, most):
    found = 0
    for seed in range(200):
        came, left = mm1(rho, seed=seed)
        found += drift(came, left - came, 0, 60).status == "drifts"
    assert found <= most * 200


def test_drift_needs_blocks():
    assert drift(*runtimes(0.5, n=30), 0, 60).status == "not judged"
    assert drift([1, 2], [1, 1], 5, 5).status == "not judged"
    assert (
        drift(np.linspace(0, 60, 999), np.zeros(999), 0, 60).text == "the median is 0: there is nothing to compare with"
    )


def test_theil_sen_agrees_with_scipy_and_its_interval_holds():
    rng = np.random.default_rng(4)
    x = np.arange(16.0)
    held = 0
    for _ in range(500):
        y = 0.5 * x + rng.standard_t(3, 16)
        line = theil_sen(x, y, 0.95)
        assert line.slope == pytest.approx(stats.theilslopes(y, x).slope)
        held += line.low <= 0.5 <= line.high
    assert held / 500 == pytest.approx(0.96, abs=0.03)  # steps of Kendall's S make it a little safe
    with pytest.raises(ValueError, match="3 points"):
        theil_sen([0, 1], [0, 1])


def test_an_interval_is_wider_where_neighbours_agree():
    x = np.arange(40.0)
    wave = np.sin(x / 3)
    alone, together = theil_sen(x, wave, correlated=False), theil_sen(x, wave)
    assert together.low < alone.low
    assert together.high > alone.high


def test_mser_finds_the_end_of_a_transient():
    rng = np.random.default_rng(1)
    x = rng.normal(1, 0.1, 200)
    x[:20] += 2
    assert 20 <= mser(x) <= 30
    assert mser(np.ones(50)) == 0
    assert mser([1.0]) == 0


def test_a_transient_is_found_and_where_it_ends():
    times, values = runtimes(0.0, n=6000)
    values = values * (1 + 2 * np.exp(-times / 2))
    found = steady_from(times, values, 0, 60)
    assert found.status == "not steady"
    assert 2 <= found.begins_s <= 10
    assert found.effect > 0.4
    assert steady_from(times, values, 12, 60).status == "steady"


@pytest.mark.parametrize("rho, most", [(0.5, 0.06), (0.8, 0.08)])
def test_a_steady_queue_seldom_seems_unsteady(rho, most):
    found = 0
    for seed in range(200):
        came, left = mm1(rho, seed=seed)
        inside = came >= 0
        found += steady_from(came[inside], (left - came)[inside], 0, 60).status == "not steady"
    assert found <= most * 200


def test_a_window_that_drifts_as_a_whole_has_no_steady_part():
    found = steady_from(*runtimes(2.0), 0, 60)
    assert (found.status, found.begins_s) == ("not steady", None)
    assert "no steady part" in found.text


def test_steadiness_needs_values():
    assert steady_from([1.0] * 99, [1.0] * 99, 0, 60).status == "not judged"


def test_blocks_leave_out_what_is_too_thin():
    found = blocks_of([0.5, 1.5, 1.6, 3.9, 9.0], [1, 2, 4, math.nan, 5], 0, 4, 4, 1)
    assert found.middle_s.tolist() == [0.5, 1.5]
    assert found.median.tolist() == [1, 3]
    assert found.length_s == 1


def test_lag1_of_known_series():
    assert lag1([1.0, 1.0, 1.0]) == 0
    assert lag1(np.tile([1.0, -1.0], 500)) == pytest.approx(-1, abs=0.01)
    assert lag1(np.repeat(np.random.default_rng(1).normal(size=500), 10)) == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("freedom", [20, 29, 100, 5000])
@pytest.mark.parametrize("z", [-3.8906, -1.0, 3.8906])
def test_chi2_quantiles_agree_with_scipy(freedom, z):
    exact = stats.chi2.ppf(stats.norm.cdf(z), freedom)
    assert chi2_quantile(z, freedom) == pytest.approx(exact, rel=0.04 if z < 0 else 0.01)


@pytest.mark.parametrize(
    "process, shape, rate", [("poisson", 1.0, 1.0), ("gamma", 0.25, 1.0), ("gamma", 4.0, 1.0), ("constant", 1.0, 1.0)]
)
def test_correct_processes_lie_in_their_band(process, shape, rate):
    outside = far = 0
    for seed in range(200):
        times = arrivals(process, rate, 3000, seed=seed, shape=shape)
        found = index_of_dispersion(times, 3000, process, shape)
        assert found.value is not None
        outside += not found.low <= found.value <= found.high
        if process != "constant":
            gaps = gap_autocorrelation(times, variation=shape**-0.5)
            far += abs(gaps.value or 0.0) > (gaps.bound or 0.0)
    assert outside == 0
    assert far <= 4  # 3 / sqrt(n) is three standard deviations; gaps that cluster have heavier tails


def test_bands_say_what_their_process_has():
    assert band("poisson", 1, 300, 10)[0] < 1 < band("poisson", 1, 300, 10)[1]
    low, high = band("gamma", 0.25, 300, 400)
    assert (low + high) / 2 == pytest.approx(4, rel=0.05)
    assert list(band("constant", 1, 300, 10)) == pytest.approx([0.0, 0.125])
    # However many windows there are, a tenth is no effect.
    assert list(band("poisson", 1, 10**6, 10)) == pytest.approx([0.9, 1.1])


def test_lateness_widens_windows_and_thins_gaps():
    times = arrivals("poisson", 1.0, 3000)
    assert index_of_dispersion(times, 3000, "poisson", late=50.0).value is None
    assert gap_autocorrelation(times, spread=1.0).every == 200
    assert gap_autocorrelation(times, spread=1.0).value is None


@pytest.mark.parametrize("rate, status", [(4.0, "growing"), (30.0, "growing"), (100.0, "not judged")])
def test_answers_that_all_come_behind_the_load_tell_by_how_far_apart_they_are(rate: float, status: str) -> None:
    """A hundred requests in a second; the first answer after twelve, and then so many per second."""
    found = answered_behind(100, 1.0, 12 + np.arange(100) / rate)
    assert found.status == status
    if status == "growing":
        assert found.text.startswith("100/s were offered")
        assert found.per_s == pytest.approx(100 - rate, rel=0.02)
    assert answered_behind(19, 1.0, 12 + np.arange(19) / rate).status == "not judged"
    # Of every tenth row the others are counted too.
    assert answered_behind(100, 1.0, 12 + np.arange(10) * 10 / rate, sampled=10).status == status
