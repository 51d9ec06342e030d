"""Rules by which replicas come and go, and the schedules that follow from them: pure functions over arrays.

``planned`` knows the arrivals: each window's replicas are asked for early enough to take requests when it begins.
``reactive`` sees what has come: the rate of the window that has just gone. Both let replicas go only when none of the
recommendations of the last ``scale_down_after_s`` asks for them: the stabilisation window of Kubernetes' Horizontal
Pod Autoscaler.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpusize.base.errors import UsageError
from gpusize.estimate.question import check_headroom

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Recent = tuple[NDArray[np.int64], NDArray[np.float64]]

__all__ = ["POLICIES", "ScalingRules", "Schedule", "bounded", "planned", "reactive", "recent", "windows"]

NS_PER_S: Final = 1e9
POLICIES: Final = ("planned", "reactive")


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """How replicas come and go.

    Attributes:
        window_s: length of the windows whose rates are looked at.
        decide_every_s: how often the reactive policy decides.
        start_delay_s: from when a replica is asked for to when it takes requests.
        scale_down_after_s: remove a replica once it has been unneeded this long.
        min_replicas: there are never fewer.
        max_replicas: there are never more; None for no bound.
        headroom: replicas on top of what a rate needs, as a share of it.
        spare: replicas on top of that.

    Raises:
        UsageError: invalid values.
    """

    window_s: float = 60.0
    decide_every_s: float = 15.0
    start_delay_s: float = 60.0
    scale_down_after_s: float = 300.0
    min_replicas: int = 1
    max_replicas: int | None = None
    headroom: float = 0.0
    spare: int = 0

    def __post_init__(self) -> None:
        for name, least in (
            ("window_s", 1.0),
            ("decide_every_s", 1.0),
            ("start_delay_s", 0),
            ("scale_down_after_s", 0),
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and least <= value <= 1e7):
                shown = name.removesuffix("_s")
                raise UsageError(
                    f"{shown} must be {least:g} s or more, not {value:g} s", shown, "give 500ms, 10s or 2m"
                )
        if self.min_replicas < 1:
            what = f"there must be at least one replica at all times, not {self.min_replicas}"
            raise UsageError(what, "min_replicas", "from zero, the first request waits for a replica to start")
        if self.max_replicas is not None and self.max_replicas < self.min_replicas:
            what = f"at most {self.max_replicas} replicas and at least {self.min_replicas} exclude each other"
            raise UsageError(what, "max_replicas", "give at least as many as min_replicas")
        if not (math.isfinite(self.headroom) and self.headroom >= 0) or self.spare < 0:
            raise UsageError("headroom and spare must not be below 0", "headroom", "leave it out for none")
        check_headroom(self.headroom)


@dataclass(frozen=True, eq=False)
class Schedule:
    """Replicas over time, constant between its steps.

    Attributes:
        at_ns: when each number begins to be asked for; ascending from 0; shape (n,).
        asked: replicas that are asked for, and paid for, from then on; shape (n,).
        start_delay_s: from when a replica is asked for to when it takes requests; those of the first step do at once.
    """

    at_ns: NDArray[np.int64]
    asked: NDArray[np.int64]
    start_delay_s: float = 0.0

    @classmethod
    def constant(cls, replicas: int) -> Schedule:
        """So many all the time."""
        import numpy as np

        return cls(np.zeros(1, np.int64), np.array([replicas], np.int64))

    @property
    def peak(self) -> int:
        """The most that are asked for."""
        return int(self.asked.max())

    def replica_s(self, duration_s: float) -> float:
        """Replicas times seconds that are asked for within the first so many seconds."""
        import numpy as np

        edges = np.minimum(np.append(self.at_ns / NS_PER_S, duration_s), duration_s)
        return float((np.diff(edges) * self.asked).sum())

    def ready(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """When how many take requests: (ns, replicas).

        One that is taken back before it is ready never is; asked for again, it starts anew.
        """
        import numpy as np

        delay_ns = round(self.start_delay_s * NS_PER_S)
        now = int(self.asked[0])
        starting: list[int] = []  # moments at which those that start will be ready, ascending
        at, count = [0], [now]

        def come(until_ns: float) -> None:
            nonlocal now
            while starting and starting[0] <= until_ns:
                now += 1
                at.append(starting.pop(0))
                count.append(now)

        for at_ns, wanted in zip(self.at_ns[1:].tolist(), self.asked[1:].tolist(), strict=True):
            come(at_ns)
            if wanted < now:
                now = wanted
                at.append(at_ns)
                count.append(now)
            del starting[wanted - now :]
            starting += [at_ns + delay_ns] * (wanted - now - len(starting))
        come(math.inf)
        last = np.append(np.diff(at) > 0, True)
        return np.array(at)[last], np.array(count)[last]


def windows(
    due_ns: NDArray[np.int64], duration_ns: int, window_s: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Windows of about ``window_s`` that fill the duration, and the rate in each.

    All are as long as asked for but the last, which has half of that to one and a half.

    Returns:
        Edges in ns, shape (n + 1,), and requests per second, shape (n,).
    """
    import numpy as np

    window_ns = round(window_s * NS_PER_S)
    count = max(1, round(duration_ns / window_ns))
    edges = np.append(np.arange(count, dtype=np.int64) * window_ns, duration_ns)
    came = np.diff(np.searchsorted(due_ns, edges[:-1]), append=due_ns.size)
    return edges, came / (np.diff(edges) / NS_PER_S)


def bounded(replicas: NDArray[np.int64], rules: ScalingRules) -> NDArray[np.int64]:
    """Replicas that are needed, with headroom and spare on top, within what there may be."""
    import numpy as np

    # A rounding error of the arithmetic adds none.
    more = np.ceil(replicas * (1 + rules.headroom) * (1 - 1e-12)).astype(np.int64) + rules.spare
    most = np.iinfo(np.int64).max if rules.max_replicas is None else rules.max_replicas
    found: NDArray[np.int64] = np.clip(more, rules.min_replicas, most)
    return found


def planned(edges_ns: NDArray[np.int64], replicas: NDArray[np.int64], rules: ScalingRules) -> Schedule:
    """The schedule of one who knows the arrivals.

    At t as many are asked for as the largest of the windows wants that have begun by ``t + start_delay`` and ended no
    earlier than ``t - scale_down_after``.

    Args:
        edges_ns: of the windows, shape (n + 1,).
        replicas: that each window wants, shape (n,).
        rules: how they come and go.
    """
    import numpy as np

    delay_ns, stay_ns = round(rules.start_delay_s * NS_PER_S), round(rules.scale_down_after_s * NS_PER_S)
    begin, end = edges_ns[:-1] - delay_ns, edges_ns[1:] + stay_ns
    times = np.unique(np.concatenate([[0], begin, end]))
    times = times[(times >= 0) & (times < edges_ns[-1])]
    # Of windows in order those are in force that have begun and not ended: a stretch that moves on.
    first = np.searchsorted(end, times, "right")
    last = np.searchsorted(begin, times, "right")
    return _stepped(times, _largest(replicas, first, last), rules.start_delay_s)


def recent(due_ns: NDArray[np.int64], edges_ns: NDArray[np.int64], rules: ScalingRules) -> Recent:
    """The rates that one sees who looks at the last ``window_s`` every ``decide_every_s``.

    It begins as though the rate of the first window had been there before.

    Args:
        due_ns: of every request, ascending.
        edges_ns: of the windows: the first gives the rate to begin with, the last edge is the end.
        rules: how often is looked, and how far back.
    """
    import numpy as np

    every_ns, window_ns = round(rules.decide_every_s * NS_PER_S), round(rules.window_s * NS_PER_S)
    times = np.arange(0, int(edges_ns[-1]), every_ns, dtype=np.int64)
    came = np.searchsorted(due_ns, times) - np.searchsorted(due_ns, times - window_ns)
    rates = came / rules.window_s
    rates[times < window_ns] = np.searchsorted(due_ns, edges_ns[1]) / (int(edges_ns[1]) / NS_PER_S)
    return times, rates


def reactive(times: NDArray[np.int64], recommended: NDArray[np.int64], rules: ScalingRules) -> Schedule:
    """The schedule of one who sees only what has come: the largest recommendation since ``scale_down_after_s``.

    Args:
        times: when is decided, in ns, shape (n,).
        recommended: replicas for the rates that are seen then, shape (n,).
        rules: how they come and go.
    """
    import numpy as np

    oldest = np.searchsorted(times, times - round(rules.scale_down_after_s * NS_PER_S))
    return _stepped(times, _largest(recommended, oldest, np.arange(1, times.size + 1)), rules.start_delay_s)


def _largest(values: NDArray[np.int64], first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.int64]:
    """The largest of ``values[first:last]`` for stretches that move on: both ends never fall."""
    import numpy as np

    falling: deque[int] = deque()
    taken = 0
    found = np.empty(first.size, np.int64)
    for place, (low, high) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        while taken < high:
            while falling and values[falling[-1]] <= values[taken]:
                falling.pop()
            falling.append(taken)
            taken += 1
        while falling[0] < low:
            falling.popleft()
        found[place] = values[falling[0]]
    return found


def _stepped(times: NDArray[np.int64], replicas: NDArray[np.int64], start_delay_s: float) -> Schedule:
    import numpy as np

    changed = np.append(True, np.diff(replicas) != 0)
    return Schedule(times[changed], replicas[changed], start_delay_s)
