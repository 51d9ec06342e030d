"""The rule of Kubernetes' Vertical Pod Autoscaler: percentiles of decaying histograms, plus 15 %.

CPU use once a minute and the memory peak of each day go into exponential histograms, weighted by age with a half-life
of 24 h. The percentile is the end of its bucket. Target is p90, lower bound p50, upper bound p95, all x 1.15; the
bounds are stretched while there is little history. Source: pkg/recommender (logic, model, util) of
kubernetes/autoscaler, vertical-pod-autoscaler, commit 55c37cd.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log
from typing import Any, Final

from gpusize.containers.recommend.types import MIB, Execution
from gpusize.observe.usage.usage import windowed_cores

__all__ = ["CPU", "MEMORY", "Histogram", "Vpa", "after_oom", "lower_factor", "upper_factor"]

RATIO: Final = 1.05
MARGIN: Final = 1.15
HALF_LIFE_S: Final = 86_400.0
STEP_S: Final = 60.0
DAY_S: Final = 86_400.0
TARGET: Final = 0.9
LOWER: Final = 0.5
UPPER: Final = 0.95
LEAST_CORES: Final = 0.025
LEAST_BYTES: Final = 250 * MIB
PER_DAY: Final = 1440
OOM_BYTES: Final = 100 * MIB
OOM_RATIO: Final = 1.2


@dataclass(frozen=True, slots=True)
class Histogram:
    """Buckets that grow by a ratio of 1.05.

    Attributes:
        first: width of the first bucket, in the unit of the values.
        most: values from here on share the last bucket.
    """

    first: float
    most: float

    def bucket(self, value: float) -> int:
        """The bucket that holds a value."""
        return min(self.last, floor(log(max(0.0, value) * (RATIO - 1) / self.first + 1) / log(RATIO)))

    def start(self, bucket: int) -> float:
        """Where a bucket begins."""
        return self.first * (RATIO**bucket - 1) / (RATIO - 1)

    @property
    def last(self) -> int:
        """The last bucket."""
        return floor(log(self.most * (RATIO - 1) / self.first + 1) / log(RATIO)) + 1

    def percentile(self, share: float, values: Sequence[float], weights: Sequence[float]) -> float:
        """The end of the bucket at which the weights below reach ``share`` of all; 0 without values."""
        held: dict[int, float] = {}
        for value, weight in zip(values, weights, strict=True):
            held[self.bucket(value)] = held.get(self.bucket(value), 0.0) + weight
        threshold, below = share * sum(held.values()), 0.0
        for bucket in sorted(held):
            below += held[bucket]
            if below >= threshold:
                return self.start(bucket if bucket == self.last else bucket + 1)
        return 0.0


CPU: Final = Histogram(0.01, 1000.0)
"""In cores."""
MEMORY: Final = Histogram(1e7, 1e12)
"""In bytes."""


def upper_factor(confidence: float) -> float:
    """What the upper bound is stretched by at a confidence in days."""
    return 1 + 1 / confidence


def lower_factor(confidence: float) -> float:
    """What the lower bound is shrunk by."""
    return (1 + 0.001 / confidence) ** -2


def after_oom(used_bytes: int) -> int:
    """The memory that a container killed for want of it is taken to need: 100 MiB or a fifth more than it used."""
    return max(used_bytes + OOM_BYTES, round(used_bytes * OOM_RATIO))


class Vpa:
    """VPA's rule as a policy, for a pod of this one container."""

    name = "vpa"

    def cpu(self, executions: Sequence[Execution]) -> tuple[float | None, tuple[str, ...]]:
        """The target of CPU."""
        values, weights = _cpu_samples(executions)
        if not values:
            return None, ()
        target = max(LEAST_CORES, CPU.percentile(TARGET, values, weights) * MARGIN)
        return target, (f"the 90th percentile of {len(values)} steps of at most 60 s in VPA's histogram, plus 15 %",)

    def memory(self, executions: Sequence[Execution]) -> tuple[int | None, tuple[str, ...]]:
        """The target of memory."""
        peaks, weights = _peaks(executions)
        if not peaks:
            return None, ()
        target = MEMORY.percentile(TARGET, peaks, weights) * MARGIN
        why = f"the 90th percentile of {len(peaks)} daily peaks of the working set in VPA's histogram, plus 15 %"
        return max(LEAST_BYTES, int(target)), (why,)

    def more(self, executions: Sequence[Execution]) -> dict[str, Any]:
        """VPA's lower and upper bounds."""
        values, weights = _cpu_samples(executions)
        peaks, ages = _peaks(executions)
        days = sum(each.usage.duration_s for each in executions) / DAY_S
        confidence = min(days, len(values) / PER_DAY)
        if confidence <= 0:
            return {}
        bounds: dict[str, float] = {}
        for name, share, factor in (("lower", LOWER, lower_factor), ("upper", UPPER, upper_factor)):
            stretch = MARGIN * factor(confidence)
            if values:
                bounds[f"cpu_{name}_cores"] = max(LEAST_CORES, CPU.percentile(share, values, weights) * stretch)
            if peaks:
                bounds[f"mem_{name}_bytes"] = max(LEAST_BYTES, MEMORY.percentile(share, peaks, ages) * stretch)
        return {"bounds": bounds}


def _weight(age_s: float) -> float:
    return float(2 ** (-age_s / HALF_LIFE_S))


def _cpu_samples(executions: Sequence[Execution]) -> tuple[list[float], list[float]]:
    """CPU use of each minute and its weight by age, counted back from the end of the execution."""
    values: list[float] = []
    weights: list[float] = []
    for each in executions:
        rates = windowed_cores(each.readings, STEP_S)
        values += rates
        weights += [0.1 * _weight((len(rates) - 1 - number) * STEP_S) for number in range(len(rates))]
    return values, weights


def _peaks(executions: Sequence[Execution]) -> tuple[list[float], list[float]]:
    """The highest working set of each day of each execution, and its weight by age."""
    from gpusize.observe.usage.counter_curve import Span
    from gpusize.observe.usage.memory_use import memory_usage

    values: list[float] = []
    weights: list[float] = []
    for each in executions:
        start_ns, end_ns = each.usage.start_ns, each.usage.start_ns + round(each.usage.duration_s * 1e9)
        day_ns, age_s = round(DAY_S * 1e9), 0.0
        while True:
            span = Span(max(start_ns, end_ns - day_ns), end_ns)
            peak = memory_usage(each.readings, span, cut=True).working_set_peak_bytes
            if peak is not None:
                values.append(float(peak))
                weights.append(_weight(age_s))
            end_ns, age_s = end_ns - day_ns, age_s + DAY_S
            if end_ns <= start_ns:
                break
    return values, weights
