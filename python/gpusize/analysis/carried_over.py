"""Whether requests of a level waited behind those of the levels before.

Levels of a sweep follow each other at once. One whose rate the target does not keep up with leaves a backlog, and the
times of the next level say what both were together until that is gone: first its requests wait for the other level's,
then for each other. So the backlog is followed from one answer to the next: all that was due before the last of those
answers is answered in turn, until that takes no longer than requests take at the level's end. Where these still take
many times as long as on the empty target, in a level that is not many times longer than they are, or ever less, it is
not gone by then.

Of a level that the target does not keep up with either nothing is said: its own backlog hides the other one.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, NamedTuple

from gpusize.analysis.delivery.intended import is_ramp
from gpusize.analysis.detect import drift
from gpusize.analysis.metrics import NS_PER_S
from gpusize.analysis.steadiness import drift_of, growth_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.analysis.level import LevelData

__all__ = ["carried_over"]

LEAST: Final = 0.01
"""Share of a steady window, from which a percentile of it may be one of such requests."""
AT_END: Final = 0.5
"""This part of a level, its last one, tells how long requests take without the backlog, if it is gone by then."""
QUANTILE: Final = 0.99
SLOWER: Final = 5.0
"""Runtimes at a level's end, as so many times one on the empty target, from which the backlog is not gone."""
LONG: Final = 10.0
"""In a level of so many of its own runtimes a backlog that goes is seen to go."""
FIRST: Final = 10
"""Fewest requests that tell what runtimes were before there was a backlog."""
MANY: Final = 1_000_000
"""Of more requests the window behind the warm-up is left to judge by."""
RISES: Final = 0.5
"""Rise of the runtime over a level, relative to its median, of a queue that grows from nothing: there it is 2."""


class _Backlog(NamedTuple):
    """What a level before has left behind: when the last of its requests ended, and a runtime before there was any."""

    until_ns: int
    clean_ns: float


def carried_over(level: LevelData) -> str:
    """For how long requests waited behind those of a level before, in words; empty where that matters not.

    Args:
        level: one visit.
    """
    return level.kept.once("carried over", functools.partial(_carried_over, level))


def _carried_over(level: LevelData) -> str:
    left = _left_to(level)
    if left is None or growth_of(level).status == "growing":
        return ""
    begin, end = level.window()
    until = _gone(level, left)
    if until - begin <= LEAST * (end - begin):
        return ""
    after_s = (until - int(level.meta["start_ns"])) / NS_PER_S
    what = f"requests of its first {after_s:.3g} s waited behind those of a level before"
    return f"{what}, which the target did not keep up with"


def _left_to(level: LevelData) -> _Backlog | None:
    """The backlog that a level found; None without one."""
    chain = [level]
    while (before := chain[-1].before) is not None:
        chain.append(before)
    found = None
    # From the first on, so that however many they are none calls more than the one before it.
    for each in reversed(chain):
        found = _known(each)
    return found


def _known(level: LevelData) -> _Backlog | None:
    return level.kept.once("backlog", functools.partial(_left_by_the_one_before, level))


def _left_by_the_one_before(level: LevelData) -> _Backlog | None:
    before = level.before
    if before is None or not _had_closed(before, level):
        return None
    older, end = _known(before), int(before.meta["end_ns"])
    if end <= int(level.meta["start_ns"]):
        return None  # all was answered, as before a run that was resumed
    if older is not None and _gone(before, older) >= before.window()[1]:
        return _Backlog(end, older.clean_ns)
    return _Backlog(end, _at_first(before)) if _overran(before) else None


def _overran(level: LevelData) -> bool:
    """Whether a backlog was there when the level closed; by its runtimes where its warm-up left little to judge."""
    if growth_of(level).status == "growing":
        return True
    # Of so many requests the window that is left has enough to judge.
    if level.setting.get("kind") != "open" or is_ramp(level.setting) or int(level.meta.get("rows") or 0) > MANY:
        return False
    start, close = int(level.meta["start_ns"]), int(level.meta["close_ns"])
    due, ends = _times(level)
    found = drift((due - start) / NS_PER_S, (ends - due) / NS_PER_S, 0.0, (close - start) / NS_PER_S, effect=RISES)
    return found.status == "drifts" and found.low is not None and found.low > RISES


def _had_closed(before: LevelData, level: LevelData) -> bool:
    """Whether one level had sent all when the other began: streams of one load run side by side."""
    times = [before.meta.get("close_ns"), before.meta.get("end_ns"), level.meta.get("start_ns")]
    return None not in times and int(times[0] or 0) <= int(times[2] or 0)


def _gone(level: LevelData, left: _Backlog) -> int:
    """When a backlog was gone; the end of the level where it was not by then."""
    import numpy as np

    due, ends = _times(level)
    end = level.window()[1]
    if not due.size:
        return end
    late = (ends - due)[due >= due[0] + AT_END * (due[-1] - due[0])]
    middle, found = float(np.median(late)), drift_of(level)
    # In many times as long as requests take a backlog that goes is seen to go: what stays is the target's own queue.
    slow = middle > SLOWER * left.clean_ns and due[-1] - due[0] < LONG * middle
    if slow or (found.status == "drifts" and (found.change or 0.0) < 0):
        return end
    usual = float(np.quantile(late, QUANTILE))
    last = np.maximum.accumulate(ends)
    until = left.until_ns
    while True:
        place = int(np.searchsorted(due, until))
        behind = int(last[place - 1]) if place else until
        if behind - until <= usual:
            return until
        until = behind


def _at_first(level: LevelData) -> float:
    """The median runtime of a level's first requests, ns: an empty target answered them."""
    import numpy as np

    due, ends = _times(level)
    return float(np.median((ends - due)[: max(FIRST, due.size // 50)]))


def _times(level: LevelData) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """When the requests that were sent became due, ascending, and when they ended, ns."""
    import polars as pl

    sent = pl.col("sent_ns").is_not_null() & pl.col("end_ns").is_not_null()
    times = level.requests().filter(sent).select("due_ns", "end_ns").sort("due_ns").collect(engine="streaming")
    return times["due_ns"].to_numpy(), times["end_ns"].to_numpy()
