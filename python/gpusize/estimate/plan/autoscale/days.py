"""Other days of the same kind as a recorded one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpusize.estimate.plan.over_time.demand import Demand

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["another_day"]

NS_PER_S: Final = 1e9
_DRAWS: Final = 0x44415953  # keeps these draws apart from others under the same seed


def another_day(day: Demand, edges_ns: NDArray[np.int64], seed: int, *, level: float = 1.0) -> Demand:
    """As many requests in each window as chance would have it, at other moments, with lengths of the window's requests.

    The number of a window's requests is a Poisson draw around that of the day, and their times are spread evenly over
    it. So the course of the day stays, and what was chance in it is drawn anew; bursts within a window are lost.

    Args:
        day: the requests.
        edges_ns: of the windows, shape (n + 1,).
        seed: key of the draws; the same seed gives the same day.
        level: factor on the expected number of requests in each window.
    """
    import numpy as np

    rnd = np.random.default_rng((_DRAWS, seed))
    bounds = np.searchsorted(day.due_ns, edges_ns)
    bounds[-1] = day.due_ns.size
    counts = rnd.poisson(level * np.diff(bounds))
    which = np.repeat(np.arange(counts.size), counts)
    due = np.sort(edges_ns[which] + rnd.random(which.size) * np.diff(edges_ns)[which]).astype(np.int64)
    tokens = None
    if day.tokens is not None:
        # A window without requests has none to come, so each has somebody to take after.
        inside = (rnd.random(which.size) * np.diff(bounds)[which]).astype(np.int64)
        tokens = day.tokens[:, bounds[which] + inside]
    return Demand(day.source, due, day.duration_s, tokens, day.notes)
