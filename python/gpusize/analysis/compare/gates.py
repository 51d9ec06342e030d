"""Gates for CI: a comparison fails only where the evidence carries it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpusize.analysis.compare.comparison import Comparison
from gpusize.analysis.compare.differences import ALPHA, Difference
from gpusize.analysis.compare.figures import figure
from gpusize.base.errors import UsageError

__all__ = ["Gate", "Judged", "judge"]

_GATE: Final = re.compile(
    r"\s*(?P<figure>.+?)(?:\s+at\s+(?P<load>[^<>]+?))?\s*(?P<op>[<>])\s*(?P<sign>[+-]?)\s*(?P<number>\d+(?:\.\d*)?|\.\d+)\s*%\s*"
)
_AS_IN: Final = "write it as in: p95 runtime > +5%, achieved rate < -2%, p95 ttft at 16 users > +10%"


@dataclass(frozen=True, slots=True)
class Gate:
    """A change that must not be.

    Attributes:
        text: as it was written.
        figure: name of the figure.
        load: name of the load; None for all.
        above: whether changes above the bound fail, else those below it.
        bound: relative change, of shares in points; 0.05 is 5 %.
    """

    text: str
    figure: str
    load: str | None
    above: bool
    bound: float

    @classmethod
    def parse(cls, text: str) -> Gate:
        """Read a gate, as ``p95 runtime > +5%``.

        Raises:
            UsageError: it is none.
            SloError: its figure is none.
        """
        found = _GATE.fullmatch(text)
        if found is None:
            raise UsageError(f"{text!r} is no gate", "fail_if", _AS_IN)
        bound = float(found["number"]) / 100 * (-1 if found["sign"] == "-" else 1)
        load = " ".join(found["load"].split()) if found["load"] else None
        return cls(" ".join(text.split()), figure(found["figure"]).name, load, found["op"] == ">", bound)


@dataclass(frozen=True, slots=True)
class Judged:
    """What a gate says of one difference.

    Attributes:
        gate: the gate.
        difference: what it was held against.
        p: probability of what was measured, or worse, if the change were just at the bound.
        failed: the change is beyond the bound, at 5 % for all differences of all gates together.
        judged: whether it could be judged: not between two single runs.
    """

    gate: Gate
    difference: Difference
    p: float
    failed: bool
    judged: bool


def judge(comparison: Comparison, gates: Sequence[Gate]) -> list[Judged]:
    """Hold the differences of a comparison against gates.

    Raises:
        UsageError: a gate names a figure or a load that was not compared.
    """
    pairs = [(gate, each) for gate in gates for each in _meant(comparison, gate)]
    probabilities = [_p(gate, each) for gate, each in pairs]
    order = sorted((k for k, p in enumerate(probabilities) if not math.isnan(p)), key=lambda k: probabilities[k])
    failed: set[int] = set()
    for place, k in enumerate(order):
        if probabilities[k] > ALPHA / (len(order) - place):
            break
        failed.add(k)
    return [
        Judged(gate, each, probabilities[k], k in failed, not math.isnan(probabilities[k]))
        for k, (gate, each) in enumerate(pairs)
    ]


def _meant(comparison: Comparison, gate: Gate) -> list[Difference]:
    found = [each for each in comparison.differences if each.figure == gate.figure]
    if not found:
        raise UsageError(f"there is no {gate.figure} to judge", "fail_if", "name a figure that both sides have")
    at = [each for each in found if gate.load is None or gate.load in (each.load, each.load.split()[0])]
    if not at:
        loads = ", ".join(dict.fromkeys(each.load for each in found))
        raise UsageError(f"nothing was compared at {gate.load}", "fail_if", f"there are {loads}")
    return at


def _p(gate: Gate, each: Difference) -> float:
    if each.design == "within":
        return math.nan
    above = each.above(gate.bound)
    return above if gate.above else 1 - above
