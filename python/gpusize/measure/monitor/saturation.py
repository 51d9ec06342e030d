"""The seconds of a run as the detector of saturation takes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gpusize.records.schema import ANSWERED

__all__ = ["growing"]


def growing(seconds: Sequence[Mapping[str, Any]]) -> str | None:
    """Whether requests come faster than they are answered, in words with numbers; None when not, or not known.

    Args:
        seconds: rows of ``Level.seconds``, without a gap. What counts as answered is what the check of a stored level
            takes for it, ``gpusize.records.schema.ANSWERED``.
    """
    import numpy as np

    from gpusize.analysis import detect

    found = detect.growing(
        np.array([second["due"] for second in seconds], dtype=float),
        np.array([sum(second["outcomes"].get(name, 0) for name in ANSWERED) for second in seconds], dtype=float),
        np.array([second["in_flight"] for second in seconds], dtype=float),
        runtime_s=np.array([_median_s(second["times"].get("runtime") or ()) for second in seconds]),
    )
    return found.text if found.status == "growing" else None


def _median_s(buckets: Sequence[Sequence[int]]) -> float:
    """The median of a histogram's values, to the width of its bucket; nan for none."""
    left = math.ceil(sum(count for _, _, count in buckets) / 2)
    for low_ns, high_ns, count in sorted(buckets, key=lambda bucket: bucket[0]):
        left -= count
        if left <= 0:
            return (low_ns + high_ns) / 2e9
    return math.nan
