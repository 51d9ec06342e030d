"""GPUs over time: what is answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from gpusize.estimate.question import as_share

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from gpusize.analysis.slo import Slo
    from gpusize.estimate.plan.autoscale.elasticity import Elasticity
    from gpusize.estimate.plan.over_time.capacity import Capacities
    from gpusize.estimate.plan.over_time.policies import ScalingRules, Schedule
    from gpusize.estimate.plan.over_time.simulate import Decided, Served, Worst

__all__ = ["Course", "OverTime"]

S_PER_HOUR: Final = 3600.0
NS_PER_S: Final = 1e9


@dataclass(frozen=True, eq=False)
class Course:
    """One way to serve the requests, simulated from the first to the last.

    Attributes:
        policy: ``static``, ``planned``, ``reactive``, or the name of an autoscaler.
        schedule: replicas that are asked for over time.
        served: how requests fared.
        duration_s: of the trace.
        replica_gpus: GPUs of a replica.
        targets: the share that each objective asks for.
        elasticity: how well the replicas followed what was needed.
        decided: of an autoscaler, what it decided; None of others.
    """

    policy: str
    schedule: Schedule
    served: Served
    duration_s: float
    replica_gpus: int
    targets: tuple[float, ...]
    elasticity: Elasticity
    decided: Decided | None = None

    @property
    def decisions(self) -> Mapping[str, int] | None:
        """Of an autoscaler, how many decisions its HPA made for which reason; None of others."""
        return None if self.decided is None else self.decided.decisions

    @property
    def peak_gpus(self) -> int:
        """The most GPUs at a time."""
        return self.schedule.peak * self.replica_gpus

    @property
    def gpu_hours(self) -> float:
        """GPU-hours that are paid for.

        From when a replica is asked for to when it is no longer, and until it has finished what it had.
        """
        held_s = self.schedule.replica_s(self.duration_s) + self.served.draining_s
        return held_s * self.replica_gpus / S_PER_HOUR

    @property
    def mean_gpus(self) -> float:
        """GPU-hours over the hours of the trace."""
        return self.gpu_hours / (self.duration_s / S_PER_HOUR)

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of all requests that kept each objective; of a mean ``mean_kept``, which may be above 1."""
        return self.served.shares()

    @property
    def keeps(self) -> bool:
        """Whether each objective was kept by the share that it asks for, over the whole trace."""
        return all(share >= target for share, target in zip(self.shares, self.targets, strict=True))

    @property
    def binding(self) -> int:
        """The objective that is nearest to being missed, or furthest beyond."""
        from gpusize.estimate.twin.visit_data import tightest

        return tightest(self.shares, self.targets)

    @property
    def worst(self) -> Worst:
        """The worst five minutes, of that objective."""
        return self.served.worst(self.binding)


@dataclass(frozen=True, eq=False)
class OverTime:
    """GPUs over time for a trace.

    Attributes:
        source: where the requests come from.
        requests: how many there are.
        duration_s: over how long they come.
        rules: how replicas come and go.
        slos: what is to be kept.
        edges_ns: of the windows, shape (n + 1,).
        rates: requests per second in each, shape (n,).
        courses: one for static sizing for the peak, then one per policy and autoscaler; empty where there is a
            ``reason``.
        reason: why there is no answer.
        capacities: what numbers of replicas carry.
        replica_gpus: GPUs of a replica: those that were measured as one.
        peak_low: GPUs of the static sizing below which are surely too few for the largest window; None: nobody knows.
        peak_high: more are surely not needed for it.
        model: what was simulated: ``batching``, ``static`` or ``flow``.
        together: whether one share of the requests is to keep all SLOs at once.
        assumptions: what must hold for the figures to hold.
        warnings: what weakens them.
        next_levels: concurrencies that are worth measuring.
        gpu_hour_price: of one GPU for an hour; None where nobody said.
        currency: of what.
    """

    source: str
    requests: int
    duration_s: float
    rules: ScalingRules
    slos: tuple[Slo, ...]
    edges_ns: NDArray[np.int64]
    rates: NDArray[np.float64]
    courses: tuple[Course, ...] = ()
    reason: str | None = None
    capacities: Capacities | None = None
    replica_gpus: int = 1
    peak_low: int | None = None
    peak_high: int | None = None
    model: str = ""
    together: bool = False
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    next_levels: tuple[int, ...] = ()
    gpu_hour_price: float | None = None
    currency: str = ""

    @property
    def static(self) -> Course:
        """As many replicas as the largest window needs, all the time."""
        return self.courses[0]

    @property
    def objectives(self) -> tuple[str, ...]:
        """What each share is of, in words."""
        each = tuple(str(slo) for slo in self.slos)
        return (" and ".join(each),) if self.together else each

    @property
    def scaled(self) -> tuple[Course, ...]:
        """The courses of autoscalers."""
        return tuple(course for course in self.courses if course.decided is not None)

    @property
    def keeps(self) -> bool:
        """Whether a policy keeps every SLO over the whole trace; where autoscalers were asked about, one of them."""
        return any(course.keeps for course in self.scaled or self.courses[1:])

    def saved(self, course: Course) -> float:
        """The share of the static sizing's GPU-hours that a course does without; below 0 where it takes more."""
        return 1 - course.gpu_hours / self.static.gpu_hours

    def cost(self, course: Course) -> float | None:
        """What a course costs; None without a price."""
        return None if self.gpu_hour_price is None else self.gpu_hour_price * course.gpu_hours

    @cached_property
    def frame(self) -> pl.DataFrame:
        """One row per course and window.

        Columns: ``policy``, ``at_s``, ``end_s``, ``rate_per_s``, ``gpus`` (asked for, mean over the window),
        ``requests``, and ``within_1``, ... (of these, those within each SLO; a fraction where chances were added up).
        """
        import polars as pl

        edges = [each / NS_PER_S for each in self.edges_ns.tolist()]
        parts = []
        for course in self.courses:
            came, kept = course.served.between(edges)
            held = [course.schedule.replica_s(edge) for edge in edges]
            gpus = [
                (after - before) / (end - at) * self.replica_gpus
                for before, after, at, end in zip(held, held[1:], edges, edges[1:], strict=False)
            ]
            columns = {
                "policy": [course.policy] * len(gpus),
                "at_s": edges[:-1],
                "end_s": edges[1:],
                "rate_per_s": self.rates,
                "gpus": gpus,
                "requests": came.astype(int),
            }
            parts.append(pl.DataFrame(columns | {f"within_{k + 1}": each for k, each in enumerate(kept)}))
        return pl.concat(parts) if parts else pl.DataFrame()

    def plot(self) -> Figure:
        """The rate, the GPUs of each course, and the share within the SLO, over time.

        Raises:
            UsageError: there is no course to draw.
        """
        from gpusize.report.figures.gpus_over_time import over_time_figure

        return over_time_figure(self)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types: what was asked, every course with its steps, and the windows."""
        edges = [each / NS_PER_S for each in self.edges_ns.tolist()]
        return {
            "source": self.source,
            "requests": self.requests,
            "duration_s": self.duration_s,
            "peak_rate_per_s": float(self.rates.max()),
            "slos": list(self.objectives),
            "rules": asdict(self.rules),
            "reason": self.reason,
            "model": self.model or None,
            "gpus_per_replica": self.replica_gpus,
            "peak_gpus_low": self.peak_low,
            "peak_gpus_high": self.peak_high,
            "gpu_hour_price": self.gpu_hour_price,
            "currency": self.currency or None,
            "courses": [self._course(course, edges) for course in self.courses],
            "windows": {"edges_s": edges, "rate_per_s": self.rates.tolist()},
            "capacities": None if self.capacities is None else self.capacities.to_json(),
            "assumptions": list(self.assumptions),
            "warnings": list(self.warnings),
            "next_levels": list(self.next_levels),
        }

    def _course(self, course: Course, edges: list[float]) -> dict[str, Any]:
        worst = course.worst
        ready_ns, ready = course.schedule.ready()
        came, kept = course.served.between(edges)
        return {
            "policy": course.policy,
            "peak_gpus": course.peak_gpus,
            "mean_gpus": course.mean_gpus,
            "gpu_hours": course.gpu_hours,
            "saved_share": self.saved(course),
            "cost": self.cost(course),
            "keeps_slos": course.keeps,
            "shares": [as_share(each) for each in course.shares],
            "elasticity": asdict(course.elasticity),
            **_decided(course.decided),
            "worst_5_min": {"slo": self.objectives[course.binding], **asdict(worst)},
            "asked": [
                {"at_s": at / NS_PER_S, "gpus": n * self.replica_gpus}
                for at, n in zip(course.schedule.at_ns.tolist(), course.schedule.asked.tolist(), strict=True)
            ],
            "ready": [
                {"at_s": at / NS_PER_S, "gpus": n * self.replica_gpus}
                for at, n in zip(ready_ns.tolist(), ready.tolist(), strict=True)
            ],
            "window_shares": [
                [None if n == 0 else within / n for within, n in zip(each, came.tolist(), strict=True)]
                for each in kept.tolist()
            ],
        }


def _decided(decided: Decided | None) -> dict[str, Any]:
    if decided is None:
        return {"decisions": None, "polls": None, "without_replicas": None}
    held = {"held": decided.held, "refused": decided.refused, "longest_s": decided.longest_s}
    return {"decisions": dict(decided.decisions), "polls": dict(decided.polls) or None, "without_replicas": held}
