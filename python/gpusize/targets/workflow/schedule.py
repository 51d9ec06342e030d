"""Which rows requests send, when they are due, and how long users pause: the same plans as the engine's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpusize.base.errors import UsageError
from gpusize.engine.session import core

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Arrival", "Conversations", "Due", "RowOrder", "Thinks", "arrivals"]

_DRAWS: Final = 256
"""Think times that are drawn at once."""


_MOST_DELAY_S: Final = 1e9


class Arrival(NamedTuple):
    """An arrival of an open loop, the ``place``-th of all streams; ``due_ns`` counts from the level's start."""

    place: int
    stream: int
    seq: int
    due_ns: int
    row: int
    target: int | None
    priority: int


class Due(NamedTuple):
    """A request that is due.

    Attributes:
        seq: its number within its stream.
        row: the row that it sends.
        due_ns: when, on the engine's clock.
        stream: number of the stream.
        fired_ns: when the generator turned to it; None: as it begins.
        session: number of its conversation.
        turn: its place within that.
    """

    seq: int
    row: int
    due_ns: int
    stream: int = 0
    fired_ns: int | None = None
    session: int | None = None
    turn: int | None = None


class RowOrder:
    """The row of each request of a closed loop: what the engine sends under the same seed.

    Args:
        rows: how many there are.
        order: ``file``, or ``shuffled``: a new permutation for each round.
        seed: key of the permutations.
    """

    def __init__(self, rows: int, order: str, seed: int) -> None:
        self._rows = rows
        self._shuffled = _shuffled(rows, seed) if order == "shuffled" else None
        self._seq = -1
        self._row = 0

    def row(self, seq: int) -> int:
        """The row that request ``seq`` sends; asked for in the order of ``seq``."""
        if self._shuffled is None:
            return seq % self._rows
        while self._seq < seq:
            self._seq, self._row = self._seq + 1, next(self._shuffled)
        return self._row


def _shuffled(rows: int, seed: int) -> Iterator[int]:
    """The engine's own permutations: the rows of a stream depend on its number and not on when requests are due.

    A closed loop draws as stream 0 does.
    """
    rate = {"phases": [{"from": 1.0, "to": 1.0}], "process": "constant"}
    load = {"open": {"streams": [{"id": 0, "arrivals": {"rate": rate}}], "connections": 1, "queue": 1}}
    plan = {"visit": 0, "seed": seed, "load": load, "stop": {"count": 1 << 62}, "order": "shuffled"}
    return (Arrival._make(each).row for each in iter(core().schedule(json.dumps(plan), rows)))


class Conversations:
    """Rows that follow one another: those with the same ``session``, in the order of their ``turn``.

    Args:
        rows: the dataset's rows. One without a session is a conversation of one turn.
        unit: ``session``; with ``request`` every row is one.

    Attributes:
        rows: how many rows there are.
        most_turns: turns of the longest one.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]], unit: str) -> None:
        groups: dict[str, list[int]] = {}
        for index, row in enumerate(rows):
            session = row.get("session") if unit == "session" else None
            groups.setdefault(f"row {index}" if session is None else f"session {session}", []).append(index)
        self._groups = [sorted(group, key=lambda index: _turn(rows[index])) for group in groups.values()]
        self._of_row = {row: number for number, group in enumerate(self._groups) for row in group}
        self._delays = [row.get("delay_s") for row in rows]
        self._whole = unit == "session"
        self.rows = len(rows)
        self.most_turns = max(map(len, self._groups), default=1)

    def __len__(self) -> int:
        return len(self._groups)

    def first(self, number: int) -> int:
        """The row that begins a conversation."""
        return self._groups[number][0]

    def turns(self, row: int) -> list[int]:
        """The rows of the conversation that a row belongs to."""
        return self._groups[self._of_row[row]]

    def number(self, row: int) -> int | None:
        """The conversation that a row belongs to; None when requests are what arrives."""
        return self._of_row[row] if self._whole else None

    def begun(self, number: int, row: int, due_ns: int, stream: int = 0) -> Due:
        """The request, or the first turn of the conversation, that a number stands for and a row begins."""
        session = self.number(row)
        if session is None:
            return Due(number, row, due_ns, stream)
        return Due(number * self.most_turns, row, due_ns, stream, session=session, turn=0)

    def recorded_ns(self, row: int) -> int:
        """The pause that the dataset has before a row, its ``delay_s``; 0 where there is none.

        Raises:
            UsageError: a ``delay_s`` that is no time.
        """
        delay = self._delays[row]
        try:
            seconds = float(delay or 0)
            if not 0 <= seconds <= _MOST_DELAY_S:
                raise ValueError
        except (TypeError, ValueError):
            raise UsageError(f'"delay_s" is {delay!r}', f"row {row}", "write seconds, 0 or more") from None
        return round(seconds * 1e9)

    def lists(self) -> dict[str, list[int]]:
        """The conversation and turn of each row, as the schedule takes them."""
        places = {row: place for group in self._groups for place, row in enumerate(group)}
        order = range(self.rows)
        return {"sessions": [self._of_row[row] for row in order], "turns": [places[row] for row in order]}


def _turn(row: Mapping[str, Any]) -> int:
    turn = row.get("turn")
    return turn if isinstance(turn, int) else 0


class Thinks:
    """Pauses before requests: functions of seed, stream and number, drawn as the engine draws them.

    Args:
        plan: the LevelPlan.
        conversations: the dataset's, for pauses that were recorded.

    Raises:
        UsageError: recorded pauses, and requests that are no turns of conversations.
    """

    def __init__(self, plan: Mapping[str, Any], conversations: Conversations) -> None:
        [load] = plan["load"].values()
        self._think = load.get("think") or {"fixed": 0}
        if self._think == "recorded" and load.get("unit") != "session":
            todo = "make the load's unit sessions, or ask for another think time"
            raise UsageError("there are no recorded pauses between requests", "load.think", todo)
        self._plan = json.dumps(plan)
        self._conversations = conversations
        self._drawn: dict[tuple[int, int], list[int]] = {}

    def before_ns(self, due: Due) -> int:
        """The pause before a turn of a conversation, in nanoseconds."""
        if self._think == "recorded":
            return self._conversations.recorded_ns(due.row)
        return self._draw(due.seq, due.stream)

    def after_ns(self, due: Due) -> int:
        """The pause of a user after a request or a conversation, before the next."""
        if self._think == "recorded":
            return 0
        turns = self._conversations.most_turns
        return self._draw(due.seq if due.session is None else (due.seq // turns + 1) * turns, due.stream)

    def _draw(self, seq: int, stream: int) -> int:
        if "fixed" in self._think:
            return int(self._think["fixed"])
        block, place = divmod(seq, _DRAWS)
        if (stream, block) not in self._drawn:
            # Users of a level are near one another in their numbers.
            self._drawn = {key: drawn for key, drawn in self._drawn.items() if key[0] != stream or key[1] >= block - 8}
            self._drawn[stream, block] = core().think_ns(self._plan, stream, block * _DRAWS, _DRAWS)
        return self._drawn[stream, block][place]


def arrivals(plan: Mapping[str, Any], conversations: Conversations, arrays: Mapping[str, bytes]) -> Iterator[Arrival]:
    """What the streams of an open loop bring, to the end that the plan's count or duration sets.

    Args:
        plan: the LevelPlan.
        conversations: of the dataset's rows.
        arrays: due times and the like of streams by plan; see docs/reference/engine.md.

    Raises:
        UsageError: an invalid plan, or arrays that do not fit it.
    """
    if any(arrays.get("targets") or b""):
        raise UsageError("a workflow has no replicas", "targets", "leave the targets out of the plan")
    beside = conversations.lists() if plan["load"]["open"].get("unit") == "session" else {}
    found = core().schedule(json.dumps(plan), conversations.rows, **arrays, **beside)
    return map(Arrival._make, iter(found))
