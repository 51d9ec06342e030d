"""The options that make a load again, as ``--config`` takes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusize.base.units import format_duration

if TYPE_CHECKING:
    from gpusize.workload.load.load import Load

__all__ = ["options_of"]


def options_of(load: Load) -> dict[str, Any]:
    """Options by name; those that were not given are left out."""
    options = _what(load)
    if load.kind == "open":
        recorded = load.trace is not None or (load.stored is not None and not load.streams)
        options |= {} if recorded else {"process": load.process}
        options |= {"connections": load.connections, "queue": load.queue}
        options |= {} if load.overload == "queue" else {"overload": load.overload}
    times = {"duration": load.duration_s, "warmup": load.warmup_s, "drain": load.drain_s}
    given: dict[str, Any] = {
        "passes": load.passes,
        "count": load.count,
        "max_error_rate": load.max_error_share,
        "burstiness": load.burstiness,
        "max_connections": load.max_connections,
        "priority_header": load.priority_header,
        "sessions": load.sessions or None,
        "sample_records": None if load.sample_records == 1 else f"1/{load.sample_records}",
        "think": str(load.think) if load.think is not None else None,
    }
    if load.think_s:
        times["think"] = load.think_s
    options |= {name: value for name, value in given.items() if value is not None}
    options |= {name: format_duration(value) for name, value in times.items() if value is not None}
    where: dict[str, Any] = {
        "workers": load.workers,
        "pin": ",".join(map(str, load.pin)),
        "source_address": list(load.source_addresses),
    }
    options |= {name: value for name, value in where.items() if value}
    return {**options, "order": load.order, "seed": load.seed}


def _what(load: Load) -> dict[str, Any]:
    stored = {} if load.stored is None else {"plan": str(Path(load.stored.source).absolute())}
    if load.streams:
        return {"load": {"streams": [stream.table() for stream in load.streams]}, **stored}
    if load.trace is not None:
        return load.trace.options()
    if stored:
        return stored
    if load.stages:
        return {"stages": ", ".join(map(str, load.stages))}
    return {"concurrencies": list(load.concurrencies)} if load.concurrencies else {"rates": list(load.rates)}
