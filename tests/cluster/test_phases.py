"""Phases of made cluster tests, held against their truth."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import polars as pl
import pytest

from gpusize.cluster.phases.known_phases import PHASES
from gpusize.cluster.phases.timed import time_workloads
from tests.cluster.synthetic import BEGIN, S, World, drawn_world, make

WORLDS = [
    World(n=60, seed=1),
    World(n=60, seed=2, offset_s=3.7, gang=4),
    World(n=60, seed=3, offset_s=-41.2, gang=7, events=0.6, watch=False),
    World(n=80, seed=4, never=0.2, refused=0.1, gang=3, offset_s=0.4),
    World(n=50, seed=5, kind="Job", queue=True, pod_groups=False, gang=2, offset_s=-0.3),
    World(n=50, seed=6, kind="Pod", watch=False, events=0.0, offset_s=1.5),
    World(n=90, seed=7, look_s=9.0, gang=2, starting_s=6.0, offset_s=0.9),
]


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: f"seed-{world.seed}")
@pytest.mark.parametrize("clock", ["canary", "dates", "none"])
def test_the_truth_lies_in_every_interval(world: World, clock: str) -> None:
    made = make(world)
    facts = dict(made.facts)
    attempts = made.attempts
    if clock != "canary":
        facts["sample"] = {key: value for key, value in facts["sample"].items() if key != "clock"}
    if clock == "none":
        attempts = attempts.with_columns(server_date_s=pl.lit(None, pl.Int64))
    timed = time_workloads(made.stamps, attempts, facts, skip_errors=False)
    assert (timed.offset is None) == (clock == "none")
    seen = 0
    for phase in PHASES.values():
        for row in timed.rows(phase.name).iter_rows(named=True):
            times = made.truth[row["workload"]]
            if row["state"] == "censored":
                # What is said not to have ended had not, but for what was on its way to us at the last look.
                end = times.get(phase.end, math.inf)
                assert end > made.look_ns - 2 * S, (phase.name, row)
                continue
            true = times[phase.end] - times[phase.start]
            assert row["lo_ns"] <= true <= row["hi_ns"], (phase.name, row, true)
            assert row["lo_ns"] <= row["value_ns"] <= row["hi_ns"]
            seen += 1
    assert seen > 3 * world.n


@pytest.mark.parametrize("seed", range(12))
def test_the_truth_lies_in_every_interval_of_any_world(seed: int) -> None:
    made = make(drawn_world(seed))
    timed = time_workloads(made.stamps, made.attempts, made.facts, skip_errors=False)
    timed.summary()
    for phase in PHASES.values():
        for row in timed.rows(phase.name).iter_rows(named=True):
            times = made.truth[row["workload"]]
            if row["state"] == "censored":
                assert times.get(phase.end, math.inf) > made.look_ns - 2 * S, (phase.name, row)
                continue
            assert row["lo_ns"] <= times[phase.end] - times[phase.start] <= row["hi_ns"], (phase.name, row)
            assert row["lo_ns"] <= row["value_ns"] <= row["hi_ns"]


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: f"seed-{world.seed}")
def test_pods_one_by_one(world: World) -> None:
    made = make(world)
    timed = time_workloads(made.stamps, made.attempts, made.facts, skip_errors=False)
    done = timed.pods.filter(pl.col("state") == "done")
    assert done.height > world.n / 2
    for row in done.iter_rows(named=True):
        times = made.truth[row["workload"]]
        pod = row["unit"].rsplit("-", 1)[1] if world.kind != "Pod" else "0"
        end = {"pod_startup": "running"}.get(row["phase"], row["phase"].removeprefix("pod_"))
        true = times[f"pod {pod} {end}"] - times[f"pod {pod} created"]
        assert row["lo_ns"] <= true <= row["hi_ns"], row


def test_no_delta_spans_clocks_that_nobody_compared() -> None:
    made = make(World(n=20, watch=False, offset_s=5.0, events=1.0))
    facts = {"submit": {"pods": 1}, "sample": {"ended_ns": made.look_ns}}
    attempts = made.attempts.with_columns(server_date_s=pl.lit(None, pl.Int64))
    timed = time_workloads(made.stamps, attempts, facts)
    assert timed.offset is None
    assert timed.rows("scheduled").is_empty()
    assert timed.unmeasured["scheduled"] == 20
    assert timed.rows("pod_scheduling_decision").height == 20
    assert timed.workloads["outcome"].unique().to_list() == ["running"]


def test_sub_second_truth() -> None:
    """Delays of 50 to 500 ms: percentiles within 20 ms, where whole seconds say 0 or 1."""
    made = make(World(n=600, scheduling_s=(0.05, 0.5), offset_s=0.7, lag_s=0.004, every_s=0.05, seed=11))
    timed = time_workloads(made.stamps, made.attempts, made.facts)
    row = timed.summary().filter(pl.col("phase") == "scheduled").row(0, named=True)
    true = np.array([made.true_delta(w, "submitted", "last_scheduled") for w in made.truth], dtype=float) / S
    for name, share in (("p50", 0.5), ("p95", 0.95)):
        assert abs(row[f"{name}_s"] - np.quantile(true, share, method="inverted_cdf")) < 0.02
        assert row[f"{name}_low_s"] <= row[f"{name}_s"] <= row[f"{name}_high_s"]
    whole = made.stamps.filter(pl.col("resolution_ns") == S)
    coarse = time_workloads(whole, made.attempts.with_columns(uid=pl.lit(None, pl.String)), made.facts).rows(
        "scheduled"
    )
    assert ((coarse["hi_ns"] - coarse["lo_ns"]) > 0.9 * S).all()


@pytest.mark.parametrize("seed", range(5))
def test_a_twentieth_that_never_starts(seed: int) -> None:
    made = make(World(n=800, never=0.05, every_s=0.02, lag_s=0.001, offset_s=2.0, seed=100 + seed))
    timed = time_workloads(made.stamps, made.attempts, made.facts)
    row = timed.summary().filter(pl.col("phase") == "scheduled").row(0, named=True)
    true = np.array(
        [math.inf if (d := made.true_delta(w, "submitted", "last_scheduled")) is None else d / S for w in made.truth]
    )
    never = int(np.isinf(true).sum())
    assert row["censored"] == never > 0
    for name, share in (("p50", 0.5), ("p90", 0.9)):
        exact = float(np.sort(true)[math.ceil(share * true.size - 1e-9) - 1])
        assert abs(row[f"{name}_s"] / exact - 1) < 0.03
    assert row["p99_s"] is None, "a percentile that was not reached has no number"
    assert row["max_s"] is None
    assert row["p99_ended_s"] is not None
    counts = dict(timed.workloads.group_by("outcome").len().iter_rows())
    assert counts["unschedulable"] == never
    assert counts["running"] == 800 - never


def test_cut_off_by_the_last_look() -> None:
    """Workloads that came late were watched for less long: what they had waited for counts."""
    # Both tests draw alike, so that the second one is the first seen to its end.
    short = World(n=2000, every_s=0.01, scheduling_s=(0.0, 16.0), look_s=20.0, seed=9, starting_s=0.1)
    made, whole = make(short), make(dataclasses.replace(short, look_s=100.0))
    row = time_workloads(made.stamps, made.attempts, made.facts).summary().filter(pl.col("phase") == "scheduled")
    true = np.array([whole.true_delta(w, "submitted", "last_scheduled") for w in whole.truth], dtype=float) / S
    exact = float(np.quantile(true, 0.9))
    assert row["censored"].item() > 300
    assert abs(row["p90_s"].item() / exact - 1) < 0.03
    assert row["p90_ended_s"].item() < 0.95 * exact, "those that ended alone look fast"


def test_a_gang_is_as_late_as_its_last_pod() -> None:
    made = make(World(n=40, gang=5, facts={}, seed=12))
    facts = {**made.facts, "submit": {"pods": 5, "quorum": 3}}
    timed = time_workloads(made.stamps, made.attempts, facts)
    spread = timed.rows("straggler_spread")
    for row in spread.iter_rows(named=True):
        times = made.truth[row["workload"]]
        assert row["lo_ns"] <= times["last_scheduled"] - times["first_scheduled"] <= row["hi_ns"]
    for row in timed.rows("quorum_scheduled").iter_rows(named=True):
        times = made.truth[row["workload"]]
        third = sorted(times[f"pod {p} scheduled"] for p in range(5))[2]
        assert row["lo_ns"] <= third - times["submitted"] <= row["hi_ns"]


def test_a_gang_that_lacks_a_pod_is_not_scheduled() -> None:
    made = make(World(n=10, gang=4, seed=13))
    lacking = made.stamps.filter(~((pl.col("name") == "w-00003-2") & (pl.col("moment") != "created")))
    timed = time_workloads(lacking, made.attempts, made.facts)
    states = dict(timed.rows("scheduled").select("workload", "state").iter_rows())
    assert states["w-00003"] == "censored"
    assert sum(state == "done" for state in states.values()) == 9
    outcome = dict(timed.workloads.select("workload", "outcome").iter_rows())
    assert outcome["w-00003"] == "pending"


def test_a_replaced_pod_counts_once() -> None:
    made = make(World(n=4, gang=2, seed=14))
    again = made.stamps.filter(pl.col("name") == "w-00001-0").with_columns(
        name=pl.lit("w-00001-0x"), uid=pl.lit("again"), at_ns=pl.col("at_ns") + 30 * S
    )
    evicted = again.head(1).with_columns(
        name=pl.lit("w-00001-0"), uid=pl.lit("w-00001-0-uid"), moment=pl.lit("evicted"), reason=pl.lit("Preempted")
    )
    timed = time_workloads(pl.concat([made.stamps, again, evicted]), made.attempts, made.facts)
    row = timed.workloads.filter(pl.col("workload") == "w-00001").row(0, named=True)
    assert (row["pods"], row["pods_seen"], row["pods_lost"], row["outcome"]) == (2, 3, 1, "running")
    delta = timed.rows("scheduled").filter(pl.col("workload") == "w-00001")
    times = made.truth["w-00001"]
    assert delta["lo_ns"].item() <= times["last_scheduled"] - times["submitted"] <= delta["hi_ns"].item()
    gone = time_workloads(pl.concat([made.stamps, evicted]), made.attempts, made.facts).workloads
    assert gone.filter(pl.col("workload") == "w-00001")["outcome"].item() == "evicted"
    assert gone.filter(pl.col("workload") == "w-00001")["reason"].item() == "Preempted"


def test_a_pod_that_started_and_failed_does_not_run_for_the_one_in_its_place() -> None:
    made = make(World(n=4, seed=15))
    of = made.stamps.filter(pl.col("name") == "w-00001-0")
    failed = of.head(1).with_columns(moment=pl.lit("failed"), reason=pl.lit("Error"))
    placed = of.filter(pl.col("moment").is_in(("created", "scheduled", "bound")))
    again = placed.with_columns(name=pl.lit("w-00001-0x"), uid=pl.lit("again"), at_ns=pl.col("at_ns") + S)

    def outcome(*more: pl.DataFrame) -> str:
        timed = time_workloads(pl.concat([made.stamps, *more]), made.attempts, made.facts)
        return str(timed.workloads.filter(pl.col("workload") == "w-00001")["outcome"].item())

    assert outcome() == "running"
    assert outcome(failed) == "failed"
    assert outcome(failed, again) == "scheduled"


def test_every_outcome() -> None:
    made = make(World(n=9, seed=15, refused=0.0))
    names = sorted(made.truth)
    keep = made.stamps

    def only(workload: str, *moments: str) -> pl.Expr:
        return ~((pl.col("workload") == workload) & ~pl.col("moment").is_in(moments))

    def more(workload: str, kind: str, moment: str, reason: str | None = None) -> pl.DataFrame:
        of = made.stamps.filter(pl.col("workload") == workload, pl.col("kind") == kind).head(1)
        return of.with_columns(
            moment=pl.lit(moment), at_ns=pl.lit(BEGIN + 40 * S), clock=pl.lit("client"), reason=pl.lit(reason)
        )

    created = ("created",)
    keep = keep.filter(
        only(names[1], *created, "scheduled", "bound"), only(names[2], *created), only(names[3], *created)
    )
    keep = keep.filter(only(names[4], *created), pl.col("workload") != names[5], only(names[6], *created))
    keep = pl.concat(
        [
            keep,
            more(names[3], "Pod", "unschedulable", "Unschedulable"),
            more(names[4], "Pod", "failed", "Error"),
            more(names[6], "TrainingWorkload", "deleted"),
            more(names[7], "RunaiJob", "completed"),
            more(names[0], "TrainingWorkload", "deleted"),
        ]
    )
    attempts = made.attempts.with_columns(
        status=pl.when(pl.col("workload") == names[8]).then(422).otherwise("status").cast(pl.Int32),
        reason=pl.when(pl.col("workload") == names[8]).then(pl.lit("Invalid")).otherwise("reason"),
        uid=pl.when(pl.col("workload") == names[8]).then(None).otherwise("uid"),
    )
    keep = keep.filter(pl.col("workload") != names[8])
    timed = time_workloads(keep, attempts, made.facts)
    found = {row["workload"]: (row["outcome"], row["reason"]) for row in timed.workloads.iter_rows(named=True)}
    assert [found[name] for name in names] == [
        ("deleted", None),
        ("scheduled", None),
        ("pending", None),
        ("unschedulable", "Unschedulable"),
        ("failed", "Error"),
        ("vanished", "never seen"),
        ("vanished", None),
        ("completed", None),
        ("refused", "Invalid"),
    ]
    # Each of them that was not scheduled is a row that had not ended.
    states = dict(timed.rows("scheduled").select("workload", "state").iter_rows())
    assert [states[name] for name in names] == ["done", "done", *["censored"] * 5, "done", "censored"]
    cleaned = time_workloads(keep, attempts, {**made.facts, "clean": {"started_ns": BEGIN + 39 * S}})
    outcome = dict(cleaned.workloads.select("workload", "outcome").iter_rows())
    assert outcome[names[6]] == "pending", "what we delete ourselves has not vanished"
    assert outcome[names[0]] == "running"


def test_an_impossible_order_is_marked_and_counted() -> None:
    made = make(World(n=12, seed=16, offset_s=0.0, watch=False, events=1.0))
    early = made.stamps.with_columns(
        at_ns=pl.when((pl.col("workload") == "w-00002") & (pl.col("moment") == "scheduled"))
        .then(pl.col("at_ns") - 20 * S)
        .otherwise("at_ns")
    )
    timed = time_workloads(early, made.attempts, made.facts)
    assert timed.broken["ended_before_begun"] == ["w-00002"]
    assert timed.broken["decision_before_submission"] == ["w-00002"]
    assert timed.left_out == ("w-00002",)
    assert timed.rows("scheduled").height == 11
    kept = time_workloads(early, made.attempts, made.facts, skip_errors=False)
    assert kept.rows("scheduled").filter(pl.col("state") == "impossible").height == 1
    row = kept.summary().filter(pl.col("phase") == "scheduled").row(0, named=True)
    assert (row["impossible"], row["n"]) == (1, 11)


def test_negative_within_the_error_is_kept_signed() -> None:
    """Whole seconds on both ends: a delta of -1 s may well be 0.3 s, and is neither clamped nor dropped."""
    made = make(World(n=400, seed=17, watch=False, events=0.0, scheduling_s=(0.0, 0.05), every_s=0.013, offset_s=0.61))
    whole = made.stamps
    timed = time_workloads(whole, made.attempts.with_columns(uid=pl.lit(None, pl.String)), made.facts)
    rows = timed.rows("scheduled")
    assert (rows["value_ns"] < 0).any()
    assert (rows["state"] == "done").all()
    true = np.mean([made.true_delta(w, "submitted", "last_scheduled") for w in rows["workload"]])
    assert abs(rows["value_ns"].mean() - true) < 0.1 * S, "a clamp to 0 would make the mean too large"


def test_first_by_head_then_by_tail() -> None:
    made = make(World(n=10, seed=18))
    timed = time_workloads(made.stamps, made.attempts, made.facts)
    assert timed.part(head=6).workloads["workload"].to_list() == [f"w-{k:05}" for k in range(6)]
    assert timed.part(head=6, tail=2).workloads["workload"].to_list() == ["w-00004", "w-00005"]
    assert timed.part(tail=3).rows("scheduled").height == 3


def test_watches_that_are_later_than_their_canary() -> None:
    """Objects that come in hundreds are told of late: answers and Events show it, and intervals widen or give way."""
    made = make(World(n=150, gang=2, lag_s=0.4, offset_s=1.3, seed=19))
    facts = {**made.facts, "sample": {**made.facts["sample"], "watch_lag_ns": {"p50": -900_000, "p99": 1_200_000}}}
    timed = time_workloads(made.stamps, made.attempts, facts)
    held = []
    for phase in ("workload_creation", "scheduled", "bound", "ready", "gang_scheduling"):
        for row in timed.rows(phase).filter(pl.col("state") == "done").iter_rows(named=True):
            times = made.truth[row["workload"]]
            true = times[PHASES[phase].end] - times[PHASES[phase].start]
            held.append(row["lo_ns"] <= true <= row["hi_ns"])
            if phase == "workload_creation":
                assert row["value_ns"] <= times["acknowledged"] - times["submitted"], "it was granted by then"
    assert sum(held) / len(held) > 0.98
    scheduled = timed.rows("scheduled")
    assert ((scheduled["hi_ns"] - scheduled["lo_ns"]) < 0.02 * S).all(), "Events are as good as before"
    errors = [
        row["value_ns"] - made.true_delta(row["workload"], "submitted", "last_ready")
        for row in timed.rows("ready").iter_rows(named=True)
    ]
    assert abs(np.median(errors)) < 0.1 * S, "a typical lag is taken off, not the longest"


@pytest.mark.parametrize("late_s", [0.03, 0.3])
def test_events_that_are_written_late(late_s: float) -> None:
    """A busy scheduler writes its Events after what they tell of: a watch that told before is right."""
    made = make(World(n=200, gang=2, lag_s=0.005, offset_s=1.3, event_late_s=late_s, starting_s=0.01, seed=23))
    timed = time_workloads(made.stamps, made.attempts, made.facts)
    held = []
    for phase in ("scheduled", "gang_scheduling", "starting"):
        rows = timed.rows(phase)
        assert "impossible" not in rows["state"].to_list(), "an end before its begin would be the Event's fault"
        for row in rows.iter_rows(named=True):
            times = made.truth[row["workload"]]
            held.append(row["lo_ns"] <= times[PHASES[phase].end] - times[PHASES[phase].start] <= row["hi_ns"])
    assert sum(held) / len(held) > 0.98
    scheduled = timed.rows("scheduled")
    assert (scheduled["hi_ns"] - scheduled["lo_ns"]).median() < 0.02 * S, "no wider than the watch and the clocks are"


def test_what_a_list_found_is_no_time() -> None:
    """Listed once, after all: only whole seconds of the API say when."""
    made = make(World(n=30, seed=20, offset_s=0.2, events=0.0))
    late = made.stamps.with_columns(received_ns=pl.lit(made.look_ns), reported=pl.lit(value=False)).with_columns(
        at_ns=pl.when(pl.col("source") == "watch").then(made.look_ns).otherwise("at_ns")
    )
    timed = time_workloads(late, made.attempts, made.facts)
    assert timed.rows("scheduled").height == 30
    for row in timed.rows("scheduled").iter_rows(named=True):
        true = made.true_delta(row["workload"], "submitted", "last_scheduled")
        assert row["lo_ns"] <= true <= row["hi_ns"]
        assert row["hi_ns"] - row["lo_ns"] > 0.9 * S
    assert timed.rows("bound").is_empty(), "that it was bound by then is known, and not when"
    assert timed.unmeasured["bound"] == 30
    assert set(timed.workloads["outcome"]) == {"running"}
    alone = time_workloads(late, made.attempts.clear(), {"sample": {"ended_ns": made.look_ns}})
    assert alone.rows("binding").is_empty()
