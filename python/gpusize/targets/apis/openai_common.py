"""What the OpenAI APIs share: a body of options, the row's own member, and what else a row brings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final, TypedDict

from gpusize.base.errors import UsageError
from gpusize.targets.apis.base import ApiOptions, Nature, ResponseSpec, Segment, encode_json, row_error
from gpusize.targets.apis.history import encode_spoken, refuse_tools, spoken_segments
from gpusize.targets.apis.template import BodyTemplate
from gpusize.workload.dataset import Row
from gpusize.workload.dataset.dataset import MARKS

__all__ = ["STREAM_END", "USAGE", "OpenAiApi", "content_row"]


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
"""Where chat and completions report tokens."""

STREAM_END: Final = (
    "[DONE]",
    {
        "at": "/choices/0/finish_reason",
        "is": ["stop", "length", "tool_calls", "function_call", "content_filter", "eos_token", "stop_sequence"],
    },
)
"""What ends a stream of either. Some servers send no ``[DONE]`` after the reason why they end; one that says none of
these, or repeats an empty reason in every event, has to.
"""

_OURS: Final = frozenset({"input_tokens", "output_tokens", "session", "turn", "arrival_s", "delay_s", *MARKS})
"""Fields of a row that say something to gpusize and nothing to a server."""


class OpenAiApi(ABC):
    """Base of all: ``{options…, "<member>": field 0, field 1}``, or the user's template.

    A member that repeats answers takes a field more for each, with the answer before it.

    The last field holds what the row brings beyond its member, with a comma before it, else it is empty: the members
    of a complete body, the row's ``model``, its ``output_tokens`` as a bound on generated tokens. Options win over the
    row.
    """

    name: ClassVar[str]
    nature: ClassVar[Nature | None] = "language_model"
    default_path: str
    member: ClassVar[str]
    spec: ClassVar[ResponseSpec]
    length: ClassVar[str | None] = "max_tokens"
    """The API's name for the bound on generated tokens; None: it generates none."""
    beside: ClassVar[tuple[str, ...]] = ()
    """Fields of a row that are sent beside the member although the row is not a complete body."""

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
        self._members = {**self.stream_members(), **options.members(self.length or "max_tokens")}

    def stream_members(self) -> dict[str, Any]:
        """Members that ask for a stream with its usage, or for none."""
        if self._options.stream:
            return {"stream": True, "stream_options": {"include_usage": True}}
        return {"stream": False}

    @abstractmethod
    def split(self, row: Row) -> tuple[Any, dict[str, Any]]:
        """The member's value, and the further members of a complete body."""

    def segments(self) -> list[Segment]:
        """The pieces of every body."""
        if self._template:
            return self._template.segments()
        return self.segments_after(0)

    def segments_after(self, answers: int) -> list[Segment]:
        """The pieces of a body whose member repeats so many answers of its conversation."""
        head = encode_json(self._members).decode()[:-1]
        comma = "," if self._members else ""
        begin = {"static": f'{head}{comma}"{self.member}":'}
        return [begin, *spoken_segments(answers), {"field": answers + 1}, {"static": "}"}]

    def fields(self, row: Row) -> list[bytes]:
        """The row's member and what else it brings, encoded.

        Raises:
            DatasetError: the row's value has none of the forms that this API sends.
        """
        if self._template:
            return self._template.fields(row)
        value, rest = self.split(row)
        return self._encoded(row, rest, lambda: [encode_json(value)])

    def conversation(self, rows: Sequence[Row]) -> list[list[bytes]]:
        """The fields of each turn of a conversation, with places for the answers that came before it.

        Raises:
            UsageError: a template is the whole body, or tools are offered to all.
            DatasetError: a row that cannot be a turn, or that offers tools.
        """
        if self._template:
            todo = "write ${answer:-1} where the answer of the turn before belongs, or leave one of them out"
            raise UsageError("a template is the whole body, so that nothing is added", "history", todo)
        split = [self.split(row) for row in rows]
        for row, (_, rest) in zip(rows, split, strict=True):
            refuse_tools(row, self._members, row.fields, rest)
        values = self.by_turn(rows, [value for value, _ in split])
        return [
            self._encoded(row, rest, partial(encode_spoken, value))
            for row, value, (_, rest) in zip(rows, values, split, strict=True)
        ]

    def by_turn(self, rows: Sequence[Row], values: Sequence[Any]) -> Sequence[Any]:  # noqa: ARG002
        """The member's value for each turn of a conversation, in which `gpusize.targets.apis.history.Spoken` may stand.

        Raises:
            UsageError: this API answers with nothing that could be repeated.
            DatasetError: a value that has no room for answers.
        """
        raise UsageError(f"{self.name} answers with no text to be repeated", "history", "use --history recorded")

    def _encoded(self, row: Row, rest: dict[str, Any], encode: Callable[[], list[bytes]]) -> list[bytes]:
        own = {**self._asked(row), **{name: row.fields[name] for name in self.beside if name in row.fields}, **rest}
        if self._options.row_models:
            own["model"] = row.fields["model"]
        # What a body in the dataset says about streaming would contradict how the answer is read.
        taken = {*self._members, self.member, *_OURS, "stream", "stream_options"}
        own = {name: item for name, item in own.items() if name not in taken}
        try:
            extra = encode_json(own)[1:-1]
            return [*encode(), b"," + extra if extra else b""]
        except (TypeError, ValueError) as problem:
            raise row_error(row, f"is not JSON: {problem}", "use texts, numbers, lists and objects") from None

    def _asked(self, row: Row) -> dict[str, Any]:
        """Members from the row's own ``model`` and ``output_tokens``, and its stream's priority."""
        asked: dict[str, Any] = {}
        model = row.fields.get("model")
        if model is not None and model != "":
            if not isinstance(model, str):
                raise row_error(row, '"model" is not a text', "give the model's name")
            asked["model"] = model
        tokens = _whole(row, "output_tokens")
        if tokens is not None and self.length:
            asked |= self._options.length_members(tokens, self.length)
        if isinstance(row.fields.get("stream_priority"), int):
            asked["priority"] = row.fields["stream_priority"]
        return asked

    def response(self) -> dict[str, Any]:
        """How to read an answer."""
        return self._response

    def headers(self) -> list[tuple[str, str]]:
        """Content type, and what is accepted."""
        accept = "text/event-stream, application/json" if self._members.get("stream") else "application/json"
        return [("Content-Type", self._options.content_type), ("Accept", accept)]


def content_row(row: Row, member: str) -> tuple[Any, dict[str, Any]]:
    """The row's value, and further members when it is a complete body: an object that has ``member``."""
    value = row.value
    if isinstance(value, dict):
        if member not in value:
            raise row_error(row, f'is a body without "{member}"', "name another key with --dataset-key")
        return value[member], value
    return value, {}


def _whole(row: Row, name: str) -> int | None:
    """A count among the row's fields, 1 or more; None where there is none. A cell of a CSV file is a text."""
    value = row.fields.get(name)
    if value is None or value == "":
        return None
    try:
        number = None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = None
    if number is None or not number.is_integer() or number < 1:
        raise row_error(row, f'has "{name}": {value!r}', "give a whole number of 1 or more")
    return int(number)
