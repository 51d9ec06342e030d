"""Simulated worlds for which an autoscaler is tuned: a cluster, its measured levels, days, and who was served on them.

The search for settings sees the levels alone, as records, and one day's arrivals. It is judged by the cluster itself:
the requests of other days are simulated on it, and what became of each is read from its row.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpusize import _core
from gpusize.estimate.plan.autoscale.autoscaler import Autoscaler
from tests.estimate.virtual import level
from tests.whatif.folder import stored

__all__ = ["Fate", "World", "preset", "world"]

STEP_S = 60.0
"""The rate of a day is the same for so long."""
PROMPTS = (50, 400)
SHARE = 0.95


@dataclass(frozen=True)
class Fate:
    """What a day cost and whether it was served: replica-hours from when each was asked for, and the share within."""

    hours: float
    share: float

    @property
    def kept(self) -> bool:
        """Whether the SLO was kept over the day."""
        return self.share >= SHARE


@dataclass(frozen=True)
class World:
    """One cluster and the days on it.

    Attributes:
        seed: key of everything that is drawn.
        config: one replica, as the simulated cluster takes it.
        users: requests in flight on one replica at which its p95 runtime is the bound.
        start_delay_s: from when a replica is asked for to when it takes requests.
        rates: requests per second in each step of a day.
        most: replicas that there may be.
        bound_s: of the SLO.
        capacity: requests per second of one replica at so many users.
    """

    seed: int
    config: Mapping[str, Any]
    users: int
    start_delay_s: float
    rates: NDArray[np.float64]
    most: int
    bound_s: float
    capacity: float

    @property
    def slo(self) -> str:
        """What has to be kept."""
        return f"p95 runtime <= {self.bound_s:.6g}s"

    @property
    def duration_s(self) -> float:
        """Of a day."""
        return STEP_S * self.rates.size

    def folder(self, place: Path) -> Path:
        """A run of one replica, at loads around what it can take, as a user would have measured it."""
        loads = sorted({max(1, round(self.users * share)) for share in (0.1, 0.4, 0.7, 0.85, 1, 1.2, 1.5, 2)})
        levels = [level(users, requests=1200 if users > 3 else 200, **self.config) for users in loads]
        about = {"schema": 1, "run": f"world-{self.seed}", "targets": [{"gpus": 1}], "options": {"slo": [self.slo]}}
        return stored(place, about, levels, first=True)

    def due(self, day: int) -> NDArray[np.int64]:
        """When the requests of a day are due, ns: Poisson arrivals at the rates of the steps."""
        rnd = np.random.default_rng((self.seed, 7, day))
        counts = rnd.poisson(self.rates * STEP_S)
        begin = np.repeat(np.arange(self.rates.size), counts) * STEP_S
        return np.asarray(np.sort(begin + rnd.random(begin.size) * STEP_S) * 1e9, np.int64)

    def recorded(self, place: Path) -> Path:
        """A day as a trace."""
        due = self.due(0)
        pl.DataFrame({"time_s": due / 1e9}).write_csv(place)
        return place

    def fate(self, autoscaler: Autoscaler, day: int) -> Fate:
        """A day on the cluster itself."""
        policy = autoscaler.policy
        first = max(int(policy["min_replicas"]), min(math.ceil(self.rates[0] / self.capacity), self.most))
        config = {
            **self.config,
            "gpus": self.most,
            "replicas": [{"at_s": 0.0, "replicas": first}],
            "start_delay_s": self.start_delay_s,
            # Other draws of lengths on each day.
            "seed": 1_000 * self.seed + day,
        }
        asked = {
            "arrivals": "plan",
            "duration_s": self.duration_s,
            "prompt_tokens": {"uniform": {"min_tokens": PROMPTS[0], "max_tokens": PROMPTS[1]}},
        }
        due = self.due(day)
        stream, said = _core.simulate(
            json.dumps(config),
            json.dumps(asked),
            due=due.tobytes(),
            autoscaler=autoscaler.to_json(first, until_s=self.duration_s),
        )
        rows = pl.DataFrame(stream)
        steps = [(0.0, first), *((step["at_s"], step["replicas"]) for step in json.loads(said)["scaling"]["steps"])]
        ends = [at_s for at_s, _ in steps[1:]] + [self.duration_s]
        hours = (
            sum(n * max(0.0, min(end, self.duration_s) - at) for (at, n), end in zip(steps, ends, strict=True)) / 3600
        )
        times = (rows["end_ns"] - rows["due_ns"]).to_numpy() / 1e9
        return Fate(hours, float(np.mean(times <= self.bound_s)) if times.size else 0.0)


def world(seed: int, requests: int) -> World:
    """A world by lot, with about so many requests in a day of one to six hours."""
    rnd = np.random.default_rng((seed, 1))
    batch = int(rnd.integers(16, 65))
    config: dict[str, Any] = {
        "iteration_base_s": float(rnd.uniform(0.01, 0.05)),
        "iteration_per_sequence_s": float(rnd.uniform(0.0003, 0.002)),
        "prefill_per_token_s": float(rnd.uniform(0.00001, 0.0001)),
        "max_batch": batch,
        "output_tokens": {
            "lognormal": {
                "median_tokens": float(rnd.uniform(60, 300)),
                "sigma": float(rnd.uniform(0.1, 0.6)),
                "max_tokens": 2000,
            }
        },
    }
    users = max(3, round(batch * rnd.uniform(0.3, 0.9)))
    at = level(users, requests=4000, **config).records.collect()
    runtime_s = (at["end_ns"] - at["due_ns"]).to_numpy() / 1e9
    capacity = users / float(runtime_s.mean())
    peak = float(rnd.uniform(2.5, 7.0))
    shape = _shape(rnd)
    # As long as it takes for that many requests, in whole steps.
    duration_s = float(np.clip(requests / (capacity * peak * shape.mean()), 3600, 6 * 3600))
    count = round(duration_s / STEP_S)
    rates = capacity * peak * np.interp(np.linspace(0, 1, count), np.linspace(0, 1, shape.size), shape)
    bound_s = 1.1 * float(np.quantile(runtime_s, 0.95))
    most = math.ceil(peak * 2.5)
    return World(seed, config, users, float(rnd.choice([20, 45, 90])), rates, most, bound_s, capacity)


def _shape(rnd: np.random.Generator) -> NDArray[np.float64]:
    """The course of a day, as a share of its peak: a wave, steps, or a spike on a quiet day."""
    at = np.linspace(0, 1, 200)
    kind = rnd.integers(3)
    if kind == 0:
        return np.asarray(0.55 - 0.45 * np.cos(2 * np.pi * at * rnd.integers(1, 4)), np.float64)
    if kind == 1:
        heights = rnd.uniform(0.15, 1.0, int(rnd.integers(4, 9)))
        heights /= heights.max()
        return np.asarray(heights[np.minimum((at * heights.size).astype(int), heights.size - 1)], np.float64)
    spike = np.exp(-(((at - rnd.uniform(0.3, 0.7)) / rnd.uniform(0.05, 0.15)) ** 2))
    return np.asarray(0.25 + 0.75 * spike, np.float64)


def _metric(average: float) -> dict[str, Any]:
    return {"source": "external", "target": {"average_value": round(1000 * average)}}


def _signal(quantity: str) -> dict[str, Any]:
    return {"series": {"quantity": quantity, "over_time": "last", "window_s": 300.0, "across": "sum"}}


def preset(name: str, most: int) -> Autoscaler:
    """A policy with settings as llm-d publishes them (its guides to workload autoscaling, September 2026).

    Args:
        name: ``queue 1 + running 16``; or ``running 16``, ``waiting 1``, which are its halves.
        most: replicas that there may be.
    """
    parts = {"waiting 1": [("waiting", 1)], "running 16": [("running", 16)]}
    metrics = parts.get(name, [("waiting", 1), ("running", 16)])
    policy = {
        "min_replicas": 1,
        "max_replicas": most,
        "metrics": [_metric(value) for _, value in metrics],
        "behavior": None,
    }
    return replace(Autoscaler(name, policy, tuple(_signal(each) for each, _ in metrics)))
