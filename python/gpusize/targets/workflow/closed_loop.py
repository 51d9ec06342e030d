"""The closed loop: users who send, wait for the answer, pause and send again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from gpusize.targets.workflow.level import WorkflowLevel
    from gpusize.targets.workflow.schedule import Due

__all__ = ["closed_loop", "converse", "sleep_until"]


async def closed_loop(level: WorkflowLevel, load: Mapping[str, Any], before: WorkflowLevel | None) -> None:
    """Keep ``concurrency`` users busy, on a ramp so many as the line from ``from`` to ``concurrency`` says.

    With ``burst`` all users start at one instant. With ``staggered`` each user of the level before goes on here when
    the answer has come, and further ones start spread over one residence time, or along the ramp.
    """
    slots = int(load["concurrency"])
    begin = slots if load.get("from") is None else int(load["from"])
    ramp_ns = int(load.get("ramp_ns") or 0)
    most = max(slots, begin)
    staggered = load.get("start") == "staggered"
    inherited = 0
    if staggered and before is not None and "closed" in before.plan["load"]:
        inherited = min(int(before.plan["load"]["closed"]["concurrency"]), begin)
    spread_ns = 0
    if staggered:
        asked = load.get("stagger_ns")
        spread_ns = level.residence_hint_ns if asked is None else int(asked) * (begin - inherited)
    users = []
    for k in range(most):
        leaves_ns = None
        if k < inherited and before is not None:
            start = _inherit(level, before)
        elif k < begin:
            # One that takes the load over starts beside running users; the very first one starts at once.
            place = k - inherited + (1 if inherited else 0)
            start = _later(level, spread_ns * place // max(begin - inherited, 1))
        else:
            start = _later(level, -(-ramp_ns * (k - begin + 1) // (slots - begin)))
        if k >= slots:
            leaves_ns = level.start_ns - (-ramp_ns * (begin - k) // (begin - slots))
        users.append(_user(level, start, leaves_ns))
    await asyncio.gather(*users)


async def _user(level: WorkflowLevel, start: Awaitable[int | None], leaves_ns: int | None) -> None:
    due_ns = await start
    while due_ns is not None and (leaves_ns is None or due_ns < leaves_ns):
        number = level.take(due_ns)
        if number is None:
            break
        due = level.conversations.begun(number, level.row_of(number), due_ns)
        due_ns = await converse(level, due, level.send)
        pause_ns = level.thinks.after_ns(due)
        due_ns += pause_ns
        if pause_ns and not await sleep_until(level, due_ns):
            break
    level.freed.put_nowait(due_ns or level.clock.now_ns())


async def converse(level: WorkflowLevel, due: Due, send: Callable[[Due], Awaitable[tuple[int, bool]]]) -> int:
    """A conversation from its first turn to its last, or to the first that fails; when it ended.

    Each turn is due at the end of the one before, plus the pause.
    """
    rows = level.conversations.turns(due.row) if due.session is not None else [due.row]
    end_ns = due.due_ns
    for turn, row in enumerate(rows):
        if turn:
            due = due._replace(seq=due.seq + 1, row=row, turn=turn)
            due = due._replace(due_ns=end_ns + level.thinks.before_ns(due))
            if not await sleep_until(level, due.due_ns, through_count=True):
                return end_ns
        end_ns, answered = await send(due)
        if not answered:
            break
    return end_ns


async def _inherit(level: WorkflowLevel, before: WorkflowLevel) -> int | None:
    """When the next user of the level before is free; None when this level closed first."""
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


async def sleep_until(level: WorkflowLevel, due_ns: int, *, through_count: bool = False) -> bool:
    """Wait for a time; False when the level closed before it.

    Args:
        level: the level.
        due_ns: the time, on the engine's clock.
        through_count: a level that has only begun its last arrival still goes on.
    """
    over = level.ended if through_count else level.closed
    left_s = (due_ns - level.clock.now_ns()) / 1e9
    if left_s <= 0:
        # Whoever is behind the schedule must not keep the others from running.
        await asyncio.sleep(0)
        return not over.is_set()
    try:
        await asyncio.wait_for(over.wait(), left_s)
    except TimeoutError:
        return True
    return False
