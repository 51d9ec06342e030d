"""Least squares for costs: none of them can be negative, and hiccups must not bend them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["inside", "non_negative", "triangle"]

OUTLIER: Final = 4.0
"""What differs by more than so many robust standard deviations is left out."""


BLOCK: Final = 1 << 13
"""Rows that are made a triangle at once: they stay in the processor's cache."""


def triangle(design: NDArray[np.float64], took: NDArray[np.float64]) -> NDArray[np.float64]:
    """A few rows in place of many, with the same least squares: R of the QR decomposition of ``[design, took]``.

    Lengths and products of its columns are those of the given ones, so that residuals differ by a constant at most
    (Golub and Van Loan, Matrix Computations, 4th ed., 5.3.2). It is made by blocks, and of their triangles again
    (Demmel and others, Communication-optimal QR, 2012).

    Args:
        design: shape (n, k).
        took: shape (n,).

    Returns:
        Shape (min(n, k + 1), k + 1), what was ``took`` as the last column.
    """
    import numpy as np

    whole = np.column_stack([design, took])
    while whole.shape[0] > BLOCK:
        even = whole.shape[0] // BLOCK * BLOCK
        made = np.asarray(np.linalg.qr(whole[:even].reshape(-1, BLOCK, whole.shape[1]), mode="r"))
        whole = np.concatenate([made.reshape(-1, whole.shape[1]), whole[even:]])
    return np.asarray(np.linalg.qr(whole, mode="r")) if whole.shape[0] > whole.shape[1] else whole


def inside(off: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which residuals are no larger than usual, shape (n,)."""
    import numpy as np

    middle = np.median(off)
    spread = float(np.median(np.abs(off - middle))) * 1.4826
    found: NDArray[np.bool_] = np.abs(off - middle) <= max(OUTLIER * spread, 1e-12)
    return found


def non_negative(design: NDArray[np.float64], took: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least squares with coefficients of at least 0, by the active set.

    Lawson and Hanson, Solving Least Squares Problems, 1974, 23.3.

    Args:
        design: shape (n, k).
        took: shape (n,).

    Returns:
        Coefficients, shape (k,).
    """
    import numpy as np

    if design.shape[0] > design.shape[1] + 1:
        whole = triangle(design, took)
        design, took = whole[:, :-1], whole[:, -1]
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
