"""Where servers say how long one request waited in them and how long they served it, as data.

A **time** is ``{"at": pointer, "unit": "ms"}``, ``{"at": [pointers], "unit": "ms"}`` (their sum, where all are there)
or ``{"header": name, "unit": "ms"}``; units are ``s``, ``ms``, ``us`` and ``ns``. Of several the first that is there
counts.

What known servers say, and what is taken as the service (from a request's turn to its end):

- vLLM with ``--enable-per-request-metrics``: ``metrics``, with the usage. Its time to first token counts from the
  request's turn, and its generation time from the first token (docs/features/per_request_metrics.md of vLLM).
- NIM with ``NIM_PER_REQ_METRICS_ENABLE=1``: ``stats`` (NVIDIA NIM for LLMs, Per-Request Metrics).
- llama.cpp: ``timings``, always; prompt and generation of the slot that served it, and no word of the queue
  (tools/server/README.md of llama.cpp).
- Text Generation Inference and Text Embeddings Inference: headers in whole milliseconds, of answers in one piece
  (router/src/server.rs of the first, router/src/http/server.rs of the second, whose times are the mean over the inputs
  of a request).

Triton says neither in its answers (issue 6692 of triton-inference-server/server).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

from gpusize.base.errors import UsageError
from gpusize.base.text import shown
from gpusize.targets.apis.pointers import pointer

__all__ = [
    "OF_HEADS",
    "OF_LANGUAGE_MODELS",
    "UNITS",
    "ServerTimes",
    "TimePlace",
    "time_places",
    "times_from_text",
    "within",
]

TimePlace = Mapping[str, Any]
"""``{"at": pointer or pointers, "unit": unit}`` or ``{"header": name, "unit": unit}``."""


class ServerTimes(TypedDict):
    """Fields of a ResponseSpec."""

    server_queue: Sequence[TimePlace]
    server_service: Sequence[TimePlace]


UNITS: Final = ("s", "ms", "us", "ns")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_WRITE: Final = 'write {"at": "/metrics/queue_time_ms", "unit": "ms"} or {"header": "x-queue-time", "unit": "ms"}'

OF_HEADS: Final[ServerTimes] = {
    "server_queue": ({"header": "x-queue-time", "unit": "ms"},),
    "server_service": ({"header": "x-inference-time", "unit": "ms"},),
}
"""Those of the inference servers of Hugging Face."""

OF_LANGUAGE_MODELS: Final[ServerTimes] = {
    "server_queue": (
        {"at": "/metrics/queue_time_ms", "unit": "ms"},
        {"at": "/stats/time_in_queue_in_ms", "unit": "ms"},
        *OF_HEADS["server_queue"],
    ),
    "server_service": (
        {"at": ("/metrics/time_to_first_token_ms", "/metrics/generation_time_ms"), "unit": "ms"},
        {"at": "/stats/generation_time_in_ms", "unit": "ms"},
        {"at": ("/timings/prompt_ms", "/timings/predicted_ms"), "unit": "ms"},
        *OF_HEADS["server_service"],
    ),
}
"""Those of servers of language models, in chat and completions."""


def within(member: str, places: Sequence[TimePlace]) -> tuple[TimePlace, ...]:
    """The places in documents, each also as it stands in a member of the document, which comes first."""

    def inside(at: str | Sequence[str]) -> str | tuple[str, ...]:
        return f"/{member}{at}" if isinstance(at, str) else tuple(f"/{member}{one}" for one in at)

    found: list[TimePlace] = []
    for place in places:
        if "at" in place:
            found.append({**place, "at": inside(place["at"])})
        found.append(place)
    return tuple(found)


def time_places(value: Any, where: str) -> tuple[TimePlace, ...]:
    """One time or several as the engine takes them; None and an empty text are none.

    Raises:
        UsageError: what is no time; ``where`` says of which field.
    """
    if value is None or value == "":
        return ()
    return tuple(_place(one, where) for one in (value if isinstance(value, list | tuple) else [value]))


def _place(value: Any, where: str) -> TimePlace:
    kinds = [{"at", "unit"}, {"header", "unit"}]
    if not isinstance(value, Mapping) or value.keys() not in kinds:
        raise UsageError(f"{shown(dict(value) if isinstance(value, Mapping) else value)} is not a time", where, _WRITE)
    if value["unit"] not in UNITS:
        raise UsageError(f'"{shown(value["unit"])}" is not a unit of time', where, f"use one of {', '.join(UNITS)}")
    if "header" in value:
        if not isinstance(value["header"], str) or not _HEADER.fullmatch(value["header"]):
            raise UsageError(f'"{shown(value["header"])}" is not the name of a header', where, _WRITE)
        return dict(value)
    at = value["at"]
    if isinstance(at, list | tuple):
        if not at:
            raise UsageError("a sum of no times", where, _WRITE)
        return {"at": [pointer(one, where) for one in at], "unit": value["unit"]}
    return {"at": pointer(at, where), "unit": value["unit"]}


def times_from_text(text: str, where: str) -> list[TimePlace]:
    """``/metrics/queue_time_ms:ms``, ``/t/prompt_ms+/t/predicted_ms:ms`` or ``x-queue-time:ms``; several with commas.

    Raises:
        UsageError: a time without its unit.
    """
    found: list[TimePlace] = []
    for each in text.split(","):
        name, colon, unit = each.strip().rpartition(":")
        if not colon:
            raise UsageError(f'"{shown(each.strip())}" has no unit', where, "write it as /metrics/queue_time_ms:ms")
        if name.startswith("/"):
            parts = [part.strip() for part in name.split("+")]
            found.append({"at": parts if len(parts) > 1 else parts[0], "unit": unit})
        else:
            found.append({"header": name, "unit": unit})
    return found
