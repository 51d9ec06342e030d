"""Decides from the seconds of a run whether one of its rules has come true.

The only clock is the number of the seconds, which is the engine's. A second is judged over the shortest run of seconds
up to it that holds enough requests for the rule's percentile (100 for p99), at most as many as the rule's own time. It
is broken when more requests lie beyond the bound than tolerated; a single one never breaks it unless there is no other.
The rule has come true when every second of its time was broken.

A second in which nothing ended says nothing when nothing was in flight either, and is left out. While requests are in
flight it goes on counting towards a latency rule that is broken already; and when nothing has ended for the rule's
whole time, and for longer than its bound, that alone breaks it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpusize.analysis.stop_cause import Stop
from gpusize.measure.monitor.stop_rules import NOTHING, Rule, Seen
from gpusize.records.schema import ANSWERED

__all__ = ["Monitor", "Second"]

Second = Mapping[str, Any]
"""A row of ``Level.seconds``; see docs/reference/engine.md."""

SATURATION_EVERY_S: Final = 5
"""Saturation is looked for each so many seconds: its tests cost more than counting."""


def growing(seconds: Sequence[Mapping[str, Any]]) -> str | None:
    """Whether requests come faster than they are answered, in words with numbers; None when not, or not known.

    Args:
        seconds: rows of ``Level.seconds``, without a gap. What counts as answered is what the check of a stored level
            takes for it, ``gpusize.records.schema.ANSWERED``.
    """
    import numpy as np

    from gpusize.analysis import detect

    found = detect.growing(
        np.array([second["due"] for second in seconds], dtype=float),
        np.array([sum(second["outcomes"].get(name, 0) for name in ANSWERED) for second in seconds], dtype=float),
        np.array([second["in_flight"] for second in seconds], dtype=float),
        runtime_s=np.array([_median_s(second["times"].get("runtime") or ()) for second in seconds]),
    )
    return found.text if found.status == "growing" else None


def _median_s(buckets: Sequence[Sequence[int]]) -> float:
    """The median of a histogram's values, to the width of its bucket; nan for none."""
    left = math.ceil(sum(count for _, _, count in buckets) / 2)
    for low_ns, high_ns, count in sorted(buckets, key=lambda bucket: bucket[0]):
        left -= count
        if left <= 0:
            return (low_ns + high_ns) / 2e9
    return math.nan


class Monitor:
    """Watches the seconds of a run, over all of its levels.

    Args:
        rules: what ends it.
        saturated: tells from the last seconds whether the queue grows without end: a text with numbers, or None.
    """

    def __init__(self, rules: Iterable[Rule], *, saturated: Callable[[Sequence[Second]], str | None] = growing) -> None:
        every = list(rules)
        self._watches = [_Watch(rule) for rule in every if rule.kind != "saturation"]
        self._saturation = min(
            (rule for rule in every if rule.kind == "saturation"), key=lambda r: r.for_s, default=None
        )
        self._saturated = saturated
        self._last: deque[Second] = deque(maxlen=self._saturation.for_s if self._saturation else 1)
        self._seconds = 0
        self.stop: Stop | None = None

    def feed(self, seconds: Iterable[Second]) -> Stop | None:
        """Take further seconds, in order; the reason to end as soon as there is one, and then always that.

        Args:
            seconds: rows with ``second``, ``outcomes``, ``in_flight`` and ``times``; for saturation also
                ``due`` and ``done``.
        """
        for second in seconds:
            if self.stop is not None:
                break
            self.stop = self._judge(second)
        return self.stop

    def _judge(self, second: Second) -> Stop | None:
        for watch in self._watches:
            if watch.advance(second):
                return Stop(watch.rule.reason, int(second["second"]), f"{watch.rule.text}: {watch.why()}")
        return self._judge_saturation(second)

    def _judge_saturation(self, second: Second) -> Stop | None:
        rule = self._saturation
        if rule is None:
            return None
        self._last.append(second)
        self._seconds += 1
        if len(self._last) < rule.for_s or self._seconds % SATURATION_EVERY_S:
            return None
        found = self._saturated(tuple(self._last))
        return None if found is None else Stop(rule.reason, int(second["second"]), f"{rule.text}: {found}")


@dataclass
class _Watch:
    """One rule of percentile or share, from second to second."""

    rule: Rule
    window: deque[tuple[Seen, Second]] = field(default_factory=deque)
    seen: Seen = NOTHING
    broken_s: int = 0
    stalled_s: int = 0
    in_flight: int = 0

    def advance(self, second: Second) -> bool:
        """Take one more second; whether the rule has come true."""
        seen = self.rule.see(second)
        self.in_flight = int(second.get("in_flight") or 0)
        if seen.judged == 0:
            self._stall()
        else:
            self.stalled_s = 0
            self._push(seen, second)
            self.broken_s = self.broken_s + 1 if self.rule.broken(self.seen) else 0
        return self.broken_s >= self.rule.for_s

    def _stall(self) -> None:
        limit_s = self.rule.stall_s
        if limit_s is None or not self.in_flight:
            return
        self.stalled_s += 1
        if self.broken_s:
            self.broken_s += 1
        elif self.stalled_s >= limit_s:
            self.broken_s = self.stalled_s

    def _push(self, seen: Seen, second: Second) -> None:
        self.window.append((seen, second))
        self.seen += seen
        # The start of the shortest window that suffices only moves on, so each second is dropped once.
        while len(self.window) > self.rule.for_s or self.seen.judged - self.window[0][0].judged >= self.rule.needed:
            self.seen -= self.window.popleft()[0]

    def why(self) -> str:
        """The numbers of the moment."""
        if self.stalled_s >= (self.rule.stall_s or math.inf):
            return f"nothing has ended for {self.stalled_s} s, with {self.in_flight:,} requests in flight"
        span = f"of {self.seen.judged:,} in the last {len(self.window)} s"
        if self.rule.kind == "share":
            word = "failed" if self.rule.subject == "errors" else f"ended as {self.rule.subject}"
            return f"{self.seen.over:,} {span} {word}{self._kinds()}, too many for {self.broken_s} s"
        value_s = self._percentile_s()
        shown = "beyond any time, so many failed" if math.isinf(value_s) else f"{value_s:.3g} s"
        beyond = f"{self.seen.over:,} {span} were beyond {self.rule.bound_ns / 1e9:.3g} s or failed"
        return f"it was {shown}, {beyond}, too many for {self.broken_s} s"

    def _kinds(self) -> str:
        if self.rule.subject != "errors":
            return ""
        counts: dict[str, int] = {}
        for _, second in self.window:
            for name, count in second["outcomes"].items():
                if count and name not in ("ok", "cancelled"):
                    counts[name] = counts.get(name, 0) + count
        return f" ({', '.join(f'{count:,} {name}' for name, count in sorted(counts.items(), key=lambda x: -x[1]))})"

    def _percentile_s(self) -> float:
        """The rule's percentile over the window by nearest rank, in seconds; a failed request takes endless."""
        buckets: dict[int, int] = {}
        for _, second in self.window:
            for _, high_ns, count in second["times"].get(self.rule.subject) or ():
                buckets[high_ns] = buckets.get(high_ns, 0) + count
        rank = math.ceil((1 - self.rule.tolerated) * self.seen.judged)
        for high_ns in sorted(buckets):
            rank -= buckets[high_ns]
            if rank <= 0:
                return high_ns / 1e9
        return math.inf
