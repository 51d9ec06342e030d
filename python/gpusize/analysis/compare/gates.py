"""Gates for CI: a comparison fails only where the evidence carries it, and passes only where there is any."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpusize.analysis.compare.comparison import Comparison
from gpusize.analysis.compare.differences import ALPHA, Difference, difference
from gpusize.analysis.compare.figures import figure
from gpusize.analysis.compare.whole import WHOLE, is_sum
from gpusize.analysis.metrics import METRICS
from gpusize.base.errors import UsageError

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData

__all__ = ["Gate", "Judged", "judge", "refuse_unknown", "refuse_unplanned"]

_GATE: Final = re.compile(
    r"\s*(?P<figure>.+?)(?:\s+at\s+(?P<load>[^<>]+?))?\s*(?P<op>[<>])\s*(?P<sign>[+-]?)\s*(?P<number>\d+(?:\.\d*)?|\.\d+)\s*%\s*"
)
_FEWEST_PAIRS: Final = 2
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
            UsageError: it is none, or it could never fail, or always would.
            SloError: its figure is none.
        """
        found = _GATE.fullmatch(text)
        if found is None:
            raise UsageError(f"{text!r} is no gate", "fail_if", _AS_IN)
        named = figure(found["figure"])
        bound = float(found["number"]) / 100 * (-1 if found["sign"] == "-" else 1)
        if bound <= -1 or (named.scale == "share" and bound >= 1):
            most = "a share by more than 100 points" if named.scale == "share" else "anything by more than 100 %"
            raise UsageError(f"{text!r} has no meaning: nothing changes {most}", "fail_if", _AS_IN)
        load = " ".join(found["load"].split()) if found["load"] else None
        return cls(" ".join(text.split()), named.name, load, found["op"] == ">", bound)

    def is_about(self, load: str) -> bool:
        """Whether it judges a load of this name; ``16`` names ``16 users`` as well."""
        return self.load is None or self.load in (load, load.split(maxsplit=1)[0])

    def is_beyond(self, change: float) -> bool:
        """Whether a change, as it was measured, lies beyond the bound."""
        return change > self.bound if self.above else change < self.bound


@dataclass(frozen=True, slots=True)
class Judged:
    """What a gate says of one difference.

    Attributes:
        gate: the gate.
        difference: what it was held against; without values where a side has none.
        p: probability of what was measured, or worse, if the change were just at the bound.
        failed: the change is beyond the bound, at 5 % for all differences of all gates together.
        why_not: why it could not be judged; empty where it was.
    """

    gate: Gate
    difference: Difference
    p: float
    failed: bool
    why_not: str = ""

    @property
    def judged(self) -> bool:
        """Whether it could be judged."""
        return not self.why_not


def judge(comparison: Comparison, gates: Sequence[Gate]) -> list[Judged]:
    """Hold the differences of a comparison against gates.

    A gate judges its figure at each load that it is about and that any side was measured at. What cannot be judged is
    among the answers, with the reason: to leave it out would be to pass it.

    Raises:
        UsageError: a gate names a figure or a load that was not compared.
    """
    pairs = [(gate, each, why) for gate in gates for each, why in _meant(comparison, gate)]
    probabilities = [math.nan if why else _p(gate, each) for gate, each, why in pairs]
    order = sorted((k for k, p in enumerate(probabilities) if not math.isnan(p)), key=lambda k: probabilities[k])
    failed: set[int] = set()
    for place, k in enumerate(order):
        if probabilities[k] > ALPHA / (len(order) - place):
            break
        failed.add(k)
    return [
        Judged(
            *(gate, each, probabilities[k], k in failed),
            why_not="" if k in failed else _untold(comparison, gate, each) if k in order else why,
        )
        for k, (gate, each, why) in enumerate(pairs)
    ]


def refuse_unplanned(gates: Sequence[Gate], loads: Sequence[str], *, in_parts: bool) -> None:
    """Refuse gates that a measurement could not answer, before it begins.

    Args:
        gates: what is going to be judged.
        loads: names of the loads that are going to be measured.
        in_parts: whether answers may come in parts, so that they have a first token.

    Raises:
        UsageError: a gate names a load that is not measured, or judges parts of answers where there are none.
    """
    for gate in gates:
        if not any(gate.is_about(load) for load in loads):
            raise UsageError(
                f"{gate.text!r}: {gate.load} is not among the loads", "fail_if", f"the loads are {', '.join(loads)}"
            )
        name = figure(gate.figure).metric
        if not in_parts and name is not None and METRICS[name].streamed:
            raise UsageError(
                f"{gate.text!r}: an answer that comes whole has no {name}", "fail_if", "let answers stream: --stream"
            )


def refuse_unknown(gates: Sequence[Gate], side: str, levels: Iterable[LevelData]) -> None:
    """Refuse gates whose figures are in none of the levels of a side's warm-up.

    Raises:
        UsageError: there is such a gate.
    """
    # All requests of a warm-up may be its beginning.
    known = [replace(level, intervals=()) for level in levels]
    for gate in gates:
        named = figure(gate.figure)
        if not any(named.is_known(named.measure(level)) for level in known):
            what = f"{gate.text!r}: the answers of {side} in its warm-up have no {gate.figure}"
            raise UsageError(what, "fail_if", "name a figure that they have")


def _meant(comparison: Comparison, gate: Gate) -> Iterator[tuple[Difference, str]]:
    """The differences that a gate judges, each with why it cannot, or nothing."""
    mine = {(each.side, each.load): each for each in comparison.differences if each.figure == gate.figure}
    unpaired = any(n == 0 for pairs in comparison.unpaired.values() for n in pairs.values())
    if not mine and not unpaired and not (is_sum(figure(gate.figure)) and comparison.partly_known):
        raise UsageError(f"there is no {gate.figure} to judge", "fail_if", "name a figure that both sides have")
    alone = [load for loads in comparison.alone.values() for load in loads]
    broken = [load for loads in comparison.broken.values() for load in loads]
    compared = list(dict.fromkeys((*comparison.loads, *(each.load for each in comparison.differences))))
    if figure(gate.figure).whole:
        compared, alone, broken = [WHOLE], [], []
    else:
        compared = [load for load in compared if load != WHOLE]
    loads = [load for load in dict.fromkeys((*compared, *alone, *broken)) if gate.is_about(load)]
    if not any(load in compared for load in loads):
        there = ", ".join(compared)
        raise UsageError(f"nothing was compared at {gate.load}", "fail_if", f"the loads are {there}")
    first, *others = comparison.sides
    for side in others:
        for load in loads:
            each = mine.get((side, load)) or difference(side, load, figure(gate.figure), (), ())
            yield each, _why_not(comparison, each, first, shared=load in compared)


def _why_not(comparison: Comparison, each: Difference, first: str, *, shared: bool) -> str:
    """Why a difference cannot be judged; empty where it can."""
    pair = (first, each.side)
    lost = [side for side in pair if each.load in comparison.broken.get(side, ())]
    if lost:
        return f"a level of {' and '.join(lost)} did not end as intended"
    in_part = [side for side in pair if side in comparison.partly_known] if is_sum(figure(each.figure)) else []
    if in_part:
        told = (f"{100 * comparison.partly_known[side]:.3g} % of a run of {side}" for side in in_part)
        return f"the replicas are known for only {' and '.join(told)}"
    if not shared:
        have = [side for side in pair if each.load in comparison.alone.get(side, ())]
        return f"only {' and '.join(have)} has this load" if have else "not every side has this load"
    whole = comparison.unpaired.get(each.side, {}).get(each.load)
    if whole is not None and whole < _FEWEST_PAIRS:
        count = f"only {whole}" if whole else "none"
        return (
            f"{count} of {comparison.sides[first]} pairs of runs was measured whole: it takes {_FEWEST_PAIRS} or more"
        )
    without = [side for side, runs in zip(pair, each.runs, strict=True) if runs == 0]
    if without:
        return f"{' and '.join(without)} has no such figure there"
    lacking = [side for side, runs in zip(pair, each.lacking, strict=True) if runs > 0]
    if lacking:
        return f"a run of {' and '.join(lacking)} has no such figure there"
    if each.design == "within":
        return "it takes two runs a side or more"
    return "" if each.standard_error > 0 else "nothing says how much runs differ"


def _untold(comparison: Comparison, gate: Gate, each: Difference) -> str:
    """Why a gate that did not fail cannot pass either; empty where it can."""
    return _hidden(comparison, gate, each) or _blind(gate, each)


def _blind(gate: Gate, each: Difference) -> str:
    """That what was measured lies beyond the bound, and that runs differ too much to see so large a change."""
    seen = math.log1p(each.detectable) if each.scale == "ratio" else each.detectable
    if gate.is_beyond(each.change) and seen > abs(each.point):
        return "that is beyond the bound, and runs differ too much to tell whether by chance: make more, or longer ones"
    return ""


def _hidden(comparison: Comparison, gate: Gate, each: Difference) -> str:
    """Why a gate that did not fail cannot pass, as by one end of what failures may hide it would fail; else empty."""
    if not each.hidden or min(_ends(gate, each)) > ALPHA:
        return ""
    first = next(iter(comparison.sides))
    told = {side: comparison.failed.get(side, {}).get(each.load, 0.0) for side in (first, each.side)}
    shares = " and ".join(f"{side} failed {100 * share:.3g} %" for side, share in told.items())
    return f"{shares} of the requests, which may have been the slowest"


def _p(gate: Gate, each: Difference) -> float:
    """Of both ends of what failures may hide the one that speaks less for a failure."""
    return max(_ends(gate, each))


def _ends(gate: Gate, each: Difference) -> list[float]:
    found = [each.above(gate.bound, hidden=hidden) for hidden in (False, True)]
    return [above if gate.above else 1 - above for above in found]
