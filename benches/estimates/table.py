"""What outcomes come to: shares with Wilson intervals, medians with bootstrap intervals, tables and bars."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benches.estimates.judge import ORACLE, Outcome
from benches.lib.bars import Bar
from benches.lib.stats import Interval

__all__ = ["HEADER", "Figures", "bars", "engine_bars", "groups", "rows", "share", "wilson"]

FEW = 20
MODELLED = ("own", "fixed batches")
"""Mechanisms that the twin has a model for; that of the second is written apart from the suite's."""
Z = 1.96
BEHIND = ("p99", "TTFT")
"""Kinds of questions that must not be answered much worse than all."""


def wilson(hits: int, n: int) -> Interval:
    """A share and its 95 % score interval (Wilson 1927); NaN and (0, 1) of nothing."""
    if n == 0:
        return Interval(math.nan, 0.0, 1.0)
    p = hits / n
    middle = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return Interval(p, max(0.0, middle - half), min(1.0, middle + half))


def share(outcomes: Iterable[Outcome], hit: Callable[[Outcome], bool]) -> Interval:
    """The share of which ``hit`` is true."""
    found = [hit(each) for each in outcomes]
    return wilson(sum(found), len(found))


def _quantile(values: Sequence[float], prob: float) -> Interval:
    """A quantile with its distribution-free interval by order statistics (Conover 1999), 95 %."""
    data = np.sort(np.asarray(values, dtype=float))
    n = len(data)
    if n == 0:
        return Interval(math.nan, math.nan, math.inf)
    spread = Z * math.sqrt(n * prob * (1 - prob))
    low, high = math.floor(n * prob - spread), math.ceil(n * prob + spread)
    ends = data[max(0, low)], data[high] if high < n else math.inf
    # Open intervals are endless: there is nothing to interpolate between them.
    finite = bool(np.isfinite(data).all())
    value = float(np.quantile(data, prob, method="linear" if finite else "higher"))
    return Interval(value, float(ends[0]), float(ends[1]))


@dataclass(frozen=True)
class Figures:
    """How a method did on some scenarios. Where nothing is said otherwise, of those that have an answer.

    Attributes:
        scenarios: their number, those without an answer included.
        answered: the share that got a number.
        exact: of truths up to 20, answered or not: right, ties included.
        within_one: the same, at most one replica off.
        near: of larger truths, answered or not: within 5 %.
        too_few: of the answered, more than 2 % below the right numbers.
        raw_median: relative error of the unrounded count, of the answered.
        raw_p90: the same.
        raw_covered: of the answered, the share whose interval of the unrounded count holds the truth; an answer without
            an interval is a miss, unless the method never has any.
        raw_width: median width of these intervals over the truth.
        covered: of the answered, the share whose interval of the count holds a right number; as ``raw_covered``.
        refused: of scenarios without an answer, the share refused for the right reason.
        crashed: estimators that raised.
    """

    scenarios: int
    answered: Interval
    exact: Interval
    within_one: Interval
    near: Interval
    too_few: Interval
    raw_median: Interval
    raw_p90: Interval
    raw_covered: Interval
    raw_width: Interval
    covered: Interval
    refused: Interval
    crashed: int

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Figures:
        """Of one method's outcomes."""
        asked = [each for each in outcomes if each.n is not None]
        none = [each for each in outcomes if each.n is None]
        answered = [each for each in asked if each.answer is not None]
        few = [each for each in asked if (each.n or 0) <= FEW]
        many = [each for each in asked if (each.n or 0) > FEW]
        errors = [abs(each.answer_raw / each.raw - 1) for each in answered if each.answer_raw and each.raw]
        raw_ranges = [_ends(each.raw_low, each.raw_high) for each in answered]
        ranges = [_ends(each.low, each.high) for each in answered]
        raws = [each.raw or math.nan for each in answered]
        raw_hits = [low <= raw <= high for (low, high), raw in zip(raw_ranges, raws, strict=True)]
        hits = [any(low <= n <= high for n in each.right) for (low, high), each in zip(ranges, answered, strict=True)]
        widths = [(high - low) / raw for (low, high), raw in zip(raw_ranges, raws, strict=True) if low <= high]
        return cls(
            scenarios=len(outcomes),
            answered=share(asked, lambda o: o.answer is not None),
            exact=share(few, lambda o: o.exact),
            within_one=share(few, lambda o: o.off is not None and abs(o.off) <= 1),
            near=share(many, lambda o: o.off is not None and abs(o.off) <= 0.05 * (o.n or 0)),
            too_few=share(answered, _too_few),
            raw_median=_quantile(errors, 0.5),
            raw_p90=_quantile(errors, 0.9),
            raw_covered=wilson(sum(raw_hits), len(raw_hits)) if widths else wilson(0, 0),
            raw_width=_quantile(widths, 0.5),
            covered=wilson(sum(hits), len(hits)) if any(low <= high for low, high in ranges) else wilson(0, 0),
            refused=share(none, lambda o: o.right_reason),
            crashed=sum(each.crash is not None for each in outcomes),
        )

    def cells(self) -> list[str]:
        """For a table."""
        return [
            str(self.scenarios),
            *map(_percent, (self.answered, self.exact, self.within_one, self.near, self.too_few)),
            f"{_one(self.raw_median)} / {_one(self.raw_p90)}",
            _percent(self.raw_covered),
            _one(self.raw_width),
            _percent(self.covered),
            _percent(self.refused),
        ]


HEADER = (
    "scenarios",
    "answered",
    "exact (<= 20)",
    "within one (<= 20)",
    "within 5 % (> 20)",
    "too few",
    "raw error p50 / p90",
    "raw covered",
    "raw width",
    "count covered",
    "refused rightly",
)


def _ends(low: float | None, high: float | None) -> tuple[float, float]:
    """An interval; where one end is missing it is open there, where both are there is none: (inf, -inf)."""
    if low is None and high is None:
        return math.inf, -math.inf
    return (0.0 if low is None else low), (math.inf if high is None else high)


def _too_few(outcome: Outcome) -> bool:
    return outcome.answer is not None and outcome.answer < 0.98 * min(outcome.right)


def _percent(interval: Interval) -> str:
    if math.isnan(interval.value):
        return "-"
    return f"{100 * interval.value:.1f} [{100 * interval.lo:.0f}, {100 * interval.hi:.0f}]"


def _one(interval: Interval) -> str:
    return "-" if math.isnan(interval.value) else f"{100 * interval.value:.1f} %"


def groups(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """The outcomes by what is special about them; a scenario stands in several groups."""
    found: dict[str, list[Outcome]] = {"all": list(outcomes)}
    if any(o.kind == "own" for o in outcomes):
        found["own mechanism"] = [o for o in outcomes if o.kind == "own"]
        found["foreign mechanisms"] = [o for o in outcomes if o.kind != "own"]
        found["foreign, no model of the twin's"] = [o for o in outcomes if o.kind not in MODELLED]
    for kind in sorted({o.kind for o in outcomes} - {"own"}):
        found[kind] = [o for o in outcomes if o.kind == kind]
    for trait in sorted({trait for o in outcomes for trait in o.traits}):
        found[trait] = [o for o in outcomes if trait in o.traits]
    return found


def rows(by_method: Mapping[str, Sequence[Outcome]]) -> list[list[str]]:
    """A table's rows, one per name."""
    return [[name, *Figures.of(outcomes).cells()] for name, outcomes in by_method.items()]


def bars(by_method: Mapping[str, Sequence[Outcome]], default: str) -> list[Bar]:
    """What the default method must show; where a bound says "or the oracle's", the easier of the two."""
    f = Figures.of(by_method[default])
    best = Figures.of(by_method[ORACLE]) if ORACLE in by_method else None
    exact = 0.8 if best is None or math.isnan(best.exact.value) else min(0.8, best.exact.value)
    p90 = 0.08 if best is None or math.isnan(best.raw_p90.value) else max(0.08, best.raw_p90.value)
    return [
        Bar("estimate_exact_up_to_20", f.exact, exact, at_least=True),
        Bar("estimate_within_one_up_to_20", f.within_one, 0.95, at_least=True),
        Bar("estimate_within_5_percent_above_20", f.near, 0.9, at_least=True),
        Bar("estimate_too_few", f.too_few, 0.03),
        Bar("estimate_raw_error_median", f.raw_median, 0.01),
        Bar("estimate_raw_error_p90", f.raw_p90, p90),
        Bar("estimate_raw_coverage_least", f.raw_covered, 0.92, at_least=True),
        Bar("estimate_raw_coverage_most", f.raw_covered, 0.98),
        Bar("estimate_raw_width_median", f.raw_width, 0.1),
        Bar("estimate_count_coverage", f.covered, 0.93, at_least=True),
        Bar("estimate_answered", f.answered, 0.95, at_least=True),
        Bar("estimate_refused_for_the_right_reason", f.refused, 1.0, at_least=True),
    ]


def engine_bars(by_method: Mapping[str, Sequence[Outcome]], default: str) -> list[Bar]:
    """What the default method must show of engines: by the figures themselves, as 400 scenarios have wide intervals."""
    outcomes = by_method[default]
    f = Figures.of(outcomes)

    def least(name: str, found: Interval, bound: float) -> Bar:
        return Bar(f"estimate_engines_{name}", found, bound, at_least=True, by_value=True)

    def most(name: str, found: Interval, bound: float) -> Bar:
        return Bar(f"estimate_engines_{name}", found, bound, by_value=True)

    parts = {name: Figures.of(groups(outcomes).get(name, [])) for name in BEHIND}
    return [
        least("exact_up_to_20", f.exact, 0.85),
        least("within_one_up_to_20", f.within_one, 0.98),
        least("within_5_percent_above_20", f.near, 0.9),
        most("too_few", f.too_few, 0.03),
        Bar("estimate_engines_too_few_upper_end", f.too_few, 0.045),
        most("raw_error_median", f.raw_median, 0.012),
        most("raw_error_p90", f.raw_p90, 0.07),
        least("raw_coverage_least", f.raw_covered, 0.93),
        most("raw_coverage_most", f.raw_covered, 0.97),
        most("raw_width_median", f.raw_width, 0.12),
        least("count_coverage", f.covered, 0.93),
        least("answered", f.answered, 0.95),
        least("refused_for_the_right_reason", f.refused, 1.0),
        *(most(f"exact_up_to_20_behind_{name}", _behind(f.exact, part.exact), 0.08) for name, part in parts.items()),
        *(most(f"within_5_percent_behind_{name}", _behind(f.near, part.near), 0.08) for name, part in parts.items()),
    ]


def _behind(all_of_them: Interval, part: Interval) -> Interval:
    """By how much a part's share is lower; its interval is the part's own."""
    return Interval(*(all_of_them.value - share for share in (part.value, part.hi, part.lo)))
