"""What is asked of an estimator, and how requests fare by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benches.estimates.worlds import Process, Router, Rows, Think, WorldLoad
from gpusize.analysis.slo import Slo

__all__ = ["Visible", "attainments", "judged", "mean_kept", "metric_ns", "share_kept", "targets"]

MEAN_SCALE = 0.5
"""A mean this share of its bound away from it counts as one normal quantile."""
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Visible:
    """The question, and all that an estimator may know beside what it measures.

    Attributes:
        slos: all must be met.
        users: users of a closed loop; None for an open one.
        rate: requests per second of an open loop; None for a closed one.
        process: gaps of an open loop.
        think_s: mean time from an answer to the next question.
        think: its spread.
        router: which replica a request goes to.
        goodput: whether the share that the SLOs ask for (the same in all) is of requests that keep all bounds at once.
        replicas: how many replicas can be had for measuring, each number a cluster of its own.
        gpus_per_replica: GPUs of one.
    """

    slos: tuple[Slo, ...]
    users: int | None = None
    rate: float | None = None
    process: Process = "poisson"
    think_s: float = 0.0
    think: Think = "none"
    router: Router = "least_loaded"
    goodput: bool = False
    replicas: tuple[int, ...] = (1,)
    gpus_per_replica: int = 1

    @property
    def load(self) -> float:
        """Users or requests per second."""
        found = self.rate if self.users is None else self.users
        assert found is not None
        return float(found)

    def world_load(self, load: float, requests: int, warmup_requests: int) -> WorldLoad:
        """The same kind of load with another number of users, or another rate."""
        closed = self.users is not None
        return WorldLoad(
            users=round(load) if closed else None,
            rate=None if closed else load,
            process=self.process,
            think_s=self.think_s,
            think=self.think,
            requests=requests,
            warmup_requests=warmup_requests,
            router=self.router,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            **{name: getattr(self, name) for name in self.__dataclass_fields__},
            "slos": [str(slo) for slo in self.slos],
            "replicas": list(self.replicas),
        }


def metric_ns(rows: Rows, name: str) -> NDArray[np.float64]:
    """A time of each request, ns; NaN where it has none. Shape (n,)."""
    if name == "runtime":
        return np.asarray(rows.end_ns - rows.due_ns, dtype=np.float64)
    first = np.where(rows.first_token_ns < 0, np.nan, rows.first_token_ns.astype(float))
    if name == "ttft":
        return np.asarray(first - rows.due_ns, dtype=np.float64)
    if name != "itl_mean":
        raise ValueError(f"the suite has no {name}")
    gaps = rows.tokens_out.astype(float) - 1
    spread = np.divide(rows.end_ns - first, gaps, out=np.full(len(rows), np.nan), where=gaps >= 1)
    return np.asarray(spread, dtype=np.float64)


def judged(rows: Rows, slo: Slo) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Of the counted requests: which keep the SLO's bound, and which are judged at all. Shapes (n,)."""
    counted = ~rows.warmup
    ok = rows.ok[counted]
    if slo.kind == "share":
        return ok, np.ones(len(ok), dtype=bool)
    value = metric_ns(rows, slo.metric)[counted]
    bound_ns = float(Decimal(repr(slo.bound)) * 10**9)
    known = ~ok | ~np.isnan(value)
    return ok & (value <= bound_ns), known


def mean_kept(mean_s: float, slo: Slo) -> float:
    """A mean has no attainment. What stands for it: one half where it is the bound, more where it is less, smoothly."""
    return _NORMAL.cdf((1 - mean_s / slo.bound) / MEAN_SCALE)


def share_kept(rows: Rows, slo: Slo) -> float:
    """The share of the counted requests that keeps an SLO; of a mean ``mean_kept``. 0 where none is judged."""
    good, known = judged(rows, slo)
    if not known.any():
        return 0.0
    if slo.kind == "mean":
        values = metric_ns(rows, slo.metric)[~rows.warmup]
        return mean_kept(float(np.nanmean(values)) / 1e9, slo)
    return float(good[known].mean())


def attainments(rows: Rows, visible: Visible) -> list[float]:
    """The share of the counted requests that keeps each SLO, or, for goodput, one share that keeps all."""
    if not visible.goodput:
        return [share_kept(rows, slo) for slo in visible.slos]
    found = [judged(rows, slo) for slo in visible.slos]
    within = np.logical_and.reduce([good | ~known for good, known in found])
    return [float(within.mean())]


def targets(visible: Visible) -> Sequence[float]:
    """The shares that ``attainments`` are held against."""
    shares = [0.5 if slo.kind == "mean" else slo.share for slo in visible.slos]
    return shares[:1] if visible.goodput else shares
