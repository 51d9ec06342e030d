"""When workloads go: in closed rounds, as the Run:ai scale test tool sends them, or when they are due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from gpusize.cluster.submit.send import Sender, pause
from gpusize.cluster.submit.workloads import Workload

__all__ = ["closed_rounds", "open_loop"]


async def closed_rounds(
    sender: Sender,
    workloads: Iterator[Workload],
    size: int,
    delay_s: float,
    stop: asyncio.Event,
    now_ns: Callable[[], int],
) -> None:
    """Send ``size`` workloads at once, and the next ones when all of these are answered and the delay is over.

    The last round has what is left. A workload is due when its round begins.
    """
    held = next(workloads, None)
    while held is not None and not stop.is_set():
        together = [held, *islice(workloads, size - 1)]
        due_ns = now_ns()
        async with asyncio.TaskGroup() as group:
            for each in together:
                group.create_task(sender.send(each, due_ns))
        held = next(workloads, None)
        if held is not None and await pause(delay_s, stop):
            return


async def open_loop(
    sender: Sender,
    workloads: Iterable[tuple[int, Workload]],
    stop: asyncio.Event,
    now_ns: Callable[[], int],
) -> None:
    """Send each workload when it is due, whatever became of those before; return when all are answered.

    Args:
        sender: sends them.
        workloads: due times in ns since 1970, in order, and what is due.
        stop: set when no more is to be sent.
        now_ns: the clock.
    """
    async with asyncio.TaskGroup() as group:
        for due_ns, workload in workloads:
            if await pause((due_ns - now_ns()) / 1e9, stop):
                return
            group.create_task(sender.send(workload, due_ns))
            # What is late is sent at once, and answers are taken in between.
            await asyncio.sleep(0)
