"""What a report needs to know, and nothing about where it comes from.

``ReportSource`` is the part of a result that reports read; ``SloView`` and ``EstimateView`` are an SLO and an estimate
as they are shown. ``view_slo`` and ``view_estimate`` take the package's own objects, the dictionaries that
``estimate.json`` holds, or views.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from gpusize.report.text import clean, finite

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "EstimateView",
    "Fit",
    "ReportSource",
    "SloView",
    "each_slo",
    "headline",
    "view_estimate",
    "view_fit",
    "view_slo",
]


@runtime_checkable
class ReportSource(Protocol):
    """The part of a result that reports read."""

    @property
    def summary(self) -> pl.DataFrame:
        """One row per level visit."""

    @property
    def meta(self) -> Mapping[str, Any]:
        """The contents of ``run.json``; of the first run when several are pooled."""

    @property
    def slos(self) -> Sequence[Any]:
        """The SLOs that the summary's ``slo_<k>_*`` columns stand for, in order."""

    @property
    def path(self) -> Path | None:
        """The run folder, None for a result that is in memory only."""

    @property
    def tables(self) -> Mapping[str, pl.DataFrame]:
        """Tables of levels beside the summary, as ``Result.tables``; those that have rows."""


@dataclass(frozen=True, slots=True)
class SloView:
    """An SLO as it is shown.

    ``required`` is the share of requests that must be within the bound, None for an SLO on a mean; ``bound_s`` is in
    seconds, None when the metric is no time.
    """

    text: str
    metric: str = "runtime"
    required: float | None = None
    bound_s: float | None = None
    kind: str = "percentile"

    @property
    def percentile(self) -> float | None:
        """The percentile that the SLO bounds, 95.0 for ``p95``; None for means and shares."""
        return None if self.required is None or self.kind != "percentile" else round(100 * self.required, 6)


@dataclass(frozen=True, slots=True)
class Fit:
    """A straight line through a percentile against concurrency; slope in s per user, intercept in s."""

    slope: float
    intercept: float
    r_squared: float
    outliers: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class EstimateView:
    """An estimate as it is shown."""

    method: str
    gpus: int | None = None
    gpus_raw: float | None = None
    users: float | None = None
    slo: str = ""
    gpus_low: int | None = None
    gpus_high: int | None = None
    capacity: float | None = None
    tested_gpus: float | None = None
    outside_tested_range: bool = False
    reason: str = ""
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    next_levels: tuple[float, ...] = ()
    fit: Fit | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    per_slo: tuple[EstimateView, ...] = ()
    rate: float | None = None
    capacity_rate: float | None = None
    next_counts: tuple[float, ...] = ()
    fallback: str = ""
    changes: tuple[str, ...] = ()
    think: str = "none"
    think_s: float = 0.0

    @property
    def answered(self) -> bool:
        """Whether there is a GPU count."""
        return self.gpus is not None

    @property
    def options(self) -> list[str]:
        """The ways to come to the wanted load, in words, where the method knows several."""
        ways = [each for each in self.details.get("options") or () if isinstance(each, Mapping)]
        return [clean(f"{each.get('name')}: {each.get('text')}") for each in ways]

    @property
    def points(self) -> list[Mapping[str, Any]]:
        """The levels that the method looked at, as its details have them."""
        return [each for each in self.details.get("points") or () if isinstance(each, Mapping)]


def headline(estimates: Sequence[EstimateView]) -> EstimateView | None:
    """The first estimate, which is the default's or the one that was asked for; None when there is none.

    Where it refuses, its refusal is the answer: what another method says stands beside it.
    """
    return estimates[0] if estimates else None


def each_slo(estimates: Sequence[EstimateView]) -> list[EstimateView]:
    """The estimates, those for several SLOs replaced by their parts."""
    return [part for each in estimates for part in (each.per_slo or (each,))]


def _get(source: Any, name: str, default: Any = None) -> Any:
    """A field of an object or of a mapping; the default when it is missing or None."""
    value = source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)
    return default if value is None else value


def _texts(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    return (clean(value),) if isinstance(value, str) else tuple(clean(each) for each in value)


def view_slo(slo: Any) -> SloView:
    """An SLO object or its text as a view; text that does not parse is shown as it is."""
    if isinstance(slo, SloView):
        return slo
    if isinstance(slo, str):
        from gpusize.analysis.slo import Slo
        from gpusize.base.errors import SloError

        try:
            slo = Slo.parse(slo)
        except SloError:
            return SloView(clean(slo), "", kind="text")
    required = None if slo.kind == "mean" else float(slo.share)
    return SloView(clean(slo), slo.metric, required, slo.bound_s, slo.kind)


def view_fit(fields: Any) -> Fit | None:
    """The line in an estimate's details (``fit`` or ``rejected_fit``), None when there is none."""
    if not isinstance(fields, Mapping):
        return None
    slope, intercept = finite(fields.get("slope")), finite(fields.get("intercept"))
    if slope is None or intercept is None:
        return None
    r_squared = finite(fields.get("r_squared"))
    outliers = tuple(float(each) for each in fields.get("outliers_removed") or ())
    return Fit(slope, intercept, math.nan if r_squared is None else r_squared, outliers)


def _whole(value: object) -> int | None:
    x = finite(value)
    return None if x is None else round(x)


def view_estimate(estimate: Any) -> EstimateView:
    """An estimate of ``gpusize.estimate.methods``, or its dictionary, as a view."""
    if isinstance(estimate, EstimateView):
        return estimate
    details = _get(estimate, "details", default={})
    return EstimateView(
        method=clean(_get(estimate, "method", default="")),
        gpus=_whole(_get(estimate, "gpus")),
        gpus_raw=finite(_get(estimate, "gpus_raw")),
        users=finite(_get(estimate, "users")),
        slo=clean(_get(estimate, "slo", default="")),
        gpus_low=_whole(_get(estimate, "gpus_low")),
        gpus_high=_whole(_get(estimate, "gpus_high")),
        capacity=finite(_get(estimate, "capacity_concurrency")),
        # 0 stands for "nobody said".
        tested_gpus=finite(_get(estimate, "tested_gpus")) or None,
        outside_tested_range=bool(_get(estimate, "outside_tested_range", default=False)),
        reason=clean(_get(estimate, "reason", default="")),
        assumptions=_texts(_get(estimate, "assumptions")),
        warnings=_texts(_get(estimate, "warnings")),
        next_levels=tuple(float(each) for each in _get(estimate, "next_levels", default=())),
        fit=view_fit(details.get("fit")),
        details=details,
        per_slo=tuple(view_estimate(each) for each in _get(estimate, "per_slo", default=())),
        rate=finite(_get(estimate, "rate")),
        capacity_rate=finite(_get(estimate, "capacity_rate")),
        next_counts=tuple(float(each) for each in _get(estimate, "next_counts", default=())),
        fallback=clean(_get(estimate, "fallback", default="")),
        changes=_texts(_get(estimate, "changes")),
        think=clean(_get(estimate, "think", default="none")),
        think_s=finite(_get(estimate, "think_s")) or 0.0,
    )
