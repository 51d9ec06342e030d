"""Least squares for costs: none of them can be negative, and hiccups must not bend them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["inside", "non_negative", "non_negative_many"]

OUTLIER: Final = 4.0
"""What differs by more than so many robust standard deviations is left out."""


def inside(off: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which residuals are no larger than usual, shape (n,)."""
    import numpy as np

    middle = np.median(off)
    spread = float(np.median(np.abs(off - middle))) * 1.4826
    found: NDArray[np.bool_] = np.abs(off - middle) <= max(OUTLIER * spread, 1e-12)
    return found


def non_negative(design: NDArray[np.float64], took: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least squares with coefficients of at least 0 (Lawson and Hanson 1974), by trying every set of positive ones.

    Args:
        design: shape (n, k) with a small k.
        took: shape (n,).

    Returns:
        Coefficients, shape (k,).
    """
    import itertools

    import numpy as np

    best: tuple[float, NDArray[np.float64]] | None = None
    scale = np.maximum(np.abs(design).max(axis=0), 1e-300)
    for size in range(1, design.shape[1] + 1):
        for chosen in itertools.combinations(range(design.shape[1]), size):
            found, *_ = np.linalg.lstsq(design[:, chosen] / scale[list(chosen)], took, rcond=None)
            if (found < 0).any():
                continue
            full = np.zeros(design.shape[1])
            full[list(chosen)] = found / scale[list(chosen)]
            off = took - design @ full
            loss = float(off @ off)
            if best is None or loss < best[0] * (1 - 1e-9):
                best = loss, full
    return np.zeros(design.shape[1]) if best is None else best[1]


def non_negative_many(design: NDArray[np.float64], took: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same for many columns, by the active set (Lawson and Hanson, Solving Least Squares Problems, 1974, 23.3).

    Args:
        design: shape (n, k).
        took: shape (n,).

    Returns:
        Coefficients, shape (k,).
    """
    import numpy as np

    scale = np.maximum(np.linalg.norm(design, axis=0), 1e-300)
    rows = design / scale
    found = np.zeros(rows.shape[1])
    free = np.zeros(rows.shape[1], dtype=bool)
    least = 1e-10 * max(1e-300, float(np.abs(rows.T @ took).max(initial=0.0)))
    for _ in range(3 * rows.shape[1]):
        gain = np.where(free, -np.inf, rows.T @ (took - rows @ found))
        if free.all() or gain.max() <= least:
            break
        free[int(np.argmax(gain))] = True
        found = _freed(rows, took, found, free)
    return np.asarray(found / scale)


def _freed(
    rows: NDArray[np.float64], took: NDArray[np.float64], found: NDArray[np.float64], free: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """The least squares of the free columns, those that would be negative held at 0; ``free`` is kept up to date."""
    import numpy as np

    while free.any():
        wanted = np.zeros_like(found)
        wanted[free], *_ = np.linalg.lstsq(rows[:, free], took, rcond=None)
        negative = free & (wanted <= 0)
        if not negative.any():
            return wanted
        part = float(np.min(found[negative] / np.maximum(found[negative] - wanted[negative], 1e-300)))
        found = found + part * (wanted - found)
        free &= found > 1e-14
        found = np.where(free, found, 0.0)
    return found
