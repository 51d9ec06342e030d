"""A run on replicas that an autoscaler added and removed, judged: was it served, how soon did it follow, what was paid.

    1  requests      of the records: who was served within the SLOs, in windows, stages and after each step of the load
    2  replicas      of the pulled series, on the records' clock: asked for, there, ready; what nobody read is unknown
    3  needed        by an estimate, where one was handed over: too few and too many, and when there were enough
    4  findings      what weakens all that

docs/reference/autoscale.md has the definitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.compare.matching import load_names
from gpusize.analysis.metrics import NS_PER_S
from gpusize.base.errors import UsageError
from gpusize.estimate.plan.autoscale.elasticity import Elasticity, elasticity
from gpusize.estimate.plan.autoscale.judge import series as names
from gpusize.estimate.plan.autoscale.judge.findings import (
    Finding,
    blind_conditions,
    closed_loop,
    failed_scalers,
    frozen_metrics,
    gaps,
)
from gpusize.estimate.plan.autoscale.judge.load_steps import load_steps
from gpusize.estimate.plan.autoscale.judge.needed import Needed
from gpusize.estimate.plan.autoscale.judge.requests import Requests, over_time_slos
from gpusize.estimate.plan.autoscale.judge.responses import begun_to_serve, response
from gpusize.estimate.plan.autoscale.judge.run_clock import RunClock
from gpusize.estimate.plan.autoscale.judge.series import PulledSeries
from gpusize.estimate.plan.autoscale.judge.track import Total, Track
from gpusize.estimate.plan.autoscale.judge.types import Judgement, Paid, Scaling, Stage, Terms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from gpusize.analysis.level import LevelData
    from gpusize.analysis.slo import Slo

    Need = Callable[[NDArray[np.float64], float, float], Needed | str]

__all__ = ["judge_run"]

S_PER_HOUR: Final = 3600.0
GAUGES: Final = {
    "running": (names.RUNNING, "sum"),
    "waiting": (names.WAITING, "sum"),
    "cache": (names.CACHE, "mean"),
    "gpu_use": (names.GPU_USE, "mean"),
    "gpu_power": (names.GPU_POWER, "sum"),
}
"""What is read of single replicas and GPUs: series that say it, and what is made of theirs."""
SHARES: Final = ("cache", "gpu_use")


def judge_run(
    run: Path,
    levels: Sequence[LevelData],
    folder: Path,
    slos: Sequence[Slo],
    terms: Terms | None = None,
    need: Need | None = None,
) -> Judgement:
    """Judge one run.

    Args:
        run: its folder.
        levels: all of its levels.
        folder: where its pulled series lie.
        slos: what it is judged by; may be none.
        terms: GPUs, windows and price.
        need: given when requests were due (seconds after the start, shape (n,)), until when, and the length of the
            windows, says what replicas are needed, or why nobody knows.

    Raises:
        UsageError: the run has no requests of its own, or an SLO is not judged request by request.
        StoreError: the series cannot be read, or nobody knows what time of day the run was at.
    """
    terms = terms or Terms()
    known = sorted(
        (each for each in levels if not each.imported and each.meta.get("start_ns") is not None),
        key=lambda each: int(each.meta["start_ns"]),
    )
    if not known:
        raise UsageError("the run has no requests of its own", str(run), "judge a run that has records")
    zero_ns = int(known[0].meta["start_ns"])
    end_s = (max(int(each.meta.get("end_ns") or each.meta["start_ns"]) for each in known) - zero_ns) / NS_PER_S
    requests = Requests.of(known, over_time_slos(slos), zero_ns)
    series = PulledSeries.open(folder, RunClock.of(run, zero_ns), end_s)
    return _Judge(run.name, known, requests, series, terms, end_s, zero_ns).judgement(need)


class _Judge:
    """One run while it is judged."""

    def __init__(
        self,
        run: str,
        levels: Sequence[LevelData],
        requests: Requests,
        series: PulledSeries,
        terms: Terms,
        end_s: float,
        zero_ns: int,
    ) -> None:
        self._run, self._levels, self._requests, self._series = run, levels, requests, series
        self._terms, self._end_s, self._zero_ns = terms, end_s, zero_ns
        self._factors: dict[str, float] = {}
        self._desired, self._current, self._ready = (
            series.track(name) for name in (names.DESIRED, names.CURRENT, names.READY)
        )
        self._step_s = series.step_s(series.first(names.READY) or names.READY[0])

    def judgement(self, need: Need | None) -> Judgement:
        needed, why_not = self._needed(need)
        wanted = None if needed is None else _as_track(needed, self._end_s)
        edges = self._edges()
        stages = tuple(self._stages(wanted))
        gauges = self._gauges()
        whole = self._stage("the whole run", 0.0, self._end_s, wanted)
        serving = begun_to_serve(self._series)
        steps = load_steps(self._levels, self._zero_ns, self._end_s)
        responses = tuple(
            response(
                each,
                self._requests,
                self._terms.window_s,
                desired=self._desired,
                ready=self._ready,
                serving=serving,
                needed=None if needed is None or each.unit != "requests/s" else needed.at_rate(each.after),
            )
            for each in steps
        )
        return Judgement(
            run=self._run,
            slos=self._requests.slos,
            terms=self._terms,
            duration_s=self._end_s,
            requests=self._requests,
            edges_s=edges,
            windows=self._requests.between(edges[:-1], edges[1:]),
            stages=stages,
            whole=whole,
            responses=responses,
            desired=self._desired,
            current=self._current,
            ready=self._ready,
            needed=needed,
            elasticity=None if wanted is None or self._ready is None else _followed(wanted, self._ready),
            scaling=self._scaling(),
            paid=self._paid(gauges.get("gpu_power")),
            findings=tuple(self._findings(wanted, gauges)),
            offset_s=self._series.offset_ns / NS_PER_S,
            uncertainty_s=self._series.uncertainty_s,
            why_not=why_not,
            gauges=gauges,
            percent_factors=self._factors,
        )

    def _gauges(self) -> dict[str, Track]:
        found = {}
        for called, (several, how) in GAUGES.items():
            name = self._series.first(several)
            track = None if name is None else self._series.over_replicas(name, how)
            if name is not None and track is not None:
                found[called] = track
                if called in SHARES:
                    self._factors[called] = self._series.percent_factor(name, track)
        return found

    def _edges(self) -> NDArray[np.float64]:
        """Windows that fill the run; all are as long as asked for but the last, which has half of that to 1.5 times."""
        import numpy as np

        count = max(1, round(self._end_s / self._terms.window_s))
        return np.append(np.arange(count) * self._terms.window_s, self._end_s)

    def _needed(self, need: Need | None) -> tuple[Needed | None, str]:
        import numpy as np

        if need is None:
            return None, "no runs say what a replica carries"
        if any(level.setting.get("kind") != "open" for level in self._levels):
            return None, "the rate of a closed loop is what the replicas served, not what was wanted"
        weights = np.diff(self._requests.sums[0]).astype(np.int64)
        found = need(np.repeat(self._requests.due_s, weights), self._end_s, self._terms.window_s)
        return (None, found) if isinstance(found, str) else (found, "")

    @property
    def _held(self) -> tuple[Track | None, str]:
        """The replicas that are paid for, and the series that says so."""
        for track, several in ((self._current, names.CURRENT), (self._ready, names.READY)):
            if track is not None and track.total().known_s > 0:
                return track, self._series.first(several) or ""
        return None, ""

    def _stages(self, wanted: Track | None) -> Iterator[Stage]:
        starts = [(int(each.meta["start_ns"]) - self._zero_ns) / NS_PER_S for each in self._levels]
        for level, from_s, until_s in zip(self._levels, starts, [*starts[1:], self._end_s], strict=True):
            yield self._stage(load_names([level.setting])[0], from_s, until_s, wanted)

    def _stage(self, name: str, from_s: float, until_s: float, wanted: Track | None) -> Stage:
        # What was due at the very end counts too.
        counted = self._requests.between([from_s], [until_s if until_s < self._end_s else float("inf")])
        shares = tuple(None if share != share else float(share) for share in counted.shares[:, 0])  # noqa: PLR0124 (NaN)
        needed, ready, held = (self._known(each, from_s, until_s) for each in (wanted, self._ready, self._held[0]))
        return Stage(
            name,
            from_s,
            until_s,
            float(counted.due[0]),
            shares,
            needed=None if needed is None else needed.mean,
            ready=None if ready is None else ready.mean,
            gpu_hours=None if held is None else held.value * self._terms.gpus_per_replica / S_PER_HOUR,
        )

    def _known(self, track: Track | None, from_s: float, until_s: float) -> Total | None:
        """What a track says of a stage; None where nothing does.

        The ends of a gap and of a stage do not meet: what is known for less than half of what one reading stands for,
        and of the stage, says nothing of it.
        """
        if track is None or until_s <= from_s:
            return None
        total = track.part(from_s, until_s).total()
        enough_s = min(self._step_s, until_s - from_s) / 2
        return total if total.known_s > 0 and total.known_s >= enough_s else None

    def _scaling(self) -> Scaling | None:
        import numpy as np

        ready = self._ready
        if ready is None or ready.total().mean is None:
            return None
        changes = ready.changes()
        waited = None
        if self._desired is not None and self._current is not None:
            at = np.unique(np.concatenate([self._desired.at_s, self._current.at_s]))
            short = self._desired.at(at) > self._current.at(at)
            length = np.diff(np.append(at, self._end_s))
            waited = float(length[short].sum()), int((np.diff(short.astype(int), prepend=0) == 1).sum())
        return Scaling(
            ups=sum(each.after > each.before for each in changes),
            downs=sum(each.after < each.before for each in changes),
            turns=ready.turns(),
            desired_turns=None if self._desired is None else self._desired.turns(),
            peak=float(np.nanmax(ready.values)),
            mean=float(ready.total().mean or 0.0),
            waited_s=None if waited is None else waited[0],
            waits=None if waited is None else waited[1],
        )

    def _paid(self, power: Track | None) -> Paid | None:
        held, of = self._held
        if held is None:
            return None
        gpus, price = self._terms.gpus_per_replica, self._terms.gpu_hour_price
        total = held.total()
        hours = total.value * gpus / S_PER_HOUR
        # What was answered while nobody knows the replicas is left out, as they are.
        spans = [(-float("inf"), float("inf"), 1.0), *((since, until, -1.0) for since, until in held.unknown())]
        answered = [(sign, *self._requests.ended_between(since, until)) for since, until, sign in spans]
        ended, tokens = (sum(each[0] * each[place] for each in answered) for place in (1, 2))
        since, until, signs = zip(*spans, strict=True)
        kept = self._requests.between(since, until).within[-1]
        energy = None if power is None else power.total()
        return Paid(
            gpu_hours=hours,
            of=of,
            known_s=total.known_s,
            ready_gpu_hours=None if self._ready is None else self._ready.total().value * gpus / S_PER_HOUR,
            cost=None if price is None else price * hours,
            requests=ended,
            tokens=tokens if self._requests.tokens_known else None,
            within=float((kept * signs).sum()) if self._requests.slos else None,
            idle_share=self._idle_share(),
            energy_wh=None if energy is None or not energy.known_s else energy.value / S_PER_HOUR,
            energy_known_s=0.0 if energy is None else energy.known_s,
        )

    def _idle_share(self) -> float | None:
        """Of the readings of single replicas, those without a request at work."""
        import polars as pl

        name = self._series.first(names.RUNNING)
        if name is None:
            return None
        since, until = (self._series.clock.wall_at(at) + self._series.offset_ns for at in (0.0, self._end_s))
        inside = (pl.col("t_ns") >= since) & (pl.col("t_ns") < until)
        found: float | None = self._series.rows(name).filter(inside).select((pl.col("value") == 0).mean()).item()
        return found

    def _findings(self, wanted: Track | None, gauges: Mapping[str, Track]) -> Iterator[Finding]:
        series = self._series
        in_flight = [gauges[name] for name in ("running", "waiting") if name in gauges]
        yield from closed_loop(self._levels, self._end_s, in_flight, self._ready)
        yield from failed_scalers(series, self._desired)
        yield from frozen_metrics(series, self._desired, gauges.get("running"))
        yield from blind_conditions(series, wanted, self._ready)
        told = ((names.DESIRED, self._desired), (names.CURRENT, self._current), (names.READY, self._ready))
        tracks = {series.first(several) or several[0]: track for several, track in told}
        yield from gaps(tracks, self._end_s)
        if series.uncertainty_s is None:
            yield Finding("clock_unknown")
        elif series.uncertainty_s > max(1.0, self._step_s / 2):
            yield Finding("clock_coarse", {"uncertainty_s": series.uncertainty_s, "step_s": self._step_s})
        cut = [each for each in self._levels if each.state != "done"]
        if cut:
            yield Finding("not_done", {"levels": len(cut), "of": len(self._levels)})


def _as_track(needed: Needed, end_s: float) -> Track:
    return Track(needed.edges_s[:-1], needed.replicas.astype(float), end_s)


def _followed(wanted: Track, ready: Track) -> Elasticity | None:
    """Ready replicas against the needed ones, over the time in which both are known."""
    import numpy as np

    at = np.unique(np.concatenate([wanted.at_s, ready.at_s]))
    values: Any = np.array([wanted.at(at), ready.at(at)])
    length = np.diff(np.append(at, min(wanted.end_s, ready.end_s)))
    known = ~np.isnan(values).any(axis=0) & (length > 0)
    if not known.any():
        return None
    ends = np.cumsum(length[known])
    starts = ends - length[known]
    needed, there = np.rint(values[:, known]).astype(np.int64)
    return elasticity((starts, needed), (starts, there), float(ends[-1]))
