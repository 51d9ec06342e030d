"""KEDA's rules against a plain model of them, over courses by lot; formulas against Python."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from gpusize import _core
from gpusize.base.errors import UsageError
from tests.autoscale.keda_courses import FORMULAS, Values, course
from tests.autoscale.keda_model import follow


def outcomes(one: dict) -> list[dict]:
    told = _core.keda_course(json.dumps(one["object"]), json.dumps(one["events"]), replicas=one["replicas"])
    found: list[dict] = json.loads(told)
    return found


def test_each_poll_and_answer_is_the_models() -> None:
    acts, kinds = set(), set()
    for seed in range(1500):
        one = course(seed)
        found = outcomes(one)
        expected = follow(one)
        for place, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
            assert ours == theirs, f"course({seed}), event {place}: {one['events'][place]}"
        polls = [each["poll"] for each in found if "poll" in each]
        acts |= {each["act"] for each in polls}
        kinds |= {(each["is_active"], each["is_error"], each["is_fallback"]) for each in polls}
    # The courses reach every rule, so that a wrong one shows.
    assert acts == {"none", "activated", "deactivated", "raised", "cooling"}
    assert len(kinds) == 8


def poll(now_s: float, *raw: object, replicas: int | None = None) -> dict:
    values = [each if isinstance(each, str) else {"value": each} for each in raw]
    return {"now_ns": round(now_s * 1e9), "replicas": replicas, "ready": 1, "raw": values}


def scaled(**more: Any) -> dict[str, Any]:
    trigger = {"target": {"average_value": 5000}}
    return {"triggers": [trigger], **more}


def replicas_of(one: dict, events: list[dict], replicas: int) -> list[int]:
    found = outcomes({"object": one, "events": events, "replicas": replicas})
    return [each["poll"]["replicas"] for each in found]


def test_the_cooldown_begins_with_the_last_activity() -> None:
    # Of "Scaling Deployments": 300 s after the last trigger was active. Times are kept in whole seconds, cut off.
    events = [poll(0.5, 3.0), *(poll(30.0 * k + 0.5, 0.0) for k in range(1, 12))]
    assert replicas_of(scaled(), events, 0) == [1] * 10 + [0, 0]
    assert replicas_of(scaled(cooldown_s=45), events, 0) == [1, 1] + [0] * 10


def test_the_initial_cooldown_is_for_what_was_never_active() -> None:
    events = [poll(30.0 * k + 0.5, 0.0) for k in range(6)]
    assert replicas_of(scaled(initial_cooldown_s=90), events, 4) == [4, 4, 4, 0, 0, 0]
    assert replicas_of(scaled(), events, 4) == [0] * 6
    # Activity counts with the usual one.
    events[1] = poll(30.5, 1.0)
    assert replicas_of(scaled(initial_cooldown_s=90, cooldown_s=30), events, 4) == [4, 4, 0, 0, 0, 0]


def test_idle_replicas_are_those_without_activity() -> None:
    one = scaled(min_replicas=3, idle_replicas=0, cooldown_s=0)
    assert replicas_of(one, [poll(1, 9.0), poll(31, 0.0), poll(61, 9.0)], 0) == [3, 0, 3]
    # Without them there are never fewer than the least.
    assert replicas_of(scaled(min_replicas=3), [poll(1, 0.0), poll(31, 0.0)], 1) == [3, 3]


def test_activity_is_above_the_activation_and_not_at_it() -> None:
    one = scaled(triggers=[{"target": {"average_value": 1000}, "activation": 4.0}])
    assert replicas_of(one, [poll(1, 4.0), poll(31, 4.0001)], 0) == [0, 1]


def test_an_error_keeps_what_is_there() -> None:
    events = [poll(30.0 * k + 0.5, "failed") for k in range(20)]
    assert replicas_of(scaled(cooldown_s=0), events, 4) == [4] * 20
    fallback = {"failure_threshold": 3, "replicas": 0}
    # A fallback of none lets them go, and counts as activity from the fourth failure on.
    assert replicas_of(scaled(cooldown_s=0, fallback=fallback), events, 4) == [0, 0, 0, *([1] * 17)]


@pytest.mark.parametrize("behavior, wanted", [
    ("static", 6), ("current_replicas", 4), ("current_replicas_if_higher", 6), ("current_replicas_if_lower", 4),
])  # fmt: skip
def test_a_fallback_is_a_value_that_asks_for_its_replicas(behavior: str, wanted: int) -> None:
    fallback = {"failure_threshold": 2, "replicas": 6, "behavior": behavior}
    asked = {**poll(1, "failed"), "asks": 0}
    one: dict[str, Any] = {"object": scaled(fallback=fallback), "events": [asked] * 4, "replicas": 4}
    assert [each["told"] for each in outcomes(one)] == [None, None, 5000 * wanted, 5000 * wanted]
    # With `Value` the HPA multiplies by the ready pods, so the value is divided by them.
    one["object"]["triggers"] = [{"target": {"value": 5000}}]
    one["events"] = [{**asked, "ready": 3}] * 3
    assert outcomes(one)[-1]["told"] == int(5000 * (wanted / 3))
    one["events"] = [{**asked, "ready": 0}] * 3
    assert outcomes(one)[-1]["told"] is None


def test_cached_metrics_are_those_of_the_last_poll() -> None:
    one = scaled(triggers=[{"target": {"average_value": 1000}, "use_cached": True}])
    asks = {**poll(40, 8.0), "asks": 0}
    found = outcomes({"object": one, "events": [asks, poll(30, 5.0), asks, asks, poll(60, 8.0), asks], "replicas": 1})
    assert [each["told"] for each in found if "told" in each] == [8000, 5000, 5000, 8000]


def test_formulas_are_what_python_makes_of_them() -> None:
    rnd = random.Random(3)
    for _ in range(2000):
        text, values = (
            _formula(rnd, 4),
            {name: rnd.choice((rnd.uniform(-9, 9), float(rnd.randrange(5)))) for name in "abc"},
        )
        ours = _core.keda_formula(text[0], list(values), list(values.values()))
        expected = eval(text[1], {"max": max, "min": min, "abs": abs}, values)
        assert ours == pytest.approx(float(expected), rel=1e-12), text


def _formula(rnd: random.Random, depth: int) -> tuple[str, str]:
    """A formula, and the same in Python."""
    if depth == 0 or rnd.random() < 0.15:
        text = rnd.choice(("a", "b", "c", "2", "0.5", "7"))
        return text, text
    kind = rnd.randrange(6)
    left, right = _formula(rnd, depth - 1), _formula(rnd, depth - 1)
    if kind < 3:
        sign = rnd.choice("+-*")
        return f"({left[0]} {sign} {right[0]})", f"({left[1]} {sign} {right[1]})"
    if kind == 3:
        name = rnd.choice(("max", "min"))
        return f"{name}({left[0]}, {right[0]})", f"{name}({left[1]}, {right[1]})"
    if kind == 4:
        return f"abs({left[0]})", f"abs({left[1]})"
    sign, other = rnd.choice(("<", ">=")), _formula(rnd, depth - 1)
    condition = f"{left[0]} {sign} {right[0]}", f"{left[1]} {sign} {right[1]}"
    return f"({condition[0]} ? {other[0]} : 1)", f"({other[1]} if {condition[1]} else 1)"


def test_the_formulas_of_the_courses_are_understood() -> None:
    rnd = random.Random(4)
    for text, python in FORMULAS.items():
        for _ in range(50):
            values: Values = {name: rnd.uniform(0, 12) for name in ("queue", "running")}
            assert _core.keda_formula(text, list(values), list(values.values())) == pytest.approx(python(values))


@pytest.mark.parametrize(
    "change, problem",
    [
        ({"polling_s": 0}, "polling_s must be between 1 and 86400, not 0"),
        ({"triggers": []}, "triggers must have at least one"),
        ({"min_replicas": 2, "idle_replicas": 2}, "idle_replicas must be less than min_replicas (2), not 2"),
        ({"fallback": {"failure_threshold": -1, "replicas": 1}}, "fallback must have a failure_threshold"),
        ({"cooldown": 5}, "unknown field `cooldown`"),
    ],
)
def test_an_object_that_keda_would_refuse_is_refused(change: dict, problem: str) -> None:
    with pytest.raises(UsageError) as raised:
        _core.keda_course(json.dumps(scaled(**change)), "[]")
    assert problem in str(raised.value)
    with pytest.raises(UsageError):
        _core.keda_course(json.dumps(scaled()), json.dumps([poll(0, 1.0, 2.0)]))
