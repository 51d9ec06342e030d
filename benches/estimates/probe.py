"""Measuring inside a budget: what an estimator may do to a scenario's cluster, and what it gets to see of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benches.estimates.question import Visible
from benches.estimates.scenarios import Scenario
from benches.estimates.worlds import Rows
from gpusize.analysis.level import LevelData
from gpusize.base.errors import UsageError
from gpusize.estimate.methods import levels_from_frames

__all__ = ["BudgetSpent", "Probe"]

_SEED = 900_000_000


class BudgetSpent(UsageError):
    """More requests were asked for than are left."""


class Probe:
    """A cluster that can be measured at any load until the budget is spent.

    The cluster's service parameters, its seeds and the truth are not reachable through this object's public names.

    Attributes:
        visible: the question.
        budget: requests that may be sent, warm-up included.
        spent: requests that were.
    """

    def __init__(self, scenario: Scenario, seed: int, budget: int | None = None) -> None:
        self.visible: Visible = scenario.visible
        self.budget = scenario.budget if budget is None else budget
        self.spent = 0
        self._scenario = scenario
        self._seed = seed
        self._visits = 0

    @property
    def left(self) -> int:
        """Requests that may still be sent."""
        return self.budget - self.spent

    def measure(
        self, load: float, *, requests: int, replicas: int | None = None, passes: bool = False, closed: bool = False
    ) -> LevelData:
        """One level: so many users (or requests per second) on so many replicas until so many requests were sent.

        As in a real run, the first requests are cut off as warm-up by the rule of ``analysis.windows``, and so is the
        drain. Every level has draws of its own.

        Args:
            load: users, a whole number, or requests per second.
            replicas: one of the numbers that can be had; None for the smallest.
            requests: all that are sent, warm-up included.
            passes: the sizing calculator's way: all users begin at once, and every request counts.
            closed: so many users without pauses, whatever the question's loop is.

        Raises:
            BudgetSpent: fewer requests are left.
            UsageError: this many replicas cannot be had, or the load is invalid.
        """
        count = self.visible.replicas[0] if replicas is None else replicas
        if count not in self.visible.replicas:
            raise UsageError(f"{count} replicas cannot be had", "replicas", f"take one of {self.visible.replicas}")
        visible = self.visible
        if closed:
            visible = replace(visible, users=max(1, round(load)), rate=None, think="none", think_s=0.0)
        if requests < 1 or load <= 0 or (visible.users is not None and load != round(load)):
            raise UsageError(f"no such level: load {load}, {requests} requests", None, "give positive numbers")
        if requests > self.left:
            raise BudgetSpent(f"{requests} requests asked for, {self.left} are left", None, "ask for fewer")
        self.spent += requests
        self._visits += 1
        seed = _SEED + 1000 * self._seed + self._visits
        asked = replace(visible.world_load(load, requests, 0), burst=passes)
        rows = self._scenario.world.run(asked, gpus=count, seed=seed)
        return self._level(rows, load, count, visible, passes=passes)

    def _level(self, rows: Rows, load: float, replicas: int, visible: Visible, *, passes: bool) -> LevelData:
        closed = visible.users is not None
        row = {
            "visit": self._visits,
            "concurrency": round(load) if closed else None,
            "rate": None if closed else float(load),
            "process": visible.process,
            "think_s": visible.think_s if visible.think != "none" else None,
            "think": visible.think if visible.think != "none" else None,
            "gpus": replicas * self.visible.gpus_per_replica,
            "passes": passes,
        }
        [level] = levels_from_frames(_records(rows, self._visits), pl.DataFrame([row]))
        return level


def _records(rows: Rows, visit: int) -> pl.DataFrame:
    """What a request in virtual time has to say, in the columns of ``gpusize.estimate_frame``."""

    def time(values: NDArray[np.int64]) -> pl.Series:
        found = pl.Series(values, dtype=pl.Int64)
        return found.scatter(np.flatnonzero(values < 0), None)

    # Where tokens say nothing there are none.
    tokens = pl.Series(rows.tokens_out, dtype=pl.UInt32).scatter(np.flatnonzero(rows.first_token_ns < 0), None)
    return pl.DataFrame(
        {
            "visit": np.full(len(rows), visit),
            "due_ns": time(rows.due_ns),
            "sent_ns": time(rows.sent_ns),
            "first_token_ns": time(rows.first_token_ns),
            "end_ns": time(rows.end_ns),
            "tokens_in": pl.Series(rows.prompt_tokens, dtype=pl.UInt32),
            "tokens_out": tokens,
            "outcome": np.where(rows.ok, "ok", "http_error"),
        }
    )
