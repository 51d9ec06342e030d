"""A judgement of a run on replicas that came and went: its figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.analysis.slo import Slo
    from gpusize.estimate.plan.autoscale.elasticity import Elasticity
    from gpusize.estimate.plan.autoscale.judge.findings import Finding
    from gpusize.estimate.plan.autoscale.judge.needed import Needed
    from gpusize.estimate.plan.autoscale.judge.requests import Counted, Requests
    from gpusize.estimate.plan.autoscale.judge.responses import After, Response
    from gpusize.estimate.plan.autoscale.judge.track import Track

__all__ = ["Judgement", "Paid", "Scaling", "Stage", "Terms"]

SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class Terms:
    """What a run is judged by, beside its SLOs.

    Attributes:
        gpus_per_replica: GPUs of a replica.
        window_s: attainment, and what is needed, is looked at in windows of this length.
        gpu_hour_price: of one GPU for an hour; None where nobody said.
        currency: of what.
    """

    gpus_per_replica: int = 1
    window_s: float = 60.0
    gpu_hour_price: float | None = None
    currency: str = ""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stretch of the load, or the whole run.

    Attributes:
        name: its load.
        from_s: when it begins.
        until_s: when the next one does, or the run ends.
        requests: that were due in it.
        shares: of those that count, within each SLO, and within all at once; None where there is none.
        needed: replicas that it needed, the mean over the time; None where nobody knows.
        ready: replicas that were ready, the mean over the known time; None likewise.
        gpu_hours: that were paid for in the known time; None likewise.
    """

    name: str
    from_s: float
    until_s: float
    requests: float
    shares: tuple[float | None, ...]
    needed: float | None
    ready: float | None
    gpu_hours: float | None


@dataclass(frozen=True, slots=True)
class Paid:
    """What was paid for, and what came of it. All figures are of the time in which the replicas are known.

    Attributes:
        gpu_hours: of the replicas that there were, ready or not; of the ready ones, where no series has the others.
        of: name of the series that says so.
        known_s: for how long they are known.
        ready_gpu_hours: of the replicas that were ready; None where no series has them.
        cost: of ``gpu_hours``; None without a price.
        requests: that ended ok.
        tokens: of their answers; None where some do not say.
        within: requests that were due and kept all SLOs.
        idle_share: of the readings of single replicas, those without a request at work; None without any.
        energy_wh: of all GPUs; None where nobody read their power.
        energy_known_s: for how long that is known.
    """

    gpu_hours: float
    of: str
    known_s: float
    ready_gpu_hours: float | None
    cost: float | None
    requests: float
    tokens: float | None
    within: float | None
    idle_share: float | None
    energy_wh: float | None
    energy_known_s: float

    def per_gpu_hour(self, count: float | None) -> float | None:
        """So many over the GPU-hours; None where either is not known."""
        return None if count is None or not self.gpu_hours > 0 else count / self.gpu_hours

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        rates = {name: self.per_gpu_hour(getattr(self, name)) for name in ("requests", "tokens", "within")}
        return {**asdict(self), **{f"{name}_per_gpu_hour": value for name, value in rates.items()}}


@dataclass(frozen=True, slots=True)
class Scaling:
    """How the replicas moved.

    Attributes:
        ups: how often more were ready than at the reading before.
        downs: how often fewer were.
        turns: how often they began to fall after they had risen, or the other way round.
        desired_turns: the same of those that were asked for; None without a series.
        peak: the most that were ready.
        mean: replicas that were ready, over the known time.
        waited_s: time in which more were asked for than there were; None where either is not known.
        waits: in so many stretches.
    """

    ups: int
    downs: int
    turns: int
    desired_turns: int | None
    peak: float
    mean: float
    waited_s: float | None
    waits: int | None


@dataclass(frozen=True, eq=False)
class Judgement:
    """A run, judged.

    Attributes:
        run: its name.
        slos: what it is judged by.
        terms: GPUs, window and price.
        duration_s: from the start of its first level to its last record.
        requests: all of them.
        edges_s: of the windows; shape (n + 1,).
        windows: how the requests of each fared.
        stages: of the load, in order.
        whole: the run as one stage.
        responses: what followed each step of the load.
        desired, current, ready: replicas over time; None where there is no such series.
        needed: replicas that were needed; None where nobody knows, and then ``why_not`` says why.
        elasticity: of the ready replicas, over the known time; None without needed or ready ones.
        scaling: how the replicas moved; None without ready ones.
        paid: what was paid for; None where no series has replicas.
        findings: what weakens it, or explains it.
        offset_s: how far the monitoring server's clock is before ours.
        uncertainty_s: of that; None where nobody measured it.
        why_not: why nobody knows what was needed.
        gauges: what was read of single replicas and GPUs, added up or as a mean, by what it is.
        percent_factors: what makes per cent of those that are shares, by name.
    """

    run: str
    slos: tuple[Slo, ...]
    terms: Terms
    duration_s: float
    requests: Requests
    edges_s: NDArray[np.float64]
    windows: Counted
    stages: tuple[Stage, ...]
    whole: Stage
    responses: tuple[Response, ...]
    desired: Track | None
    current: Track | None
    ready: Track | None
    needed: Needed | None
    elasticity: Elasticity | None
    scaling: Scaling | None
    paid: Paid | None
    findings: tuple[Finding, ...]
    offset_s: float
    uncertainty_s: float | None
    why_not: str = ""
    gauges: Mapping[str, Track] = field(default_factory=dict)
    percent_factors: Mapping[str, float] = field(default_factory=dict)

    @property
    def keeps(self) -> bool:
        """Whether each SLO was kept by the share of all requests that it asks for."""
        return bool(self.slos) and all(
            share is not None and slo.met_by(share) for slo, share in zip(self.slos, self.whole.shares, strict=False)
        )

    @property
    def known_share(self) -> float:
        """Of its time, for which it is known what was paid for; 0 where that is known of none."""
        return 0.0 if self.paid is None or self.duration_s <= 0 else self.paid.known_s / self.duration_s

    @property
    def below(self) -> tuple[int, int]:
        """Windows in which some SLO was not kept, of those that have requests."""
        import numpy as np

        shares = self.windows.shares[:-1]
        known = self.windows.judged[-1] > 0
        targets = np.array([slo.share for slo in self.slos])[:, None]
        return int(((shares < targets).any(axis=0) & known).sum()), int(known.sum())

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types: every figure, and the courses as steps."""
        below, judged = self.below
        return {
            "schema": SCHEMA,
            "run": self.run,
            "slos": [str(slo) for slo in self.slos],
            "keeps_slos": self.keeps,
            "gpus_per_replica": self.terms.gpus_per_replica,
            "gpu_hour_price": self.terms.gpu_hour_price,
            "currency": self.terms.currency or None,
            "duration_s": self.duration_s,
            "clock": {"offset_s": self.offset_s, "uncertainty_s": self.uncertainty_s},
            "attainment": self.whole.shares[-1],
            "whole": _stage(self.whole, self.slos),
            "stages": [_stage(each, self.slos) for each in self.stages],
            "windows": {
                "window_s": self.terms.window_s,
                "below": below,
                "judged": judged,
                "edges_s": self.edges_s.tolist(),
                "due": self.windows.due.tolist(),
                "shares": [_nulls(row) for row in self.windows.shares[:-1]],
                "all_shares": _nulls(self.windows.shares[-1]),
            },
            "steps": [_response(each) for each in self.responses],
            "replicas": {name: _course(getattr(self, name)) for name in ("desired", "current", "ready")},
            "needed": None if self.needed is None else self.needed.to_json(),
            "needed_why_not": self.why_not or None,
            "elasticity": None if self.elasticity is None else self._elasticity(),
            "scaling": None if self.scaling is None else asdict(self.scaling),
            "paid": None if self.paid is None else self.paid.to_json(),
            "findings": [each.to_json() for each in self.findings],
        }

    def _elasticity(self) -> dict[str, Any]:
        found = asdict(self.elasticity)  # type: ignore[arg-type]
        gpus = self.terms.gpus_per_replica
        return {**found, "under_gpu_s": found["under_s"] * gpus, "over_gpu_s": found["over_s"] * gpus}


def _stage(stage: Stage, slos: Sequence[Slo]) -> dict[str, Any]:
    told = asdict(stage)
    *each, together = told.pop("shares")
    return {**told, "shares": dict(zip(map(str, slos), each, strict=True)), "all_share": together}


def _response(response: Response) -> dict[str, Any]:
    def span(after: After | None) -> dict[str, float] | None:
        return None if after is None else after._asdict()

    names = ("desired", "ready", "serving", "enough")
    return {
        **asdict(response.step),
        **{f"{name}_after_s": span(getattr(response, name)) for name in names},
        "recovery": asdict(response.recovery),
    }


def _course(track: Track | None) -> list[Mapping[str, float | None]] | None:
    """A track as steps: a reading that says the same as the one before is left out."""
    if track is None:
        return None
    found: list[Mapping[str, float | None]] = []
    for at_s, value in zip(track.at_s.tolist(), _nulls(track.values), strict=True):
        if not found or found[-1]["replicas"] != value:
            found.append({"at_s": at_s, "replicas": value})
    return found


def _nulls(values: Any) -> list[float | None]:
    return [None if math.isnan(each) else each for each in values.tolist()]
