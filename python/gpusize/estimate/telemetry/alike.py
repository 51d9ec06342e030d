"""Whether replicas are alike: their times between tokens, held against each other at like load.

The load is what the counter of gaps tells: the seconds of gaps that a step brought, over its length, are the requests
that were being answered on the mean. So a slow replica, which has more at work at the same rate, is compared with a
fast one at a time in which that had as many.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpusize.analysis.unlike_replicas import CLEARLY

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.telemetry.production import Production

__all__ = ["Unlike", "unlike"]

FEWEST: Final = 5
"""Steps of a replica at one load that say something of it."""
LIKE: Final = 0.25
"""Loads whose logarithms are in one piece of this width are alike."""
_TELLING: Final = ("pod", "instance")


@dataclass(frozen=True, slots=True)
class Unlike:
    """Two replicas that are not alike, the slowest and the fastest at like load.

    Attributes:
        slow, fast: what they are called.
        slow_s, fast_s: mean times between tokens at the load at which both were seen longest.
        at_work: that load: requests that are being answered, on the mean.
        times: how many times as long the slow one's times are, over all loads at which both were seen.
    """

    slow: str
    fast: str
    slow_s: float
    fast_s: float
    at_work: float
    times: float

    def __str__(self) -> str:
        return (
            f"replicas are not alike: at about {self.at_work:.3g} requests at work {self.slow} takes "
            f"{1e3 * self.slow_s:.3g} ms a token and {self.fast} {1e3 * self.fast_s:.3g} ms ({self.times:.2g} times at "
            "like load)"
        )


def unlike(production: Production) -> Unlike | None:
    """The two replicas that differ most, where they differ clearly; None where none do, or nothing tells."""
    import numpy as np

    steps = production.steps
    gap_s, gaps = steps.rise("itl_sum"), steps.rise("itl_count")
    known = np.isfinite(gap_s) & np.isfinite(gaps) & (gaps > 0) & (gap_s > 0) & (steps.length_s > 0)
    if not known.any():
        return None
    load = gap_s[known] / steps.length_s[known]
    piece = np.floor(np.log(load) / LIKE).astype(np.int64)
    piece -= piece.min()
    n = len(steps.replicas)

    def table(of: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums by replica and load; shape (replicas, pieces)."""
        made = np.zeros((n, int(piece.max()) + 1))
        np.add.at(made, (steps.replica[known], piece), of)
        return made

    seen, all_s, all_gaps, loads = (table(each) for each in (np.ones(load.size), gap_s[known], gaps[known], load))
    enough = seen >= FEWEST
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.where(enough, np.log(all_s / all_gaps), np.nan)
    best = -math.inf, 0, 0
    for slow in range(n):
        # Of each other replica, at the loads at which both were seen, by the steps of who was seen less.
        shared = np.where(enough & enough[slow], np.minimum(seen, seen[slow]), 0.0)
        steps_of = shared.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            apart = np.nansum(shared * (times[slow] - times), axis=1) / np.where(steps_of > 0, steps_of, np.nan)
        if np.isfinite(apart).any():
            fast = int(np.nanargmax(apart))
            best = max(best, (float(apart[fast]), slow, fast))
    apart_most, slow, fast = best
    if apart_most <= math.log(CLEARLY):
        return None
    both = np.where(enough[slow] & enough[fast], np.minimum(seen[slow], seen[fast]), 0.0)
    place = int(np.argmax(both))
    names = _names(steps.replicas)
    at_work = float((loads[slow, place] + loads[fast, place]) / (seen[slow, place] + seen[fast, place]))
    slow_s, fast_s = (math.exp(float(times[each, place])) for each in (slow, fast))
    return Unlike(names[slow], names[fast], slow_s, fast_s, at_work, math.exp(apart_most))


def _names(replicas: tuple[str, ...]) -> list[str]:
    """What tells replicas apart, as short as may be: the pod, the instance, or the labels in which they differ."""
    labels = [json.loads(each) for each in replicas]
    for name in _TELLING:
        values = [str(each.get(name, "")) for each in labels]
        if len(set(values)) == len(values):
            return values
    differing = [name for name in labels[0] if len({str(each.get(name)) for each in labels}) > 1]
    return [", ".join(f"{name}={each.get(name)}" for name in differing) for each in labels]
