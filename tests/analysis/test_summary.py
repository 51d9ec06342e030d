"""The summary: known truths in, known rows out, and the flags that say not to believe a row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from gpusize.analysis.checks import check
from gpusize.analysis.histograms import histogram_quantiles
from gpusize.analysis.pooling import pool
from gpusize.analysis.slo import Slo
from gpusize.analysis.summary import SUMMARY_COLUMNS, summarize
from tests.analysis.synthetic import MS, closed, level, lognormal_ns


def steady(concurrency=4, idle_ns=0, **more):
    columns = closed(concurrency, lambda k: 100 * MS, duration_ns=5000 * MS, idle_ns=idle_ns)
    return level(concurrency, columns, duration_s=5, **more)


def row(*levels, slos=()):
    rows = summarize(levels, [Slo.parse(text) for text in slos]).to_dicts()
    return rows[0]


def with_meta(lv, **changes):
    return replace(lv, meta={**lv.meta, **changes})


def test_a_constant_service_gives_its_own_numbers():
    found = row(steady())
    assert found["kind"] == "closed"
    assert found["concurrency"] == 4
    assert found["rate"] is None
    assert found["n"] == 4 * 48  # 5 s less one residence at each end
    assert found["offered_rate"] == pytest.approx(40, rel=0.01)
    assert found["achieved_rate"] == found["offered_rate"]
    assert [found[f"runtime_{q}_s"] for q in ("p50", "p90", "p95", "p99", "max")] == [0.1] * 5
    assert found["runtime_mean_s"] == pytest.approx(0.1)
    assert found["total_runtime_s"] == pytest.approx(5.0)
    assert found["little"] == "ok"
    assert found["little_n"] == pytest.approx(4)
    assert found["errors"] == 0
    assert found["flags"] == []


def test_passes_reproduce_the_calculators_figures():
    lv = level(3, closed(3, lognormal_ns(5, 80 * MS, 0.4), count=9), passes=3)
    records = lv.records.collect()
    runtimes = ((records["end_ns"] - records["due_ns"]).to_numpy()) / 1e9
    found = row(lv)
    assert found["n"] == 9
    assert found["runtime_p95_s"] == np.percentile(runtimes, 95)
    assert found["total_runtime_s"] == (records["end_ns"].max() - records["sent_ns"].min()) / 1e9


def test_without_tokens_there_are_no_token_figures():
    found = row(steady())
    assert {found[name] for name in found if name.startswith(("ttft", "itl", "tokens"))} == {None}


def test_tokens_per_second():
    due = [0, 10**9, 2 * 10**9, 3 * 10**9]
    columns = {
        "due_ns": due,
        "fired_ns": due,
        "sent_ns": due,
        "first_token_ns": [d + 200 * MS for d in due],
        "last_token_ns": [d + 900 * MS for d in due],
        "end_ns": [d + 10**9 for d in due],
        "tokens_in": [10] * 4,
        "tokens_out": [30, 30, 30, None],
    }
    found = row(level(1, columns, passes=4))
    # Three answers came while there was something to answer; the last one came while the level drained.
    assert found["tokens_out_per_s"] == pytest.approx(90 / 3)
    assert found["tokens_in_per_s"] == pytest.approx(30 / 3)
    assert found["ttft_p50_s"] == 0.2


def test_errors_are_counted_by_outcome_and_never_make_a_level_fast():
    due = [k * 10 * MS for k in range(100)]
    outcomes = [0] * 100
    outcomes[5::10] = [3] * 5 + [1] * 2 + [8] * 3
    end = [d + (MS if o else 100 * MS) for d, o in zip(due, outcomes, strict=True)]
    lv = level(10, {"due_ns": due, "fired_ns": due, "sent_ns": due, "end_ns": end, "outcome": outcomes}, passes=10)
    found = row(lv, slos=["p95 runtime <= 100ms", "share ok >= 90%"])
    assert (found["errors"], found["err_timeout"], found["err_http_error"], found["err_cancelled"]) == (7, 5, 2, 3)
    assert found["runtime_p50_s"] == 0.1
    assert found["achieved_rate"] == pytest.approx(found["offered_rate"] * 0.9, rel=0.02)
    assert found["slo_0_attainment"] == pytest.approx(90 / 97)
    assert found["slo_0_over"] == 7
    assert (found["slo_0_met"], found["slo_1_met"]) == (False, True)


def test_only_outcomes_that_occurred_have_a_column():
    assert not [name for name in summarize([steady()]).columns if name.startswith("err_")]


def test_an_slo_on_what_was_not_measured_is_null():
    found = row(steady(), slos=["p95 ttft <= 1s", "p95 llm_latency <= 1s"])
    assert found["slo_0_attainment"] is found["slo_0_over"] is found["slo_0_met"] is None
    assert found["slo_1_met"] is None


def test_a_mean_is_judged_by_the_mean():
    found = row(steady(), slos=["mean runtime <= 100ms", "mean runtime <= 99ms"])
    assert (found["slo_0_met"], found["slo_1_met"]) == (True, False)


def test_an_open_loop_row():
    due = [k * MS for k in range(5000)]
    lv = level(
        None, {"due_ns": due, "fired_ns": due, "sent_ns": due, "end_ns": [d + 50 * MS for d in due]}, rate=1000.0
    )
    found = row(lv)
    assert (found["kind"], found["concurrency"], found["rate"]) == ("open", None, 1000.0)
    assert found["offered_rate"] == pytest.approx(1000, rel=0.001)
    assert found["little"] == "not checkable"


def test_itl_comes_from_the_histogram():
    buckets = {"metric": ["itl"] * 3, "low_ns": [9 * MS, 19 * MS, 99 * MS], "high_ns": [11 * MS, 21 * MS, 101 * MS]}
    lv = replace(steady(), histograms=pl.LazyFrame({**buckets, "count": [90, 9, 1]}))
    found = row(lv)
    assert [found[f"itl_{q}_s"] for q in ("p50", "p90", "p95", "p99", "max")] == [0.01, 0.01, 0.02, 0.02, 0.101]


def test_a_quantile_of_a_histogram_is_the_request_of_that_rank():
    buckets = {"metric": ["itl"] * 3, "low_ns": [9 * MS, 19 * MS, 99 * MS], "high_ns": [11 * MS, 21 * MS, 101 * MS]}
    lv = replace(steady(), histograms=pl.LazyFrame({**buckets, "count": [1, 2, 1]}))
    shares = [0.0, 0.25, 0.26, 0.75, 0.76]
    ranked = np.quantile([0.01, 0.02, 0.02, 0.1], shares, method="inverted_cdf")
    assert histogram_quantiles(lv, "itl", shares) == pytest.approx(list(ranked))


def test_the_columns_are_those_that_are_documented():
    columns = summarize([steady()], [Slo.parse("p95 runtime <= 1s")]).columns
    assert columns[: len(SUMMARY_COLUMNS)] == list(SUMMARY_COLUMNS)
    assert columns[len(SUMMARY_COLUMNS) :] == ["slo_0", "slo_0_attainment", "slo_0_over", "slo_0_met"]


def test_rows_keep_the_order_of_the_levels_and_no_level_gives_no_row():
    assert summarize([steady(8, visit=3), steady(2, visit=1)])["visit"].to_list() == [3, 1]
    assert summarize([]).height == 0


def test_requests_that_were_asked_again_are_told_of_the_whole_visit():
    once, again = with_meta(steady(), asked_again=3), with_meta(steady(visit=1), asked_again=4)
    assert row(once)["asked_again"] == 3
    assert row(*pool([once, again]))["asked_again"] == 7
    # Runs from before there was such a count.
    assert row(*pool([once, steady(visit=1)]))["asked_again"] is None


def test_a_pooled_level_is_one_row_of_all_requests():
    once = steady()
    found = row(*pool([once, steady(visit=1)]))
    assert found["n"] == 2 * row(once)["n"]
    assert found["offered_rate"] == pytest.approx(row(once)["offered_rate"])


def test_the_generators_cpu():
    elapsed = steady().meta["end_ns"] - steady().meta["start_ns"]
    busy = with_meta(steady(), cpu_ns=elapsed * 2 * 0.9, workers=2)
    found = row(busy)
    assert found["generator_cpu"] == pytest.approx(0.9)
    assert found["flags"] == ["generator-limited"]
    assert "90%" in found["alerts"][0]
    assert row(with_meta(steady(), cpu_ns=elapsed * 0.7))["flags"] == []
    # Of a level of a few milliseconds, set-up and the last part are most of the CPU time.
    short = with_meta(steady(), start_ns=0, end_ns=10_000_000, cpu_ns=25_000_000)
    assert row(short)["generator_cpu"] is None


@pytest.mark.parametrize("late_ms,flags", [(0.9, []), (1.5, ["generator-limited"])])
def test_the_generators_lateness(late_ms, flags):
    columns = closed(4, lambda k: 100 * MS, duration_ns=5000 * MS, idle_ns=int(late_ms * MS))
    columns["fired_ns"] = columns["sent_ns"]
    found = check(level(4, columns, duration_s=5))
    assert found.flags == flags
    assert found.pacer_late_p99_s == pytest.approx(late_ms / 1e3)


def test_a_long_request_makes_more_lateness_bearable():
    columns = closed(4, lambda k: 1000 * MS, duration_ns=20_000 * MS, idle_ns=5 * MS)
    columns["fired_ns"] = columns["sent_ns"]
    assert check(level(4, columns, duration_s=20)).flags == []


def test_waiting_for_connections_is_told_from_being_late():
    assert check(steady(idle_ns=3 * MS)).flags == ["connection-limited"]


def test_slots_that_idle_and_states_are_flagged():
    found = check(steady(idle_ns=20 * MS, state="interrupted"))
    assert found.flags == ["interrupted", "little", "connection-limited", "not-delivered"]
    assert found.alerts[0].startswith("Little's law: ")


def test_lost_records_are_flagged():
    assert check(with_meta(steady(), write_error="No space left on device")).flags == ["write-error"]
