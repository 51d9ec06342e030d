"""Native histograms, as the HTTP API gives them, to cumulative buckets with bounds, as classic ones are.

A sample is ``[time, {"count", "sum", "buckets": [[rule, low, high, count], ...]}]`` with only the buckets that hold
something. Their counts are added up in the order of their bounds. Both bounds of a bucket become rows: between two rows
with equal counts nothing lies, so that a bound that one sample has and another has not is known in both, where it does
not cut a bucket. Whether a bound itself belongs to the bucket (the rule) is not kept: it matters for values that equal
a bound, and none of those that a clock gives do.

Source: https://prometheus.io/docs/prometheus/latest/querying/api/#native-histograms
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from gpusize.base.text import shown
from gpusize.observe.series.ask import Refused

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["cumulative"]

Part = Literal["bucket", "sum", "count"]


def cumulative(
    points: Sequence[Any], from_ms: int, scale: float
) -> Iterable[tuple[Part, float | None, NDArray[np.int64], NDArray[np.float64]]]:
    """Columns of a series of native histograms: sum, count, and one for each bound that a sample has.

    Args:
        points: ``[time, histogram]``.
        from_ms: samples at this time or before are left out.
        scale: factor to the definition's unit.

    Raises:
        Refused: something is no histogram.
    """
    import numpy as np

    sums: list[tuple[int, float]] = []
    counts: list[tuple[int, float]] = []
    buckets: dict[float, list[tuple[int, float]]] = {}
    for point in points:
        try:
            t_ms = round(float(point[0]) * 1e3)
            whole = point[1]
            count, total = float(whole["count"]), float(whole["sum"])
            parts = [(float(low), float(high), float(n)) for _, low, high, n in whole.get("buckets", ())]
        except (TypeError, ValueError, KeyError, IndexError):
            raise Refused(f"it answered with a histogram that is none: {shown(point, 80)}") from None
        # A marker of the end of a series has a sum that is no number.
        if t_ms <= from_ms or math.isnan(count) or math.isnan(total):
            continue
        sums.append((t_ms, total * scale))
        counts.append((t_ms, count))
        for bound, below in _bounds(parts, count):
            buckets.setdefault(bound * scale, []).append((t_ms, below))
    columns: list[tuple[Part, float | None, list[tuple[int, float]]]] = [("sum", None, sums), ("count", None, counts)]
    columns += [("bucket", bound, buckets[bound]) for bound in sorted(buckets)]
    for part, le, pairs in columns:
        yield part, le, np.array([t for t, _ in pairs], np.int64), np.array([v for _, v in pairs], np.float64)


def _bounds(parts: Iterable[tuple[float, float, float]], count: float) -> Iterable[tuple[float, float]]:
    """Bounds, ascending, with how many lie at or below each."""
    below, last = 0.0, -math.inf
    for low, high, n in sorted(parts):
        if low > last and not math.isinf(low):
            yield low, below
        below += n
        if not math.isinf(high):
            yield high, below
        last = high
    yield math.inf, count
