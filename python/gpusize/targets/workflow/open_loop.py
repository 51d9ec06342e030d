"""The open loop: requests begin when they are due, whatever has become of the others."""

from __future__ import annotations

import asyncio
import heapq
from typing import TYPE_CHECKING, Any

from gpusize.targets.workflow.closed_loop import converse, sleep_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpusize.targets.workflow.level import WorkflowLevel
    from gpusize.targets.workflow.schedule import Arrival, Due

__all__ = ["open_loop"]


async def open_loop(level: WorkflowLevel, load: Mapping[str, Any], due: Iterable[Arrival]) -> None:
    """Begin what is due.

    Beyond ``connections`` in flight (with ``grow`` beyond ``max_connections``) requests wait, those of the highest
    priority first; beyond ``queue`` waiting, and with ``shed`` at once, they are shed.
    """
    gate = _Gate(level, load)
    talks: set[asyncio.Task[int]] = set()
    arrived = 0
    for arrived, each in enumerate(due, 1):  # noqa: B007 - the last one counts
        due_ns = level.start_ns + each.due_ns
        if not await sleep_until(level, due_ns):
            break
        begun = level.conversations.begun(each.seq, each.row, due_ns, each.stream)
        if begun.session is None:
            gate.offer(begun, each.priority)
        else:
            talk = asyncio.ensure_future(_talk(level, gate, begun, each.priority))
            talks.add(talk)
            talk.add_done_callback(talks.discard)
    else:
        await level.used_up(arrived)
    while talks or gate.sending:
        await asyncio.wait({*talks, *gate.sending})
    gate.give_up()


async def _talk(level: WorkflowLevel, gate: _Gate, begun: Due, priority: int) -> int:
    return await converse(level, begun, lambda turn: gate.offer(turn, priority))


class _Gate:
    """Lets so many requests run, keeps so many more waiting, and sheds the rest."""

    def __init__(self, level: WorkflowLevel, load: Mapping[str, Any]) -> None:
        overload = load.get("overload") or "queue"
        self._level = level
        self._most = int(load["connections"])
        if overload == "grow":
            self._most = max(self._most, int(load.get("max_connections") or 0))
        self._most_waiting = 0 if overload == "shed" else int(load["queue"])
        self._waiting: list[tuple[int, int, Due, asyncio.Future[tuple[int, bool]]]] = []
        self._offered = 0
        self.sending: set[asyncio.Task[None]] = set()

    def offer(self, due: Due, priority: int) -> asyncio.Future[tuple[int, bool]]:
        """A request is due; when it ended and whether it was answered."""
        due = due._replace(fired_ns=self._level.clock.now_ns())
        end: asyncio.Future[tuple[int, bool]] = asyncio.get_running_loop().create_future()
        if len(self.sending) < self._most:
            task = asyncio.ensure_future(self._send(due, end))
            self.sending.add(task)
            task.add_done_callback(self.sending.discard)
        elif len(self._waiting) < self._most_waiting:
            self._offered += 1
            heapq.heappush(self._waiting, (-priority, self._offered, due, end))
            self._level.waiting = len(self._waiting)
        else:
            self._unsent(due, end, "shed")
        return end

    async def _send(self, due: Due, end: asyncio.Future[tuple[int, bool]]) -> None:
        end.set_result(await self._level.send(due))
        # Whoever has waited goes on this one's place.
        while self._waiting and not self._level.cut:
            _, _, due, end = heapq.heappop(self._waiting)
            self._level.waiting = len(self._waiting)
            end.set_result(await self._level.send(due))

    def _unsent(self, due: Due, end: asyncio.Future[tuple[int, bool]], outcome: str) -> None:
        self._level.tally.unsent(self._level.unsent(due), outcome)
        end.set_result((due.due_ns, False))

    def give_up(self) -> None:
        """Nothing runs any more: who still waits never went."""
        self._level.waiting = 0
        for _, _, due, end in sorted(self._waiting):
            self._unsent(due, end, "cancelled")
