"""What a request took on each side: energy, time of GPUs and CPU cores, and money; by load, over the runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpusize.analysis.compare.differences import ALPHA, difference
from gpusize.analysis.compare.figures import SPENT, Figure, figure
from gpusize.analysis.compare.matching import Place, Turns
from gpusize.analysis.compare.student import t_quantile
from gpusize.analysis.per_request import gpus_that_told, power_w

__all__ = ["COSTS", "Spent", "over_runs", "priced", "spent", "untold"]

_PER: Final = 1e6
_S_PER_H: Final = 3600.0
COSTS: Final = {
    "GPU time per request": "cost per million requests",
    "GPU time per output token": "cost per million output tokens",
}
"""What follows from a price of GPUs, by the figure that it is a multiple of."""


@dataclass(frozen=True, slots=True)
class Spent:
    """One figure of one side at one load.

    Attributes:
        side, load, figure: names.
        unit: of ``value``; of costs the currency, empty where nobody said one.
        value: of several runs the geometric mean.
        low, high: its 95 % interval over runs, Student's t on the logarithm; NaN with one run.
        spread: relative standard deviation from run to run; NaN likewise.
        runs: runs that have the figure.
        ratio: over the first side at the same load; NaN where that has none. Of the first side 1.
        ratio_low, ratio_high: its 95 % interval, as that of a difference.
    """

    side: str
    load: str
    figure: str
    unit: str
    value: float
    low: float
    high: float
    spread: float
    runs: int
    ratio: float = math.nan
    ratio_low: float = math.nan
    ratio_high: float = math.nan


def spent(sides: Sequence[str], places: Sequence[Place], in_turns: Mapping[str, Turns]) -> list[Spent]:
    """What a request took, by load, side and figure; without the figures that not every run of a side has there.

    Args:
        sides: their names, in the order of the places' levels.
        places: loads that all have.
        in_turns: by side but the first, whether its runs make pairs with those of the first.
    """
    found = []
    for place in places:
        for name in SPENT:
            of = figure(name)
            values = [[None if level is None else of.measure(level) for level in side] for side in place.levels]
            known = [all(each is None or of.is_known(each) for each in side) for side in values]
            for k, side in enumerate(sides):
                measured = [each for each in values[k] if each is not None]
                # A run without the figure is another machine, or was watched otherwise: no mean is taken over the rest.
                if not measured or not known[k]:
                    continue
                one = over_runs(side, place.name, of, [each.value for each in measured])
                if k == 0:
                    found.append(replace(one, ratio=1.0, ratio_low=1.0, ratio_high=1.0))
                    continue
                if not known[0]:
                    found.append(one)
                    continue
                against = difference(side, place.name, of, values[0], values[k], paired=in_turns.get(side) != "no")
                ratio, low, high = (1 + each for each in (against.change, against.low, against.high))
                found.append(replace(one, ratio=ratio, ratio_low=low, ratio_high=high))
    return found


def untold(sides: Sequence[str], places: Sequence[Place]) -> dict[str, str]:
    """By side, why its energy is not known; without any where nobody's is."""
    found: dict[str, str] = {}
    known = False
    for k, side in enumerate(sides):
        visits = [visit for place in places for level in place.measured(k) for visit in level.visits()]
        lacking = [visit for visit in visits if power_w(visit) is None or not visit.gpus]
        told = {gpus_that_told(visit) for visit in visits}
        known = known or told != {0}
        if lacking:
            found[side] = _why_untold(gpus_that_told(lacking[0]), lacking[0].gpus)
    return found if known else {}


def _why_untold(told: int, behind: int) -> str:
    if not told:
        return "no GPU told of its power"
    if not behind:
        return "nobody said how many GPUs stand behind its target"
    return f"{told} GPU{'s' if told != 1 else ''} for the {behind} behind its target told of their power"


def priced(found: Sequence[Spent], prices: Mapping[str, float], currency: str, first: str) -> list[Spent]:
    """What requests and tokens cost, from the time that GPUs were held for them.

    Args:
        found: as ``spent`` gives it.
        prices: by side, of one GPU for an hour; a side without one has no cost.
        currency: of the prices.
        first: the side that ratios are to.
    """
    made = []
    for each in found:
        if each.figure in COSTS and each.side in prices:
            per = prices[each.side] / _S_PER_H * _PER
            over = prices[each.side] / prices[first] if first in prices else math.nan
            made.append(
                replace(
                    each,
                    figure=COSTS[each.figure],
                    unit=currency,
                    value=per * each.value,
                    low=per * each.low,
                    high=per * each.high,
                    ratio=over * each.ratio,
                    ratio_low=over * each.ratio_low,
                    ratio_high=over * each.ratio_high,
                )
            )
    return made


def over_runs(side: str, load: str, of: Figure, values: Sequence[float]) -> Spent:
    """Values of runs as one: geometric mean, interval and spread, without a ratio."""
    logs = [math.log(value) for value in values]
    n = len(logs)
    mean = sum(logs) / n
    if n < 2:
        return Spent(side, load, of.name, of.unit, math.exp(mean), math.nan, math.nan, math.nan, n)
    deviation = math.sqrt(sum((each - mean) ** 2 for each in logs) / (n - 1))
    half = t_quantile(1 - ALPHA / 2, n - 1) * deviation / math.sqrt(n)
    ends = (math.exp(max(mean - half, -700.0)), math.exp(min(mean + half, 700.0)))
    return Spent(side, load, of.name, of.unit, math.exp(mean), *ends, math.expm1(deviation), n)
