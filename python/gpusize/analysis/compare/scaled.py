"""What more GPUs, or more instances, give: speed-up over the smallest group, and the share of the ideal that it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpusize.analysis.compare.differences import Difference

__all__ = ["RATES", "Scaled", "scaled"]

RATES: Final = ("achieved rate", "output rate")
"""Figures that grow with the work done, so that a ratio of them is a speed-up."""


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


def scaled(differences: Sequence[Difference], counts: Mapping[str, int]) -> list[Scaled]:
    """The speed-ups that differences of rates are.

    Args:
        differences: against the smallest group.
        counts: by side its GPUs or instances, the smallest first; empty where sides have none.
    """
    if not counts:
        return []
    smallest = next(iter(counts.values()))
    made = []
    for each in differences:
        if each.figure in RATES and each.side in counts:
            ideal = counts[each.side] / smallest
            ratios = (1 + each.change, 1 + each.low, 1 + each.high)
            made.append(
                Scaled(
                    *(each.side, each.load, each.figure, counts[each.side]),
                    *ratios,
                    ideal,
                    *(ratio / ideal for ratio in ratios),
                )
            )
    return made
