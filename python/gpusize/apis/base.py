"""What an API is, as data: how a dataset row becomes a request body, and where in an answer things stand.

A third party offers its own by an entry point in the group ``gpusize.apis``: a name, and a callable that takes
`ApiOptions` and returns an object of the shape of `Api`.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from decimal import Decimal
from typing import Any, Final, Literal, Protocol, get_args, runtime_checkable

from gpusize.dataset import Row
from gpusize.errors import DatasetError, UsageError
from gpusize.textio import shown

__all__ = ["Api", "ApiOptions", "Framing", "ResponseSpec", "Segment", "encode_json", "render", "row_error"]

Segment = dict[str, Any]
"""A piece of a body: ``{"static": text}``, ``{"field": k}``, a counter or a random number."""

Framing = Literal["auto", "whole", "sse", "ndjson"]
"""How an answer is cut into events; auto: by its content type."""

JsonRule = Literal["always", "by_type"]
"""Which answers are read as JSON."""

_LISTS: Final = ("content", "reasoning")


@dataclass(frozen=True)
class ResponseSpec:
    """How to read an answer. Places are JSON pointers (RFC 6901).

    Args:
        framing: how the answer is cut into events.
        content: a non-empty text at any of these is content.
        reasoning: likewise, reasoning before the content.
        tokens_in: the server's count of prompt tokens.
        tokens_out: its count of generated tokens.
        tokens_cached: its count of prompt tokens found in its cache.
        tokens_reasoning: its count of reasoning tokens among the generated ones.
        error: something other than null here makes a successful status an error.
        end: the event that ends a stream; a stream without it is truncated.
        success: the statuses that are a success, first and last.
        json: which answers are read as JSON: ``always``, and another is an error, or ``by_type`` where the content type
            says so.
    """

    framing: Framing = "auto"
    content: Sequence[str] = ()
    reasoning: Sequence[str] = ()
    tokens_in: str | None = None
    tokens_out: str | None = None
    tokens_cached: str | None = None
    tokens_reasoning: str | None = None
    error: str | None = "/error"
    end: str | None = None
    success: tuple[int, int] = (200, 299)
    json: JsonRule = "always"

    def __post_init__(self) -> None:
        for name, value, choices in (("framing", self.framing, Framing), ("json", self.json, JsonRule)):
            if value not in get_args(choices):
                known = ", ".join(get_args(choices))
                raise UsageError(f'"{shown(value)}" is not a {name} rule', f"response {name}", f"use one of {known}")
        end: Any = self.end
        if end is not None and not isinstance(end, str):
            raise UsageError(f"{shown(end)} is not a text", "response end", "give the event's text, as [DONE]")
        named = {name: getattr(self, name) for name in _POINTERS}
        for name, value in {**named, "content": self.content, "reasoning": self.reasoning}.items():
            for pointer in value if isinstance(value, list | tuple) else [value]:
                if pointer is not None and not (isinstance(pointer, str) and pointer.startswith("/")):
                    raise UsageError(
                        f'"{shown(pointer)}" is not a JSON pointer',
                        f"response {name}",
                        "begin it with /, as /choices/0/text",
                    )
        given: Any = self.success  # what a configuration file says need not be of the declared type
        statuses = list(given) if isinstance(given, tuple) else [given]
        if (
            len(statuses) != 2
            or not all(type(one) is int for one in statuses)
            or not 100 <= statuses[0] <= statuses[1] <= 599
        ):
            raise UsageError(f"{shown(statuses)} is not a range of statuses", "response success", "give it as 200-299")

    def changed(self, overrides: Mapping[str, Any]) -> ResponseSpec:
        """This with some fields replaced.

        Raises:
            UsageError: a name that is no field, or a value that cannot be meant.
        """
        known = [item.name for item in fields(self)]
        values: dict[str, Any] = {}
        for name, value in overrides.items():
            if name not in known:
                raise UsageError(
                    f'"{shown(name)}" says nothing about a response', "response", f"use one of {', '.join(known)}"
                )
            if name in _LISTS:
                values[name] = tuple(value) if isinstance(value, list | tuple) else (value,) if value else ()
            else:
                values[name] = tuple(value) if isinstance(value, list) else value
        return replace(self, **values)

    def to_dict(self) -> dict[str, Any]:
        """The engine's ResponseSpec, ready for JSON."""
        plain = asdict(self)
        return {**plain, **{name: list(plain[name]) for name in (*_LISTS, "success")}}


_POINTERS: Final = ("tokens_in", "tokens_out", "tokens_cached", "tokens_reasoning", "error")


@dataclass(frozen=True)
class ApiOptions:
    """What a user may say about requests; each API takes what it knows.

    Args:
        model: name of the model to ask for.
        stream: ask for a stream of events where the API has one.
        max_tokens: bound on generated tokens.
        temperature: sampling temperature.
        extra_body: further members of the body; they win over the options above.
        body_template: body with placeholders (see `gpusize.apis.template`), as text or as the path of a file.
        method: HTTP method.
        content_type: of the request body.
        response: fields of `ResponseSpec` that differ from the API's own.
    """

    model: str | None = None
    stream: bool = True
    max_tokens: int | None = None
    temperature: float | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    body_template: str | None = None
    method: str = "POST"
    content_type: str = "application/json"
    response: Mapping[str, Any] = field(default_factory=dict)

    def members(self) -> dict[str, Any]:
        """Members of an OpenAI-like body that these options set, ``stream`` left out."""
        set_by_option = {"model": self.model, "max_tokens": self.max_tokens, "temperature": self.temperature}
        return {**{name: value for name, value in set_by_option.items() if value is not None}, **self.extra_body}


@runtime_checkable
class Api(Protocol):
    """How to ask one kind of server, and how to read its answer."""

    @property
    def name(self) -> str:
        """What ``--api`` calls it."""

    @property
    def default_path(self) -> str:
        """Path that is added to an address without one."""

    def segments(self) -> list[Segment]:
        """The pieces of every body, in order; empty for requests without a body."""

    def fields(self, row: Row) -> list[bytes]:
        """The row's bytes for each ``{"field": k}``.

        Raises:
            DatasetError: the row is not of a form that this API can send.
        """

    def response(self) -> dict[str, Any]:
        """How to read an answer: the JSON of a ResponseSpec."""

    def headers(self) -> list[tuple[str, str]]:
        """Headers of every request; the user's own win."""


def encode_json(value: Any) -> bytes:
    """Compact JSON in UTF-8; dates as ISO 8601, decimals as numbers.

    Raises:
        TypeError: a value that JSON cannot hold.
        ValueError: not a finite number.
    """
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can write
        return json.dumps(value, separators=(",", ":"), allow_nan=False, default=_plain).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError(f"a value of type {type(value).__name__} is not JSON")


def row_error(row: Row, what: str, todo: str) -> DatasetError:
    """The error for a row that cannot be sent."""
    return DatasetError(f"row {row.index} {what}", row.where, todo)


def render(api: Api, row: Row) -> bytes:
    """The body that ``row`` becomes: to look at before anything is sent. Counters and draws show as their JSON."""
    values = api.fields(row)
    pieces = []
    for segment in api.segments():
        if "static" in segment:
            pieces.append(str(segment["static"]).encode())
        else:
            pieces.append(values[segment["field"]] if "field" in segment else encode_json(segment))
    return b"".join(pieces)
