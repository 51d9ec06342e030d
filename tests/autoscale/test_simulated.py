"""Autoscalers on a fitted replica through a day, against the simulation's own rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gpusize import _core
from gpusize.api.over_time import gpus_over_time
from gpusize.base.errors import UsageError
from gpusize.estimate.plan.autoscale.autoscaler import Autoscaler
from gpusize.estimate.plan.autoscale.manifest import read_policies
from gpusize.estimate.plan.over_time.policies import ScalingRules
from tests.autoscale.test_manifest import FILES
from tests.whatif.folder import run_folder

HOUR = 3600.0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One replica that carries some 20 users within ``p95 runtime <= 8s``."""
    return run_folder(tmp_path_factory.mktemp("runs"), first=True)


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hours: a quiet half hour, a busy one, a quiet one."""
    place = tmp_path_factory.mktemp("day") / "day.csv"
    place.write_text("time_s,rate_per_s\n0,2\n1800,14\n3600,2\n5400,2\n")
    return place


def policy(**more: object) -> Autoscaler:
    """In flight on each replica against 10."""
    spec = {
        "min_replicas": 1,
        "max_replicas": 12,
        "metrics": [{"source": "external", "target": {"average_value": 10_000}}],
        "behavior": None,
        **more,
    }
    signal = {"series": {"quantity": "in_flight", "over_time": "last", "window_s": 300.0, "across": "sum"}}
    return Autoscaler("ten in flight", spec, (signal,))


@pytest.fixture(scope="module")
def found(run: Path, day: Path):
    small = policy(max_replicas=1).named("one")
    return gpus_over_time(
        run, day, None, ScalingRules(start_delay_s=60.0), policies=["planned"], autoscalers=[policy(), small]
    )


def test_the_courses_are_those_of_the_policies(found) -> None:
    assert [course.policy for course in found.courses] == ["static", "planned", "ten in flight", "one"]
    static, planned, ten, one = found.courses
    assert static.decisions is None
    assert ten.keeps
    assert not one.keeps
    assert one.peak_gpus == 1
    # Both do with less than what the largest window needs all day.
    assert planned.gpu_hours < static.gpu_hours
    assert ten.gpu_hours < static.gpu_hours
    # A decision every 15 s of the two hours, the last at the end or after it, while the last requests are served.
    assert 479 <= sum(ten.decisions.values()) <= 485
    assert set(one.decisions) == {"bounds", "metrics"} or set(one.decisions) == {"bounds"}


def test_gpu_hours_and_shares_are_those_of_the_rows(found) -> None:
    """The second way: replicas by integrating the log's steps second by second; too few and too many as well."""
    ten = found.courses[2]
    at_s, asked = ten.schedule.at_ns / 1e9, ten.schedule.asked
    seconds = np.arange(0, found.duration_s, 1.0)
    by_second = asked[np.searchsorted(at_s, seconds, "right") - 1]
    assert ten.gpu_hours == pytest.approx((by_second.sum() + ten.served.draining_s) / HOUR, rel=2e-3)
    ready_ns, ready = ten.schedule.ready()
    there = ready[np.searchsorted(ready_ns / 1e9, seconds, "right") - 1]
    needed = found.capacities.needed(found.rates)
    wanted = needed[np.searchsorted(found.edges_ns[:-1] / 1e9, seconds, "right") - 1]
    # The needed ones lean to the safe side by less than a replica.
    short, beyond = np.maximum(wanted - there, 0).sum(), np.maximum(there - wanted, 0).sum()
    assert ten.elasticity.under_s == pytest.approx(short, abs=seconds.size * 0.35)
    assert ten.elasticity.under_s - ten.elasticity.over_s == pytest.approx(short - beyond, abs=seconds.size * 1.01)


def test_the_hpa_in_the_loop_is_the_hpa_alone() -> None:
    """The simulated cluster's own rows, read at each scrape, handed to the HPA from outside: the same decisions."""
    rnd = np.random.default_rng(5)
    gaps = rnd.exponential(np.where(np.arange(12_000) % 6000 < 3000, 0.2, 0.05))
    due = (np.cumsum(gaps) * 1e9).astype("<i8")
    config = {"rates": [1.0, 1.9, 2.7, 3.4], "gpus": 8, "replicas": [{"at_s": 0.0, "replicas": 2}]}
    spec = policy(max_replicas=8).policy
    spec = {**spec, "metrics": [{"source": "external", "target": {"average_value": 3000}}], "sync_s": 15.0}
    signal = {"series": {"quantity": "in_flight"}}
    autoscaler = json.dumps({"policy": spec, "signals": [signal], "scrape_s": 15.0})
    sizes = np.full(1, 0.5).tobytes()
    stream, text = _core.simulate_flow(
        json.dumps(config), '{"arrivals": "plan"}', sizes, due=due.tobytes(), autoscaler=autoscaler
    )
    rows, told = pl.DataFrame(stream), json.loads(text)["scaling"]
    ends = rows["end_ns"].to_numpy().max() / 1e9
    seen = []
    for at_s in np.arange(15.0, ends, 15.0):
        now = at_s * 1e9
        flying = rows.filter((pl.col("due_ns") < now) & (pl.col("end_ns") > now)).height
        seen.append({"now_ns": int(now), "status_replicas": 0, "pods": [], "readings": [{"values": [flying * 1000]}]})
    replicas, steps = 2, []
    # One at a time, as the number of pods is that of the decision before.
    history: list[dict] = []
    for each in seen:
        history.append({**each, "status_replicas": replicas})
        alone = json.loads(_core.hpa_decisions(json.dumps(spec), 2, json.dumps(history)))[-1]
        if alone["replicas"] != replicas:
            replicas = alone["replicas"]
            steps.append({"at_s": each["now_ns"] / 1e9, "replicas": replicas, "reason": alone["reason"]})
    assert told["steps"] == steps
    assert len(steps) > 5


def test_manifests_and_the_answer_in_json(run: Path, day: Path) -> None:
    scaled = read_policies(FILES / "hpa.yaml")
    answer = gpus_over_time(run, day, policies=[], autoscalers=scaled, gpu_hour_price="2 EUR").to_json()
    static, hpa = answer["courses"]
    assert (static["policy"], hpa["policy"]) == ("static", "llama-queue")
    assert static["decisions"] is None
    assert hpa["cost"] == pytest.approx(2 * hpa["gpu_hours"])
    assert set(hpa["elasticity"]) == {
        "under_s", "over_s", "under_share", "over_share", "under", "over", "turns"
    }  # fmt: skip
    assert hpa["asked"][0]["at_s"] == 0


def test_a_policy_that_the_simulation_refuses_says_why(run: Path, day: Path) -> None:
    bad = policy(behavior={"up": {"stabilization_s": 9999, "select": "max", "policies": []}, "down": {}})
    with pytest.raises(UsageError):
        gpus_over_time(run, day, policies=[], autoscalers=[bad])
