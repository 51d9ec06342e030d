"""Cluster tests whose truth is known: true times by drawn delays, and the stamps that sources would give of them.

The truth is in ns by our clock. The server's clock is ahead by an offset; its stamps are whole seconds or
microseconds; a watch tells a little later than it happened. What comes after the last look is in no stamp.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from gpusize.cluster.tables import attempts_schema, stamps_schema

S = 10**9
BEGIN = 1_764_000_000 * S
POD_STEPS = ("scheduled", "bound", "initialized", "started", "running", "ready")
SECONDS_SOURCE = {
    "created": "creationTimestamp",
    "scheduled": "condition PodScheduled",
    "initialized": "condition Initialized",
    "started": "startedAt",
    "ready": "condition Ready",
}


@dataclass(frozen=True)
class World:
    """How a cluster behaves, and what is known of it.

    Times are means in seconds. ``never``: share of workloads that no pod of is ever scheduled; ``refused``: share that
    the API refuses; ``events``: share of ``Scheduled`` events that arrive, written ``event_late_s`` late
    at most; ``gang``: pods of a workload.
    """

    n: int = 40
    gang: int = 1
    seed: int = 1
    every_s: float = 0.2
    scheduling_s: tuple[float, float] = (0.05, 0.5)
    starting_s: float = 0.8
    offset_s: float = 0.0
    offset_known_s: float = 0.002
    lag_s: float = 0.01
    never: float = 0.0
    refused: float = 0.0
    events: float = 1.0
    event_late_s: float = 0.0
    watch: bool = True
    kind: str = "TrainingWorkload"
    queue: bool = False
    pod_groups: bool = True
    look_s: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Made:
    """A made test: its tables, its facts, and the truth by workload and moment (ns by our clock)."""

    stamps: pl.DataFrame
    attempts: pl.DataFrame
    facts: dict[str, Any]
    truth: dict[str, dict[str, int]]
    look_ns: int

    def true_delta(self, workload: str, start: str, end: str) -> int | None:
        """How long it truly took; None where it had not ended at the last look, or had not begun."""
        times = self.truth[workload]
        if start not in times or end not in times or times[end] > self.look_ns:
            return None
        return times[end] - times[start]


def make(world: World) -> Made:
    return _Maker(world).made()


class _Maker:
    """Draws one world; its random numbers come in the same order whatever is known of them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.draw = np.random.default_rng(world.seed)
        self.offset = round(world.offset_s * S)
        seconds = world.look_s if world.look_s is not None else world.n * world.every_s + 60
        self.look = BEGIN + round(seconds * S)
        self.stamps: list[dict[str, Any]] = []
        self.attempts: list[dict[str, Any]] = []
        self.truth: dict[str, dict[str, int]] = {}

    def made(self) -> Made:
        for k in range(self.world.n):
            self.workload(k)
        world, offset, known = self.world, self.offset, self.world.offset_known_s * S
        low, high = (round(known * self.draw.random()) for _ in range(2))
        facts = {
            "version": 1,
            "submit": {"pods": world.gang, "gpus": 1, "started_ns": BEGIN},
            "sample": {
                "ended_ns": self.look,
                "watch_lag_ns": {"p99": round(world.lag_s * S)},
                "clock": {"offset_ns": offset, "lo": offset - low, "hi": offset + high},
            },
            **world.facts,
        }
        # Sources arrive in any order.
        order = self.draw.permutation(len(self.stamps))
        return Made(
            pl.DataFrame([self.stamps[k] for k in order], schema=stamps_schema(), orient="row"),
            pl.DataFrame(self.attempts, schema=attempts_schema(), orient="row"),
            facts,
            self.truth,
            self.look,
        )

    def lag(self) -> int:
        return round(self.draw.uniform(0, self.world.lag_s) * S)

    def stamp(self, of: tuple[str, str, str, str], moment: str, **told: Any) -> None:
        name, kind, uid, workload = of
        row = {**dict.fromkeys(stamps_schema()), "name": name, "kind": kind, "uid": uid, "workload": workload}
        row |= {"namespace": "n", "moment": moment, "reported": True, **told}
        if row["received_ns"] <= self.look:
            self.stamps.append(row)

    def server(self, of: tuple[str, str, str, str], moment: str, at: int, source: str, **more: Any) -> None:
        """One stamp by the server's clock, in whole seconds or microseconds."""
        step = 1000 if source.startswith("event") else S
        told = {"at_ns": (at + self.offset) // step * step, "resolution_ns": step, "received_ns": at + self.lag()}
        self.stamp(of, moment, source=source, clock="server", **told, **more)

    def all_sources(self, of: tuple[str, str, str, str], moment: str, at: int) -> None:
        if at > self.look:
            return
        if moment not in ("bound", "running"):
            self.server(of, moment, at, SECONDS_SOURCE.get(moment, f"condition {moment}"))
        seen = at + self.lag()
        if self.world.watch:
            self.stamp(of, moment, at_ns=seen, resolution_ns=1, received_ns=seen, source="watch", clock="client")
        if moment == "scheduled" and self.draw.random() < self.world.events:
            late = round(self.draw.uniform(0, self.world.event_late_s) * S) if self.world.event_late_s else 0
            self.server(of, moment, at + late, "event Scheduled")

    def after(self, mean_s: float) -> int:
        return round(self.draw.exponential(mean_s) * S)

    def workload(self, k: int) -> None:
        world, w = self.world, f"w-{k:05}"
        due = BEGIN + round(k * world.every_s * S)
        sent = due + self.after(0.001)
        answered = sent + round(self.draw.uniform(0.002, 0.03) * S)
        created, dated = (int(self.draw.integers(sent, answered)) for _ in range(2))
        times = self.truth[w] = {"due": due, "submitted": sent}
        refused = bool(self.draw.random() < world.refused)
        row = {**dict.fromkeys(attempts_schema()), "workload": w, "index": k, "kind": world.kind, "name": w}
        row |= {"namespace": "n", "attempt": 0, "due_ns": due, "sent_ns": sent, "acknowledged_ns": answered}
        row |= {"status": 403, "reason": "Forbidden"} if refused else {"status": 201, "uid": f"{w}-uid"}
        self.attempts.append({**row, "server_date_s": (dated + self.offset) // S})
        if refused:
            return
        times |= {"acknowledged": answered, "workload_created": created}
        self.all_sources((w, world.kind, f"{w}-uid", w), "created", created)
        self.pods(w, times, self.job(w, times, created))

    def job(self, w: str, times: dict[str, int], at: int) -> int:
        """Makes the job and passes the queue; returns when that was done."""
        if self.world.kind not in ("Job", "Pod"):
            at += self.after(0.05)
            self.all_sources((f"{w}-job", "RunaiJob", f"{w}-job-uid", w), "created", at)
        if self.world.kind != "Pod":
            times["job_created"] = at
        for moment, wait in (("queued", 0.05), ("quota_reserved", 0.6), ("admitted", 0.1)) if self.world.queue else ():
            at += self.after(wait)
            times[moment] = at
            self.all_sources((f"{w}-q", "Workload", f"{w}-q-uid", w), moment, at)
        return at

    def pods(self, w: str, times: dict[str, int], first: int) -> None:
        world = self.world
        never = bool(self.draw.random() < world.never)
        pods: dict[str, list[int]] = {}
        for p in range(world.gang):
            of = (f"{w}-{p}", "Pod", f"{w}-{p}-uid", w) if world.kind != "Pod" else (w, "Pod", f"{w}-uid", w)
            at = first if world.kind == "Pod" else first + round(self.draw.uniform(0.01, 0.2) * S)
            pods.setdefault("created", []).append(at)
            if world.kind != "Pod":
                self.all_sources(of, "created", at)
            if never:
                times["unschedulable"] = min(at, times.get("unschedulable", at))
                self.server(of, "unschedulable", at, "condition PodScheduled", reason="Unschedulable")
                continue
            for step in POD_STEPS:
                drawn = step == "scheduled"
                at += round(self.draw.uniform(*world.scheduling_s) * S) if drawn else self.after(world.starting_s / 5)
                pods.setdefault(step, []).append(at)
                self.all_sources(of, step, at)
        if world.pod_groups:
            times["pod_group_created"] = min(pods["created"]) + round(self.draw.uniform(0.001, 0.05) * S)
            self.all_sources((f"pg-{w}", "PodGroup", f"pg-{w}-uid", w), "created", times["pod_group_created"])
        for step, ends in pods.items():
            times |= {f"first_{step}": min(ends), f"quorum_{step}": max(ends), f"last_{step}": max(ends)}
            times |= {f"pod {p} {step}": end for p, end in enumerate(ends)}


def drawn_world(seed: int) -> World:
    """Any world: few or many pods, quick or slow, with or without watches, Events, queues, and an early last look."""
    draw = np.random.default_rng(1000 + seed)
    kind = str(draw.choice(["TrainingWorkload", "Job", "Pod"]))
    return World(
        n=int(draw.integers(1, 40)),
        gang=1 if kind == "Pod" else int(draw.integers(1, 6)),
        seed=seed,
        every_s=float(draw.choice([0.0, 0.01, 0.3])),
        scheduling_s=(0.0, float(draw.choice([0.01, 0.5, 8.0]))),
        starting_s=float(draw.choice([0.05, 1.0, 10.0])),
        offset_s=float(draw.normal(0, 20)),
        offset_known_s=float(draw.choice([0.0, 0.003, 0.4])),
        lag_s=float(draw.choice([0.0, 0.01, 0.3])),
        never=float(draw.choice([0, 0.3])),
        refused=float(draw.choice([0, 0.2])),
        events=float(draw.choice([0, 0.5, 1])),
        watch=bool(draw.random() < 0.7),
        kind=kind,
        queue=bool(draw.random() < 0.4) and kind != "Pod",
        pod_groups=bool(draw.random() < 0.5),
        look_s=float(draw.choice([3.0, 60.0])) if draw.random() < 0.6 else None,
    )
