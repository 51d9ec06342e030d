"""Whether memory still grew when sampling ended: what is needed later is then more than was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.observe.usage.counter_curve import Span

__all__ = ["still_grew"]

PARTS: Final = 10
"""Equal parts of the second half, whose highest readings are looked at: between garbage collections memory falls."""
LEAST_GROWN: Final = 16 << 20
GROWN: Final = 0.05
"""... and this share of the highest reading: smaller growth does not change a request."""
NEAR: Final = 0.99
"""The end is at the peak where its highest reading is at least this share of it."""


def still_grew(t: NDArray[np.int64], held: NDArray[np.int64], span: Span) -> float | None:
    """Bytes per second by which memory grew in the second half of a span, at whose end it was highest.

    By Theil and Sen's line through the highest readings of ten equal parts of it, where that surely rises (99 %).

    Args:
        t: times of readings in the span, ns, ascending; shape (n,).
        held: bytes in use at them; shape (n,).
        span: the stretch of time.

    Returns:
        None where it did not grow, or there are too few readings to tell.
    """
    import numpy as np

    from gpusize.analysis.detect.blocks import theil_sen

    v = held.astype(np.float64)
    if t.size < 2 * PARTS:
        return None
    half = span.start_ns + (span.end_ns - span.start_ns) / 2
    part = ((t - half) / ((span.end_ns - half) / PARTS)).astype(np.int64).clip(max=PARTS - 1)
    numbers = np.unique(part[t >= half])
    if numbers.size < PARTS:
        return None
    highest = np.array([v[(part == number) & (t >= half)].max() for number in numbers])
    line = theil_sen(np.arange(PARTS), highest)
    grown = line.slope * PARTS
    if line.low <= 0 or grown < max(LEAST_GROWN, GROWN * v.max()) or highest[-1] < NEAR * v.max():
        return None
    return float(line.slope) / ((span.end_ns - half) / PARTS / 1e9)
