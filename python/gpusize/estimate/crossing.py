"""The crossing method: where measured attainment falls to the share that the SLO asks for.

Attainment per level is made non-increasing in concurrency (pool adjacent violators, weighted by requests), joined by
straight lines, and read off at the SLO's share. Between the last level that keeps it and the first that misses it the
answer is an interpolation; beyond what was measured there is none, only a bound and the levels to measure next.

    C = concurrency where attainment falls to the share       GPUs = users / C x tested GPUs

Of users with random pauses those count that are in flight at C (``users_in_flight``).

The interval makes no assumption on the curve but that it falls: ``gpus_low`` follows from the smallest level above
the crossing that surely misses the SLO, ``gpus_high`` from the largest level below it that surely keeps it. "Surely" is
a 95 % Wilson interval per level with an effective number of requests: requests of one batch or one slot resemble
each other, so the variance of the attainment between batches of time is compared with the binomial one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from gpusize.estimate.isotonic import crossing_point, decreasing, wilson
from gpusize.estimate.question import IN_FLIGHT, SCALE_OUT, Estimate, Question, binding, gpus_text, scaled, whole_gpus
from gpusize.estimate.users_in_flight import UsersInFlight

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData
    from gpusize.analysis.slo import Slo

__all__ = ["Crossing", "effective_n"]

BATCHES: Final = 16
MIN_PER_BATCH: Final = 10
FALLING: Final = "attainment does not rise with the concurrency, and is straight between measured levels"


@dataclass(frozen=True, slots=True)
class _Point:
    concurrency: int
    share: float
    n: int
    low: float
    high: float
    interrupted: bool


class Crossing:
    """The method ``crossing``."""

    name = "crossing"
    needs_counts: Literal["one", "all"] = "one"

    def answer(self, levels: Sequence[LevelData], question: Question) -> Estimate:
        """Answer for all SLOs. See ``Method``."""
        return binding([self._one(levels, question, slo) for slo in question.slos])

    def _one(self, levels: Sequence[LevelData], question: Question, slo: Slo) -> Estimate:
        users = UsersInFlight.of(levels, question)
        loop = users.assumed or IN_FLIGHT
        base = Estimate(self.name, levels[0].gpus, question.users, str(slo), assumptions=(FALLING, SCALE_OUT, loop))
        if slo.kind == "mean":
            return replace(base, reason="a mean has no attainment; ask for a percentile or use the slope method")
        points, warnings = _points(levels, slo)
        if not points:
            return replace(base, reason=f"no level has data for {slo}", warnings=tuple(warnings))
        falling = decreasing([p.share for p in points], [float(p.n) for p in points])
        base = replace(base, warnings=(*warnings, *_few(points, slo)), details=_details(points, falling, slo))
        x = [float(p.concurrency) for p in points]
        if falling[0] < slo.share:
            return _below(base, points, question, users)
        if falling[-1] >= slo.share:
            return _above(base, points, question, users)
        at = crossing_point(x, falling, slo.share)
        if at is None:  # both ends were just ruled out
            return replace(base, reason="the attainment does not cross the SLO")
        return _answered(base, points, falling, slo, at, question, users)


def _points(levels: Sequence[LevelData], slo: Slo) -> tuple[list[_Point], list[str]]:
    """One point per concurrency; interrupted levels only where they show that the SLO is missed."""
    found: dict[int, _Point] = {}
    warnings: list[str] = []
    for level in levels:
        c = level.concurrency
        if not c or level.state not in ("done", "interrupted"):
            warnings.append(f"concurrency {c} is left out: it was {level.state}")
            continue
        share, n = level.attainment(slo)
        if n == 0:
            warnings.append(f"concurrency {c} is left out: it has no data for {slo}")
            continue
        interrupted = level.state == "interrupted"
        if interrupted and share >= slo.share:
            warnings.append(f"concurrency {c} is left out: it was interrupted before it could miss the SLO")
            continue
        low, high = wilson(share, effective_n(level, slo, share, n))
        point = _Point(c, share, n, low, high, interrupted)
        # A complete level at the same concurrency knows more than an interrupted one.
        if c not in found or found[c].interrupted:
            found[c] = point
    return [found[c] for c in sorted(found)], warnings


def effective_n(level: LevelData, slo: Slo, share: float, n: int) -> float:
    """How many independent requests the level is worth.

    The steady window of each visit is cut into batches of equal time; the variance of the attainment between them over
    the binomial one is the factor by which n is divided, never below 1. Small levels keep n: there is nothing to tell.
    """
    visits = level.visits()
    if level.imported or n < BATCHES * MIN_PER_BATCH * len(visits) or not 0 < share < 1:
        return float(n)
    squares, batches = 0.0, 0
    for visit in visits:
        counted = visit.kept.once(("batches", slo), partial(_batches, visit, slo))
        if counted is None:
            return float(n)
        # Each term has the expectation share (1 - share) when requests are independent.
        squares += sum((good - size * share) ** 2 / size for good, size in counted)
        batches += len(counted)
    if batches <= len(visits):
        return float(n)
    inflation = squares / (batches - 1) / (share * (1 - share))
    return n / max(1.0, inflation)


def _batches(visit: LevelData, slo: Slo) -> list[tuple[int, int]] | None:
    """How many requests of each batch keep an SLO, of how many; None where the visit says nothing about it."""
    import polars as pl

    found = visit.judged(slo)
    if found is None:
        return None
    start, end = visit.window()
    width = max(1, (end - start) // BATCHES)
    own, rows = found
    # Calls inside requests have no due time; one that was never made has no place in time at all.
    at = pl.col("due_ns" if "due_ns" in rows.collect_schema() else "start_ns")
    counted = (
        rows.filter(at.is_not_null())
        .select(((at - start) // width).alias("batch"), own.within_expr().alias("within"))
        .group_by("batch")
        .agg(pl.col("within").sum().alias("good"), pl.col("within").count().alias("n"))
        .filter(pl.col("n") > 0)
        # The order in which rounding errors add up.
        .sort("batch")
        .collect(engine="streaming")
    )
    return [(good, size) for _, good, size in counted.iter_rows()]


def _answered(
    base: Estimate,
    points: Sequence[_Point],
    falling: Sequence[float],
    slo: Slo,
    at: float,
    question: Question,
    users: UsersInFlight,
) -> Estimate:
    raw = scaled(users.most(at), at, base.tested_gpus)
    per = question.gpus_per_replica
    first_missing = next(k for k, value in enumerate(falling) if value < slo.share)
    left, right = points[first_missing - 1].concurrency, points[first_missing].concurrency
    missing = next((p.concurrency for p in points[first_missing:] if p.high < slo.share), None)
    keeping = [p.concurrency for p in points[:first_missing] if p.low >= slo.share]
    warnings = list(base.warnings)
    odd = [p.concurrency for p in points[:first_missing] if p.high < slo.share]
    odd += [p.concurrency for p in points[first_missing:] if p.low >= slo.share]
    if odd:
        which = ", ".join(str(c) for c in odd)
        warnings.append(f"concurrency {which} surely contradicts the levels around it; attainment does not simply fall")
    if right > 1.5 * left and right - left > 1:
        warnings.append(f"nothing was measured between concurrency {left} and {right}, where the answer lies")
    if points[first_missing].interrupted:
        warnings.append(f"concurrency {right} was interrupted; it bounds the answer from above")
    return replace(
        base,
        gpus=whole_gpus(raw, per),
        gpus_raw=raw,
        gpus_low=None if missing is None else whole_gpus(scaled(users.mean(missing), missing, base.tested_gpus), per),
        gpus_high=whole_gpus(scaled(users.at_most(max(keeping)), max(keeping), base.tested_gpus), per)
        if keeping
        else None,
        capacity_concurrency=users.in_flight(at),
        warnings=tuple(warnings),
        next_levels=_between(left, right, at),
        details={**base.details, "bracket": [left, right]}
        | ({"measured_pause": users.measured_text, "users_at_edge": at} if users.measured_s > 0 else {}),
    )


def _below(base: Estimate, points: Sequence[_Point], question: Question, users: UsersInFlight) -> Estimate:
    """The smallest level misses the SLO already: more GPUs than its scaling says."""
    lowest = points[0].concurrency
    bound = whole_gpus(scaled(users.mean(lowest), lowest, base.tested_gpus), question.gpus_per_replica)
    if lowest == 1:
        reason = "a single request in flight already misses the SLO; by this model no number of GPUs meets it"
        return replace(base, reason=reason)
    reason = (
        f"beyond what was measured: concurrency {lowest}, the smallest level, misses the SLO; "
        f"at least {gpus_text(bound)} {'is' if bound == 1 else 'are'} needed"
    )
    follow = (max(1, lowest // 4), max(2, lowest // 2))
    return replace(base, reason=reason, gpus_low=bound, outside_tested_range=True, next_levels=follow)


def _above(base: Estimate, points: Sequence[_Point], question: Question, users: UsersInFlight) -> Estimate:
    """The largest level keeps the SLO still: no more GPUs than its scaling says."""
    highest = points[-1].concurrency
    bound = whole_gpus(scaled(users.at_most(highest), highest, base.tested_gpus), question.gpus_per_replica)
    reason = (
        f"beyond what was measured: concurrency {highest}, the largest level, meets the SLO; "
        f"at most {gpus_text(bound)} {'is' if bound == 1 else 'are'} needed"
    )
    follow = (highest * 2, highest * 4)
    return replace(base, reason=reason, gpus_high=bound, outside_tested_range=True, next_levels=follow)


def _between(left: int, right: int, at: float) -> tuple[int, ...]:
    """The levels inside the bracket that would narrow it most: next to the answer."""
    near = {math.floor(at), math.ceil(at), (left + right) // 2}
    return tuple(sorted(c for c in near if left < c < right))


def _few(points: Sequence[_Point], slo: Slo) -> list[str]:
    """Whether a level is too small to show the SLO's share at all."""
    needed = math.ceil(slo.share / (1 - slo.share) * 3.8415) if slo.share < 1 else None
    small = [p.concurrency for p in points if needed is not None and p.n < needed]
    if not small:
        return []
    which = ", ".join(str(c) for c in small)
    return [f"too few requests at concurrency {which}: an attainment of {slo.share:.4g} takes {needed} to be sure"]


def _details(points: Sequence[_Point], falling: Sequence[float], slo: Slo) -> dict[str, Any]:
    return {
        "share": slo.share,
        "points": [
            {
                "concurrency": p.concurrency,
                "attainment": p.share,
                "monotone": value,
                "n": p.n,
                "low": p.low,
                "high": p.high,
                "interrupted": p.interrupted,
            }
            for p, value in zip(points, falling, strict=True)
        ],
    }
