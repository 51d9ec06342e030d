"""Long series as points that a picture can show, with nothing that stands out lost."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["BUCKETS", "envelope"]

BUCKETS: Final = 1500
"""As many as a line of a picture's width has pixels, about."""


def envelope(
    x: NDArray[np.float64], y: NDArray[np.float64], buckets: int = BUCKETS
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The first and the last point of a series, and of each of ``buckets`` groups the lowest and the highest.

    Every n-th point would lose a peak, and the highest of each group would hide how deep it fell between.

    Args:
        x: places of the points, ascending, of shape (n,).
        y: their values, without nan.
        buckets: groups of points that follow on each other, alike in number.

    Returns:
        At most ``2 * buckets + 2`` points in their order; all where there are no more than that.
    """
    import numpy as np

    if y.size <= 2 * buckets + 2:
        return x, y
    edges = np.linspace(0, y.size, buckets + 1).astype(np.int64)
    kept = {0, y.size - 1}
    for begin, end in itertools.pairwise(edges.tolist()):
        kept.update((begin + int(np.argmin(y[begin:end])), begin + int(np.argmax(y[begin:end]))))
    places = np.fromiter(sorted(kept), np.int64, len(kept))
    return x[places], y[places]
