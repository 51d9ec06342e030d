"""The OpenAI completions API: a text goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gpusize.targets.apis.base import ResponseSpec, row_error
from gpusize.targets.apis.history import prompts_by_turn
from gpusize.targets.apis.openai_common import STREAM_END, USAGE, OpenAiApi, content_row
from gpusize.targets.apis.response_spec import any_of
from gpusize.targets.apis.server_times import OF_LANGUAGE_MODELS
from gpusize.workload.dataset import Row

__all__ = ["OpenAiCompletions"]

_RESPONSE: Final = ResponseSpec(
    content=("/choices/0/text",),
    reasoning=("/choices/0/reasoning_content",),
    end=STREAM_END,
    success_if=any_of("/choices/0/finish_reason", USAGE["tokens_out"]),
    **USAGE,
    **OF_LANGUAGE_MODELS,
)


class OpenAiCompletions(OpenAiApi):
    """Completions.

    A row's value is a prompt, a list of token ids, or a complete body (an object with ``prompt``); options that are
    set win over members of such a body.
    """

    name = "openai-completions"
    default_path = "/v1/completions"
    member = "prompt"
    spec = _RESPONSE

    def split(self, row: Row) -> tuple[Any, dict[str, Any]]:
        """The row's prompt, and the further members of its body."""
        value, rest = content_row(row, self.member)
        tokens = isinstance(value, list) and bool(value) and all(type(one) is int for one in value)
        if not (isinstance(value, str) or tokens):
            raise row_error(
                row,
                f'cannot be sent as a prompt: "{row.key}" is neither a text nor a list of token ids',
                "name another key with --dataset-key",
            )
        return value, rest

    def by_turn(self, rows: Sequence[Row], values: Sequence[Any]) -> Sequence[Any]:
        """The prompt of each turn: what rows and server said so far, one behind the other.

        Raises:
            DatasetError: token ids, among which a text cannot stand.
        """
        for row, value in zip(rows, values, strict=True):
            if not isinstance(value, str):
                raise row_error(row, "is a list of token ids, and answers are texts", "give the prompts as texts")
        return prompts_by_turn(values)
