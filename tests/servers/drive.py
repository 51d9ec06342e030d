"""Drives the engine itself, by the JSON of docs/reference/engine.md, and reads back what it recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benches.client import level_plan, target_spec

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Visit", "closed", "drive", "open_loop", "probe"]

SECOND_NS = 10**9


@dataclass(frozen=True)
class Visit:
    """One finished level: the engine's outcome and its records, with the outcome of each as a name, ordered by seq."""

    outcome: dict[str, Any]
    rows: pl.DataFrame

    @property
    def outcomes(self) -> list[str]:
        return [str(name) for name in self.rows["outcome"].to_list()]

    def column(self, name: str) -> list[Any]:
        return list(self.rows[name].to_list())


def closed(concurrency: int = 1) -> dict[str, Any]:
    """A closed loop without think time, started at once."""
    return {"closed": {"concurrency": concurrency, "think": {"fixed": 0}, "start": "burst", "stagger_ns": None}}


def open_loop(rate: float, *, connections: int = 64, queue: int = 10_000) -> dict[str, Any]:
    """An open loop at a constant rate."""
    phase = {"duration_ns": None, "from": rate, "to": rate}
    stream = {"id": 0, "arrivals": {"rate": {"phases": [phase], "process": "constant"}}}
    return {"open": {"streams": [stream], "connections": connections, "queue": queue}}


def drive(
    port: int,
    *,
    count: int = 1,
    load: Mapping[str, Any] | None = None,
    stop: Mapping[str, Any] | None = None,
    segments: Sequence[Mapping[str, Any]] = (),
    rows: list[list[bytes]] | None = None,
    within_s: float = 60.0,
    **target: Any,
) -> Visit:
    """Run one level to its end and return it; fails when it does not end ``within_s``."""
    from gpusize import _core
    from gpusize.records.schema import from_arrow

    spec = json.dumps(target_spec(port, **target))
    session = _core.Session(spec, json.dumps(list(segments)), [[]] if rows is None else rows, workers=1)
    try:
        plan = level_plan(dict(load or closed()), {"count": count, **(stop or {})}, None)
        level = session.level(json.dumps(plan))
        assert level.wait(within_s), f"still running: {level.poll()}"
        batches = level.rows()
        assert batches is not None
        return Visit(json.loads(level.outcome()), from_arrow(batches).collect().sort("seq", "attempt"))
    finally:
        session.close()


def probe(port: int, **target: Any) -> dict[str, Any]:
    """Send one request outside every level; its record."""
    from gpusize import _core

    session = _core.Session(json.dumps(target_spec(port, **target)), "[]", [[]], workers=1)
    try:
        record: dict[str, Any] = json.loads(session.probe())
        return record
    finally:
        session.close()
