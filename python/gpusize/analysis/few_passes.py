"""How long the slots of a closed loop took for a level of few requests each: its rate by Little's law.

A level of few passes cannot be counted by when its answers came. It closes as the first answer of its last wave comes;
and as all slots begin at once, nothing is answered for most of a runtime. By Little's law (1961) the slots answer as
many requests per second as there are slots, over the mean time of a request:

- Where all take about as long, of those behind each slot's first, be they answered after the close. The first of each
  slot found the target empty.
- Where runtimes differ, the longer one of two means: that of each slot's first, and that of those behind it. Where
  requests queue, the first ones waited for half as long; where they share the target, the last ones share it with
  fewer. But all answers came before the last of them did: the rate is no lower than that says.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from gpusize.analysis.delivery.intended import is_ramp, think_s
from gpusize.analysis.metrics import NS_PER_S

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.analysis.level import LevelData

__all__ = ["FewPasses", "few_passes"]

FEW_PASSES: Final = 20
"""A level by count with fewer requests per slot is looked at; of more the answers that came are counted."""
EVEN: Final = 0.15
"""With a smaller standard deviation of the runtimes, over their mean, they come in waves."""
IDLE: Final = 1.1
"""Slots that take so many times as long as their requests are not busy all the time."""


class FewPasses(NamedTuple):
    """Requests by when they were due (after ``low``, up to ``high``, ns), and how long all slots took for them."""

    low: int
    high: int
    took_s: float


def few_passes(visit: LevelData, begun: int, closed: int) -> FewPasses | None:
    """The requests of a level of few passes, and the time that makes their rate.

    Args:
        visit: a single visit of a closed loop.
        begun: when all its slots ran requests of it, in its window, ns.
        closed: the close, in its window, or where hardly an answer came by then the last answer, ns.

    Returns:
        None where answers can be counted by when they came, or must be: one slot, one pass, a level that also paused or
        was cut off, that has failures (each is followed by a pause), or whose slots stood idle. And where runtimes
        differ but a warm-up or the drain was left out: then answers come all the time.
    """
    slots = visit.concurrency or 1
    if not _applies(visit, slots):
        return None
    rows = visit.requests("due_ns", "end_ns").sort("due_ns").collect()
    due, end = rows["due_ns"].to_numpy(), rows["end_ns"].to_numpy()
    took, behind = end - due, (due > begun) & (due <= closed)
    if behind.sum() < slots:
        return None
    rest, start = took[behind], int(visit.meta.get("start_ns") or due[0])
    # Whether each slot's first request counts, too, and those of the drain.
    whole, whole_ns = visit.window()[0] <= start and due[-1] <= closed, int(end.max()) - start
    all_of_it = FewPasses(start - 1, closed, whole_ns / NS_PER_S)
    if rest.std(ddof=1) < EVEN * rest.mean():
        waves = math.ceil(rest.size / slots) + 1
        if end[behind].max() - begun > IDLE * waves * rest.mean():
            return None
        even = FewPasses(begun, closed, float(rest.sum()) / slots / NS_PER_S)
        return even if not whole or rest.mean() * took.size <= whole_ns * slots else all_of_it
    if not whole or _stood_idle(slots, due, end, start, closed):
        return None
    took_ns = took.size * float(max(took[:slots].mean(), took[slots:].mean())) / slots
    return FewPasses(start - 1, closed, took_ns / NS_PER_S) if took_ns < whole_ns else all_of_it


def _applies(visit: LevelData, slots: int) -> bool:
    setting, outcomes = visit.setting, visit.meta.get("outcomes") or {}
    by_count = visit.meta.get("stop_reason", "count") == "count" and not setting.get("duration_s")
    paused = (think_s(setting) or (1.0, 0.0))[0] > 0
    # One slot alone makes no waves.
    if slots < 2 or is_ramp(setting) or visit.sampled > 1 or paused or not by_count:
        return False
    sent = sum(outcomes.values())
    return bool(2 * slots <= sent < FEW_PASSES * slots and outcomes.get("ok", 0) == sent)


def _stood_idle(slots: int, due: NDArray[np.int64], end: NDArray[np.int64], start: int, closed: int) -> bool:
    """Whether the slots had no request in flight for much of the time before the close."""
    import numpy as np

    busy = float(np.clip(np.minimum(end, closed) - np.maximum(due, start), 0, None).sum())
    return IDLE * busy < slots * (closed - start)
