"""Was the load delivered: correct processes are, known faults are not, and the reason is named."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from gpusize.analysis.delivery.closed_loop import mean_of_cut
from gpusize.analysis.delivery.delivery import counts_of, delivery_of
from gpusize.analysis.level import LevelData
from gpusize.analysis.read_levels import read_levels
from gpusize.records.schema import OUTCOMES
from tests.analysis.open_levels import (
    START_NS,
    arrivals,
    columns,
    open_setting,
    run_of,
    same_seed_workers,
    sample_down,
    served,
    write_level,
    write_run,
)
from tests.analysis.synthetic import MS, closed, level

SHED = OUTCOMES.index("shed")
REFUSED = OUTCOMES.index("connect_error")
CANCELLED = OUTCOMES.index("cancelled")


def made(due_s, rate, length_s, process="poisson", *, late_s=0.0, facts=None, end_s=None, **more):
    """A level in memory: requests take 20 ms, and are sent ``late_s`` after they were due."""
    sent = due_s + late_s
    setting = {name: more.pop(name) for name in list(more) if name not in ("fired_s", "outcome", "sent_s", "stream")}
    given = columns(due_s, sent + 0.02 if end_s is None else end_s, **{"sent_s": sent, **more})
    found = level(None, given, **open_setting(rate, length_s, process, **setting) | {"rate": rate})
    meta = {"start_ns": START_NS, "close_ns": START_NS + round(length_s * 1e9), "due": len(due_s)}
    known = int(np.isfinite(more.get("sent_s", sent)).sum())
    return replace(found, meta={**found.meta, **meta, "sent": known, **(facts or {})})


def thinking(users, service_s, pauses_s, length_s):
    """A closed loop of users, each on a connection of its own, who think between an answer and the next request."""
    rows, drawn = [], iter(np.asarray(pauses_s).tolist())
    for user in range(users):
        at = 0.0
        while at < length_s:
            rows.append((at, user))
            at += service_s + next(drawn)
    rows.sort()
    due = np.array([at for at, _ in rows])
    return columns(due, due + service_s, conn=[user for _, user in rows])


def status(lv: LevelData) -> dict[str, str]:
    return {check.name: check.status for check in delivery_of(lv).checks}


@pytest.mark.parametrize("process, shape", [("poisson", 1.0), ("gamma", 0.25), ("gamma", 4.0), ("constant", 1.0)])
def test_a_correct_process_is_delivered(process, shape):
    due = arrivals(process, 100, 120, shape=shape)
    found = delivery_of(made(due, 100, 120, process, shape=shape, expected=len(due)))
    assert found.delivered
    assert found.text == "this load was delivered"
    assert {check.status for check in found.checks} == {"ok"}


def test_of_correct_poisson_processes_hardly_any_is_refused():
    refused = sum(
        delivery_of(made(arrivals("poisson", 50, 120, seed=seed), 50, 120)).delivered is not True for seed in range(200)
    )
    assert refused < 2


def test_workers_with_one_seed_are_refused_although_their_gaps_look_right():
    due = same_seed_workers(50, 120)
    gaps = np.diff(due)
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.15)
    found = delivery_of(made(due, 50, 120, expected=len(due)))
    assert found.delivered is False
    failed = {check.name: check for check in found.checks if check.status == "failed"}
    assert set(failed) == {"autocorrelation", "dispersion"}
    assert failed["dispersion"].value > 4
    assert "arrivals are clustered for poisson" in found.text
    assert found.text.startswith("it was not, because the gaps between requests follow each other")


@pytest.mark.parametrize(
    "sent, wanted, finding", [("poisson", "constant", "clustered"), ("constant", "poisson", "too regular")]
)
def test_another_process_than_was_asked_for_is_refused(sent, wanted, finding):
    due = arrivals(sent, 100, 60)
    found = delivery_of(made(due, 100, 60, wanted, expected=len(due)))
    assert found.delivered is False
    assert f"arrivals are {finding} for {wanted}" in found.text


def test_a_schedule_that_was_not_made_up_to_its_end_is_refused():
    due = arrivals("poisson", 100, 60)
    found = delivery_of(made(due[:-100], 100, 60, expected=len(due)))
    assert found.delivered is False
    assert f"became due where the schedule has {len(due):,}" in found.text
    stopped = made(due[:-100], 100, 60, expected=len(due), facts={"stop_reason": "stopped"})
    assert delivery_of(stopped).delivered


def test_shed_and_unsent_requests_add_up_and_are_named():
    due = arrivals("poisson", 100, 60)
    n = len(due)
    outcome = [SHED if k % 10 == 0 else REFUSED if k % 10 == 1 else 0 for k in range(n)]
    sent = np.where(np.array(outcome) == 0, due, np.nan)
    lv = made(due, 100, 60, outcome=outcome, sent_s=sent, end_s=due + 0.02, expected=n)
    counts = counts_of(lv)
    assert counts.offered == n == counts.sent + counts.shed + counts.unsent
    assert counts.shed == outcome.count(SHED)
    assert counts.unsent == outcome.count(REFUSED)
    text = delivery_of(lv).text
    assert f"{counts.shed:,} were shed" in text
    assert f"{counts.unsent:,} were never sent" in text


@pytest.mark.parametrize(
    "reason, state, why",
    [
        ("cancelled", "cancelled", "the user ended the run while they waited"),
        ("saturation", "done", "a rule ended the level while they waited"),
        ("errors", "done", "a rule ended the level while they waited"),
        ("errors", "interrupted", "too many failed, so the level was ended while they waited"),
    ],
)
def test_why_requests_were_never_sent_is_told(reason, state, why):
    due = arrivals("poisson", 100, 60)
    outcome = [REFUSED if k % 10 == 1 else CANCELLED if k > due.size // 2 else 0 for k in range(due.size)]
    sent = np.where(np.array(outcome) == 0, due, np.nan)
    lv = made(due, 100, 60, outcome=outcome, sent_s=sent, end_s=due + 0.02, facts={"stop_reason": reason})
    text = delivery_of(replace(lv, state=state)).text
    assert f"{outcome.count(CANCELLED):,} were never sent: {why}" in text
    assert f"{outcome.count(REFUSED):,} were never sent: no connection could be opened" in text


def test_a_closed_loop_tells_why_requests_were_never_sent():
    columns_: dict[str, Any] = {**closed(8, lambda k: 50 * MS, duration_ns=4000 * MS)}
    outcome = [REFUSED if k % 20 == 1 else 0 for k in range(len(columns_["due_ns"]))]
    columns_["sent_ns"] = [None if code else at for code, at in zip(outcome, columns_["sent_ns"], strict=True)]
    text = delivery_of(level(8, {**columns_, "outcome": outcome}, duration_s=4)).text
    assert f"{outcome.count(REFUSED)} were never sent: no connection could be opened" in text


def test_waiting_for_a_connection_is_told_from_a_late_pacer():
    due = arrivals("poisson", 100, 60)
    waited = delivery_of(made(due, 100, 60, late_s=0.05))
    assert waited.delivered is False
    assert "requests waited for a free connection: p99 0.05 s" in waited.text
    assert "--connections" in waited.text
    late = delivery_of(made(due, 100, 60, late_s=0.05, fired_s=due + 0.049))
    assert "the generator itself was late: p99 0.049 s" in late.text
    assert "--workers" in late.text


@pytest.mark.parametrize(
    "rate, late_s, fine", [(100, 0.009, True), (100, 0.011, False), (5000, 0.0009, True), (2, 0.3, True)]
)
def test_lateness_is_held_against_the_gap_between_requests(rate, late_s, fine):
    due = arrivals("poisson", rate, 30)
    found = delivery_of(made(due, rate, 30, late_s=late_s))
    assert found.delivered is fine


def test_lateness_that_is_noise_does_not_look_like_another_process():
    rng = np.random.default_rng(3)
    due = arrivals("poisson", 20_000, 10)
    lv = made(due, 20_000, 10, late_s=rng.exponential(0.0001, due.size))
    assert delivery_of(lv).delivered
    constant = arrivals("constant", 20_000, 10)
    assert delivery_of(made(constant, 20_000, 10, "constant", late_s=rng.exponential(0.0001, constant.size))).delivered


def ramp(low, high, length_s, seed=1):
    """Poisson arrivals at a rate that rises along a straight line: gaps of 1 in operational time, mapped back."""
    steps = np.cumsum(np.random.default_rng(seed).exponential(1.0, int((low + high) * length_s)))
    slope = (high - low) / length_s
    times = (-low + np.sqrt(low**2 + 2 * slope * steps)) / slope
    return times[times < length_s]


def test_ramps_and_bursts_are_judged_in_operational_time():
    due = ramp(5, 95, 120)
    asked = {"from_rate": 5.0, "to_rate": 95.0}
    assert set(status(made(due, 50, 120, **asked)).values()) == {"ok"}
    # Without knowing of the ramp the same arrivals are no Poisson process.
    assert delivery_of(made(due, 50, 120)).delivered is False
    assert delivery_of(made(np.sort(due.max() - due), 50, 120, **asked)).delivered is False


def test_bursts_come_at_the_end_of_each_period():
    rng = np.random.default_rng(5)
    parts = []
    for k in range(12):
        for low, high, rate in ((0, 8, 10), (8, 10, 100)):
            n = rng.poisson(rate * (high - low))
            parts.append(10 * k + np.sort(rng.uniform(low, high, n)))
    due = np.concatenate(parts)
    bursts = {"rate": 100.0, "length_s": 2.0, "every_s": 10.0}
    lv = made(due, 28.0, 120, bursts=bursts)
    assert delivery_of(lv).delivered
    assert delivery_of(made(due, 28.0, 120)).delivered is False


def test_each_stream_is_judged_by_its_own_process():
    slow, fast = arrivals("constant", 20, 60), arrivals("poisson", 80, 60)
    due = np.concatenate([slow, fast])
    order = np.argsort(due, kind="stable")
    stream = (np.arange(due.size) >= slow.size).astype(int)[order].tolist()
    streams = [
        {"id": 0, "name": "clock", "rate": 20.0, "process": "constant"},
        {"id": 1, "name": "users", "rate": 80.0, "process": "poisson"},
    ]
    lv = made(due[order], 100, 60, "mixed", stream=stream, streams=streams, expected=due.size)
    found = delivery_of(lv)
    assert found.delivered
    names = [check.name for check in found.checks]
    assert names == [
        "count",
        "lateness (clock)",
        "dispersion (clock)",
        "lateness (users)",
        "autocorrelation (users)",
        "dispersion (users)",
    ]
    swapped = [{**each, "process": streams[1 - k]["process"]} for k, each in enumerate(streams)]
    assert delivery_of(made(due[order], 100, 60, "mixed", stream=stream, streams=swapped)).delivered is False


def test_a_trace_is_held_against_every_one_of_its_requests():
    due = np.sort(np.random.default_rng(1).uniform(0, 60, 500))
    whole = made(due, 500 / 60, 60, "trace", expected=500)
    assert status(whole) == {"count": "ok", "lateness": "ok", "order": "ok"}
    assert delivery_of(made(due[1:], 500 / 60, 60, "trace", expected=500)).delivered is False
    late = np.where(np.arange(500) % 20 == 0, 0.11, 0.0)
    mixed_up = delivery_of(made(due, 500 / 60, 60, "plan", late_s=late, expected=500))
    assert {check.name for check in mixed_up.checks if check.status == "failed"} == {"order"}


def test_few_requests_are_not_judged_by_their_shape():
    due = arrivals("poisson", 10, 5)
    found = status(made(due, 10, 5))
    assert found["dispersion"] == "not judged"
    assert found["count"] == found["lateness"] == "ok"


def test_nothing_due_is_not_judged():
    some = made(arrivals("poisson", 10, 5), 10, 5)
    lv = replace(some, records=some.records.head(0), meta={**some.meta, "due": 0, "sent": 0})
    assert delivery_of(lv).delivered is None
    assert delivery_of(lv).text == "not judged: no request was due"


def test_sessions_are_judged_by_their_first_turns():
    first = arrivals("poisson", 50, 60)
    later = np.concatenate([first + 0.5, first + 1.0])
    due = np.concatenate([first, later])
    order = np.argsort(due)
    turn = np.concatenate([np.zeros(first.size), np.ones(first.size), np.full(first.size, 2)]).astype(int)[order]
    setting = {"unit": "session", "expected": first.size}
    lv = made(due[order], 50, 60, **setting)
    lv = replace(lv, records=lv.records.with_columns(pl.Series("turn", turn, pl.UInt16)))
    assert delivery_of(lv).delivered
    assert delivery_of(lv).checks[0].text == f"{first.size:,} of {first.size:,} sessions began"


def test_a_closed_loop_is_judged_by_littles_law_and_its_pauses():
    good = level(8, closed(8, lambda k: 50 * MS, duration_ns=4000 * MS), duration_s=4)
    assert delivery_of(good).delivered
    idle = delivery_of(level(8, closed(8, lambda k: 50 * MS, duration_ns=4000 * MS, idle_ns=10 * MS), duration_s=4))
    assert idle.delivered is False
    assert "6.663 requests were in flight, 8 were asked for" in idle.text


@pytest.mark.parametrize("asked_s, fine", [(0.15, True), (0.2, False)])
def test_the_mean_pause_is_held_against_the_think_time(asked_s, fine):
    columns_ = closed(1, lambda k: 50 * MS, duration_ns=20_000 * MS, idle_ns=150 * MS)
    found = {check.name: check for check in delivery_of(level(1, columns_, duration_s=20, think_s=asked_s)).checks}
    assert found["think"].value == pytest.approx(0.15)
    assert found["think"].status == ("ok" if fine else "failed")


@pytest.mark.parametrize(
    "think, mean_s",
    [("exp(150ms)", 0.15), ("uniform(50ms,250ms)", 0.15), ("lognormal(100ms,0.9)", 0.1499), ("450ms", 0)],
)
def test_users_that_think_are_in_balance(think, mean_s):
    """Of users that think, few are in flight: those who think count as well, by the mean of their pauses."""
    rng = np.random.default_rng(3)
    draws = {"exp": rng.exponential(0.15, 999), "uni": rng.uniform(0.05, 0.25, 999)}
    pauses = draws.get(think[:3], 0.1 * rng.lognormal(0, 0.9, 999) if mean_s else np.full(999, 0.45))
    columns_ = thinking(4, 0.05, pauses, 4.0)
    setting = {"think_s": 0.0, "think": think} if mean_s else {"think_s": 0.45}
    found = {check.name: check for check in delivery_of(level(4, columns_, duration_s=4, **setting)).checks}
    assert found["little"].status == "ok"
    assert found["think"].status == ("ok" if found["think"].value else "not judged")
    silent = {check.name: check for check in delivery_of(level(4, columns_, duration_s=4, think_s=0.0)).checks}
    assert silent["little"].status == "failed"


def pausing(users, seed, *, mean_s=0.2, length_s=6.0, times=1.0):
    """The think check of a level of users on a server whose pauses are exponential, as asked but for ``times``."""
    rng = np.random.default_rng(seed)
    pauses = times * rng.exponential(mean_s, 4000)
    lv = level(users, thinking(users, 0.2, pauses, length_s), duration_s=6, think=f"exp({1000 * mean_s:g}ms)")
    return {check.name: check for check in delivery_of(lv).checks}["think"]


def test_pauses_that_a_level_cuts_off_are_counted_rightly():
    """Of 120 levels of true pauses hardly any is flagged, and the mean is neither too short nor too long."""
    found = [pausing(users, 10 * seed + users) for users in (4, 16, 32) for seed in range(40)]
    assert sum(check.status == "failed" for check in found) <= 1
    means = np.array([check.value for check in found])
    assert means.mean() == pytest.approx(0.2, abs=3 * means.std() / math.sqrt(means.size))


def test_pauses_longer_than_a_level_are_not_said_to_be_short():
    """Pauses of 2 s in 6 s: who would have paused for 10 s is not seen, and nobody is to blame."""
    found = [pausing(64, seed, mean_s=2.0) for seed in range(20)]
    assert {check.status for check in found} <= {"ok", "not judged"}


@pytest.mark.parametrize("times, blamed", [(0.7, "too short"), (1.4, "the generator may be late")])
def test_only_pauses_that_are_too_long_are_a_late_generators(times, blamed):
    check = pausing(32, 1, times=times)
    assert check.status == "failed"
    assert blamed in check.text
    assert ("--workers" in check.text) is (times > 1)


def test_the_mean_of_lengths_that_were_cut_off():
    rng = np.random.default_rng(2)
    lengths, ends = rng.exponential(1.0, 20_000), rng.uniform(0.0, 5.0, 20_000)
    seen = np.minimum(lengths, ends)
    ended = lengths <= ends
    assert seen[ended].mean() < 0.85
    assert mean_of_cut(seen[ended], seen[~ended]) == pytest.approx(1.0, abs=0.03)
    assert mean_of_cut(lengths, np.zeros(0)) == pytest.approx(lengths.mean())


def test_users_of_a_workflow_cannot_be_told_apart():
    columns_ = {**thinking(4, 0.05, np.full(999, 0.15), 4.0)}
    columns_.pop("conn")
    found = status(level(4, columns_, duration_s=4, think_s=0.15))
    assert found == {"count": "ok", "little": "ok", "think": "not judged"}


def test_pauses_that_the_rows_say_are_not_judged():
    columns_ = thinking(4, 0.05, np.full(999, 0.15), 4.0)
    lv = level(4, columns_, duration_s=4, think_s=0.0, think="recorded")
    assert status(lv) == {"count": "ok", "little": "not judged", "think": "not judged"}


def test_a_ramp_of_users_has_no_number_in_flight():
    ramp_: dict[str, Any] = {"from": 2}
    lv = level(8, closed(8, lambda k: 50 * MS, duration_ns=4000 * MS), duration_s=4, **ramp_)
    assert {check.name: check.status for check in delivery_of(lv).checks} == {"count": "ok", "little": "not judged"}


@pytest.mark.parametrize("late_s, fine", [(0.0001, True), (0.02, False)])
def test_of_a_sampled_level_seconds_and_histograms_are_judged(tmp_path, late_s, fine):
    due = arrivals("poisson", 200, 60)
    setting = open_setting(200.0, 60, expected=due.size)
    place = run_of(tmp_path / "r", due, due + 0.03, setting, 60, sent_s=due + late_s)
    (whole,) = read_levels(place)
    sample_down(place / "levels" / "0000", 100)
    (lv,) = read_levels(place)
    assert lv.records.collect().height == len(range(0, due.size, 100))
    found = {check.name: check for check in delivery_of(lv).checks}
    assert counts_of(lv) == counts_of(whole)
    assert found["count"].status == found["dispersion"].status == "ok"
    assert found["autocorrelation"].status == "not judged"
    assert found["lateness"].value == pytest.approx(late_s, rel=0.008)
    assert delivery_of(lv).delivered is fine


def test_workers_with_one_seed_are_refused_in_a_sampled_level_too(tmp_path):
    due = same_seed_workers(200, 60)
    place = run_of(tmp_path / "r", due, due + 0.03, open_setting(200.0, 60, expected=due.size), 60)
    sample_down(place / "levels" / "0000", 50)
    (lv,) = read_levels(place)
    assert delivery_of(lv).delivered is False
    assert "clustered" in delivery_of(lv).text


def test_an_overloaded_target_is_told_from_a_slow_generator(tmp_path):
    """Offered twice what is served over 16 connections: what waits, waits for a connection."""
    due = arrivals("poisson", 200, 30)
    ends = served(due, 0.16, [(0.0, 16)])
    sent = ends - 0.16
    place = write_run(tmp_path / "r")
    write_level(place, 0, columns(due, ends, sent_s=sent), open_setting(200.0, 30), 30)
    (lv,) = read_levels(place)
    found = delivery_of(lv)
    assert found.delivered is False
    assert "waited for a free connection" in found.text
    assert json.loads((place / "levels" / "0000" / "level.json").read_text())["sent"] == due.size
