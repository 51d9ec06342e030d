"""The parts of the engine's LevelPlan that a load decides (docs/reference/engine.md)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gpusize.workload.load.load import Load
    from gpusize.workload.load.streams import Stream
    from gpusize.workload.schedule.rate_profile import RateProfile

__all__ = ["closed", "level_plan", "level_seed", "open_loop", "rate_arrivals", "stream"]

_MIN_ERRORS: Final = 10
"""Failures before a share is judged while a level runs: one failure among the first five says nothing about 1 %."""


def level_seed(seed: int, index: int) -> int:
    """The key of a level's draws."""
    digest = hashlib.sha256(f"{seed}/{index}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def level_plan(
    load: Load, index: int, what: dict[str, Any], count: int | None, duration_ns: int | None
) -> dict[str, Any]:
    """A LevelPlan."""
    plan = {
        "seed": level_seed(load.seed, index),
        "load": what,
        "stop": {
            "count": count,
            "duration_ns": duration_ns,
            "max_error_share": load.error_share,
            "min_errors": 1 if load.error_share == 0 else _MIN_ERRORS,
        },
        "order": load.order,
    }
    return plan if load.sample_records == 1 else {**plan, "sample": load.sample_records}


def _unit(load: Load) -> str:
    return "session" if load.sessions else "request"


def closed(load: Load, concurrency: int, start: int | None = None, ramp_ns: int = 0) -> dict[str, Any]:
    """A closed loop of so many slots, from ``start`` slots on over ``ramp_ns``."""
    return {
        "closed": {
            "concurrency": concurrency,
            "from": start,
            "ramp_ns": ramp_ns,
            "think": load.thinking.wire(),
            "start": "burst" if load.by_passes else "staggered",
            "stagger_ns": None,
            "unit": _unit(load),
        }
    }


def open_loop(load: Load, streams: list[dict[str, Any]]) -> dict[str, Any]:
    """An open loop of these streams."""
    return {
        "open": {
            "streams": streams,
            "connections": load.connections,
            "max_connections": load.growth,
            "queue": load.queue,
            "overload": load.overload,
            "unit": _unit(load),
            "think": load.thinking.wire(),
        }
    }


def rate_arrivals(profile: RateProfile, process: str, shape: float | None, lead: float = 0.0) -> dict[str, Any]:
    """Arrivals at a rate.

    A rate of 0 throughout, which is a pause, gets a phase behind the end of its level: what sends nothing for ever
    would be a mistake to the engine.
    """
    phases = [dict(phase) for phase in profile.phases]
    if not any(phase["from"] or phase["to"] for phase in phases):
        length_ns = sum(phase["duration_ns"] for phase in phases)
        phases = [{"duration_ns": length_ns, "from": 0.0, "to": 0.0}, {"duration_ns": None, "from": 1.0, "to": 1.0}]
        return {"rate": {"phases": phases, "repeat": False, "process": "poisson", "shape": 1.0, "lead": 0.0}}
    return {
        "rate": {
            "phases": phases,
            "repeat": profile.repeat,
            "process": process,
            "shape": 1.0 if shape is None else shape,
            "lead": lead,
        }
    }


def stream(number: int, arrivals: dict[str, Any] | str, of: Stream | None = None, count: int | None = None) -> Any:
    """One stream of an open loop.

    Args:
        number: what the records call it.
        arrivals: the engine's Arrivals.
        of: the user's stream, whose rows and priority count.
        count: it ends after so many arrivals.
    """
    return {
        "id": number,
        "arrivals": arrivals,
        "start_ns": 0,
        "rows": None if of is None or of.rows is None else list(of.rows),
        "priority": 0 if of is None else of.priority or 0,
        "count": count,
    }
