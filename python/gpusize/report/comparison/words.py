"""The words of a comparison, the same on the terminal, in Markdown and in JUnit."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpusize.analysis.compare.comparison import Comparison, Noise
from gpusize.analysis.compare.differences import Difference
from gpusize.analysis.compare.figures import figure
from gpusize.analysis.compare.gates import Judged
from gpusize.analysis.compare.matching import counted
from gpusize.report.comparison.group_words import group_remarks
from gpusize.report.text import clean, plain_number

__all__ = [
    "change_text",
    "finding",
    "gate_text",
    "interval_text",
    "noise_rows",
    "remarks",
    "rows",
    "value_text",
]

_SHOWN: Final = 40
_MOST: Final = 4
"""Figures that a remark names."""
_DIGITS: Final = 12
_RANK: Final = {"worse": 0, "better": 1}


def finding(comparison: Comparison) -> str:
    """The answer in a sentence."""
    first, *others = comparison.sides
    if not others:
        return f"{clean(first)}: {comparison.sides[first]} runs, held against each other"
    return "; ".join(_finding(comparison, side) for side in others)


def _finding(comparison: Comparison, side: str) -> str:
    first = next(iter(comparison.sides))
    mine = [each for each in comparison.differences if each.side == side]
    names = f"{clean(side)} against {clean(first)}"
    if not mine:
        if not comparison.by:
            return f"{names}: nothing to compare"
        ratio = next((each.ratio for each in comparison.most if each.side == side), math.nan)
        best = "" if math.isnan(ratio) else f"; at its own best load it answers {ratio:.3g} times as much"
        return f"{names}: no load is common to all{best}"
    if all(each.design == "within" for each in mine):
        return f"{names}: no verdict on the systems from single runs; the table compares these two runs"
    judged = [each for each in mine if each.design != "within"]
    worse, better = ([each for each in judged if each.verdict == verdict] for verdict in ("worse", "better"))
    if worse or better:
        said = [
            f"{verdict} in {len(found)} of {len(judged)} figures, most in {_most(found)}"
            for verdict, found in (("worse", worse), ("better", better))
            if found
        ]
        return f"{names}: {'; '.join(said)}"
    same = sum(each.verdict == "equivalent" for each in judged)
    within = f"{same} of {len(judged)} figures are equivalent (within {_percent(comparison.margin)})"
    if same == len(judged):
        return f"{names}: equivalent, all {same} figures within {_percent(comparison.margin)}"
    open_ = [each.detectable for each in judged if each.verdict == "no evidence" and each.scale == "ratio"]
    least = sorted(each for each in open_ if not math.isnan(each))
    typical = (
        f"; of the others a change of {_percent(least[len(least) // 2])} would typically have been seen"
        if least
        else ""
    )
    return f"{names}: no evidence of a difference; {within}{typical}"


def _most(found: Sequence[Difference]) -> str:
    ratios = [each for each in found if each.scale == "ratio"] or found
    each = max(ratios, key=lambda each: abs(math.log1p(each.change)) if each.scale == "ratio" else abs(each.change))
    return f"{each.figure} at {each.load}: {change_text(each)} {interval_text(each)}"


def rows(comparison: Comparison) -> list[list[str]]:
    """The table: a header, then a row for each difference."""
    first, *others = comparison.sides
    several = len(others) > 1
    b = "other" if several else clean(others[0]) if others else ""
    header = ["load", "figure", clean(first), b, "change", "95 % interval", "verdict", "could see"]
    made = [["side", *header] if several else header]
    for each in comparison.differences:
        row = [
            each.load,
            each.figure,
            value_text(each.a, each.unit),
            value_text(each.b, each.unit),
            change_text(each),
            interval_text(each),
            each.verdict,
            _amount(each.detectable, each.scale),
        ]
        made.append([clean(each.side), *row] if several else row)
    return made


def noise_rows(noise: Sequence[Noise]) -> list[list[str]]:
    """What a side differs from itself: a header, then a row for each load and figure."""
    made = [["side", "load", "figure", "runs", "from run to run", "inside a run", "could see"]]
    for each in noise:
        scale = figure(each.figure).scale
        spread, inside, seen = (_amount(value, scale) for value in (each.spread, each.inside, each.detectable))
        made.append([clean(each.side), each.load, each.figure, str(each.runs), spread, inside, seen])
    return made


def remarks(comparison: Comparison) -> list[str]:
    """What a reader has to know beside the table."""
    made = []
    for name, values in comparison.differing.items():
        told = ", ".join(
            f"{clean(side)}: {_short(value)}" for side, value in zip(comparison.sides, values, strict=True)
        )
        made.append(f"the {name} {'differ' if name.endswith('s') else 'differs'}: {told}")
    made += [_unlike(side, labels) for side, labels in comparison.unlike.items()]
    for side, found in comparison.left_out.items():
        told = counted([clean(text, 2 * _SHOWN) for text in found])
        made.append(f"left out of {clean(side)}: {told}")
    for side, share in comparison.partly_known.items():
        made.append(
            f"left out of {clean(side)}: GPU-hours and cost of runs whose replicas are not known all the time, "
            f"in one for {100 * share:.3g} % of it"
        )
    for side, shares in comparison.failed.items():
        told = ", ".join(f"{_percent(share)} at {load}" for load, share in shares.items())
        made.append(f"requests of {clean(side)} failed, {told}: the other figures are those of the rest")
    for side, figures in comparison.withheld.items():
        first = clean(next(iter(comparison.sides)))
        told = _few(figures)
        made.append(
            f"{clean(side)} and {first} did not fail equally often, and what failed may have been the slowest: "
            f"no verdict on {told}"
        )
    made += [f"only {clean(side)} has {', '.join(loads)}" for side, loads in comparison.alone.items()]
    if any(each.design == "pairs" for each in comparison.differences):
        made.append("the runs were made in turns: neighbours are compared with each other")
    for side, pairs in comparison.unpaired.items():
        told = ", ".join(f"{n} of {comparison.sides[side]} at {load}" for load, n in pairs.items())
        made.append(
            f"pairs that {clean(side)} and {clean(next(iter(comparison.sides)))} both measured: {told}; "
            "halves of the others are not compared"
        )
    if "one first" in comparison.in_turns.values():
        made.append(
            "the same side came first in most pairs, so that a drift counts as a difference: swap every second pair"
        )
    singles = [clean(side) for side, runs in comparison.sides.items() if runs == 1]
    if comparison.rounds == 1:
        made.append(
            "one round says nothing of the next: it takes two whole rounds for a verdict, ten see small changes"
        )
    elif singles and len(comparison.sides) > 1:
        made.append(f"{' and '.join(singles)}: one run each side says nothing of the next; repeat it for a verdict")
    return [*made, *group_remarks(comparison)]


def _unlike(side: str, labels: Mapping[str, Sequence[str]]) -> str:
    told = "; ".join(
        f"{clean(name)} is {_few([clean(value, _SHOWN) for value in values])}" for name, values in labels.items()
    )
    pick = " ".join(f"--label {clean(name)}={clean(values[-1], _SHOWN)}" for name, values in labels.items())
    return f"runs of {clean(side)} count as repeats of each other and differ in labels: {told}; pick one with {pick}"


def _few(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = len(names) - _MOST
    return ", ".join(names[:_MOST]) + (f" and {more} more" if more > 0 else "")


def gate_text(judged: Judged) -> str:
    """One gate at one load in a sentence."""
    each = judged.difference
    what = f"{each.figure} at {each.load}"
    if not math.isnan(each.change):
        what += f" {change_text(each)} {interval_text(each)}"
    if not judged.judged:
        return f"not judged: {judged.gate.text}: {what}; {clean(judged.why_not, 5 * _SHOWN)}"
    if judged.failed:
        return f"failed: {judged.gate.text}: {what}"
    beyond = "; beyond the bound, but not surely" if judged.gate.is_beyond(each.change) else ""
    return f"passed: {judged.gate.text}: {what}{beyond}"


def change_text(each: Difference) -> str:
    """A change with its sign: ``+5.1 %``, of shares ``+0.2 points``."""
    if math.isnan(each.change):
        return "\u2013"
    return f"{100 * each.change:+.{_places(each.change)}f} {'%' if each.scale == 'ratio' else 'points'}"


def interval_text(each: Difference) -> str:
    """The interval of a change: ``[+3.9, +6.3]``; a dash where there is none."""
    if math.isnan(each.low):
        return "\u2013"
    places = _places(min(abs(each.low), abs(each.high)) or each.high)
    return f"[{100 * each.low:+.{places}f}, {100 * each.high:+.{places}f}]"


def value_text(value: float, unit: str) -> str:
    """A figure with its unit."""
    if math.isnan(value):
        return "\u2013"
    if unit == "s":
        scale, name = next(
            each
            for each in ((1.0, "s"), (1e-3, "ms"), (1e-6, "\u00b5s"), (1e-9, "ns"))
            if value >= each[0] or each[0] == 1e-9
        )
        return f"{plain_number(value / scale, 4)} {name}"
    return _percent(value) if unit == "share" else f"{plain_number(value, 4)} {unit}".rstrip()


def _places(change: float) -> int:
    return 0 if abs(change) >= 0.1 else 1 if abs(change) >= 0.001 else 2


def _amount(value: float, scale: str) -> str:
    if math.isnan(value):
        return "\u2013"
    return _percent(value) if scale == "ratio" else f"{100 * value:.{_places(value)}f} points"


def _percent(share: float) -> str:
    return f"{100 * share:.{_places(share)}f} %"


def _target_text(target: Mapping[str, Any]) -> str:
    simulated = target.get("simulated")
    named = target.get("url") or target.get("name")
    if not named and simulated is not None:
        return f"a simulated cluster of {simulated.get('gpus', '?')}"
    return str(named or target)


def _short(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = ", ".join(_target_text(each) for each in value)
    text = value if isinstance(value, str) else json.dumps(value)
    is_digest = len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)
    return clean(text, _DIGITS if is_digest else 2 * _SHOWN)
