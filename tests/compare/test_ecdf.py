"""The distribution of a side's requests, against counting them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusize.analysis.compare.ecdf import SHARES, ecdf
from gpusize.analysis.compare.matching import Place
from gpusize.analysis.level import LevelData
from tests.compare.by_hand import measured, said


def requests(levels: list[LevelData]) -> tuple[np.ndarray, int]:
    """Runtimes in seconds of the steady requests that ended ok, ascending, and how many steady ones there were."""
    rows = []
    for level in levels:
        [window] = [each for each in level.intervals if each["name"] == "steady"]
        due = pl.col("due_ns").is_between(window["start_ns"], window["end_ns"], closed="left")
        rows.append(level.records.filter(due & (pl.col("outcome") != "cancelled")).collect())
    every = pl.concat(rows)
    ok = every.filter(pl.col("outcome") == "ok")
    return np.sort((ok["end_ns"] - ok["due_ns"]).to_numpy() / 1e9), every.height


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10_000),
    users=st.sampled_from([1, 4, 12]),
    failed=st.sampled_from([0.0, 0.02, 0.6]),
    runs=st.integers(1, 3),
)
def test_shares_are_those_of_counting(seed: int, users: int, failed: float, runs: int) -> None:
    levels = [measured(users, mean_ms=40, seed=seed + k, failed=failed) for k in range(runs)]
    found = ecdf(Place("x", [levels]), 0, "a")
    times, n = requests(levels)
    assert found is not None
    assert (found.n, found.failed, found.runs) == (n, n - times.size, runs)
    assert (found.values[0], found.values[-1]) == (pytest.approx(times[0]), pytest.approx(times[-1]))
    assert found.shares[-1] == pytest.approx(times.size / n)
    assert np.all(np.diff(found.values) >= 0)
    assert np.all(np.diff(found.shares) > 0)
    assert found.values.size <= SHARES + 1
    counted = np.searchsorted(times, found.values * (1 + 1e-12), side="right") / n
    # A value between two requests stands for the lower one: less than one request off.
    assert np.max(np.abs(counted - found.shares)) <= 1.000001 / n


def test_of_few_requests_every_one_has_its_step() -> None:
    levels = [measured(1, mean_ms=100, seed=3, failed=0.1)]
    found = ecdf(Place("x", [levels]), 0, "a")
    times, n = requests(levels)
    assert found is not None
    assert found.values == pytest.approx(times)
    assert found.shares == pytest.approx(np.arange(1, times.size + 1) / n)


def test_no_distribution_of_percentiles_of_nothing_and_of_other_samples() -> None:
    level = measured(4, mean_ms=40, seed=1)
    assert ecdf(Place("x", [[said(4, 10.0)]]), 0, "a") is None
    assert ecdf(Place("x", [[None]]), 0, "a") is None
    assert ecdf(Place("x", [[measured(4, mean_ms=40, seed=1, failed=1.0)]]), 0, "a") is None
    sampled = replace(level, meta={**level.meta, "sampled": 10})
    assert ecdf(Place("x", [[level, sampled]]), 0, "a") is None
