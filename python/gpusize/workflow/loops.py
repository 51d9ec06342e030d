"""The two loops: requests kept in flight, and requests at a rate."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from gpusize.engine import monotonic_ns
from gpusize.workflow.schedule import arrivals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpusize.workflow.level import WorkflowLevel

__all__ = ["closed_loop", "open_loop"]


async def closed_loop(level: WorkflowLevel, load: Mapping[str, Any], before: WorkflowLevel | None) -> None:
    """Keep ``concurrency`` requests in flight.

    With ``burst`` all slots start at one instant. With ``staggered`` each slot of the level before goes on here when
    its request has ended, and further ones start spread over one residence time.
    """
    slots = int(load["concurrency"])
    staggered = load["start"] == "staggered"
    inherited = 0
    if staggered and before is not None and "closed" in before.plan["load"]:
        inherited = min(int(before.plan["load"]["closed"]["concurrency"]), slots)
    spread_ns = 0
    if staggered:
        asked = load.get("stagger_ns")
        spread_ns = level.residence_hint_ns if asked is None else int(asked) * (slots - inherited)
    think_ns = int(load.get("think_ns") or 0)
    starts = []
    for k in range(slots):
        if k < inherited and before is not None:
            starts.append(_inherit(level, before))
        else:
            # One that takes the load over starts beside running slots; the very first one starts at once.
            place = k - inherited + (1 if inherited else 0)
            starts.append(_later(level, spread_ns * place // max(slots - inherited, 1)))
    await asyncio.gather(*(_slot(level, start, think_ns) for start in starts))


async def _slot(level: WorkflowLevel, start: Any, think_ns: int) -> None:
    due_ns = await start
    while due_ns is not None:
        seq = level.take(due_ns)
        if seq is None:
            break
        due_ns = await level.send(seq, due_ns) + think_ns
        if think_ns and not await sleep_until(level, due_ns):
            break
    level.freed.put_nowait(due_ns or monotonic_ns())


async def _inherit(level: WorkflowLevel, before: WorkflowLevel) -> int | None:
    """When the next slot of the level before is free; None when this level closed first."""
    free = asyncio.ensure_future(before.freed.get())
    closed = asyncio.ensure_future(level.closed.wait())
    await asyncio.wait({free, closed}, return_when=asyncio.FIRST_COMPLETED)
    for each in (free, closed):
        each.cancel()
    if not free.done() or free.cancelled():
        return None
    due_ns = max(free.result(), level.start_ns)
    return due_ns if await sleep_until(level, due_ns) else None


async def _later(level: WorkflowLevel, delay_ns: int) -> int | None:
    due_ns = level.start_ns + delay_ns
    return due_ns if delay_ns == 0 or await sleep_until(level, due_ns) else None


async def sleep_until(level: WorkflowLevel, due_ns: int) -> bool:
    """Wait for a time; False when the level closed before it."""
    left_s = (due_ns - monotonic_ns()) / 1e9
    if left_s <= 0:
        # Whoever is behind the schedule must not keep the others from running.
        await asyncio.sleep(0)
        return not level.closed.is_set()
    try:
        await asyncio.wait_for(level.closed.wait(), left_s)
    except TimeoutError:
        return True
    return False


async def open_loop(level: WorkflowLevel, load: Mapping[str, Any]) -> None:
    """Begin requests when they are due, whatever has become of the others.

    Beyond ``connections`` in flight they wait, beyond ``queue`` waiting they are shed.
    """
    most, most_waiting = int(load["connections"]), int(load["queue"])
    waiting: deque[tuple[int, int, int]] = deque()
    sending: set[asyncio.Task[None]] = set()

    async def send(seq: int, due_ns: int, fired_ns: int) -> None:
        await level.send(seq, due_ns, fired_ns)
        # Whoever has waited goes on this one's place.
        while waiting and not level.cut:
            next_one = waiting.popleft()
            level.waiting = len(waiting)
            await level.send(*next_one)

    for offset_ns in arrivals(float(load["rate"]), str(load["process"]), int(level.plan["seed"])):
        due_ns = level.start_ns + offset_ns
        seq = level.take(due_ns) if await sleep_until(level, due_ns) else None
        if seq is None:
            break
        if len(sending) < most:
            task = asyncio.ensure_future(send(seq, due_ns, monotonic_ns()))
            sending.add(task)
            task.add_done_callback(sending.discard)
        elif len(waiting) < most_waiting:
            waiting.append((seq, due_ns, monotonic_ns()))
            level.waiting = len(waiting)
        else:
            level.tally.unsent(level.unsent(seq, due_ns), "shed")
    await asyncio.gather(*sending)
    level.waiting = 0
    for seq, due_ns, _ in waiting:
        level.tally.unsent(level.unsent(seq, due_ns), "cancelled")
