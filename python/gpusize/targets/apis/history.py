"""Conversations whose later turns repeat what the server really answered to the earlier ones.

The engine puts the texts in when it sends a turn (``capture`` in docs/reference/engine.md). Here bodies are written
with places for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, runtime_checkable

from gpusize.targets.apis.base import Segment, encode_json, row_error

if TYPE_CHECKING:
    from gpusize.workload.dataset import Row

__all__ = [
    "Conversing",
    "EarlierResponse",
    "History",
    "Spoken",
    "encode_spoken",
    "messages_by_turn",
    "prompts_by_turn",
    "refuse_tools",
    "spoken_segments",
]

History = Literal["recorded", "answers"]
"""What earlier turns say: what the dataset recorded, or what the server answered."""

Message = dict[str, Any]

_OPENING: Final = ("system", "developer")
_SPEAKERS: Final = ("system", "developer", "user", "assistant")
_TOOLS: Final = ("tools", "functions")


@dataclass(frozen=True)
class EarlierResponse:
    """The text that was answered so many turns before."""

    turns_back: int

    @property
    def segment(self) -> Segment:
        """The engine's segment."""
        return {"capture": {"turns_back": self.turns_back}}


@dataclass(frozen=True)
class Spoken:
    """A JSON string of texts and answers, one behind the other."""

    parts: tuple[str | EarlierResponse, ...]


@runtime_checkable
class Conversing(Protocol):
    """What an API has besides, where its bodies can repeat answers."""

    def conversation(self, rows: Sequence[Row]) -> list[list[bytes]]:
        """For each turn the bytes of its fields; turn k, from 0, fits the segments after k answers.

        Args:
            rows: the turns of one conversation, in order.

        Raises:
            UsageError: options that leave no room for answers.
            DatasetError: a row that cannot be a turn.
        """

    def segments_after(self, answers: int) -> list[Segment]:
        """The pieces of a body that repeats so many answers."""


def encode_spoken(value: Any) -> list[bytes]:
    """The JSON of a value in which `Spoken` stand: what lies before, between and after the answers.

    Raises:
        TypeError: a value that JSON cannot hold.
        ValueError: not a finite number.
    """
    runs: list[list[bytes]] = [[]]
    _write(value, runs)
    return [b"".join(run) for run in runs]


def _write(value: Any, runs: list[list[bytes]]) -> None:
    if isinstance(value, Spoken):
        runs[-1].append(b'"')
        for part in value.parts:
            if isinstance(part, EarlierResponse):
                runs.append([])
            else:
                runs[-1].append(encode_json(part)[1:-1])
        runs[-1].append(b'"')
    elif isinstance(value, list):
        for number, item in enumerate(value):
            runs[-1].append(b"," if number else b"[")
            _write(item, runs)
        runs[-1].append(b"]" if value else b"[]")
    elif isinstance(value, dict) and any(isinstance(item, Spoken) for item in value.values()):
        for number, (name, item) in enumerate(value.items()):
            runs[-1].append((b"," if number else b"{") + encode_json(name) + b":")
            _write(item, runs)
        runs[-1].append(b"}")
    else:
        runs[-1].append(encode_json(value))


def spoken_segments(answers: int) -> list[Segment]:
    """The segments of what `encode_spoken` returns: the oldest answer stands first."""
    segments: list[Segment] = [{"field": 0}]
    for number in range(answers):
        segments += [EarlierResponse(answers - number).segment, {"field": number + 1}]
    return segments


def prompts_by_turn(prompts: Sequence[str]) -> list[Spoken]:
    """The prompt of each turn: texts and answers in the order in which they were said, with nothing between them."""
    made = []
    for turn in range(len(prompts)):
        parts: list[str | EarlierResponse] = [prompts[0]]
        for earlier in range(1, turn + 1):
            parts += [EarlierResponse(turn - earlier + 1), prompts[earlier]]
        made.append(Spoken(tuple(parts)))
    return made


def messages_by_turn(rows: Sequence[Row], messages: Sequence[Sequence[Message]]) -> list[list[Message]]:
    """The messages of each turn, with the server's answers between those of the rows.

    A row holds what is new in its turn, or everything that was said before it as well: then it begins with the
    messages of the row before, and the recorded answer that follows them is left out.

    Args:
        rows: the turns of one conversation, in order.
        messages: those of each row.

    Raises:
        DatasetError: messages that cannot be told from answers.
    """
    new = [list(messages[0]), *(_new(rows[turn], messages, turn) for turn in range(1, len(rows)))]
    made = []
    for turn in range(len(rows)):
        said = list(new[0])
        for earlier in range(1, turn + 1):
            said += [{"role": "assistant", "content": Spoken((EarlierResponse(turn - earlier + 1),))}, *new[earlier]]
        made.append(said)
    return made


def _new(row: Row, messages: Sequence[Sequence[Message]], turn: int) -> list[Message]:
    before, now = list(messages[turn - 1]), list(messages[turn])
    is_whole = len(now) > len(before) and now[: len(before)] == before
    new = now[len(before) :] if is_whole else _without_opening(now, messages[0])
    if any(each.get("role") not in _SPEAKERS or each.get("tool_calls") for each in new):
        raise row_error(
            row,
            "has calls of tools, or items without a speaker",
            "they belong to the recorded answers: use --history recorded",
        )
    answers = [place for place, each in enumerate(new) if each["role"] == "assistant"]
    if answers and not is_whole:
        todo = "give each row what is new in its turn, or all that was said in the row before and more"
        raise row_error(row, "holds answers, yet does not begin with the messages of the turn before", todo)
    asked = new[answers[-1] + 1 :] if answers else new
    if not asked:
        raise row_error(row, "asks nothing after the last answer", "let it end with a message of the user")
    return asked


def _without_opening(now: list[Message], first: Sequence[Message]) -> list[Message]:
    """Without the system's messages that the conversation began with."""
    opening = 0
    while (
        opening < min(len(now), len(first)) and now[opening] == first[opening] and now[opening].get("role") in _OPENING
    ):
        opening += 1
    return now[opening:]


def refuse_tools(row: Row, *members: Mapping[str, Any]) -> None:
    """A server that may call tools answers with calls, which are no text to be repeated.

    Raises:
        DatasetError: one of these offers some.
    """
    if any(each.get(name) for each in members for name in _TOOLS):
        todo = "a call has no result to go on with: use --history recorded, or leave the tools out"
        raise row_error(row, "offers tools, and its answers are to be repeated", todo)
