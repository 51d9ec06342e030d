"""What more GPUs, or more instances, give: speed-up over the smallest group, and the share of the ideal that it is.

Two loads are held against each other, and each speed-up says which:

    at the same load         as many users on N GPUs as on one
    at the same load each    N times as many users on N GPUs

A rate that was kept up with is the load's own, whoever serves it: of an open loop there is a speed-up only where the
load was too much for both groups.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from gpusize.analysis.compare.differences import Difference
from gpusize.analysis.detect.saturation import EFFECT
from gpusize.analysis.throughput import rates_of

if TYPE_CHECKING:
    from gpusize.analysis.compare.matching import Place
    from gpusize.analysis.level import LevelData

__all__ = ["RATES", "Per", "Scaled", "kept_up", "one_of", "scaled"]

RATES: Final = ("achieved rate", "output rate")
"""Figures that grow with the work done, so that a ratio of them is a speed-up."""

Per = Literal["load", "count"]


@dataclass(frozen=True, slots=True)
class Scaled:
    """The speed-up of one group at one load.

    Attributes:
        side, load, figure: names.
        count: GPUs, or instances, of the group.
        speed_up: its rate over that of the smallest group: of several runs the ratio of geometric means.
        low, high: 95 % interval; NaN where nothing says how sure it is.
        ideal: its count over the smallest one: rates in proportion.
        efficiency: speed-up over ideal; 1 where nothing is lost. Below the load that saturates a group it says that the
            load was too small for it, not that work is lost.
        efficiency_low, efficiency_high: 95 % interval.
        per: ``load``: both had the same load; ``count``: both had the same load per GPU (or instance).
    """

    side: str
    load: str
    figure: str
    count: int
    speed_up: float
    low: float
    high: float
    ideal: float
    efficiency: float
    efficiency_low: float
    efficiency_high: float
    per: Per = "load"


def scaled(
    differences: Sequence[Difference],
    counts: Mapping[str, int],
    *,
    per: Per = "load",
    but: Mapping[str, Sequence[str]] | None = None,
) -> list[Scaled]:
    """The speed-ups that differences of rates are.

    Args:
        differences: against the smallest group.
        counts: by side its GPUs or instances, the smallest first; empty where sides have none.
        per: which loads the differences hold against each other.
        but: by side, loads whose rates are no measure of it, as of ``kept_up``.
    """
    if not counts:
        return []
    smallest = next(iter(counts.values()))
    made = []
    for each in differences:
        if each.load in (but or {}).get(each.side, ()) or math.isnan(each.change):
            continue
        if each.figure in RATES and each.side in counts:
            ideal = counts[each.side] / smallest
            up, low, high = 1 + each.change, 1 + each.low, 1 + each.high
            made.append(
                Scaled(
                    *(each.side, each.load, each.figure, counts[each.side]),
                    *(up, low, high),
                    ideal=ideal,
                    efficiency=up / ideal,
                    efficiency_low=low / ideal,
                    efficiency_high=high / ideal,
                    per=per,
                )
            )
    return made


def one_of(by: str) -> str:
    """What one of those that runs are grouped by the number of is called: ``GPU``, ``instance``."""
    return "GPU" if by == "gpus" else by.removesuffix("s")


def kept_up(sides: Sequence[str], places: Sequence[Place]) -> dict[str, list[str]]:
    """By side but the first, the open-loop loads that it or the first side kept up with.

    Args:
        sides: their names, in the order of the places' levels.
        places: loads that all have.
    """
    found: dict[str, list[str]] = {}
    for k, name in enumerate(sides[1:], 1):
        loads = [
            place.name for place in places if any(_kept_up(level) for level in (*place.measured(0), *place.measured(k)))
        ]
        if loads:
            found[name] = loads
    return found


def _kept_up(level: LevelData) -> bool:
    if level.concurrency is not None:
        return False
    rates = rates_of(level)
    offered = rates.offered or level.rate
    return rates.achieved is None or not offered or rates.achieved >= (1 - EFFECT) * offered
