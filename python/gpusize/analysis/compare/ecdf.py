"""The distribution of a metric over all requests of a side at a load; a request that failed never ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.analysis.compare.matching import Place

__all__ = ["SHARES", "Ecdf", "ecdf"]

SHARES: Final = 1000
"""Steps of the curve at most: a picture shows no more."""


@dataclass(frozen=True, slots=True, eq=False)
class Ecdf:
    """Which share of the requests was done within which time.

    Attributes:
        side: name.
        values: ascending, in the metric's unit; shape (m,).
        shares: of all requests, those that failed included, that ended ok within the value; shape (m,). The last is the
            share that ended ok at all.
        n: requests, without those that the user cut off.
        failed: of them.
        runs: runs that they are of.
    """

    side: str
    values: NDArray[np.float64]
    shares: NDArray[np.float64]
    n: int
    failed: int
    runs: int


def ecdf(place: Place, k: int, side: str, metric: str = "runtime") -> Ecdf | None:
    """The distribution of one side at one load, over the steady requests of all its runs together.

    None where no rows tell of it: another tool's percentiles are no distribution. Where 1 in n requests has a row, the
    rows stand for all; runs that were sampled otherwise than each other are not put together.

    Args:
        place: the load.
        k: number of the side in it.
        side: its name.
        metric: as in SLOs; one of whole requests, such as ``runtime`` or ``ttft``.
    """
    import numpy as np

    levels = place.measured(k)
    if not levels or any(level.imported for level in levels) or len({level.sampled for level in levels}) > 1:
        return None
    values = np.sort(np.concatenate([level.values(metric) for level in levels]))
    outcomes = [level.outcomes() for level in levels]
    n = sum(count for each in outcomes for name, count in each.items() if name != "cancelled")
    ok = sum(each.get("ok", 0) for each in outcomes)
    if values.size < 2 or n == 0:
        return None
    steps = np.linspace(0, 1, min(SHARES, values.size - 1) + 1)
    # The k-th of m values has the share k / m: the curve begins at one request, not at none.
    shares = (1 + steps * (values.size - 1)) / values.size
    return Ecdf(side, np.quantile(values, steps), shares * ok / n, n, n - ok, len(levels))
