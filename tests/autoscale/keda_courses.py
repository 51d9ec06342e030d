"""Seeded courses of what KEDA sees: ScaledObjects of every kind, triggers that rise, fall, fail and have no value, and
polls with the HPA's questions between them. The same seed gives the same course for ever: recorded outcomes go by it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

SECOND_NS = 1_000_000_000
NAMES = ("queue", "running", "tokens")
Values = dict[str, float | None]


def _given(value: float | None, other: float) -> float:
    return other if value is None else value


FORMULAS: dict[str, Callable[[Values], float | None]] = {
    "queue": lambda v: _number(v["queue"]),
    "queue + 2 * running": lambda v: _number(v["queue"]) + 2 * _number(v["running"]),
    "max(queue, running, 1)": lambda v: max(_number(v["queue"]), _number(v["running"]), 1),
    "queue > 5 ? queue * 2 : running": lambda v: (
        _number(v["queue"]) * 2 if _number(v["queue"]) > 5 else _number(v["running"])
    ),
    "queue ?? running": lambda v: v["running"] if v["queue"] is None else v["queue"],
    "(queue ?? 40) + (running ?? 0.5)": lambda v: _given(v["queue"], 40) + _given(v["running"], 0.5),
    "sum([queue, running]) / 2": lambda v: (_number(v["queue"]) + _number(v["running"])) / 2,
    "count([queue, running], {# > 3}) * 7": lambda v: 7 * sum(_number(v[name]) > 3 for name in ("queue", "running")),
}
"""Formulas over the first two names, and the same in Python; nil where a number is wanted is a TypeError."""


def _number(value: float | None) -> float:
    if value is None:
        raise TypeError
    return value


def course(seed: int, polls: int = 40) -> dict[str, Any]:
    """An object, the replicas at first, and events: polls, and questions of the HPA 15 s apart."""
    rnd = random.Random(seed)
    scaled = _object(rnd)
    replicas = rnd.choice((0, 1, 2, 5, scaled["min_replicas"]))
    return {"object": scaled, "replicas": replicas, "events": _events(rnd, scaled, polls)}


def _object(rnd: random.Random) -> dict[str, Any]:
    least = rnd.choice((0, 0, 0, 1, 2, 3))
    idle = rnd.randrange(least) if least and rnd.random() < 0.4 else None
    modified = rnd.random() < 0.45
    count = rnd.choice((2, 3)) if modified else rnd.choice((1, 1, 2, 3))
    triggers = [_trigger(rnd, NAMES[place] if modified or rnd.random() < 0.5 else None) for place in range(count)]
    behaviors = ["static", "current_replicas", "current_replicas_if_higher", "current_replicas_if_lower"]
    behavior = rnd.choice([*behaviors, "scaling_modifiers", "scaling_modifiers"] if modified else behaviors)
    fallback = {"failure_threshold": rnd.choice((0, 1, 3)), "replicas": rnd.choice((0, 1, 4, 9)), "behavior": behavior}
    modifiers = {
        "formula": rnd.choice(list(FORMULAS)),
        "target": rnd.choice(("5", "10", "3", "2.5")),
        "activation": rnd.choice((0.0, 0.0, 4.5)),
        "is_value": rnd.random() < 0.3,
    }
    return {
        "polling_s": rnd.choice((5.0, 10.0, 30.0, 30.0)),
        "cooldown_s": rnd.choice((0, 30, 60, 300)),
        "initial_cooldown_s": rnd.choice((0, 0, 45, 120)),
        "min_replicas": least,
        "idle_replicas": idle,
        "fallback": fallback if rnd.random() < 0.7 else None,
        "triggers": triggers,
        "modifiers": modifiers if modified else None,
    }


def _trigger(rnd: random.Random, name: str | None) -> dict[str, Any]:
    target = rnd.choice((1000, 5000, 570, 16_000, 1))
    return {
        "name": name,
        "target": {"value" if rnd.random() < 0.3 else "average_value": target},
        "activation": rnd.choice((0.0, 0.0, 2.5, 10.0)),
        "use_cached": rnd.random() < 0.3,
        "ignore_null": rnd.random() < 0.7,
    }


def _events(rnd: random.Random, scaled: dict[str, Any], polls: int) -> list[dict[str, Any]]:
    """Each trigger is quiet, busy, failing or without a value for a while; replicas are set by others now and then."""
    polling_ns = int(scaled["polling_s"] * SECOND_NS)
    first_ns = rnd.randrange(SECOND_NS)
    question_ns = first_ns + rnd.randrange(15 * SECOND_NS)
    metrics = 1 if scaled["modifiers"] else len(scaled["triggers"])
    moods = ["quiet"] * len(scaled["triggers"])
    events: list[dict[str, Any]] = []
    for poll in range(polls):
        now_ns = first_ns + poll * polling_ns
        moods = [_mood(rnd, mood) for mood in moods]
        while question_ns < now_ns:
            for place in range(metrics):
                event = _event(rnd, question_ns, moods)
                events.append({**event, "asks": place})
            question_ns += 15 * SECOND_NS
        events.append(_event(rnd, now_ns, moods))
    return events


def _mood(rnd: random.Random, mood: str) -> str:
    return rnd.choice(("quiet", "busy", "failing", "absent", "busy", "quiet")) if rnd.random() < 0.15 else mood


def _event(rnd: random.Random, now_ns: int, moods: list[str]) -> dict[str, Any]:
    others = rnd.choice((0, 1, 2, 3, 5, 8)) if rnd.random() < 0.06 else None
    ready = rnd.choice((0, 1, 2, 3, 5))
    return {"now_ns": now_ns, "replicas": others, "ready": ready, "raw": [_raw(rnd, mood) for mood in moods]}


def _raw(rnd: random.Random, mood: str) -> Any:
    if mood == "failing":
        return "failed" if rnd.random() < 0.97 else {"value": 3.0}
    if mood == "absent":
        return "absent"
    if rnd.random() < 0.02:
        return "failed"
    if mood == "quiet":
        return {"value": 0.0}
    return {"value": rnd.choice((rnd.uniform(0, 40), rnd.uniform(0, 40), float(rnd.randrange(12)), 0.0005, -2.0))}
