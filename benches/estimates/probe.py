"""Measuring inside a budget: what an estimator may do to a scenario's cluster, and what it gets to see of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from benches.estimates.question import Visible
from benches.estimates.scenarios import Scenario
from benches.estimates.worlds import Rows
from gpusize.errors import UsageError
from gpusize.frames import OUTCOMES, outcome_dtype, record_dtypes
from gpusize.levels import LevelData
from gpusize.windows import intervals

if TYPE_CHECKING:
    import polars as pl

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

        As in a real run, the first requests are cut off as warm-up by the rule of ``gpusize.windows``, and so is the
        drain. Every level has draws of its own.

        Args:
            load: users, a whole number, or requests per second.
            replicas: one of the numbers that can be had; None for the smallest.
            requests: all that are sent, warm-up included.
            passes: the sizing calculator's way: all users begin at once, and every request counts.
            closed: so many users without pauses, whatever the question's loop is.

        Raises:
            BudgetSpent: fewer requests are left.
            UsageError: this many replicas cannot be had, or the load cannot be meant.
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
        frame = _records(rows, self._visits)
        setting = _setting(visible, load, len(rows)) | ({"passes": 1} if passes else {})
        meta = {
            "setting": setting,
            "state": "done",
            "start_ns": 0,
            "close_ns": int(rows.due_ns[-1]) + 1,
            "end_ns": int(rows.end_ns.max()),
            "outcomes": {name: int(n) for name, n in frame["outcome"].value_counts().iter_rows()},
        }
        records = frame.lazy()
        return LevelData(
            visit=self._visits,
            setting=setting,
            state="done",
            intervals=intervals(meta, records).intervals,
            gpus=replicas * self.visible.gpus_per_replica,
            run="suite",
            meta=meta,
            records=records,
        )


def _setting(visible: Visible, load: float, count: int) -> dict[str, Any]:
    if visible.users is None:
        return {"kind": "open", "rate": load, "process": visible.process, "count": count}
    setting: dict[str, Any] = {"kind": "closed", "concurrency": round(load), "count": count}
    if visible.think == "fixed":
        setting["think_s"] = visible.think_s
    elif visible.think == "exponential":
        setting |= {"think_s": 0.0, "think": f"exp({visible.think_s:g}s)"}
    return setting


def _records(rows: Rows, visit: int) -> pl.DataFrame:
    """The columns that a run folder has, as far as a request in virtual time has something to say there."""
    import polars as pl

    def time(values: Any) -> pl.Series:
        return pl.Series(np.where(values < 0, None, values) if (values < 0).any() else values, dtype=pl.Int64)

    n = len(rows)
    none = rows.first_token_ns < 0
    first, end, sent = time(rows.first_token_ns), time(rows.end_ns), time(rows.sent_ns)
    # Where tokens say nothing there are none.
    tokens = pl.Series(rows.tokens_out, dtype=pl.UInt32).scatter(np.flatnonzero(none), None)
    codes = np.where(rows.ok, 0, 1)
    known = {
        "visit": pl.Series(np.full(n, visit), dtype=pl.UInt32),
        "stream": pl.zeros(n, dtype=pl.UInt16, eager=True),
        "seq": pl.Series(np.arange(n), dtype=pl.UInt64),
        "attempt": pl.zeros(n, dtype=pl.UInt16, eager=True),
        "row": pl.Series(np.arange(n), dtype=pl.UInt32),
        "due_ns": time(rows.due_ns),
        "fired_ns": time(rows.due_ns),
        "sent_ns": sent,
        "first_byte_ns": first,
        "first_token_ns": first,
        "first_output_ns": first,
        "last_token_ns": pl.select(pl.when(pl.Series(none)).then(None).otherwise(end)).to_series(),
        "end_ns": end,
        "events": tokens,
        "tokens_in": pl.Series(rows.prompt_tokens, dtype=pl.UInt32),
        "tokens_out": tokens,
        "outcome": pl.Series(OUTCOMES, dtype=outcome_dtype()).gather(codes),
    }
    dtypes = {**record_dtypes(), "outcome": outcome_dtype()}
    columns = [
        known[name].alias(name) if name in known else pl.lit(None, dtype).alias(name) for name, dtype in dtypes.items()
    ]
    return pl.select(pl.int_range(n, dtype=pl.UInt32).alias("_")).select(columns)
