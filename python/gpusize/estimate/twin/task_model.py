"""A replica that works on calls, under requests that are at it for a part of their time: workflows, users who pause.

What it serves with k calls at once is counted: how many ended while there were k, over how long there were. That is the
rate of a flow-equivalent server (Chandy, Herzog and Woo 1975) without anybody having kept k in flight. A call's size is
what it got of that rate, by the sum of its shares over its life. Requests are drawn whole, with their calls' sizes and
the time between them, which no GPU shortens.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from gpusize.estimate.twin.candidates import time_bounds
from gpusize.estimate.twin.flow_model import RUNTIMES, Flow
from gpusize.estimate.twin.inner_calls import Calls, Timeline, own_calls
from gpusize.estimate.twin.rates import smoothed
from gpusize.estimate.twin.server_figures import served_limit
from gpusize.estimate.twin.sharing import begun_s, limit_of
from gpusize.estimate.twin.simulate import TimeBound, Values, horizon
from gpusize.estimate.twin.visit_data import mean_kept

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from gpusize.estimate.twin.attainment_curve import Curve
    from gpusize.estimate.twin.load import ClusterLoad
    from gpusize.estimate.twin.visit_data import Observed

__all__ = ["Tasks", "tasks"]

FEWEST: Final = 60
"""Requests without which they are not drawn from."""
SEVERAL: Final = 1.05
APART: Final = 0.05
"""With fewer calls in the mean, and so small a part of the time outside them, a request is its call."""
USUAL: Final = 4.0
"""Calls of a request: of one with more fewer are simulated, in proportion, but so many at least."""
LEAST: Final = 3_000
NOTHING: Final = 1e-9
"""The least size of a call."""
OF_CALLS: Final = "llm_latency"
"""The metric that is a call's, and not its request's."""
STEP: Final = 1.1
"""Numbers of calls that are so near to each other are counted together."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Tasks(Flow):
    """Flow-equivalent servers of calls, ``rates`` and ``sizes`` theirs.

    Attributes:
        calls: how many each request makes, shape (n,); their sizes follow each other in ``sizes``.
        before_s: time before each call, s; as ``sizes``.
        after_s: time after the last call of each request, s; shape (n,).
        whole_rates: requests per second of one replica with 1, 2, ... in progress.
    """

    calls: NDArray[np.uint32]
    before_s: NDArray[np.float64]
    after_s: NDArray[np.float64]
    whole_rates: NDArray[np.float64]

    @property
    def in_progress(self) -> NDArray[np.float64]:
        """See ``Rated``: what a load is guessed by is of whole requests."""
        return self.whole_rates

    @property
    def patience_s(self) -> float:
        """See ``Replica``. A bound on calls allows as many of them as a request makes, and the time between them."""
        bounds = [each.bound_s for each in self.bounds if each.metric == OF_CALLS]
        each, outside_s = self.sizes.size / self.calls.size, self.before_s.sum() + self.after_s.sum()
        longest_s = max((bound_s * each + outside_s / self.calls.size for bound_s in bounds), default=0.0)
        return max(super().patience_s, longest_s)

    def run(self, asked: ClusterLoad, replicas: int, *, seed: int = 1, requests: int | None = None) -> Values:
        """See ``Replica``. Of requests of many calls fewer are enough: they say as much, and take as long."""
        import numpy as np
        import polars as pl

        wanted = requests or horizon(asked, self.at_work_s(asked, replicas), self.patience_s)
        fewer = math.ceil(wanted * min(1.0, USUAL * self.calls.size / self.sizes.size))
        stream, summary = self._run(asked, replicas, max(min(wanted, LEAST), fewer), seed)
        rows = pl.DataFrame(stream).filter(~pl.col("warmup"))
        known = {name: np.sort(_took_s(rows, name)) for name in {_judged(each) for each in self.bounds}}
        return Values(
            [known[_judged(each)] / each.bound_s for each in self.bounds],
            [each.mean for each in self.bounds],
            float(json.loads(summary)["in_flight"]),
            float(_took_s(rows, "runtime").mean()),
        )

    def kept(self, rows: pl.DataFrame, stretch: float) -> list[NDArray[np.float64]]:
        """How far each of the core's rows keeps its bounds: by objective, shape (n,) each.

        Of a bound on calls, how many of a request's are within it, over the calls of a request in the mean: summed up,
        the share of all calls. A refused request is one call that is not.
        """
        import numpy as np

        found = []
        ok = (rows["outcome"] == 0).to_numpy()
        for bound, factor in zip(self.bounds, self.factors, strict=True):
            took = _took_s(rows, _judged(bound)) / (bound.bound_s * stretch * factor)
            good = mean_kept(took) if bound.mean else (took <= 1.0).astype(float)
            if _judged(bound) == OF_CALLS:
                of = np.repeat(np.arange(rows.height), rows["calls_ns"].list.len().to_numpy())
                good = np.bincount(of, good, rows.height) * rows.height / max(1, of.size + int((~ok).sum()))
            found.append(good * ok)
        return found

    def tasks(self, slowness: float = 1.0) -> tuple[bytes, bytes, bytes]:
        """As the core takes them, in a time that runs so many times as fast."""
        if slowness not in self._arrays:
            self._arrays[slowness] = self._made(slowness)
        return self._arrays[slowness]

    @cached_property
    def _arrays(self) -> dict[float, tuple[bytes, bytes, bytes]]:
        return {}

    def _made(self, slowness: float) -> tuple[bytes, bytes, bytes]:
        import numpy as np

        def ns(times_s: NDArray[np.float64]) -> bytes:
            return np.rint(times_s / slowness * 1e9).astype("<i8").tobytes()

        return self.calls.astype("<u4").tobytes(), ns(self.before_s), ns(self.after_s)


def tasks(visits: Sequence[Observed], curves: Sequence[Curve]) -> Tasks | None:
    """None where requests are one call each, or calls not one by one, or a bound is on something else than times.

    Where one is on calls, requests may be one call each.

    Args:
        visits: closed loops on one replica: all of requests that make calls, or all of users who pause.
        curves: one per objective.
    """
    bounds = _bounds(curves)
    parts = [own_calls(each) if each.think_s > 0 and each.calls is None else each.calls for each in visits]
    known = [each for each in parts if each is not None and each.one_by_one]
    if bounds is None or len(known) < len(visits):
        return None
    limit = _limit(visits, known)
    rates = _rates(known, limit)
    if not rates.size:
        return None
    drawn = _drawn(visits, known, rates, limit)
    if drawn is None:
        return None
    calls, sizes, before_s, after_s = drawn
    took_s = sum(float((each.last_s - each.due_s)[each.steady & each.ok].sum()) for each in visits)
    plain = visits[0].think_s <= 0 and not any(each.metric == OF_CALLS for each in bounds)
    if plain and calls.mean() < SEVERAL and (before_s.sum() + after_s.sum()) < APART * took_s:
        return None
    whole = _whole(rates, float(sizes.sum()) / calls.size, float(before_s.sum() + after_s.sum()) / calls.size)
    factors = (1.0,) * len(curves)
    return Tasks(
        rates, sizes, curves, bounds, limit, factors, calls=calls, before_s=before_s, after_s=after_s, whole_rates=whole
    )


def _bounds(curves: Sequence[Curve]) -> list[TimeBound] | None:
    """Those on the time of requests or calls, or its mean, each by itself; None where one is on anything else."""
    bounds = time_bounds(curves)
    known = (*RUNTIMES, OF_CALLS)
    if bounds is None or len(bounds) > len(curves) or any(each.metric not in known for each in bounds):
        return None
    return bounds


def _judged(bound: TimeBound) -> str:
    """Whose time a bound is on."""
    return OF_CALLS if bound.metric == OF_CALLS else "runtime"


def _took_s(rows: pl.DataFrame, of: str) -> NDArray[np.float64]:
    """Times of the core's rows, shape (n,), or of all calls in them."""
    took = rows["calls_ns"].explode(empty_as_null=False) if of == OF_CALLS else rows["end_ns"] - rows["due_ns"]
    return took.to_numpy() / 1e9


def _limit(visits: Sequence[Observed], known: Sequence[Calls]) -> int | None:
    """Most calls at work at once: as the server says, else as their times tell."""
    told = served_limit([each.served for each in visits])
    if told is not None:
        return None if told[1] else told[0]
    return limit_of([calls.as_visit(visit) for calls, visit in zip(known, visits, strict=True)])


def _rates(known: Sequence[Calls], limit: int | None) -> NDArray[np.float64]:
    """Calls per second with 1, 2, ... at work, shape (k,); empty where none ended."""
    import numpy as np

    lines = [Timeline.of(each) for each in known]
    size = 1 + max(int(each.active.max()) for each in lines)
    lasted, ended = np.zeros(size), np.zeros(size)
    for each in lines:
        lasted += np.bincount(np.maximum(each.active, 0), np.diff(each.at_s), size)[:size]
        ended += np.bincount(each.ended, minlength=size)[:size]
    at = np.arange(size, dtype=float) if limit is None else np.minimum(np.arange(size), limit).astype(float)
    # Numbers that were seldom there are counted with their neighbours.
    group = np.floor(np.log(np.maximum(at, 1.0)) / math.log(STEP)).astype(int)
    found = []
    for number in np.unique(group[1:]):
        same = (group == number) & (np.arange(size) > 0)
        time_s, calls = float(lasted[same].sum()), float(ended[same].sum())
        if time_s > 0 and calls > 0:
            k = float(at[same] @ lasted[same]) / time_s
            found.append((k, k * time_s / calls, calls))
    if not found:
        return np.array([])
    k, took_s, n = np.array(found).T
    return smoothed(k, took_s, n, limit)


def _drawn(
    visits: Sequence[Observed], known: Sequence[Calls], rates: NDArray[np.float64], limit: int | None
) -> tuple[NDArray[np.uint32], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]] | None:
    """Calls of each steady request that ended well, their sizes, the time before each and after the last of each."""
    import numpy as np

    counts, sizes, before_s, after_s = [], [], [], []
    for visit, calls in zip(visits, known, strict=True):
        each = _sizes(calls, rates, limit)
        kept = visit.steady & visit.ok & np.isfinite(visit.last_s) & np.isfinite(visit.due_s)
        inside = kept[calls.of]
        of, begin_s, end_s, own = calls.of[inside], calls.begin_s[inside], calls.end_s[inside], each[inside]
        order = np.lexsort((begin_s, of))
        of, begin_s, end_s, own = of[order], begin_s[order], end_s[order], own[order]
        first = np.diff(of, prepend=-1) != 0
        since_s = np.where(first, visit.due_s[of], np.concatenate([[0.0], end_s])[:-1])
        # A request without a call takes all of its time after none.
        done_s = visit.due_s.copy()
        done_s[of] = end_s
        counts.append(np.bincount(of, minlength=kept.size)[kept])
        sizes.append(own)
        before_s.append(np.maximum(begin_s - since_s, 0.0))
        after_s.append(np.maximum((visit.last_s - done_s)[kept], 0.0))
    calls_each = np.concatenate(counts).astype(np.uint32)
    if calls_each.size < FEWEST or not calls_each.any():
        return None
    return calls_each, np.concatenate(sizes), np.concatenate(before_s), np.concatenate(after_s)


def _sizes(calls: Calls, rates: NDArray[np.float64], limit: int | None) -> NDArray[np.float64]:
    """What each call got of the rate that all share, shape (n,)."""
    import numpy as np

    line = Timeline.of(calls)
    active = np.clip(line.active, 1, limit or rates.size)
    shares = rates[np.minimum(active, rates.size) - 1] / active * np.where(line.active > 0, np.diff(line.at_s), 0.0)
    got = np.concatenate([[0.0], np.cumsum(shares)])
    begin_s = begun_s(calls.begin_s, calls.end_s, limit)
    found = np.interp(calls.end_s, line.at_s, got) - np.interp(np.minimum(begin_s, calls.end_s), line.at_s, got)
    sizes: NDArray[np.float64] = np.maximum(found, NOTHING)
    return sizes


def _whole(rates: NDArray[np.float64], work: float, pause_s: float) -> NDArray[np.float64]:
    """Requests per second with 1, 2, ... in progress, of which some are between their calls (Little 1961)."""
    import numpy as np

    served = rates / max(work, NOTHING)
    there = np.arange(1, rates.size + 1) + pause_s * served
    last = max(2, math.ceil(float(there[-1])))
    found: NDArray[np.float64] = np.interp(np.arange(1, last + 1), np.append(0.0, there), np.append(0.0, served))
    return found
