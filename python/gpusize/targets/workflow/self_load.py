"""How busy Python was while it generated a level: its share of a core, and how late its event loop came round."""

from __future__ import annotations

import asyncio
import resource
import time
from typing import Any, Final

from gpusize.base.clock import Clock
from gpusize.targets.workflow.histogram import Times

__all__ = ["Busy"]

STEP_S: Final = 0.02
"""Time between two looks at the event loop; one that comes late waited for somebody's code."""


class Busy:
    """Measures from ``start`` on; to be used on the event loop.

    Args:
        clock: the time of that loop.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lag = Times()
        self._start_ns = 0
        self._cpu_ns = 0
        self._children_s = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to measure."""
        self._start_ns = self._clock.now_ns()
        self._cpu_ns = time.process_time_ns()
        self._children_s = _children_s()
        self._task = asyncio.ensure_future(self._watch())

    @property
    def cpu_ns(self) -> int:
        """CPU time of this process since the start, all threads."""
        return time.process_time_ns() - self._cpu_ns if self._task is not None else 0

    def share(self) -> float:
        """The same over the time that has passed: 1 is one core."""
        passed_ns = self._clock.now_ns() - self._start_ns
        return self.cpu_ns / passed_ns if self._task is not None and passed_ns > 0 else 0.0

    def stop(self) -> dict[str, Any]:
        """End; what was found, as ``level.json`` keeps it under ``generator``."""
        found = {
            "cpu_share": round(self.share(), 4),
            "loop_lag_p50_s": _seconds(self._lag.quantile_ns(0.5)),
            "loop_lag_p99_s": _seconds(self._lag.quantile_ns(0.99)),
            "children_cpu_s": round(_children_s() - self._children_s, 6),
        }
        if self._task is not None:
            self._task.cancel()
        return found

    async def _watch(self) -> None:
        while True:
            wanted_ns = self._clock.now_ns() + round(STEP_S * 1e9)
            await asyncio.sleep(STEP_S)
            self._lag.record(self._clock.now_ns() - wanted_ns)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _seconds(time_ns: int | None) -> float | None:
    return None if time_ns is None else round(time_ns / 1e9, 6)
