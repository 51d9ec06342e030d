"""An engine without a network: levels end when the test says so, and leave the parts that a real one would."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from gpusize.records.schema import OUTCOMES, record_dtypes

MS = 1_000_000


def outcome(visit: int, **changed: Any) -> dict[str, Any]:
    """A LevelOutcome of a level in which all went well."""
    return {
        "visit": visit,
        "stop_reason": "count",
        "start_ns": visit * 1000 * MS,
        "close_ns": visit * 1000 * MS + 900 * MS,
        "end_ns": visit * 1000 * MS + 950 * MS,
        "due": 4,
        "sent": 4,
        "outcomes": {"ok": 4},
        "rows": 4,
        "connects": 1,
        "reconnects": 0,
        "asked_again": 0,
        "addresses": [],
        "cpu_ns": 5 * MS,
        "workers": 1,
        "residence_ns": 10 * MS,
        "parts": ["records/part-00000.parquet"],
        "write_error": None,
        "errors": [],
        "histograms": {"runtime": [[10 * MS, 11 * MS, 4]]},
        **changed,
    }


def write_part(file: Path, visit: int, outcomes: Sequence[str], start_ns: int) -> None:
    """One part with a request per outcome, 10 ms apart, each 10 ms long."""
    n = len(outcomes)
    due = [start_ns + k * 10 * MS for k in range(n)]
    columns: dict[str, Any] = {
        "visit": [visit] * n,
        "seq": list(range(n)),
        "due_ns": due,
        "fired_ns": due,
        "sent_ns": due,
        "end_ns": [at + 10 * MS for at in due],
        "outcome": [OUTCOMES.index(each) for each in outcomes],
    }
    schema = record_dtypes()
    counts = (
        "stream",
        "attempt",
        "row",
        "target",
        "model",
        "host",
        "worker",
        "conn",
        "events",
        "reasoning_events",
        "bytes_in",
        "bytes_out",
    )
    filled = {name: columns.get(name, [0 if name in counts else None] * n) for name in schema}
    pl.DataFrame(filled, schema=schema).write_parquet(file)


class FakeLevel:
    """A level that ends after ``looks`` looks at it, or when it is stopped."""

    def __init__(self, engine: FakeEngine, plan: Mapping[str, Any]) -> None:
        self.visit = int(plan["visit"])
        self.plan = plan
        self._engine = engine
        self._looks = 0
        self.stopped: list[int] = []
        self.ended = False
        self.began = False
        self.drains = False
        self.reason = "stopped"

    def poll(self) -> dict[str, Any]:
        sends = self._engine.started(self) and not self.stopped
        state = "queued" if not self._engine.started(self) else "running" if sends and not self.drains else "draining"
        return {"state": state, "elapsed_ns": self._looks * 100 * MS, "done": self._looks}

    def stop(self, drain_ns: int, reason: str = "stopped") -> None:
        self.reason = reason
        if self.ended:
            return
        if not self.stopped:
            self.began = self._engine.started(self)
        self.stopped.append(drain_ns)
        self._engine.log.append(f"stop {self.visit} {drain_ns}")

    def began_now(self) -> bool:
        """Whether it sends by now."""
        return self._engine.started(self)

    def wait(self, _timeout_s: float) -> bool:
        self._looks += 1
        done = bool(self.stopped) or self._looks > self._engine.looks
        self.ended = done
        if done and self._engine.on_end is not None:
            self._engine.on_end(self)
        return done

    def outcome(self) -> dict[str, Any]:
        changed = dict(self._engine.outcomes.get(self.visit, {}))
        if self.stopped:
            changed = {
                "stop_reason": self.reason,
                **({} if self.began else {"due": 0, "rows": 0, "outcomes": {}, "parts": []}),
                **changed,
            }
        made = outcome(self.visit, **changed)
        names = [name for name, count in made["outcomes"].items() for _ in range(count)]
        for part in made["parts"]:
            write_part(Path(self.plan["dir"]).parent / part, self.visit, names, made["start_ns"])
        self._engine.log.append(f"outcome {self.visit}")
        return made


class FakeEngine:
    """Stands in for ``gpusize.engine.session.Engine``."""

    def __init__(self, looks: int = 1, outcomes: Mapping[int, Mapping[str, Any]] | None = None) -> None:
        self.looks = looks
        self.outcomes = dict(outcomes or {})
        self.log: list[str] = []
        self.levels: list[FakeLevel] = []
        self.most_waiting = 0
        self.on_end: Callable[[FakeLevel], None] | None = None

    def queue(self, plan: Mapping[str, Any], **_arrays: bytes) -> FakeLevel:
        level = FakeLevel(self, plan)
        self.levels.append(level)
        self.log.append(f"queue {level.visit}")
        self.most_waiting = max(self.most_waiting, sum(not each.ended for each in self.levels))
        return level

    def started(self, level: FakeLevel) -> bool:
        """Whether the level before has ended: only then has this one begun."""
        position = next((k for k, each in enumerate(self.levels) if each is level), 0)
        return position == 0 or f"outcome {self.levels[position - 1].visit}" in self.log

    def probe(self) -> dict[str, Any]:
        return {"outcome": "ok", "status": 200, "message": None, "service_ns": 1}

    def close(self) -> None:
        self.log.append("close")


class FakeClock:
    """Clock pairs one second apart."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now_ns = 0

    def ns(self) -> int:
        """A clock that moves one millisecond at each look."""
        with self._lock:
            self._now_ns += MS
            return self._now_ns

    def pair(self) -> tuple[int, int, int]:
        now_ns = self.ns()
        return now_ns, 1_700_000_000_000_000_000 + now_ns, 100
