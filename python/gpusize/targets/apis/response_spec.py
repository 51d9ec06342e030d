"""How an answer is read, as data: where in it things stand, what ends a stream, what makes it a success.

A **pointer** is a JSON pointer (RFC 6901). A **condition** is ``{"at": pointer, "is": [texts, numbers or booleans]}``:
the value there is one of them; with ``is`` None it is present, not null and not false. A **place** is a pointer, or
``{"at": pointer, "if": condition}``: it counts only in an event that satisfies the condition. A **sign** is a
condition, or ``"content"``: some content or reasoning, tensors too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, get_args

from gpusize.base.errors import UsageError
from gpusize.base.text import shown
from gpusize.targets.apis.pointers import pointer
from gpusize.targets.apis.server_times import TimePlace, time_places

__all__ = ["Condition", "Framing", "JsonRule", "Place", "ResponseSpec", "Sign", "any_of"]

Framing = Literal["auto", "whole", "sse", "ndjson", "text", "kserve", "kserve_stream"]
"""How an answer is cut into events; auto: by its content type. The last two: KServe messages over gRPC."""

JsonRule = Literal["always", "by_type"]
"""Which answers are read as JSON."""

Condition = Mapping[str, Any]
"""``{"at": pointer, "is": None or a list}``."""

Place = str | Mapping[str, Any]
"""A pointer, or ``{"at": pointer, "if": condition}``."""

Sign = Literal["content"] | Condition
"""What a success brings: content, or a document that satisfies a condition."""

_PLACES: Final = ("content", "reasoning", "tokens_in", "tokens_out", "tokens_cached", "tokens_reasoning", "error")
_ALWAYS_LISTS: Final = ("content", "reasoning")
_TIMES: Final = ("server_queue", "server_service")
_OPTIONAL: Final = ("success_if", "calls", *_TIMES)
_CALL_NEEDS: Final = ("kind", "id", "name", "time_s")
_CALL_MAY: Final = ("tokens_in", "tokens_out")
_CALL_TEXTS: Final = ("field", "start", "end")


@dataclass(frozen=True)
class ResponseSpec:
    """How to read an answer.

    Args:
        framing: how the answer is cut into events.
        content: places; a non-empty text at any of them is content.
        reasoning: likewise, reasoning before the content.
        tokens_in: the server's count of prompt tokens: one place, or several of which the first that is there counts.
        tokens_out: its count of generated tokens, likewise.
        tokens_cached: its count of prompt tokens found in its cache.
        tokens_reasoning: its count of reasoning tokens among the generated ones.
        server_queue: how long the server says that a request waited in it, as `targets.apis.server_times` has it: one
            place, or several of which the first that is there counts. What comes later in a stream replaces what came
            before, and a document what a header said.
        server_service: how long it says that it served the request, from its turn to its end, likewise.
        error: places; something other than null at any of them makes a successful status an error.
        end: the event that ends a stream, as its text or as a condition, or several of these; a stream without any of
            them is truncated.
        success: the statuses that are a success, first and last.
        json: which answers are read as JSON: ``always``, and another is an error, or ``by_type`` where the content type
            says so.
        success_if: a sign, or several of which the answer, or some event of a stream, must bring one; else it is an
            error. None: any answer will do.
        calls: where the steps inside a workflow stand: ``field``, ``kind``, ``start``, ``end``, ``id``, ``name``,
            ``time_s``, ``tokens_in``, ``tokens_out``.

    Raises:
        UsageError: an invalid value.
    """

    framing: Framing = "auto"
    content: Sequence[Place] | Place = ()
    reasoning: Sequence[Place] | Place = ()
    tokens_in: Sequence[Place] | Place | None = None
    tokens_out: Sequence[Place] | Place | None = None
    tokens_cached: Sequence[Place] | Place | None = None
    tokens_reasoning: Sequence[Place] | Place | None = None
    server_queue: Sequence[TimePlace] | TimePlace | None = None
    server_service: Sequence[TimePlace] | TimePlace | None = None
    error: Sequence[Place] | Place | None = "/error"
    end: Sequence[str | Condition] | str | Condition | None = None
    success: tuple[int, int] = (200, 299)
    json: JsonRule = "always"
    success_if: Sign | Sequence[Sign] | None = None
    calls: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name, value, choices in (("framing", self.framing, Framing), ("json", self.json, JsonRule)):
            if value not in get_args(choices):
                known = ", ".join(get_args(choices))
                raise UsageError(f'"{shown(value)}" is not a {name} rule', f"response {name}", f"use one of {known}")
        for name in _PLACES:
            object.__setattr__(self, name, _places(getattr(self, name), f"response {name}"))
        for name in _TIMES:
            object.__setattr__(self, name, time_places(getattr(self, name), f"response {name}"))
        object.__setattr__(self, "end", _end(self.end))
        if self.success_if is not None:
            object.__setattr__(self, "success_if", _signs(self.success_if))
        if self.calls is not None:
            object.__setattr__(self, "calls", _calls(self.calls))
        _check_statuses(self.success)

    def changed(self, overrides: Mapping[str, Any]) -> ResponseSpec:
        """This with some fields replaced.

        Raises:
            UsageError: a name that is no field, or an invalid value.
        """
        known = [item.name for item in fields(self)]
        values: dict[str, Any] = {}
        for name, value in overrides.items():
            if name not in known:
                raise UsageError(
                    f'"{shown(name)}" says nothing about a response', "response", f"use one of {', '.join(known)}"
                )
            values[name] = tuple(value) if name == "success" and isinstance(value, list) else value
        return replace(self, **values)

    def to_dict(self) -> dict[str, Any]:
        """The engine's ResponseSpec, ready for JSON.

        Of the token counts and ``error`` a single plain pointer stands as a text and none as null, several as a list;
        ``success_if``, ``calls`` and the server's times are left out when they are not set.
        """
        plain = {item.name: getattr(self, item.name) for item in fields(self)}
        for name in _PLACES:
            plain[name] = list(plain[name])
            if name not in _ALWAYS_LISTS:
                plain[name] = _short(plain[name])
        for name in _TIMES:
            plain[name] = list(plain[name]) or None
        plain["success"] = list(plain["success"])
        return {name: value for name, value in plain.items() if value is not None or name not in _OPTIONAL}


def _short(places: list[Place]) -> Any:
    if not places:
        return None
    return places[0] if len(places) == 1 and isinstance(places[0], str) else places


def _places(value: Any, where: str) -> tuple[Place, ...]:
    if value is None or value == "":
        return ()
    return tuple(_place(one, where) for one in (value if isinstance(value, list | tuple) else [value]))


def _place(value: Any, where: str) -> Place:
    if not isinstance(value, Mapping):
        return pointer(value, where)
    if not value.keys() <= {"at", "if"} or "at" not in value:
        raise UsageError(
            f"{shown(dict(value))} is not a place",
            where,
            'write {"at": "/delta", "if": {"at": "/type", "is": ["text"]}}',
        )
    at = pointer(value["at"], where)
    return {"at": at, "if": _condition(value["if"], where)} if value.get("if") is not None else at


def _condition(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not value.keys() <= {"at", "is"} or "at" not in value:
        raise UsageError(
            f"{shown(dict(value) if isinstance(value, Mapping) else value)} is not a condition",
            where,
            'write {"at": "/status", "is": ["ok"]}',
        )
    wanted = value.get("is")
    if wanted is not None:
        wanted = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
        if not wanted or not all(isinstance(one, str | int | float) for one in wanted):
            raise UsageError(
                f"{shown(wanted)} are not values to compare with", where, "give texts, numbers or booleans"
            )
    return {"at": pointer(value["at"], where), "is": wanted}


def any_of(*places: str) -> tuple[Sign, ...]:
    """Content, or something at one of ``places``: what tells an empty answer from one that is none."""
    return ("content", *({"at": each, "is": None} for each in places))


def _signs(value: Any) -> Any:
    """One sign as it is, several as a list."""
    if isinstance(value, list | tuple):
        if not value:
            raise UsageError("there is no sign of a success", "response success_if", 'give one, as "content"')
        return [_signs(one) for one in value] if len(value) > 1 else _signs(value[0])
    return value if value == "content" else _condition(value, "response success_if")


def _end(value: Any) -> Any:
    """One end as it is, several as a list."""
    if isinstance(value, list | tuple) and value:
        return [_end(one) for one in value]
    if value is None or (isinstance(value, str) and value):
        return value
    if isinstance(value, Mapping):
        return _condition(value, "response end")
    raise UsageError(
        f"{shown(value)} is neither a text nor a condition", "response end", "give the event's text, as [DONE]"
    )


def _check_statuses(given: Any) -> None:
    """What a configuration file says need not be of the declared type."""
    statuses = list(given) if isinstance(given, tuple) else [given]
    good = len(statuses) == 2 and all(type(one) is int for one in statuses)
    if not good or not 100 <= statuses[0] <= statuses[1] <= 599:
        raise UsageError(f"{shown(statuses)} is not a range of statuses", "response success", "give it as 200-299")


def _calls(value: Any) -> dict[str, Any]:
    where = "response calls"
    known = (*_CALL_TEXTS, *_CALL_NEEDS, *_CALL_MAY)
    if not isinstance(value, Mapping) or not value.keys() <= set(known):
        raise UsageError(f"{shown(value)} does not say where calls stand", where, f"give {', '.join(known)}")
    rule: dict[str, Any] = {}
    for name in _CALL_TEXTS:
        text = value.get(name)
        if not isinstance(text, str) or not text:
            raise UsageError(f'"{name}" is missing', where, f"give {', '.join(known)}")
        rule[name] = text
    for name in (*_CALL_NEEDS, *_CALL_MAY):
        at = value.get(name)
        if at is None and name in _CALL_NEEDS:
            raise UsageError(f'"{name}" is missing', where, f"give {', '.join(known)}")
        rule[name] = None if at is None else pointer(at, f"{where} {name}")
    return rule
