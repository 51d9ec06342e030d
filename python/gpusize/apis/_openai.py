"""What the two OpenAI APIs share: a body of options, the row's own member, and what else a row brings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final, TypedDict

from gpusize.apis.base import ApiOptions, ResponseSpec, Segment, encode_json, row_error
from gpusize.apis.template import BodyTemplate
from gpusize.dataset import Row
from gpusize.errors import UsageError

__all__ = ["USAGE", "OpenAiApi", "content_row"]


class _Usage(TypedDict):
    tokens_in: str
    tokens_out: str
    tokens_cached: str
    tokens_reasoning: str


USAGE: Final[_Usage] = {
    "tokens_in": "/usage/prompt_tokens",
    "tokens_out": "/usage/completion_tokens",
    "tokens_cached": "/usage/prompt_tokens_details/cached_tokens",
    "tokens_reasoning": "/usage/completion_tokens_details/reasoning_tokens",
}
"""Where both APIs report tokens."""


class OpenAiApi(ABC):
    """Base of both: ``{options…, "<member>": field 0, field 1}``, or the user's template.

    Field 1 holds what a complete body in the dataset brings beyond its member, with a comma before it; else it is
    empty.
    """

    name: ClassVar[str]
    default_path: ClassVar[str]
    member: ClassVar[str]
    spec: ClassVar[ResponseSpec]

    def __init__(self, options: ApiOptions) -> None:
        if self.member in options.extra_body:
            raise UsageError(
                f'"{self.member}" comes from the dataset', "extra body", "leave it out, or use a body template"
            )
        if options.method not in {"POST", "PUT"}:
            raise UsageError(
                f"{options.method} sends no body, which {self.name} needs", "method", "use POST, or --api generic"
            )
        self._options = options
        self._response = self.spec.changed(options.response).to_dict()
        self._template = BodyTemplate.read(options.body_template) if options.body_template else None
        stream = {"stream": True, "stream_options": {"include_usage": True}} if options.stream else {"stream": False}
        self._members = {**stream, **options.members()}

    @abstractmethod
    def split(self, row: Row) -> tuple[Any, dict[str, Any]]:
        """The member's value, and the further members of a complete body."""

    def segments(self) -> list[Segment]:
        """The pieces of every body."""
        if self._template:
            return self._template.segments()
        head = encode_json(self._members).decode()[:-1]
        return [{"static": f'{head},"{self.member}":'}, {"field": 0}, {"field": 1}, {"static": "}"}]

    def fields(self, row: Row) -> list[bytes]:
        """The row's member and what else it brings, encoded.

        Raises:
            DatasetError: the row's value has none of the forms that this API sends.
        """
        if self._template:
            return self._template.fields(row)
        value, rest = self.split(row)
        own = {name: item for name, item in rest.items() if name not in self._members and name != self.member}
        # What a body in the dataset says about streaming would contradict how the answer is read.
        own = {name: item for name, item in own.items() if name not in {"stream", "stream_options"}}
        try:
            extra = encode_json(own)[1:-1]
            return [encode_json(value), b"," + extra if extra else b""]
        except (TypeError, ValueError) as problem:
            raise row_error(row, f"is not JSON: {problem}", "use texts, numbers, lists and objects") from None

    def response(self) -> dict[str, Any]:
        """How to read an answer."""
        return self._response

    def headers(self) -> list[tuple[str, str]]:
        """Content type, and what is accepted."""
        accept = "text/event-stream, application/json" if self._options.stream else "application/json"
        return [("Content-Type", self._options.content_type), ("Accept", accept)]


def content_row(row: Row, member: str) -> tuple[Any, dict[str, Any]]:
    """The row's value, and further members when it is a complete body: an object that has ``member``."""
    value = row.value
    if isinstance(value, dict):
        if member not in value:
            raise row_error(row, f'is a body without "{member}"', "name another key with --dataset-key")
        return value[member], value
    return value, {}
