"""The words of grouped runs: speed-up, the most of each count and their law, and what a request took."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpusize.analysis.compare.comparison import Comparison
from gpusize.analysis.compare.most import Most
from gpusize.analysis.compare.scaled import Scaled
from gpusize.analysis.compare.scaling_law import Interval, ScalingLaw
from gpusize.analysis.compare.spent import Spent
from gpusize.report.text import clean, plain_number

__all__ = ["group_remarks", "law_text", "most_rows", "scaled_rows", "shown_in", "spent_rows", "spent_text"]

_DASH = "\N{EN DASH}"
_LAWS = {
    "linear": "in proportion",
    "amdahl": "by Amdahl's law",
    "usl": "by the Universal Scalability Law",
}


def scaled_rows(scaled: Sequence[Scaled]) -> list[list[str]]:
    """Speed-up and efficiency: a header, then a row for each group, load and figure."""
    made = [["side", "load", "figure", "speed-up", "95 % interval", "ideal", "efficiency"]]
    for each in scaled:
        interval = _interval(each.low, each.high)
        row = [f"{each.speed_up:.3g}", interval, f"{each.ideal:.3g}", _percent(each.efficiency)]
        made.append([clean(each.side), each.load, each.figure, *row])
    return made


def most_rows(comparison: Comparison) -> list[list[str]]:
    """The most that each count answers: a header, then a row for each; empty where nothing is known."""
    law = comparison.law
    if comparison.most:
        return _most_seen(comparison.most)
    if law is None or not law.measured:
        return []
    names = {count: side for side, count in comparison.counts.items()}
    made = [["side", "most requests/s", "95 % interval", "speed-up", "95 % interval", "efficiency"]]
    for each in law.measured:
        first = each is law.measured[0]
        made.append(
            [
                clean(names.get(each.count, each.count)),
                plain_number(each.rate.value, 4),
                _interval(each.rate.low, each.rate.high),
                f"{each.speed_up.value:.3g}",
                _DASH if first else _interval(each.speed_up.low, each.speed_up.high),
                _percent(each.efficiency.value),
            ]
        )
    return made


def _most_seen(found: Sequence[Most]) -> list[list[str]]:
    made = [["side", "most requests/s", "95 % interval", "at", "ratio", "95 % interval"]]
    for each in found:
        first = each is found[0]
        made.append(
            [
                clean(each.side),
                plain_number(each.rate, 4),
                _interval(each.low, each.high),
                clean(each.load, 40),
                _DASH if first else f"{each.ratio:.3g}",
                _DASH if first else _interval(each.ratio_low, each.ratio_high),
            ]
        )
    return made


def law_text(law: ScalingLaw, word: str) -> str:
    """The law in a sentence, or why there is none."""
    if law.why_not or law.one is None or law.sigma is None or law.kappa is None:
        return f"no law of scaling: {law.why_not}"
    parts = [f"s {_with(law.sigma)}", f"k {_with(law.kappa)}"]
    last, top = law.curve[-1], law.measured[-1]
    ahead = f"{last.count} {_plural(word, last.count)} would answer {_with(last.rate)} requests/s"
    peak = f"; most with {law.peak:.3g}" if law.peak is not None and law.peak < last.count else ""
    marked = f"; {law.remark}" if law.remark else ""
    return (
        f"the most requests/s grow {_LAWS[law.name]} ({', '.join(parts)}; {law.loop} loop, "
        f"{len(law.measured)} counts up to {top.count}): {ahead}{peak}{marked}"
    )


def spent_rows(comparison: Comparison) -> list[list[str]]:
    """What a request took: a header, then a row for each load and side; empty where nothing is known."""
    figures = list(dict.fromkeys(each.figure for each in comparison.spent))
    if not figures:
        return []
    table: dict[tuple[str, str], dict[str, Spent]] = {}
    for each in comparison.spent:
        table.setdefault((each.load, each.side), {})[each.figure] = each
    # One unit for a column, so that its cells can be set against each other.
    most = {name: max(each.value for each in comparison.spent if each.figure == name) for name in figures}
    units = {each.figure: each.unit for each in comparison.spent}
    made = [["load", "side", *(_heading(name, shown_in(most[name], units[name])[1]) for name in figures)]]
    for (load, side), known in table.items():
        cells = [spent_text(known[name], most[name]) if name in known else _DASH for name in figures]
        made.append([load, clean(side), *cells])
    return made


def _heading(name: str, unit: str) -> str:
    """A figure as the head of its column: ``J/request``, ``EUR/10^6 tokens``."""
    of = name.partition(" per ")[2].replace("million", "10^6").replace("output ", "")
    return f"{clean(unit, 12) or 'cost'}/{of}"


def spent_text(each: Spent, most: float) -> str:
    """A figure in the unit that suits the largest of its kind, and how much runs differ."""
    text = plain_number(each.value * shown_in(most, each.unit)[0], 4)
    return text if math.isnan(each.spread) else f"{text} \N{PLUS-MINUS SIGN}{_percent(each.spread)}"


def shown_in(value: float, unit: str) -> tuple[float, str]:
    """A factor and the unit that it makes of a value: small times and energies are in thousandths."""
    if unit in ("J", "GPU-s", "CPU-s") and 0 < value < 0.1:
        return 1e3, {"J": "mJ", "GPU-s": "GPU-ms", "CPU-s": "CPU-ms"}[unit]
    return 1.0, unit


def group_remarks(comparison: Comparison) -> list[str]:
    """Which loads are held against each other, what is not compared, and why figures are missing."""
    made = []
    word = comparison.word
    per = {each.per for each in comparison.scaled}
    if "load" in per:
        made.append(f"speed-up at a load: all have the same load, however many {_plural(word, 2)} there are")
    if "count" in per:
        made.append(f"speed-up per {word}: N times as many users on N {_plural(word, 2)}")
    for side, loads in comparison.kept_up.items():
        if side in comparison.counts:
            told = ", ".join(loads)
            made.append(f"no speed-up of {clean(side)} at {told}: what is kept up with is the load's rate, not theirs")
    if comparison.most:
        made.append("the most requests/s: each at its own best load of those measured; the loads may differ")
        made += [
            f"{clean(each.side)} may answer more: its most was at its largest load"
            for each in comparison.most
            if each.largest
        ]
    law = comparison.law
    if law is not None:
        made.append(law_text(law, word))
        made += [f"the most that {clean(side)} can answer is not known: {why}" for side, why in law.missing.items()]
    made += [f"the energy of {clean(side)} is not known: {why}" for side, why in comparison.untold.items()]
    priced = {each.side for each in comparison.spent if each.figure.startswith("cost")}
    if priced:
        without = [clean(side) for side in comparison.sides if side not in priced]
        made += [f"no cost of {', '.join(without)}: no price, or no number of GPUs"] if without else []
    if any(not math.isnan(each.spread) for each in comparison.spent):
        made.append("\N{PLUS-MINUS SIGN} is the standard deviation from run to run")
    return made


def _with(each: Interval) -> str:
    return f"{each.value:.3g} [{each.low:.3g}, {_open(each.high)}]"


def _open(high: float) -> str:
    return f"{high:.3g}" if math.isfinite(high) else "open"


def _interval(low: float, high: float) -> str:
    return f"{low:.3g} to {high:.3g}" if math.isfinite(low) and math.isfinite(high) else _DASH


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _percent(share: float) -> str:
    return f"{100 * share:.{0 if abs(share) >= 0.1 else 1 if abs(share) >= 0.001 else 2}f} %"
