"""The rule of CPOST, the Clara Pipeline Operator Sizing Tool: highest 200 ms of CPU, highest memory + 100 MB.

    cpu    = ceil(highest CPU % / 100)                   at least 1, where CPOST can say 0
    memory = 256 * ceil((highest MB + 100) / 256)        MB of 1,000,000 bytes

Both after rounding to three places. Memory is the mean of two neighbouring readings and has page cache in it. CPOST
reads five times a second; here its readings are made from finer ones. Source: src/pipeline_utils.py and
src/container.py of NVIDIA/clara-pipeline-operator-sizing-tool, commit 9a1ee39.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from gpusize.containers.recommend.types import MB, Execution, round_up
from gpusize.observe.usage.counter_curve import Span, curves, span_of

if TYPE_CHECKING:
    from gpusize.observe.usage.readings import Readings

__all__ = ["PERIOD_S", "Cpost", "Row", "cores_of", "cpost_rows", "megabytes_of", "stored_rows"]

PERIOD_S: Final = 0.2
BUFFER_MB: Final = 100.0
STEP_MB: Final = 256


@dataclass(frozen=True, slots=True)
class Row:
    """One row of CPOST: an interval between two readings.

    Attributes:
        at_ns: the interval's middle, on the engine's clock.
        cpu_percent: CPU use in it, 100 for one core.
        memory_mb: mean of memory at its ends, in MB of 1,000,000 bytes.
    """

    at_ns: int
    cpu_percent: float
    memory_mb: float


def cores_of(highest_percent: float) -> int:
    """Whole cores for a highest CPU use in per cent; at least 1."""
    return max(1, ceil(round(highest_percent, 3) / 100))


def megabytes_of(highest_mb: float) -> int:
    """Memory in MB for a highest use in MB: a multiple of 256."""
    return int(round_up(round(highest_mb, 3) + BUFFER_MB, STEP_MB))


def stored_rows(readings: Readings) -> list[Row] | None:
    """The rows of what was read from a file of CPOST's, as they are there; None for other readings."""
    stored = readings.facts.raw.get("cpost_rows")
    return None if stored is None else [Row(int(at_ns), float(percent), float(mb)) for at_ns, percent, mb in stored]


def cpost_rows(readings: Readings) -> list[Row]:
    """The rows that CPOST would have written: one per 200 ms, and one for a rest of 100 ms or more.

    What lives shorter than 200 ms is one row. Empty where neither CPU time nor memory is told. What was read from a
    file of CPOST's has its rows as they are.
    """
    import numpy as np

    stored = stored_rows(readings)
    if stored is not None:
        return stored
    span, found = span_of(readings), curves(readings, "cpu_ns")
    borders = _borders(span)
    if borders.size < 2:
        return []
    at = borders + span.start_ns
    cpu_ns = np.zeros(borders.size)
    for curve in found:
        cpu_ns += curve.at((at - curve.t_ns[0]).astype(np.float64)) - curve.value[0]
    t, v = readings.array("mem_bytes")
    held = np.interp(borders, (t - span.start_ns).astype(np.float64), v) if t.size else np.zeros(borders.size)
    if not found and t.size == 0:
        return []
    percent = np.diff(cpu_ns) / np.diff(borders) * 100
    memory = (held[:-1] + held[1:]) / 2 / MB
    middle = (at[:-1] + at[1:]) // 2
    return [Row(int(a), float(p), float(m)) for a, p, m in zip(middle, percent, memory, strict=True)]


def _borders(span: Span) -> Any:
    """Ends of the intervals, in ns from the start of the span; int64."""
    import numpy as np

    length_ns, period_ns = span.end_ns - span.start_ns, round(PERIOD_S * 1e9)
    if length_ns <= 0:
        return np.zeros(0, np.int64)
    borders = np.arange(0, length_ns + 1, period_ns, dtype=np.int64)
    if borders.size == 1 or length_ns - borders[-1] >= period_ns // 2:
        borders = np.append(borders, length_ns)
    return borders


class Cpost:
    """CPOST's rule as a policy."""

    name = "cpost"

    def cpu(self, executions: Sequence[Execution]) -> tuple[float | None, tuple[str, ...]]:
        """Whole cores from the highest 200 ms of all executions."""
        told = [row.cpu_percent for each in executions if each.usage.cpu for row in cpost_rows(each.readings)]
        if not told:
            return None, ()
        highest = round(max(told), 3)
        return float(cores_of(highest)), (f"the highest 200 ms used {highest} % of a core, rounded up to whole cores",)

    def memory(self, executions: Sequence[Execution]) -> tuple[int | None, tuple[str, ...]]:
        """Highest memory with page cache, plus 100 MB, up to a multiple of 256 MB."""
        known = [each for each in executions if each.usage.memory.sampled_max_bytes is not None]
        told = [row.memory_mb for each in known for row in cpost_rows(each.readings)]
        if not told:
            return None, ()
        highest = round(max(told), 3)
        why = f"the highest mean of 200 ms was {highest} MB with page cache; plus 100 MB, up to a multiple of 256 MB"
        return megabytes_of(highest) * MB, (why,)

    def more(self, executions: Sequence[Execution]) -> dict[str, Any]:  # noqa: ARG002 -- CPOST says nothing else
        """Nothing."""
        return {}
