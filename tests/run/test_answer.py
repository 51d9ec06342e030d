"""When a result is a yes, a measured no or an interruption; and what else a result can show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import gpusize
from gpusize.base.errors import SloError, UsageError
from gpusize.cli.exit_code import judge
from gpusize.engine.clock_log import ClockLog
from gpusize.estimate.methods import Estimate
from gpusize.result import Result
from tests.run.fakes import FakeClock


@pytest.fixture
def result(tmp_path: Path) -> Result:
    """Three levels of a workflow on 2 GPUs, each request 1 ms long."""
    clock = FakeClock()
    with gpusize.Recorder(tmp_path, gpus=2, clock=clock.ns, clocks=ClockLog(read=clock.pair)) as recorder:
        for concurrency in (1, 2, 4):
            with recorder.level(concurrency) as level:
                for _ in range(4):
                    with level.request():
                        pass
    return gpusize.open_run(recorder.path)


def with_rows(result: Result, **columns: Any) -> Result:
    """The result with columns of its summary replaced."""
    changed = Result(result.paths, slos=result.slos)
    changed.summary = result.summary.with_columns(**columns)
    return changed


def estimate(gpus: int | None) -> Estimate:
    return Estimate("slope", 2, 10, gpus=gpus, reason=None if gpus else "too few levels")


def test_an_answer_is_a_yes(result: Result) -> None:
    assert judge(result, []) == (0, "")
    assert judge(result, [estimate(3), estimate(None)]) == (0, "")


def test_no_answer_is_a_no_with_its_reason(result: Result) -> None:
    assert judge(result, [estimate(None)]) == (1, "no estimate can be given: too few levels")


def test_the_first_answer_is_the_one_that_counts(result: Result) -> None:
    assert judge(result, [estimate(None), estimate(3)]) == (1, "no estimate can be given: too few levels")


def test_no_level_within_the_slo_is_a_no(result: Result) -> None:
    assert judge(result.asking(slos="p95 runtime <= 1us"), []) == (1, "no measured level meets p95 runtime <= 0.001ms")
    assert judge(result.asking(slos="p95 runtime <= 1s"), []).code == 0


def test_no_whole_level_is_a_no(result: Result) -> None:
    void = with_rows(result, state=pl.lit("interrupted"))
    assert judge(void, []) == (1, "no level was measured to its end")


def test_strict_makes_a_flag_a_no(result: Result) -> None:
    flagged = with_rows(result, flags=pl.lit(["generator-limited", "drift"]), delivered=pl.lit(value=True))
    assert judge(flagged, []).code == 0
    assert judge(flagged, [], strict=True) == (
        1,
        "3 of 3 levels cannot be believed as they stand: generator-limited",
    )


def test_strict_says_why_a_load_was_not_delivered(result: Result) -> None:
    verdict = judge(result, [], strict=True)
    # The clock moves a millisecond at each look, so that a request of 1 ms is seldom under way. Of the other levels
    # there are too few requests to say so.
    assert verdict.code == 1
    first, *reasons = verdict.why.splitlines()
    assert first == "1 of 3 levels cannot be believed as they stand: little, not-delivered"
    assert reasons[0].startswith("  concurrency 1 was not delivered, because 0.3333 requests were in flight, 1 were")


def test_strict_names_a_ramp_by_its_ends(result: Result) -> None:
    asked = {"concurrency": pl.lit(None, pl.Int64), "rate": pl.lit(130.0), "ramp": pl.lit("40 to 220/s")}
    late = with_rows(result, flags=pl.lit(["late"]), delivered=pl.lit(value=False), delivery=pl.lit("why"), **asked)
    reasons = judge(late, [], strict=True).why.splitlines()[1:]
    assert reasons[0] == "  40 to 220/s was not delivered, because why"
    users = with_rows(late, concurrency=pl.lit(8), ramp=pl.lit("1 to 8"))
    assert "  concurrency 1 to 8 was not delivered" in judge(users, [], strict=True).why


def test_what_is_found_of_the_target_is_no_doubt_about_the_load(result: Result) -> None:
    found = with_rows(result, flags=pl.lit(["saturated", "drift", "tokens"]), delivered=pl.lit(value=True))
    assert judge(found, [], strict=True) == (0, "")


def test_an_interruption_goes_before_everything(result: Result) -> None:
    result.cancelled = True
    verdict = judge(result, [estimate(None)])
    assert verdict.code == 130
    assert str(result.path) in verdict.why


def test_a_result_asks_for_what_it_needs(result: Result) -> None:
    with pytest.raises(UsageError, match="user count unknown"):
        result.estimate(slos="p95 runtime <= 1s")
    with pytest.raises(UsageError, match="no SLO"):
        result.estimate(users=3)
    with pytest.raises(SloError):
        result.estimate(users=3, slos="fast please")
    with pytest.raises(UsageError, match=r"no argument .slo.\. Did you mean .slos."):
        result.estimate(users=3, slo="p95 runtime <= 1s")
    with pytest.raises(UsageError, match=r"at most 200 %, not 2000 %\. Give it as a share: 0\.2 is 20 %"):
        result.estimate(users=3, slos="p95 runtime <= 1s", headroom=20)
    with pytest.raises(UsageError, match="an estimate takes one method, not all"):
        result.estimate(3, "p95 runtime <= 1s", method="all")
    estimates = result.estimates(3, "p95 runtime <= 1s")
    assert sorted(each.method for each in estimates) == ["crossing", "slope", "twin"]
    assert estimates[0] == result.estimate(3, "p95 runtime <= 1s")
    assert not result.can_estimate
    assert result.asking(3, ["p95 runtime <= 1s"]).can_estimate


def test_a_result_draws_what_it_has(result: Result) -> None:
    figure = result.plot("runtime")
    assert figure.axes
    with pytest.raises(UsageError, match=r"this result has no figure 'fit'\. There are runtime"):
        result.plot("fit")
    assert result.asking(3, "p95 runtime <= 1s").plot("attainment").axes


def test_a_result_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a run"):
        Result([])
    with pytest.raises(UsageError, match="no run is named"):
        gpusize.open_run([])
