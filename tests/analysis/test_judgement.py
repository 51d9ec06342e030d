"""What is to be believed of a level: flags and columns of open loops, ramps, sampled levels, tokens and goodput."""

from __future__ import annotations

import json
import re

import numpy as np
import polars as pl
import pytest

from gpusize.analysis.checks import check
from gpusize.analysis.read_levels import read_levels
from gpusize.analysis.slo import Slo
from gpusize.analysis.summary import summarize
from gpusize.analysis.tokens import token_counts
from gpusize.analysis.windows import intervals, littles_law
from gpusize.base.errors import StoreError
from gpusize.records.per_second import scan_seconds
from gpusize.records.schema import OUTCOMES
from gpusize.result import Result
from tests.analysis.open_levels import (
    START_NS,
    arrivals,
    columns,
    open_setting,
    run_of,
    sample_down,
    served,
    write_level,
    write_run,
)
from tests.analysis.synthetic import MS, closed, lognormal_ns
from tests.report.folders import level_columns, run_folder, streamed

SHED, TIMEOUT = OUTCOMES.index("shed"), OUTCOMES.index("timeout")


def one(place, slos=()):
    (level,) = read_levels(place)
    return summarize([level], [Slo.parse(text) for text in slos]).row(0, named=True)


def queue(place, rate, *, servers=((0.0, 10),), length_s=60, seed=1, setting=None, **more):
    """A level against a queue of servers that take 0.1 s each: ten of them serve 100/s."""
    due = arrivals("poisson", rate, length_s, seed=seed)
    asked = open_setting(float(rate), length_s, expected=due.size, **(setting or {}))
    return run_of(place, due, served(due, 0.1, servers), asked, length_s, **more)


def test_a_target_that_keeps_up_is_not_saturated(tmp_path):
    found = one(queue(tmp_path / "r", 70))
    assert (found["delivered"], found["saturated"], found["drift"], found["steady"]) == (True, False, None, True)
    assert found["delivery"] == "this load was delivered"
    assert (found["shed"], found["unsent"], found["sampled"]) == (0, 0, 1)
    assert found["flags"] == []


def test_a_target_that_does_not_is_although_all_was_sent(tmp_path):
    found = one(queue(tmp_path / "r", 130))
    assert found["delivered"] is True
    assert found["saturated"] is True
    assert "saturated" in found["flags"]
    (alert,) = [text for text in found["alerts"] if text.startswith("saturated: ")]
    numbers = [float(each) for each in re.findall(r"([\d.]+)/s", alert)]
    assert numbers == [pytest.approx(130, rel=0.03), pytest.approx(100, rel=0.01)]


def test_what_was_shed_counts_as_offered(tmp_path):
    due = arrivals("poisson", 100, 60)
    outcome = [SHED if k % 4 == 0 else 0 for k in range(due.size)]
    sent = np.where(np.array(outcome) == 0, due, np.nan)
    place = run_of(tmp_path / "r", due, due + 0.02, open_setting(100.0, 60), 60, sent_s=sent, outcome=outcome)
    found = one(place)
    assert found["shed"] == found["err_shed"] > 0
    assert found["n"] == found["shed"] + found["unsent"] + round(
        found["achieved_rate"] * found["n"] / found["offered_rate"]
    )
    assert found["delivered"] is False
    assert found["saturated"] is True
    assert {"not-delivered", "saturated"} <= set(found["flags"])
    assert any("were shed: the target did not keep up" in text for text in found["alerts"])


def test_a_short_level_that_sheds_says_so(tmp_path):
    """Too few whole seconds to tell whether a backlog grows; what was shed tells."""
    due = arrivals("poisson", 100, 8)
    outcome = [SHED if k % 4 == 0 else 0 for k in range(due.size)]
    sent = np.where(np.array(outcome) == 0, due, np.nan)
    place = run_of(tmp_path / "r", due, due + 0.02, open_setting(100.0, 8), 8, sent_s=sent, outcome=outcome)
    sample_down(place / "levels" / "0000", 4)
    (said,) = [text for text in one(place)["alerts"] if text.startswith("saturated: ")]
    assert re.match(r"saturated: \d+ of \d+ requests were shed; times then", said)


@pytest.mark.parametrize("late_s, cpu, flagged", [(0.0, 0.5, 0), (0.05, 0.5, 1), (0.0, 0.9, 1), (0.05, 0.9, 2)])
def test_each_way_of_being_generator_limited_is_said(tmp_path, late_s, cpu, flagged):
    due = arrivals("poisson", 100, 60)
    late = due + late_s
    facts = {"cpu_ns": round(cpu * 60e9)}
    place = run_of(
        tmp_path / "r", due, late + 0.02, open_setting(100.0, 60), 60, sent_s=late, fired_s=late, facts=facts
    )
    (level,) = read_levels(place)
    found = check(level)
    said = [text for text in found.alerts if text.startswith("generator-limited: ")]
    assert len(said) == flagged
    assert ("generator-limited" in found.flags) is bool(flagged)
    assert all("--workers" in text for text in said)


def test_drift_is_flagged_with_its_size(tmp_path):
    due = arrivals("poisson", 100, 60)
    runtime = 0.02 * (1 + due / 60) * np.random.default_rng(2).lognormal(0, 0.1, due.size)
    found = one(run_of(tmp_path / "r", due, due + runtime, open_setting(100.0, 60), 60))
    assert found["flags"] == ["drift"]
    assert "of the median over the window" in found["drift"]


def test_a_window_that_begins_too_early_is_told_with_a_better_start(tmp_path):
    due = arrivals("poisson", 200, 60)
    runtime = 0.02 * (1 + 4 * np.exp(-due / 2)) * np.random.default_rng(2).lognormal(0, 0.1, due.size)
    found = one(run_of(tmp_path / "r", due, due + runtime, open_setting(200.0, 60), 60))
    assert found["steady"] is False
    assert any("perhaps not steady: its first" in text and "--warmup" in text for text in found["alerts"])


def test_levels_of_a_closed_sweep_beyond_the_knee_are_saturated(tmp_path):
    """Eight servers: beyond eight users each waits for the others."""
    levels = {}
    for users in (2, 4, 8, 16, 32):
        service_ns = round(100 * MS * max(1.0, users / 8))
        levels[users] = closed(users, lambda _: service_ns, duration_ns=5000 * MS)  # noqa: B023 -- called at once
    found = Result([run_folder(tmp_path / "r", levels)]).summary
    assert found["saturated"].to_list() == [None, False, False, True, True]
    assert found["flags"].to_list() == [[]] * 5  # of a closed loop it is a finding, not a doubt


def test_of_a_ramp_all_counts_and_no_steady_state_is_claimed(tmp_path):
    due = np.sort(np.random.default_rng(1).triangular(0, 60, 60, 3000))
    setting = open_setting(50.0, 60, from_rate=0.0, to_rate=100.0)
    place = run_of(tmp_path / "r", due, due + 0.05, setting, 60)
    (level,) = read_levels(place)
    (only,) = level.intervals
    assert only["method"] == "a ramp: all count, no steady state is assumed"
    found = one(place)
    assert found["n"] == 3000
    assert (found["drift"], found["steady"], found["saturated"]) == (None, None, None)
    assert found["ramp"] == "0 to 100/s"
    assert any(text.startswith("a ramp from 0 to 100/s: figures cover all its requests") for text in found["alerts"])


def test_a_ramp_of_users_is_left_whole_and_has_no_little(tmp_path):
    place = run_folder(tmp_path / "r", {4: level_columns(4)})
    (level,) = read_levels(place)
    meta = {**level.meta, "setting": {**level.setting, "from": 1}}
    assert [each["name"] for each in intervals(meta, level.records).intervals] == ["steady"]
    assert littles_law(meta, level.records, level.window()).status == "not checkable"


def sampled_pair(tmp_path, every=20, slos=()):
    """The same level with all rows, and with 1 in ``every`` of them."""
    rng = np.random.default_rng(7)
    due = arrivals("poisson", 300, 60)
    sent = due + 0.0002
    end = sent + rng.lognormal(-3, 0.5, due.size)
    outcome = np.where(rng.random(due.size) < 0.03, TIMEOUT, 0).tolist()
    first = sent + 0.3 * (end - sent)
    more = {"first_token_ns": [START_NS + round(at * 1e9) for at in first.tolist()], "outcome": outcome}
    setting = open_setting(300.0, 60, expected=due.size)
    places = [run_of(tmp_path / name, due, end, setting, 60, sent_s=sent, **more) for name in ("all", "some")]
    sample_down(places[1] / "levels" / "0000", every)
    # Judged over the same whole seconds.
    file = places[0] / "levels" / "0000" / "level.json"
    (sampled,) = read_levels(places[1])
    file.write_text(json.dumps({**json.loads(file.read_text()), "intervals": list(sampled.intervals)}))
    return [one(place, slos) for place in places]


def test_a_sampled_level_counts_all_and_ranks_to_a_bucket(tmp_path):
    slos = ["p95 runtime <= 120ms", "p99 ttft from sent <= 40ms", "share timeout <= 5%", "p50 runtime >= 50ms"]
    whole, sampled = sampled_pair(tmp_path, slos=slos)
    assert sampled["sampled"] == 20
    for name in ("n", "errors", "err_timeout", "shed", "unsent", "offered_rate", "achieved_rate", "delivered"):
        # The window begins with the first answer that has a row.
        near = 0.01 if name == "achieved_rate" else 1e-6
        assert sampled[name] == pytest.approx(whole[name], rel=near), name
    for metric in ("runtime", "service", "ttft", "ttft_sent"):
        for q in ("p50", "p95", "p99", "max"):
            name = f"{metric}_{q}_s"
            assert sampled[name] == pytest.approx(whole[name], rel=0.008), name
    for k in range(len(slos)):
        assert sampled[f"slo_{k}_attainment"] == pytest.approx(whole[f"slo_{k}_attainment"], abs=0.002)
        assert sampled[f"slo_{k}_met"] == whole[f"slo_{k}_met"]
    assert sampled["runtime_mean_s"] == pytest.approx(whole["runtime_mean_s"], rel=0.01)
    assert sampled["goodput"] == pytest.approx(whole["goodput"], rel=0.15)
    assert any(text.startswith("1 in 20 requests has a row") for text in sampled["alerts"])


def test_the_window_of_a_sampled_level_has_whole_seconds(tmp_path):
    place = queue(tmp_path / "r", 70)
    sample_down(place / "levels" / "0000", 10)
    (level,) = read_levels(place)
    low, high = level.window()
    assert (low - START_NS) % 10**9 == (high - START_NS) % 10**9 == 0
    assert sum(level.outcomes().values()) == pytest.approx(70 * (high - low) / 1e9, rel=0.05)


def test_a_sampled_level_is_judged_for_saturation(tmp_path):
    for name, rate, saturated in (("below", 70, False), ("above", 130, True)):
        place = queue(tmp_path / name, rate)
        sample_down(place / "levels" / "0000", 25)
        assert one(place)["saturated"] is saturated


def test_a_sampled_closed_loop_keeps_littles_law(tmp_path):
    given = closed(8, lognormal_ns(3, 20 * MS, 0.5), duration_ns=20_000 * MS)
    place = write_run(tmp_path / "r")
    setting = {"kind": "closed", "concurrency": 8, "think_s": 0.0, "passes": None, "count": None, "duration_s": 20}
    folder = write_level(place, 0, given, setting, 20)
    sample_down(folder, 10)
    found = one(place)
    assert found["little"] == "ok"
    assert found["delivered"] is True
    assert found["n"] == pytest.approx(found["offered_rate"] * 18, rel=0.06)


def test_what_cannot_be_read_of_seconds_is_said(tmp_path):
    (tmp_path / "seconds").mkdir()
    assert scan_seconds(tmp_path) is None
    (tmp_path / "seconds" / "part-00000.parquet").write_bytes(b"no parquet")
    with pytest.raises(StoreError, match="unreadable part"):
        scan_seconds(tmp_path)


def test_goodput_counts_from_due_and_from_sent(tmp_path):
    due = arrivals("constant", 100, 60)
    waited = np.where(np.arange(due.size) % 2 == 0, 0.0, 0.05)
    sent = due + waited
    place = run_of(tmp_path / "r", due, sent + 0.02, open_setting(100.0, 60, "constant"), 60, sent_s=sent)
    found = one(place, ["p95 runtime <= 30ms", "mean runtime <= 1s"])
    assert found["goodput"] == pytest.approx(50, rel=0.02)
    assert found["goodput_sent"] == pytest.approx(100, rel=0.01)
    asked_from_sent = one(place, ["p95 runtime from sent <= 30ms"])
    assert (asked_from_sent["goodput"], asked_from_sent["slo_0_attainment"]) == (found["goodput"], 1.0)
    only_mean = one(place, ["mean runtime <= 1s", "share ok >= 99%"])
    assert only_mean["goodput"] is only_mean["goodput_sent"] is None


@pytest.mark.parametrize("every", [1, 7])
def test_goodput_is_a_part_of_what_was_achieved(tmp_path, every):
    """Twice what ten connections can carry, all worked off in the end: what is answered after the load is no rate."""
    due = arrivals("poisson", 200, 60)
    ends = served(due, 0.1, ((0.0, 10),))
    place = run_of(tmp_path / "r", due, ends, open_setting(200.0, 60), 60, sent_s=ends - 0.1)
    if every > 1:
        sample_down(place / "levels" / "0000", every)
    loose, tight = one(place, ["p95 runtime <= 1min"]), one(place, ["p95 runtime <= 10s"])
    assert loose["achieved_rate"] == pytest.approx(100, rel=0.03)
    assert loose["goodput"] == pytest.approx(loose["achieved_rate"])
    # The wait grows by half a second each second: of the answers of the first 20 s each took less than 10 s.
    assert tight["goodput"] == pytest.approx(loose["achieved_rate"] / 3, rel=0.1)


def test_requests_that_an_end_left_waiting_do_not_make_an_slo(tmp_path):
    """The 300 that were due last had no chance; of those judged none is missing."""
    due = arrivals("constant", 100, 10)
    cut = np.arange(due.size) >= 700
    given = {"outcome": np.where(cut, OUTCOMES.index("cancelled"), 0).tolist(), "sent_s": np.where(cut, np.nan, due)}
    facts = {"state": "cancelled", "stop_reason": "cancelled"}
    end = np.where(cut, 11.0, due + 0.1)
    place = run_of(tmp_path / "r", due, end, open_setting(100.0, 10, "constant"), 10, facts=facts, **given)
    found = one(place, ["share ok >= 99%"])
    assert (found["n"], found["unsent"], found["slo_0_attainment"]) == (680, 0, 1.0)
    assert "300 were never sent: the user ended the run" in found["delivery"]


@pytest.mark.parametrize("outcome", ["shed", "connect_error"])
def test_requests_that_had_no_connection_are_misses(tmp_path, outcome):
    due = arrivals("constant", 100, 10)
    lost = np.arange(due.size) % 10 == 0
    given = {"outcome": np.where(lost, OUTCOMES.index(outcome), 0).tolist(), "sent_s": np.where(lost, np.nan, due)}
    end = np.where(lost, due, due + 0.1)
    found = one(run_of(tmp_path / "r", due, end, open_setting(100.0, 10, "constant"), 10, **given), ["share ok >= 99%"])
    assert found["slo_0_attainment"] == pytest.approx(0.9)
    assert found["shed"] + found["unsent"] == found["slo_0_over"]


def test_goodput_needs_every_slo_and_every_metric(tmp_path):
    columns_ = level_columns(2)
    streamed(columns_, 5, tokens=6)
    n = len(columns_["due_ns"])
    columns_["first_token_ns"] = [None if k % 2 else at for k, at in enumerate(columns_["first_token_ns"])]
    columns_["outcome"] = [TIMEOUT if k % 4 == 0 else 0 for k in range(n)]
    place = run_folder(tmp_path / "r", {2: columns_})
    found = one(place, ["p50 runtime <= 1s", "p50 ttft <= 1s"])
    assert found["goodput"] == pytest.approx(found["offered_rate"] / 4)


def level_with_tokens(place, events, usage, rows=()):
    columns_ = level_columns(2)
    streamed(columns_, events, tokens=usage)
    columns_["tokens_in"] = [110] * len(columns_["due_ns"])
    return Result([run_folder(place, {2: columns_}, rows=rows)])


@pytest.mark.parametrize(
    "events, usage, flagged", [(100, 101, False), (100, 103, False), (100, 105, True), (103, 100, True), (20, 0, True)]
)
def test_events_and_usage_may_differ_by_the_token_that_ends_an_answer(tmp_path, events, usage, flagged):
    result = level_with_tokens(tmp_path / "r", events, usage)
    (found,) = token_counts(result.levels[0])
    assert (found.name, found.events_mean, found.usage_mean, found.dataset_mean) == ("output", events, usage, None)
    assert found.flagged is found.events_flagged is flagged
    assert ("tokens" in result.summary["flags"].to_list()[0]) is flagged
    said = [text for text in result.summary["alerts"].to_list()[0] if text.startswith("counts of tokens differ: ")]
    assert len(said) == flagged


def test_three_counts_stand_side_by_side(tmp_path):
    rows = [{"input_tokens": 100, "output_tokens": 20}]
    result = level_with_tokens(tmp_path / "r", 19, 20, rows)
    table = result.tokens()
    assert table["name"].to_list() == ["input", "output"]
    assert table["events_mean"].to_list() == [None, 19]
    assert table["dataset_mean"].to_list() == [100, 20]
    assert table["usage_mean"].to_list() == [110, 20]
    assert table["dataset_off"].to_list() == [pytest.approx(-1 / 11), 0]
    assert table["flagged"].to_list() == [True, False]
    assert list(result.tables) == ["delivery", "lengths", "tokens"]
    # A prompt's length is what the dataset says of it: no doubt about the answers' times.
    assert result.summary["flags"].to_list() == [[]]


def test_one_count_alone_is_no_table(tmp_path):
    result = Result([run_folder(tmp_path / "r", {2: level_columns(2)})])
    assert result.tokens().is_empty()


def test_the_table_of_delivery_has_a_row_for_each_check(tmp_path):
    table = Result([queue(tmp_path / "r", 70)]).delivery()
    assert table.columns == ["visit", "run", "concurrency", "rate", "check", "value", "bound", "status", "text"]
    assert table["check"].to_list() == ["count", "lateness", "autocorrelation", "dispersion"]
    assert table["status"].to_list() == ["ok"] * 4
    assert table.schema["value"] == pl.Float64


def test_columns_of_open_levels_are_those_of_the_setting(tmp_path):
    place = write_run(tmp_path / "r")
    for visit, rate in enumerate((20.0, 40.0)):
        due = arrivals("poisson", rate, 30, seed=visit)
        write_level(place, visit, columns(due, due + 0.01), open_setting(rate, 30, stage=visit, expected=due.size), 30)
    found = Result([place]).summary
    assert found["rate"].to_list() == [20.0, 40.0]
    assert found["delivered"].to_list() == [True, True]
