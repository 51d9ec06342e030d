"""A counter's rate over windows, from readings at any times: for the sampler and for a program's own clock alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Series", "compare"]


@dataclass(frozen=True)
class Series:
    """A counter that only rises, in ns of CPU time, at times in ns."""

    t_ns: Sequence[int]
    cpu_ns: Sequence[int]

    def cores(self, starts_ns: np.ndarray, length_ns: float) -> np.ndarray:
        """Cores used in windows that begin at ``starts_ns``; between readings the counter is a straight line."""
        t, cpu = np.asarray(self.t_ns, dtype=float), np.asarray(self.cpu_ns, dtype=float)
        ends: np.ndarray = np.interp(starts_ns + length_ns, t, cpu) - np.interp(starts_ns, t, cpu)
        return ends / length_ns


def compare(measured: Series, true: Series, window_ns: float = 1e8, step_ns: float = 2e7) -> tuple[float, float, float]:
    """Relative error of the mean cores, of the largest window's, and the true mean, over the time that both have.

    Raises ValueError when that is shorter than two windows.
    """
    start, end = max(measured.t_ns[0], true.t_ns[0]), min(measured.t_ns[-1], true.t_ns[-1])
    if end - start < 2 * window_ns:
        raise ValueError("the two series have less than two windows in common")
    whole = np.array([float(start)])
    mean = float(true.cores(whole, end - start)[0])
    mean_error = abs(float(measured.cores(whole, end - start)[0]) / mean - 1)
    starts = np.arange(start, end - window_ns, step_ns)
    peak_error = abs(measured.cores(starts, window_ns).max() / true.cores(starts, window_ns).max() - 1)
    return mean_error, float(peak_error), mean
