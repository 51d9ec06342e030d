"""Goodput: requests per second that keep every SLO, from when they were due and from when they were sent.

It is the part of the achieved rate that is good: the same answers, in the same window.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpusize.analysis.metrics import FROM_DUE, FROM_SENT
from gpusize.analysis.throughput import responses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from gpusize.analysis.level import LevelData
    from gpusize.analysis.slo import Slo

__all__ = ["goodput"]


def goodput(level: LevelData, slos: Sequence[Slo]) -> tuple[float | None, float | None]:
    """Answers of the achieved rate (``analysis.throughput``) that keep the bounds of all SLOs: (from due, from sent).

    Only SLOs on percentiles ask something of a single request; those on means, shares and on calls inside requests are
    passed over. From due, bounds on ``service`` and ``ttft_sent`` are held against ``runtime`` and ``ttft``; from sent,
    the other way round. A request without a metric that is asked for is not good. Of a sampled level, the share among
    the answers that have a row times all of them.

    Returns:
        Requests per second; (None, None) where no SLO asks anything of a request, or nothing is known.
    """
    nature = None if level.knows_calls else level.nature
    asked = [slo.of_request(nature) for slo in slos if slo.kind == "percentile"]
    asked = [slo for slo in asked if not slo.of_calls]
    if not asked or level.imported:
        return None, None
    due_known = level.due_known or level.concurrency is not None
    columns = {name for slo in asked for origin in (FROM_DUE, FROM_SENT) for name in _timed(slo, origin).columns}
    found = [responses(visit, *sorted(columns)) for visit in level.visits()]
    length_s = sum(each.length_s for each in found)
    if length_s <= 0:
        return None, None
    from_due, from_sent = (
        sum(each.answered * _share(each.rows, asked, origin) for each in found) for origin in (FROM_DUE, FROM_SENT)
    )
    return from_due / length_s if due_known else None, from_sent / length_s


def _timed(slo: Slo, origin: Mapping[str, str]) -> Slo:
    """The same bound, on times from another origin."""
    return replace(slo, metric=origin.get(slo.metric, slo.metric))


def _share(rows: pl.LazyFrame, slos: Sequence[Slo], origin: Mapping[str, str]) -> float:
    """Share of some answers that keep the bounds of all SLOs; 0 of none."""
    import polars as pl

    good = [_timed(slo, origin).within_expr() for slo in slos]
    within = pl.all_horizontal(*(each.fill_null(value=False) for each in good))
    return float(rows.select(within.mean()).collect(engine="streaming").item() or 0.0)
