"""What follows a step in the load: when replicas are asked for, ready and at work, and when users are served again.

Times are those of readings, so each is an interval: it happened after the reading before and at the latest at the one
that shows it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from gpusize.estimate.isotonic import wilson
from gpusize.estimate.plan.autoscale.judge.series import REQUESTS, RUNNING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.plan.autoscale.judge.load_steps import LoadStep
    from gpusize.estimate.plan.autoscale.judge.requests import Requests
    from gpusize.estimate.plan.autoscale.judge.series import PulledSeries
    from gpusize.estimate.plan.autoscale.judge.track import Track

__all__ = ["After", "Recovery", "Response", "begun_to_serve", "response"]

SURE: Final = 1.6448536269514722
"""Quantile of the normal distribution, one-sided at 5 %: a window is below the SLO where chance does not explain it."""

ABSENT: Final = 2
"""Scrape intervals without a reading that a replica may have; beyond, it is gone."""


class After(NamedTuple):
    """Seconds after a step within which something happened."""

    earliest_s: float
    latest_s: float


@dataclass(frozen=True, slots=True)
class Recovery:
    """Attainment after a step, by windows that begin with it.

    Attributes:
        fell: whether a window was below an SLO, beyond chance.
        after_s: from the step to the end of the last such window; None where it was still below at the next step, and
            where it never fell.
        lowest: the smallest share of a window; None without requests.
    """

    fell: bool
    after_s: float | None
    lowest: float | None


@dataclass(frozen=True, slots=True)
class Response:
    """What followed a step; None for what was not seen before the next one.

    Attributes:
        step: the step.
        desired: replicas asked for moved its way.
        ready: replicas that are ready did.
        serving: of a step up, a new replica, asked for after it, had its first request at work.
        enough: of a step up, as many were ready as the estimate says its load needs; 0 where they were before it.
        recovery: of the attainment.
    """

    step: LoadStep
    desired: After | None
    ready: After | None
    serving: After | None
    enough: After | None
    recovery: Recovery


def response(
    step: LoadStep,
    requests: Requests,
    window_s: float,
    *,
    desired: Track | None,
    ready: Track | None,
    serving: NDArray[np.float64] | None,
    needed: int | None,
) -> Response:
    """What followed a step in the load.

    Args:
        step: the step.
        requests: of the run.
        window_s: of the attainment.
        desired: replicas that were asked for.
        ready: replicas that were ready.
        serving: when new replicas were seen with their first request, and before that without: shape (n, 2).
        needed: replicas that the load needs after the step.
    """
    asked = None if desired is None else _moved(step, desired)
    first = None
    if step.up and serving is not None and (desired is None or asked is not None):
        later = serving[(serving[:, 1] > step.at_s) & (serving[:, 1] <= step.until_s)]
        first = _first_serving(step, later, asked, _on_their_way(step, desired, ready))
    return Response(
        step,
        desired=asked,
        ready=None if ready is None else _moved(step, ready),
        serving=first,
        enough=None if ready is None or needed is None or not step.up else _reached(step, ready, needed),
        recovery=recovery(requests, step.at_s, step.until_s, window_s),
    )


def _on_their_way(step: LoadStep, desired: Track | None, ready: Track | None) -> int:
    """Replicas that were asked for before a step, and not ready yet."""
    if desired is None or ready is None:
        return 0
    missing = _readings(step, desired)[0] - _readings(step, ready)[0]
    return max(0, round(missing)) if math.isfinite(missing) else 0


def _first_serving(step: LoadStep, later: NDArray[np.float64], asked: After | None, before: int) -> After | None:
    """The first new replica at work that was asked for after a step.

    Those that were on their way come first, and none is at work before it is asked for.
    """
    rows = sorted(later.tolist(), key=lambda each: each[1])[before:]
    since_s = -math.inf if asked is None else step.at_s + asked.earliest_s
    return next((_after(step, max(before_s, since_s), at_s) for before_s, at_s in rows if at_s > since_s), None)


def _after(step: LoadStep, before_s: float, at_s: float) -> After:
    return After(max(0.0, before_s - step.at_s), at_s - step.at_s)


def _readings(step: LoadStep, track: Track) -> tuple[float, list[tuple[float, float]]]:
    """The value at a step, and (time, value) of the readings after it until the next; NaN where none is known."""
    import numpy as np

    known = ~np.isnan(track.values)
    at, values = track.at_s[known], track.values[known]
    first, last = np.searchsorted(at, [step.at_s, step.until_s], "right")
    base = float(values[first - 1]) if first else math.nan
    return base, list(zip(at[first:last].tolist(), values[first:last].tolist(), strict=True))


def _moved(step: LoadStep, track: Track) -> After | None:
    base, readings = _readings(step, track)
    before_s = step.at_s
    for at_s, value in readings:
        if (value > base) if step.up else (value < base):
            return _after(step, before_s, at_s)
        before_s = at_s
    return None


def _reached(step: LoadStep, track: Track, needed: int) -> After | None:
    base, readings = _readings(step, track)
    if base >= needed:
        return After(0.0, 0.0)
    before_s = step.at_s
    for at_s, value in readings:
        if value >= needed:
            return _after(step, before_s, at_s)
        before_s = at_s
    return None


def recovery(requests: Requests, from_s: float, until_s: float, window_s: float) -> Recovery:
    """How attainment fared between two times, by windows from the first on; the last is as long as what is left.

    A window is below an SLO where the upper end of Wilson's interval (one-sided, 95 %) of its share is: with few
    requests a miss or two are chance. A window without requests says nothing.
    """
    import numpy as np

    whole = max(1, round((until_s - from_s) / window_s))
    edges = np.append(from_s + window_s * np.arange(whole), until_s)
    found = requests.between(edges[:-1], edges[1:])
    shares, judged = found.shares[:-1], found.judged[:-1]
    below = np.zeros(whole, bool)
    for slo, row, counts in zip(requests.slos, shares, judged, strict=True):
        below |= np.array(
            [n > 0 and wilson(share, n, SURE)[1] < slo.share for share, n in zip(row, counts, strict=True)]
        )
    known = shares[judged > 0]
    lowest = float(known.min()) if known.size else None
    if not below.any():
        return Recovery(fell=False, after_s=None, lowest=lowest)
    last = int(np.flatnonzero(below)[-1])
    back = bool((judged[:, last + 1 :].sum(axis=0) > 0).any())
    return Recovery(fell=True, after_s=float(edges[last + 1] - from_s) if back else None, lowest=lowest)


def begun_to_serve(series: PulledSeries) -> NDArray[np.float64] | None:
    """When replicas that had not been there before had their first request: (the reading before, the reading).

    By requests at work, else by the counter of requests. A replica that has no reading for more than two scrape
    intervals in which others have some is gone; one of its labels that comes back is a new one. Those that were there
    in the first two intervals are not told.

    Returns:
        Shape (n, 2), in order; None where no series of single replicas tells.
    """
    name = series.first((*RUNNING, *REQUESTS))
    return None if name is None else _first_at_work(series, name)


def _first_at_work(series: PulledSeries, name: str) -> NDArray[np.float64]:
    import numpy as np
    import polars as pl

    frame = series.rows(name).select("t_ns", pl.col("labels").to_physical().alias("replica"), busy=pl.col("value") > 0)
    t_ns, replica = frame["t_ns"].to_numpy(), frame["replica"].to_numpy().astype(np.int64)
    # One key sorts in half the time of two; no target is scraped twice in a millisecond.
    since_ms = (t_ns - t_ns.min()) // 1_000_000
    order = np.argsort(replica * (since_ms.max() + 1) + since_ms, kind="stable")
    at, replica, busy = series.at_s(t_ns[order]), replica[order], frame["busy"].to_numpy()[order]
    step_s = max(series.step_s(name), 1e-9)
    # Intervals are numbered where any replica has a reading, so that what nobody read is no end of a replica.
    _, number = np.unique(np.floor((at - at.min()) / step_s + 0.5).astype(np.int64), return_inverse=True)
    begins = np.append(True, (np.diff(replica) != 0) | (np.diff(number) > ABSENT))
    life = np.cumsum(begins) - 1
    at_work = np.flatnonzero(busy)
    lives, first = np.unique(life[at_work], return_index=True)
    place = at_work[first]
    new = number[begins][lives] > 1
    before = np.where(begins[place], at[place] - step_s, at[place - 1])
    found: NDArray[np.float64] = np.stack([before[new], at[place][new]], axis=1)
    return found[np.argsort(found[:, 1], kind="stable")]
