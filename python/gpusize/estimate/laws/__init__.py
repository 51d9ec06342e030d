"""How capacity grows with the number of GPUs, instances or replicas: pure functions over a handful of points.

A ``Point`` is a count and the capacity measured with it; ``fit`` lays a law through points; ``count_for`` and
``hosts_for`` say how many are needed for a wanted load. Nothing here knows of levels, SLOs or requests.
"""

from __future__ import annotations

from gpusize.estimate.laws.counts import Count, count_for, hosts_for, next_counts
from gpusize.estimate.laws.fitting import Point, ScalingFit, fit
from gpusize.estimate.laws.laws import AMDAHL, LAWS, LINEAR, USL, Law

__all__ = [
    "AMDAHL",
    "LAWS",
    "LINEAR",
    "USL",
    "Count",
    "Law",
    "Point",
    "ScalingFit",
    "count_for",
    "fit",
    "hosts_for",
    "next_counts",
]
