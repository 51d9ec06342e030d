"""Where does a steady part begin? The rule by residence time is an assumption; this tests it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from gpusize.analysis.detect.blocks import MOST_CORRELATED, blocks_of, lag1
from gpusize.analysis.detect.drift import drift

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["EFFECT", "Steadiness", "mser", "steady_from"]

EFFECT: Final = 0.1
"""Difference of means before and after the cut, relative to the mean after it, from which a cut matters."""
BATCHES: Final = 60
LEAST_BATCHES: Final = 20
LEAST_IN_BATCH: Final = 5
"""Requests in a batch: MSER-5 takes means of five."""
ERRORS: Final = 4.0
"""Standard errors that the difference must exceed. The cut is chosen to make it large, so the usual 2 would often be
reached by chance."""
LATEST: Final = 0.25
"""Share of the window up to which a first part is one; a longer one cannot be told from an excursion in the middle."""
APART: Final = 2.0
"""How many times farther from the mean the first part must lie than any equally long part after the cut: a queue under
high load has long excursions of its own, and the first part is only one of many in which one may fall."""


class Steadiness(NamedTuple):
    """Whether a window is steady from its start.

    Attributes:
        status: ``steady``, ``not steady`` (a later start is better, or there is none) or ``not judged``.
        begins_s: where the steady part begins, on the clock of ``times_s``; None where none was found or judged.
        effect: mean before the cut over that after it, less 1; None where nothing was cut.
        text: in words.
    """

    status: Literal["steady", "not steady", "not judged"]
    begins_s: float | None
    effect: float | None
    text: str


def mser(values: ArrayLike) -> int:
    """How many values to leave out at the start so that the standard error of the mean of the others is smallest.

    The marginal standard error of cutting d of n values is sum((x - mean)^2) / (n - d)^2 over those that stay. Cuts in
    the second half are not considered: they mean that no steady part was seen. Over means of five this is MSER-5.

    Sources: White 1997, An effective truncation heuristic for bias reduction in simulation output; White, Cobb and
    Spratt 2000, A comparison of five steady-state truncation heuristics for simulation.

    Args:
        values: in order of time, shape (n,).

    Returns:
        0 to n // 2.
    """
    import numpy as np

    x = np.asarray(values, dtype=float)
    n = x.size
    if n < 2:
        return 0
    left = np.arange(n, 0, -1, dtype=float)
    # Centred first, so that squares of large times do not cancel.
    x = x - x.mean()
    sums = np.cumsum(x[::-1])[::-1]
    squares = np.cumsum((x**2)[::-1])[::-1]
    error = np.maximum(squares - sums**2 / left, 0.0) / left**2
    return int(np.argmin(error[: n // 2 + 1]))


def steady_from(times_s: ArrayLike, values: ArrayLike, start_s: float, end_s: float) -> Steadiness:
    """Whether values are steady from ``start_s`` on, by MSER over batch means.

    The window is cut into up to 60 batches of equal length, each of at least five values on average. MSER proposes a
    cut; it counts when the means before and after it differ by at least 10 %, by four standard errors, which are
    widened for batches that follow each other (lag-1 autocorrelation), and by twice as much as any equally long part
    after the cut does. A proposal beyond the first quarter says that there is no short first part; then the window is
    not steady when it drifts as a whole (`gpusize.analysis.detect.drift`).

    Args:
        times_s: when each value belongs, seconds, shape (n,).
        values: runtimes, or requests in flight; shape (n,).
        start_s: where the window begins.
        end_s: where it ends.
    """
    import numpy as np

    size = int(np.size(values))
    batches = min(BATCHES, size // LEAST_IN_BATCH)
    if batches < LEAST_BATCHES or end_s <= start_s:
        why = f"{size} values are too few, {LEAST_BATCHES * LEAST_IN_BATCH} are needed"
        return Steadiness("not judged", None, None, why)
    cut_up = blocks_of(times_s, values, start_s, end_s, batches, 1)
    x = cut_up.mean
    if x.size < LEAST_BATCHES:
        return Steadiness("not judged", None, None, f"only {x.size} parts of the window hold any")
    cut = mser(x)
    if cut > LATEST * x.size:
        return _as_a_whole(times_s, values, start_s, end_s)
    if cut == 0:
        return Steadiness("steady", start_s, None, "steady from its start")
    before, after = x[:cut], x[cut:]
    level = float(after.mean())
    error = math.hypot(_error(after), float(after.std(ddof=1)) / math.sqrt(cut))
    gap = float(before.mean()) - level
    if not level > 0 or abs(gap) < max(EFFECT * level, APART * _excursion(after, cut)) or abs(gap) <= ERRORS * error:
        return Steadiness("steady", start_s, gap / level if level > 0 else None, "steady from its start")
    effect = gap / level
    begins_s = float(cut_up.middle_s[cut] - cut_up.length_s / 2)
    text = f"its first {begins_s - start_s:.3g} s differ from the rest by {effect:+.0%}"
    return Steadiness("not steady", begins_s, effect, text)


def _as_a_whole(times_s: ArrayLike, values: ArrayLike, start_s: float, end_s: float) -> Steadiness:
    """Of a window that has no short first part: whether it drifts as a whole."""
    found = drift(times_s, values, start_s, end_s)
    if found.status == "drifts":
        return Steadiness("not steady", None, found.change, f"no steady part: {found.text}")
    return Steadiness("steady", start_s, None, "steady from its start")


def _excursion(batches: ArrayLike, length: int) -> float:
    """How far the mean of any ``length`` consecutive batches lies from that of all."""
    import numpy as np

    x = np.asarray(batches, dtype=float)
    sums = np.concatenate([[0.0], np.cumsum(x - x.mean())])
    return float(np.abs(sums[length:] - sums[:-length]).max()) / length


def _error(batches: ArrayLike) -> float:
    """Standard error of the mean of batch means that may follow each other."""
    import numpy as np

    x = np.asarray(batches, dtype=float)
    r = min(max(0.0, lag1(x)), MOST_CORRELATED)
    return float(x.std(ddof=1)) / math.sqrt(x.size) * math.sqrt((1 + r) / (1 - r))
