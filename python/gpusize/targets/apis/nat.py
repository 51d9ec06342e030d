"""Workflows behind the NeMo Agent Toolkit (``nat serve``): ``/generate/full`` with its steps, ``/chat``."""

from __future__ import annotations

from typing import Any, Final

from gpusize.targets.apis.base import ApiOptions, ResponseSpec
from gpusize.targets.apis.generic import Generic
from gpusize.targets.apis.openai_chat import OpenAiChat

__all__ = ["NatChat", "NatGenerate"]

_USAGE: Final = "/payload/usage_info/token_usage"
_CALLS: Final = {
    "field": "intermediate_data",
    "kind": "/payload/event_type",
    "start": "LLM_START",
    "end": "LLM_END",
    "id": "/payload/UUID",
    "name": "/payload/name",
    "time_s": "/payload/event_timestamp",
    "tokens_in": f"{_USAGE}/prompt_tokens",
    "tokens_out": f"{_USAGE}/completion_tokens",
}
# A workflow that fails in the middle of a stream writes {"code": …, "message": …} there, under status 200.
_ERRORS: Final = ("/error", {"at": "/message", "if": {"at": "/code", "is": None}})

# What a model behind a workflow says of its times is not true of the workflow.
_SILENT: Final = {"server_queue": None, "server_service": None}


class NatGenerate(Generic):
    """``{"input_message": value}``, answered by ``{"value": …}``; ``/generate/full`` streams the steps before it.

    ``/generate`` and ``/generate/stream`` are answered likewise, without steps that can be timed. An answer without
    a value is an error: that is how a workflow looks that failed after its stream had begun.
    """

    name = "nat"
    default_path = "/generate/full"
    member = "input_message"
    spec = ResponseSpec(content=("/value",), error=_ERRORS, success_if={"at": "/value", "is": None}, calls=_CALLS)


class NatChat(OpenAiChat):
    """Messages to a workflow, answered as chat completions are, but a stream has no event that ends it."""

    name = "nat-chat"
    nature = None  # a workflow: one request may call any number of models
    default_path = "/chat/stream"
    spec = OpenAiChat.spec.changed(
        {**_SILENT, "end": None, "error": _ERRORS, "success_if": {"at": "/choices/0", "is": None}}
    )

    def __init__(self, options: ApiOptions) -> None:
        super().__init__(options)
        # The path decides whether there is a stream, not the body.
        self.default_path = "/chat/stream" if options.stream else "/chat"

    def stream_members(self) -> dict[str, Any]:
        """The workflow's stream is asked for by its path."""
        return {"stream": self._options.stream}
