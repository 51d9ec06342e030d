"""KEDA's rules once more, in plain Python, from its documentation (ScaledObject specification, scaling deployments,
Prometheus scaler of 2.20) and, where that is silent, from what docs/reference/autoscale.md says of its code."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from tests.autoscale.keda_courses import FORMULAS

SECOND_NS = 1_000_000_000


class Failure(Exception):
    """A trigger, or a metric, has no value to go by."""


class Model:
    """One ScaledObject, created at 0."""

    def __init__(self, scaled: dict[str, Any]) -> None:
        self.scaled = scaled
        self.triggers = scaled["triggers"]
        self.stored = [0] * len(self.triggers)
        self.own: list[int] | None = None  # the questions' copy of it; None: they look at what is stored
        self.built = False
        self.cache: dict[int, Any] = {}
        self.active_s: int | None = None

    # What a query comes to

    def value(self, place: int, raw: Any) -> float:
        if raw == "failed":
            raise Failure
        found = None if raw == "absent" else float(raw["value"])
        if found is None or not math.isfinite(found):
            if self.triggers[place]["ignore_null"]:
                return 0.0
            raise Failure
        return found

    @staticmethod
    def thousandths(value: float) -> int:
        exact = Decimal(max(0.0, value)) * 1000
        return int(exact.to_integral_value(ROUND_HALF_EVEN))

    # Fallback

    def fallback_holds(self) -> bool:
        modifiers = self.scaled["modifiers"]
        return self.scaled["fallback"] is not None and (modifiers is None or modifiers["target"].isdecimal())

    def stand_in(self, place: int, event: dict[str, Any], replicas: int) -> tuple[int, bool]:
        fallback, modifiers = self.scaled["fallback"], self.scaled["modifiers"]
        behavior, wanted = fallback["behavior"], fallback["replicas"]
        if behavior == "scaling_modifiers":
            return -1000, False
        if behavior == "current_replicas":
            wanted = replicas
        elif behavior == "current_replicas_if_higher":
            wanted = max(wanted, replicas)
        elif behavior == "current_replicas_if_lower":
            wanted = min(wanted, replicas)
        [(kind, milli)] = self.triggers[place]["target"].items()
        target = milli * 1e-3
        if modifiers is not None:
            kind = "value" if modifiers["is_value"] else "average_value"
            target = float(modifiers["target"])
        share = float(wanted)
        if kind == "value":
            if event["ready"] == 0:
                raise Failure
            share /= event["ready"]
        return int(target * 1000 * share), True

    def settle(self, asking: bool, place: int, found: Any, event: dict[str, Any], replicas: int) -> tuple[int, bool]:
        """The value in thousandths, and whether it is the fallback's; ``found`` is a value, or None for a failure."""
        if not self.fallback_holds():
            if found is None:
                raise Failure
            return found, False
        counts = self.own if asking and self.own is not None else self.stored
        before = counts[place]
        after = before + 1 if found is None else 0
        if after != before:
            self.stored[place] = after
            if asking and self.own is not None:
                self.own = list(self.stored)
        if found is not None:
            return found, False
        if after <= self.scaled["fallback"]["failure_threshold"]:
            raise Failure
        return self.stand_in(place, event, replicas)

    def composite(self, asking: bool, told: list[tuple[int, bool] | None]) -> int:
        fallback, modifiers = self.scaled["fallback"], self.scaled["modifiers"]
        for each in told:
            if each is not None and each[1]:
                return each[0]
        counts = self.own if asking and self.own is not None else self.stored
        values: dict[str, float | None] = {}
        for place, each in enumerate(told):
            nil = each is None
            if fallback is not None and fallback["behavior"] == "scaling_modifiers":
                nil = nil or counts[place] > fallback["failure_threshold"]
            values[self.triggers[place]["name"]] = None if nil or each is None else each[0] * 1e-3
        try:
            result = FORMULAS[modifiers["formula"]](values)
        except TypeError:
            raise Failure from None
        if result is None:
            if fallback is None:
                raise Failure
            result = fallback["replicas"] * float(modifiers["target"])
        return int(result * 1000)

    def rebuild(self) -> None:
        self.cache, self.own, self.built = {}, None, False

    # The two things that happen

    def question(self, event: dict[str, Any], replicas: int) -> int | None:
        if not self.built:
            self.built, self.own = True, list(self.stored)
        modifiers = self.scaled["modifiers"]
        places = range(len(self.triggers)) if modifiers else [event["asks"]]
        told: list[tuple[int, bool] | None] = []
        for place in places:
            try:
                if place in self.cache:
                    found = self.cache[place]
                else:
                    found = self.thousandths(self.value(place, event["raw"][place]))
            except Failure:
                found = None
            try:
                told.append(self.settle(True, place, found, event, replicas))
            except Failure:
                told.append(None)
        fell_back = any(each is not None and each[1] for each in told)
        answer: int | None = None
        if None not in told or fell_back:
            try:
                first = told[0]
                answer = self.composite(True, told) if modifiers else first[0] if first is not None else None
            except Failure:
                answer = None
        if None in told:
            self.rebuild()
        return answer

    def poll(self, event: dict[str, Any], replicas: int) -> dict[str, Any]:
        self.built = True  # by a poll's copy, unless a question's is there
        modifiers = self.scaled["modifiers"]
        active = fell_back = False
        told: list[tuple[int, bool] | None] = []
        cache: dict[int, Any] = {}
        for place, raw in enumerate(event["raw"]):
            try:
                value = self.value(place, raw)
                found, above = self.thousandths(value), value > self.triggers[place]["activation"]
            except Failure:
                found, above = None, False
            try:
                each = self.settle(False, place, found, event, replicas)
                told.append(each)
                fell_back |= each[1]
                active |= each[1] or above
            except Failure:
                told.append(None)
            if self.triggers[place]["use_cached"]:
                last = told[-1]
                cache[place] = None if last is None else last[0]
        error = None in told
        if error:
            self.rebuild()
        if modifiers:
            try:
                active = not error and self.composite(False, told) * 1e-3 > modifiers["activation"]
            except Failure:
                active = False
        if cache:
            self.cache = cache
        after, act = self.scale(event["now_ns"], replicas, active, error)
        return {"replicas": after, "is_active": active, "is_error": error, "is_fallback": fell_back, "act": act}

    def scale(self, now_ns: int, replicas: int, active: bool, error: bool) -> tuple[int, str]:
        scaled = self.scaled
        least, idle, fallback = scaled["min_replicas"], scaled["idle_replicas"], scaled["fallback"]
        if active:
            wakes = replicas == 0 or (idle is not None and replicas < least)
            if wakes or not error:
                self.active_s = now_ns // SECOND_NS
            return (max(1, least), "activated") if wakes else (replicas, "none")
        if error and (fallback is None or fallback["replicas"] > 0):
            return replicas, "none"
        if (idle is not None and replicas > idle) or (replicas > 0 and least == 0):
            since, period = (0, "initial_cooldown_s") if self.active_s is None else (self.active_s, "cooldown_s")
            if now_ns <= (since + scaled[period]) * SECOND_NS:
                return replicas, "cooling"
            return (least if idle is None else idle), "deactivated"
        if idle is None and replicas < least:
            return least, "raised"
        return replicas, "none"


def follow(one: dict[str, Any]) -> list[dict[str, Any]]:
    """The outcomes of a course, in the extension's form."""
    model, replicas = Model(one["object"]), one["replicas"]
    outcomes: list[dict[str, Any]] = []
    for event in one["events"]:
        if event["replicas"] is not None:
            replicas = event["replicas"]
        if event.get("asks") is not None:
            outcomes.append({"told": model.question(event, replicas)})
        else:
            found = model.poll(event, replicas)
            replicas = found["replicas"]
            outcomes.append({"poll": found})
    return outcomes
