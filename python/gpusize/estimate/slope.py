"""The slope method: a straight line through one percentile per level, read off at the target.

    C* = (target - intercept) / slope          GPUs = users / C* x tested GPUs

The sizing calculator's method (see ``fit``), for any percentile or mean of any time. Interrupted levels and levels
without a value are left out; for imported levels also those without LLM latency, as the calculator does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from gpusize.estimate.calculator_line import Fit, FitConfig, FitResult, capacity, fit_line, rough_gpus
from gpusize.estimate.question import IN_FLIGHT, SCALE_OUT, Estimate, Question, binding, scaled, whole_gpus

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData
    from gpusize.analysis.slo import Slo

__all__ = ["Slope", "level_value", "usable"]

LLM_P95: Final = "llm_latency_p95_s"


def usable(level: LevelData) -> bool:
    """Whether the method may look at a level: complete, and for an imported one, with both of its percentiles."""
    if level.state != "done" or not level.concurrency:
        return False
    return not level.imported or bool(level.percentiles.get(LLM_P95) and level.percentiles.get("runtime_p95_s"))


def level_value(level: LevelData, slo: Slo) -> float | None:
    """The level's percentile or mean that the SLO bounds, seconds; None where it is unknown or 0."""
    value = level.mean(slo.metric) if slo.kind == "mean" else level.quantile(slo.metric, slo.share)
    return value if value is not None and math.isfinite(value) and value > 0 else None


class Slope:
    """The method ``slope``."""

    name = "slope"
    needs_counts: Literal["one", "all"] = "one"

    def __init__(self, config: FitConfig | None = None) -> None:
        self.config = config or FitConfig()

    def answer(self, levels: Sequence[LevelData], question: Question) -> Estimate:
        """Answer for all SLOs. See ``Method``."""
        return binding([self._one(levels, question, slo) for slo in question.slos])

    def _one(self, levels: Sequence[LevelData], question: Question, slo: Slo) -> Estimate:
        gpus = levels[0].gpus
        target_s = slo.bound_s
        what = f"{'the mean' if slo.kind == 'mean' else f'p{slo.share * 100:g}'} of {slo.metric}"
        base = Estimate(self.name, gpus, question.users, str(slo))
        if slo.kind == "share" or target_s is None or slo.op not in ("<=", "<"):
            return replace(base, reason="a line is fitted to times with an upper bound only; use the crossing method")
        used = sorted((lv for lv in levels if usable(lv)), key=lambda lv: lv.concurrency or 0)
        points = [(lv, value) for lv in used if (value := level_value(lv, slo)) is not None]
        result = fit_line([lv.concurrency or 0 for lv, _ in points], [v for _, v in points], self.config)
        details = _details(points, result, target_s, question, gpus)
        assumptions = (f"{what} rises in a straight line with the concurrency", SCALE_OUT, IN_FLIGHT)
        base = replace(base, details=details, assumptions=assumptions, warnings=_left_out(levels, points))
        if result.fit is None:
            return replace(base, reason=result.reason, next_levels=_more_levels(points))
        at_target, reason = capacity(result.fit, target_s)
        if at_target is None:
            return replace(base, reason=reason)
        return _answered(base, question, result.fit, at_target, points, target_s)


def _answered(
    base: Estimate,
    question: Question,
    fit: Fit,
    at_target: float,
    points: Sequence[tuple[LevelData, float]],
    target_s: float,
) -> Estimate:
    raw = scaled(question.users, at_target, base.tested_gpus)
    tested = [lv.concurrency or 0 for lv, _ in points]
    outside = not min(tested) <= at_target <= max(tested)
    warnings = list(base.warnings)
    gone = [
        f"{c} ({value:.4g} s measured, {fit.intercept + fit.slope * c:.4g} s on the line)"
        for c, value in ((lv.concurrency or 0, value) for lv, value in points)
        if c in fit.outliers_removed
    ]
    if gone:
        warnings.append(f"the outlier rule left out concurrency {', '.join(gone)}")
    denied = [(lv.concurrency or 0, v) for lv, v in points if v > target_s and (lv.concurrency or 0) <= at_target]
    if denied:
        level, value = denied[0]
        warnings.append(
            f"the line says that {at_target:.4g} requests in flight keep {target_s:g} s, "
            f"but {value:.4g} s were measured at {level}"
        )
    above = max(tested) < at_target
    if outside:
        where = f"above the largest ({max(tested)})" if above else f"below the smallest ({min(tested)})"
        warnings.append(f"extrapolated: {at_target:.4g} requests in flight is {where} concurrency that was measured")
    follow = _toward(at_target, max(tested)) if outside else ()
    return replace(
        base,
        gpus=whole_gpus(raw, question.gpus_per_replica),
        gpus_raw=raw,
        capacity_concurrency=at_target,
        outside_tested_range=outside,
        warnings=tuple(warnings),
        next_levels=follow,
    )


def _toward(at_target: float, top: int) -> tuple[int, ...]:
    """Levels around the answer; steps towards it where it is far beyond the largest level, since lines rarely last."""
    if at_target > 4 * top:
        return (2 * top, 4 * top)
    return tuple(sorted({max(1, math.floor(at_target)), math.ceil(at_target * 1.25)}))


def _details(
    points: Sequence[tuple[LevelData, float]], result: FitResult, target_s: float, question: Question, gpus: int
) -> dict[str, Any]:
    line = result.fit or result.rejected
    removed = set(line.outliers_removed) if line else set()
    return {
        "target_s": target_s,
        "fit": result.fit.to_json() if result.fit else None,
        "rejected_fit": result.rejected.to_json() if result.rejected else None,
        "points": [
            {
                "concurrency": lv.concurrency,
                "value_s": value,
                "used": lv.concurrency not in removed,
                "rough_gpus": rough_gpus(lv.concurrency or 0, value, target_s, question.users, gpus)
                if value <= target_s
                else None,
            }
            for lv, value in points
        ],
    }


def _left_out(levels: Sequence[LevelData], points: Sequence[tuple[LevelData, float]]) -> tuple[str, ...]:
    kept = {id(level) for level, _ in points}
    texts = []
    for level in levels:
        if id(level) not in kept:
            why = f"it was {level.state}" if level.state != "done" else "it has no value for this SLO"
            if level.state == "done" and level.imported and not usable(level):
                why = "the import lacks its LLM latency or its runtime"
            texts.append(f"concurrency {level.concurrency} is left out: {why}")
    return tuple(texts)


def _more_levels(points: Sequence[tuple[LevelData, float]]) -> tuple[int, ...]:
    """Levels beyond the largest, where a line may show."""
    top = max((lv.concurrency or 0 for lv, _ in points), default=0)
    return (2 * top, 4 * top) if top else (1, 2, 4, 8)
