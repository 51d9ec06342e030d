"""What an API is, as data: how a dataset row becomes a request body, and where in an answer things stand.

A third party offers its own by an entry point in the group ``gpusize.targets.apis``: a name, and a callable that takes
`ApiOptions` and returns an object of the shape of `Api`.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, Protocol, runtime_checkable

from gpusize.base.errors import DatasetError, UsageError
from gpusize.base.text import shown
from gpusize.targets.apis.response_spec import Condition, Framing, Place, ResponseSpec
from gpusize.workload.dataset import Row

__all__ = [
    "Api",
    "ApiOptions",
    "Condition",
    "Framing",
    "Nature",
    "OutputLength",
    "Place",
    "ResponseSpec",
    "Segment",
    "encode_json",
    "render",
    "row_error",
]

Segment = dict[str, Any]
"""A piece of a body: ``{"static": text}``, ``{"field": k}``, a counter, a random number or an earlier answer."""

Nature = Literal["language_model", "inference"]
"""What a request to an API is: the call of a language model, so that its service time is the LLM latency; or tensors in
and tensors out, as KServe has it. In both cases a server counts one request for each."""

OutputLength = Literal["max", "exact"]
"""What an asked output length is: a bound, or what the server shall generate exactly."""


@dataclass(frozen=True)
class ApiOptions:
    """What a user may say about requests; each API takes what it knows.

    Args:
        model: name of the model to ask for.
        stream: ask for a stream of events where the API has one.
        max_tokens: bound on generated tokens.
        temperature: sampling temperature.
        extra_body: further members of the body; they win over the options above.
        body_template: body with placeholders (see `gpusize.targets.apis.template`), as text or as the path of a file.
        method: HTTP method.
        content_type: of the request body.
        response: fields of `ResponseSpec` that differ from the API's own.
        output_length: what ``max_tokens`` and a row's ``output_tokens`` mean. ``exact`` also sends ``min_tokens`` and
            ``ignore_eos``, which vLLM, SGLang, TensorRT-LLM and NIM take.
        row_models: every row's ``model`` is the model to ask for, and wins over that of a complete body.

    Raises:
        UsageError: an output length that is neither.
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
    output_length: OutputLength = "max"
    row_models: bool = False

    def __post_init__(self) -> None:
        if self.output_length not in {"max", "exact"}:
            raise UsageError(
                f'"{shown(self.output_length)}" is not a way to bound the output', "output_length", "use max or exact"
            )

    def members(self, length: str = "max_tokens") -> dict[str, Any]:
        """Members of an OpenAI-like body that these options set, ``stream`` left out.

        Args:
            length: the API's name for the bound on generated tokens.
        """
        bound = {} if self.max_tokens is None else self.length_members(self.max_tokens, length)
        named = {name: value for name, value in (("model", self.model),) if value is not None}
        drawn = {} if self.temperature is None else {"temperature": self.temperature}
        return {**named, **bound, **drawn, **self.extra_body}

    def length_members(self, tokens: int, length: str = "max_tokens") -> dict[str, Any]:
        """Members that ask for ``tokens`` generated tokens."""
        exact = {"min_tokens": tokens, "ignore_eos": True} if self.output_length == "exact" else {}
        return {length: tokens, **exact}


@runtime_checkable
class Api(Protocol):
    """How to ask one kind of server, and how to read its answer.

    An API may have further attributes: ``nature`` (`Nature`; without one it is neither), and ``transport`` (``http1``,
    ``http2`` or ``grpc``), which decides how requests travel.
    """

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
    """The body that ``row`` becomes: to look at before anything is sent.

    Counters and draws show as their JSON; earlier answers are empty, as they are in a first turn.
    """
    values = api.fields(row)
    pieces = []
    for segment in api.segments():
        if "static" in segment:
            pieces.append(str(segment["static"]).encode())
        elif "capture" not in segment:
            pieces.append(values[segment["field"]] if "field" in segment else encode_json(segment))
    return b"".join(pieces)
