"""Levels as the CSV that Triton's perf_analyzer writes with ``--verbose-csv --collect-metrics``.

Times are whole microseconds and count from the first write, as there. Its parts of the client are not told apart here:
``Network+Server Send/Recv`` is all of the mean latency that the server's own parts leave. What is not known is empty.
Levels stand in the order of the run; the tool sorts them by throughput.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.delivery.intended import is_ramp
from gpusize.analysis.throughput import request_rate
from gpusize.records.samples import value_of

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData

__all__ = ["COLUMNS", "csv_of", "has_place"]

COLUMNS: Final = (
    *("Inferences/Second", "Client Send", "Network+Server Send/Recv", "Server Queue", "Server Compute Input"),
    *("Server Compute Infer", "Server Compute Output", "Client Recv", "p50 latency", "p90 latency", "p95 latency"),
    *("p99 latency", "Avg latency", "request/response", "response wait", "Avg GPU Utilization"),
    *("Avg GPU Power Usage", "Max GPU Memory Usage", "Total GPU Memory"),
)
"""After the load, which is ``Concurrency`` or ``Request Rate``."""
_SERVER: Final = {
    "Server Queue": "queue_time",
    "Server Compute Input": "compute_input_time",
    "Server Compute Infer": "compute_infer_time",
    "Server Compute Output": "compute_output_time",
}
_GPUS: Final = {
    "Avg GPU Utilization": ("gpu_utilization", "mean"),
    "Avg GPU Power Usage": ("gpu_power", "mean"),
    "Max GPU Memory Usage": ("gpu_memory_used", "max"),
    "Total GPU Memory": ("gpu_memory_total", "mean"),
}


def has_place(level: LevelData) -> bool:
    """Whether the format has a row for it: a load that is held, measured to its end."""
    held = level.concurrency is not None or level.rate is not None
    return held and level.state == "done" and not is_ramp(level.setting)


def csv_of(levels: Sequence[LevelData], rows: Sequence[Mapping[str, Any]]) -> str:
    """One file: levels of one run and one kind of load.

    Args:
        levels: those that have a place.
        rows: of the summary, one for each level.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["Concurrency" if levels[0].concurrency is not None else "Request Rate", *COLUMNS])
    for level, row in zip(levels, rows, strict=True):
        load = request_rate(level) if level.concurrency is None else level.concurrency
        # What came from such a file goes back as it was.
        figures = level.meta.get("perf_analyzer") or _figures(level, row)
        writer.writerow([_text(load), *(_text(figures.get(name)) for name in COLUMNS)])
    return out.getvalue()


def _text(value: object) -> str:
    if isinstance(value, int | float):
        return f"{value:.10g}" if math.isfinite(value) else ""
    return "" if value is None else str(value)


def _figures(level: LevelData, row: Mapping[str, Any]) -> dict[str, Any]:
    server = level.meta.get("server") or ()
    mean_s = level.mean("service")
    inferences = row["inferences_rate"]
    parts_s = {name: value_of(server, metric) for name, metric in _SERVER.items()}
    known = [each for each in parts_s.values() if each is not None]
    left_s = None if mean_s is None or len(known) < len(parts_s) else max(0.0, mean_s - sum(known))
    percents = (50, 90, 95, 99)
    return {
        "Inferences/Second": row["achieved_rate"] if inferences is None else inferences,
        "Network+Server Send/Recv": _us(left_s),
        **{name: _us(value) for name, value in parts_s.items()},
        **{f"p{percent} latency": _us(level.quantile("service", percent / 100)) for percent in percents},
        "Avg latency": _us(mean_s),
        **{name: _each_gpu(server, *which) for name, which in _GPUS.items()},
    }


def _us(seconds: float | None) -> int | None:
    return None if seconds is None or not math.isfinite(seconds) else round(seconds * 1e6)


def _each_gpu(server: Sequence[Mapping[str, Any]], metric: str, figure: str) -> str | None:
    """``name:value;`` for each GPU, as the tool writes them."""
    found = [
        f"{_gpu_name(str(row['labels']))}:{row[figure]:.10g};"
        for row in server
        if row["metric"] == metric and row["labels"] is not None and row.get(figure) is not None
    ]
    return "".join(found) or None


def _gpu_name(labels: str) -> str:
    named = re.search(r'\b(?:gpu_)?uuid="([^"]+)"', labels, re.IGNORECASE) or re.search(r'"([^"]+)"', labels)
    return re.sub(r"[:;,\s]", "-", named[1] if named else labels)
