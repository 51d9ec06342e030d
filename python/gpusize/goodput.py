"""Goodput: requests per second that keep every SLO, from when they were due and from when they were sent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpusize.levels import LevelData
    from gpusize.slo import Slo

__all__ = ["goodput"]

_FROM_DUE: Final = {"service": "runtime", "ttft_sent": "ttft"}
_FROM_SENT: Final = {"runtime": "service", "ttft": "ttft_sent"}


def goodput(level: LevelData, slos: Sequence[Slo]) -> tuple[float | None, float | None]:
    """Steady requests that ended ok within the bounds of all SLOs, over the window's length: (from due, from sent).

    Only SLOs on percentiles ask something of a single request; those on means, shares and on calls inside requests are
    passed over. From due, bounds on ``service`` and ``ttft_sent`` are held against ``runtime`` and ``ttft``; from sent,
    the other way round. A request without a metric that is asked for is not good. Of a sampled level, the share among
    its rows times all requests.

    Returns:
        Requests per second; (None, None) where no SLO asks anything of a request, or nothing is known.
    """
    asked = [slo for slo in slos if slo.kind == "percentile"]
    asked = [_of_request(level, slo) for slo in asked if slo.metric != "llm_latency" or _is_call(level)]
    length_s = level.window_s()
    if not asked or level.imported or length_s <= 0:
        return None, None
    total = sum(level.outcomes().values())
    return _rate(level, asked, _FROM_DUE, total / length_s), _rate(level, asked, _FROM_SENT, total / length_s)


def _is_call(level: LevelData) -> bool:
    """Whether a request is itself the call of a language model."""
    return level.llm and not level.knows_calls


def _of_request(level: LevelData, slo: Slo) -> Slo:
    return replace(slo, metric="service") if slo.metric == "llm_latency" and _is_call(level) else slo


def _rate(level: LevelData, slos: Sequence[Slo], origin: dict[str, str], per_s: float) -> float:
    import polars as pl

    good = [replace(slo, metric=origin.get(slo.metric, slo.metric)).within_expr() for slo in slos]
    within = pl.all_horizontal(*(each.fill_null(value=False) for each in good))
    share = level.steady().select(within.mean()).collect(engine="streaming").item()
    return float(share or 0.0) * per_s
