"""The options that make a load again, as ``--config`` takes them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.units import format_duration

if TYPE_CHECKING:
    from gpusize.workload.load.load import Load

__all__ = ["options_of"]

_WHAT: Final = ("concurrencies", "rates", "stages", "streams", "arrivals", "plan")
_FORMED: Final = (
    *_WHAT,
    *("process", "connections", "queue", "overload"),
    *("duration_s", "warmup_s", "wait_between_s", "drain_s", "think", "think_s", "max_error_share", "sample_records"),
    *("workers", "pin", "source_addresses", "order", "seed"),
)
"""Arguments whose options have another name or form, or are left out at times; the others are options as they are."""


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
        **_plain(load),
        "max_error_rate": load.max_error_share,
        "sample_records": None if load.sample_records == 1 else f"1/{load.sample_records}",
        "think": str(load.think) if load.think is not None else None,
    }
    if load.wait_between_s:
        times["wait_between"] = load.wait_between_s
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


def _plain(load: Load) -> dict[str, Any]:
    """Arguments that are options of the same name and form, where they differ from their defaults."""
    own = [each for each in fields(load) if each.init and each.name not in _FORMED]
    return {each.name: value for each in own if (value := getattr(load, each.name)) != each.default}


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
