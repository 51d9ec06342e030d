"""The OpenAI responses API: events by type, usage under ``response`` in a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gpusize.targets.apis.base import Place, ResponseSpec, row_error
from gpusize.targets.apis.history import messages_by_turn
from gpusize.targets.apis.openai_common import OpenAiApi, content_row
from gpusize.targets.apis.response_spec import any_of
from gpusize.targets.apis.server_times import OF_LANGUAGE_MODELS, within
from gpusize.workload.dataset import Row

__all__ = ["OpenAiResponses"]

_TEXT: Final = [
    "response.output_text.delta",
    "response.refusal.delta",
    "response.function_call_arguments.delta",
    "response.custom_tool_call_input.delta",
    "response.mcp_call_arguments.delta",
    "response.code_interpreter_call_code.delta",
]
_THOUGHT: Final = [
    "response.reasoning_text.delta",
    "response.reasoning_summary_text.delta",
    "response.reasoning.delta",
    "response.reasoning_summary.delta",
]
_ITEMS: Final = range(4)
"""Output items of an answer in one piece that are looked at: reasoning comes first, then text or calls."""


def _if(at: str, *, type_at: str, types: list[str]) -> Place:
    return {"at": at, "if": {"at": type_at, "is": types}}


def _items(kinds: list[tuple[str, str]]) -> list[Place]:
    """Where items of these types have their text in an answer that comes in one piece."""
    return [
        _if(f"/output/{number}/{part}", type_at=f"/output/{number}/type", types=[kind])
        for number in _ITEMS
        for kind, part in kinds
    ]


def _usage(name: str) -> tuple[str, ...]:
    return (f"/response/usage/{name}", f"/usage/{name}")


_RESPONSE: Final = ResponseSpec(
    content=(
        _if("/delta", type_at="/type", types=_TEXT),
        _if("/item/name", type_at="/type", types=["response.output_item.added"]),
        *_items([("message", "content/0/text"), ("message", "content/0/refusal"), ("function_call", "arguments")]),
    ),
    reasoning=(
        _if("/delta", type_at="/type", types=_THOUGHT),
        *_items([("reasoning", "content/0/text"), ("reasoning", "summary/0/text")]),
    ),
    server_queue=within("response", OF_LANGUAGE_MODELS["server_queue"]),
    server_service=within("response", OF_LANGUAGE_MODELS["server_service"]),
    tokens_in=_usage("input_tokens"),
    tokens_out=_usage("output_tokens"),
    tokens_cached=_usage("input_tokens_details/cached_tokens"),
    tokens_reasoning=_usage("output_tokens_details/reasoning_tokens"),
    error=(
        "/error",
        "/response/error",
        _if("/message", type_at="/type", types=["error"]),
        _if("/type", type_at="/type", types=["error", "response.failed"]),
        _if("/status", type_at="/status", types=["failed", "cancelled"]),
    ),
    end={"at": "/type", "is": ["response.completed", "response.incomplete"]},
    success_if=(
        *any_of("/response/output/0", "/output/0", *_usage("output_tokens")),
        *({"at": f"{where}/status", "is": ["completed", "incomplete"]} for where in ("/response", "")),
    ),
)


class OpenAiResponses(OpenAiApi):
    """Responses.

    A row's value is a prompt, a list of input items (messages, tool results), or a complete body (an object with
    ``input``); options that are set win over members of such a body. ``tools``, ``tool_choice`` and ``instructions``
    beside the value are sent with it.
    """

    name = "openai-responses"
    default_path = "/v1/responses"
    member = "input"
    spec = _RESPONSE
    length = "max_output_tokens"
    beside = ("tools", "tool_choice", "instructions")

    def stream_members(self) -> dict[str, Any]:
        """The usage comes with the last event without being asked for."""
        return {"stream": self._options.stream}

    def split(self, row: Row) -> tuple[Any, dict[str, Any]]:
        """The row's input, and the further members of its body."""
        value, rest = content_row(row, self.member)
        is_items = isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)
        if not (isinstance(value, str) or is_items):
            raise row_error(
                row,
                f'cannot be sent: "{row.key}" is neither a text nor a list of input items',
                'an item is {"role": "user", "content": "…"}',
            )
        return value, rest

    def by_turn(self, rows: Sequence[Row], values: Sequence[Any]) -> Sequence[Any]:
        """The items of each turn, with the answers to the turns before; a text becomes a message of the user."""
        items = [[{"role": "user", "content": value}] if isinstance(value, str) else value for value in values]
        return messages_by_turn(rows, items)
