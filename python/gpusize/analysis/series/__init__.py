"""Windows over pulled series: increases, rates, percentiles and sums over replicas, from samples as they were stored.

Frames have the columns of ``gpusize.records.series.series_schema``; a name's kind and unit stand in ``series.json``.
Nothing is extrapolated, and where nothing was known the answer is null.
"""

from __future__ import annotations

from gpusize.analysis.series.buckets import BucketRise, Percentile, bucket_rises
from gpusize.analysis.series.counters import increases, total_increases
from gpusize.analysis.series.gauges import gauge_at
from gpusize.analysis.series.replicas import Steps, steps_of

__all__ = ["BucketRise", "Percentile", "Steps", "bucket_rises", "gauge_at", "increases", "steps_of", "total_increases"]
