"""ClusterLoader2's PerfData: percentiles of its measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["item_rows", "looks_like_perf_data"]

_PHASES: Final = {"pod_startup": "pod_startup", "create_to_schedule": "pod_scheduled", "create_to_run": "pod_running"}
_FIGURES: Final = {"Perc50": "p50", "Perc90": "p90", "Perc95": "p95", "Perc99": "p99", "Average": "mean"}
_SECONDS: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def looks_like_perf_data(document: object) -> bool:
    """Whether a document is PerfData."""
    return isinstance(document, dict) and isinstance(document.get("dataItems"), list)


def item_rows(document: Mapping[str, Any], test: str) -> list[dict[str, Any]]:
    """Figures of each data item; times in seconds, others in their own unit.

    Args:
        document: as the file has it.
        test: the file's name, as items name only what they measure.
    """
    made = []
    for item in document["dataItems"]:
        labels, unit = item.get("labels") or {}, str(item.get("unit") or "")
        metric = str(labels.get("Metric") or labels.get("Name") or "")
        others = " ".join(f"{key}={value}" for key, value in labels.items() if key not in ("Metric", "Name"))
        phase = _PHASES.get(metric, f"{metric} {others}".strip())
        for key, value in (item.get("data") or {}).items():
            if isinstance(value, int | float):
                row = {"source": "ClusterLoader2", "test": test, "phase": phase, "figure": _FIGURES.get(key, key)}
                scaled = value * _SECONDS[unit] if unit in _SECONDS else float(value)
                made.append({**row, "value": scaled, "unit": "s" if unit in _SECONDS else unit})
    return made
