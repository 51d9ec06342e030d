"""Days with no replica at night: every request is accounted for, and KEDA decides in the loop as it does alone."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gpusize import _core
from gpusize.api.over_time import gpus_over_time
from gpusize.estimate.plan.autoscale.autoscaler import Autoscaler, Surroundings
from gpusize.estimate.plan.over_time.policies import ScalingRules
from tests.autoscale.keda_model import Model
from tests.whatif.folder import run_folder

OK, REFUSED = 0, 1
UNANSWERED = {"series": {"quantity": "unanswered"}}
HELD = {"series": {"quantity": "held"}}


def keda(**more: Any) -> dict[str, Any]:
    """Requests without an answer against 3 for each replica."""
    usual = {"activation": 0.0, "use_cached": False, "ignore_null": True}
    return {
        "polling_s": 30.0,
        "cooldown_s": 120,
        "initial_cooldown_s": 0,
        "min_replicas": 0,
        "idle_replicas": None,
        "fallback": None,
        "modifiers": None,
        "triggers": [{"name": "queue", "target": {"average_value": 3000}, **usual}],
        **more,
    }


def autoscaler(scaled: dict[str, Any], signals: list[Any], **more: Any) -> dict[str, Any]:
    policy = {
        "min_replicas": max(1, scaled["min_replicas"]),
        "max_replicas": 6,
        "metrics": [{"source": "external", "target": each["target"]} for each in scaled["triggers"]],
        "sync_s": 15.0,
    }
    return {"policy": policy, "keda": scaled, "signals": signals, "begins_at_zero": True, **more}


def bursts(rnd: np.random.Generator, count: int = 6) -> np.ndarray:
    """Due times in nanoseconds: stretches of requests with long breaks between them."""
    due: list[np.ndarray] = []
    at = 0.0
    for _ in range(count):
        at += rnd.uniform(60, 1500)
        length = rnd.uniform(5, 600)
        due.append(at + np.sort(rnd.uniform(0, length, rnd.poisson(length * rnd.uniform(0.2, 3)))))
        at += length
    return np.sort((np.concatenate(due) * 1e9).astype("<i8"))


def simulated(due: np.ndarray, scaler: dict[str, Any], start_delay_s: float = 40.0) -> tuple[pl.DataFrame, dict]:
    config = {
        "rates": [0.5, 0.9, 1.2, 1.4],
        "gpus": 6,
        "replicas": [{"at_s": 0.0, "replicas": 1}],
        "start_delay_s": start_delay_s,
    }
    sizes = np.array([0.3, 0.5, 1.4]).tobytes()
    stream, text = _core.simulate_flow(
        json.dumps(config), '{"arrivals": "plan"}', sizes, due=due.tobytes(), autoscaler=json.dumps(scaler)
    )
    return pl.DataFrame(stream), json.loads(text)


@pytest.mark.parametrize("seed", range(12))
def test_every_request_is_answered_or_refused(seed: int) -> None:
    rnd = np.random.default_rng(seed)
    due = bursts(rnd)
    front = {"holds": bool(seed % 3), "timeout_s": float(rnd.choice((20.0, 65.0, 3600.0)))}
    # What waits, or what comes: without a holder the queue tells nothing.
    rate = {"series": {"quantity": "arrived", "over_time": "rate", "window_s": 60.0}}
    scaler = autoscaler(keda(), [UNANSWERED if front["holds"] else rate], front=front)
    rows, told = simulated(due, scaler)
    scaling = told["scaling"]
    assert rows.height == due.size
    assert rows["due_ns"].to_list() == due.tolist()
    assert rows["end_ns"].null_count() == 0
    answered, refused = rows.filter(pl.col("outcome") == OK), rows.filter(pl.col("outcome") == REFUSED)
    assert answered.height + refused.height == due.size
    assert scaling["fronted"]["refused"] == refused.height
    assert answered["gpu"].null_count() == 0
    assert refused["gpu"].null_count() == refused.height
    # Who was refused waited for as long as a holder holds, or not at all.
    waited = ((refused["end_ns"] - refused["sent_ns"]) / 1e9).to_numpy()
    assert waited == pytest.approx(0.001 + (front["timeout_s"] if front["holds"] else 0.0), abs=1e-6)
    held = answered.filter(pl.col("start_ns") > pl.col("sent_ns"))
    assert scaling["fronted"]["held"] == held.height
    longest = ((held["start_ns"] - held["sent_ns"]) / 1e9).to_numpy().max(initial=0.0)
    assert scaling["fronted"]["longest_s"] == pytest.approx(longest, abs=1e-6)
    # Nobody is served while there is no replica: from the log of what was asked for.
    for step, after in zip(scaling["steps"], [*scaling["steps"][1:], {"at_s": 1e9}], strict=True):
        if step["replicas"] == 0:
            begins = answered.filter(
                (pl.col("start_ns") > step["at_s"] * 1e9) & (pl.col("start_ns") < (after["at_s"] + 40) * 1e9)
            )
            assert begins.height == 0
    # Little: the mean number in the system, counted moment by moment, is rate times the mean time in it.
    ends = rows["end_ns"].to_numpy()
    moments = np.linspace(0, ends.max(), 200_001)
    inside = np.searchsorted(np.sort(due), moments, "right") - np.searchsorted(np.sort(ends), moments, "right")
    assert inside.mean() * ends.max() == pytest.approx(float((ends - due).sum()), rel=2e-3)
    assert inside[-1] == 0


class PlainHpa:
    """One external metric with ``AverageValue`` and no ``behavior``, from the documentation of Kubernetes."""

    def __init__(self, target: float, most: int) -> None:
        self.target, self.most = target, most
        self.history: list[tuple[float, int]] = []

    def sync(self, at_s: float, replicas: int, value: float | None) -> int:
        self.history = self.history or [(at_s, replicas)]
        if replicas == 0:
            return 0
        if value is None:
            return replicas
        within = abs(value / (self.target * replicas) - 1) <= 0.1
        asked = replicas if within else math.ceil(value / self.target)
        held = max([asked, *(count for when, count in self.history if when >= at_s - 300)])
        self.history.append((at_s, asked))
        return max(1, min(held, max(2 * replicas, 4), self.most))


@pytest.mark.parametrize("seed", range(8))
def test_keda_and_its_hpa_in_the_loop_are_those_alone(seed: int) -> None:
    """The rows of the simulation, read at each scrape and handed to plain models of both: the same steps."""
    rnd = np.random.default_rng(100 + seed)
    fallback = {"failure_threshold": 2, "replicas": 3, "behavior": "static"}
    scaled = keda(cooldown_s=int(rnd.choice((60, 200))), fallback=fallback if seed % 2 else None)
    outage = float(rnd.integers(500, 3000))
    outages = [{"from_s": outage, "until_s": outage + 400}]
    rows, told = simulated(bursts(rnd), autoscaler(scaled, [UNANSWERED], outages=outages))
    sent, ends = np.sort(rows["sent_ns"].to_numpy()), np.sort(rows["end_ns"].to_numpy())
    model, hpa, replicas, steps = Model(scaled), PlainHpa(3.0, 6), 0, []
    scraped: list[tuple[float, float]] = []
    until = ends.max() / 1e9
    for tick in range(int(until // 15) + 1):
        at_s = 15.0 * tick
        is_out = outage <= at_s < outage + 400
        if not is_out:
            now = at_s * 1e9
            inside = np.searchsorted(sent, now, "right") - np.searchsorted(ends, now, "right")
            scraped.append((at_s, float(inside)))
        recent = scraped[-1][1] if scraped and scraped[-1][0] >= at_s - 300 else None
        raw: Any = "failed" if is_out else "absent" if recent is None else {"value": recent}
        # The day begins at half a second, so that no poll is at a whole one.
        event = {"now_ns": int(at_s * 1e9) + 500_000_000, "ready": replicas, "raw": [raw], "asks": 0}
        before = replicas
        if tick % 2 == 0:
            replicas = model.poll(event, replicas)["replicas"]
            steps += [(at_s, replicas)] * (replicas != before)
            before = replicas
        if tick:
            value = model.question(event, replicas) if replicas else None
            replicas = hpa.sync(at_s, replicas, None if value is None else value / 1000)
            steps += [(at_s, replicas)] * (replicas != before)
    assert [(each["at_s"], each["replicas"]) for each in told["scaling"]["steps"]] == steps
    assert len(steps) >= 6


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A night, a busy hour, a night, and a few requests in the end."""
    place = tmp_path_factory.mktemp("day") / "day.csv"
    place.write_text("time_s,rate_per_s\n0,0\n3600,8\n7200,0\n14400,0.5\n15000,0\n18000,0\n")
    return place


def to_zero(**around: Any) -> Autoscaler:
    policy = {
        "min_replicas": 1,
        "max_replicas": 12,
        "metrics": [{"source": "external", "target": {"average_value": 10_000}}],
        "behavior": None,
    }
    scaled = keda(cooldown_s=300)
    scaled["triggers"][0]["target"] = {"average_value": 10_000}
    return Autoscaler("to zero", policy, (UNANSWERED,), keda=scaled, surroundings=Surroundings(**around))


def test_nights_at_zero_cost_nothing(tmp_path_factory: pytest.TempPathFactory, day: Path) -> None:
    run = run_folder(tmp_path_factory.mktemp("runs"), first=True)
    one = to_zero().named("one")
    one = Autoscaler(one.name, {**one.policy}, one.signals, keda={**(one.keda or {}), "min_replicas": 1})
    found = gpus_over_time(
        run,
        day,
        None,
        ScalingRules(start_delay_s=60.0),
        policies=[],
        autoscalers=[to_zero(), one, to_zero(holds=False)],
    )
    static, zero, kept, refused = found.courses
    # Second by second: what was asked for, and what removed ones still had.
    at_s, asked = zero.schedule.at_ns / 1e9, zero.schedule.asked
    seconds = np.arange(0, found.duration_s, 1.0)
    by_second = asked[np.searchsorted(at_s, seconds, "right") - 1]
    assert zero.gpu_hours == pytest.approx((by_second.sum() + zero.served.draining_s) / 3600, rel=2e-3)
    assert asked[0] == 0
    # From 300 s after the last request of the busy hour was answered there is none until the evening.
    assert (by_second[7800:14400] == 0).all()
    assert (by_second[:3600] == 0).all()
    # And once more in the end, though no request is left to wait for.
    assert (by_second[15600:] == 0).all()
    nights = 3600 + 7200 - 600 + 3000 - 900
    # The backlog of the morning takes some of it back.
    assert kept.gpu_hours - zero.gpu_hours > 0.6 * nights / 3600
    assert zero.gpu_hours < static.gpu_hours
    # Nothing is needed at night, so that nothing is missing then.
    assert zero.elasticity.over_s < kept.elasticity.over_s - 0.6 * nights
    assert zero.decided is not None
    assert zero.decided.held > 0
    assert 60 < zero.decided.longest_s < 60 + 30 + 15 + 15
    assert zero.decided.refused == 0
    # What nobody holds is refused, and what waits nowhere wakes nobody.
    assert refused.decided is not None
    assert (refused.gpu_hours, refused.decided.held) == (0.0, 0)
    assert refused.decided.refused == found.requests
    assert refused.shares == (0.0,)
    document = found.to_json()["courses"][1]
    assert document["without_replicas"]["held"] == zero.decided.held
    assert document["polls"]["active"] > 100
