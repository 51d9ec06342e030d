"""A host whose engine has measured everything beforehand: ``python -m benches.programs.measured_host PORT FOLDER``.

It joins the head on PORT as `gpusize agent` does; every level that it is asked for is over at once, and its records are
the parts in FOLDER. So the way home is all there is to it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from gpusize.engine.hosts.access import Access
from gpusize.engine.hosts.agent import join
from gpusize.engine.session import monotonic_ns

LEVEL = "level.json"
"""Beside the parts: the outcome of the level that they are of."""


class MeasuredLevel:
    """A level that has ended as soon as it has begun."""

    def __init__(self, plan: Mapping[str, Any], source: Path) -> None:
        self.visit = int(plan["visit"])
        self._told = json.loads((source / LEVEL).read_text("utf-8"))
        self._began = 0 if plan.get("held") else monotonic_ns()
        for part in sorted(source.glob("part-*.parquet")):
            os.link(part, Path(plan["dir"]) / part.name)

    def prepared(self, _timeout_s: float) -> bool:
        """It is."""
        return True

    def start_at(self, ns: int) -> None:
        """It begins, and is over."""
        self._began = ns

    def wait(self, _timeout_s: float) -> bool:
        """Whether it has begun."""
        return self._began > 0

    def stop(self, _drain_ns: int, _reason: str = "stopped") -> None:
        """It ends, where it has not."""
        self._began = self._began or monotonic_ns()

    def seconds(self, _after: int) -> list[Any]:
        """None: they are not what is measured here."""
        return []

    def poll(self) -> Any:
        """As the level was at its end."""
        return {**self._told["progress"], "state": "done" if self._began else "queued"}

    def outcome(self) -> Any:
        """As the level had it, at the time at which this one began."""
        told = self._told["outcome"]
        by_ns = self._began - told["start_ns"]
        moved = {name: told[name] + by_ns for name in ("start_ns", "close_ns", "end_ns")}
        return {**told, **moved, "visit": self.visit}


class MeasuredEngine:
    """Gives such levels."""

    def __init__(self, source: Path) -> None:
        self._source = source

    def queue(self, plan: Mapping[str, Any], **_: bytes) -> MeasuredLevel:
        """A level."""
        return MeasuredLevel(plan, self._source)

    def probe(self) -> Any:
        """All is well."""
        return {"outcome": "ok", "status": 200, "message": None, "service_ns": 1}

    def close(self) -> None:
        """Nothing to close."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


if __name__ == "__main__":
    _port, _source = int(sys.argv[1]), Path(sys.argv[2])
    _facts = {"hostname": _source.name, "cores": 1}
    _made: Any = lambda *_, **__: MeasuredEngine(_source)  # noqa: E731
    join(("127.0.0.1", _port), Access(), _facts, engine=_made, folder=_source.parent)
