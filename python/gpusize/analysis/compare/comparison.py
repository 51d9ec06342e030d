"""A comparison as a whole: what was compared with what, every difference, and how much a side differs from itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.compare.differences import ALPHA, MARGIN, POWER, Difference, difference, with_verdicts
from gpusize.analysis.compare.figures import Figure, Measured, figure, usual_figures
from gpusize.analysis.compare.matching import (
    Place,
    Side,
    Turns,
    broken_off,
    common_places,
    counted,
    differing,
    left_out,
    turns,
)
from gpusize.analysis.compare.most import Most
from gpusize.analysis.compare.scaled import Scaled, one_of, scaled
from gpusize.analysis.compare.scaling_law import ScalingLaw
from gpusize.analysis.compare.spent import Spent
from gpusize.analysis.compare.student import t_quantile
from gpusize.analysis.compare.survivors import hidden, mean_share
from gpusize.analysis.compare.whole import WHOLE, is_sum, partly_known, whole_figures
from gpusize.base.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Comparison", "Noise", "compare_sides"]

_TYPES: Final = {"str": "String", "int": "Int64", "float": "Float64", "bool": "Boolean", "Per": "String"}
"""Polars' types of a column, by those of its attribute."""


@dataclass(frozen=True, slots=True)
class Noise:
    """How much one side differs from itself, at one load.

    Attributes:
        side, load, figure: names.
        runs: runs that have the figure.
        spread: standard deviation from run to run; relative, of shares absolute.
        inside: standard error by blocks of time inside a run. Where it is as large, longer runs vary less; where it is
            larger, the repeats sent the same rows. NaN where nothing says it.
        detectable: smallest change that as many runs of either side would show with a probability of 80 %.
    """

    side: str
    load: str
    figure: str
    runs: int
    spread: float
    inside: float
    detectable: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was compared, and what came out.

    Attributes:
        sides: names, the first is what the others are held against; with the number of runs of each.
        differences: by side, load and figure.
        noise: of each side with several runs.
        alone: by side, loads that not all sides have.
        left_out: by side, levels that say nothing of its target, with the reason.
        partly_known: by side, the share of the time for which the replicas of a run of it are known, where that is not
            all of it: GPU-hours and cost of that run are not compared.
        failed: by side, the loads at which requests failed, with their share: percentiles are those of the others.
        withheld: by side, the figures and loads without a verdict that they would have, had both sides failed as many
            requests.
        differing: what of target, model, dataset and GPUs is not the same, one value a side.
        unlike: by side, labels in which runs that count as its repeats differ, each with its values.
        margin: relative differences within it do not matter.
        in_turns: by side but the first, whether its runs and those of the first were made in turns, so that
            neighbours are compared: ``no``, ``one first`` (A B A B) or ``balanced`` (A B B A).
        unpaired: by such a side, the loads that some of its pairs of runs do not both have, with the number of pairs
            that do: only those are compared there.
        loads: those that all sides have.
        broken: by side, the loads of levels that did not end as intended.
        rounds: whole rounds of a duet; None where earlier runs were compared.
        places: the loads with their levels, for figures of all requests.
        by: what runs were grouped by, ``gpus`` or a label; empty where sides were named.
        counts: by side its GPUs or instances, where runs were grouped by those.
        per_count: differences of rates at the same load per GPU (or instance), N times the load on N of them.
        kept_up: by side but the first, loads of open loops that it or the first kept up with: their rates say nothing
            of a speed-up.
        spent: what a request took on each side, of grouped runs.
        untold: by side, why its energy is not known.
        law: how the most requests/s grow with the count.
        most: of groups without counts, the most that each was seen to answer at any load.
    """

    sides: Mapping[str, int]
    differences: Sequence[Difference]
    noise: Sequence[Noise] = ()
    alone: Mapping[str, Sequence[str]] = field(default_factory=dict)
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)
    partly_known: Mapping[str, float] = field(default_factory=dict)
    failed: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    withheld: Mapping[str, Sequence[str]] = field(default_factory=dict)
    differing: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    unlike: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    margin: float = MARGIN
    in_turns: Mapping[str, Turns] = field(default_factory=dict)
    unpaired: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    loads: Sequence[str] = ()
    broken: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rounds: int | None = None
    places: Sequence[Place] = field(default=(), repr=False, compare=False)
    by: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    per_count: Sequence[Difference] = ()
    kept_up: Mapping[str, Sequence[str]] = field(default_factory=dict)
    spent: Sequence[Spent] = ()
    untold: Mapping[str, str] = field(default_factory=dict)
    law: ScalingLaw | None = None
    most: Sequence[Most] = ()

    @property
    def word(self) -> str:
        """What one of those that groups have a count of is called: ``GPU``, ``instance``."""
        return one_of(self.by)

    @property
    def scaled(self) -> list[Scaled]:
        """Speed-up and efficiency of each group at each load, and at each load per GPU; empty without counts."""
        return [
            *scaled(self.differences, self.counts, but=self.kept_up),
            *scaled(self.per_count, self.counts, per="count"),
        ]

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """What came out as tables by name: ``differences``, and of grouped runs ``scaled``, ``spent`` and ``most``."""
        import polars as pl

        found = {"differences": self.frame}
        for name, kind, rows in (
            ("scaled", Scaled, self.scaled),
            ("spent", Spent, self.spent),
            ("most", Most, self.most),
        ):
            if rows:
                types = {each.name: _TYPES[str(each.type)] for each in fields(kind)}
                schema = {column: getattr(pl, of) for column, of in types.items()}
                found[name] = pl.DataFrame([asdict(each) for each in rows], schema=schema).fill_nan(None)
        return found

    @property
    def frame(self) -> pl.DataFrame:
        """One row per difference; columns as the attributes of ``Difference``, NaN as null."""
        import polars as pl

        pairs = ("runs", "lacking")
        counts = [f"{name}_{side}" for name in pairs for side in "ab"]
        rows = [asdict(each) for each in self.differences]
        for row in rows:
            row |= dict(zip(counts, [n for name in pairs for n in row.pop(name)], strict=True))
        names = [*(name for name in Difference.__dataclass_fields__ if name not in pairs), *counts]
        types: dict[str, Any] = dict.fromkeys(names, pl.Float64)
        types |= dict.fromkeys(("side", "load", "figure", "unit", "better", "scale", "design", "verdict"), pl.String)
        types |= dict.fromkeys(counts, pl.Int64)
        return pl.DataFrame(rows, schema=types).fill_nan(None)

    def plot(self, kind: str = "rate", *, dark: bool = False) -> Any:
        """One figure, as a ``matplotlib.figure.Figure``.

        Args:
            kind: the name of one of ``gpusize.report.figures.comparison.COMPARED``, such as ``rate``, ``runtime``,
                ``spent`` or ``growth``; of distributions with the load, as ``ecdf-16-users``.
            dark: whether it is for dark paper.

        Raises:
            UsageError: there is no such figure, or no data for it.
        """
        from gpusize.report.figures.comparison import one_figure

        return one_figure(self, kind, dark=dark)

    def _repr_html_(self) -> str:
        from gpusize.report.notebook.show import comparison_html

        return comparison_html(self)


def compare_sides(
    sides: Sequence[Side],
    figures: Sequence[Figure] | None = None,
    also: Sequence[Figure] = (),
    *,
    margin: float = MARGIN,
    shared: bool = True,
) -> Comparison:
    """Hold each side against the first.

    Args:
        sides: one with several runs tells its noise only; two or more are compared.
        figures: what to compare; by default percentiles of the runtime, rates, errors, and TTFT where answers stream.
        also: figures to compare beside them.
        margin: relative differences within it do not matter, in (0, 1).
        shared: whether it takes a load that all sides have; without, there may be no differences.

    Raises:
        UsageError: no load is common to all though one has to be, or there is nothing to compare.
    """
    if not 0 < margin < 1:
        raise UsageError(f"must be above 0 and below 100 %, not {margin:g}", "margin", "as in 2%")
    if len(sides) == 1 and len(sides[0].runs) < 2:
        raise UsageError("one run has nothing to be compared with", sides[0].name, "give another, or repeats of it")
    places, alone = common_places(sides)
    if not places and shared:
        raise _nothing_shared(sides, alone)
    usual = figures or usual_figures(
        [level for place in places for k in range(len(sides)) for level in place.measured(k)]
    )
    chosen = list({each.name: each for each in (*usual, *also)}.values())
    measured = [
        (place, one, [[None if level is None else one.measure(level) for level in side] for side in place.levels])
        for place in places
        for one in chosen
        if not one.whole
    ]
    whole = Place(WHOLE, [[] for _ in sides])
    measured += [(whole, *each) for each in whole_figures(sides, chosen, usual=figures is None)]
    in_turns = {side.name: turns(sides[0], side) for side in sides[1:]}
    found = [
        replace(
            difference(side.name, place.name, one, values[0], values[k], paired=in_turns[side.name] != "no"),
            hidden=hidden(one, place.measured(0), place.measured(k), margin=margin),
        )
        for k, side in enumerate(sides)
        if k > 0
        for place, one, values in measured
    ]
    in_part = partly_known(sides) if any(is_sum(one) for _, one, _ in measured) else {}
    known = [each for each in found if each.runs != (0, 0) and not _unknown(each, sides[0].name, in_part)]
    judged = with_verdicts(known, margin=margin)
    return Comparison(
        sides={side.name: len(side.runs) for side in sides},
        differences=judged,
        withheld=_withheld(known, judged, margin),
        noise=[
            noise
            for k, side in enumerate(sides)
            for place, one, values in measured
            if (noise := _noise(side.name, place.name, one, values[k])) is not None
        ],
        alone=alone,
        left_out={side.name: told for side in sides if (told := left_out(side))},
        partly_known=in_part,
        failed={side.name: shares for k, side in enumerate(sides) if (shares := _failed(places, k))},
        differing=differing(sides),
        margin=margin,
        in_turns=in_turns,
        loads=[place.name for place in places],
        places=places,
        unpaired={
            side.name: some
            for k, side in enumerate(sides)
            if k > 0 and in_turns[side.name] != "no"
            if (some := {place.name: n for place in places if (n := place.pairs(k)) < len(side.runs)})
        },
        broken={side.name: loads for side in sides if (loads := broken_off(side, sides))},
    )


def _nothing_shared(sides: Sequence[Side], alone: Mapping[str, Sequence[str]]) -> UsageError:
    lost = {side.name: told for side in sides if (told := counted(left_out(side)))}
    have = [f"{side}: {', '.join(loads)}" for side, loads in alone.items()]
    where = "; ".join([*have, *(f"left out of {side}: {told}" for side, told in lost.items())]) or None
    if lost and len(have) < len(sides):
        todo = "measure again: longer levels, and idle cores for the client (--pin) help"
        return UsageError("too many levels say nothing of their target: no load is left on every side", where, todo)
    return UsageError("no load was measured on every side", where, "measure them at equal loads")


def _unknown(each: Difference, first: str, in_part: Mapping[str, float]) -> bool:
    """Whether no run of a side knows what it paid: there is nothing to show beside the other side."""
    return (
        is_sum(figure(each.figure))
        and 0 in each.runs
        and any(side in in_part for side, runs in zip((first, each.side), each.runs, strict=True) if runs == 0)
    )


def _failed(places: Sequence[Place], side: int) -> dict[str, float]:
    shares = {place.name: mean_share(place.measured(side)) for place in places}
    return {name: share for name, share in shares.items() if share > 0}


def _withheld(known: Sequence[Difference], judged: Sequence[Difference], margin: float) -> dict[str, list[str]]:
    """The figures whose verdict failures stand against."""
    made: dict[str, list[str]] = {}
    plain = with_verdicts([replace(each, hidden=0.0) for each in known], margin=margin)
    for before, after in zip(plain, judged, strict=True):
        if after.hidden and before.verdict != after.verdict:
            made.setdefault(after.side, []).append(f"{after.figure} at {after.load}")
    return made


def _noise(side: str, load: str, of: Figure, measured: Sequence[Measured | None]) -> Noise | None:
    ratio = of.scale == "ratio"
    known = [each for each in measured if each is not None and of.is_known(each)]
    n = len(known)
    if n < 2:
        return None
    values = [math.log(each.value) if ratio else each.value for each in known]
    mean = sum(values) / n
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1))
    freedom = 2 * (n - 1)
    seen = (t_quantile(1 - ALPHA / 2, freedom) + t_quantile(POWER, freedom)) * spread * math.sqrt(2 / n)
    inside = math.sqrt(sum(each.error**2 for each in known) / n)
    back = math.expm1 if ratio else float
    return Noise(side, load, of.name, n, back(spread), back(inside), back(min(seen, 700.0)))
