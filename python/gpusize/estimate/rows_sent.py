"""Whether the rows that were sent are like all rows of the dataset: levels of a file in order send its first rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.analysis.level import LevelData

__all__ = ["rows_unlike"]

LENGTH: Final = "length"
UNLIKE: Final = 0.05
"""A mean length that is off by less is like that of all rows."""
ERRORS: Final = 4.0
"""Or by fewer standard errors: as many rows drawn at random are off by that much once in 16,000 levels."""


def rows_unlike(levels: Iterable[LevelData]) -> str | None:
    """What is said of levels whose rows are longer or shorter than all; None where none are, or nothing is known.

    By the mean length of what was sent, against that of as many rows drawn without putting back.
    """
    found = [each for level in levels for visit in level.visits() if (each := _off(visit)) is not None]
    if not found:
        return None
    off, sent, rows = max(found, key=lambda each: abs(math.log1p(each[0])))
    how = f"{abs(off):.0%} {'longer' if off > 0 else 'shorter'}"
    return (
        f"at one level {sent:,} of the dataset's {rows:,} rows were sent, and they are {how} than all of them: the "
        "answer is for such requests; send rows in random order (--shuffle) to size for the whole"
    )


def _off(visit: LevelData) -> tuple[float, int, int] | None:
    """By how much the rows that were sent are longer, how many they are, and of how many."""
    import numpy as np

    if visit.rows is None or LENGTH not in visit.rows.columns:
        return None
    lengths: NDArray[np.float64] = visit.rows[LENGTH].to_numpy().astype(float)
    sent = visit.requests().select("row").collect()["row"].drop_nulls().to_numpy()
    times = np.bincount(sent[sent < lengths.size], minlength=lengths.size)
    mean = float(lengths.mean()) if lengths.size else 0.0
    different = int(np.count_nonzero(times))
    if mean <= 0 or not different or different == lengths.size:
        return None
    off = float(times @ lengths) / float(times.sum()) / mean - 1
    left = (lengths.size - different) / max(1, lengths.size - 1)
    error = float(lengths.std()) / mean * math.sqrt(left / different)
    return (off, different, lengths.size) if abs(off) > max(UNLIKE, ERRORS * error) else None
