"""Measures a first user's server in virtual time as ``gpusize run`` would: a sweep, or the search for the edge."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import polars as pl

from benches.estimates.first_servers import Answer, Server
from gpusize.analysis.level import LevelData
from gpusize.analysis.slo import Slo
from gpusize.estimate.methods import levels_from_frames
from gpusize.estimate.search.planner import Over, Planner
from gpusize.estimate.search.terms import Adaptive
from gpusize.estimate.search.visits import visits_of
from gpusize.estimate.twin.visit_data import Objective
from gpusize.measure.alive import Alive
from gpusize.measure.sweep import Step

__all__ = ["LADDER", "search", "sweep"]

LADDER: Final = (1, 2, 4, 8, 12, 16, 20, 24, 32)
ROUNDS: Final = 12
"""Rounds of a level of a sweep that counts requests."""
PASSES: Final = 3
MOST_ERRORS: Final = (0.01, 10)
"""Share and number of failures that end a level; by passes a single one does."""
PAUSE_S: Final = 0.1
"""Between two levels."""


@dataclass
class _Bench:
    """One server with its clock, which goes on from level to level."""

    server: Server
    chance: random.Random
    now_s: float = 0.0
    levels: list[LevelData] = field(default_factory=list)

    def level(self, users: int, requests: int, *, passes: bool = False, facts: dict[str, Any] | None = None) -> None:
        """One level: a closed loop of so many users until so many requests were sent, or too many have failed."""
        rows, broke = self._loop(users, requests, burst=passes)
        number = len(self.levels)
        state = "interrupted" if broke else "done"
        row = {"visit": number, "concurrency": users, "gpus": 1, "passes": passes, "state": state}
        status = pl.Series([each["status"] for each in rows], dtype=pl.UInt16)
        frame = pl.DataFrame([{**each, "visit": number} for each in rows]).drop("status")
        [made] = levels_from_frames(frame, pl.DataFrame([row]))
        meta = {**made.meta, "stop_reason": "errors" if broke else "count", **(facts or {})}
        # The frame's rows are in the order of their requests, as these are.
        self.levels.append(replace(made, meta=meta, records=made.records.with_columns(status.alias("status"))))

    def _loop(self, users: int, requests: int, *, burst: bool) -> tuple[list[dict[str, Any]], bool]:
        start = self.now_s + PAUSE_S
        # New users begin evenly spread over one residence, or all at once where a level goes by passes.
        spread = 0.0 if burst else self.server.idle_s / users
        due = [(start + k * spread, k) for k in range(users)]
        heapq.heapify(due)
        ends: list[float] = []
        rows: list[dict[str, Any]] = []
        failures: list[float] = []
        while len(rows) < requests:
            now, user = heapq.heappop(due)
            failed = sum(end <= now for end in failures)
            while ends and ends[0] <= now:
                heapq.heappop(ends)
            if _too_many(failed, len(rows) - len(ends), burst=burst):
                break
            answer: Answer = self.server.begin(now, len(ends), self.chance.random())
            end = now + answer.took_s
            if answer.outcome == "ok":
                heapq.heappush(ends, end)
            else:
                failures.append(end)
            rows.append({"due_s": now, "end_s": end, "outcome": answer.outcome, "status": answer.status})
            heapq.heappush(due, (end, user))
            self.now_s = max(self.now_s, end)
        return rows, _too_many(len(failures), len(rows), burst=burst)


def _too_many(failed: int, ended: int, *, burst: bool) -> bool:
    share, least = (0.0, 1) if burst else MOST_ERRORS
    return failed >= least and failed > share * ended


def sweep(server: Server, seed: int, ladder: Sequence[int] = LADDER, *, passes: bool = False) -> list[LevelData]:
    """The levels of a sweep, with a second look at what had held where one breaks, until the target has failed."""
    bench, alive = _Bench(server, random.Random(seed)), Alive()
    waiting = [Step(index, {"kind": "closed", "concurrency": users}, {}) for index, users in enumerate(ladder)]
    while waiting and not alive.failed:
        step = waiting.pop(0)
        users = int(step.setting["concurrency"])
        bench.level(users, users * (PASSES if passes else max(ROUNDS, -(-40 // users))), passes=passes)
        made = bench.levels[-1]
        following = alive.after(step, {**made.meta, "visit": made.visit})
        if isinstance(following, Step):
            waiting.insert(0, following)
    return bench.levels


def search(server: Server, seed: int, slo: Slo, terms: Adaptive) -> list[LevelData]:
    """The levels of a search for the edge, to its end."""
    bench, planner = _Bench(server, random.Random(seed)), Planner([Objective.of(slo)], terms)
    while not isinstance(chosen := planner.next(visits_of(bench.levels, planner.objectives)), Over):
        bench.level(chosen.look.users, chosen.requests, facts={"search": chosen.facts()})
    return bench.levels
