"""Where the levels of one GPU count begin to miss an SLO, on the axis of their load, and how sure that is.

The load is requests in flight for closed loops and requests per second for open ones. Levels that have records are
judged by attainment, as in the crossing method; imported ones by the percentile that the other tool stored, requests
that failed taken for endless.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from gpusize.analysis.broken import failed_of
from gpusize.analysis.failed_requests import quantile_of_all, share_within, told_requests
from gpusize.analysis.throughput import (
    KEPT_UP,
    is_brief,
    kept_up_in_time,
    of_another_tool,
    only_in_flight,
    overrun_rate,
    rates_of,
    request_rate,
    throughput,
)
from gpusize.estimate.crossing import effective_n
from gpusize.estimate.isotonic import Z_95, crossing_point, decreasing, wilson

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData
    from gpusize.analysis.slo import Slo

__all__ = ["SloLimit", "kept_by_load", "load_of", "slo_limit"]

NOISE: Final = 0.1
"""A target that answers less than it kept up with, by no more than this share, answers as much."""
LEAST_GAP: Final = 0.01
"""Then it carries hardly more."""
FAILED: Final = -1.0
"""How far a level is from keeping a bound that failed requests break: as one that takes twice as long."""


@dataclass(frozen=True, slots=True)
class SloLimit:
    """The load up to which an SLO is kept.

    Attributes:
        kind: ``found``; ``above``: the largest level keeps it; ``below``: the smallest misses it; ``unknown``.
        at: the load; of ``above`` and ``below`` that of the level.
        se: its standard error, of the shares and of the gap between the two levels around it; 0 unless ``found``.
        left, right: the levels around it.
        by_chance: of ``below``, whether the smallest level misses it by no more than chance allows (95 %).
    """

    kind: Literal["found", "above", "below", "unknown"]
    at: float = math.nan
    se: float = 0.0
    left: float = math.nan
    right: float = math.nan
    by_chance: bool = False


@dataclass(frozen=True, slots=True)
class _Kept:
    """A level by how well it keeps the SLO: ``kept`` falls with the load, and is enough from ``enough`` on.

    ``most`` is what came out of it where a rate was not kept up with: no rate above that can be.
    """

    load: float
    kept: float
    enough: float
    weight: float
    se: float
    most: float = math.inf


def load_of(level: LevelData) -> float | None:
    """A level's load: requests in flight, or requests per second, also where a rate was one of conversations.

    Of another tool's requests as many per second as it sent: perf_analyzer sends 8 where a Poisson rate of 10 is asked.
    """
    if level.concurrency is not None:
        return level.concurrency
    sent = throughput(level).offered if of_another_tool(level) else None
    return float(f"{sent:.4g}") if sent else request_rate(level)


def slo_limit(levels: Sequence[LevelData], slo: Slo | None) -> SloLimit:
    """Where levels of one count and one kind of loop begin to miss an SLO.

    Without an SLO, where an open loop is no longer kept up with. Interrupted levels count where they miss it only.
    """
    points = _monotone([each for level in levels if (each := _judged(level, slo)) is not None])
    if not points:
        return SloLimit("unknown")
    loads = [p.load for p in points]
    falling = [p.kept - p.enough for p in points]
    if falling[0] < 0:
        return SloLimit("below", loads[0], by_chance=falling[0] + Z_95 * points[0].se >= 0)
    at = crossing_point(loads, falling, 0.0)
    if at is None:
        return SloLimit("above", loads[-1])
    k = next(i for i, value in enumerate(falling) if value < 0)
    right = loads[k]
    if points[k].most >= (1 - NOISE) * loads[k - 1]:
        # Of more than it can do a target answers what it can; one that does far less is overrun.
        right = min(right, max(points[k].most, (1 + LEAST_GAP) * loads[k - 1]))
    at = min(at, right)
    gap, drop = right - loads[k - 1], falling[k - 1] - falling[k]
    share = (at - loads[k - 1]) / gap
    of_share = math.hypot(points[k - 1].se * (1 - share), points[k].se * share) / drop * gap
    # Between two levels the curve may fall anywhere: a uniform distribution over the gap.
    se = math.hypot(min(of_share, gap), gap / math.sqrt(12))
    return SloLimit("found", at, se, loads[k - 1], right)


def kept_by_load(levels: Sequence[LevelData], slo: Slo) -> list[tuple[float, float]]:
    """(load, how the SLO is kept) of levels of one count and one kind of loop, ascending and non-increasing.

    The share of the requests that keep it, which of imported percentiles is straight between these; of a mean 1 less
    what it is over its bound.
    """
    points = []
    for level in levels:
        point = _judged(level, slo)
        if point is not None:
            told = slo.kind == "percentile" and point.enough != slo.share
            points.append(replace(point, kept=share_within(level, slo), enough=slo.share) if told else point)
    return [(point.load, point.kept) for point in _monotone(points)]


def _judged(level: LevelData, slo: Slo | None) -> _Kept | None:
    load = load_of(level)
    if load is None or level.state not in ("done", "interrupted"):
        return None
    found = _behind(level, load, slo) or (None if slo is None else _by_slo(level, slo, load))
    if found is None and slo is None and level.concurrency is None and (level.imported or not is_brief(level)):
        found = _Kept(load, 1.0, KEPT_UP, 1.0, 0.0)
    if found is None or (level.state == "interrupted" and found.kept >= found.enough):
        return None
    answered = overrun_rate(level)
    # What failed, as it waited for too long, might have been answered at a lighter load.
    return found if answered is None or _fails(level) else replace(found, most=answered)


def _behind(level: LevelData, load: float, slo: Slo | None) -> _Kept | None:
    """A rate that was not kept up with, which an import's percentiles do not show.

    With an SLO it says how many requests may fail: these leave no answer, and no queue either.
    """
    if level.concurrency is not None or kept_up_in_time(level) or (not level.imported and is_brief(level)):
        return None
    offered, answered = (load, rates_of(level).achieved) if level.imported else throughput(level)[:2]
    failed = _failed_share(level) if slo is not None else 0.0
    if not offered or answered is None or answered >= KEPT_UP * (1 - failed) * offered or only_in_flight(level):
        return None
    return _Kept(load, answered / offered, KEPT_UP, 1.0, 0.0)


def _fails(level: LevelData) -> bool:
    """Whether more requests failed than a target that keeps up may leave unanswered."""
    return _failed_share(level) > 1 - KEPT_UP


def _failed_share(level: LevelData) -> float:
    if level.imported:
        ended, failed = told_requests(level)
    else:
        failed, ended = failed_of(level.outcomes())
    return failed / ended if ended else 0.0


def _by_slo(level: LevelData, slo: Slo, load: float) -> _Kept | None:
    share, n = level.attainment(slo) if slo.kind != "mean" else (math.nan, 0)
    if n:
        low, high = wilson(share, effective_n(level, slo, share, n))
        return _Kept(load, share, slo.share, float(n), (high - low) / (2 * Z_95))
    bound = slo.bound_s
    if bound is None or slo.op not in ("<=", "<"):
        return None
    value = level.mean(slo.metric) if slo.kind == "mean" else quantile_of_all(level, slo.metric, slo.share, bound)
    if value is None or not value > 0:
        return None
    kept = 1 - value / bound
    if math.isinf(value) or (kept >= 0 and level.met(slo) is False):
        # Requests that failed are endless: no bound is kept, however fast the others are.
        kept = FAILED
    return _Kept(load, kept, 0.0, 1.0, 0.0)


def _monotone(points: Sequence[_Kept]) -> list[_Kept]:
    """One point per load, in its order, made non-increasing."""
    first: dict[float, _Kept] = {}
    for p in sorted(points, key=lambda p: (p.load, -p.weight)):
        first.setdefault(p.load, p)
    ordered = list(first.values())
    smooth = decreasing([p.kept - p.enough for p in ordered], [p.weight for p in ordered])
    return [replace(p, kept=value + p.enough) for p, value in zip(ordered, smooth, strict=True)]
