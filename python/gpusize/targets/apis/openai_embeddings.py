"""The OpenAI embeddings API: texts become vectors, in one answer."""

from __future__ import annotations

from typing import Any, Final

from gpusize.base.errors import UsageError
from gpusize.targets.apis.base import ApiOptions, ResponseSpec, row_error
from gpusize.targets.apis.openai_common import OpenAiApi, content_row
from gpusize.targets.apis.response_spec import any_of
from gpusize.targets.apis.server_times import OF_HEADS
from gpusize.workload.dataset import Row

__all__ = ["OpenAiEmbeddings"]

_RESPONSE: Final = ResponseSpec(
    framing="whole",
    content=("/data/0/embedding",),  # a text where vectors were asked for in base64
    tokens_in="/usage/prompt_tokens",
    tokens_cached="/usage/prompt_tokens_details/cached_tokens",
    success_if=any_of("/data/0/embedding/0"),
    **OF_HEADS,
)


class OpenAiEmbeddings(OpenAiApi):
    """Embeddings.

    A row's value is a text, a list of texts, a list of token ids or a list of such lists, or a complete body (an
    object with ``input``). An answer without a vector is an error.
    """

    name = "openai-embeddings"
    default_path = "/v1/embeddings"
    member = "input"
    spec = _RESPONSE
    length = None

    def __init__(self, options: ApiOptions) -> None:
        for option in ("max_tokens", "temperature"):
            if getattr(options, option) is not None:
                raise UsageError("embeddings generate nothing", option.replace("_", " "), "leave it out")
        super().__init__(options)

    def stream_members(self) -> dict[str, Any]:
        """None: there is no stream."""
        return {}

    def split(self, row: Row) -> tuple[Any, dict[str, Any]]:
        """The row's input, and the further members of its body."""
        value, rest = content_row(row, self.member)
        if not (isinstance(value, str) and value) and not _is_list(value):
            raise row_error(
                row,
                f'cannot be embedded: "{row.key}" is neither a text nor a list of texts or token ids',
                "name another key with --dataset-key",
            )
        return value, rest


def _is_list(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    kinds = {type(one) for one in value}
    return kinds in ({str}, {int}) or (kinds == {list} and all(_is_list(one) for one in value))
