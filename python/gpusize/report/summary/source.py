"""What a report needs to know, and nothing about where it comes from.

``ReportSource`` is the part of a result that reports read, ``SloView`` an SLO as it is shown, ``shown`` makes an
estimate safe to show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from gpusize.estimate.question import Estimate
from gpusize.report.text import clean

if TYPE_CHECKING:
    import polars as pl

__all__ = ["ReportSource", "SloView", "each_slo", "shown", "view_slo"]


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


def each_slo(estimates: Sequence[Estimate]) -> list[Estimate]:
    """The estimates, those for several SLOs replaced by their parts."""
    return [part for each in estimates for part in (each.per_slo or (each,))]


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


def shown(estimate: Estimate) -> Estimate:
    """The estimate with its texts made safe to show, as a server may have put something into them; not its details."""
    return replace(estimate, **{name: _safe(getattr(estimate, name)) for name in _TEXTS})


_TEXTS: Final = ("method", "slo", "reason", "assumptions", "warnings", "fallback", "changes", "per_slo")


def _safe(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_safe(each) for each in value)
    return clean(value) if isinstance(value, str) else shown(value) if isinstance(value, Estimate) else value
