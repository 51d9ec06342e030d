"""The rule of KRR, Robusta's Kubernetes Resource Recommender (strategy ``simple``).

    cpu    = 95th percentile of CPU use over steps of 75 s, up to 1 m, at least 10 m; no limit
    memory = highest working set x 1.15, up to 1 MiB, at least 100 MiB; request and limit alike

KRR reads Prometheus, where steps are 75 s and the working set is that of each scrape; here both are finer. It wants
100 points before it says anything of CPU, which is said as a doubt. Source: robusta_krr/strategies/simple.py and
core/models/config.py of robusta-dev/krr, commit d6baa74.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any, Final

from gpusize.containers.recommend.types import MIB, Execution
from gpusize.observe.usage.usage import windowed_cores

__all__ = ["Krr", "cores_of", "memory_of"]

STEP_S: Final = 75.0
PERCENTILE: Final = 0.95
BUFFER_PERCENT: Final = 15
LEAST_MILLICORES: Final = 10
LEAST_MIB: Final = 100
ENOUGH_POINTS: Final = 100


def cores_of(rates: Sequence[float]) -> float:
    """CPU request from CPU use in cores over each step: the percentile, up to the next thousandth of a core."""
    import numpy as np

    millicores = ceil(round(float(np.quantile(rates, PERCENTILE)) * 1000, 6))
    return max(LEAST_MILLICORES, millicores) / 1000


def memory_of(highest_bytes: int) -> int:
    """Memory request and limit from the highest working set, in bytes."""
    mebibytes = -(-highest_bytes * (100 + BUFFER_PERCENT) // (100 * MIB))
    return max(LEAST_MIB, mebibytes) * MIB


class Krr:
    """KRR's rule as a policy."""

    name = "krr"

    def cpu(self, executions: Sequence[Execution]) -> tuple[float | None, tuple[str, ...]]:
        """The percentile over the steps of all executions."""
        rates = [rate for each in executions for rate in windowed_cores(each.readings, STEP_S)]
        if not rates:
            return None, ()
        return cores_of(rates), (f"the 95th percentile of {len(rates)} steps of at most 75 s",)

    def memory(self, executions: Sequence[Execution]) -> tuple[int | None, tuple[str, ...]]:
        """The highest working set of all executions, plus 15 %."""
        known = [value for each in executions if (value := each.usage.memory.working_set_peak_bytes) is not None]
        if not known:
            return None, ()
        return memory_of(max(known)), (f"the highest working set, {max(known) / MIB:.1f} MiB, plus 15 %",)

    def more(self, executions: Sequence[Execution]) -> dict[str, Any]:
        """A doubt where KRR itself would say nothing."""
        points = sum(len(windowed_cores(each.readings, STEP_S)) for each in executions)
        doubt = f"KRR needs {ENOUGH_POINTS} steps of 75 s before it recommends anything; there are {points}"
        return {"doubts": (doubt,)} if points < ENOUGH_POINTS else {}
