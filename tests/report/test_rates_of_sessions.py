"""Rates of conversations are called that: each of them brings several requests."""

from __future__ import annotations

from typing import Any

import pytest

from gpusize.estimate.question import Estimate
from gpusize.report.live.facts import setting_text
from gpusize.report.page.off_by_one import off_by_one
from gpusize.report.summary.columns import level_column
from gpusize.report.summary.sweep import sweep_of
from tests.report.results import SLO, Source, frame, meta, row

RATES = (5.0, 12.0, 16.0)


def open_result(**more: Any) -> Source:
    settings = [{"kind": "open", "rate": rate, **more} for rate in RATES]
    return Source(frame([row(rate, 1.0, kind="open") for rate in RATES]), meta(levels=settings))


@pytest.fixture
def by_session() -> Source:
    return open_result(unit="session")


def test_tables_and_axes_name_sessions(by_session: Source) -> None:
    sweep = sweep_of(by_session)
    assert level_column(sweep).unit == "sess/s"
    assert sweep.x_label == "offered rate (sessions/s)"
    assert sweep.at(sweep.levels[0]).endswith(" sessions/s")
    plain = sweep_of(open_result())
    assert (level_column(plain).unit, plain.x_unit) == ("req/s", "requests/s")


def test_a_rate_of_requests_has_no_place_among_rates_of_sessions(by_session: Source) -> None:
    asked = Estimate("scaling", 8, None, SLO, gpus=8, rate=10.0)
    assert off_by_one(asked, sweep_of(open_result()))
    assert off_by_one(asked, sweep_of(by_session)) == []


def test_a_running_level_names_sessions() -> None:
    setting = {"kind": "open", "rate": 5.0, "process": "poisson"}
    assert setting_text(setting) == "5/s poisson"
    assert setting_text({**setting, "unit": "session"}) == "5 sessions/s poisson"
