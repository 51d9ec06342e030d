"""Requests that failed, in figures of another tool as among records: none of them is within a bound.

A tool's percentiles leave failed requests out. Of all requests, failed ones taken for endless, the quantile p is that
of the others at p / (1 - f), where a share f failed; there is none where f > 1 - p.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData
    from gpusize.analysis.slo import Slo

__all__ = ["OF_FAILED", "misses_by_failures", "quantile_of_all", "share_told", "share_within", "told_requests"]

ROUNDING: Final = 1e-9
"""Of 5 % failed the 95th percentile is still there."""
OF_FAILED: Final = "times_of_failed"
"""In an imported level's facts: its times are of failed requests too."""
_STORED: Final = re.compile(r"p(\d+(?:\.\d+)?)_s")


def told_requests(level: LevelData) -> tuple[int, int]:
    """Requests of an imported level and how many of them failed, where its figures count both; else (0, 0)."""
    counts = level.meta.get("counts") or {}
    n, failed = (counts.get("n") or 0) - (counts.get("cancelled") or 0), counts.get("errors")
    return (int(n), int(failed)) if level.imported and n > 0 and failed is not None and failed <= n else (0, 0)


def share_told(level: LevelData, slo: Slo) -> tuple[float, int]:
    """Attainment of an SLO about a share, and the requests; (nan, 0) where the figures do not tell."""
    n, failed = told_requests(level)
    return (1 - failed / n, n) if n and slo.metric in ("ok", "error") else (math.nan, 0)


def misses_by_failures(level: LevelData, slo: Slo) -> bool:
    """Whether a level misses an SLO about a time through its failures alone, however fast the others are."""
    n, failed = told_requests(level) if level.imported else _counted(level)
    if not failed or slo.kind == "share":
        return False
    return slo.op in ("<=", "<") if slo.kind == "mean" else slo.share > (1 - failed / n) * (1 + ROUNDING)


def quantile_of_all(level: LevelData, name: str, prob: float, bound: float) -> float | None:
    """A quantile over all requests of an imported level, failed ones taken for endless.

    Between two stored percentiles it is taken for straight. Beyond the highest stored one it is that one where that is
    beyond ``bound`` already; else nobody knows.

    Returns:
        In the metric's unit; infinite where more failed than lie above it, None where nothing is known.
    """
    n, failed = told_requests(level)
    if not failed:
        return level.quantile(name, prob)
    share = failed / n
    if prob > (1 - share) * (1 + ROUNDING):
        return math.inf
    # Where times are of failed requests too, these may be the fastest.
    at = min(1.0, prob + share if level.meta.get(OF_FAILED) else prob / (1 - share))
    if level.quantile(name, prob) is None:
        return None
    exact = level.quantile(name, at)
    if exact is not None:
        return exact
    known = _known(level, name)
    below = [point for point in known if point[0] < at]
    above = [point for point in known if point[0] >= at]
    if below and above:
        (low, fast), (high, slow) = below[-1], above[0]
        return fast + (slow - fast) * (at - low) / (high - low)
    return below[-1][1] if below and below[-1][1] > bound else None


def share_within(level: LevelData, slo: Slo) -> float:
    """The share of an imported level's requests within an SLO's bound, failed ones taken for endless.

    Between two stored percentiles it is taken for straight, and from 0 to the lowest; beyond the highest it is 1.
    """
    bound = slo.bound_s or 0.0
    asked = sorted({slo.share, *(share for share, _ in _known(level, slo.metric))})
    values = ((quantile_of_all(level, slo.metric, share, bound), share) for share in asked)
    known = [(0.0, 0.0), *((value, share) for value, share in values if value is not None)]
    above = next((k for k, (value, _) in enumerate(known) if value > bound), None)
    if above is None:
        return 1.0
    (fast, low), (slow, high) = known[above - 1], known[above]
    return low + (high - low) * (bound - fast) / (slow - fast)


def _counted(level: LevelData) -> tuple[int, int]:
    ended = {name: n for name, n in level.outcomes().items() if name != "cancelled"}
    return sum(ended.values()), sum(n for name, n in ended.items() if name != "ok")


def _known(level: LevelData, name: str) -> list[tuple[float, float]]:
    """Shares and seconds of the stored percentiles of a metric; without those of service, of runtime."""
    return _stored(level, name) or (_stored(level, "runtime") if name == "service" else [])


def _stored(level: LevelData, name: str) -> list[tuple[float, float]]:
    """Shares and seconds of the stored percentiles of a metric, ascending."""
    found = []
    for key, value in level.percentiles.items():
        match = _STORED.fullmatch(key.removeprefix(f"{name}_")) if key.startswith(f"{name}_") else None
        if match is not None and math.isfinite(value) and value > 0:
            found.append((float(match[1]) / 100, value))
    return sorted(found)
