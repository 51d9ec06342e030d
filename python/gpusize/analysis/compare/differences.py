"""Differences between two systems: an interval, a verdict, and what could have been seen.

The unit is the run: requests of one run share a start, a cache, a neighbour on the machine, so that a thousand of them
are not a thousand measurements of the system. With two runs a side or more, the interval is Student's t over runs
(Welch's degrees of freedom), or over pairs where the runs were made in turns. What varies inside a run, by blocks of
time, has no say in it: repeats send the same rows, so that they differ by less. With one run on a side only the two
runs are compared, by those blocks, and no verdict is given on the systems.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from gpusize.analysis.compare.figures import Figure, Measured
from gpusize.analysis.compare.student import t_above, t_quantile

__all__ = ["ALPHA", "MARGIN", "Design", "Difference", "Verdict", "difference", "with_verdicts"]

ALPHA: Final = 0.05
"""Probability of any wrong "better" or "worse" in a comparison of equal systems."""
MARGIN: Final = 0.02
"""Relative differences within it do not matter, unless said otherwise."""
SHARE_MARGIN: Final = 0.1
"""Of the margin, for shares: 2 % of a time is nothing, 2 points of errors are."""
POWER: Final = 0.8
"""Probability to see the smallest difference that could have been seen."""

Design = Literal["runs", "pairs", "within"]
Verdict = Literal["better", "worse", "equivalent", "no evidence", "within these two runs"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure at one load, of two sides.

    Attributes:
        side: name of b; a is the first side.
        load: name of the load.
        figure: name of the figure.
        unit: of ``a`` and ``b``.
        better: which way is better.
        scale: ``ratio``: ``change`` and its ends are relative (0.05 is 5 % more); ``share``: they are absolute.
        a, b: the figure on each side; of several runs the geometric mean (of shares the mean).
        change: from a to b. NaN where a side has no value.
        low, high: 95 % interval of the change; NaN where nothing says how sure it is.
        p: of the change being 0, two-sided; NaN likewise.
        detectable: smallest change that would have been seen with a probability of 80 %.
        runs: runs of each side that have the figure; in pairs, those whose partner has it too.
        design: what the interval is over: ``runs``, ``pairs`` of runs made in turns, or time ``within`` two runs.
        verdict: on b against a.
        standard_error: of the change on the scale of the interval: logarithm, or share.
        freedom: degrees of freedom.
        lacking: runs of each side that were measured at the load and do not have the figure: a run in which every
            request failed has no runtime.
        hidden: how much further the change may be than was measured, where one side failed more requests than the other
            (``gpusize.analysis.compare.survivors.hidden``); a verdict holds at both ends.
    """

    side: str
    load: str
    figure: str
    unit: str
    better: str
    scale: str
    a: float
    b: float
    change: float
    low: float
    high: float
    p: float
    detectable: float
    runs: tuple[int, int]
    design: Design
    verdict: Verdict = "no evidence"
    standard_error: float = math.nan
    freedom: float = math.nan
    lacking: tuple[int, int] = (0, 0)
    hidden: float = 0.0

    @property
    def point(self) -> float:
        """The change on the scale of the interval."""
        return math.log1p(self.change) if self.scale == "ratio" else self.change

    @property
    def sure_p(self) -> float:
        """``p``, of the end that is nearer to no change; 1 where the ends are on either side of it."""
        if not self.hidden or self.point * self.hidden >= 0 or math.isnan(self.p):
            return self.p
        left = abs(self.point) - abs(self.hidden)
        return 2 * t_above(left / self.standard_error, self.freedom) if left > 0 else 1.0

    def above(self, change: float, *, hidden: bool = False) -> float:
        """Probability (one-sided p) of what was measured, or more, if the true change were at most ``change``.

        Args:
            change: relative, of shares in points.
            hidden: whether at the other end of what failures may hide.
        """
        if not self.standard_error > 0:
            return math.nan
        ratio = self.scale == "ratio"
        if ratio and change <= -1:
            return 0.0
        point = self.point + (self.hidden if hidden else 0.0)
        if math.isinf(point):
            return 0.0 if point > 0 else 1.0
        bound = math.log1p(change) if ratio else change
        return t_above((point - bound) / self.standard_error, self.freedom)


def difference(
    side: str,
    load: str,
    figure: Figure,
    a: Sequence[Measured | None],
    b: Sequence[Measured | None],
    *,
    paired: bool = False,
) -> Difference:
    """The difference of one figure at one load, without a verdict yet.

    Args:
        side: name of b.
        load: name of the load.
        figure: what was measured.
        a, b: what each run of a side says, in the order of the runs; None for a run that was not measured there.
        paired: whether the runs were made in turns, so that the k-th ones make a pair. Only whole pairs are compared:
            the other half of a pair was measured at another time.
    """
    ratio = figure.scale == "ratio"
    found = [[each if each is not None and figure.is_known(each) else None for each in side] for side in (a, b)]
    if paired:
        whole = [None not in pair for pair in zip(*found, strict=True)]
        found = [[each for each, both in zip(side, whole, strict=True) if both] for side in found]
    known = [[each for each in side if each is not None] for side in found]
    runs = (len(known[0]), len(known[1]))
    lacking = [sum(each is not None and not figure.is_known(each) for each in side) for side in (a, b)]
    scaled = [[math.log(each.value) if ratio else each.value for each in side] for side in known]
    means = [sum(side) / len(side) if side else math.nan for side in scaled]
    point = means[1] - means[0]
    design: Design = "within" if min(runs) < 2 else "pairs" if paired else "runs"
    error, freedom = _error(design, known, scaled, share=not ratio)
    a_mean, b_mean = (math.exp(mean) if ratio else mean for mean in means)
    change = _shown(point, ratio=ratio)
    made = Difference(
        *(side, load, figure.name, figure.unit, figure.better, figure.scale),
        a_mean,
        b_mean,
        change,
        low=math.nan,
        high=math.nan,
        p=math.nan,
        detectable=math.nan,
        runs=runs,
        design=design,
        lacking=(lacking[0], lacking[1]),
    )
    if math.isnan(point) or not (error > 0 and freedom > 0):
        return made
    t = t_quantile(1 - ALPHA / 2, freedom)
    return replace(
        made,
        low=_shown(point - t * error, ratio=ratio),
        high=_shown(point + t * error, ratio=ratio),
        p=2 * t_above(abs(point) / error, freedom),
        detectable=_shown((t + t_quantile(POWER, freedom)) * error, ratio=ratio),
        standard_error=error,
        freedom=freedom,
    )


def _shown(value: float, *, ratio: bool) -> float:
    return math.expm1(min(value, 700.0)) if ratio else value


def _error(
    design: Design, known: Sequence[Sequence[Measured]], scaled: Sequence[Sequence[float]], *, share: bool
) -> tuple[float, float]:
    """(standard error of the difference, degrees of freedom); NaN where nothing says it."""
    inside = [_inside(side) for side in known]
    # No failure in any run is not no failure for ever; two figures that are equal to the last digit say nothing either.
    least = [
        _or_none(variance) if share or len(set(side)) == 1 else 0.0
        for side, (variance, _) in zip(scaled, inside, strict=True)
    ]
    if design == "pairs":
        n = len(scaled[0])
        changes = [b - a for a, b in zip(*scaled, strict=True)]
        return math.sqrt(max(_variance(changes) / n, sum(least))), n - 1
    if design == "runs":
        variances = [max(_variance(side) / len(side), floor) for side, floor in zip(scaled, least, strict=True)]
        return math.sqrt(sum(variances)), _welch(variances, [len(side) - 1 for side in scaled])
    if any(not side for side in known) or any(math.isnan(variance) for variance, _ in inside):
        return math.nan, math.nan
    variances = [variance for variance, _ in inside]
    return math.sqrt(sum(variances)), _welch(variances, [blocks - 1 for _, blocks in inside])


def _inside(side: Sequence[Measured]) -> tuple[float, float]:
    """(variance of the side's mean by the errors inside its runs, blocks of all of them); NaN if one has no error."""
    n = len(side)
    return (sum(each.error**2 for each in side) / n**2 if n else math.nan), sum(each.blocks for each in side)


def _or_none(variance: float) -> float:
    return 0.0 if math.isnan(variance) else variance


def _variance(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _welch(variances: Sequence[float], freedoms: Sequence[float]) -> float:
    """Degrees of freedom of the sum of two variances (Welch 1947)."""
    parts = [v * v / f for v, f in zip(variances, freedoms, strict=True) if v > 0 and f > 0]
    return sum(variances) ** 2 / sum(parts) if parts else math.nan


def with_verdicts(differences: Sequence[Difference], *, margin: float = MARGIN) -> list[Difference]:
    """Verdicts on all differences of a comparison together.

    ``equivalent``: the whole interval lies within the margin (of shares a tenth of it), either way, which is two
    one-sided tests at 2.5 % each. ``better`` and ``worse``: the change is not 0 at 5 % for all differences together
    (Holm 1979). Where failures may hide a change, it has to be so at both ends. Between two single runs none is given.
    """
    tested = sorted((k for k, each in enumerate(differences) if _is_tested(each)), key=lambda k: differences[k].sure_p)
    sure: set[int] = set()
    for place, k in enumerate(tested):
        if differences[k].sure_p > ALPHA / (len(tested) - place):
            break
        sure.add(k)
    return [replace(each, verdict=_verdict(each, margin, sure=k in sure)) for k, each in enumerate(differences)]


def _is_tested(each: Difference) -> bool:
    return each.design != "within" and not math.isnan(each.p)


def _verdict(each: Difference, margin: float, *, sure: bool) -> Verdict:
    if each.design == "within":
        return "within these two runs"
    ratio = each.scale == "ratio"
    within = margin if ratio else SHARE_MARGIN * margin
    low = 1 / (1 + within) - 1 if ratio else -within
    lower, upper = _moved(each.low, min(0.0, each.hidden)), _moved(each.high, max(0.0, each.hidden))
    if lower > low and upper < within:
        return "equivalent"
    if not sure:
        return "no evidence"
    return "better" if (each.change < 0) == (each.better == "less") else "worse"


def _moved(change: float, hidden: float) -> float:
    """A relative change, further by what failures may hide."""
    return change if not hidden else math.expm1(min(math.log1p(change) + hidden, 700.0))
