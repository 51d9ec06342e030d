"""Recorded conversations as rows: one request for each turn of the user, with everything that was said before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gpusize.base.errors import DatasetError
from gpusize.base.text import shown
from gpusize.workload.dataset.parsed import Parsed

__all__ = ["from_multi_turn", "from_sharegpt", "looks_like_sharegpt", "looks_like_turns"]

_ROLES: Final = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "system": "system",
    "developer": "developer",
    "tool": "tool",
}
_UNRECORDED: Final = "…"
"""Stands for an answer that a file does not have."""

Message = dict[str, Any]
Count = Callable[[str], int]


def looks_like_sharegpt(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every row has ``conversations`` of ``from`` and ``value``."""
    return all(
        isinstance(row.get("conversations"), list)
        and all(isinstance(one, dict) and {"from", "value"} <= one.keys() for one in row["conversations"])
        for row in rows
    )


def looks_like_turns(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every row has a list ``turns``."""
    return all(isinstance(row.get("turns"), list) for row in rows)


def from_sharegpt(parsed: Parsed, source: str, count: Count | None) -> Parsed:
    """Rows of ShareGPT's form, ``{"id": …, "conversations": [{"from": "human", "value": …}, …]}``.

    Args:
        parsed: the file's rows.
        source: its path.
        count: counts the tokens of the recorded answers, which become ``output_tokens``; None leaves them out.

    Raises:
        DatasetError: a row of another form, or a speaker that is not known.
    """

    def messages(row: Mapping[str, Any], where: str) -> list[Message]:
        said = row.get("conversations")
        if not isinstance(said, list):
            raise DatasetError('this row has no list "conversations"', where, "choose another --dataset-format")
        result = []
        for one in said:
            if not isinstance(one, dict) or not isinstance(one.get("value"), str) or "from" not in one:
                raise DatasetError(f"{shown(one)} is not a turn", where, 'a turn is {"from": "human", "value": "…"}')
            result.append({"role": _role(one["from"], where), "content": one["value"]})
        return result

    return _expanded(parsed, source, messages, count, "conversations")


def from_multi_turn(parsed: Parsed, source: str, count: Count | None) -> Parsed:
    """Rows with ``messages``, or with ``turns``: texts, messages, or objects with ``text``, all of the user.

    Where an answer is not recorded, an ellipsis stands for it, as most chat templates want speakers to alternate.

    Args:
        parsed: the file's rows.
        source: its path.
        count: as for `from_sharegpt`.

    Raises:
        DatasetError: a row of another form.
    """

    def messages(row: Mapping[str, Any], where: str) -> list[Message]:
        said = row.get("messages", row.get("turns"))
        if not isinstance(said, list):
            raise DatasetError('this row has neither "messages" nor "turns"', where, "choose another --dataset-format")
        result: list[Message] = []
        for one in said:
            message = _message(one, where)
            if message["role"] == "user" and result and result[-1]["role"] == "user":
                result.append({"role": "assistant", "content": _UNRECORDED})
            result.append(message)
        return result

    return _expanded(parsed, source, messages, count, "messages")


def _message(one: Any, where: str) -> Message:
    if isinstance(one, str):
        return {"role": "user", "content": one}
    if isinstance(one, dict) and "role" in one:
        return {**one, "role": _role(one["role"], where)}
    if isinstance(one, dict) and isinstance(one.get("text", one.get("content")), str):
        return {"role": "user", "content": one.get("text", one.get("content"))}
    raise DatasetError(f"{shown(one)} is not a turn", where, 'a turn is a text or {"role": "user", "content": "…"}')


def _role(name: Any, where: str) -> str:
    role = _ROLES.get(name.lower()) if isinstance(name, str) else None
    if role is None:
        raise DatasetError(f"the speaker {shown(name)} is not known", where, f"known are {', '.join(_ROLES)}")
    return role


def _expanded(
    parsed: Parsed,
    source: str,
    messages: Callable[[Mapping[str, Any], str], list[Message]],
    count: Count | None,
    member: str,
) -> Parsed:
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    silent = headless = unrecorded = 0
    for number, row in enumerate(parsed.rows):
        where = f"{source}:{parsed.lines[number]}" if parsed.lines else f"{source}, row {number}"
        said = messages(row, where)
        start = next((k for k, one in enumerate(said) if one["role"] != "assistant"), len(said))
        headless += start > 0
        unrecorded += sum(one["content"] == _UNRECORDED for one in said if one["role"] == "assistant")
        made = _turns(said[start:], _session(row, number), count)
        silent += not made
        rest = {name: value for name, value in row.items() if name not in {member, "turns", "id", "messages"}}
        rows += [{**rest, **one} for one in made]
        lines += parsed.lines[number : number + 1] * len(made)
    ellipsis_note = f'answers are not recorded; "{_UNRECORDED}" stands for each, unless --history answers is given'
    notes = [
        *parsed.notes,
        *_note(source, silent, "conversations have no turn of the user and are left out"),
        *_note(source, headless, "conversations began with an answer, which is left out"),
        *_note(source, unrecorded, ellipsis_note),
    ]
    return Parsed(rows, lines, notes)


def _turns(said: Sequence[Message], session: str, count: Count | None) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for position, one in enumerate(said):
        if one["role"] != "user" or not one.get("content"):
            continue
        turn = len(made)
        row: dict[str, Any] = {
            "id": f"{session}_turn{turn}",
            "messages": list(said[: position + 1]),
            "session": session,
            "turn": turn,
        }
        reply = said[position + 1] if position + 1 < len(said) else None
        recorded = reply is not None and reply["role"] == "assistant" and isinstance(reply.get("content"), str)
        if count is not None and reply is not None and recorded and reply["content"] not in {"", _UNRECORDED}:
            row["output_tokens"] = max(1, count(reply["content"]))
        made.append(row)
    return made


def _session(row: Mapping[str, Any], number: int) -> str:
    name = next((row[key] for key in ("id", "session_id", "question_id") if row.get(key) not in (None, "")), number)
    return str(name) if isinstance(name, str | int | float) else str(number)


def _note(source: str, count: int, what: str) -> list[str]:
    return [f"{source}: {count} {what}"] if count else []
