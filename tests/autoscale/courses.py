"""Seeded courses of what a HorizontalPodAutoscaler sees: policies of every kind, pods that start and fail, metrics that
rise, fall, jump and fail. The same seed gives the same course for ever: recorded decisions go by it."""

from __future__ import annotations

import math
import random
from typing import Any

SYNC_NS = 15_000_000_000
SECOND_NS = 1_000_000_000
SOURCES = ("pods", "cpu", "resource", "external", "object")


def course(seed: int, steps: int = 60) -> dict[str, Any]:
    """A policy, the replicas at first, and what is seen at each sync, 15 s apart."""
    rnd = random.Random(seed)
    policy = _policy(rnd)
    # Below and above what the policy allows too; at 0 somebody else has stopped it.
    initial = rnd.randint(max(1, policy["min_replicas"] - 1), policy["max_replicas"] + 2) if rnd.random() > 0.03 else 0
    return {"policy": policy, "initial": initial, "steps": _steps(rnd, policy, initial, steps)}


def _policy(rnd: random.Random) -> dict[str, Any]:
    least = rnd.choice((1, 1, 1, 2, 3))
    sources = rnd.sample(SOURCES, rnd.choice((1, 1, 2, 3)))
    sees_zero = any(source in ("external", "object") for source in sources)
    return {
        "min_replicas": 0 if sees_zero and rnd.random() < 0.2 else least,
        "max_replicas": least + rnd.choice((0, 3, 8, 20, 60)),
        "metrics": [{"source": source, "target": _target(rnd, source)} for source in sources],
        "behavior": None if rnd.random() < 0.35 else {"up": _rules(rnd, "up"), "down": _rules(rnd, "down")},
    }


def _target(rnd: random.Random, source: str) -> dict[str, int]:
    if source in ("cpu", "resource") and rnd.random() < 0.7:
        return {"utilization": rnd.choice((30, 50, 80, 120))}
    milli = rnd.choice((700, 1000, 1500, 5000, 16_000, 333))
    return {"value" if source in ("external", "object") and rnd.random() < 0.5 else "average_value": milli}


def _rules(rnd: random.Random, way: str) -> dict[str, Any]:
    windows = (0, 0, 15, 60, 120, 300) if way == "up" else (None, 0, 30, 60, 300, 600)
    limits = [
        {
            "kind": kind,
            "value": rnd.choice((1, 2, 4, 10) if kind == "pods" else (10, 50, 100, 300)),
            "period_s": rnd.choice((15, 30, 60, 120, 600)),
        }
        for kind in rnd.sample(("pods", "percent"), rnd.choice((1, 2)))
    ]
    return {
        "stabilization_s": rnd.choice(windows),
        "select": rnd.choice(("max", "max", "min", "disabled") if rnd.random() < 0.5 else ("max", "min")),
        "policies": limits,
        "tolerance": rnd.choice((None, None, 0.0, 0.05, 0.25)),
    }


def _steps(rnd: random.Random, policy: dict[str, Any], initial: int, steps: int) -> list[dict[str, Any]]:
    """Demand walks, jumps and stands still; the pods follow a target of their own, which may lag behind."""
    demand = rnd.uniform(0.2, 1.5) * max(1, initial)
    pods: list[dict[str, Any]] = []
    out = []
    for step in range(steps):
        now_ns = step * SYNC_NS
        if rnd.random() < 0.08:
            demand = rnd.choice((0.0, rnd.uniform(0, 1.3 * policy["max_replicas"])))
        elif rnd.random() < 0.5:
            demand *= rnd.lognormvariate(0, 0.25)
        wanted = rnd.choice((initial, max(0, math.ceil(demand)), len(pods)))
        _follow(rnd, pods, min(wanted, policy["max_replicas"] + 3), now_ns)
        readings = [_reading(rnd, metric, demand, pods, now_ns) for metric in policy["metrics"]]
        alive = sum(not pod["deleted"] for pod in pods)
        seen = [dict(pod) for pod in pods]
        out.append({"now_ns": now_ns, "status_replicas": alive, "pods": seen, "readings": readings})
    return out


def _follow(rnd: random.Random, pods: list[dict[str, Any]], wanted: int, now_ns: int) -> None:
    pods[:] = [pod for pod in pods if not pod["deleted"] and (pod["phase"] != "failed" or rnd.random() < 0.5)]
    for pod in pods:
        if pod["phase"] == "pending" and rnd.random() < 0.5:
            pod |= {"phase": "running", "started_ns": now_ns - rnd.randint(0, 14) * SECOND_NS}
        if pod["phase"] == "running" and not pod["ready"] and rnd.random() < 0.5:
            pod |= {"ready": True, "ready_since_ns": now_ns - rnd.randint(0, 14) * SECOND_NS}
        elif pod["ready"] and rnd.random() < 0.03:
            pod |= {"ready": False, "ready_since_ns": now_ns - rnd.randint(0, 14) * SECOND_NS}
        if rnd.random() < 0.01:
            pod |= {"phase": "failed", "ready": False}
    for pod in pods[wanted:]:
        pod["deleted"] = True
    while len(pods) < wanted:
        pods.append(_new(rnd, now_ns))


def _new(rnd: random.Random, now_ns: int) -> dict[str, Any]:
    is_there = rnd.random() < 0.4
    started_ns = now_ns - rnd.choice((5, 100, 400)) * SECOND_NS
    return {
        "phase": "running" if is_there else "pending",
        "ready": rnd.choice((True, True, False, None)) if is_there else False,
        "ready_since_ns": started_ns + rnd.choice((0, 4, 40)) * SECOND_NS,
        "started_ns": rnd.choice((started_ns, started_ns, None)) if is_there else None,
        "deleted": False,
        "request": rnd.choice((500, 1000, 1000, 2000)),
    }


def _reading(rnd: random.Random, metric: dict[str, Any], demand: float, pods: list[dict[str, Any]], now_ns: int) -> Any:
    if rnd.random() < 0.06:
        return "failed"
    [(kind, target)] = metric["target"].items()
    if metric["source"] in ("external", "object"):
        total = demand * target / (1 if kind == "average_value" else max(1, len(pods)))
        total *= rnd.choice((1.0, 1.0, 1.04, 0.93, 1.2))
        parts = 1 if metric["source"] == "object" else rnd.choice((1, 1, 2, 3))
        return {"values": [int(total / parts) for _ in range(parts)]}
    per_pod = demand / max(1, len(pods))
    return {"per_pod": [_of_pod(rnd, pod, kind, target, per_pod, now_ns) for pod in pods]}


def _of_pod(
    rnd: random.Random, pod: dict[str, Any], kind: str, target: int, per_pod: float, now_ns: int
) -> dict[str, int] | None:
    if rnd.random() < (0.9 if pod["phase"] == "pending" else 0.06):
        return None
    on_target = pod["request"] * target / 100 if kind == "utilization" else target
    at_ns = now_ns - rnd.randint(0, 40) * SECOND_NS
    value = int(on_target * per_pod * rnd.choice((1.0, 1.0, 1.08, 0.85)))
    return {"value": value, "at_ns": at_ns, "window_ns": rnd.choice((10, 30)) * SECOND_NS}
