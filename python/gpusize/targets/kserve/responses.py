"""What a KServe server's responses hold, and what they say when they hold nothing: bounded, without secrets."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from gpusize.base.errors import TargetError
from gpusize.base.secrets import without_secrets
from gpusize.base.text import shown

__all__ = [
    "Response",
    "StatsUnavailable",
    "bounded",
    "error_text",
    "index_names",
    "model_stats",
    "must_be_object",
    "parsed",
    "unknown_model",
]

MOST_BYTES: Final = 16 << 20
"""Bound on an answer: it describes a model, it is no tensor."""

_LISTED: Final = 8


class StatsUnavailable(Exception):
    """The server gives no statistics; the text says why."""


class Response(NamedTuple):
    """A server's answer.

    Attributes:
        status: of HTTP, or of gRPC.
        value: what was in it, when it is a success and JSON.
        message: what the server said, when it is none.
    """

    status: int
    value: Any
    message: str


def bounded(chunks: Any, where: str) -> bytes:
    """All bytes of an answer.

    Raises:
        TargetError: more than 16 MiB of them.
    """
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > MOST_BYTES:
            raise TargetError(
                f"the response is larger than {MOST_BYTES >> 20} MiB", where, "is this a KServe v2 server?"
            )
    return bytes(body)


def error_text(body: bytes, secrets: tuple[str, ...]) -> str:
    """A server's words from ``{"error": …}`` or plain text."""
    text = body[:4096].decode("utf-8", "replace")
    try:
        value = json.loads(text)
        text = value["error"] if isinstance(value, dict) and isinstance(value.get("error"), str) else text
    except (ValueError, RecursionError):
        pass
    return without_secrets(shown(" ".join(text.split()), 300), secrets)


def parsed(status: int, body: bytes) -> Response:
    """An answer of this status from its bytes; without a value when they are not JSON."""
    try:
        return Response(status, json.loads(body), "")
    except (ValueError, RecursionError):
        return Response(status, None, "the response is not JSON")


def must_be_object(answer: Response, where: str) -> None:
    """Refuse an answer whose value is no JSON object.

    Raises:
        TargetError: it is none.
    """
    if not isinstance(answer.value, dict):
        raise TargetError(answer.message or "the response is not a JSON object", where, "is this a KServe v2 server?")


def unknown_model(model: str, where: str, known: list[str]) -> TargetError:
    """The error for a model that does not exist; it names those that do."""
    if not known:
        return TargetError(f'the server has no model "{shown(model)}"', where, "check --model, and that it is loaded")
    names = ", ".join(shown(name) for name in known[:_LISTED]) + (", …" if len(known) > _LISTED else "")
    return TargetError(f'the server has no model "{shown(model)}"; it has {names}', where, "name one of these")


def index_names(value: Any) -> list[str]:
    """Names of an index, a list or an object with one; those that are known not to be ready are left out."""
    listed = value.get("models") if isinstance(value, dict) else value
    if not isinstance(listed, list):
        return []
    models = [one for one in listed if isinstance(one, dict) and isinstance(one.get("name"), str)]
    return list(dict.fromkeys(one["name"] for one in models if one.get("state", "READY") == "READY"))


def model_stats(value: Any) -> list[dict[str, Any]]:
    """Triton's ``model_stats`` in an answer.

    Raises:
        StatsUnavailable: there are none in it.
    """
    stats = value.get("model_stats") if isinstance(value, dict) else None
    if not isinstance(stats, list):
        raise StatsUnavailable("its answer holds no model_stats")
    return [one for one in stats if isinstance(one, dict)]
