"""Whether memory that grows with the requests shows, and noise does not pass for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benches.lib.endurance import HEADER, Endurance, read_series
from benches.lib.procs import BenchFailed
from benches.lib.trend import theil_sen

REQUESTS = 20e6


def run(per_request: float = 0.0, *, at_start: float = 0.0, saw: float = 0.0, seed: int = 1) -> Endurance:
    """A hundred seconds in readings: memory for good, taken once at the start, and let go with each part."""
    rng = np.random.default_rng(seed)
    at_s = np.arange(0, 100, 0.1)
    # Neighbours: the rate of each second differs.
    done = np.cumsum(np.repeat(rng.uniform(0.5, 1.5, 100), 10))
    done = done / done[-1] * REQUESTS
    part = done % 262_144 / 262_144
    rss = 40e6 + per_request * done + at_start * (done > 1e6) + saw * part + rng.normal(0, 2e5, done.size)
    return Endurance(done, rss, done * 5e-6, at_s)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_let_go_again_is_no_growth(seed: int) -> None:
    slope = run(saw=10e6, seed=seed).floor_per_request()
    assert slope.lo <= slope.value <= slope.hi
    assert abs(slope.value) < 0.05
    assert slope.hi < 0.2
    once = run(saw=10e6, at_start=20e6, seed=seed).floor_per_request()
    assert once == slope, "what is taken once, at the start, is left out"


@pytest.mark.parametrize("seed", range(5))
def test_half_a_byte_for_each_request_shows(seed: int) -> None:
    slope = run(0.6, saw=10e6, seed=seed).floor_per_request()
    assert slope.value == pytest.approx(0.6, abs=0.05)
    assert 0.5 < slope.lo < slope.hi


def test_a_tenth_has_its_middle_floor_and_peak() -> None:
    steady = Endurance(
        np.arange(1001.0), np.tile([10.0, 20.0, 30.0], 334)[:1001] * 2**20, np.arange(1001) * 5e-6, _at()
    )
    tenth = steady.tenth(9)
    assert (tenth.rss_bytes, tenth.floor_bytes, tenth.peak_bytes) == (20 * 2**20, 10 * 2**20, 30 * 2**20)
    assert tenth.cpu_s == pytest.approx(5e-6)
    assert tenth.rate == pytest.approx(10.0)
    row = tenth.row("last")
    assert row == ["last", "10", "20.0", "10.0", "30.0", "5.00"]
    assert len(row) == len(HEADER)


def _at() -> np.ndarray:
    return np.arange(1001) * 0.1


def test_a_run_too_short_is_no_measurement() -> None:
    few = np.array([0.0, 5.0, 10.0])
    with pytest.raises(BenchFailed, match="too short"):
        Endurance(few, few, few, few).tenth(3)
    some = np.arange(20.0)
    with pytest.raises(BenchFailed, match="18 readings"):
        Endurance(some, some, some, some).floor_per_request()


def test_a_series_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "series.txt"
    path.write_text("10 4096 0.5 100.25\n20 8192 1.0 100.35\n", encoding="ascii")
    found = read_series(path)
    assert found.done.tolist() == [10, 20]
    assert found.rss_bytes.tolist() == [4096, 8192]
    assert found.cpu_s.tolist() == [0.5, 1.0]
    assert found.at_s.tolist() == [100.25, 100.35]
    path.write_text("10 4096 0.5 100.25\n", encoding="ascii")
    with pytest.raises(BenchFailed, match="1 readings"):
        read_series(path)


def test_a_slope_is_exact_without_noise_and_holds_out_against_a_few_points_far_off() -> None:
    x = np.arange(12.0)
    exact = theil_sen(x, 3 * x + 1)
    assert (exact.value, exact.lo, exact.hi) == pytest.approx((3.0, 3.0, 3.0))
    off = 3 * x + 1
    off[[2, 9]] += (500.0, -400.0)
    found = theil_sen(x, off)
    assert found.value == pytest.approx(3.0, abs=0.1)
    assert found.lo <= 3.0 <= found.hi
    with pytest.raises(ValueError, match="four points"):
        theil_sen(x[:3], x[:3])


def test_the_interval_of_a_slope_covers_it_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    x = np.arange(20.0)
    for alike, least in ((0.0, 0.93), (0.6, 0.85)):
        held = 0
        for _ in range(400):
            noise = rng.normal(size=20)
            for k in range(1, 20):
                noise[k] += alike * noise[k - 1]
            found = theil_sen(x, 0.1 * x + noise)
            held += found.lo <= 0.1 <= found.hi
        assert held / 400 >= least, (alike, held)
