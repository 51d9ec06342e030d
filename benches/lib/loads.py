"""Loads as the engine's plans spell them (docs/reference/engine.md)."""

from __future__ import annotations

from typing import Any

__all__ = ["closed_load", "open_load", "rate_stream"]


def rate_stream(rate: float, process: str = "constant", **changes: Any) -> dict[str, Any]:
    """One stream of arrivals at ``rate`` per second for as long as the level lasts."""
    phases = [{"duration_ns": None, "from": rate, "to": rate}]
    arrivals = {"rate": {"phases": phases, "repeat": False, "process": process, "shape": 1.0, "lead": 0.0, **changes}}
    return {"id": 0, "arrivals": arrivals}


def open_load(rate: float, process: str = "constant", *, connections: int = 64, queue: int = 10_000) -> dict[str, Any]:
    """Arrivals at ``rate`` per second, whatever the target does."""
    return {"open": {"streams": [rate_stream(rate, process)], "connections": connections, "queue": queue}}


def closed_load(
    concurrency: int, start: str = "burst", *, think_ns: int = 0, stagger_ns: int | None = None
) -> dict[str, Any]:
    """So many requests in flight, with a pause after each; the first ones at once, or spread over ``stagger_ns``."""
    spec = {"concurrency": concurrency, "start": start, "think": {"fixed": think_ns}, "stagger_ns": stagger_ns}
    return {"closed": spec}
