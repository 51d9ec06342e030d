"""Warm-up, steady and drain, and Little's law, on closed and open loops in virtual time."""

from __future__ import annotations

import polars as pl
import pytest

from gpusize.analysis.windows import intervals, littles_law
from gpusize.records.schema import OUTCOMES, from_arrow, outcome_dtype
from tests.analysis.synthetic import MS, closed, frame, level, lognormal_ns

START = 1_000_000_000
CANCELLED = OUTCOMES.index("cancelled")


def cut(lv, **changes):
    return intervals({**lv.meta, **changes}, lv.records)


def names(windows):
    return [i["name"] for i in windows.intervals]


def steady(windows):
    (found,) = [i for i in windows.intervals if i["name"] == "steady"]
    return found


def assert_a_partition(windows, lv):
    ends = [(i["start_ns"], i["end_ns"]) for i in windows.intervals]
    assert all(low <= high for low, high in ends)
    assert [high for _, high in ends[:-1]] == [low for low, _ in ends[1:]]
    due = lv.records.select(pl.col("due_ns")).collect()["due_ns"]
    assert ends[0][0] <= due.min()
    assert due.max() < ends[-1][1]


def test_with_passes_all_is_steady():
    lv = level(4, closed(4, lambda k: 50 * MS, count=8), passes=2)
    windows = cut(lv)
    assert names(windows) == ["steady"]
    assert windows.alerts == []
    assert steady(windows) == {"name": "steady", "start_ns": START, "end_ns": START + 100 * MS, "method": "passes"}
    assert_a_partition(windows, lv)


def test_with_passes_a_warm_up_that_was_asked_for_is_cut():
    lv = level(4, closed(4, lambda k: 50 * MS, count=40), passes=10)
    windows = intervals(lv.meta, lv.records, warmup_s=0.1)
    assert names(windows) == ["warmup", "steady"]
    assert steady(windows)["start_ns"] == START + 100 * MS


def test_a_warm_up_beyond_the_level_is_refused_with_an_alert():
    lv = level(4, closed(4, lambda k: 50 * MS, count=40), passes=10)
    windows = intervals(lv.meta, lv.records, warmup_s=100.0)
    assert names(windows) == ["steady"]
    assert "leaves no request" in windows.alerts[0]


def test_a_closed_loop_loses_fill_residence_and_drain():
    lv = level(4, closed(4, lambda k: 100 * MS, duration_ns=5000 * MS), duration_s=5)
    windows = cut(lv)
    assert names(windows) == ["warmup", "steady", "drain"]
    assert steady(windows)["start_ns"] == START + 100 * MS  # filled at the start, then one residence
    assert steady(windows)["end_ns"] == lv.meta["close_ns"] - 100 * MS
    assert windows.alerts == []
    assert_a_partition(windows, lv)


def test_fill_waits_for_the_slots_that_the_level_before_still_holds():
    # Slot 0 is free at once and fast; slots 1 to 3 are taken over half a second later.
    fast = {"due_ns": [START + k * 20 * MS for k in range(500)]}
    slow = {"due_ns": [START + 500 * MS + k * 100 * MS + j for k in range(90) for j in range(3)]}
    due = fast["due_ns"] + slow["due_ns"]
    end = [d + 20 * MS for d in fast["due_ns"]] + [d + 100 * MS for d in slow["due_ns"]]
    lv = level(4, {"due_ns": due, "sent_ns": due, "fired_ns": due, "end_ns": end}, duration_s=10)
    filled_s = 0.5
    assert steady(cut(lv))["start_ns"] >= START + filled_s * 1e9 + 100 * MS
    assert steady(cut(lv))["start_ns"] <= START + filled_s * 1e9 + 121 * MS


def test_an_open_loop_loses_one_residence_at_both_ends():
    due = [START + k * MS for k in range(2000)]
    lv = level(
        None, {"due_ns": due, "fired_ns": due, "sent_ns": due, "end_ns": [d + 200 * MS for d in due]}, rate=1000.0
    )
    windows = cut(lv)
    assert names(windows) == ["warmup", "steady", "drain"]
    assert steady(windows)["start_ns"] == START + 200 * MS
    assert steady(windows)["end_ns"] == lv.meta["close_ns"] - 200 * MS


def test_a_warm_up_that_was_asked_for_replaces_the_rule():
    lv = level(4, closed(4, lambda k: 100 * MS, duration_ns=5000 * MS), duration_s=5)
    windows = intervals(lv.meta, lv.records, warmup_s=2.0)
    assert steady(windows)["start_ns"] == START + 2000 * MS
    assert windows.intervals[0]["method"] == "asked for: 2 s"


def test_too_short_for_the_drain_gives_it_up_first():
    lv = level(8, closed(8, lambda k: 1000 * MS, duration_ns=3999 * MS), duration_s=4)
    windows = cut(lv)
    assert names(windows) == ["warmup", "steady"]
    assert "too short to leave out the drain" in windows.alerts[0]


def test_too_short_for_anything_counts_all_and_says_so():
    lv = level(8, closed(8, lambda k: 1000 * MS, count=12), count=12)
    windows = cut(lv)
    assert names(windows) == ["steady"]
    assert "all 12 count" in windows.alerts[0]
    assert lv.steady().collect().height == 12


def waiting(state="done", *, every=1, due_s=10.0, sent_s=6.0, **setting):
    """100 requests a second, each 100 ms long, of which those due after ``sent_s`` still waited when it was ended."""
    due = [START + k * 10 * MS for k in range(0, round(due_s * 100), every)]
    sent = [at if at < START + sent_s * 1e9 else None for at in due]
    columns = {
        "seq": list(range(0, len(due) * every, every)),
        "due_ns": due,
        "fired_ns": due,
        "sent_ns": sent,
        "end_ns": [at + 100 * MS if gone else START + 10**10 for at, gone in zip(due, sent, strict=True)],
        "outcome": [0 if gone else CANCELLED for gone in sent],
    }
    return level(None, columns, state=state, rate=100.0, **setting)


def test_requests_that_an_end_left_unsent_are_in_no_window():
    lv = waiting()
    windows = cut(lv, close_ns=START + 10**10)
    assert names(windows) == ["warmup", "steady", "drain"]
    # The first of them was due at 6 s; what was in flight then began up to one residence before.
    assert steady(windows)["end_ns"] == START + 5900 * MS
    assert "never sent" in windows.intervals[-1]["method"]
    assert_a_partition(windows, lv)
    assert set(lv.steady().collect()["outcome"]) == {"ok"}


def test_a_ramp_counts_up_to_the_first_request_that_was_never_sent():
    windows = cut(waiting(from_rate=10.0, to_rate=190.0))
    assert names(windows) == ["steady", "drain"]
    assert steady(windows)["end_ns"] == START + 6000 * MS


def test_few_requests_before_the_first_unsent_one_are_all_that_counts():
    windows = cut(waiting(sent_s=0.1))
    assert names(windows) == ["steady", "drain"]
    assert "all 10 count" in windows.alerts[0]


def test_the_window_of_a_sampled_level_ends_with_the_last_second_that_was_sent():
    lv = waiting(every=7)
    windows = cut(lv, sampled=7, close_ns=START + 10**10)
    assert steady(windows)["end_ns"] == START + 4000 * MS  # sent up to 5.95 s, less one residence, in whole seconds


def test_what_was_void_or_failed_to_connect_is_left_where_it_is():
    assert names(cut(waiting("interrupted"))) == ["steady"]
    lv = waiting()
    refused = pl.when(pl.col("outcome") == "cancelled").then(pl.lit("connect_error")).otherwise(pl.col("outcome"))
    windows = intervals(lv.meta, lv.records.with_columns(outcome=refused.cast(outcome_dtype())))
    assert steady(windows)["end_ns"] == lv.meta["close_ns"] - 100 * MS


def test_an_interrupted_level_is_left_whole():
    lv = level(4, closed(4, lambda k: 100 * MS, duration_ns=5000 * MS), duration_s=5, state="interrupted")
    assert names(cut(lv)) == ["steady"]


def test_a_level_without_requests_has_an_empty_window():
    records = from_arrow(frame({"due_ns": []}))
    meta = {"setting": {"kind": "closed", "concurrency": 4, "duration_s": 1}, "start_ns": 5, "close_ns": 9, "end_ns": 9}
    assert names(intervals(meta, records)) == ["steady"]


def test_metadata_lost_in_a_crash_is_taken_from_the_records():
    lv = level(4, closed(4, lambda k: 100 * MS, count=200), count=200)
    meta = {"setting": lv.setting, "state": "partial"}
    assert steady(intervals(meta, lv.records)) == steady(cut(lv))


def test_which_requests_count_does_not_depend_on_how_they_ended():
    columns = closed(4, lambda k: 100 * MS, duration_ns=5000 * MS)
    slow_last = {**columns, "end_ns": [*columns["end_ns"][:-1], columns["end_ns"][-1] + 3600 * 10**9]}
    lv = level(4, columns, duration_s=5)
    late = level(4, slow_last, duration_s=5)
    due = [x.steady().select("due_ns").collect()["due_ns"].to_list() for x in (lv, late)]
    assert due[0] == due[1]


def check(lv):
    return littles_law(lv.meta, lv.records, lv.window())


@pytest.mark.parametrize("concurrency", [1, 7, 64])
def test_little_agrees_with_a_load_that_was_delivered(concurrency):
    lv = level(concurrency, closed(concurrency, lognormal_ns(1, 50 * MS, 0.5), duration_ns=4000 * MS), duration_s=4)
    found = check(lv)
    assert found.status == "ok"
    assert found.ratio == pytest.approx(1, abs=1e-9)


def test_little_flags_slots_that_idle():
    lv = level(8, closed(8, lambda k: 50 * MS, duration_ns=4000 * MS, idle_ns=10 * MS), duration_s=4)
    found = check(lv)
    assert found.status == "flagged"
    assert found.in_flight == pytest.approx(8 * 50 / 60, rel=0.02)


def test_little_tolerates_five_percent():
    lv = level(8, closed(8, lambda k: 50 * MS, duration_ns=4000 * MS, idle_ns=2 * MS), duration_s=4)
    assert check(lv).status == "ok"


def test_little_counts_think_time():
    columns = closed(8, lambda k: 50 * MS, duration_ns=4000 * MS, idle_ns=150 * MS)
    lv = level(8, columns, duration_s=4, think_s=0.15)
    assert check(lv).status == "ok"
    assert check(level(8, columns, duration_s=4)).status == "flagged"


def test_who_is_cut_off_at_the_end_did_not_pause():
    """Other tools give no end of what they cut off; it was in flight, and nobody thought meanwhile."""
    columns = closed(8, lambda k: 50 * MS, duration_ns=4000 * MS)
    cancelled = OUTCOMES.index("cancelled")
    ends = [None if end >= 5000 * MS else end for end in columns["end_ns"]]
    assert ends.count(None) == 8
    lost = {**columns, "end_ns": ends, "outcome": [cancelled if end is None else 0 for end in ends]}
    found = check(level(8, lost, duration_s=4))
    assert found.status == "ok"
    assert found.in_flight == pytest.approx(8)


@pytest.mark.parametrize("passes, status", [(2, "not checkable"), (3, "not checkable"), (5, "ok")])
def test_little_needs_a_few_rounds(passes, status):
    lv = level(4, closed(4, lognormal_ns(3, 50 * MS, 0.2), count=4 * passes), passes=passes)
    assert check(lv).status == status


def test_little_has_nothing_to_say_about_an_open_loop():
    due = [START + k * MS for k in range(100)]
    lv = level(None, {"due_ns": due, "sent_ns": due, "fired_ns": due, "end_ns": due}, rate=1000.0)
    assert check(lv).status == "not checkable"
    assert "rate" in check(lv).reason


def test_little_with_nothing_sent():
    lv = level(2, {"due_ns": [START, START], "end_ns": [START, START], "outcome": [4, 4]}, passes=1)
    assert check(lv).reason == "no request was sent"


def test_a_short_sampled_level_counts_all_its_requests():
    lv = level(1, closed(1, lambda k: 50 * MS, count=4))
    [alert] = cut(lv, sampled=5).alerts
    assert alert.startswith("too short for a steady window: ")
    assert alert.endswith(" requests were due after the warm-up; all 20 count")
