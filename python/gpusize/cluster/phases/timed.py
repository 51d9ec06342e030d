"""A cluster test in times: the tables of a folder, made into workloads, phases and figures."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError
from gpusize.cluster.phases.clocks import Lag, Offset, lag_of, offset_of
from gpusize.cluster.phases.deltas import pod_deltas, wide, workload_deltas
from gpusize.cluster.phases.known_phases import PHASES
from gpusize.cluster.phases.outcomes import NEVER, outcomes
from gpusize.cluster.phases.rates import (
    Occupancy,
    Throughput,
    gpus_per_pod,
    occupancy,
    throughput,
    total_gpus,
)
from gpusize.cluster.phases.rules import SKIPPED_BY, broken_by
from gpusize.cluster.phases.statistics import summary
from gpusize.cluster.phases.timelines import POD, last_look_ns, object_moments
from gpusize.cluster.phases.workloads import CLOCKS, JOB_KINDS, MOMENTS, gangs, workload_moments
from gpusize.cluster.tables import CLIENT_CLOCK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import polars as pl

__all__ = ["Timed", "time_workloads"]

_NS: Final = 10**9


@dataclass(frozen=True, eq=False)
class Timed:
    """The workloads of a cluster test and their phases.

    Attributes:
        workloads: one row for each, by submission: ``workload``, ``index``, ``namespace``, ``outcome``, ``reason``,
            ``message``, ``attempts``, ``pods``, ``quorum``, ``pods_seen``, ``pods_lost``, and of each moment
            ``MOMENT_ns`` (ns since 1970, the best guess), ``MOMENT_error_ns`` (half the width of its interval) and
            ``MOMENT_clock``.
        deltas: phases of workloads, of `gpusize.cluster.phases.deltas.phases_schema`.
        pods: phases of single pods, likewise.
        objects: moments of objects, of `gpusize.cluster.phases.timelines.object_moments`.
        broken: workloads that break each rule of `gpusize.cluster.phases.rules.RULES`.
        left_out: workloads that are left out of phases and pods because they do.
        offset: the server's clock less ours; None where nobody knows it.
        lag: how much later than it happened a watch told of something.
        looks: when the cluster was last looked at, by clock.
        unmeasured: by phase, workloads that came through it and have no row: no source told of its end, or both ends
            are known by clocks that nobody compared.
        facts: contents of ``cluster.json``.
    """

    workloads: pl.DataFrame
    deltas: pl.DataFrame
    pods: pl.DataFrame
    objects: pl.DataFrame
    broken: Mapping[str, list[str]]
    left_out: tuple[str, ...]
    offset: Offset | None
    lag: Lag
    looks: Mapping[str, int | None]
    unmeasured: Mapping[str, int]
    facts: Mapping[str, Any]

    def summary(self, also: Iterable[str] = ()) -> pl.DataFrame:
        """The figures of each phase, of `gpusize.cluster.phases.statistics.summary`."""
        return summary(self.deltas, self.pods, also)

    def rows(self, phase: str) -> pl.DataFrame:
        """The rows of one phase, of workloads by their submission."""
        import polars as pl

        frame = self.pods if phase.startswith("pod_") and phase not in _WORKLOADS_TOO else self.deltas
        return frame.filter(pl.col("phase") == phase)

    @property
    def clock(self) -> str:
        """The clock that rates and occupancy go by: ours where moments are known by it."""
        import polars as pl

        ours = self.objects.filter(pl.col("kind") == POD, pl.col("clock") == CLIENT_CLOCK).height
        return CLIENT_CLOCK if ours or self.objects.is_empty() else CLOCKS[0]

    @cached_property
    def begin_ns(self) -> int | None:
        """The first submission by `clock`; without one the first creation."""
        import polars as pl

        sent = self.workloads["submitted_ns"].min()
        if self.clock == CLIENT_CLOCK and isinstance(sent, int):
            return sent
        first = self.objects.filter(pl.col("clock") == self.clock)["lo"].min()
        return int(first) if isinstance(first, int) else None

    def pods_per_s(self, moment: str = "scheduled") -> Throughput | None:
        """How many pods came to a moment, a second."""
        import polars as pl

        found = self.objects.filter(pl.col("kind") == POD, pl.col("moment") == moment, pl.col("clock") == self.clock)[
            "at"
        ]
        return self._rate(found)

    def workloads_per_s(self, moment: str = "last_scheduled") -> Throughput | None:
        """How many workloads came to a moment, a second."""
        import polars as pl

        ours = pl.col(f"{moment}_clock") == self.clock
        return self._rate(self.workloads.filter(ours)[f"{moment}_ns"].drop_nulls())

    @property
    def paused_s(self) -> float:
        """Seconds between submissions that were interrupted and those that resumed them."""
        sessions = (self.facts.get("submit") or {}).get("sessions") or []
        gaps = (later["started_ns"] - sooner["ended_ns"] for sooner, later in itertools.pairwise(sessions))
        return float(sum(gaps)) / 1e9

    def _rate(self, times: pl.Series) -> Throughput | None:
        begin = self.begin_ns
        return None if begin is None else throughput(times.to_numpy(), begin, self.looks.get(self.clock))

    def occupancy(self) -> Occupancy | None:
        """GPUs taken over time; None where nobody noted how many a pod asks for."""
        begin, look = self.begin_ns, self.looks.get(self.clock)
        if begin is None or look is None:
            return None
        return occupancy(self.objects, begin, look, gpus_per_pod(self.facts), total_gpus(self.facts), self.clock)

    def part(self, head: int | None = None, tail: int | None = None) -> Timed:
        """The first workloads by submission, and of these the last ones, of those that are not left out."""
        import polars as pl

        if head is None and tail is None:
            return self
        kept = self.workloads.filter(~pl.col("workload").is_in(list(self.left_out)))
        kept = kept.head(head) if head is not None else kept
        kept = kept.tail(tail) if tail is not None else kept
        names = kept["workload"].to_list()
        chosen = pl.col("workload").is_in(names)
        return replace(
            self,
            workloads=kept,
            deltas=self.deltas.filter(chosen),
            pods=self.pods.filter(chosen),
            objects=self.objects.filter(chosen),
        )


_WORKLOADS_TOO: Final = ("pod_group_creation", "pod_scheduling_decision")


def time_workloads(
    stamps: pl.DataFrame, attempts: pl.DataFrame, facts: Mapping[str, Any], *, skip_errors: bool = True
) -> Timed:
    """Time the workloads of a cluster test.

    Args:
        stamps, attempts: its tables, of `gpusize.cluster.tables`.
        facts: contents of ``cluster.json``.
        skip_errors: leave out workloads whose times cannot be right (`gpusize.cluster.phases.rules`).

    Raises:
        UsageError: there are neither requests nor stamps of any workload.
    """
    import polars as pl

    offset = offset_of(facts, attempts)
    lag = lag_of(facts, stamps, attempts, offset)
    objects = object_moments(stamps, attempts, offset, lag)
    names = pl.concat([attempts.select("workload"), objects.select("workload")]).drop_nulls().unique()
    if names.is_empty():
        raise UsageError("there is no workload in it", None, "submit some and sample them: gpusize cluster sample")
    gang = gangs(objects, names, facts)
    moments = workload_moments(objects, attempts, gang)
    index = attempts.group_by("workload").agg(pl.col("index").min(), pl.col("namespace").first())
    table = (
        names.join(wide(moments, ("workload",)), on="workload", how="left")
        .join(gang, on="workload", how="left")
        .join(index, on="workload", how="left")
        .with_columns(_submitted(moments).alias("submitted_ns"))
        .sort("submitted_ns", "index", "workload", nulls_last=True)
    )
    looks = last_look_ns(facts, stamps, attempts, offset)
    without = {
        "job_creation": _jobs_submitted(objects, attempts),
        "straggler_spread": table.filter(pl.col("pods") < 2)["workload"].to_list(),
    }
    if moments.filter(pl.col("moment") == "job_created").is_empty():
        without["job_creation"] = table["workload"].to_list()  # pods are submitted themselves
    if moments.filter(pl.col("moment").is_in(("queued", "quota_reserved", "admitted"))).is_empty():
        without["admitted"] = table["workload"].to_list()  # there is no queue
    became = outcomes(table, objects, attempts, facts)
    never = became.filter(pl.col("outcome").is_in(NEVER))["workload"].to_list()
    deltas = workload_deltas(table, looks, without, never)
    pods = pod_deltas(objects, looks, table.select("workload", "submitted_ns"))
    broken = broken_by(table, deltas, attempts.filter(pl.col("kind") == "PodGroup")["workload"].to_list())
    out = tuple(dict.fromkeys(name for rule in SKIPPED_BY for name in broken[rule])) if skip_errors else ()
    stays = ~pl.col("workload").is_in(list(out))
    workloads = _workload_rows(table).join(became, on="workload", how="left")
    order = pl.DataFrame({"workload": table["workload"], "place": range(table.height)})
    deltas = deltas.join(order, on="workload").sort("place", maintain_order=True).drop("place")
    return Timed(
        _ordered(workloads),
        deltas.filter(stays),
        pods.filter(stays),
        objects,
        broken,
        out,
        offset,
        lag,
        looks,
        _unmeasured(table, deltas, without),
        facts,
    )


def _submitted(moments: pl.DataFrame) -> pl.Expr:
    import polars as pl

    known = moments.filter(pl.col("moment") == "submitted").height
    return pl.col(f"{CLIENT_CLOCK}.submitted.lo") if known else pl.lit(None, pl.Int64)


def _jobs_submitted(objects: pl.DataFrame, attempts: pl.DataFrame) -> list[str]:
    """Workloads whose submitted object is the job itself."""
    import polars as pl

    sent = attempts.filter(pl.col("kind").is_in(JOB_KINDS))["workload"].to_list()
    named = objects.filter(pl.col("kind").is_in(JOB_KINDS), pl.col("name") == pl.col("workload"))
    others = objects.filter(
        ~pl.col("kind").is_in((*JOB_KINDS, POD, "PodGroup", "Workload", "Backend")),
        pl.col("name") == pl.col("workload"),
    )
    unsent = named.join(attempts, on="workload", how="anti").join(others, on="workload", how="anti")
    return [*sent, *unsent["workload"].to_list()]


def _workload_rows(table: pl.DataFrame) -> pl.DataFrame:
    """Each moment on our timeline where it is known there, else on the server's."""
    import polars as pl

    made: list[pl.Expr] = []
    for moment in MOMENTS:
        known = [clock for clock in reversed(CLOCKS) if f"{clock}.{moment}.lo" in table.columns]
        if not known:
            made += [
                pl.lit(None, pl.Int64).alias(f"{moment}_ns"),
                pl.lit(None, pl.Int64).alias(f"{moment}_error_ns"),
                pl.lit(None, pl.String).alias(f"{moment}_clock"),
            ]
            continue
        ends = [(pl.col(f"{clock}.{moment}.lo"), pl.col(f"{clock}.{moment}.hi")) for clock in known]
        made += [
            pl.coalesce(pl.col(f"{clock}.{moment}.at") for clock in known).alias(f"{moment}_ns"),
            pl.coalesce((hi - lo + 1) // 2 for lo, hi in ends).alias(f"{moment}_error_ns"),
            pl.coalesce(
                pl.when(lo.is_not_null()).then(pl.lit(clock)) for clock, (lo, _) in zip(known, ends, strict=True)
            ).alias(f"{moment}_clock"),
        ]
    return table.select("workload", "index", "namespace", "pods", "quorum", "pods_seen", "pods_lost", *made)


def _ordered(workloads: pl.DataFrame) -> pl.DataFrame:
    first = ("workload", "index", "namespace", "outcome", "reason", "message", "attempts")
    return workloads.select(*first, *(name for name in workloads.columns if name not in first))


def _unmeasured(table: pl.DataFrame, deltas: pl.DataFrame, without: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """By phase, the workloads that have no row though they came through it."""
    import polars as pl

    rows = dict(deltas.group_by("phase").agg(pl.col("workload").n_unique()).iter_rows())

    def known(moment: str) -> pl.Expr:
        names = [f"{clock}.{moment}.lo" for clock in CLOCKS if f"{clock}.{moment}.lo" in table.columns]
        return pl.any_horizontal(pl.col(name).is_not_null() for name in names) if names else pl.lit(value=False)

    found = {}
    for phase in PHASES.values():
        came = known(phase.start) if phase.certain else known(phase.start) & known(phase.end)
        came &= ~pl.col("workload").is_in(list(without.get(phase.name, ())))
        lacking = int(table.select(came.sum()).item()) - int(rows.get(phase.name, 0))
        if lacking:
            found[phase.name] = lacking
    return found
