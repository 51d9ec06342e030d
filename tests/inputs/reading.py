"""A plain reading of answers by a ResponseSpec's JSON, written from docs/reference/engine.md, to try the data on."""

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Reading:
    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=dict)
    error: Any = None
    ended: bool = False
    satisfied: bool = False


def at(document, pointer):
    value = document
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, dict) and name in value:
            value = value[name]
        else:
            return None
    return value


def holds(document, condition):
    value = at(document, condition["at"])
    if condition["is"] is None:
        return value is not None and value is not False
    return any(type(value) is type(one) and value == one for one in condition["is"])


def look(document, place):
    if isinstance(place, str):
        return at(document, place)
    return at(document, place["at"]) if holds(document, place["if"]) else None


def places(value):
    return [] if value is None else value if isinstance(value, list) else [value]


def read(spec: dict[str, Any], events: list[Any]) -> Reading:
    """Events are JSON values, or texts that are no JSON, such as [DONE]."""
    spec = json.loads(json.dumps(spec))
    reading = Reading(satisfied=spec.get("success_if") is None)
    for event in events:
        if isinstance(event, str):
            reading.ended |= event in places(spec["end"])
            continue
        for name in ("content", "reasoning"):
            texts = [look(event, place) for place in spec[name]]
            getattr(reading, name).extend(text for text in texts if isinstance(text, str) and text)
        for name in ("tokens_in", "tokens_out", "tokens_cached", "tokens_reasoning"):
            counts = [look(event, place) for place in places(spec[name])]
            known = [count for count in counts if count is not None]
            if known:
                reading.tokens[name] = known[0]
        errors = [look(event, place) for place in places(spec["error"])]
        reading.error = next((error for error in errors if error is not None), reading.error)
        reading.ended |= any(holds(event, end) for end in places(spec["end"]) if isinstance(end, dict))
        for sign in places(spec.get("success_if")):
            reading.satisfied |= bool(reading.content or reading.reasoning) if sign == "content" else holds(event, sign)
    return reading
