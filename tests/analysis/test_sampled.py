"""Levels that keep a row of some requests, and those that keep all: which of rows and seconds tells what."""

from __future__ import annotations

import polars as pl
import pytest

from gpusize.analysis.histograms import attainment, outcomes_due
from gpusize.analysis.read_levels import read_levels
from gpusize.analysis.slo import Slo
from gpusize.analysis.steadiness import growth_of
from tests.analysis.open_levels import arrivals, open_setting, run_of, sample_down, served

SLO = Slo.parse("p95 runtime <= 1s")


def test_a_backlog_is_judged_from_seconds_where_every_other_request_has_a_row(tmp_path):
    due = arrivals("poisson", 40, 60)
    # One server that answers 25/s: what is offered beyond that stays.
    offered = due.size / 60
    place = run_of(tmp_path / "r", due, served(due, 0.04), open_setting(40.0, 60, expected=due.size), 60)
    sample_down(place / "levels" / "0000", 2)
    [sampled] = read_levels(place)
    found = growth_of(sampled)
    assert found.status == "growing"
    assert found.share == pytest.approx(1 - 25 / offered, rel=0.1)
    assert found.per_s == pytest.approx(offered - 25, rel=0.1)


def test_all_requests_within_an_slo_are_all_and_no_more(tmp_path):
    due = arrivals("poisson", 40, 20)
    place = run_of(tmp_path / "r", due, due + 0.03, open_setting(40.0, 20, expected=due.size), 20)
    sample_down(place / "levels" / "0000", 10)
    [sampled] = read_levels(place)
    # Every request that was due in the steady window, whether it has a row or not.
    assert attainment(sampled, SLO) == (1.0, outcomes_due(sampled)["ok"])


def test_where_every_request_has_a_row_no_histogram_is_asked(tmp_path):
    due = arrivals("poisson", 40, 20)
    place = run_of(tmp_path / "r", due, due + 0.03, open_setting(40.0, 20, expected=due.size), 20)
    folder = place / "levels" / "0000" / "histograms"
    folder.mkdir()
    coarse = {"metric": ["runtime"], "second": [5], "stream": [0], "low_ns": [0], "high_ns": [10**9], "count": [99]}
    pl.DataFrame(coarse).write_parquet(folder / "part-00000.parquet")
    [level] = read_levels(place)
    assert level.sampled == 1
    assert level.quantile("runtime", 0.5) == pytest.approx(0.03, rel=1e-6)
