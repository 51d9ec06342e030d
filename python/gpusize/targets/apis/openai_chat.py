"""The OpenAI chat completions API, as vLLM, SGLang, TensorRT-LLM, llama.cpp and NIM serve it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gpusize.targets.apis.base import ResponseSpec, row_error
from gpusize.targets.apis.history import messages_by_turn
from gpusize.targets.apis.openai_common import STREAM_END, USAGE, OpenAiApi, content_row
from gpusize.targets.apis.response_spec import any_of
from gpusize.targets.apis.server_times import OF_LANGUAGE_MODELS
from gpusize.workload.dataset import Row

__all__ = ["OpenAiChat"]

_PARTS: Final = ("content", "tool_calls/0/function/name", "tool_calls/0/function/arguments", "refusal")
_THOUGHTS: Final = ("reasoning_content", "reasoning")

# An event that only names the role has none of these, and so is not content. An answer without any text still has a
# role, a reason why it ended, or its usage.
_RESPONSE: Final = ResponseSpec(
    content=tuple(f"/choices/0/{form}/{part}" for form in ("delta", "message") for part in _PARTS),
    reasoning=tuple(f"/choices/0/{form}/{part}" for form in ("delta", "message") for part in _THOUGHTS),
    end=STREAM_END,
    success_if=any_of(
        "/choices/0/finish_reason", "/choices/0/delta/role", "/choices/0/message/role", USAGE["tokens_out"]
    ),
    **USAGE,
    **OF_LANGUAGE_MODELS,
)


class OpenAiChat(OpenAiApi):
    """Chat completions.

    A row's value is a prompt, a list of messages (of one turn or of many), or a complete body (an object with
    ``messages``); options that are set win over members of such a body. ``tools`` and ``tool_choice`` beside the value
    are sent with it.
    """

    name = "openai-chat"
    default_path = "/v1/chat/completions"
    member = "messages"
    spec = _RESPONSE
    beside = ("tools", "tool_choice")

    def split(self, row: Row) -> tuple[Any, dict[str, Any]]:
        """The row's messages, and the further members of its body."""
        value, rest = content_row(row, self.member)
        if isinstance(value, str):
            return [{"role": "user", "content": value}], rest
        if (
            not isinstance(value, list)
            or not value
            or not all(isinstance(one, dict) and "role" in one for one in value)
        ):
            raise row_error(
                row,
                f'cannot be sent as chat: "{row.key}" is neither a text nor a list of messages',
                'a message is {"role": "user", "content": "…"}',
            )
        return value, rest

    def by_turn(self, rows: Sequence[Row], values: Sequence[Any]) -> Sequence[Any]:
        """The messages of each turn, with the answers to the turns before."""
        return messages_by_turn(rows, values)
